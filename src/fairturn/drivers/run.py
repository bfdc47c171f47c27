# Generated from drivers/run_async.py by `make generate`: edit that file.
"""Run an operation on a connection: execute each statement that it yields, send it the rows.

On our own connection ``BEGIN`` begins a transaction, which is committed when the operation returns.
On yours nothing is begun, committed or rolled back. An operation yields a COPY only after
``CAN_COPY`` has told it that the driver has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from fairturn.backends.steps import CAN_COPY, Begin, Copy, Op
from fairturn.core.kinds import Value
from fairturn.drivers.base import Driver

T = TypeVar("T")


def run(op: Op[T], driver: Driver, own: bool) -> T:
    """Run an operation to its end and return its value."""
    whole: Any = driver  # with what only some have: begin (our own), copy (if can_copy)
    began = False
    rows: Any = None
    try:
        while True:
            try:
                step = op.send(rows)
            except StopIteration as stop:
                if began:
                    whole.commit()
                return stop.value
            if type(step) is tuple:
                text, params = cast("tuple[str, Sequence[Value]]", step)
                rows = driver.execute(text, params)
            elif isinstance(step, Begin):
                rows = []
                if own and not began:
                    whole.begin(step.write)
                    began = True
                elif not own and step.write:
                    check = getattr(driver, "check_yours", None)
                    if check is not None:
                        check()
            elif isinstance(step, Copy) and driver.can_copy:
                rows = whole.copy(step)
            elif step is CAN_COPY:
                rows = driver.can_copy
            else:
                raise TypeError(f"an operation yielded {step!r}, which this driver cannot run")
    except BaseException:
        op.close()
        if began:
            whole.rollback()
        raise
