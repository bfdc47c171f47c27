"""Tasks without a worker: what a decorator makes of a function, and what is sent."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import fairturn
from fairturn import Backoff, InvalidArgument, InvalidName, Send
from fairturn.tasks.task import MAX_ATTEMPTS
from tests import servers
from tests.conformance.connections import ASYNC, SYNC

YEAR = 365 * 86400


@pytest.fixture
def app(tmp_path: Path) -> Iterator[fairturn.App]:
    app = fairturn.App(f"sqlite:///{tmp_path}/tasks.db")
    app.db.queue("default").create()
    yield app
    app.close()


def only(app: fairturn.App, queue: str = "default") -> fairturn.Message:
    """The one message of a queue."""
    (message,) = app.db.queue(queue).peek()
    return message


# --- decorating -----------------------------------------------------------------------------------
def test_a_bare_decorator_on_a_plain_function(app: fairturn.App) -> None:
    @app.task
    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    assert isinstance(add, fairturn.Task)
    assert add(1) == add(a=1, b=2) == 3
    assert (add.name, add.queue, add.executor, add.is_async) == ("add", "default", "thread", False)
    assert (add.__name__, add.__doc__, add.__module__) == ("add", "Adds.", __name__)
    assert add.__wrapped__ is add.function
    assert app.tasks == {"add": add}


def test_a_bare_decorator_on_a_coroutine_function(app: fairturn.App) -> None:
    @app.task
    async def add(a: int) -> int:
        return a + 1

    assert (add.executor, add.is_async) == ("async", True)
    assert asyncio.run(add(1)) == 2


def test_a_decorator_with_options(app: fairturn.App) -> None:
    @app.task(name="mail.welcome", queue="emails", priority=5, timeout=timedelta(minutes=1))
    def welcome(to: str) -> None: ...

    assert (welcome.name, welcome.queue, welcome.timeout) == ("mail.welcome", "emails", 60.0)
    assert "welcome" not in app.tasks
    assert repr(welcome) == "<Task mail.welcome in 'emails'>"


def test_the_context_is_not_the_senders(app: fairturn.App) -> None:
    @app.task
    def first(ctx: fairturn.Context, n: int) -> None: ...

    @app.task
    async def last(n: int, ctx: fairturn.AsyncContext) -> None: ...

    assert (first.context, last.context) == ("ctx", "ctx")
    assert first.message(n=1).body == last.message(1).body == {"n": 1}
    with pytest.raises(InvalidArgument, match="ctx"):
        first.message(n=1, ctx=None)  # type: ignore[call-arg]


def test_the_wrong_kind_of_context_is_refused(app: fairturn.App) -> None:
    def plain(ctx: fairturn.AsyncContext) -> None: ...

    async def coroutine(ctx: fairturn.Context) -> None: ...

    with pytest.raises(InvalidArgument, match=r"plain\(ctx\): AsyncContext .*takes a Context"):
        app.task(plain)
    with pytest.raises(InvalidArgument, match=r"coroutine\(ctx\).*takes an AsyncContext"):
        app.task(coroutine)


def test_two_tasks_need_two_names(app: fairturn.App) -> None:
    @app.task
    def same() -> None: ...

    with pytest.raises(InvalidArgument, match=r"two tasks are called 'same'.*@app.task\(name=…\)"):
        app.task(same.function)
    assert app.task(name="other")(same.function).name == "other"


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"name": "a\0b"}, InvalidName, "name"),
        ({"queue": ""}, InvalidName, "queue"),
        ({"timeout": 0}, InvalidArgument, "timeout must be above 0"),
        ({"timeout": -1}, InvalidArgument, "timeout must be above 0"),
        ({"executor": "async"}, InvalidArgument, "cannot run a plain function"),
        ({"executor": "fork"}, InvalidArgument, 'executor is "thread" or "process"'),
        ({"executor": "process"}, InvalidArgument, "at the top of a module"),
        ({"retry": 5}, InvalidArgument, "retry= takes a fairturn.Backoff"),
        ({"retry": True}, InvalidArgument, "retry= takes a fairturn.Backoff"),
        ({"retry": {ValueError: 5}}, InvalidArgument, "retry= takes a fairturn.Backoff"),
        ({"retry": Backoff(initial=-1)}, InvalidArgument, "negative or shrink"),
        ({"retry": {OSError: Backoff(factor=0)}}, InvalidArgument, "negative or shrink"),
        ({"retry": Backoff(jitter=2)}, InvalidArgument, "jitter"),
        ({"retry": Backoff(max_attempts=-1)}, InvalidArgument, "max_attempts"),
    ],
)
def test_options_are_checked_when_declared(
    app: fairturn.App, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    def task() -> None: ...

    with pytest.raises(error, match=text):
        app.task(**options)(task)
    assert app.tasks == {}


def test_a_coroutine_function_cannot_run_in_a_thread(app: fairturn.App) -> None:
    async def task() -> None: ...

    with pytest.raises(InvalidArgument, match="executor='thread' cannot run a coroutine function"):
        app.task(executor="thread")(task)


def test_a_task_is_a_function(app: fairturn.App) -> None:
    for wrong in (functools.partial(print, "x"), 5, "name"):
        with pytest.raises(InvalidArgument, match="a task must be a function defined with def"):
            app.task(name="t")(wrong)  # type: ignore[arg-type]


def test_an_app_needs_a_database_that_is_shared() -> None:
    with pytest.raises(InvalidArgument, match=r"fairturn\.testing"):
        fairturn.App("sqlite://")


# --- sending --------------------------------------------------------------------------------------
def test_what_is_sent(app: fairturn.App) -> None:
    @app.task(priority=3, lease=7, expires=YEAR, retry=Backoff(max_attempts=9))
    def greet(name: str, when: datetime, loud: bool = False) -> None: ...

    sent = greet.send("Ann", when=datetime(2030, 1, 2, tzinfo=UTC))
    message = only(app)
    assert (message.id, sent.created) == (sent, True)
    assert message.body == {"name": "Ann", "when": "2030-01-02T00:00:00+00:00"}
    assert (message.type, message.priority, message.max_attempts) == ("greet", 3, 9)
    assert (message.channel, message.key, message.headers) == ("", None, {})
    assert message.expires_at is not None


def test_channel_and_key_from_the_arguments(app: fairturn.App) -> None:
    @app.task(channel=lambda to, **_: to.split("@")[1], key=lambda to, kind: f"{kind}:{to}")
    def welcome(to: str, kind: str = "first") -> None: ...

    message = welcome.message("ann@example.org")
    assert (message.channel, message.key) == ("example.org", "first:ann@example.org")
    assert welcome.message(to="a@b", kind="x").key == "x:a@b"


def test_channel_and_key_as_they_are_or_none(app: fairturn.App) -> None:
    @app.task(channel="tenant", key="one", on_conflict="ignore")
    def fixed() -> None: ...

    @app.task(channel=lambda n: None, key=lambda n: None)
    def neither(n: int) -> None: ...

    assert (fixed.message().channel, fixed.message().key) == ("tenant", "one")
    assert (neither.message(1).channel, neither.message(1).key) == ("", None)
    assert fixed.send() == fixed.send()


def test_more_arguments_by_position_and_by_name(app: fairturn.App) -> None:
    @app.task(key=lambda first, rest, **more: f"{first} {rest} {more}")
    def many(first: int, *rest: int, **more: str) -> None: ...

    message = many.message(1, 2, 3, a="b")
    assert message.body == {"first": 1, "rest": [2, 3], "more": {"a": "b"}}
    assert message.key == "1 (2, 3) {'a': 'b'}"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"n": "x", "tags": []}, r"count\(n\): not an int: 'x'"),
        ({"n": True, "tags": []}, r"count\(n\): not an int: True"),
        ({"n": 1, "tags": ["a", 2]}, r"count\(tags\)\[1\]: not a string: 2"),
        ({}, r"count\(\): missing a required argument: 'n'"),
        ({"n": 1}, r"count\(\): missing a required argument: 'tags'"),
        ({"n": 1, "tags": [], "m": 2}, r"count\(\): got an unexpected keyword argument 'm'"),
    ],
)
def test_what_is_wrong_is_told_to_the_sender(
    app: fairturn.App, args: dict[str, Any], text: str
) -> None:
    @app.task
    def count(n: int, tags: list[str]) -> None: ...

    def send_many(**args: Any) -> None:
        count.send_many([{"n": 1, "tags": []}, args])

    for send in (count.send, count.message, send_many):
        with pytest.raises(InvalidArgument, match=text):
            send(**args)
    assert app.db.queue("default").peek() == []


def test_send_many_is_all_or_nothing(app: fairturn.App) -> None:
    @app.task(key=lambda n: str(n))
    def count(n: int) -> None: ...

    ids = count.send_many({"n": n} for n in range(5))
    assert ids == sorted(ids)
    assert [m.body["n"] for m in app.db.queue("default").peek()] == [0, 1, 2, 3, 4]
    with pytest.raises(fairturn.DuplicateKey):
        count.send_many([{"n": 9}, {"n": 3}])
    assert app.db.queue("default").stats().ready == 5
    assert count.send_many([]) == []
    with pytest.raises(InvalidArgument, match="takes the keyword arguments of each call"):
        count.send_many([1])  # type: ignore[list-item]


def test_with_options_is_for_one_call(app: fairturn.App) -> None:
    app.db.queue("slow").create()

    @app.task(priority=1, channel="usual")
    def count(n: int) -> None: ...

    urgent = count.with_options(priority=9, queue="slow", headers={"a": 1})
    urgent.with_options(channel="other").send(1)
    message = only(app, "slow")
    assert (message.priority, message.channel, message.headers) == (9, "other", {"a": 1})
    assert (urgent.queue, urgent.message(1).channel) == ("slow", "usual")
    count.send(1)
    assert only(app).priority == 1


def test_max_attempts_of_one_call_travels_with_the_message(app: fairturn.App) -> None:
    @app.task(retry=Backoff(max_attempts=3))
    def count() -> None: ...

    message = count.with_options(max_attempts=7, headers={"a": 1}).message()
    assert (message.max_attempts, message.headers) == (7, {"a": 1, MAX_ATTEMPTS: 7})


@pytest.mark.parametrize("name", ["type", "body", "prio"])
def test_an_unknown_option_is_named(app: fairturn.App, name: str) -> None:
    @app.task
    def count() -> None: ...

    with pytest.raises(InvalidArgument, match=rf"count: no option is called '{name}'.*priority"):
        count.with_options(**{name: 1})


def test_schedule(app: fairturn.App) -> None:
    @app.task
    def later() -> None: ...

    at = datetime(2040, 1, 1, tzinfo=UTC)
    later.schedule(at=at).send()
    message = only(app)
    assert (message.state, message.due_at) == ("scheduled", at)
    assert later.schedule(delay=60).message().delay == 60
    for wrong in ({}, {"delay": 1, "at": at}):
        with pytest.raises(InvalidArgument, match="either delay=… or at=…"):
            later.schedule(**wrong)


def test_send_async(app: fairturn.App) -> None:
    @app.task
    def count(n: int) -> None: ...

    async def main() -> None:
        one = await count.send_async(1)
        more = await count.send_many_async([{"n": 2}, {"n": 3}])
        await count.schedule(delay=60).send_async(4)
        assert [one, *more] == sorted([one, *more])
        await app.close_async()

    asyncio.run(main())
    assert [m.body["n"] for m in app.db.queue("default").peek()] == [1, 2, 3, 4]


def test_a_message_unsent_for_a_group(app: fairturn.App) -> None:
    @app.task(queue="default", priority=4)
    def part(n: int) -> None: ...

    @app.task
    def total(of: int) -> None: ...

    message = part.message(1)
    assert isinstance(message, Send)
    group = app.db.group("g", "default", end=total.message(of=2))
    group.send_many([part.message(n=1), part.with_options(priority=6).message(n=2)])
    assert group.start()
    parts = app.db.queue("default").receive(9)
    assert [(m.type, m.body, m.priority) for m in parts] == [
        ("part", {"n": 2}, 6),
        ("part", {"n": 1}, 4),
    ]
    app.db.queue("default").ack(parts)
    (end,) = app.db.queue("default").receive(9)
    assert (end.type, end.body) == ("total", {"of": 2})


# --- in the user's transaction --------------------------------------------------------------------
def url_of(backend: str, tmp_path: Path) -> str:
    if backend == "sqlite":
        return f"sqlite:///{tmp_path}/using.db"
    return (servers.postgres_url if backend == "postgresql" else servers.mysql_url)("tasks")


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[fairturn.App]:
    app = fairturn.App(url_of(request.param, tmp_path))
    app.db.migrate()
    app.db.queue("using").drop()
    app.db.queue("using").create()
    yield app
    app.close()


def test_using_a_connection_commits_and_rolls_back_with_it(shared: fairturn.App) -> None:
    @shared.task(queue="using")
    def count(n: int) -> None: ...

    mine = SYNC[shared.db.target.backend.dialect](shared.url)
    using = count.using(mine.connection)
    mine.begin()
    using.send(1)
    using.with_options(priority=3).send_many([{"n": 2}])
    mine.rollback()
    assert shared.db.queue("using").peek() == []
    mine.begin()
    using.send(3)
    using.schedule(delay=60).send(4)
    if shared.db.target.backend.dialect != "sqlite":
        assert shared.db.queue("using").peek() == []
    mine.commit()
    assert [m.body["n"] for m in shared.db.queue("using").peek()] == [3, 4]
    mine.close()


@pytest.mark.parametrize("backend", ["postgresql", "mysql"])
def test_using_an_async_connection(backend: str, tmp_path: Path) -> None:
    app = fairturn.App(url_of(backend, tmp_path))
    app.db.migrate()
    app.db.queue("using").drop()
    app.db.queue("using").create()

    @app.task(queue="using")
    async def count(n: int) -> None: ...

    async def main() -> None:
        mine = await ASYNC[backend]().open(app.url)
        await mine.begin()
        await count.using(mine.connection).send_async(1)
        await mine.rollback()
        assert await app.async_db.queue("using").peek() == []
        await mine.begin()
        await count.using(mine.connection).send_many_async([{"n": 2}])
        await mine.commit()
        await mine.close()
        (message,) = await app.async_db.queue("using").peek()
        assert message.body == {"n": 2}
        await app.close_async()

    asyncio.run(main())


# --- middleware -----------------------------------------------------------------------------------
def test_sending_hooks_change_the_message_in_order(app: fairturn.App) -> None:
    class Stamp(fairturn.Middleware):
        def __init__(self, name: str) -> None:
            self.name = name

        def sending(self, task: fairturn.Task[..., Any], message: Send) -> None:
            path = (message.headers or {}).get("path", "")
            message.headers = {"path": f"{path}{self.name}:{task.name} "}

    @app.task
    def count() -> None: ...

    app.middleware[:] = [Stamp("a"), fairturn.Middleware(), Stamp("b")]
    count.send()
    assert only(app).headers == {"path": "a:count b:count "}


def test_an_error_in_a_sending_hook_is_the_senders(app: fairturn.App) -> None:
    class Refuse(fairturn.Middleware):
        def sending(self, task: fairturn.Task[..., Any], message: Send) -> None:
            raise PermissionError("not today")

    @app.task
    def count() -> None: ...

    app.middleware.append(Refuse())
    with pytest.raises(PermissionError, match="not today"):
        count.send()
    assert app.db.queue("default").peek() == []


def test_a_task_can_be_called_where_typing_says_so(app: fairturn.App) -> None:
    """The three ways to write the decorator give the same thing."""

    def plain(n: int) -> int:
        return n

    makers: list[Callable[[Any], Any]] = [
        app.task,
        app.task(name="b"),
        app.task(None, name="c"),
    ]
    for make, name in zip(makers, ("plain", "b", "c"), strict=True):
        task = make(plain)
        assert (task.name, task(5), task.message(5).type) == (name, 5, name)
