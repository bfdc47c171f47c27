"""Options of commands that are made from the tables of settings, policies and send options."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, make_dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast

from cyclopts import Parameter

from fairturn.cli import parsing
from fairturn.core.kinds import (
    Bytes,
    Choice,
    Count,
    Flag,
    Headers,
    Kind,
    Line,
    Name,
    Priority,
    Rate,
    Seconds,
    Time,
)
from fairturn.core.settings import BackoffKind, Setting

T = TypeVar("T")


class Form(NamedTuple):
    """How a user types a kind of value."""

    metavar: str
    parse: Callable[[str], Any]
    example: str = ""


FORMS: dict[type[Kind], Form] = {
    Seconds: Form("DURATION", parsing.duration),
    Time: Form("TIME", parsing.instant, "2030-01-31T09:00, or +5m"),
    Count: Form("N", parsing.count),
    Priority: Form("N", parsing.count),
    Bytes: Form("SIZE", parsing.size),
    Name: Form("NAME", str),
    Rate: Form("RATE", parsing.rate, "5/s, 100/min, 10/30s"),
    BackoffKind: Form("BACKOFF", parsing.backoff, "5s, or INITIAL:FACTOR:MAX such as 1s:2:1h"),
}


def with_options(lines: Iterable[Line]) -> Callable[[type[T]], type[T]]:
    """Give a class a field for each line of a table: an option, or None if it was not given."""

    def decorate(cls: type[T]) -> type[T]:
        found = [(line.name, _option(line), field(default=None)) for line in lines]
        made = make_dataclass(cls.__name__, found, bases=(cls,))
        made.__doc__, made.__module__ = cls.__doc__, cls.__module__
        return Parameter(name="*")(cast(type[T], made))

    return decorate


def given(options: object) -> dict[str, Any]:
    """Return the given options by the names of their lines; the word ``none`` is None."""
    found: dict[str, Any] = {
        name: None if item is parsing.NONE else item
        for name, item in vars(options).items()
        if item is not None
    }
    if "headers" in found:
        found["headers"] = dict(parsing.header(item) for item in found["headers"])
    return found


def _option(line: Line) -> Any:
    """Return the type of an option for a setting of a queue, a field of a policy or a send option.
    The word `none` removes a nullable setting, and a setting that is a flag has a --no- form."""
    help = Parameter(help=help_of(line))
    if isinstance(line.kind, Flag):
        negative = f"--no-{line.name}" if isinstance(line, Setting) else ()
        return Annotated[bool | None, help, Parameter(negative=negative)]
    if isinstance(line.kind, Choice):
        return Annotated[Literal[tuple(line.kind.codes)] | None, help]
    if isinstance(line.kind, Headers):
        header = Parameter(
            name=["--header", "-H"], metavar="NAME=VALUE", help="A header; repeat it for several."
        )
        return Annotated[list[str] | None, header]
    form = FORMS[type(line.kind)]
    if not isinstance(line, Setting):
        return Annotated[Any, parsing.typed(form.metavar, form.parse), help]
    metavar = form.metavar + ("|none" if line.nullable else "")
    words = [f"{value} means {meaning}" for value, meaning in line.means.items()]
    instead = ", ".join([*words, f"the default is {default_text(line)}"])
    return Annotated[Any, parsing.typed(metavar, form.parse, line.nullable, instead), help]


def default_text(line: Line) -> str:
    """Return a default as a user would type it."""
    value = line.default
    if isinstance(line.kind, Flag):
        return "yes" if value else "no"
    if isinstance(line.kind, Bytes):
        return f"{value // 1024**2}MiB"
    if isinstance(line.kind, Seconds) and value:
        return f"{value / 86_400:g}d" if value % 86_400 == 0 else f"{value:g}s"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def help_of(line: Line) -> str:
    """Return the help text: the purpose, an example, and the default."""
    form = FORMS.get(type(line.kind))
    text = line.help[:1].upper() + line.help[1:]
    if form is not None and form.example:
        text += f": {form.example}"
    means = dict(line.means)
    usual = means.pop(line.default, None)
    text += "".join(f"; {value}: {word}" for value, word in means.items())
    if usual is not None and line.nullable:
        text += f". Default {usual.partition(':')[0]}"
    elif line.default not in (None, ""):
        text += f". Default {default_text(line)}"
    return text + "."
