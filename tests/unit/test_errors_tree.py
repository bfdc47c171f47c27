"""The tree in errors.py's docstring is the truth, and every error is exported."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

import fairturn
from fairturn.core import errors


def drawn() -> dict[str, str | None]:
    """The tree as drawn: class name -> its parent's."""
    parents: dict[str, str | None] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^([ │├└─]*)([A-Z]\w+)(?:\s{2,}.*)?$", line)
        if match is None:
            continue
        depth = len(match[1])
        while path and path[-1][0] >= depth:
            path.pop()
        parents[match[2]] = path[-1][1] if path else None
        path.append((depth, match[2]))
    return parents


def defined() -> dict[str, type[Exception]]:
    return {
        name: cls
        for name, cls in vars(errors).items()
        if inspect.isclass(cls) and cls.__module__ == errors.__name__
    }


def test_every_class_is_drawn_and_nothing_else():
    assert set(drawn()) == set(defined())


@pytest.mark.parametrize("name", defined())
def test_the_parent_is_the_drawn_one(name):
    ours = [cls for cls in defined()[name].__bases__ if issubclass(cls, errors.FairturnError)]
    parent = drawn()[name]
    assert [cls.__name__ for cls in ours] == ([] if parent is None else [parent])


@pytest.mark.parametrize("name", defined())
def test_every_error_is_exported(name):
    assert name in fairturn.__all__
    assert getattr(fairturn, name) is defined()[name]


@pytest.mark.parametrize("name", defined())
def test_every_error_is_documented(name):
    assert defined()[name].__doc__


def test_three_branches_for_three_faults_and_one_that_is_none():
    # (A program of ours may have its own, like serve.)
    found = errors.FairturnError.__subclasses__()
    branches = [cls.__name__ for cls in found if cls.__module__ == errors.__name__]
    assert sorted(branches) == [
        "DatabaseError",
        "LeaseLost",
        "TaskTimeout",
        "UsageError",
        "WaitTimeout",
    ]


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.QueueNotFound, LookupError),
        (errors.MessageNotFound, LookupError),
        (errors.ScheduleNotFound, LookupError),
        (errors.InvalidName, ValueError),
        (errors.InvalidArgument, ValueError),
        (errors.InvalidBody, TypeError),
        (errors.BodyTooLarge, ValueError),
    ],
)
def test_builtin_relatives(error, builtin):
    assert issubclass(error, builtin)


SAMPLES = [
    errors.QueueNotFound("emails"),
    errors.MessageNotFound("message 7"),
    errors.ScheduleNotFound("nightly"),
    errors.DuplicateKey("emails", ["a", "b"]),
    errors.MessageLeased("message 7"),
    errors.ChannelFull("emails", "tenant", 5),
    errors.ChannelFull("emails", "tenant"),
    errors.BodyTooLarge(11, 10),
    errors.LeaseLost("emails", [7]),
    errors.PermitLost(3),
    errors.OutcomeUnknown("send", OSError("broken pipe")),
    errors.SchemaOutdated("the tables are old"),
    errors.SchemaOutdated("the schema is too new", "upgrade"),
]


@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: type(e).__name__)
def test_the_text_says_what_to_do(error):
    text = str(error)
    assert len(text) > 40
    assert re.search(
        r"[Cc]reate|[Pp]ass|Wait|[Ss]end|Store|drop|take|Check|never sent|acked|migrate|[Uu]pgrade",
        text,
    ), text


def test_a_conflict_of_many_keys_shows_a_few():
    error = errors.DuplicateKey("q", [str(n) for n in range(1000)])
    assert len(error.keys) == 1000
    assert len(str(error)) < 500


@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: type(e).__name__)
def test_errors_cross_process_borders(error):
    """A pool of processes pickles what its workers raise."""
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)
