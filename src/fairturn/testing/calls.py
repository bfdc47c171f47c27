"""Messages that were sent, as tests check them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fairturn.core.errors import InvalidArgument
from fairturn.core.message import Message
from fairturn.tasks.task import Task

SHOWN = 20  # calls that an error text lists


@dataclass(frozen=True, slots=True)
class SentCall:
    """One message as it was sent. ``task`` is None if its type is not the name of a task."""

    task: Task[..., Any] | None
    queue: str
    channel: str
    key: str | None
    priority: int
    due: datetime
    message: Message

    @classmethod
    def of(cls, message: Message, tasks: Mapping[str, Task[..., Any]]) -> SentCall:
        m = message
        task = tasks.get(m.type or "")
        return cls(task, m.queue, m.channel, m.key, m.priority, m.due_at, m)

    @property
    def args(self) -> dict[str, Any]:
        """The arguments by name, as the handler gets them, with defaults."""
        if self.task is None:
            return {}
        args, kwargs = self.task.payload.read(self.message.body)
        return self.task.payload.bound(args, kwargs)

    def __str__(self) -> str:
        m = self.message
        try:
            given = f"({_shown(self.args)})" if self.task else f" {m.body!r}"
        except InvalidArgument:  # it was not sent by the task
            given = f" {m.body!r}"
        what = f"{m.type or 'a message'}{given}"
        told = [f"queue {self.queue!r}"]
        told += [f"channel {self.channel!r}"] if self.channel else []
        told += [] if self.key is None else [f"key {self.key!r}"]
        told += [f"priority {self.priority}"] if self.priority else []
        told += [f"due {self.due}"] if m.due_at > m.created_at else []
        return f"{what} in {', '.join(told)}"


def _shown(args: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in args.items())


def matching(
    calls: Sequence[SentCall], task: Task[..., Any] | str, args: Mapping[str, Any]
) -> list[SentCall]:
    """Return the calls of a task that have these arguments, among others."""
    if isinstance(task, Task):
        _check_names(task, args)
    of_task = [call for call in calls if call.message.type == name_of(task)]
    if not args:
        return of_task
    return [call for call in of_task if _has(call.args, args)]


def _has(given: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(name in given and given[name] == value for name, value in wanted.items())


def _check_names(task: Task[..., Any], args: Mapping[str, Any]) -> None:
    """Refuse an argument that the task does not have: it would never match, so that ``times=0``
    would always be true."""
    parameters = inspect.signature(task.function).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return
    for name in args:
        if name not in parameters:
            raise InvalidArgument(
                f"{task.name}() has no argument {name!r}; it has {', '.join(parameters) or 'none'}"
            )


def name_of(task: Task[..., Any] | str) -> str:
    return task.name if isinstance(task, Task) else task


def complaint(
    calls: Sequence[SentCall],
    found: int,
    task: Task[..., Any] | str,
    times: int | None,
    args: Mapping[str, Any],
) -> str:
    """Return the text of a failed assert_sent: what was expected, and what was sent."""
    what = name_of(task) + (f" with {_shown(args)}" if args else "")
    if times is None:
        return f"{what} was not sent. {listing(calls)}"
    return f"{what} was sent {_times(found)}, not {_times(times)}. {listing(calls)}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def listing(calls: Sequence[SentCall]) -> str:
    if not calls:
        return "Nothing was sent"
    lines = [f"  {call}" for call in calls[:SHOWN]]
    if len(calls) > SHOWN:
        lines.append(f"  … and {len(calls) - SHOWN} more")
    return "\n".join(["Sent:", *lines])
