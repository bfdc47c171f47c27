"""/health and /metrics."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from fairturn.core.errors import DatabaseUnavailable
from fairturn.server.auth.keys import AccessKey, Keys
from fairturn.server.http import metrics, pages
from tests.server.http_doors import Poller, Service, call, get, run, served, until

NOWHERE = "postgresql://someone:hush@127.0.0.1:1/nothing"


def test_healthy() -> None:
    async def main() -> None:
        keys = Keys([AccessKey("AKID", "secret")])
        async with served(Service(), keys=keys) as server:
            reply = await server.ask(get("/health"))
            assert (reply.status, reply.json) == (200, {"healthy": True})
            assert reply["cache-control"] == "no-store"
            assert (await server.ask(get("/?Action=ListQueues"))).status == 403  # without a key

    run(main())


def test_without_its_database_it_is_not_healthy(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served(Service(), database=NOWHERE) as server:
            reply = await server.ask(get("/health"))
            assert (reply.status, reply.json) == (503, {"healthy": False})

    run(main())
    assert "health: " in caplog.text
    assert "hush" not in caplog.text


def test_the_database_is_asked_once_by_all_who_ask_at_once() -> None:
    async def main() -> None:
        asked, go = 0, asyncio.Event()

        async def ask() -> None:
            nonlocal asked
            asked += 1
            await go.wait()

        page = pages.Pages(ask, list)
        waiting = [asyncio.create_task(page.answer(b"/health", {}, None)) for _ in range(10)]
        await until(lambda: asked == 1)
        go.set()
        assert {(await one).status for one in waiting} == {200}
        assert (await page.answer(b"/health", {}, None)).status == 200
        assert asked == 1
        await page.close()

    run(main())


def test_a_database_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked once, however many ask us, and what it says in the end counts."""
    monkeypatch.setattr(pages, "PATIENCE", 0.02)

    async def main() -> None:
        asked, go = 0, asyncio.Event()

        async def ask() -> None:
            nonlocal asked
            asked += 1
            await go.wait()

        page = pages.Pages(ask, list)
        for _ in range(3):
            assert (await page.answer(b"/health", {}, None)).status == 503
        assert asked == 1
        go.set()
        await asyncio.sleep(0)
        assert (await page.answer(b"/health", {}, None)).status == 200
        await page.close()

    run(main())


def test_health_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FRESH", 0.0)

    async def main() -> None:
        broken = True

        async def ask() -> None:
            if broken:
                raise DatabaseUnavailable("gone")

        page = pages.Pages(ask, list)
        assert (await page.answer(b"/health", {}, None)).status == 503
        broken = False
        assert (await page.answer(b"/health", {}, None)).status == 200

    run(main())


def test_a_page_that_is_closed_while_it_asks() -> None:
    async def main() -> None:
        page = pages.Pages(asyncio.Event().wait, list)
        waiting = asyncio.create_task(page.answer(b"/health", {}, None))
        await asyncio.sleep(0.01)
        await page.close()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.done()

    run(main())


def test_metrics() -> None:
    async def main() -> str:
        service = Poller()
        async with served(service) as server:
            poll = await server.connect()
            poll.send(call("ReceiveMessage", {"QueueUrl": "http://localhost/0/orders"}))
            await until(lambda: server.serving.snapshot()["polls"] == 1)
            await server.ask(call("FooBar"))
            await server.ask(get("/"))
            await server.ask(get("/health"))
            reply = await server.ask(get("/metrics"))
            assert reply.status == 200
            assert reply["content-type"].startswith("text/plain; version=0.0.4")
            poll.close()
        return reply.body.decode()

    text = run(main())
    assert "fairturn_sqs_open_polls 1\n" in text
    assert "fairturn_sqs_processes 1\n" in text
    assert re.search(r"^fairturn_sqs_open_connections [23]$", text, re.MULTILINE)
    assert 'fairturn_sqs_requests_total{action="-",status="400"} 1\n' in text
    assert 'fairturn_sqs_requests_total{action="-",status="404"} 1\n' in text
    assert 'fairturn_sqs_requests_total{action="/health",status="200"} 1\n' in text
    assert 'fairturn_sqs_duration_seconds_bucket{action="-",le="+Inf"} 2\n' in text
    assert 'fairturn_sqs_duration_seconds_count{action="-"} 2\n' in text


def test_metrics_are_what_prometheus_reads() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    one, two = metrics.Metrics(lambda: 3), metrics.Metrics(lambda: 4)
    one.count("SendMessage", 200, 0.0005)
    two.count("SendMessage", 200, 0.3)
    two.count("SendMessage", 500, 100.0)
    two.polls = 7
    past = metrics.Metrics()
    past.add(one.snapshot())
    text = metrics.render([one.snapshot(), two.snapshot(), past.snapshot()])
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}

    def value(family: str, name: str, **labels: str) -> float:
        (found,) = (
            sample.value
            for sample in families[family].samples
            if sample.name == name and sample.labels == labels
        )
        return found

    requests: dict[str, Any] = {"family": "fairturn_sqs_requests", "action": "SendMessage"}
    assert value(**requests, name="fairturn_sqs_requests_total", status="200") == 3
    assert value(**requests, name="fairturn_sqs_requests_total", status="500") == 1
    times: dict[str, Any] = {"family": "fairturn_sqs_duration_seconds", "action": "SendMessage"}
    assert value(**times, name="fairturn_sqs_duration_seconds_bucket", le="0.001") == 2
    assert value(**times, name="fairturn_sqs_duration_seconds_bucket", le="0.5") == 3
    assert value(**times, name="fairturn_sqs_duration_seconds_bucket", le="21.0") == 3
    assert value(**times, name="fairturn_sqs_duration_seconds_count") == 4
    assert value("fairturn_sqs_open_polls", "fairturn_sqs_open_polls") == 7
    assert value("fairturn_sqs_open_connections", "fairturn_sqs_open_connections") == 7
    assert value("fairturn_sqs_processes", "fairturn_sqs_processes") == 2


@pytest.mark.parametrize("header", ["X-Forwarded-For: 1.2.3.4", "Forwarded: for=1.2.3.4", "Via: p"])
def test_metrics_are_not_shown_through_a_proxy_on_this_machine(header: str) -> None:
    async def main() -> None:
        async with served(Service()) as server:
            reply = await server.ask(get("/metrics", header))
            assert reply.status == 403
            assert b"--metrics-open" in reply.body
        async with served(Service(), metrics_open=True) as server:
            assert (await server.ask(get("/metrics", header))).status == 200

    run(main())


@pytest.mark.parametrize(
    ("client", "status"),
    [("127.0.0.1", 200), ("::1", 200), ("10.0.0.1", 403), ("unix", 403), (None, 403)],
)
def test_who_may_see_metrics(client: str | None, status: int) -> None:
    async def main() -> None:
        page = pages.Pages(asyncio.Event().wait, list)
        assert (await page.answer(b"/metrics", {}, client)).status == status

    run(main())
