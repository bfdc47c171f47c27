"""The real thing: the SDK over a socket, a real HTTP server, and what it hands to ``verify``."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.session import get_session

from fairturn.server.auth.sigv4 import SignedRequest, Signer
from fairturn.server.sqs.wire import protocols
from fairturn.sqs.errors import SqsError
from tests.server.signing import KEY, TOKEN, presign, verdict


class Door:
    """An ASGI application that only asks who is there."""

    def __init__(self) -> None:
        self.answers: list[Signer | SqsError] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            event = await receive()
            body += event.get("body", b"")
            more = event.get("more_body", False)
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        request = SignedRequest(
            scope["method"], scope["raw_path"], scope["query_string"], headers, body
        )
        answer = verdict(request)
        self.answers.append(answer)
        reply = protocols.Response(200, [(b"content-type", b"application/x-amz-json-1.0")], b"{}")
        if isinstance(answer, SqsError):
            protocol = protocols.protocol_of(dict(headers))
            reply = protocols.render_error(protocol, answer, "a-request-id")
        start = {"status": reply.status, "headers": reply.headers}
        await send({"type": "http.response.start", **start})
        await send({"type": "http.response.body", "body": reply.body})


@pytest.fixture
def door() -> Iterator[tuple[Door, str]]:
    app = Door()
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
    # Listening before the server runs: a client that comes too early only waits.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        yield app, f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def client(url: str, secret: str = KEY.secret, id: str = KEY.id) -> Any:
    return get_session().create_client(
        "sqs",
        endpoint_url=url,
        region_name="eu-central-1",
        aws_access_key_id=id,
        aws_secret_access_key=secret,
        aws_session_token=TOKEN,
        config=Config(retries={"total_max_attempts": 1}),
    )


def test_the_sdk_is_let_in(door: tuple[Door, str]) -> None:
    app, url = door
    sqs = client(url)
    queue = f"{url}/123456789012/örders & more"
    sqs.list_queues()
    sqs.send_message(QueueUrl=queue, MessageBody="\u0000ü😀" * 100)
    sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20)
    sqs.delete_message_batch(QueueUrl=queue, Entries=[{"Id": "1", "ReceiptHandle": "+/="}])
    assert app.answers == [Signer(KEY, "eu-central-1")] * 4


def test_the_sdk_tells_why_it_is_not_let_in(door: tuple[Door, str]) -> None:
    app, url = door
    for sqs, code in (
        (client(url, secret="wrong"), "SignatureDoesNotMatch"),
        (client(url, id="AKIDUNKNOWN"), "InvalidClientTokenId"),
    ):
        with pytest.raises(ClientError) as raised:
            sqs.list_queues()
        assert raised.value.response["Error"]["Code"] == code
        assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert len(app.answers) == 2


def test_a_presigned_url_is_let_in(door: tuple[Door, str]) -> None:
    app, url = door
    path = f"{url}/123456789012/a%20b%2Bc?Action=SendMessage&MessageBody=a%20%2B%C3%BC%26"
    assert get(presign(path, 600)) == (200, b"{}")
    assert app.answers == [Signer(KEY, "eu-central-1")]


def test_a_refusal_is_told_in_the_query_protocol_too(door: tuple[Door, str]) -> None:
    _, url = door
    status, body = get(f"{url}/?Action=ListQueues")
    assert status == 403
    assert b"<Code>MissingAuthenticationToken</Code>" in body
    assert b"<Message>Request is missing Authentication Token</Message>" in body
    status, body = get(presign(f"{url}/?Action=ListQueues", 600) + "0")
    assert (status, b"<Code>SignatureDoesNotMatch</Code>" in body) == (403, True)


def get(url: str) -> tuple[int, bytes]:
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection(parts.netloc)) as connection:
        connection.request("GET", f"{parts.path}?{parts.query}")
        response = connection.getresponse()
        return response.status, response.read()
