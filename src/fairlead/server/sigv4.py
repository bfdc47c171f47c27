"""AWS Signature Version 4, the server's side: who signed this request?

A pure function of the request's bytes, the configured keys and the time. The signature comes in the
``Authorization`` header or, presigned, in the query string. What is signed:

    string to sign       algorithm, time, scope (date/region/service/aws4_request), hash of:
    canonical request    method, path, query, the headers named in SignedHeaders, hash of the body

Rules that keep what was signed and what is served the same thing:
- Bytes are hashed as they came; nothing is decoded and encoded again but the query, where "+" is a
  space, as in the form decoding that reads it later.
- The path is signed without dot segments and doubled slashes and then percent-encoded once more
  (every service but S3). So serve what ``plain_path`` gives, not the path that was sent.
- ``host`` and every ``x-amz-*`` header must be signed, and these and ``authorization`` come once.
- A header with a line break (folded) is refused, though it would hash like the unfolded one.
- The body is always hashed; ``x-amz-content-sha256`` may only repeat it.
- An unknown key is checked with a stand-in secret: the same work as for a wrong signature.

Deriving a signing key costs four HMACs, some microseconds, so none is kept: there is no state.
"""

from __future__ import annotations

import hashlib
import hmac
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from fairlead.server.claims import (
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
from fairlead.server.keys import AccessKey, Keys
from fairlead.server.refusals import (
    Refusal,
    Refused,
    expired,
    incomplete,
    mismatch,
    shown,
    unknown_key,
)

TERMINATOR = "aws4_request"
UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
# Signs for keys we do not know; whoever uses it is refused all the same.
_STAND_IN = "0" * 40
# What programs say of themselves; some SDKs send it without signing it.
_MAY_BE_UNSIGNED = frozenset({b"x-amz-user-agent"})
_TOKEN = frozenset((string.ascii_letters + string.digits + "!#$%&'*+-.^_`|~").encode())
_SCOPE = frozenset(string.ascii_lowercase + string.digits + "-")
_SCOPE_LENGTH = 64


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request as it came: the path and the query still encoded, every header, in any order."""

    method: str
    path: bytes
    query: bytes = field(repr=False)  # a presigned query is a credential
    headers: Sequence[tuple[bytes, bytes]] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Rules:
    """What is accepted. ``regions``: None for any; to a server of your own they mean nothing."""

    service: str = "sqs"
    regions: frozenset[str] | None = None
    unsigned_payload: bool = False
    window: timedelta = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who signed: the key, and the region and service they signed for."""

    key: AccessKey
    region: str
    service: str

    @property
    def access_key(self) -> str:
        return self.key.id

    @property
    def account(self) -> str:
        return self.key.account


def verify(
    request: SignedRequest, keys: Keys, now: datetime, rules: Rules | None = None
) -> Caller | Refusal:
    """Who signed ``request``, or why it is not to be served. ``now`` has a time zone."""
    try:
        return _verify(request, keys, now, rules or Rules())
    except Refused as refused:
        return refused.refusal


def plain_path(path: bytes) -> bytes:
    """The path that a signature covers, still encoded: no dot segments, no doubled slashes."""
    kept: list[bytes] = []
    for segment in path.split(b"/"):
        if segment == b"..":
            del kept[-1:]
        elif segment not in (b"", b"."):
            kept.append(segment)
    closing = b"/" if kept and path.endswith(b"/") else b""
    return b"/" + b"/".join(kept) + closing


def _verify(request: SignedRequest, keys: Keys, now: datetime, rules: Rules) -> Caller:
    headers = collect(request.headers)
    pairs = decode(request.query)
    claim = read(headers, pairs)
    _check_time(claim, now, rules)
    _check_scope(claim, rules)
    _check_signed(claim, headers)
    canonical = _canonical(request, claim, headers, pairs, _payload(request, headers, rules))
    to_sign = f"{ALGORITHM}\n{claim.timestamp}\n{claim.scope}\n{_sha256(canonical)}"
    key = keys.get(claim.access_key)
    expected = _signature(key.secret if key else _STAND_IN, claim, to_sign)
    genuine = hmac.compare_digest(expected, claim.signature)
    if key is None:
        raise Refused(unknown_key())
    if not genuine:
        raise Refused(mismatch())
    if key.token is not None and not _same(key.token, claim.token or ""):
        raise Refused(unknown_key())
    return Caller(key, claim.region, claim.service)


# --- checking -----------------------------------------------------------------------------------


def _check_time(claim: Claim, now: datetime, rules: Rules) -> None:
    minutes = f"{rules.window // timedelta(minutes=1)} min."
    present = now.astimezone(UTC)
    if claim.at > present + rules.window:
        raise Refused(
            mismatch(
                f"Signature not yet current: {claim.timestamp} is still later than "
                f"{stamp(present + rules.window)} ({stamp(present)} + {minutes})"
            )
        )
    if claim.expires is not None:
        if present > claim.at + claim.expires:
            raise Refused(expired())
    elif claim.at < present - rules.window:
        raise Refused(
            mismatch(
                f"Signature expired: {claim.timestamp} is now earlier than "
                f"{stamp(present - rules.window)} ({stamp(present)} - {minutes})"
            )
        )


def _check_scope(claim: Claim, rules: Rules) -> None:
    wrong: list[str] = []
    known = rules.regions is None or claim.region in rules.regions
    if not (known and _SCOPE.issuperset(claim.region) and 0 < len(claim.region) <= _SCOPE_LENGTH):
        wrong.append(f"Credential should be scoped to a valid region, not '{shown(claim.region)}'.")
    if claim.service != rules.service:
        wrong.append(f"Credential should be scoped to correct service: '{rules.service}'.")
    if claim.terminator != TERMINATOR:
        wrong.append(
            f"Credential should be scoped with a valid terminator: '{TERMINATOR}', "
            f"not '{shown(claim.terminator)}'."
        )
    if claim.date != claim.timestamp[:8]:
        wrong.append(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from "
            f"HTTP: '{shown(claim.date)}' != '{claim.timestamp[:8]}', from '{claim.timestamp}'."
        )
    if wrong:
        raise Refused(mismatch(" ".join(wrong)))


def _check_signed(claim: Claim, headers: Headers) -> None:
    for name in claim.signed:
        if not name or not _TOKEN.issuperset(name):
            raise Refused(incomplete(f"SignedHeaders has '{text(name)}', which is no header."))
    if b"host" not in claim.signed or not first(headers, b"host"):
        raise Refused(mismatch("'Host' must be a 'SignedHeader' in the AWS Authorization."))
    unsigned = [
        text(name)
        for name in sorted(headers)
        if name.startswith(b"x-amz-") and name not in claim.signed and name not in _MAY_BE_UNSIGNED
    ]
    if unsigned:
        raise Refused(
            mismatch(
                "There were headers present in the request which were not signed: "
                + shown(", ".join(unsigned))
            )
        )


def _payload(request: SignedRequest, headers: Headers, rules: Rules) -> str:
    """The hash of the body that was signed: of the body that came, or it is refused."""
    computed = _sha256(request.body)
    sent = first(headers, b"x-amz-content-sha256")
    if sent is None or _same(sent, computed):
        return computed
    if sent == UNSIGNED_PAYLOAD and rules.unsigned_payload:
        return UNSIGNED_PAYLOAD
    raise Refused(
        mismatch("The provided 'x-amz-content-sha256' header does not match what was computed.")
    )


# --- computing ----------------------------------------------------------------------------------


def _canonical(
    request: SignedRequest, claim: Claim, headers: Headers, pairs: Pairs, payload: str
) -> bytes:
    query = sorted(
        (quote(name, safe=""), quote(value, safe=""))
        for name, value in pairs
        if name != b"X-Amz-Signature"
    )
    lines = [
        request.method.encode(),
        quote(plain_path(request.path), safe="/").encode(),
        "&".join(f"{name}={value}" for name, value in query).encode(),
        # Of a signed header that did not come, the signature must say that it was empty.
        *(name + b":" + _joined(headers.get(name, [])) for name in claim.signed),
        b"",
        b";".join(claim.signed),
        payload.encode(),
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
