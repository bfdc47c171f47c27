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
from fairturn.drivers.base import AsyncDriver

T = TypeVar("T")


async def run_async(op: Op[T], driver: AsyncDriver, own: bool) -> T:
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
                    await whole.commit()
                return stop.value
            if type(step) is tuple:
                text, params = cast("tuple[str, Sequence[Value]]", step)
                rows = await driver.execute(text, params)
            elif isinstance(step, Begin):
                rows = []
                if own and not began:
                    await whole.begin(step.write)
                    began = True
                elif not own and step.write:
                    check = getattr(driver, "check_yours", None)
                    if check is not None:
                        check()
            elif isinstance(step, Copy) and driver.can_copy:
                rows = await whole.copy(step)
            elif step is CAN_COPY:
                rows = driver.can_copy
            else:
                raise TypeError(f"an operation yielded {step!r}, which this driver cannot run")
    except BaseException:
        op.close()
        if began:
            await whole.rollback()
        raise
