"""Middleware: an application's hooks around sending and handling."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairturn.core.sends import Send
    from fairturn.tasks.context import AnyContext
    from fairturn.tasks.task import Task
    from fairturn.tasks.verdicts import Verdict


class Middleware:
    """Override the hooks you need. They run in the order in which the middlewares were added. An
    error in ``around_send``, ``sending`` or ``handling`` is raised to the sender or fails the
    handler; an error in another hook is logged."""

    def around_send(
        self, task: Task[Any, Any], queue: str, count: int
    ) -> AbstractContextManager[Any] | None:
        """Called for each call that sends, in the sender's thread or task. Return a context manager
        to put around it, for all ``count`` messages. Inside it ``sending`` is called for each."""

    def sending(self, task: Task[Any, Any], message: Send) -> None:
        """Called before a message is sent, in the sender's thread. Change ``message`` in place, for
        example to add a header."""

    def handling(self, context: AnyContext) -> AbstractContextManager[Any] | None:
        """Called for each run of a handler, in its thread, task or process. Return a context
        manager to put around the run; it sees the handler's exception, if there is one."""

    def finished(self, context: AnyContext, verdict: Verdict, seconds: float) -> None:
        """Called in the worker's event loop when a handler has ended, with the verdict on its
        message and its duration. Must not block."""

    def worker_started(self, worker: Any) -> None:
        """Called when the worker holds its permit and is about to receive."""

    def worker_stopped(self, worker: Any) -> None:
        """Called when the worker has finished or released all its messages."""


def overriding(hooks: list[Middleware], name: str) -> list[Any]:
    """Return the bound hooks that are overridden: the others cost nothing."""
    base = getattr(Middleware, name)
    return [getattr(hook, name) for hook in hooks if getattr(type(hook), name, base) is not base]


@contextlib.contextmanager
def entered(hooks: Sequence[Any], *args: Any) -> Generator[None]:
    """Enter the context managers that the hooks return; a hook may return None."""
    with contextlib.ExitStack() as stack:
        for hook in hooks:
            block = hook(*args)
            if block is not None:
                stack.enter_context(block)
        yield
