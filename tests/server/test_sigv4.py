"""Signatures made by botocore are accepted; one changed thing, and they are not."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

import pytest

from fairturn.server.auth.keys import AccessKey, Keys
from fairturn.server.auth.sigv4 import SignedRequest, Signer, plain_path, verify
from tests.server.signing import (
    FORM,
    KEYS,
    TARGET,
    URL,
    accepted,
    adding,
    formed,
    gotten,
    header,
    now,
    posted,
    refused,
    sign,
    swapping,
    with_header,
)

# --- botocore's are accepted --------------------------------------------------------------------

HOSTS = ("localhost", "127.0.0.1", "[::1]", "sqs.eu-west-1.amazonaws.com", "q.test")
PORTS = ("", ":80", ":443", ":9324", ":65535")
PATHS = ("", "/", "/123456789012/orders", "/000000000000/a.fifo")
REGIONS = ("us-east-1", "eu-central-1", "cn-northwest-1", "local", "x")
ODD = "aZ09-_.~ !\"#$%&'()*+,/:;<=>?@[\\]^`{|}\t\r\n\0\x7fé€中😀\u00a0\u202e"
VISIBLE = "".join(map(chr, range(33, 127)))
# What may be in a header: no control characters but the tab, blanks in runs and at the ends.
VALUES = " \t  ,;:=/+%\"'abcXYZ019~é中"
EXTRA = ("X-Amzn-Trace-Id", "User-Agent", "X-Custom", "x-amz-meta", "Accept")
KINDS = ("json", "form", "get", "presigned", "empty")


def texts(chance: random.Random, characters: str, shortest: int = 0, longest: int = 20) -> str:
    return "".join(chance.choices(characters, k=chance.randint(shortest, longest)))


def path(chance: random.Random) -> str:
    if chance.random() < 0.3:
        return chance.choice(PATHS)
    # Clients differ in which characters they leave alone; each of these is a legal path.
    safe = chance.choice(("", "~", "!$&'()*+,;=:@"))
    parts = ("", ".", "..", "%2F", "%2e%2e", quote(texts(chance, ODD), safe=safe))
    weights = (1, 1, 1, 1, 1, 8)
    return "/" + "/".join(chance.choices(parts, weights, k=chance.randint(0, 5)))


def made(chance: random.Random, kind: str) -> tuple[SignedRequest, AccessKey, str]:
    """A random request of this kind, signed by botocore; with what key, for which region."""
    scheme = chance.choice(("http", "https"))
    url = f"{scheme}://{chance.choice(HOSTS)}{chance.choice(PORTS)}{path(chance)}"
    key = AccessKey("AKID" + chance.choice(("1", "_x", "-.Z")), texts(chance, VISIBLE, 1, 60))
    token = chance.choice((None, texts(chance, VISIBLE, 1, 60)))
    region = chance.choice(REGIONS)
    fields = {texts(chance, ODD): texts(chance, ODD) for _ in range(chance.randint(0, 4))}
    headers = {name: texts(chance, VALUES) for name in chance.sample(EXTRA, chance.randint(0, 3))}
    method, body, expires = "POST", b"", None
    if kind == "json":
        headers |= TARGET
        body = json.dumps(fields, ensure_ascii=chance.random() < 0.5).encode()
    elif kind == "form":
        headers |= FORM
        body = urlencode(fields).encode()
    elif kind in ("get", "presigned"):
        method = "GET"
        url += "?" + urlencode(fields, quote_via=quote, safe="")
    if kind == "presigned":
        method = chance.choice(("GET", "POST"))
        # Not so short that a slow machine could let it expire.
        expires = chance.randint(600, 604_800)
    elif chance.random() < 0.2:
        headers["Date"] = "now"  # botocore then signs with a Date of its own instead
    signed = sign(method, url, headers, body, key=key, token=token, region=region, expires=expires)
    return signed, key, region


@pytest.mark.parametrize("kind", KINDS)
def test_what_botocore_signs_is_accepted(kind: str) -> None:
    for seed in range(200):
        chance = random.Random(f"{kind} {seed}")
        request, key, region = made(chance, kind)
        shuffled = chance.sample(request.headers, len(request.headers))
        keys = Keys([AccessKey("other", "secret"), key])
        caller = verify(replace(request, headers=shuffled), keys, now())
        assert caller == Signer(key, region), (seed, request, request.query, shuffled)


def test_the_example_of_the_documentation_is_accepted() -> None:
    """The one request of AWS's documentation whose signature is published."""
    request = SignedRequest(
        "GET",
        b"/",
        b"Action=ListUsers&Version=2010-05-08",
        [
            (b"Host", b"iam.amazonaws.com"),
            (b"Content-Type", b"application/x-www-form-urlencoded; charset=utf-8"),
            (b"X-Amz-Date", b"20150830T123600Z"),
            (
                b"Authorization",
                (
                    b"AWS4-HMAC-SHA256 "
                    b"Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, "
                    b"SignedHeaders=content-type;host;x-amz-date, "
                    b"Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
                ),
            ),
        ],
        b"",
    )
    at = datetime(2015, 8, 30, 12, 40, tzinfo=UTC)
    assert verify(request, KEYS, at, service="iam")


# --- what may differ ----------------------------------------------------------------------------


def test_who_called_is_told(signed: SignedRequest) -> None:
    key, region = verify(signed, KEYS, now())
    assert (key.id, key.account, region) == ("AKIDEXAMPLE", "123456789012", "eu-central-1")


def test_names_of_headers_have_no_case_and_no_order(signed: SignedRequest) -> None:
    headers = [(name.swapcase(), value) for name, value in reversed(signed.headers)]
    assert accepted(replace(signed, headers=headers))


def test_names_of_signed_headers_have_no_case() -> None:
    for request in (posted(), formed(), gotten()):
        assert accepted(swapping(request, b"host", b"Host"))


def test_the_order_of_the_query_is_free(signed: SignedRequest) -> None:
    parts = signed.query.split(b"&")
    assert accepted(replace(signed, query=b"&".join(reversed(parts))))


def test_a_plus_in_the_query_is_a_blank_as_it_is_when_it_is_read() -> None:
    request = gotten()
    assert accepted(replace(request, query=request.query.replace(b"%20", b"+")))
    plus = sign("GET", f"{URL}/?A=1%2B2", {})
    assert accepted(plus)
    refused(replace(plus, query=b"A=1+2"), "SignatureDoesNotMatch")


def test_blanks_around_and_within_a_value_do_not_count() -> None:
    assert accepted(with_header(posted(), "X-Custom", b"  a \t b "))


def test_unsigned_headers_may_come_and_go(signed: SignedRequest) -> None:
    more = adding(signed, "X-Amzn-Trace-Id", b"Root=1")
    more = adding(adding(more, "X-Amz-User-Agent", b"sdk"), "X-Forwarded-For", b"::1")
    assert accepted(adding(more, "X-Forwarded-For", b"::2"))


@pytest.mark.parametrize("separator", [b",", b" ", b" , "])
def test_parts_of_the_authorization_are_separated_by_commas_or_blanks(separator: bytes) -> None:
    request = posted()
    given = header(request, "Authorization").replace(b", ", separator)
    assert accepted(with_header(request, "Authorization", given))


def test_dots_and_doubled_slashes_are_no_part_of_what_is_signed(signed: SignedRequest) -> None:
    assert accepted(replace(signed, path=b"//1/./x/../orders"))
    assert plain_path(b"//1/./x/../orders") == b"/1/orders"


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        (b"", b"/"),
        (b"/", b"/"),
        (b"//", b"/"),
        (b"/..", b"/"),
        (b"/a/", b"/a/"),
        (b"/a/../", b"/"),
        (b"/a//b/./..", b"/a"),
        (b"/%2e%2e/a", b"/%2e%2e/a"),
    ],
)
def test_plain_paths(path: bytes, plain: bytes) -> None:
    assert plain_path(path) == plain


def test_an_unsigned_body_is_accepted_only_where_it_is_allowed() -> None:
    request = posted(**{"X-Amz-Content-Sha256": "UNSIGNED-PAYLOAD"})
    refused(request, "SignatureDoesNotMatch")
    refused(posted(**{"X-Amz-Content-Sha256": "STREAMING-X"}), "SignatureDoesNotMatch")


def test_the_hash_in_the_header_must_be_of_the_body() -> None:
    right = hashlib.sha256(b'{"MessageBody":"hi"}').hexdigest()
    request = posted(**{"X-Amz-Content-Sha256": right})
    assert accepted(request)
    wrong = hashlib.sha256(b"{}").hexdigest()
    refused(posted(**{"X-Amz-Content-Sha256": wrong}), "SignatureDoesNotMatch")
    refused(replace(request, body=b"{}"), "SignatureDoesNotMatch")
