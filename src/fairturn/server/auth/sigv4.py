"""AWS Signature Version 4, the server's side: verifies who signed a request.

A pure function of the request's bytes, the configured keys and the time. The signature comes in the
``Authorization`` header or, if presigned, in the query string. It covers:

    string to sign       algorithm, time, scope (date/region/service/aws4_request), hash of:
    canonical request    method, path, query, the headers named in SignedHeaders, hash of the body

These rules ensure that the request that is served is the one that was signed:
- Bytes are hashed as they came. Only the query is decoded and encoded again; there "+" is a space,
  as in the form decoding that reads it later.
- The path is signed without dot segments and repeated slashes, and percent-encoded once more (in
  every service but S3). So serve the path that ``plain_path`` returns, not the one that was sent.
- ``host`` and every ``x-amz-*`` header must be signed. These and ``authorization`` may come once.
- A header with a line break (folded) is refused, though it has the hash of the unfolded one.
- The body is always hashed; ``x-amz-content-sha256`` may only repeat the hash.
- An unknown key is checked with a stand-in secret, so that it takes as long as a wrong signature.

Deriving a signing key takes four HMACs, some microseconds, so none is cached: there is no state.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import quote

from fairturn.server.auth.claims import (
    ALGORITHM,
    Claim,
    Headers,
    Pairs,
    collect,
    decode,
    first,
    read,
    stamp,
    text,
)
from fairturn.server.auth.keys import AccessKey, Keys
from fairturn.sqs.characters import printable
from fairturn.sqs.errors import (
    INCOMPLETE_SIGNATURE,
    REQUEST_EXPIRED,
    SIGNATURE_MISMATCH,
    UNKNOWN_KEY,
)

TERMINATOR = "aws4_request"
# The secret of unknown keys; a request signed with it is refused, too.
_STAND_IN = "0" * 40
# Some SDKs send this header without signing it.
_MAY_BE_UNSIGNED = frozenset({b"x-amz-user-agent"})
_TOKEN = frozenset((string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~").encode())
REGION = re.compile(r"[a-z0-9-]{1,64}")  # any: regions have no meaning on this server
_WINDOW = timedelta(minutes=15)  # by which the clocks of client and server may differ


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request as it came: path and query still encoded, all headers, in any order."""

    method: str
    path: bytes
    query: bytes = field(repr=False)  # a presigned query is a credential
    headers: Sequence[tuple[bytes, bytes]] = field(repr=False)
    body: bytes = field(repr=False)


class Signer(NamedTuple):
    key: AccessKey
    region: str  # of the signature


def verify(request: SignedRequest, keys: Keys, now: datetime, service: str = "sqs") -> Signer:
    """Return who signed ``request``, or raise an SqsError. ``now`` has a time zone."""
    headers = collect(request.headers)
    pairs = decode(request.query)
    claim = read(headers, pairs)
    _check_time(claim, now)
    _check_scope(claim, service)
    _check_signed(claim, headers)
    canonical = _canonical(request, claim, headers, pairs)
    to_sign = f"{ALGORITHM}\n{claim.timestamp}\n{claim.scope}\n{_sha256(canonical)}"
    key = keys.get(claim.access_key)
    expected = _signature(key.secret if key else _STAND_IN, claim, to_sign)
    genuine = hmac.compare_digest(expected, claim.signature)
    if key is None:
        raise UNKNOWN_KEY()
    if not genuine:
        raise SIGNATURE_MISMATCH()
    if key.token is not None and not _same(key.token, claim.token or ""):
        raise UNKNOWN_KEY()
    return Signer(key, claim.region)


def plain_path(path: bytes) -> bytes:
    """Return the path that a signature covers, still encoded: without dot segments and repeated
    slashes."""
    kept: list[bytes] = []
    for segment in path.split(b"/"):
        if segment == b"..":
            del kept[-1:]
        elif segment not in (b"", b"."):
            kept.append(segment)
    closing = b"/" if kept and path.endswith(b"/") else b""
    return b"/" + b"/".join(kept) + closing


# --- checking -----------------------------------------------------------------------------------


def _check_time(claim: Claim, now: datetime) -> None:
    minutes = f"{_WINDOW // timedelta(minutes=1)} min."
    present = now.astimezone(UTC)
    if claim.at > present + _WINDOW:
        raise SIGNATURE_MISMATCH(
            f"Signature not yet current: {claim.timestamp} is still later than "
            f"{stamp(present + _WINDOW)} ({stamp(present)} + {minutes})"
        )
    if claim.expires is not None:
        if present > claim.at + claim.expires:
            raise REQUEST_EXPIRED()
    elif claim.at < present - _WINDOW:
        raise SIGNATURE_MISMATCH(
            f"Signature expired: {claim.timestamp} is now earlier than "
            f"{stamp(present - _WINDOW)} ({stamp(present)} - {minutes})"
        )


def _check_scope(claim: Claim, service: str) -> None:
    wrong: list[str] = []
    if REGION.fullmatch(claim.region) is None:
        wrong.append(
            f"Credential should be scoped to a valid region, not '{printable(claim.region)}'."
        )
    if claim.service != service:
        wrong.append(f"Credential should be scoped to correct service: '{service}'.")
    if claim.terminator != TERMINATOR:
        wrong.append(
            f"Credential should be scoped with a valid terminator: '{TERMINATOR}', "
            f"not '{printable(claim.terminator)}'."
        )
    day, _, _ = claim.timestamp.partition("T")
    if claim.date != day:
        wrong.append(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from "
            f"HTTP: '{printable(claim.date)}' != '{day}', from '{claim.timestamp}'."
        )
    if wrong:
        raise SIGNATURE_MISMATCH(" ".join(wrong))


def _check_signed(claim: Claim, headers: Headers) -> None:
    for name in claim.signed:
        if not name or not _TOKEN.issuperset(name):
            raise INCOMPLETE_SIGNATURE(f"SignedHeaders has '{text(name)}', which is no header.")
    if b"host" not in claim.signed or not first(headers, b"host"):
        raise SIGNATURE_MISMATCH("'Host' must be a 'SignedHeader' in the AWS Authorization.")
    unsigned = [
        text(name)
        for name in sorted(headers)
        if name.startswith(b"x-amz-") and name not in claim.signed and name not in _MAY_BE_UNSIGNED
    ]
    if unsigned:
        raise SIGNATURE_MISMATCH(
            "There were headers present in the request which were not signed: "
            + printable(", ".join(unsigned))
        )


def _payload(request: SignedRequest, headers: Headers) -> str:
    """Return the hash of the body; refuse the request if its header has another hash."""
    computed = _sha256(request.body)
    sent = first(headers, b"x-amz-content-sha256")
    if sent is not None and not _same(sent, computed):
        raise SIGNATURE_MISMATCH(
            "The provided 'x-amz-content-sha256' header does not match what was computed."
        )
    return computed


# --- computing ----------------------------------------------------------------------------------


def _canonical(request: SignedRequest, claim: Claim, headers: Headers, pairs: Pairs) -> bytes:
    query = sorted(
        (quote(name, safe=""), quote(value, safe=""))
        for name, value in pairs
        if name != b"X-Amz-Signature"
    )
    lines = [
        request.method.encode(),
        quote(plain_path(request.path), safe="/").encode(),
        "&".join(f"{name}={value}" for name, value in query).encode(),
        # A signed header that did not come counts as empty.
        *(name + b":" + _joined(headers.get(name, [])) for name in claim.signed),
        b"",
        b";".join(claim.signed),
        _payload(request, headers).encode(),
    ]
    return b"\n".join(lines)


def _joined(values: Sequence[bytes]) -> bytes:
    return b",".join(b" ".join(value.split()) for value in values)


def _signature(secret: str, claim: Claim, to_sign: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (claim.date, claim.region, claim.service, claim.terminator):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, to_sign.encode(), "sha256").hex().encode()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
