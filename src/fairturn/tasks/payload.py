"""Converts a call's arguments to JSON and back, by the function's annotations.

Arguments are checked when they are sent and again when they are received. An error names the
argument: ``welcome(user).age: not an int: 'x'``. Only JSON is used: no message can name code that
is then imported or run.
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

from fairturn.core.errors import InvalidArgument

Convert = Callable[[Any, str], Any]


class Codec:
    """Writes and reads values of one annotation; ``where`` names the argument in errors."""

    __slots__ = ("read", "write")

    def __init__(self, write: Convert, read: Convert) -> None:
        self.write = write
        self.read = read


def wrong(where: str, expected: str, value: Any) -> InvalidArgument:
    shown = repr(value)
    return InvalidArgument(f"{where}: not {expected}: {shown:.80}{'…' if len(shown) > 80 else ''}")


def a(name: str) -> str:
    """Put the indefinite article before a name."""
    return f"an {name}" if name[:1].lower() in "aeio" else f"a {name}"


class Payload:
    """The arguments of one function."""

    def __init__(self, function: Callable[..., Any], skip: Sequence[str] = ()) -> None:
        """``skip``: parameters that do not come from the sender, such as the context."""
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
        self._signature = signature.replace(parameters=kept)
        self._codecs: dict[str, Codec] = {}
        self._needed: set[str] = set()
        self._args = self._kwargs = ""  # the names of *args and **kwargs
        for p in kept:
            one = codec(hints.get(p.name, Any), p.name)
            if p.kind is p.POSITIONAL_ONLY:
                raise InvalidArgument(
                    f"{self.name}({p.name}, /): a task's arguments are sent by name; remove the /"
                )
            if p.kind is p.VAR_POSITIONAL:
                self._args, one = p.name, _sequence(one, list)
            elif p.kind is p.VAR_KEYWORD:
                self._kwargs, one = p.name, _mapping(one)
            elif p.default is p.empty:
                self._needed.add(p.name)
            self._codecs[p.name] = one
        self._where = {name: f"{self.name}({name})" for name in self._codecs}

    def write(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body to send: each argument by its name, without defaults."""
        # A complete call by keyword needs no binding, which takes 5 µs.
        rest = self._args or self._kwargs
        if args or rest or not self._needed <= kwargs.keys() <= self._codecs.keys():
            kwargs = self._bind(args, kwargs).arguments
        codecs, where = self._codecs, self._where
        return {name: codecs[name].write(value, where[name]) for name, value in kwargs.items()}

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments by name, with defaults: a key may be computed from them."""
        bound = self._bind(args, kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        given.update(given.pop(self._kwargs, {}))
        return given

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidArgument(f"{self.name}(): {error}") from None

    def read(self, body: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and keyword arguments of the call."""
        if not isinstance(body, dict):
            raise wrong(f"{self.name}()", "an object of arguments by name", body)
        given = cast("dict[str, Any]", body)
        codecs, where = self._codecs, self._where
        unknown = given.keys() - codecs.keys()
        if unknown:
            raise InvalidArgument(f"{self.name}(): no argument is called {min(unknown)!r}")
        missing = self._needed - given.keys()
        if missing:
            raise InvalidArgument(f"{self.name}(): missing a required argument: {min(missing)!r}")
        kwargs = {name: codecs[name].read(value, where[name]) for name, value in given.items()}
        args: list[Any] = kwargs.pop(self._args, [])
        kwargs.update(kwargs.pop(self._kwargs, {}))
        if args:  # the parameters before *args must then be positional, too
            names = list(codecs)
            before = names[: names.index(self._args)]
            args = [kwargs.pop(name) for name in before if name in kwargs] + args
        return args, kwargs


def codec(annotation: Any, name: str) -> Codec:
    """Return the codec of one annotation; raise InvalidArgument if JSON cannot carry it."""
    if annotation in (Any, inspect.Parameter.empty, object):
        return Codec(_unchanged, _unchanged)
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


def _unchanged(value: Any, where: str) -> Any:
    """Return any JSON value as it is; the encoder of the body checks it."""
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


def _both(make: Callable[[list[Convert]], Convert], parts: Sequence[Codec]) -> Codec:
    """Return a codec that is made of others, in the same way in both directions."""
    return Codec(make([part.write for part in parts]), make([part.read for part in parts]))


def _union(options: Sequence[Codec], annotation: Any) -> Codec:
    def first_that_fits(converts: Sequence[Convert]) -> Convert:
        def convert(value: Any, where: str) -> Any:
            for one in converts:
                try:
                    return one(value, where)
                except InvalidArgument:
                    continue
            raise wrong(where, str(annotation), value)

        return convert

    return _both(first_that_fits, options)


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
    expected = f"{len(args)} values"

    def each(converts: Sequence[Convert]) -> Convert:
        def convert(value: Any, where: str) -> list[Any]:
            values = _items(value, where, (tuple, list), expected)
            if len(values) != len(converts):
                raise wrong(where, expected, value)
            pairs = zip(converts, values, strict=True)
            return [one(v, f"{where}[{i}]") for i, (one, v) in enumerate(pairs)]

        return convert

    both = _both(each, [codec(arg, name) for arg in args])
    return Codec(both.write, lambda value, where: tuple(both.read(value, where)))


def _mapping(item: Codec) -> Codec:
    def each(converts: Sequence[Convert]) -> Convert:
        [one] = converts

        def convert(value: Any, where: str) -> dict[str, Any]:
            if not isinstance(value, Mapping):
                raise wrong(where, "an object", value)
            pairs = cast("Mapping[Any, Any]", value)
            for key in pairs:
                if not isinstance(key, str):
                    raise wrong(where, "an object with strings as keys", key)
            return {key: one(v, f"{where}[{key!r}]") for key, v in pairs.items()}

        return convert

    return _both(each, [item])


def _enum(kind: type[Enum]) -> Codec:
    expected = f"one of {', '.join(repr(member.value) for member in kind)}"
    return _through(kind, expected, lambda value: value.value, kind)


def _object(codecs: Mapping[str, Codec], needed: set[str], expected: str) -> Codec:
    """Return the codec of a dict that has these fields."""

    def each(converts: Sequence[Convert]) -> Convert:
        by_name = dict(zip(codecs, converts, strict=True))

        def convert(value: Any, where: str) -> dict[str, Any]:
            if not isinstance(value, dict):
                raise wrong(where, expected, value)
            given = cast("dict[str, Any]", value)
            for name in needed - given.keys():
                raise InvalidArgument(f"{where}.{name}: is missing")
            for name in given.keys() - by_name.keys():
                raise InvalidArgument(f"{where}.{name}: {expected} has no such field")
            return {name: by_name[name](v, f"{where}.{name}") for name, v in given.items()}

        return convert

    return _both(each, list(codecs.values()))


def _dataclass(kind: Any, name: str) -> Codec:
    hints = get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    codecs = {field.name: codec(hints[field.name], f"{name}.{field.name}") for field in fields}
    missing = dataclasses.MISSING
    needed = {f.name for f in fields if f.default is missing and f.default_factory is missing}
    expected = a(kind.__name__)
    read = _object(codecs, needed, expected).read

    def write(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, kind):
            raise wrong(where, expected, value)
        return {n: c.write(getattr(value, n), f"{where}.{n}") for n, c in codecs.items()}

    return Codec(write, lambda value, where: kind(**read(value, where)))


def _typeddict(kind: Any, name: str) -> Codec:
    codecs = {key: codec(hint, f"{name}.{key}") for key, hint in get_type_hints(kind).items()}
    return _object(codecs, set(kind.__required_keys__), a(kind.__name__))


def _model(kind: Any) -> Codec | None:
    """Return the codec of a model of pydantic or msgspec, if these are imported; else None."""
    pydantic, msgspec = sys.modules.get("pydantic"), sys.modules.get("msgspec")
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    if pydantic is not None and issubclass(kind, pydantic.BaseModel):
        write, read = (lambda value: value.model_dump(mode="json")), kind.model_validate
        refused = pydantic.ValidationError
    elif msgspec is not None and issubclass(kind, msgspec.Struct):
        write, read = msgspec.to_builtins, lambda value: msgspec.convert(value, kind)
        refused = msgspec.ValidationError
    else:
        return None

    def reads(value: Any, where: str) -> Any:
        try:
            return read(value)
        except refused as error:
            raise InvalidArgument(f"{where}: {error}") from None

    return Codec(_through(kind, a(kind.__name__), write, read).write, reads)
