"""A value for each kind of setting or option that is not its default, in Python and as typed."""

from __future__ import annotations

from typing import Any

from fairturn import Backoff, Policy
from fairturn.core import kinds, settings
from fairturn.core.kinds import Line

_SAMPLES: dict[type[kinds.Kind], tuple[Any, str]] = {
    kinds.Seconds: (90, "90s"),
    kinds.Time: (2_000_000_000, "2000000000"),
    kinds.Count: (7, "7"),
    kinds.Priority: (7, "7"),
    kinds.Bytes: (2048, "2k"),
    kinds.Flag: (True, ""),
    kinds.Name: ("other", "other"),
    kinds.Choice: ("replace", "replace"),
    kinds.Rate: ("7/min", "7/min"),
    kinds.Headers: ({"a": "b"}, "a=b"),
    settings.BackoffKind: (Backoff(2, 3, 60), "2s:3:60s"),
    settings.PolicyKind: (Policy(3, "100/min", 5, 7, True, True, 11), ""),
    settings.Meta: ({"team": "mail"}, ""),
}
# An option that means nothing without another.
BESIDE: dict[str, dict[str, Any]] = {
    "debounce": {"key": "k", "on_conflict": "replace"},
    "max_wait": {"key": "k", "on_conflict": "replace", "debounce": 5},
    "once_for": {"once": "o"},
}


def sample(line: Line) -> Any:
    """A value that its line allows and that is not the default."""
    value = _SAMPLES[type(line.kind)][0]
    assert value != line.default
    return value


def typed(line: Line) -> list[str]:
    """The same on the command line: the option and its word."""
    option = "--" + line.name.replace("_", "-").replace("headers", "header")
    word = _SAMPLES[type(line.kind)][1]
    return [option, word] if word else [option]
