"""The text format of Prometheus, version 0.0.4. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Family(NamedTuple):
    """One metric: its labels, and the content of its HELP and TYPE lines."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


def page(samples: Mapping[Family, Iterable[str]]) -> str:
    """Render these metrics, in this order."""
    lines: list[str] = []
    for family, found in samples.items():
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        lines += found
    return "\n".join(lines) + "\n"


def sample(name: str, labels: Mapping[str, str], value: float) -> str:
    """Render one sample as a line."""
    if not labels:
        return f"{name} {value!r}"
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
