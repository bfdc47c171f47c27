"""What an App checks when it is written, and what its workers do about schedules."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import fairturn
from fairturn import InvalidArgument
from fairturn.tasks.import_guard import importing


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


def declare(url: str, schedules: list[str], **options: Any) -> list[str]:
    """Start an app that declares these schedules; the names of those that are stored then."""
    app = fairturn.App(url, **options)

    @app.task
    def work() -> None: ...

    for name in schedules:
        app.every(3600, work, name=name)

    async def run() -> list[str]:
        async with app.worker():
            pass
        stored = [schedule.name for schedule in await app.async_db.schedules()]
        await app.close_async()
        return stored

    return asyncio.run(run())


def test_an_app_without_a_name_removes_nobodys_schedules(url: str) -> None:
    assert declare(url, ["one"]) == ["one"]
    assert declare(url, ["two"]) == ["one", "two"]


def test_an_app_with_a_name_removes_what_it_no_longer_declares(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    declare(url, ["others"], name="b")
    assert declare(url, ["one", "two"], name="a") == ["one", "others", "two"]
    assert declare(url, ["two"], name="a") == ["others", "two"]
    assert "removed schedule one: app a no longer declares it" in caplog.messages


@pytest.mark.parametrize(
    ("when", "text"),
    [
        (lambda app, task: app.cron("61 * * * *", task), "schedule work: .*61"),
        (lambda app, task: app.cron("* * * * *", task, timezone="Europe/Roma"), "Europe/Roma"),
        (lambda app, task: app.every("5m", task), "schedule work: every must be seconds"),
        (lambda app, task: app.every(0.2, task), "schedule work: "),
        (lambda app, task: app.every(5, task, args={"x": 1}), "unexpected keyword argument 'x'"),
    ],
)
def test_a_schedule_is_checked_where_it_is_written(url: str, when: Any, text: str) -> None:
    app = fairturn.App(url)

    @app.task
    def work() -> None: ...

    with pytest.raises(InvalidArgument, match=text):
        when(app, work)


def test_run_is_refused_while_the_module_is_imported(url: str) -> None:
    app = fairturn.App(url)
    token = importing.set(True)
    try:
        with pytest.raises(InvalidArgument, match="if __name__ =="):
            app.run()
    finally:
        importing.reset(token)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ques": "x"}, "a task has no option 'ques'; its options are name, queue, "),
        ({"timeout": "5s"}, "work: timeout must be seconds, not '5s'"),
    ],
)
def test_options_that_do_not_exist(url: str, options: Any, text: str) -> None:
    def work() -> None: ...

    with pytest.raises(InvalidArgument, match=text):
        fairturn.App(url).task(**options)(work)


def test_a_context_without_annotation(url: str) -> None:
    def work(ctx, x: int) -> None: ...

    with pytest.raises(InvalidArgument, match=r"work\(ctx\): annotate it: ctx: fairturn.Context"):
        fairturn.App(url).task(work)


def test_a_lambda_needs_a_name(url: str) -> None:
    with pytest.raises(InvalidArgument, match="a lambda has no name"):
        fairturn.App(url).task(lambda: None)


def test_a_channel_that_does_not_take_all_arguments(url: str) -> None:
    app = fairturn.App(url)

    @app.task(channel=lambda tenant: tenant)
    def work(tenant: str, x: int) -> None: ...

    with pytest.raises(InvalidArgument, match=r"work: the function for its channel .*\*\*_"):
        work.send("a", 1)


def test_the_first_send_makes_the_queue(url: str) -> None:
    app = fairturn.App(url)

    @app.task(queue="new")
    def work() -> None: ...

    work.send()
    assert app.db.queue("new").stats().ready == 1
    app.close()
