"""A task: a function that is called by message, somewhere else, later."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, get_type_hints

from fairlead.aio.database import AsyncDatabase
from fairlead.errors import InvalidArgument, QueueNotFound
from fairlead.operations import check
from fairlead.sync.database import Database
from fairlead.tasks.context import AsyncContext, Context
from fairlead.tasks.payload import Codec, Payload, a, codec
from fairlead.tasks.verdicts import RetryPolicy, RetryRule, seconds
from fairlead.values import Duration, OnConflict, Outcome, Send, Sent

P = ParamSpec("P")
R = TypeVar("R")
Executor = Literal["async", "thread", "process"]
FromArguments = str | Callable[..., str | None] | None
MAX_ATTEMPTS = "fairlead-max-attempts"  # the header that tells the worker of a per-call override

# What one call may say about its message; the names are those of Queue.send.
OPTIONS = {"queue", *(field.name for field in fields(Send))} - {"body", "type"}


class Home(Protocol):
    """What a task needs of its App."""

    @property
    def db(self) -> Database: ...
    @property
    def async_db(self) -> AsyncDatabase: ...
    def around_send(
        self, task: Task[..., Any], queue: str, count: int
    ) -> AbstractContextManager[Any]: ...
    def sending(self, task: Task[..., Any], *messages: Send) -> None: ...


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The arguments of ``@app.task``."""

    queue: str = "default"
    channel: FromArguments = None
    key: FromArguments = None
    on_conflict: OnConflict = "error"
    priority: int = 0
    retry: RetryRule | Literal[False] = None
    timeout: Duration | None = None
    lease: Duration | None = None
    expires: Duration | None = None
    debounce: Duration | None = None
    max_wait: Duration | None = None
    executor: Executor | None = None
    result: bool = False
    on_give_up: Callable[..., Any] | None = None


class Task(Generic[P, R]):
    """Call it as the function it is, or send the call to a worker."""

    def __init__(
        self, home: Home, function: Callable[..., R], name: str | None, options: TaskOptions
    ) -> None:
        if not hasattr(function, "__name__"):
            raise InvalidArgument(f"a task is a function, with a def of its own: not {function!r}")
        self.home = home
        self.function = function
        self.name = check.name(name or function.__name__, "a task's name")
        if self.name == "<lambda>":
            raise InvalidArgument("a lambda has no name: app.task(name=…), or a function with one")
        self.options = options
        self.queue = check.name(options.queue, "queue")
        self.is_async = inspect.iscoroutinefunction(function)
        self.executor: Executor = options.executor or ("async" if self.is_async else "thread")
        if (self.executor == "async") is not self.is_async and self.executor != "process":
            kind = "a coroutine function" if self.is_async else "a plain function"
            raise InvalidArgument(f"{self.name}: executor={self.executor!r} cannot run {kind}")
        if self.executor not in ("async", "thread", "process"):
            raise InvalidArgument(f'{self.name}: executor is "thread" or "process"')
        # Can another process find it? Then it can be run there.
        self.importable = "<" not in getattr(function, "__qualname__", "<")
        if self.executor == "process" and not self.importable:
            raise InvalidArgument(
                f'{self.name}: executor="process" needs a function at the top of a module, which '
                "the other process can import"
            )
        if not isinstance(options.timeout, int | float | timedelta | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"{self.name}: timeout must be seconds, not {options.timeout!r}")
        self.timeout = None if options.timeout is None else seconds(options.timeout)
        if self.timeout is not None and self.timeout <= 0:
            raise InvalidArgument(f"{self.name}: timeout must be above 0")
        self.retry = RetryPolicy(options.retry, self.name)
        self.context = _context_parameter(function)
        self.payload = Payload(function, skip=[self.context] if self.context else ())
        self.returns = _returns(function) if options.result else None
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", self.name)
        self.__qualname__ = getattr(function, "__qualname__", self.name)
        self.__module__ = function.__module__
        self.__wrapped__ = function
        self._plain = Sending(self, {}, None)

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Call the function here and now, as if it were no task."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name} in {self.queue!r}>"

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Send one call and return its message's id; the arguments are checked now."""
        return self._plain.send(*args, **kwargs)

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """The same for ``await``."""
        return await self._plain.send_async(*args, **kwargs)

    def send_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Sent]:
        """Send many calls at once, each as its keyword arguments: all or nothing."""
        return self._plain.send_many(calls)

    async def send_many_async(self, calls: Iterable[Mapping[str, Any]]) -> list[Sent]:
        """The same for ``await``."""
        return await self._plain.send_many_async(calls)

    def schedule(self, *, delay: Duration | None = None, at: Any = None) -> Sending[P]:
        """The same task, to run later: ``welcome.schedule(delay=3600).send(…)``."""
        return self._plain.schedule(delay=delay, at=at)

    def using(self, connection: Any) -> Sending[P]:
        """The same task, sent in your transaction: it exists if and only if you commit."""
        return self._plain.using(connection)

    def with_options(self, **options: Any) -> Sending[P]:
        """The same task with other options for this call; the names are those of Queue.send."""
        return self._plain.with_options(**options)

    def message(self, *args: P.args, **kwargs: P.kwargs) -> Send:
        """The call as a message, unsent: for a group, a batch, a schedule."""
        return self._plain.message(*args, **kwargs)

    def wait(self, sent: int, timeout: Duration | None = None) -> Outcome:
        """Wait until this call has ended. Its return value is kept with ``result=True`` only."""
        return self._plain.wait(sent, timeout)

    async def wait_async(self, sent: int, timeout: Duration | None = None) -> Outcome:
        """The same for ``await``."""
        return await self._plain.wait_async(sent, timeout)


class Sending(Generic[P]):
    """A task with options for one call: immutable, so that it can be kept and shared."""

    def __init__(self, task: Task[P, Any], options: dict[str, Any], connection: Any) -> None:
        self.task = task
        self._options = options
        self._connection = connection

    @property
    def queue(self) -> str:
        return self._options.get("queue", self.task.queue)

    def with_options(self, **options: Any) -> Sending[P]:
        unknown = options.keys() - OPTIONS
        if unknown:
            raise InvalidArgument(
                f"{self.task.name}: no option is called {min(unknown)!r}; there are "
                f"{', '.join(sorted(OPTIONS))}"
            )
        return Sending(self.task, {**self._options, **options}, self._connection)

    def schedule(self, *, delay: Duration | None = None, at: Any = None) -> Sending[P]:
        if (delay is None) is (at is None):
            raise InvalidArgument("schedule(delay=…) or schedule(at=…): one of the two")
        return self.with_options(delay=delay, at=at)

    def using(self, connection: Any) -> Sending[P]:
        return Sending(self.task, self._options, connection)

    def message(self, *args: P.args, **kwargs: P.kwargs) -> Send:
        """The call as a message, unsent."""
        return self._message(args, kwargs)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        with self._around(1):
            return self._send([self._message(args, kwargs)])[0]

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        with self._around(1):
            return (await self._send_async([self._message(args, kwargs)]))[0]

    def send_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Sent]:
        calls = list(calls)
        with self._around(len(calls)):
            return self._send(self._messages(calls))

    async def send_many_async(self, calls: Iterable[Mapping[str, Any]]) -> list[Sent]:
        calls = list(calls)
        with self._around(len(calls)):
            return await self._send_async(self._messages(calls))

    def wait(self, sent: int, timeout: Duration | None = None) -> Outcome:
        """Wait until this call has ended."""
        return self.task.home.db.queue(self.queue).wait(id=sent, timeout=timeout)

    async def wait_async(self, sent: int, timeout: Duration | None = None) -> Outcome:
        """The same for ``await``."""
        return await self.task.home.async_db.queue(self.queue).wait(id=sent, timeout=timeout)

    def _around(self, count: int) -> AbstractContextManager[Any]:
        return self.task.home.around_send(self.task, self.queue, count)

    def _messages(self, calls: Iterable[Mapping[str, Any]]) -> list[Send]:
        messages: list[Send] = []
        for call in calls:
            if not isinstance(call, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidArgument(
                    f"{self.task.name}.send_many takes the keyword arguments of each call: "
                    f"[{{'name': value}}, …], not {call!r}"
                )
            messages.append(self._made((), call))
        self.task.home.sending(self.task, *messages)
        return messages

    def _message(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Send:
        message = self._made(args, kwargs)
        self.task.home.sending(self.task, message)
        return message

    def _made(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Send:
        task, own = self.task, self.task.options
        body = task.payload.write(args, kwargs)
        message = Send(
            body,
            channel=_from("channel", own.channel, task, args, kwargs) or "",
            priority=own.priority,
            key=_from("key", own.key, task, args, kwargs),
            on_conflict=own.on_conflict,
            type=task.name,
            lease=own.lease,
            max_attempts=task.retry.max_attempts,
            expires=own.expires,
            debounce=own.debounce,
            max_wait=own.max_wait,
        )
        if self._options:
            given = {k: v for k, v in self._options.items() if k != "queue"}
            message = replace(message, **given)
            if given.get("max_attempts") is not None:
                headers = dict(message.headers or {})
                message.headers = {**headers, MAX_ATTEMPTS: message.max_attempts}
        return message

    def _send(self, messages: list[Send]) -> list[Sent]:
        queue = self.task.home.db.queue(self.queue)
        if self._connection is not None:
            return queue.using(self._connection).send_many(messages)
        try:
            return queue.send_many(messages)
        except QueueNotFound:
            # No worker has run yet. In your transaction it is too late to do anything about it.
            queue.create()
            return queue.send_many(messages)

    async def _send_async(self, messages: list[Send]) -> list[Sent]:
        queue = self.task.home.async_db.queue(self.queue)
        if self._connection is not None:
            return await queue.using(self._connection).send_many(messages)
        try:
            return await queue.send_many(messages)
        except QueueNotFound:
            await queue.create()
            return await queue.send_many(messages)


def _from(
    what: str,
    rule: FromArguments,
    task: Task[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> str | None:
    """A channel or a key: a constant, or made from the call's arguments, by their names."""
    if rule is None or isinstance(rule, str):
        return rule
    bound = task.payload.bound(args, kwargs)
    try:
        found = rule(**bound)
    except TypeError as error:
        raise InvalidArgument(
            f"{task.name}: its {what} is made from all arguments of the call, by name: "
            f"lambda {next(iter(bound), 'x')}, **_: … ({error})"
        ) from error
    if found is not None and not isinstance(found, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"{task.name}: its {what} must be a string, not {found!r}")
    return found


def _context_parameter(function: Callable[..., Any]) -> str | None:
    """Which parameter, if any, is the context: by its annotation."""
    try:
        hints = get_type_hints(function)
    except NameError:
        return None  # Payload says what is wrong
    wanted = AsyncContext if inspect.iscoroutinefunction(function) else Context
    first = next(iter(inspect.signature(function).parameters), None)
    if first in ("ctx", "context") and first not in hints:
        raise InvalidArgument(
            f"{function.__name__}({first}): annotate it: {first}: fairlead.{wanted.__name__} if it "
            "is the context, otherwise with what it is"
        )
    for name, hint in hints.items():
        if name != "return" and hint in (Context, AsyncContext):
            if hint is not wanted:
                raise InvalidArgument(
                    f"{function.__name__}({name}): {hint.__name__} is for "
                    f"{'plain' if hint is Context else 'coroutine'} functions; "
                    f"this one takes {a(wanted.__name__)}"
                )
            return name
    return None


def _returns(function: Callable[..., Any]) -> Codec:
    hint = get_type_hints(function).get("return", Any)
    return codec(hint, f"what {function.__name__} returns")
