"""A DynamoDB (dynalite or moto's) and an SQS (`fairturn serve`), and a drain between them."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.config import Config

import fairturn
from fairturn.core.message import Message
from fairturn.relay.dynamodb import DynamoStore
from tests import dynalite
from tests.clients.serving import Served
from tests.relay.dynamodb.original import Original
from tests.server.moto_twins import moto

NOW = 1_900_000_000.25  # by the drains' clock; SQS has one of its own
CLAIM = 121  # seconds after which nobody has a claim any more
THROTTLED = "ProvisionedThroughputExceededException"
KINDS = {"dynalite": dynalite.running, "moto": moto}
KEYS = {"region_name": "eu-west-3", "aws_access_key_id": "any", "aws_secret_access_key": "any"}
ONCE = Config(retries={"total_max_attempts": 1}, max_pool_connections=20)


class World:
    """What lives as long as the session; each is started when it is first asked for."""

    def __init__(self, directory: Path) -> None:
        self._stack = contextlib.ExitStack()
        self._urls: dict[str, str] = {}
        self._served: Served | None = None
        self._numbers = iter(range(1_000_000))
        self._database = f"sqlite:///{directory}/sqs.db"

    def dynamodb_url(self, kind: str) -> str:
        if kind not in self._urls:
            self._urls[kind] = self._stack.enter_context(KINDS[kind]())
        return self._urls[kind]

    @property
    def served(self) -> Served:
        if self._served is None:
            with fairturn.connect(self._database) as db:
                db.migrate()
            self._served = Served("sqlite", self._database)
        return self._served

    def name(self, end: str = "") -> str:
        return f"jobs-{next(self._numbers)}{end}"

    def close(self) -> None:
        if self._served is not None:
            self._served.close()
        self._stack.close()


@dataclass
class Stage:
    """One queue and its table, for one test."""

    world: World
    kind: str
    subject: str
    clients: contextlib.ExitStack
    queue: str = ""
    now: float = NOW
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000)))

    def __post_init__(self) -> None:
        self.dynamodb_url = self.world.dynamodb_url(self.kind)
        self.dynamodb = self.dynamodb_client()
        self.sqs = self.sqs_client()
        self.db = self.clients.enter_context(fairturn.connect(self.world.served.database))
        self.use(self.world.name())

    def use(self, queue: str) -> None:
        """Go on with another queue."""
        self.queue = queue
        fifo = {"FifoQueue": "true"} if queue.endswith(".fifo") else {}
        self.url = self.sqs.create_queue(QueueName=queue, Attributes=fifo)["QueueUrl"]
        assert DynamoStore(self.dynamodb, self.sqs).create_table(queue)

    def dynamodb_client(self) -> Any:
        made = boto3.client("dynamodb", endpoint_url=self.dynamodb_url, config=ONCE, **KEYS)
        self.clients.callback(made.close)
        return made

    def sqs_client(self) -> Any:
        made = self.world.served.client(retries={"total_max_attempts": 1})
        self.clients.callback(made.close)
        return made

    def drain(
        self,
        on_step: Callable[[str, Sequence[str]], None] | None = None,
        *,
        dynamodb: Any = None,
        sqs: Any = None,
    ) -> Any:
        """The one that is tested."""
        made = DynamoStore if self.subject == "ours" else Original
        told: dict[str, Any] = {} if on_step is None else {"on_step": on_step}
        clients = (dynamodb or self.dynamodb, sqs or self.sqs)
        return made(*clients, clock=lambda: self.now, **told)

    def job(self, id: str | None = None, **more: Any) -> dict[str, Any]:
        id = f"job-{next(self.numbers)}" if id is None else id
        return {"job_class": "Anchor", "job_id": id, "queue_name": self.queue, **more}

    def put(self, ahead: float, id: str | None = None, **more: Any) -> str:
        """A job that is due in so many seconds."""
        job = self.job(id, **more)
        DynamoStore(self.dynamodb, self.sqs).put(self.queue, job, self.now + ahead)
        return job["job_id"]

    def fill(self, n: int, ahead: float = 100.5) -> list[str]:
        return [self.put(ahead + i / 1000) for i in range(n)]

    # --- what there is ---
    def table(self) -> dict[str, dict[str, Any]]:
        """The items as DynamoDB has them, by job."""
        found = self.dynamodb.scan(TableName=self.queue, ConsistentRead=True)["Items"]
        return {one["job_id"]["S"]: one for one in found}

    def messages(self) -> list[Message]:
        """What SQS has, also what is delayed."""
        return self.db.queue(self.queue).peek(1000)

    def arrived(self) -> Counter[str]:
        return Counter(message.body["job_id"] for message in self.messages())

    def delays(self) -> dict[str, float]:
        """Seconds that SQS was told to wait, by job."""
        return {
            one.body["job_id"]: round((one.due_at - one.created_at).total_seconds(), 3)
            for one in self.messages()
        }


# --- trouble --------------------------------------------------------------------------------------


def answer(client: Any, operation: str, code: str, times: int = 1, after: int = 0) -> None:
    """Let an operation fail with an error of AWS's, ``times`` times after it went well ``after``
    times. Nothing is asked of the server."""
    service = client.meta.service_model.service_name
    left = iter([False] * after + [True] * times)

    def refuse(request: Any, **_: Any) -> AWSResponse | None:
        if not next(left, False):
            return None
        body = json.dumps({"__type": f"com.amazonaws#{code}", "message": "too fast"}).encode()
        return AWSResponse(request.url, 400, {"x-amzn-requestid": "1"}, _Raw(body))

    client.meta.events.register_first(f"before-send.{service}.{operation}", refuse)


def babble(client: Any, operation: str) -> None:
    """Let an operation be answered once by what is no AWS: a proxy's page that says 200."""
    service = client.meta.service_model.service_name
    left = iter([True])

    def page(request: Any, **_: Any) -> AWSResponse | None:
        if not next(left, False):
            return None
        kind = {"content-type": "text/html"}
        return AWSResponse(request.url, 200, kind, _Raw(b"<html>Please log in</html>"))

    client.meta.events.register_first(f"before-send.{service}.{operation}", page)


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        yield self._body


def lose(client: Any, operation: str, error: Exception, times: int = 1) -> None:
    """Let an operation happen, and its answer be lost."""
    service = client.meta.service_model.service_name
    left = iter([True] * times)

    def lost(**_: Any) -> None:
        if next(left, False):
            raise error

    client.meta.events.register(f"after-call.{service}.{operation}", lost)
