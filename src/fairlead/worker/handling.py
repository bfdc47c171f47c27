"""Call a handler and turn whatever happens into a verdict. Nothing here touches the database."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import Any

from fairlead.tasks.context import AnyContext
from fairlead.tasks.middleware import entered
from fairlead.tasks.verdicts import Verdict
from fairlead.worker.work import Work

# The context of the handler that runs here, for log records and whoever wants to know.
current: contextvars.ContextVar[AnyContext | Work | None] = contextvars.ContextVar(
    "fairlead_current", default=None
)


def current_context() -> AnyContext | None:
    """The context of the handler that calls this, or None outside of one."""
    found = current.get()
    return found.context if isinstance(found, Work) else found


def arguments(work: Work) -> tuple[list[Any], dict[str, Any]]:
    """What the handler is called with: the message's body, checked, and its context."""
    task = work.task
    args, kwargs = task.payload.read(work.message.body)
    if task.context is not None:
        kwargs[task.context] = work.context
    return args, kwargs


Hook = Callable[[AnyContext], Any]


def call(work: Work, hooks: Sequence[Hook]) -> Verdict:
    """Run a plain function, in this thread. An interruption passes through."""
    current.set(work)
    try:
        args, kwargs = arguments(work)
        if not hooks:
            value = work.task.function(*args, **kwargs)
        else:
            with entered(hooks, work.context):
                value = work.task.function(*args, **kwargs)
        return work.verdict_for(value)
    except (Exception, SystemExit) as error:
        return work.verdict_of(error)


async def acall(work: Work, hooks: Sequence[Hook]) -> Verdict:
    """Run a coroutine function, in this task."""
    current.set(work)
    task = work.task
    try:
        args, kwargs = arguments(work)
        if not hooks:
            value = await task.function(*args, **kwargs)
        else:
            with entered(hooks, work.context):
                value = await task.function(*args, **kwargs)
        return work.verdict_for(value)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        return work.verdict_of(error)
