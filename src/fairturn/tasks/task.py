"""A task: a function whose calls are sent as messages and run by a worker."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, get_type_hints

from fairturn.aio.database import AsyncDatabase
from fairturn.core import check
from fairturn.core.errors import InvalidArgument, QueueNotFound
from fairturn.core.sends import SEND_OPTIONS, OnConflict, Send, Sent
from fairturn.core.values import Duration, Outcome
from fairturn.sync.database import Database
from fairturn.tasks.context import AsyncContext, Context
from fairturn.tasks.middleware import Middleware, entered, overriding
from fairturn.tasks.payload import Codec, Payload, a, codec
from fairturn.tasks.verdicts import RetryPolicy, RetryRule, seconds

P = ParamSpec("P")
R = TypeVar("R")
Executor = Literal["async", "thread", "process"]
FromArguments = str | Callable[..., str | None] | None
Arguments = tuple[Sequence[Any], Mapping[str, Any]]  # positional, by keyword
MAX_ATTEMPTS = "fairturn-max-attempts"  # the header with a per-call override, for the worker

# The options of one call; the names are those of Queue.send.
OPTIONS = {"queue", *SEND_OPTIONS} - {"type"}


class TaskApp(Protocol):
    """The interface that a task needs of its App."""

    @property
    def db(self) -> Database: ...
    @property
    def async_db(self) -> AsyncDatabase: ...
    @property
    def middleware(self) -> list[Middleware]: ...


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


_AS_IT_IS = [
    field.name
    for field in fields(TaskOptions)
    if field.name in SEND_OPTIONS and field.name not in ("channel", "key")
]


class Sending(Generic[P]):
    """A task with options for its calls. It is immutable: it can be kept and shared."""

    def __init__(
        self, task: Task[P, Any], queue: str, options: dict[str, Any], connection: Any
    ) -> None:
        self.task = task
        self.queue = queue
        self._options = options  # fields of Send that replace the task's own
        self._connection = connection

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """Check the arguments, send one call, and return its message's id."""
        with self._around(1):
            [sent] = self._send(self._messages([(args, kwargs)]))
        return sent

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> Sent:
        """The async form of ``send``."""
        with self._around(1):
            [sent] = await self._send_async(self._messages([(args, kwargs)]))
        return sent

    def send_many(self, calls: Iterable[Mapping[str, Any]]) -> list[Sent]:
        """Send many calls, all or none of them. Each is a mapping of its keyword arguments."""
        by_name = self._by_name(calls)
        with self._around(len(by_name)):
            return self._send(self._messages(by_name))

    async def send_many_async(self, calls: Iterable[Mapping[str, Any]]) -> list[Sent]:
        """The async form of ``send_many``."""
        by_name = self._by_name(calls)
        with self._around(len(by_name)):
            return await self._send_async(self._messages(by_name))

    def schedule(self, *, delay: Duration | None = None, at: Any = None) -> Sending[P]:
        """Return the task, to run later: ``welcome.schedule(delay=3600).send(…)``."""
        if (delay is None) is (at is None):
            raise InvalidArgument("schedule() takes either delay=… or at=…")
        return self.with_options(delay=delay, at=at)

    def using(self, connection: Any) -> Sending[P]:
        """Return the task, to be sent in your transaction: the message exists only if you
        commit."""
        return Sending(self.task, self.queue, self._options, connection)

    def with_options(self, **options: Any) -> Sending[P]:
        """Return the task with other options for its calls; the names are those of Queue.send."""
        unknown = options.keys() - OPTIONS
        if unknown:
            raise InvalidArgument(
                f"{self.task.name}: no option is called {min(unknown)!r}; the options are "
                f"{', '.join(sorted(OPTIONS))}"
            )
        queue = options.pop("queue", self.queue)
        return Sending(self.task, queue, {**self._options, **options}, self._connection)

    def message(self, *args: P.args, **kwargs: P.kwargs) -> Send:
        """Return the call as a message without sending it: for a group, a batch, a schedule."""
        [message] = self._messages([(args, kwargs)])
        return message

    def wait(self, sent: int, timeout: Duration | None = None) -> Outcome:
        """Wait until this call has ended. Its return value is kept with ``result=True`` only."""
        return self.task.app.db.queue(self.queue).wait(id=sent, timeout=timeout)

    async def wait_async(self, sent: int, timeout: Duration | None = None) -> Outcome:
        """The async form of ``wait``."""
        return await self.task.app.async_db.queue(self.queue).wait(id=sent, timeout=timeout)

    # --- from calls to messages ------------------------------------------------------------------
    def _by_name(self, calls: Iterable[Mapping[str, Any]]) -> list[Arguments]:
        found: list[Arguments] = []
        for call in calls:
            if not isinstance(call, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidArgument(
                    f"{self.task.name}.send_many takes the keyword arguments of each call: "
                    f"[{{'name': value}}, …], not {call!r}"
                )
            found.append(((), call))
        return found

    def _messages(self, calls: Sequence[Arguments]) -> list[Send]:
        """Return the calls as messages, changed by the middlewares."""
        messages = [self._build(args, kwargs) for args, kwargs in calls]
        hooks = overriding(self.task.app.middleware, "sending")
        if hooks:
            for message in messages:
                for hook in hooks:
                    hook(self.task, message)
        return messages

    def _build(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Send:
        task, own = self.task, self.task.options
        message = Send(
            task.payload.write(args, kwargs),
            channel=_from("channel", own.channel, task, args, kwargs) or "",
            key=_from("key", own.key, task, args, kwargs),
            type=task.name,
            max_attempts=task.retry.max_attempts,
            **task.send_options,
        )
        if self._options:
            message = replace(message, **self._options)
            if self._options.get("max_attempts") is not None:
                headers = dict(message.headers or {})
                message.headers = {**headers, MAX_ATTEMPTS: message.max_attempts}
        return message

    def _around(self, count: int) -> AbstractContextManager[Any]:
        """Return the middlewares' context manager around a call that sends."""
        hooks = overriding(self.task.app.middleware, "around_send")
        return entered(hooks, self.task, self.queue, count) if hooks else nullcontext()

    def _send(self, messages: list[Send]) -> list[Sent]:
        queue = self.task.app.db.queue(self.queue)
        if self._connection is not None:
            return queue.using(self._connection).send_many(messages)
        try:
            return queue.send_many(messages)
        except QueueNotFound:
            # No worker has created the queue yet. (In your transaction it is too late to do so.)
            queue.create()
            return queue.send_many(messages)

    async def _send_async(self, messages: list[Send]) -> list[Sent]:
        queue = self.task.app.async_db.queue(self.queue)
        if self._connection is not None:
            return await queue.using(self._connection).send_many(messages)
        try:
            return await queue.send_many(messages)
        except QueueNotFound:
            await queue.create()
            return await queue.send_many(messages)


class Task(Sending[P], Generic[P, R]):
    """Call it like the function, or send the call to a worker. It is a ``Sending`` without options
    of its own."""

    def __init__(
        self, app: TaskApp, function: Callable[..., R], name: str | None, options: TaskOptions
    ) -> None:
        if not hasattr(function, "__name__"):
            raise InvalidArgument(f"a task must be a function defined with def, not {function!r}")
        super().__init__(self, check.name(options.queue, "queue"), {}, None)
        self.app = app
        self.function = function
        self.name = check.name(name or function.__name__, "a task's name")
        if self.name == "<lambda>":
            raise InvalidArgument(
                "a lambda has no name: use app.task(name=…), or define a function"
            )
        self.options = options
        # What each of its messages gets as it is; the channel and the key come from the arguments.
        self.send_options = {name: getattr(options, name) for name in _AS_IT_IS}
        self.is_async = inspect.iscoroutinefunction(function)
        self.executor: Executor = options.executor or ("async" if self.is_async else "thread")
        if (self.executor == "async") is not self.is_async and self.executor != "process":
            kind = "a coroutine function" if self.is_async else "a plain function"
            raise InvalidArgument(f"{self.name}: executor={self.executor!r} cannot run {kind}")
        if self.executor not in ("async", "thread", "process"):
            raise InvalidArgument(f'{self.name}: executor is "thread" or "process"')
        # Only a function that another process can import can run there.
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

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Call the function directly, without a message."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name} in {self.queue!r}>"


def _from(
    what: str,
    rule: FromArguments,
    task: Task[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> str | None:
    """Return a channel or a key: a constant, or computed from the call's arguments by name."""
    if rule is None or isinstance(rule, str):
        return rule
    bound = task.payload.bound(args, kwargs)
    try:
        found = rule(**bound)
    except TypeError as error:
        raise InvalidArgument(
            f"{task.name}: the function for its {what} gets all arguments of the call by name: "
            f"write lambda {next(iter(bound), 'x')}, **_: … ({error})"
        ) from error
    if found is not None and not isinstance(found, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"{task.name}: its {what} must be a string, not {found!r}")
    return found


def _context_parameter(function: Callable[..., Any]) -> str | None:
    """Return the name of the context parameter, found by its annotation; None without one."""
    try:
        hints = get_type_hints(function)
    except NameError:
        return None  # Payload raises the error
    wanted = AsyncContext if inspect.iscoroutinefunction(function) else Context
    first = next(iter(inspect.signature(function).parameters), None)
    if first in ("ctx", "context") and first not in hints:
        raise InvalidArgument(
            f"{function.__name__}({first}): annotate it: {first}: fairturn.{wanted.__name__} if it "
            "is the context, otherwise with its type"
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
    return codec(hint, f"the result of {function.__name__}")
