"""Signatures over real HTTP: what botocore signs is let in, and with one part changed it is not.

The pure tests change every byte; here each part is changed once, behind a socket and an HTTP
parser, which must hand over exactly what was sent.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from fairturn.server.auth.keys import AccessKey, Keys
from fairturn.server.auth.sigv4 import SignedRequest
from fairturn.server.sqs.wire.action_table import ACTIONS, ListOf, MapOf, Scalar, Type
from tests.server.fuzz_requests import FORM, JSON, Stock, as_form, as_json, members
from tests.server.http_doors import Client, Reply, Served, Service, run, served
from tests.server.moto_twins import client
from tests.server.signing import KEY, TOKEN, header, sign, signature, swapping, with_header

REQUESTS = 1_000
CHANGED = 10  # of each kind, in each of its parts
SHORT = AccessKey("A", "x")
KEYS = Keys([KEY, SHORT])
# How it is asked, and where the signature is. botocore signs no JSON in a query string.
KINDS = (
    ("json", "header"),
    ("form", "header"),
    ("get", "header"),
    ("get", "query"),
    ("post", "query"),
)
URL_BYTES = 50_000  # longer ones are refused as headers
PATHS = ("/", "/123456789012/orders", "/1/größe & mehr+?.fifo", "/a/./b/../c", "//x//")
REGIONS = ("us-east-1", "eu-central-1", "cn-northwest-1")
REFUSALS = {
    "IncompleteSignature": 400,
    "InvalidClientTokenId": 403,
    "RequestExpired": 400,
    "SignatureDoesNotMatch": 403,
}


def signed(rng: random.Random, url: str, style: str, place: str) -> tuple[str, SignedRequest]:
    """A random request, and what it asks for."""
    action = rng.choice(sorted(ACTIONS))
    tree = members(rng, Stock(url), ACTIONS[action].input)
    while style in ("get", "post") and len(as_form(action, tree)) > URL_BYTES:
        tree = members(rng, Stock(url), ACTIONS[action].input)
    path = rng.choice(PATHS[:1] if not ACTIONS[action].at_queues else PATHS)
    where = url + quote(path, safe="/&+")
    headers: dict[str, str] = {"X-Custom": "a  b"} if rng.random() < 0.3 else {}
    method, body = "POST", b""
    if style == "json":
        headers |= {"Content-Type": JSON, "X-Amz-Target": f"AmazonSQS.{action}"}
        body = as_json(tree)
    elif style == "form":
        headers["Content-Type"] = FORM
        body = as_form(action, tree)
    else:
        # As SDKs write it: a blank is %20.
        where = f"{where}?{as_form(action, tree).decode().replace('+', '%20')}"
        method = style.upper()
    return action, sign(
        method,
        where,
        headers,
        body,
        key=rng.choice((KEY, SHORT)),
        token=rng.choice((None, TOKEN)),
        region=rng.choice(REGIONS),
        expires=600 if place == "query" else None,
    )


def raw(request: SignedRequest) -> bytes:
    query = b"?" + request.query if request.query else b""
    lines = [b" ".join([request.method.encode(), request.path + query, b"HTTP/1.1"])]
    lines += [b"%s: %s" % (n, v) for n, v in request.headers if n.lower() != b"content-length"]
    lines.append(b"Content-Length: %d" % len(request.body))
    return b"\r\n".join([*lines, b"", request.body])


class Asker:
    """One connection at a time, kept as long as it lasts."""

    def __init__(self, server: Served) -> None:
        self._server = server
        self._client: Client | None = None

    async def __call__(self, request: SignedRequest) -> Reply:
        self._client = self._client or await self._server.connect()
        self._client.send(raw(request))
        reply = await self._client.reply()
        if ("connection", "close") in reply.headers:
            self.close()
        return reply

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def test_a_thousand_requests_are_let_in(rng: random.Random) -> None:
    async def main() -> None:
        service = Service()
        async with served(service, keys=KEYS) as server:
            ask = Asker(server)
            url = f"http://127.0.0.1:{server.port}"
            kinds: Counter[tuple[str, str]] = Counter()
            for number in range(REQUESTS):
                style, place = KINDS[number % len(KINDS)]
                action, request = signed(rng, url, style, place)
                reply = await ask(request)
                assert reply.status == 200, (number, request, reply)
                assert service.asked[-1].action == action
                kinds[style, place] += 1
            ask.close()
        assert len(service.asked) == REQUESTS
        assert {asked.caller.region for asked in service.asked} == set(REGIONS)
        assert {asked.action for asked in service.asked} == set(ACTIONS)
        assert set(kinds.values()) == {REQUESTS // len(KINDS)}

    run(main())


def changes(request: SignedRequest) -> Iterator[tuple[str, SignedRequest]]:
    """The request with one part changed, and which."""
    yield "method", replace(request, method="PUT" if request.method == "POST" else "POST")
    yield "path", replace(request, path=request.path + b"x")
    yield "query", replace(request, query=(request.query + b"&x=1").removeprefix(b"&"))
    yield "body", replace(request, body=request.body + b" ")
    if request.body:
        yield "a byte", replace(request, body=request.body[:-1] + bytes([request.body[-1] ^ 1]))
        yield "no body", replace(request, body=b"")
    in_query = b"X-Amz-Signature" in request.query
    scope = b"/sqs/aws4_request"
    given = signature(request).encode()
    other = given[:-1] + (b"0" if given[-1:] != b"0" else b"1")
    for name, old, new in (
        ("signature", given, other),
        ("service", scope, b"/sns/aws4_request"),
        ("end of scope", scope, b"/sqs/aws5_request"),
        ("region", scope, b"x/sqs/aws4_request"),
        ("algorithm", b"AWS4-HMAC-SHA256", b"AWS4-HMAC-SHA512"),
    ):
        yield name, swapping(request, old, new)
    if in_query:
        yield from _query_changes(request)
    else:
        yield from _header_changes(request)
    yield "host", with_header(request, "Host", b"elsewhere:1")


def _header_changes(request: SignedRequest) -> Iterator[tuple[str, SignedRequest]]:
    authorization = header(request, "Authorization")
    listed = authorization.partition(b"SignedHeaders=")[2].partition(b",")[0].decode().split(";")
    for name in listed:
        if name != "host":
            value = header(request, name)
            yield f"header {name}", with_header(request, name, value + b"1")
            yield f"no header {name}", with_header(request, name, None)
    yield "key", swapping(request, b"Credential=", b"Credential=x")
    yield "day", swapping(request, b"/20", b"/19")
    yield "signed headers", swapping(request, b"SignedHeaders=", b"SignedHeaders=accept;")
    yield "fewer signed headers", swapping(request, b";x-amz-date", b"")


def _query_changes(request: SignedRequest) -> Iterator[tuple[str, SignedRequest]]:
    for old, new in (
        (b"X-Amz-Credential=", b"X-Amz-Credential=x"),
        (b"X-Amz-Expires=600", b"X-Amz-Expires=601"),
        (b"X-Amz-SignedHeaders=", b"X-Amz-SignedHeaders=accept%3B"),
        (b"X-Amz-Date=20", b"X-Amz-Date=19"),
        (b"X-Amz-Security-Token=", b"X-Amz-Security-Token=x"),
        (b"Action=", b"action="),
    ):
        if old in request.query:
            name = old.decode().partition("=")[0]
            yield name, replace(request, query=request.query.replace(old, new, 1))


@pytest.mark.parametrize(("style", "place"), KINDS)
def test_one_changed_part_and_it_is_refused(style: str, place: str, rng: random.Random) -> None:
    async def main() -> set[str]:
        service = Service()
        parts: set[str] = set()
        async with served(service, keys=KEYS) as server:
            ask = Asker(server)
            url = f"http://127.0.0.1:{server.port}"
            for _ in range(CHANGED):
                _, request = signed(rng, url, style, place)
                for part, changed in changes(request):
                    parts.add(part)
                    assert code_of(await ask(changed)) in REFUSALS, (part, request)
                assert not service.asked
                # It was the change: unchanged it is let in.
                assert (await ask(request)).status == 200
                service.asked.clear()
            ask.close()
        return parts

    parts = run(main())
    assert len(parts) >= 12, parts


def code_of(reply: Reply) -> str:
    """The error's code, with the status that belongs to it."""
    assert TOKEN.encode() not in reply.body
    assert KEY.secret.encode() not in reply.body
    found = (
        next((code for code in REFUSALS if f"<Code>{code}<".encode() in reply.body), None)
        or dict(reply.headers).get("x-amzn-query-error", "").partition(";")[0]
    )
    assert reply.status == REFUSALS.get(found, reply.status), reply
    return found


# --- the SDK itself -------------------------------------------------------------------------------
def sample(type: Type, name: str) -> Any:
    """A value of the table's type for botocore."""
    match type:
        case Scalar():
            known = {"integer": 1, "long": 1, "boolean": True, "blob": b"\0"}
            return known.get(type.kind, f"{name} ü")
        case ListOf():
            return [sample(type.item, name)]
        case MapOf():
            return {"a": sample(type.value, name)}
        case _:
            return {name: sample(member.type, name) for name, member in type.members.items()}


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_botocore_is_let_in_with_each_action(protocol: str) -> None:
    def use(url: str) -> None:
        with client(protocol, url, KEY.id, KEY.secret, TOKEN) as sqs:
            for action, known in ACTIONS.items():
                given = sample(known.input, action)
                sqs._make_api_call(action, given)

    async def main() -> None:
        service = Service()
        async with served(service, keys=KEYS) as server:
            await asyncio.to_thread(use, f"http://127.0.0.1:{server.port}")
        assert [asked.action for asked in service.asked] == list(ACTIONS)
        for asked in service.asked:
            assert asked.input == sample(ACTIONS[asked.action].input, asked.action)

    run(main())
