"""Which tests `make test` runs, and which it leaves to `make test-deep` (marker ``deep``)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

DEEP_FOLDERS = ("faults", "races")  # of tests/


def is_deep(path: Path) -> bool:
    """All tests of this file, by its path below tests/."""
    return path.parts[0] in DEEP_FOLDERS or path.stem.endswith("_races")


def one_of_each(
    metafunc: pytest.Metafunc,
    variants: Sequence[T],
    group: Callable[[T], str] = lambda _: "",
    ids: Callable[[T], str] = str,
) -> list[Any]:
    """All variants as parameters of a test. One of each group belongs to `make test`; the others
    are deep. The test's name decides which one, so that all tests together use every variant."""
    test = metafunc.function.__name__
    groups: dict[str, list[T]] = {}
    for variant in variants:
        groups.setdefault(group(variant), []).append(variant)
    chosen = [
        members[zlib.crc32(f"{test} {name}".encode()) % len(members)]
        for name, members in groups.items()
    ]
    return [
        pytest.param(variant, id=ids(variant), marks=() if variant in chosen else pytest.mark.deep)
        for variant in variants
    ]
