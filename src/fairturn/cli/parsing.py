"""Parse what a user types: durations, times, sizes, rates, headers, bodies."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from cyclopts import Parameter, Token

from fairturn.core import check
from fairturn.core.errors import InvalidArgument
from fairturn.core.settings import Backoff

STDIN = "\0stdin"  # a lone "-" is replaced by this; no real argument can contain a NUL

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)\s*")
_SIZES = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)(i?b)?")


class Cleared:
    """The word ``none`` on the command line: remove this setting."""


NONE = Cleared()


def duration(text: str) -> float:
    """Return the seconds of ``30``, ``30s``, ``500ms``, ``5m``, ``2h``, ``7d`` or ``1h30m``."""
    rest = text.strip().lower()
    total, bare = 0.0, False
    if not rest:
        raise ValueError("a duration is missing: write 30, 30s, 5m, 2h or 7d")
    while rest:
        match = _PART.match(rest)
        unit = match[2] if match else None
        if match is None or bare or (unit and unit not in _UNITS) or (not unit and total):
            raise ValueError(f"{text!r} is not a duration: write 30, 30s, 5m, 2h, 7d or 1h30m")
        bare = not unit
        total += float(match[1]) * _UNITS.get(unit or "s", 1)
        rest = rest[match.end() :]
    return int(total) if total == int(total) else total


def instant(text: str) -> datetime:
    """Parse a time: ISO 8601 (local if it names no zone), seconds since the epoch, or ``+5m``."""
    if text.startswith("+"):
        return datetime.now(UTC) + timedelta(seconds=duration(text[1:]))
    try:
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return datetime.fromtimestamp(float(text), UTC)
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is not a time: write 2030-01-31T09:00, 2030-01-31T09:00Z, seconds since "
            "the epoch, or +5m"
        ) from None


def size(text: str) -> int:
    """Return the bytes of ``4096``, ``256k``, ``1MiB``."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a size: write 4096, 256k or 1MiB")
    return int(float(match[1]) * 1024 ** _SIZES[match[2]])


def backoff(text: str) -> Backoff | float:
    """Parse ``5s`` (always the same) or ``INITIAL:FACTOR:MAX`` such as ``1s:2:1h``."""
    match text.split(":"):
        case [_]:
            return duration(text)
        case [initial, factor] if factor.isdigit():
            return Backoff(duration(initial), int(factor))
        case [initial, factor, maximum] if factor.isdigit():
            return Backoff(duration(initial), int(factor), duration(maximum))
        case _:
            raise ValueError(
                f"{text!r} is not a backoff: write 5s, or 1s:2:1h (initial:factor:max)"
            )


def rate(text: str) -> str:
    check.rate(text)  # raises InvalidArgument, a ValueError: cyclopts shows its text
    return text


def header(text: str) -> tuple[str, str]:
    """Parse ``name=value``; the value is a string."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise InvalidArgument(f"{text!r} is not a header: write name=value")
    return name, value


def body(text: str) -> Any:
    """Return the JSON value if the text is JSON, else the text itself."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def fraction(text: str) -> float:
    """Parse ``0.4`` or ``40%``."""
    number, percent = (text[:-1], 100) if text.endswith("%") else (text, 1)
    try:
        found = float(number) / percent
    except ValueError:
        found = -1
    if not 0 <= found <= 1:
        raise ValueError(f"{text!r} is not a progress: write 0.4 or 40%, up to 1 or 100%")
    return found


def count(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def typed(metavar: str, parse: Any, clearable: bool = False, instead: str = "") -> Parameter:
    """Return a parameter of one word. If it is ``clearable``, the word `none` is NONE; else
    ``instead`` is the hint for users who type `none`."""

    def convert(_type: Any, tokens: Sequence[Token]) -> Any:
        text = tokens[0].value
        if text.lower() == "none":
            if clearable:
                return NONE
            if instead:
                raise ValueError(f"it cannot be removed: {instead}")
        return parse(text)

    return Parameter(converter=convert, metavar=metavar, n_tokens=1)


Duration = Annotated[float, typed("DURATION", duration)]
Time = Annotated[datetime, typed("TIME", instant)]
Fraction = Annotated[float, typed("PROGRESS", fraction)]
