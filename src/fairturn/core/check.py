"""Check and encode the arguments of users: names, times, rates, payloads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from fairturn.core import limits
from fairturn.core.errors import InvalidArgument, InvalidBody, InvalidName
from fairturn.core.json_body import Json
from fairturn.core.values import EPOCH, Duration, Moment


def _encoder() -> Callable[[Any], str]:
    """Return JSONEncoder.encode. That makes a C encoder for each call, which takes longer than to
    encode a usual body; here one is made for all. It does not remember the containers it is in,
    which threads could not share: a list that contains itself ends with a RecursionError."""
    usual = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # another Python than CPython
        return usual.encode
    escape: Any = json.encoder.encode_basestring  # pyright: ignore[reportAttributeAccessIssue]
    parts: Any = make(None, usual.default, escape, None, ":", ",", False, False, False)
    return lambda value: "".join(parts(value, 0))


_encode = _encoder()


def name(value: Any, what: str, *, empty: bool = False) -> str:
    """Check a name: every database must be able to store, compare and index it."""
    if not isinstance(value, str):
        raise InvalidName(f"{what} must be a string, not {type(value).__name__}")
    if not value and not empty:
        raise InvalidName(f"{what} must not be empty")
    if "\0" in value:
        raise InvalidName(f"{what} must not contain the NUL character")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise InvalidName(f"{what} must be valid Unicode: it contains a lone surrogate") from None
    if size > limits.NAME_BYTES:
        raise InvalidName(
            f"{what} has {size:,} bytes in UTF-8 and may have at most {limits.NAME_BYTES}"
        )
    return value


def optional_name(value: Any, what: str) -> str | None:
    return None if value is None else name(value, what)


def integer(value: Any, what: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"{what} must be a whole number, not {value!r}")
    if not low <= value <= high:
        raise InvalidArgument(f"{what} must be between {low:,} and {high:,}, not {value:,}")
    return int(value)  # a plain int: some drivers refuse its subclass Sent


def optional_integer(value: Any, what: str, low: int, high: int) -> int | None:
    return None if value is None else integer(value, what, low, high)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def microseconds(value: Duration, what: str) -> int:
    """Return a duration (seconds or timedelta, not negative) as microseconds."""
    if isinstance(value, timedelta):
        us = value // timedelta(microseconds=1)
    elif _is_number(value):
        if value != value or value in (float("inf"), float("-inf")):
            raise InvalidArgument(f"{what} must be a finite number of seconds, not {value!r}")
        us = round(min(max(value, -1e12), 1e12) * limits.SECOND)  # clamped: 1e308 would overflow
    else:
        raise InvalidArgument(
            f"{what} must be seconds (int, float) or a timedelta, not {type(value).__name__}"
        )
    if us < 0:
        raise InvalidArgument(f"{what} must not be negative, it is {value!r}")
    if us > limits.DURATION_MAX:
        raise InvalidArgument(f"{what} must be at most a hundred years, it is {value!r}")
    return us


def optional_microseconds(value: Duration | None, what: str) -> int | None:
    return None if value is None else microseconds(value, what)


def instant(value: Moment, what: str) -> int:
    """Return a moment (aware datetime, or seconds since the epoch) as microseconds."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidArgument(
                f"{what} needs a time zone: {value!r} has none. "
                "Use datetime.now(UTC) + …, or .astimezone() for local time"
            )
        us = (value.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
    elif _is_number(value):
        if value != value or abs(value) > limits.TIME_MAX / limits.SECOND:
            raise InvalidArgument(f"{what} must be a time before the year 10000, not {value!r}")
        us = round(value * limits.SECOND)
    else:
        raise InvalidArgument(
            f"{what} must be a datetime or seconds since the epoch, not {type(value).__name__}"
        )
    return min(max(us, 0), limits.TIME_MAX)


def due(delay: Duration | None, at: Moment | None) -> tuple[int | None, int]:
    """Return (moment or None, delay), in microseconds; at most one of them may be given."""
    if at is not None:
        if delay is not None:
            raise InvalidArgument("give delay= or at=, not both")
        return instant(at, "at"), 0
    return None, 0 if delay is None else microseconds(delay, "delay")


_PERIODS = {
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
    "d": 86400,
    "day": 86400,
}
_RATE = re.compile(r"\s*(\d+)\s*/\s*(\d*)\s*([a-z]+)\s*", re.ASCII)


def rate(value: str | None, what: str = "rate") -> tuple[int | None, int | None]:
    """Return ``"100/min"`` or ``"5/10s"`` as (count, period in microseconds)."""
    if value is None:
        return None, None
    match = _RATE.fullmatch(value) if isinstance(value, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    unit = _PERIODS.get(match[3]) if match else None
    if match is None or unit is None:
        raise InvalidArgument(
            f'{what} must look like "5/s", "100/min", "1000/h" or "10/30s", not {value!r}'
        )
    count = integer(int(match[1]), what, 1, 1_000_000_000)
    period = integer(int(match[2] or 1), what, 1, 86_400) * unit * limits.SECOND
    if count > period:
        raise InvalidArgument(f"{what} {value!r} is more than one per microsecond")
    return count, period


def rate_text(count: int | None, period_us: int | None) -> str | None:
    """Return the text of a rate: the inverse of ``rate``."""
    if count is None or period_us is None:
        return None
    seconds = period_us // limits.SECOND
    for unit, size in (("day", 86400), ("h", 3600), ("min", 60)):
        if seconds % size == 0:
            times = seconds // size
            return f"{count}/{'' if times == 1 else times}{unit}"
    return f"{count}/{'' if seconds == 1 else seconds}s"


def payload(value: Any, what: str) -> tuple[bytes, int]:
    """Return (bytes, 1 if they are JSON): bytes unchanged, any other value as JSON."""
    if type(value) is bytes:
        return value, 0
    if isinstance(value, (bytearray, memoryview, Json)):
        if isinstance(value, Json):
            return value.raw, 1
        return bytes(value), 0  # pyright: ignore[reportUnknownArgumentType]
    try:
        return _encode(value).encode(), 1
    except (TypeError, ValueError, RecursionError) as error:
        # UnicodeEncodeError (a lone surrogate) is a ValueError too.
        raise InvalidBody(
            f"{what} must be bytes or JSON (None, bool, int, float, str, list, dict): {error}"
        ) from None


def bounded_payload(value: Any, what: str, limit: int) -> tuple[bytes, int]:
    raw, is_json = payload(value, what)
    if len(raw) > limit:
        raise InvalidArgument(f"{what} has {len(raw):,} bytes and may have at most {limit:,}")
    return raw, is_json


def headers(value: Mapping[str, Any] | None) -> bytes | None:
    if not value:
        return None
    if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidBody("headers must be a dict with string keys")
    raw, _ = bounded_payload(dict(value), "headers", limits.HEADERS_BYTES)
    return raw


def meta(value: Any) -> str | None:
    """Return the meta of a queue as JSON text; None if it is empty."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"meta must be a dict or None, not {type(value).__name__}")
    given = dict(cast("Mapping[Any, Any]", value))
    if not all(isinstance(key, str) for key in given):
        raise InvalidArgument("the keys of meta must be strings")
    raw, _ = bounded_payload(given, "meta", limits.META_BYTES)
    return raw.decode() if given else None


def error_text(value: Any) -> str:
    """Return an error as text, an exception with its class; without NULs, and cut if too long."""
    text = f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value)
    text = text.replace("\0", "").encode("utf-8", "replace").decode()
    if len(text) > limits.ERROR_CHARS:
        text = text[: limits.ERROR_CHARS - 20] + " … (text cut)"
    return text


def boolean(value: Any, what: str) -> bool:
    """Check for True or False. Other values are refused: "no" is true in Python."""
    if not isinstance(value, bool) and value not in (0, 1):
        raise InvalidArgument(f"{what} must be True or False, not {value!r}")
    return bool(value)


def fraction(value: Any, what: str) -> int:
    """Return a number from 0.0 to 1.0 as millionths."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidArgument(f"{what} must be a number from 0.0 to 1.0, not {value!r}")
    return round(value * limits.PROGRESS)


def note(value: Any) -> str:
    """Return a progress note as text, cut if too long."""
    return error_text(value)[: limits.NOTE_CHARS]
