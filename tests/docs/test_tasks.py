"""docs/tasks.md and docs/workers.md name what there is."""

from __future__ import annotations

import re
from dataclasses import fields

from fairturn.cli.programs.worker import Options
from fairturn.tasks.task import OPTIONS, TaskOptions
from fairturn.worker import runtime, shutdown, slots
from tests.docs.pages import ROOT

TASKS = (ROOT / "docs" / "tasks.md").read_text("utf-8")
WORKERS = (ROOT / "docs" / "workers.md").read_text("utf-8")


def section(text: str, heading: str) -> str:
    found = re.search(rf"^##+ {heading}$(.*?)(?=^##|\Z)", text, flags=re.MULTILINE | re.DOTALL)
    assert found, f"no section {heading!r}"
    return found[1]


def test_the_options_of_a_task() -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", section(TASKS, "Options"), flags=re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {"name", *(field.name for field in fields(TaskOptions))}


def test_the_options_of_a_call() -> None:
    [row] = re.findall(r"^\| `task.with_options.*$", section(TASKS, "Sending"), flags=re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == OPTIONS


def test_the_command_has_the_options_that_the_pages_use() -> None:
    known = {f"--{field.name.replace('_', '-')}" for field in fields(Options)} | {"--db"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", WORKERS)) <= known


def test_the_numbers() -> None:
    assert f"lives for {runtime.PERMIT:.0f} s without a heartbeat" in WORKERS
    assert (
        f"within {runtime.PERMIT / 2:.0f} s (half the permit's life, at least "
        f"{runtime.ANSWER_TIMEOUT:.0f} s)" in WORKERS
    )
    assert f"tried again {slots.NO_TASK_DELAY:.0f} s later" in WORKERS
    assert (slots.SUSPECT, shutdown.UNWIND) == (
        3,
        2.0,
    )  # "from its third attempt on", "two seconds"
