"""SQS servers for the relay's tests: Fairturn's own and moto's, and a proxy that spoils calls."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

import fairturn
from fairturn.relay.destination import Parcel
from fairturn.relay.route import parcel
from tests.conformance.door import unique
from tests.server.moto_twins import moto
from tests.server.serve_programs import sdk, serve

KINDS = ("fairturn", "moto")
# What every AWS SDK finds by itself; nothing of the user's own configuration is looked at.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "any",
    "AWS_SECRET_ACCESS_KEY": "any",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Sqs:
    """One server, seen by boto3."""

    def __init__(self, kind: str, address: str, client: Any) -> None:
        self.kind = kind
        self.address = address
        self.client = client

    def queue(self, end: str = "", **attributes: str) -> str:
        """A new queue; its URL."""
        if end == ".fifo":
            attributes["FifoQueue"] = "true"
        made = self.client.create_queue(QueueName=f"{unique('s')}{end}", Attributes=attributes)
        return made["QueueUrl"]

    def counts(self, queue_url: str) -> tuple[int, int]:
        """(ready, delayed)."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"]
        asked = self.client.get_queue_attributes(QueueUrl=queue_url, AttributeNames=names)
        ready, delayed = (int(asked["Attributes"][name]) for name in names)
        return ready, delayed

    def taken(self, queue_url: str) -> list[dict[str, Any]]:
        """All that is ready there, taken out."""
        found: list[dict[str, Any]] = []
        while True:
            messages = self.client.receive_message(
                QueueUrl=queue_url,
                MaxNumberOfMessages=10,
                MessageAttributeNames=["All"],
                AttributeNames=["All"],
            ).get("Messages", [])
            if not messages:
                return found
            entries = [
                {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]}
                for n, message in enumerate(messages)
            ]
            self.client.delete_message_batch(QueueUrl=queue_url, Entries=entries)
            found += messages


@pytest.fixture(scope="session")
def sqs_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Sqs]]:
    database = f"sqlite:///{tmp_path_factory.mktemp('sqs')}/served.db"
    with contextlib.ExitStack() as stack:
        addresses = {
            "fairturn": stack.enter_context(serve(database)).url,
            "moto": stack.enter_context(moto()),
        }
        yield {
            kind: Sqs(kind, address, stack.enter_context(sdk(address)))
            for kind, address in addresses.items()
        }


@pytest.fixture
def session_things(sqs_fleet: dict[str, Sqs]) -> None:
    """tests/conftest.py asks for this before it counts what there is."""
    for sqs in sqs_fleet.values():  # with a connection of its client, which is kept, too
        sqs.client.list_queues()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def sqs(
    request: pytest.FixtureRequest, sqs_fleet: dict[str, Sqs], session_things: None, aws: None
) -> Sqs:
    return sqs_fleet[request.param]


@pytest.fixture
def ours(sqs_fleet: dict[str, Sqs], session_things: None, aws: None) -> Sqs:
    """Fairturn's own, where one server is enough."""
    return sqs_fleet["fairturn"]


# --- what is handed over ------------------------------------------------------------------------


@contextlib.contextmanager
def store(tmp_path: Any) -> Iterator[fairturn.Database]:
    with fairturn.connect(f"sqlite:///{tmp_path}/store.db") as db:
        db.migrate()
        yield db


def leased(db: fairturn.Database, sends: Sequence[Any], **settings: Any) -> list[Parcel]:
    """These messages, as a relay has them when it hands them over."""
    queue = db.queue(unique("r"))
    queue.create(max_attempts=0, **settings)
    queue.send_many(sends)
    return [parcel(message) for message in queue.receive(1000, lease=600)]


# --- a proxy ------------------------------------------------------------------------------------

Answer = tuple[int, dict[str, Any]]
Spoil = Callable[[dict[str, Any]], Answer | None]


class Proxy:
    """A real server before a real server. ``spoil`` sees each SendMessageBatch first; what it
    returns is the answer, None lets the call pass."""

    def __init__(self, address: str, spoil: Spoil) -> None:
        self.batches: list[int] = []  # how many entries each call had that passed
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(address, spoil))
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def url(self, queue_url: str) -> str:
        """The queue, through this."""
        return f"http://127.0.0.1:{self._server.server_port}{urlsplit(queue_url).path}"

    def _handler(self, address: str, spoil: Spoil) -> type[BaseHTTPRequestHandler]:
        proxy, target = self, urlsplit(address).netloc

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                asked = json.loads(body)
                spoiled = spoil(asked)
                if spoiled is None:
                    proxy.batches.append(len(asked["Entries"]))
                    upstream = http.client.HTTPConnection(target)
                    upstream.request("POST", self.path, body, dict(self.headers))
                    answer = upstream.getresponse()
                    status, given = answer.status, answer.read()
                    upstream.close()
                else:
                    status, given = spoiled[0], json.dumps(spoiled[1]).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.0")
                self.send_header("Content-Length", str(len(given)))
                self.end_headers()
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self.wfile.write(given)  # the client may have given up

            def log_message(self, format: str, *args: Any) -> None:
                """Not on stderr."""

        return Handler

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def refusal(code: str, text: str = "as told", status: int = 400) -> Answer:
    return status, {"__type": f"com.amazonaws.sqs#{code}", "message": text}
