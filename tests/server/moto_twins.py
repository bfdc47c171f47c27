"""Fairturn's SQS and moto's side by side: the same calls by botocore, and what was answered.

What differs by its nature is replaced by a word of the same kind: ids, handles and tokens by the
step that gave them first, times by their number of digits, the server's own address by `<host>`.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import botocore.loaders
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError
from botocore.session import get_session

from tests.server.serve_programs import SECONDS, wait_for
from tests.server.sqs_models import query_model

ACCOUNT = "123456789012"
TIMES = {
    "ApproximateFirstReceiveTimestamp",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "SentTimestamp",
    "StartedTimestamp",
}
IDS = {"MessageId", "NextToken", "ReceiptHandle", "TaskHandle"}
DOCUMENTS = {"Policy", "RedriveAllowPolicy", "RedrivePolicy"}
BROKEN = "broken"  # no answer that the protocol knows
LISTS = {"QueueUrls", "queueUrls"}


class QueryLoader(botocore.loaders.Loader):
    """Makes botocore speak Query, as it did before November 2023."""

    def load_service_model(
        self, service_name: str, type_name: str, api_version: str | None = None
    ) -> Any:
        if (service_name, type_name) == ("sqs", "service-2"):
            return query_model()._service_description
        return super().load_service_model(service_name, type_name, api_version)


@contextlib.contextmanager
def client(
    protocol: str, url: str, id: str = "any", secret: str = "any", token: str | None = None
) -> Iterator[Any]:
    """botocore's, which sends whatever it is given."""
    session = get_session()
    if protocol == "query":
        session.register_component("data_loader", QueryLoader())
    found = session.create_client(
        "sqs",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=id,
        aws_secret_access_key=secret,
        aws_session_token=token,
        config=Config(
            retries={"total_max_attempts": 1}, read_timeout=SECONDS, parameter_validation=False
        ),
    )
    try:
        yield found
    finally:
        found.close()


@contextlib.contextmanager
def moto() -> Iterator[str]:
    """moto's server as a program, on a port of its own; its URL."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    lines: list[str] = []
    assert process.stderr is not None
    reading = threading.Thread(target=lines.extend, args=(process.stderr,))
    reading.start()
    address = re.compile(r"Running on (http://127\.0\.0\.1:[0-9]+)")
    try:
        wait_for(
            lambda: any(map(address.search, list(lines))) or process.poll() is not None,
            lambda: "".join(lines),
        )
        found = address.search("".join(lines))
        assert found is not None, "".join(lines)
        yield found[1]
    finally:
        process.kill()
        process.wait()
        reading.join()
        process.stderr.close()


class Side:
    """One of the two servers in one scenario."""

    def __init__(self, client: Any, scenario: str) -> None:
        self._client = client
        self._scenario = scenario
        self._endpoint = client.meta.endpoint_url
        self._words: dict[str, str] = {}  # ids and handles, and what stands for them
        self._step = ""
        self.steps: dict[str, Any] = {}

    def name(self, end: str) -> str:
        """Of a queue of this scenario."""
        return f"{self._scenario}-{end}".replace("_", "-")

    def queue(self, end: str = "q", **attributes: str) -> str:
        if end.endswith(".fifo"):
            attributes = {"FifoQueue": "true", **attributes}
        made = self.ask("CreateQueue", QueueName=self.name(end), Attributes=attributes)
        return made["QueueUrl"]

    def arn(self, end: str) -> str:
        return f"arn:aws:sqs:us-east-1:{ACCOUNT}:{self.name(end)}"

    def ask(self, action: str, /, **given: Any) -> dict[str, Any]:
        """What the action answers; nothing where it is refused."""
        method = re.sub(r"(?<!^)([A-Z])", r"_\1", action).lower()
        number = 1 + sum(label.partition(" ")[0] == action for label in self.steps)
        self._step = f"{action} {number}"
        answer: dict[str, Any] = {}
        try:
            answer = getattr(self._client, method)(**given)
            status = answer.pop("ResponseMetadata")["HTTPStatusCode"]
            told = {"status": status, **self._plain(answer)}
        except ClientError as error:
            told = self._refusal(error.response)
        except ResponseParserError:  # a page of HTML, or JSON where XML was asked for
            told = {"error": BROKEN}
        self.steps[self._step] = told
        return answer

    def receive(self, url: str, n: int = 10, **given: Any) -> list[Any]:
        answer = self.ask("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=n, **given)
        return answer.get("Messages", [])

    def counts(self, url: str) -> None:
        every = [f"ApproximateNumberOfMessages{more}" for more in ("", "NotVisible", "Delayed")]
        self.ask("GetQueueAttributes", QueueUrl=url, AttributeNames=every)

    def _refusal(self, response: Any) -> dict[str, Any]:
        error, status = response["Error"], response["ResponseMetadata"]["HTTPStatusCode"]
        if status >= 500:
            return {"error": BROKEN}
        return {
            "error": error["Code"],
            "status": status,
            "text": self._text(error.get("Message", "")),
            **({"type": error["QueryErrorCode"]} if "QueryErrorCode" in error else {}),
        }

    # --- words ---------------------------------------------------------------------------------
    def _plain(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self._plain(item, name) for name, item in value.items()}
        if isinstance(value, list):
            found = [self._plain(item, key) for item in value]
            return sorted(found) if key in LISTS else found
        if key in IDS:
            word = f"{key} of {self._step}"
            number = 1 + sum(given.startswith(word) for given in self._words.values())
            return self._words.setdefault(value, f"{word}, {number}")
        if key in TIMES:
            return f"a time of {len(str(value))} digits"
        if key == "SequenceNumber":
            return f"a number of {len(value)} digits"
        if key == "SenderId":
            return "somebody"
        if key in DOCUMENTS:
            return json.loads(value)
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for word, stands in self._words.items():
            text = text.replace(word, f"<{stands}>")
        return text.replace(self._endpoint, "<host>")


Scenario = Callable[[Side], None]


def differences(ours: Any, theirs: Any) -> Iterator[tuple[str, Any, Any]]:
    """Where two answers differ, and what each has there; None: nothing.

    Of an answer and a refusal, or of two refusals, only that is told: `outcome` and both codes.
    """
    outcomes = outcome(ours), outcome(theirs)
    if outcomes[0] != outcomes[1]:
        yield "outcome", *outcomes
    else:
        yield from _below(ours, theirs, "")


def outcome(told: Any) -> str:
    return told.get("error", "200")


def _below(ours: Any, theirs: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted({*ours, *theirs}):
            yield from _below(ours.get(key), theirs.get(key), f"{path}.{key}" if path else key)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _below(one, other, f"{path}[{number}]")
    elif ours != theirs:
        yield path, ours, theirs
