"""The kinds of values that settings and options have, and the lines of their tables.

A table is a dataclass: ``Settings`` and ``Policy`` (settings.py), ``Send`` (sends.py). Each of its
fields is a line with the default, the kind with its bounds, and a help text. The checks, the
columns and their defaults, the options of the command line and the tables in docs/ are made from
these lines: each fact about a setting is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar

from fairturn.core import check, limits
from fairturn.core.errors import InvalidArgument

Value = int | str | bytes | None  # what a column holds
LINE = "line"  # the key of the line in the metadata of its field


class Kind:
    """How a value is checked, which columns store it, and how it is read back.

    ``endings``: how the names of its columns end; ``none``: what they store for None.
    """

    endings: ClassVar[tuple[str, ...]] = ("",)
    none: ClassVar[tuple[Value, ...]] = (None,)

    def columns(self, name: str) -> tuple[str, ...]:
        return tuple(name + ending for ending in self.endings)

    def checker(self, name: str) -> Callable[[Any], Any]:
        """Return a function that checks a value and returns it as its column stores it."""
        raise NotImplementedError

    def encode(self, value: Any, name: str) -> tuple[Value, ...]:
        """Return what the columns store for a value; raise InvalidArgument if it is not allowed."""
        return (self.checker(name)(value),)

    def decode(self, *stored: Any) -> Any:
        """Return the value that the columns store."""
        (value,) = stored
        return value


class Seconds(Kind):
    """A duration."""

    endings = ("_us",)

    def checker(self, name: str) -> Callable[[Any], Any]:
        return lambda value: check.microseconds(value, name)

    def decode(self, *stored: Any) -> Any:
        (us,) = stored
        return None if us is None else us / limits.SECOND


class Time(Kind):
    """A moment."""

    endings = ("_us",)

    def checker(self, name: str) -> Callable[[Any], Any]:
        return lambda value: check.instant(value, name)


@dataclass(frozen=True, slots=True)
class Count(Kind):
    """A whole number within bounds."""

    low: int
    high: int = limits.COUNT_MAX

    def checker(self, name: str) -> Callable[[Any], Any]:
        low, high = self.low, self.high
        return lambda value: check.integer(value, name, low, high)


class Bytes(Count):
    """A number of bytes."""


class Priority(Count):
    """A priority. It is stored negated, so that one ascending index has all columns."""

    def checker(self, name: str) -> Callable[[Any], Any]:
        checked = Count.checker(self, name)
        return lambda value: -checked(value)

    def decode(self, *stored: Any) -> Any:
        (rank,) = stored
        return -rank


class Flag(Kind):
    """True or False."""

    def checker(self, name: str) -> Callable[[Any], Any]:
        return lambda value: int(check.boolean(value, name))

    def decode(self, *stored: Any) -> Any:
        (flag,) = stored
        return bool(flag)


@dataclass(frozen=True, slots=True)
class Name(Kind):
    """A name that every database can store, compare and index."""

    empty: bool = False  # may it be ""?

    def checker(self, name: str) -> Callable[[Any], Any]:
        empty = self.empty
        return lambda value: check.name(value, name, empty=empty)


class Choice(Kind):
    """One of a few words, stored as its first letter."""

    def __init__(self, *words: str) -> None:
        self.codes = {word: word[:1] for word in words}

    def checker(self, name: str) -> Callable[[Any], Any]:
        *most, last = (f'"{word}"' for word in self.codes)

        def code(value: Any) -> str:
            found = self.codes.get(value)
            if found is None:
                words = f"{', '.join(most)} or {last}"
                raise InvalidArgument(f"{name} must be {words}, not {value!r}")
            return found

        return code


class Rate(Kind):
    """A number per period: two columns."""

    endings = ("_count", "_period_us")
    none = (None, None)

    def encode(self, value: Any, name: str) -> tuple[Value, ...]:
        return check.rate(value, name)

    def decode(self, *stored: Any) -> Any:
        return check.rate_text(*stored)


class Headers(Kind):
    """A dict of JSON beside the body."""

    def checker(self, name: str) -> Callable[[Any], Any]:
        return check.headers


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table."""

    default: Any
    kind: Kind
    help: str
    column: str = ""  # how the names of its columns begin, if not with its own name
    name: str = ""  # of the field
    means: Mapping[Any, str] = field(default_factory=dict[Any, str])  # special values, in words

    @property
    def columns(self) -> tuple[str, ...]:
        return self.kind.columns(self.column or self.name)

    @property
    def nullable(self) -> bool:
        """May it be None?"""
        return self.default is None

    @property
    def check(self) -> Callable[[Any], Any]:
        """A function that checks a value, not None, and returns it as its column stores it."""
        return self.kind.checker(self.name)

    def encode(self, value: Any) -> tuple[Value, ...]:
        """Return what its columns store for a value; raise InvalidArgument if it is not allowed."""
        if value is None and self.nullable:
            return self.kind.none
        return self.kind.encode(value, self.name)

    def decode(self, row: Mapping[str, Any]) -> Any:
        """Return the value from a row that has its columns."""
        return self.kind.decode(*(row[column] for column in self.columns))


L = TypeVar("L", bound=Line)


def table(dataclass: type[Any], kind: type[L]) -> dict[str, L]:
    """Return the lines of a dataclass, by the names of their fields."""
    lines: dict[str, L] = {}
    for own in fields(dataclass):
        line = own.metadata.get(LINE)
        if line is not None:
            assert isinstance(line, kind)
            lines[own.name] = replace(line, name=own.name)
    return lines
