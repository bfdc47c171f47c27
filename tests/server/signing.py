"""Requests signed by botocore, as the bytes a server would see; and changes to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from fairturn.server.auth.keys import AccessKey, Keys
from fairturn.server.auth.sigv4 import SignedRequest, Signer, verify
from fairturn.sqs.errors import SqsError

KEY = AccessKey("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", account="123456789012")
KEYS = Keys([KEY])
TOKEN = "FwoGZXIvYXdzEXAMPLE//token+="
URL = "http://localhost:9324"
TARGET = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "AmazonSQS.SendMessage"}
FORM = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}


def sign(
    method: str,
    url: str,
    headers: dict[str, str],
    body: bytes = b"",
    *,
    key: AccessKey = KEY,
    token: str | None = None,
    region: str = "eu-central-1",
    service: str = "sqs",
    expires: int | None = None,
    signer: type[SigV4Auth] = SigV4Auth,
) -> SignedRequest:
    """Signed in the header, or in the query string where ``expires`` is given."""
    request = AWSRequest(method=method, url=url, headers=dict(headers), data=body)
    credentials = Credentials(key.id, key.secret, token)
    if expires is None:
        signer(credentials, service, region).add_auth(request)
    else:
        SigV4QueryAuth(credentials, service, region, expires=expires).add_auth(request)
    prepared = request.prepare()
    sent = urlsplit(prepared.url)
    return SignedRequest(
        method=prepared.method,
        path=sent.path.encode(),
        query=sent.query.encode(),
        headers=[(b"Host", _host(prepared.url).encode())]
        + [(name.encode(), _bytes(value)) for name, value in prepared.headers.items()],
        body=_bytes(prepared.body or b""),
    )


def presign(url: str, expires: int) -> str:
    """The URL, signed for everyone who has it."""
    request = AWSRequest(method="GET", url=url)
    credentials = Credentials(KEY.id, KEY.secret, TOKEN)
    SigV4QueryAuth(credentials, "sqs", "eu-central-1", expires=expires).add_auth(request)
    return request.url


def _host(url: str) -> str:
    """The Host header that HTTP clients send for a URL: without the scheme's own port."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    usual = {"http": 80, "https": 443}[parts.scheme]
    return f"{host}" if parts.port in (None, usual) else f"{host}:{parts.port}"


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def now() -> datetime:
    return datetime.now(UTC)


# --- one of each form ---


def posted(**more: str) -> SignedRequest:
    headers = {**TARGET, "X-Custom": "a  b", **more}
    return sign("POST", f"{URL}/1/orders", headers, b'{"MessageBody":"hi"}', token=TOKEN)


def formed() -> SignedRequest:
    return sign("POST", f"{URL}/1/orders", FORM, b"Action=SendMessage&MessageBody=hi")


def gotten() -> SignedRequest:
    return sign("GET", f"{URL}/1/orders?Action=ReceiveMessage&A=1%202", {})


def presigned(expires: int = 3600) -> SignedRequest:
    url = f"{URL}/1/orders?Action=ReceiveMessage&A=1%202"
    return sign("GET", url, {}, token=TOKEN, expires=expires)


FORMS: dict[str, Callable[[], SignedRequest]] = {
    "json": posted,
    "form": formed,
    "get": gotten,
    "presigned": presigned,
}


# --- changing them ---


def with_header(request: SignedRequest, name: str, value: bytes | None) -> SignedRequest:
    """With this value instead, in the same place; or without the header."""
    headers = [
        (given, value if given.lower() == name.lower().encode() else old)
        for given, old in request.headers
        if value is not None or given.lower() != name.lower().encode()
    ]
    return replace(request, headers=headers)


def header(request: SignedRequest, name: str) -> bytes:
    return next(v for n, v in request.headers if n.lower() == name.lower().encode())


def adding(request: SignedRequest, name: str, value: bytes) -> SignedRequest:
    return replace(request, headers=[*request.headers, (name.encode(), value)])


def swapping(request: SignedRequest, old: bytes, new: bytes) -> SignedRequest:
    """With ``old`` replaced where the signature is: the Authorization header or the query."""
    if b"X-Amz-Signature" in request.query:
        old, new = quote(old, safe="").encode(), quote(new, safe="").encode()
        assert old in request.query
        return replace(request, query=request.query.replace(old, new, 1))
    given = header(request, "Authorization")
    assert old in given
    return with_header(request, "Authorization", given.replace(old, new, 1))


def verdict(
    request: SignedRequest, keys: Keys = KEYS, at: datetime | None = None, service: str = "sqs"
) -> Signer | SqsError:
    """Who signed it, or why it is refused."""
    try:
        return verify(request, keys, at or now(), service)
    except SqsError as refusal:
        return refusal


def accepted(request: SignedRequest, at: datetime | None = None) -> bool:
    return isinstance(verdict(request, at=at), Signer)


def refused(
    request: SignedRequest, code: str, keys: Keys = KEYS, at: datetime | None = None
) -> SqsError:
    answer = verdict(request, keys, at)
    assert isinstance(answer, SqsError), answer
    assert answer.code == code, answer
    for secret in (KEY.secret, TOKEN, signature(request)):
        assert secret not in repr(answer)
    return answer


def signature(request: SignedRequest) -> str:
    where = request.query or header(request, "Authorization")
    given = where if b"Signature=" in where else header(request, "Authorization")
    return given.rpartition(b"Signature=")[2].decode()


def refused_somehow(request: SignedRequest) -> None:
    answer = verdict(request)
    assert isinstance(answer, SqsError)
    assert answer.code in ("SignatureDoesNotMatch", "IncompleteSignature"), answer
