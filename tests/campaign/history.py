"""What the processes of a campaign did: one file for each process, one JSON line before and one
after each call. A line is written with one ``write``, so a kill -9 leaves whole lines."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["ok", "fail", "info"]  # info: it may or may not have happened


@dataclass(slots=True)
class Op:
    """One call: its two lines, joined. A call without a second line has the outcome ``info``."""

    process: str
    kind: str
    asked_at: float  # on the machine's monotonic clock, which all processes share
    about: dict[str, Any]
    outcome: Outcome = "info"
    ended_at: float | None = None
    result: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    @property
    def maybe(self) -> bool:
        """It happened, or it may have happened."""
        return self.outcome != "fail"


class Call:
    """The second line of a call that is on its way."""

    def __init__(self) -> None:
        self.result: dict[str, Any] = {}

    def ok(self, **result: Any) -> None:
        self.result = result


class Writer:
    """The file of one process."""

    def __init__(self, directory: Path, process: str) -> None:
        self.process = f"{process}.{os.getpid()}"
        flags = os.O_APPEND | os.O_CREAT | os.O_WRONLY
        self._file = os.open(directory / f"{self.process}.history", flags, 0o666)
        self._numbers = itertools.count(1)  # threads may share it

    def _write(self, op: int, type: str, values: dict[str, Any]) -> None:
        head = {"op": op, "type": type, "at": time.monotonic(), "wall": time.time()}
        os.write(self._file, (json.dumps(head | values) + "\n").encode())

    def begin(self, kind: str, **about: Any) -> int:
        """The first line of a call; ``end`` writes the second."""
        op = next(self._numbers)
        self._write(op, "invoke", {"kind": kind, "about": about})
        return op

    def end(self, op: int, outcome: Outcome, error: BaseException | None = None, **result: Any):
        said = "" if error is None else f"{type(error).__name__}: {error}"
        self._write(op, outcome, {"result": result, "error": said})

    def note(self, kind: str, **about: Any) -> None:
        """Something that happened, and has no duration."""
        self.end(self.begin(kind, **about), "ok")

    @contextlib.contextmanager
    def call(self, kind: str, **about: Any) -> Iterator[Call]:
        """A call of the library. Its errors are written down and end here."""
        op, call = self.begin(kind, **about), Call()
        try:
            yield call
        except Exception as error:
            self.end(op, outcome_of(error), error)
        else:
            self.end(op, "ok", **call.result)


def outcome_of(error: BaseException) -> Outcome:
    """Did a call that raised this change anything? ``fail``: surely not."""
    import fairturn

    sure = (fairturn.UsageError, fairturn.LeaseLost, fairturn.WaitTimeout, fairturn.DatabaseBusy)
    return "fail" if isinstance(error, sure) else "info"


def read(directory: Path, only: set[str] | None = None) -> list[Op]:
    """The merged history, in the order in which the calls began; ``only`` of these processes."""
    found: list[Op] = []
    for path in directory.glob("*.history"):
        if only is not None and path.stem not in only:
            continue
        ops: dict[int, Op] = {}
        with open(path, "rb") as file:
            for text in file:
                if not text.endswith(b"\n"):
                    continue  # the disk was full, or the process was killed in the write
                line = json.loads(text)
                if line["type"] == "invoke":
                    op = Op(path.stem, line["kind"], line["at"], line["about"])
                    ops[line["op"]] = op
                    continue
                op = ops[line["op"]]
                op.outcome, op.ended_at = line["type"], line["at"]
                op.result, op.error = line["result"], line["error"]
        found += ops.values()
    return sorted(found, key=lambda op: op.asked_at)
