"""The signature of a request, parsed but not verified.

Its parts come in the ``Authorization`` header or, if presigned, in the query string. Missing,
repeated or malformed parts are refused here; ``sigv4`` verifies the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import unquote_to_bytes

from fairturn.sqs.characters import printable
from fairturn.sqs.errors import INCOMPLETE_SIGNATURE, MISSING_TOKEN, SIGNATURE_MISMATCH

ALGORITHM = "AWS4-HMAC-SHA256"
EXPIRES_MAX = 7 * 86_400  # seconds for which a presigned request may be valid
_IN_HEADER = ("Credential", "SignedHeaders", "Signature")
_IN_QUERY = ("Algorithm", "Credential", "Date", "SignedHeaders", "Signature")
_QUERY_PREFIX = "X-Amz-"
_ONCE = frozenset({b"authorization", b"host", b"date", b"content-type"})

Headers = Mapping[bytes, Sequence[bytes]]  # by name in lower case
Pairs = Sequence[tuple[bytes, bytes]]  # of the query, decoded, in their order


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request claims: the key, the time, and what was signed."""

    access_key: str
    date: str
    region: str
    service: str
    terminator: str
    at: datetime
    expires: timedelta | None  # of a presigned request
    signed: tuple[bytes, ...]  # names of headers, in order
    signature: bytes = field(repr=False)
    token: str | None = field(repr=False)

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{self.service}/{self.terminator}"

    @property
    def timestamp(self) -> str:
        return stamp(self.at)


def stamp(at: datetime) -> str:
    return at.strftime("%Y%m%dT%H%M%SZ")


def collect(headers: Sequence[tuple[bytes, bytes]]) -> Headers:
    collected: dict[bytes, list[bytes]] = {}
    for given, value in headers:
        name = given.lower()
        if b"\r" in value or b"\n" in value or b"\0" in value:
            # A folded header has the hash of the unfolded one, but may be parsed differently.
            raise INCOMPLETE_SIGNATURE(f"Header '{text(name)}' has a line break or a zero byte.")
        if name in collected and (name in _ONCE or name.startswith(b"x-amz-")):
            # One header "a,b" and two headers "a" and "b" have the same hash: refuse the ambiguity.
            raise INCOMPLETE_SIGNATURE(f"Header '{text(name)}' is there twice.")
        collected.setdefault(name, []).append(value)
    return collected


def decode(query: bytes) -> Pairs:
    pairs: list[tuple[bytes, bytes]] = []
    for part in query.replace(b"+", b" ").split(b"&"):
        if part:
            name, _, value = part.partition(b"=")
            pairs.append((unquote_to_bytes(name), unquote_to_bytes(value)))
    return pairs


def first(headers: Headers, name: bytes) -> str | None:
    for value in headers.get(name, ()):
        return value.decode("latin-1").strip()
    return None


def text(name: bytes) -> str:
    return printable(name.decode("latin-1"))


def read(headers: Headers, pairs: Pairs) -> Claim:
    presigned = any(name in (b"X-Amz-Algorithm", b"X-Amz-Signature") for name, _ in pairs)
    authorization = first(headers, b"authorization")
    if presigned and authorization is not None:
        raise SIGNATURE_MISMATCH(
            "Found both 'X-Amz-Algorithm' as a query-string param and 'Authorization' as HTTP "
            "header."
        )
    if presigned:
        return _read_query(pairs)
    if authorization is None or not authorization.startswith("AWS4-"):
        raise MISSING_TOKEN()
    return _read_header(authorization, headers)


def _read_header(authorization: str, headers: Headers) -> Claim:
    # Parts are separated by commas, blanks or both, depending on the SDK.
    algorithm, *parts = authorization.replace(",", " ").split()
    given: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals:
            raise INCOMPLETE_SIGNATURE(
                "A part of the Authorization header is not a valid key=value pair (missing "
                "equal-sign)."
            )
        if name in given:
            raise INCOMPLETE_SIGNATURE(f"Authorization header has '{printable(name)}' twice.")
        given[name] = value
    sent = first(headers, b"x-amz-date") or first(headers, b"date") or ""
    missing = [
        f"Authorization header requires '{name}' parameter."
        for name in _IN_HEADER
        if not given.get(name)
    ]
    if not sent:
        missing.append(
            "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header."
        )
    if missing:
        raise INCOMPLETE_SIGNATURE(" ".join(missing))
    given |= {"Algorithm": algorithm, "Date": sent}
    return _claim(given, first(headers, b"x-amz-security-token"), None)


def _read_query(pairs: Pairs) -> Claim:
    given: dict[str, str] = {}
    for raw, value in pairs:
        name = raw.decode("latin-1")
        if name.startswith(_QUERY_PREFIX):
            part = name.removeprefix(_QUERY_PREFIX)
            if part in given:
                raise INCOMPLETE_SIGNATURE(
                    f"Query-string parameter '{printable(name)}' is there twice."
                )
            given[part] = value.decode("latin-1")
    missing = [
        f"AWS query-string parameters must include '{_QUERY_PREFIX}{part}'."
        for part in _IN_QUERY
        if not given.get(part)
    ]
    if missing:
        raise INCOMPLETE_SIGNATURE(" ".join([*missing, "Re-examine the query-string parameters."]))
    return _claim(given, given.get("Security-Token"), _expires(given.get("Expires")))


def _claim(given: Mapping[str, str], token: str | None, expires: timedelta | None) -> Claim:
    if given["Algorithm"] != ALGORITHM:
        raise INCOMPLETE_SIGNATURE(
            f"Unsupported AWS 'algorithm': '{printable(given['Algorithm'])}' "
            f"(only {ALGORITHM} for now)."
        )
    scope = given["Credential"].split("/")
    if len(scope) != 5:
        # AWS repeats the value. We do not: it may be a secret, which people swap with its id.
        raise INCOMPLETE_SIGNATURE(
            "Credential must have exactly 5 slash-delimited elements, e.g. "
            "keyid/date/region/service/term"
        )
    access_key, date, region, service, terminator = scope
    names = {name.encode("latin-1").lower() for name in given["SignedHeaders"].split(";")}
    return Claim(
        access_key=access_key,
        date=date,
        region=region,
        service=service,
        terminator=terminator,
        at=_time(given["Date"]),
        expires=expires,
        signed=tuple(sorted(names)),
        signature=given["Signature"].encode("latin-1"),
        token=token,
    )


def _time(sent: str) -> datetime:
    """Parse the basic format of ISO 8601, or the format of HTTP's Date header."""
    try:
        digits = sent[:8] + sent[9:15]
        if sent == f"{digits[:8]}T{digits[8:]}Z" and digits.isascii() and digits.isdigit():
            day = int(digits[:4]), int(digits[4:6]), int(digits[6:8])
            return datetime(*day, int(digits[8:10]), int(digits[10:12]), int(digits[12:]), 0, UTC)
        at = parsedate_to_datetime(sent)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        raise INCOMPLETE_SIGNATURE(
            f"Date must be in ISO-8601 'basic format'. Got '{printable(sent)}'. "
            "See http://en.wikipedia.org/wiki/ISO_8601"
        ) from None


def _expires(sent: str | None) -> timedelta | None:
    if sent is None:
        return None
    # Check the length first: int() of a very long text is slow, or an error.
    if not (len(sent) <= 6 and sent.isascii() and sent.isdigit() and 0 < int(sent) <= EXPIRES_MAX):
        raise INCOMPLETE_SIGNATURE(
            f"X-Amz-Expires must be a number of seconds from 1 to {EXPIRES_MAX} (a week)."
        )
    return timedelta(seconds=int(sent))
