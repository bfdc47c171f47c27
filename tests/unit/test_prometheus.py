"""What /metrics says: parsed by Prometheus's own parser, and held against the page about it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

import fairturn
from fairturn.observe.worker_metrics import BUCKETS, OUTCOMES, Metrics, ready
from fairturn.worker.metrics_page import FAMILIES, render

PAGE = Path(__file__).resolve().parents[2] / "docs" / "observability.md"
GAUGES = {
    "name": "one",
    "running": 3,
    "buffered": 2,
    "concurrency": 10,
    "pending": 4,
    "heartbeat_age": 1.5,
    "ready": True,
    "reason": "",
}


def counted() -> Metrics:
    metrics = Metrics()
    metrics.received["emails"] = 7
    metrics.receives = 2
    metrics.lost_acks["emails"] = 1
    metrics.database_errors = 2
    numbers = metrics.tasks["emails", "welcome"]
    for kind, final, seconds in (
        ("ack", False, 0.0005),
        ("settled", False, 0.003),
        ("fail", False, 0.003),
        ("fail", True, 0.7),
        ("kill", True, 1000.0),
    ):
        numbers.add(kind, final, seconds)
    return metrics


def snapshot(**gauges: Any) -> dict[str, Any]:
    return {**counted().snapshot(), **GAUGES, **gauges}


def parsed(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def values(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """(sample, its labels' values) -> value."""
    found: dict[tuple[str, tuple[str, ...]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, tuple(sample.labels.values())
            assert key not in found, f"{key} stands there twice"
            found[key] = sample.value
    return found


def test_every_number_is_there() -> None:
    found = values(render([snapshot()]))
    messages = {
        outcome: found["fairturn_worker_messages_total", ("emails", "welcome", outcome)]
        for outcome in OUTCOMES
    }
    assert messages == {
        "acked": 2,
        "completed": 0,
        "deferred": 0,
        "failed": 1,
        "dead": 2,
        "released": 0,
        "lost": 0,
    }
    assert found["fairturn_worker_received_total", ("emails",)] == 7
    assert found["fairturn_worker_receives_total", ()] == 2
    assert found["fairturn_worker_lost_acks_total", ("emails",)] == 1
    assert found["fairturn_worker_database_errors_total", ()] == 2
    assert found["fairturn_worker_running", ()] == 3
    assert found["fairturn_worker_buffered", ()] == 2
    assert found["fairturn_worker_concurrency", ()] == 10
    assert found["fairturn_worker_pending", ()] == 4
    assert found["fairturn_worker_heartbeat_age_seconds", ()] == 1.5
    assert found["fairturn_worker_processes", ()] == 1
    assert found["fairturn_worker_ready", ()] == 1


def test_the_histogram_is_cumulative() -> None:
    family = parsed(render([snapshot()]))["fairturn_worker_duration_seconds"]
    buckets = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    assert list(buckets) == [*map(str, BUCKETS), "+Inf"]
    assert buckets["0.001"] == 1
    assert buckets["0.005"] == 3
    assert buckets["0.5"] == 3
    assert buckets["1.0"] == 4
    assert buckets["300.0"] == 4
    assert buckets["+Inf"] == 5
    found = values(render([snapshot()]))
    assert found["fairturn_worker_duration_seconds_count", ("emails", "welcome")] == 5
    assert found["fairturn_worker_duration_seconds_sum", ("emails", "welcome")] == 1000.7065


def test_processes_are_added_up() -> None:
    other = counted()
    other.tasks["reports", "monthly"].add("complete", False, 2.0)
    other.received["reports"] = 1
    waiting = {**other.snapshot(), **GAUGES, "ready": False, "heartbeat_age": 7.0, "running": 1}
    starting = {**Metrics().snapshot(), **GAUGES, "ready": False, "heartbeat_age": None}
    ended = counted().snapshot()  # no gauges
    found = values(render([snapshot(), waiting, starting, ended]))
    assert found["fairturn_worker_messages_total", ("emails", "welcome", "acked")] == 6
    assert found["fairturn_worker_messages_total", ("reports", "monthly", "completed")] == 1
    assert found["fairturn_worker_duration_seconds_count", ("emails", "welcome")] == 15
    assert found["fairturn_worker_duration_seconds_bucket", ("emails", "welcome", "0.005")] == 9
    assert found["fairturn_worker_received_total", ("emails",)] == 21
    assert found["fairturn_worker_received_total", ("reports",)] == 1
    assert found["fairturn_worker_running", ()] == 7
    assert found["fairturn_worker_processes", ()] == 3
    assert found["fairturn_worker_ready", ()] == 1
    assert found["fairturn_worker_heartbeat_age_seconds", ()] == 7.0


def test_without_a_heartbeat_its_age_is_not_told() -> None:
    found = values(render([snapshot(heartbeat_age=None)]))
    assert ("fairturn_worker_heartbeat_age_seconds", ()) not in found
    assert values(render([]))["fairturn_worker_processes", ()] == 0


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_any_name_survives_as_a_label(name: str) -> None:
    metrics = Metrics()
    metrics.received[name] = 1
    text = render([metrics.snapshot()])
    [line] = [
        line for line in text.split("\n") if line.startswith("fairturn_worker_received_total{")
    ]
    told = re.fullmatch(r'fairturn_worker_received_total\{queue="(.*)"\} 1', line, re.DOTALL)
    assert told is not None
    # The three escapes of the format, undone from the left.
    undone = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
    assert re.sub(r'\\[\\"n]', lambda found: undone[found[0]], told[1]) == name
    assert not re.search(r'(?<!\\)(\\\\)*"', told[1])


def test_prometheus_reads_odd_names() -> None:
    name = 'a "quoted" \\ name\nof two lines {x="y"}, ü'
    metrics = Metrics()
    metrics.received[name] = 1
    assert values(render([metrics.snapshot()]))["fairturn_worker_received_total", (name,)] == 1


def test_the_page_has_every_metric_as_it_is() -> None:
    rows = re.findall(
        r"^\| `(fairturn_worker_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$",
        PAGE.read_text("utf-8"),
        flags=re.MULTILINE,
    )
    shown = [
        (name, kind, re.findall(r"`(\w+)`", labels), text) for name, kind, labels, text in rows
    ]
    assert shown == [(f.name, f.kind, list(f.labels), f.help) for f in FAMILIES]
    families = parsed(render([snapshot()]))
    for name, kind, labels, text in shown:
        # The parser calls a counter by its name without _total.
        family = families[name.removesuffix("_total")]
        assert (family.type, family.documentation) == (kind, text)
        for sample in family.samples:
            assert [label for label in sample.labels if label != "le"] == labels
    assert len(families) == len(shown)


def test_the_numbers_of_a_real_worker(tmp_path: Path) -> None:
    app = fairturn.App(f"sqlite:///{tmp_path}/jobs.db")
    done = asyncio.Event()

    @app.task(queue="emails", retry=False)
    async def welcome(to: str) -> None:
        if to == "nobody":
            raise ValueError(to)
        if to == "last":
            done.set()
            await asyncio.Event().wait()  # until the worker stops

    async def main() -> None:
        await app.async_db.queue("emails").create()
        await welcome.send_many_async([{"to": to} for to in ("ann", "nobody", "bob", "last")])
        worker = app.worker(concurrency=1, grace=0)
        before = worker.snapshot()
        assert (before["ready"], before["concurrency"]) == (False, 1)
        assert ready([before]) == (False, f"{worker.name}: {before['reason']}")
        async with worker:
            await done.wait()
            now = worker.snapshot()
            assert ready([now]) == (True, "")
            found = values(render([now]))
            assert found["fairturn_worker_messages_total", ("emails", "welcome", "acked")] == 2
            assert found["fairturn_worker_messages_total", ("emails", "welcome", "dead")] == 1
            assert found["fairturn_worker_duration_seconds_count", ("emails", "welcome")] == 3
            assert found["fairturn_worker_received_total", ("emails",)] == 4
            assert found["fairturn_worker_running", ()] == 1
            assert found["fairturn_worker_ready", ()] == 1
            assert ("fairturn_worker_heartbeat_age_seconds", ()) in found
            worker.stop()
            assert ready([worker.snapshot()]) == (False, f"{worker.name}: it is stopping")
        after = worker.snapshot()
        assert (after["ready"], after["running"], after["heartbeat_age"]) == (False, 0, None)
        await app.close_async()

    asyncio.run(main())


def test_a_worker_without_its_permit_is_not_ready(tmp_path: Path) -> None:
    app = fairturn.App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def nothing() -> None:
        pass

    async def main() -> None:
        started = asyncio.Event()

        class Started(fairturn.Middleware):
            def worker_started(self, worker: Any) -> None:
                started.set()

        app.middleware.append(Started())
        async with app.worker() as worker:
            await started.wait()
            assert worker.snapshot()["ready"]
            for held_permit in worker.heartbeat.held_permits:
                held_permit.until = 0.0  # as if no heartbeat had come through since
            told, reason = ready([worker.snapshot()])
            assert not told
            assert "its permit is lost" in reason
        await app.close_async()

    asyncio.run(main())
