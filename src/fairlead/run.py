"""Drive an operation on a connection: the only two places where statements meet I/O.

``run`` and ``arun`` are the same twenty lines. On our own connection an operation that yields
``BEGIN`` gets a transaction, committed when it returns; on yours (``own=False``) nothing is begun,
committed or rolled back. An operation that asks for a COPY is only given one by a driver that can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from fairlead.backends.base import CAN_COPY, Begin, Copy, Op, Value
from fairlead.drivers.base import AsyncDriver, Driver

T = TypeVar("T")


def run(op: Op[T], driver: Driver, own: bool) -> T:
    """Run one operation to its end and return its value."""
    began = False
    rows: Any = None
    try:
        while True:
            try:
                step = op.send(rows)
            except StopIteration as stop:
                if began:
                    driver.commit()
                return stop.value
            if type(step) is tuple:
                text, params = cast("tuple[str, Sequence[Value]]", step)
                rows = driver.execute(text, params)
            elif isinstance(step, Begin):
                rows = []
                if own and not began:
                    driver.begin(step.write)
                    began = True
                elif not own and step.write:
                    check = getattr(driver, "check_yours", None)
                    if check is not None:
                        check()
            elif isinstance(step, Copy) and driver.can_copy:
                rows = driver.copy(step)
            elif step is CAN_COPY:
                rows = driver.can_copy
            else:
                raise TypeError(f"an operation yielded {step!r}, which this driver cannot run")
    except BaseException:
        op.close()
        if began:
            driver.rollback()
        raise


async def arun(op: Op[T], driver: AsyncDriver, own: bool) -> T:
    """Run one operation to its end and return its value."""
    began = False
    rows: Any = None
    try:
        while True:
            try:
                step = op.send(rows)
            except StopIteration as stop:
                if began:
                    await driver.commit()
                return stop.value
            if type(step) is tuple:
                text, params = cast("tuple[str, Sequence[Value]]", step)
                rows = await driver.execute(text, params)
            elif isinstance(step, Begin):
                rows = []
                if own and not began:
                    await driver.begin(step.write)
                    began = True
            elif isinstance(step, Copy) and driver.can_copy:
                rows = await driver.copy(step)
            elif step is CAN_COPY:
                rows = driver.can_copy
            else:
                raise TypeError(f"an operation yielded {step!r}, which this driver cannot run")
    except BaseException:
        op.close()
        if began:
            await driver.rollback()
        raise
