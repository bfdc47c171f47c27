"""The configuration of a server: a TOML file, environment variables, flags; the last one wins.

    [server]
    listen = "0.0.0.0"
    port = 9324

    [keys.AKIDBILLING]            # see keys.py
    secret = "..."

    [queues.orders]               # created at the start if missing; changed attributes are set
    attributes = { VisibilityTimeout = 60 }
    tags = { team = "billing" }

Each name of [server] is also a variable, FAIRTURN_SERVE_PORT, and a flag, --port. An unknown name
is an error: a limit with a spelling mistake would have no effect.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from fairturn.core.errors import InvalidArgument
from fairturn.server.auth.keys import ACCOUNT, Keys
from fairturn.server.auth.sigv4 import REGION
from fairturn.server.http.bounds import Bounds
from fairturn.server.sqs.request import Options
from fairturn.sqs import limits

PREFIX = "FAIRTURN_SERVE_"
CONFIG = PREFIX + "CONFIG"  # names the file
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_DEFAULTS = Bounds()
_HOUR = 3600.0
_URL = r"https?://[A-Za-z0-9._:\[\]-]+"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Declared:
    """A queue of the file, with the arguments of CreateQueue."""

    attributes: Mapping[str, str]
    tags: Mapping[str, str]


# --- values ---------------------------------------------------------------------------------------
# Each reader takes the value of TOML or a flag, or the text of a variable.


def _refuse(where: str, needed: str) -> InvalidArgument:
    return InvalidArgument(f"{where} must be {needed}")


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise _refuse(where, "a string")
    return value


def _flag(value: object, where: str) -> bool:
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word not in _TRUE + _FALSE:
        raise _refuse(where, "true or false")
    return word in _TRUE


def _matching(pattern: str, needed: str) -> Callable[[object, str], str]:
    def read(value: object, where: str) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise _refuse(where, needed)
        return value

    return read


def _whole(least: int, most: int) -> Callable[[object, str], int]:
    def read(value: object, where: str) -> int:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}", value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise _refuse(where, f"a whole number from {least} to {most}")
        return value

    return read


def _seconds(least: float, most: float) -> Callable[[object, str], float]:
    def read(value: object, where: str) -> float:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
            value = float(value)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _refuse(where, "a number of seconds")
        if not least <= value <= most:
            raise _refuse(where, f"a number of seconds from {least:g} to {most:g}")
        return value

    return read


# --- settings -------------------------------------------------------------------------------------
def _setting(default: T, read: Callable[[object, str], T]) -> T:
    """A field of Settings that is also a name in [server], a variable and a flag."""
    return field(default=default, metadata={"read": read})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    listen: str = _setting("127.0.0.1", _text)
    port: int = _setting(9324, _whole(0, 65_535))
    processes: int = _setting(1, _whole(1, 1_000))
    extended: bool = _setting(False, _flag)
    account: str = _setting(ACCOUNT, _matching(r"[0-9]{12}", "twelve digits, in quotes"))
    region: str = _setting(
        "us-east-1", _matching(REGION.pattern, "a name of lower case letters, digits and '-'")
    )
    recreate_pause: float = _setting(0, _seconds(0, _HOUR))
    url: str | None = _setting(
        None, _matching(_URL, "a URL without a path, like https://sqs.example.com")
    )
    tls_cert: str | None = _setting(None, _text)
    tls_key: str | None = _setting(None, _text)
    metrics_open: bool = _setting(False, _flag)
    access_log: bool = _setting(True, _flag)
    log: str | None = _setting(None, _matching("text|json", "text or json"))
    log_level: str = _setting(
        "info", _matching("debug|info|warning|error", "debug, info, warning or error")
    )
    grace: float = _setting(20, _seconds(0, _HOUR))
    connections: int = _setting(_DEFAULTS.connections, _whole(1, 1_000_000))
    header_bytes: int = _setting(_DEFAULTS.header_bytes, _whole(4 * 1024, limits.QUERY_BYTES))
    body_bytes: int = _setting(_DEFAULTS.body_bytes, _whole(1024, limits.REQUEST_BYTES))
    header_seconds: float = _setting(_DEFAULTS.header_seconds, _seconds(0.1, _HOUR))
    body_seconds: float = _setting(_DEFAULTS.body_seconds, _seconds(0.1, _HOUR))
    keep_alive: float = _setting(_DEFAULTS.keep_alive, _seconds(0.1, _HOUR))
    keys: Keys = field(default_factory=Keys)
    queues: Mapping[str, Declared] = field(default_factory=dict[str, Declared])

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            there, missing = ("cert", "key") if self.tls_cert else ("key", "cert")
            raise InvalidArgument(f"tls_{there} is given without tls_{missing}: give both")

    @property
    def bounds(self) -> Bounds:
        return Bounds(**{one.name: getattr(self, one.name) for one in fields(Bounds)})

    @property
    def options(self) -> Options:
        return Options(**{one.name: getattr(self, one.name) for one in fields(Options)})


READERS: Mapping[str, Callable[[object, str], Any]] = {
    one.name: one.metadata["read"] for one in fields(Settings) if one.metadata
}


# --- sources --------------------------------------------------------------------------------------
def load(file: str | None, environment: Mapping[str, str], flags: Mapping[str, object]) -> Settings:
    """Combine all sources. ``flags`` that are None were not given."""
    file = file or environment.get(CONFIG) or None
    found = {} if file is None else _parse(file)
    _known(found, ("server", "keys", "queues"), f"{file}: ")
    values: dict[str, Any] = {}
    for name, value in _table(found, "server", f"{file}").items():
        values[name] = _read(name, value, f"{file}: [server] {name}")
    for variable, value in sorted(environment.items()):
        if variable.startswith(PREFIX) and variable != CONFIG:
            name = variable.removeprefix(PREFIX).lower()
            if name not in READERS:
                names = [PREFIX + known.upper() for known in READERS] + [CONFIG]
                raise _unknown(variable, names, "")
            values[name] = READERS[name](value, variable)
    for name, value in flags.items():
        if value is not None:
            values[name] = _read(name, value, f"--{name.replace('_', '-')}")
    in_file = Keys.from_mapping(_table(found, "keys", f"{file}"))
    in_environment = Keys.from_environment(environment)
    queues = _table(found, "queues", f"{file}")
    return Settings(
        **values,
        keys=Keys([*in_file, *in_environment]),
        queues={name: _declared(table, name, f"{file}") for name, table in queues.items()},
    )


def _parse(file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text("utf-8"))
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{file} is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{file} is not TOML: {error}") from None


def _table(found: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    value = found.get(name, {})
    if not isinstance(value, dict):
        raise InvalidArgument(f"{where}: {name} must be a table, [{name}]")
    return cast("dict[str, Any]", value)


def _read(name: str, value: object, where: str) -> Any:
    if name not in READERS:
        raise _unknown(where, READERS, where.removesuffix(name))
    return READERS[name](value, where)


def _known(given: Iterable[str], known: Iterable[str], before: str) -> None:
    for name in given:
        if name not in known:
            raise _unknown(before + name, known, before)


def _unknown(shown: str, known: Iterable[str], before: str) -> InvalidArgument:
    """``before`` is the part of ``shown`` before the name."""
    names = list(known)
    near = next(iter(difflib.get_close_matches(shown.removeprefix(before), names, 1, 0.5)), None)
    hint = f"did you mean {near}?" if near else f"the names are {', '.join(names)}"
    return InvalidArgument(f"{shown} is not known: {hint}")


# --- queues ---------------------------------------------------------------------------------------
def _declared(table: object, name: str, file: str) -> Declared:
    where = f"{file}: [queues.{name}]"
    if not isinstance(table, dict):
        raise InvalidArgument(f"{where} must be a table")
    if "fifo" in table:
        raise InvalidArgument(f'{where}: a name with a dot is quoted: [queues."{name}.fifo"]')
    given = cast("dict[str, Any]", table)
    _known(given, ("attributes", "tags"), f"{where} ")
    attributes = _table(given, "attributes", where)
    tags = _table(given, "tags", where)
    for key, value in tags.items():
        if not isinstance(value, str):
            raise InvalidArgument(f"{where}: tag {key} must be a string, in quotes")
    texts = {key: _attribute(value, f"{where} {key}") for key, value in attributes.items()}
    if name.endswith(".fifo"):
        texts.setdefault("FifoQueue", "true")
    return Declared(texts, tags)


def _attribute(value: object, where: str) -> str:
    """Convert a TOML value to text: SQS's attributes are texts, some of them of JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, dict):
        try:
            return json.dumps(value)
        except TypeError:
            pass
    raise InvalidArgument(f"{where} must be a string, a whole number, true, false or a table")
