"""What an application may hang onto sending and handling: one class of hooks that do nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead.tasks.context import AnyContext
    from fairlead.tasks.task import Task
    from fairlead.tasks.verdicts import Verdict
    from fairlead.values import Send


class Middleware:
    """Override what you need. Hooks run in the order in which the middlewares were added; an error
    in ``around_send``, ``sending`` or ``handling`` is the sender's or the handler's, one in the
    others is logged."""

    def around_send(
        self, task: Task[Any, Any], queue: str, count: int
    ) -> AbstractContextManager[Any] | None:
        """Around each call that sends, in the sender's thread or task: a context manager for
        ``count`` messages together. Inside it ``sending`` is called for each of them."""

    def sending(self, task: Task[Any, Any], message: Send) -> None:
        """Before a message is sent, in the sender's thread. Change ``message`` in place: add a
        header, say."""

    def handling(self, context: AnyContext) -> AbstractContextManager[Any] | None:
        """Around each run of a handler, in its own thread, task or process: a context manager that
        is entered before the call and left, with the handler's exception if it raised, after."""

    def finished(self, context: AnyContext, verdict: Verdict, seconds: float) -> None:
        """In the worker's event loop, when a handler has ended: what becomes of its message, and
        how long it took. Must not block."""

    def worker_started(self, worker: Any) -> None:
        """The worker holds its permit and is about to receive."""

    def worker_stopped(self, worker: Any) -> None:
        """The worker has finished or released all its work."""


def overriding(hooks: list[Middleware], name: str) -> list[Any]:
    """The bound hooks that somebody has really overridden: the others cost nothing."""
    base = getattr(Middleware, name)
    return [getattr(hook, name) for hook in hooks if getattr(type(hook), name, base) is not base]


@contextlib.contextmanager
def entered(hooks: Sequence[Any], *args: Any) -> Generator[None]:
    """Inside the context managers that the hooks give; those that give None take no part."""
    with contextlib.ExitStack() as stack:
        for hook in hooks:
            block = hook(*args)
            if block is not None:
                stack.enter_context(block)
        yield
