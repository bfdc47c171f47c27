"""A call's arguments as JSON and back, by the function's own annotations.

What is sent is checked when it is sent and again when it is received, and an error names the
argument: ``welcome(user.age): not an int: 'x'``. JSON only: nothing in a message can name code to
be imported or run.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints, is_typeddict
from uuid import UUID

from fairlead.errors import InvalidArgument

Convert = Callable[[Any, str], Any]


class Codec:
    """How values of one annotation are written and read; ``where`` names the argument in errors."""

    __slots__ = ("read", "write")

    def __init__(self, write: Convert, read: Convert) -> None:
        self.write = write
        self.read = read


def wrong(where: str, expected: str, value: Any) -> InvalidArgument:
    shown = repr(value)
    return InvalidArgument(f"{where}: not {expected}: {shown[:80]}{'…' if len(shown) > 80 else ''}")


def a(name: str) -> str:
    """With its article."""
    return f"an {name}" if name[:1].lower() in "aeio" else f"a {name}"


class Payload:
    """The arguments of one function."""

    def __init__(self, function: Callable[..., Any], skip: Sequence[str] = ()) -> None:
        """``skip``: parameters that are not the sender's to give, such as the context."""
        self.name = getattr(function, "__name__", repr(function))
        try:
            hints = get_type_hints(function)
        except NameError as error:
            raise InvalidArgument(
                f"{self.name}: an annotation cannot be resolved ({error}): import it at the top "
                "of the module, not under TYPE_CHECKING"
            ) from error
        signature = inspect.signature(function)
        kept = [p for name, p in signature.parameters.items() if name not in skip]
        for parameter in kept:
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise InvalidArgument(
                    f"{self.name}({parameter.name}, /): a task's arguments travel by name"
                )
        self._signature = signature.replace(parameters=kept)
        self._codecs = {p.name: codec(hints.get(p.name, Any), p.name) for p in kept}
        self._rest = {p.kind: p.name for p in kept if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        named = (p for p in kept if p.name not in self._rest.values())
        self._needed = {p.name for p in named if p.default is p.empty}

    def write(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What is sent: each argument by its name, defaults left out."""
        given = self._by_name(args, kwargs)
        return {name: self._each(name, value, True) for name, value in given.items()}

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, defaults and all: for what is made from them, such as a key."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgument(f"{self.name}(): {error}") from None
        bound.apply_defaults()
        given = dict(bound.arguments)
        given.update(given.pop(self._rest.get(inspect.Parameter.VAR_KEYWORD, ""), {}))
        return given

    def _by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        # The common call, all by keyword and complete, needs no binding: that takes 5 µs.
        if not args and not self._rest and self._needed <= kwargs.keys() <= self._codecs.keys():
            return kwargs
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArgument(f"{self.name}(): {error}") from None

    def read(self, body: Any) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments for the call."""
        if not isinstance(body, dict):
            raise wrong(f"{self.name}()", "an object of arguments by name", body)
        given = cast("dict[str, Any]", body)
        unknown = given.keys() - self._codecs.keys()
        if unknown:
            raise InvalidArgument(f"{self.name}(): no argument is called {min(unknown)!r}")
        missing = self._needed - given.keys()
        if missing:
            raise InvalidArgument(f"{self.name}(): missing a required argument: {min(missing)!r}")
        if not self._rest:
            return [], {name: self._each(name, value, False) for name, value in given.items()}
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, value in given.items():
            found = self._each(name, value, False)
            if name == self._rest.get(inspect.Parameter.VAR_POSITIONAL):
                args += found
            elif name == self._rest.get(inspect.Parameter.VAR_KEYWORD):
                kwargs.update(found)
            else:
                kwargs[name] = found
        if args:  # what stands before *args must then go by position, too
            before = [
                p.name
                for p in self._signature.parameters.values()
                if p.kind is p.POSITIONAL_OR_KEYWORD and p.name in kwargs
            ]
            args = [kwargs.pop(name) for name in before] + args
        return args, kwargs

    def _each(self, name: str, value: Any, write: bool) -> Any:
        one = self._codecs[name]
        convert = one.write if write else one.read
        where = f"{self.name}({name})"
        if name == self._rest.get(inspect.Parameter.VAR_POSITIONAL):
            if not isinstance(value, list | tuple):
                raise wrong(where, "a list", value)
            values = cast("Sequence[Any]", value)
            return [convert(v, f"{self.name}({name}[{i}])") for i, v in enumerate(values)]
        if name == self._rest.get(inspect.Parameter.VAR_KEYWORD):
            if not isinstance(value, dict):
                raise wrong(where, "an object", value)
            pairs = cast("dict[str, Any]", value)
            return {key: convert(v, f"{self.name}({key})") for key, v in pairs.items()}
        return convert(value, where)


def codec(annotation: Any, name: str) -> Codec:
    """The codec of one annotation; InvalidArgument if JSON cannot carry it."""
    if annotation in (Any, inspect.Parameter.empty, object):
        return Codec(_plain, lambda value, where: value)
    if annotation in (None, type(None)):
        return _exactly("None", lambda value: value is None)
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _union([codec(arg, name) for arg in args], annotation)
    if origin is Literal:
        shown = f"one of {', '.join(map(repr, args))}"
        return _exactly(
            shown, lambda value: any(value == a and type(value) is type(a) for a in args)
        )
    if origin is not None and hasattr(origin, "__mro__"):
        if issubclass(origin, tuple):
            return _tuple(args, name)
        if issubclass(origin, Mapping):
            return _mapping(codec(args[1], name) if len(args) == 2 else codec(Any, name))
        if origin in (set, frozenset):
            return _sequence(codec(args[0], name), origin, sort=True)
        if issubclass(origin, Sequence) or origin is list:
            return _sequence(codec(args[0], name), list)
    if annotation in (list, tuple, Sequence):
        return _sequence(codec(Any, name), tuple if annotation is tuple else list)
    if annotation in (dict, Mapping):
        return _mapping(codec(Any, name))
    if isinstance(annotation, type):
        kind: Any = annotation
        if issubclass(kind, Enum):
            return _enum(kind)
        if dataclasses.is_dataclass(kind):
            return _dataclass(kind, name)
        if is_typeddict(kind):
            return _typeddict(kind, name)
        model = _model(kind)
        if model is not None:
            return model
    raise InvalidArgument(
        f"{name}: JSON cannot carry {annotation!r}. Send its id, or a dataclass, a list, a dict, "
        "a number, a string, a datetime, a UUID, a Decimal or bytes"
    )


def _plain(value: Any, where: str) -> Any:
    """Anything JSON can hold; checked by the encoder of the body."""
    return value


def _exactly(expected: str, fits: Callable[[Any], bool]) -> Codec:
    def check(value: Any, where: str) -> Any:
        if not fits(value):
            raise wrong(where, expected, value)
        return value

    return Codec(check, check)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _float(value: Any, where: str) -> float:
    if not _number(value):
        raise wrong(where, "a float", value)
    return float(value)


def _through(
    kind: type, expected: str, write: Callable[[Any], Any], read: Callable[[Any], Any]
) -> Codec:
    def writes(value: Any, where: str) -> Any:
        if not isinstance(value, kind):
            raise wrong(where, expected, value)
        return write(value)

    def reads(value: Any, where: str) -> Any:
        try:
            return read(value)
        except (ValueError, TypeError, InvalidOperation, binascii.Error):
            raise wrong(where, expected, value) from None

    return Codec(writes, reads)


_SIMPLE: dict[Any, Codec] = {
    bool: _exactly("True or False", lambda value: isinstance(value, bool)),
    int: _exactly("an int", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: Codec(_float, _float),
    str: _exactly("a string", lambda value: isinstance(value, str)),
    bytes: _through(
        bytes,
        "bytes",
        lambda value: base64.b64encode(value).decode(),
        lambda value: base64.b64decode(value, validate=True),
    ),
    datetime: _through(datetime, "a datetime", datetime.isoformat, datetime.fromisoformat),
    date: _through(date, "a date", date.isoformat, date.fromisoformat),
    time: _through(time, "a time", time.isoformat, time.fromisoformat),
    timedelta: _through(
        timedelta,
        "a timedelta",
        lambda value: value // timedelta(microseconds=1),
        lambda value: timedelta(microseconds=value),
    ),
    Decimal: _through(Decimal, "a Decimal", str, Decimal),
    UUID: _through(UUID, "a UUID", str, UUID),
}


def _union(options: Sequence[Codec], annotation: Any) -> Codec:
    def first(value: Any, where: str, write: bool) -> Any:
        for option in options:
            try:
                return (option.write if write else option.read)(value, where)
            except InvalidArgument:
                continue
        raise wrong(where, str(annotation), value)

    return Codec(
        lambda value, where: first(value, where, True),
        lambda value, where: first(value, where, False),
    )


def _items(value: Any, where: str, kinds: tuple[type, ...], expected: str) -> Sequence[Any]:
    if not isinstance(value, kinds):
        raise wrong(where, expected, value)
    return cast("Sequence[Any]", value)


def _sequence(item: Codec, kind: Callable[..., Any], sort: bool = False) -> Codec:
    def write(value: Any, where: str) -> list[Any]:
        values = _items(value, where, (list, tuple, set, frozenset), "a list")
        written = [item.write(v, f"{where}[{i}]") for i, v in enumerate(values)]
        return sorted(written, key=repr) if sort else written

    def read(value: Any, where: str) -> Any:
        values = _items(value, where, (list,), "a list")
        return kind(item.read(v, f"{where}[{i}]") for i, v in enumerate(values))

    return Codec(write, read)


def _tuple(args: tuple[Any, ...], name: str) -> Codec:
    if len(args) == 2 and args[1] is Ellipsis:
        return _sequence(codec(args[0], name), tuple)
    items = [codec(arg, name) for arg in args]
    expected = f"{len(items)} values"

    def each(value: Any, where: str, write: bool) -> list[Any]:
        values = _items(value, where, (tuple, list), expected)
        if len(values) != len(items):
            raise wrong(where, expected, value)
        return [
            (item.write if write else item.read)(v, f"{where}[{i}]")
            for i, (item, v) in enumerate(zip(items, values, strict=True))
        ]

    return Codec(
        lambda value, where: each(value, where, True),
        lambda value, where: tuple(each(value, where, False)),
    )


def _mapping(item: Codec) -> Codec:
    def each(value: Any, where: str, write: bool) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise wrong(where, "an object", value)
        pairs = cast("Mapping[Any, Any]", value)
        for key in pairs:
            if not isinstance(key, str):
                raise wrong(where, "an object with strings as keys", key)
        convert = item.write if write else item.read
        return {key: convert(v, f"{where}[{key!r}]") for key, v in pairs.items()}

    return Codec(
        lambda value, where: each(value, where, True),
        lambda value, where: each(value, where, False),
    )


def _enum(kind: type[Enum]) -> Codec:
    expected = f"one of {', '.join(repr(member.value) for member in kind)}"
    return _through(kind, expected, lambda value: value.value, kind)


def _fields(
    value: Any, where: str, codecs: Mapping[str, Codec], needed: set[str], expected: str
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(where, expected, value)
    given = cast("dict[str, Any]", value)
    for name in needed - given.keys():
        raise InvalidArgument(f"{where}.{name}: is missing")
    for name in given.keys() - codecs.keys():
        raise InvalidArgument(f"{where}.{name}: {expected} has no such field")
    return {name: codecs[name].read(v, f"{where}.{name}") for name, v in given.items()}


def _dataclass(kind: Any, name: str) -> Codec:
    hints = get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    codecs = {field.name: codec(hints[field.name], f"{name}.{field.name}") for field in fields}
    missing = dataclasses.MISSING
    needed = {f.name for f in fields if f.default is missing and f.default_factory is missing}

    def write(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, kind):
            raise wrong(where, a(kind.__name__), value)
        return {n: c.write(getattr(value, n), f"{where}.{n}") for n, c in codecs.items()}

    return Codec(
        write,
        lambda value, where: kind(**_fields(value, where, codecs, needed, a(kind.__name__))),
    )


def _typeddict(kind: Any, name: str) -> Codec:
    codecs = {key: codec(hint, f"{name}.{key}") for key, hint in get_type_hints(kind).items()}
    needed, expected = set(kind.__required_keys__), a(kind.__name__)

    def write(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong(where, expected, value)
        given = cast("dict[str, Any]", value)
        for key in needed - given.keys():
            raise InvalidArgument(f"{where}.{key}: is missing")
        for key in given.keys() - codecs.keys():
            raise InvalidArgument(f"{where}.{key}: {expected} has no such field")
        return {key: codecs[key].write(v, f"{where}.{key}") for key, v in given.items()}

    return Codec(write, lambda value, where: _fields(value, where, codecs, needed, expected))


def _model(kind: Any) -> Codec | None:
    """pydantic's and msgspec's models, if those are in use: their own validation, our wording."""
    pydantic, msgspec = sys.modules.get("pydantic"), sys.modules.get("msgspec")

    def guarded(convert: Callable[[Any], Any], errors: tuple[type[Exception], ...]) -> Convert:
        def run(value: Any, where: str) -> Any:
            try:
                return convert(value)
            except errors as error:
                raise InvalidArgument(f"{where}: {error}") from None

        return run

    def written(value: Any, where: str, write: Callable[[Any], Any]) -> Any:
        if not isinstance(value, kind):
            raise wrong(where, a(kind.__name__), value)
        return write(value)

    if pydantic is not None and issubclass(kind, pydantic.BaseModel):
        return Codec(
            lambda value, where: written(value, where, lambda v: v.model_dump(mode="json")),
            guarded(kind.model_validate, (pydantic.ValidationError,)),
        )
    if msgspec is not None and issubclass(kind, msgspec.Struct):
        return Codec(
            lambda value, where: written(value, where, msgspec.to_builtins),
            guarded(lambda v: msgspec.convert(v, kind), (msgspec.ValidationError,)),
        )
    return None
