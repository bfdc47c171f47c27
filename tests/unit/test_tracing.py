"""Spans and metrics, collected by the real OpenTelemetry SDK, of real workers on SQLite."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

import fairturn
from fairturn.observe.tracing import Telemetry
from fairturn.observe.worker_metrics import BUCKETS


class Observed:
    """An App with a Telemetry of its own: providers for the whole process can be set only once."""

    def __init__(self, directory: Path, *, parent: bool = False) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        telemetry = Telemetry(
            parent=parent, tracer_provider=self.provider, meter_provider=self.meters
        )
        self.app = fairturn.App(f"sqlite:///{directory}/jobs.db", middleware=[telemetry])
        self.app.db.queue("emails").create()

    def spans(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.kind is kind]

    def work(
        self, ended: int, before: Callable[[], Coroutine[Any, Any, Any]] | None = None
    ) -> None:
        """Run a worker until so many handlers have ended, and stop it."""

        async def main() -> None:
            if before is not None:
                await before()
            async with self.app.worker() as worker:
                while sum(sum(one[2]) for one in worker.snapshot()["tasks"]) < ended:
                    await asyncio.sleep(0.005)
            await self.app.close_async()

        asyncio.run(main())


@pytest.fixture
def observed(tmp_path: Path) -> Observed:
    return Observed(tmp_path)


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.trace_id


def ids(*contexts: SpanContext | None) -> list[tuple[int, int]]:
    """(trace, span): what came through a header is "remote", and otherwise the same."""
    return [(one.trace_id, one.span_id) for one in contexts if one is not None]


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return ids(*(link.context for link in span.links))


def headers(app: fairturn.App) -> list[Any]:
    return [message.headers for message in app.db.queue("emails").peek(10)]


# --- sending ------------------------------------------------------------------------------------
def test_a_send_is_a_producer_span_that_the_message_carries(observed: Observed) -> None:
    @observed.app.task(queue="emails")
    def welcome(to: str) -> None: ...

    tracer = observed.provider.get_tracer("test")
    with tracer.start_as_current_span("request") as request:
        welcome.send("ann")
    [span] = observed.spans(SpanKind.PRODUCER)
    assert span.name == "send emails"
    assert span.parent == request.get_span_context()
    assert about(span) == {
        "messaging.system": "fairturn",
        "messaging.destination.name": "emails",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "fairturn.task": "welcome",
    }
    assert span.context is not None
    own = span.context
    carried = f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"
    assert headers(observed.app) == [{"traceparent": carried}]
    observed.app.close()


def test_many_sends_at_once_are_one_span(observed: Observed) -> None:
    @observed.app.task(queue="emails")
    async def welcome(to: str) -> None: ...

    async def before() -> None:
        await welcome.send_many_async([{"to": str(n)} for n in range(3)])

    observed.work(3, before)
    [send] = observed.spans(SpanKind.PRODUCER)
    assert about(send)["messaging.batch.message_count"] == 3
    consumed = observed.spans(SpanKind.CONSUMER)
    assert [linked(span) for span in consumed] == [ids(send.context)] * 3
    assert len({trace_of(span) for span in consumed}) == 3


def test_a_failed_send_is_told(observed: Observed) -> None:
    @observed.app.task(queue="emails", key="same")
    def welcome(to: str) -> None: ...

    welcome.send("ann")
    with pytest.raises(fairturn.DuplicateKey):
        welcome.send("ann")
    assert [span.status.status_code for span in observed.spans(SpanKind.PRODUCER)] == [
        StatusCode.UNSET,
        StatusCode.ERROR,
    ]
    observed.app.close()


def test_an_unsent_message_carries_its_makers_context(observed: Observed) -> None:
    @observed.app.task(queue="emails")
    def welcome(to: str) -> None: ...

    assert welcome.message("ann").headers is None
    with observed.provider.get_tracer("test").start_as_current_span("request") as request:
        made = welcome.message("ann").headers
        token = context.attach(baggage.set_baggage("tenant", "7"))
        mine = welcome.with_options(headers={"traceparent": "mine"}).message("ann").headers
        context.detach(token)
    assert made is not None
    assert f"{request.get_span_context().span_id:016x}" in made["traceparent"]
    assert mine == {"traceparent": "mine"}
    assert observed.spans(SpanKind.PRODUCER) == []
    observed.app.close()


def test_other_headers_stay(observed: Observed) -> None:
    @observed.app.task(queue="emails")
    def welcome(to: str) -> None: ...

    welcome.with_options(headers={"tenant": 7}, max_attempts=3).send("ann")
    [found] = headers(observed.app)
    assert set(found) == {"tenant", "fairturn-max-attempts", "traceparent"}
    observed.app.close()


# --- handling -----------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_run_is_a_consumer_span_linked_to_the_send(observed: Observed, kind: str) -> None:
    tracer = observed.provider.get_tracer("test")
    options: Any = {"queue": "emails", "channel": "tenant-7", "name": "welcome"}

    def inside() -> None:
        with tracer.start_as_current_span("inside"):
            pass

    if kind == "async":

        @observed.app.task(**options)
        async def welcome(to: str) -> None:
            inside()
    else:

        @observed.app.task(**options)
        def welcome(to: str) -> None:
            inside()

    sent = welcome.send("ann")
    with tracer.start_as_current_span("start-up"):  # the worker's surroundings are no parent
        observed.work(1)
    [send] = observed.spans(SpanKind.PRODUCER)
    [span] = observed.spans(SpanKind.CONSUMER)
    assert span.name == "welcome"
    assert span.parent is None
    assert linked(span) == ids(send.context)
    assert trace_of(span) != trace_of(send)
    assert about(span) == {
        "messaging.system": "fairturn",
        "messaging.destination.name": "emails",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": str(sent.id),
        "fairturn.task": "welcome",
        "fairturn.attempt": 1,
        "fairturn.channel": "tenant-7",
    }
    assert span.status.status_code is StatusCode.UNSET
    [child] = [one for one in observed.exporter.get_finished_spans() if one.name == "inside"]
    assert child.parent == span.context


@pytest.mark.parametrize("parent", [False, True])
def test_a_message_without_a_context_starts_a_trace(tmp_path: Path, parent: bool) -> None:
    observed = Observed(tmp_path, parent=parent)

    @observed.app.task(queue="emails")
    async def welcome(to: str) -> None: ...

    observed.app.db.queue("emails").send(welcome.message("ann").body, type="welcome")
    with observed.provider.get_tracer("test").start_as_current_span("start-up"):
        observed.work(1)
    [span] = observed.spans(SpanKind.CONSUMER)
    assert span.parent is None
    assert not span.links


def test_the_span_is_over_when_the_handler_is(observed: Observed) -> None:
    seen: list[trace.Span] = []

    class Mine(fairturn.Middleware):
        def finished(self, context: Any, verdict: Any, seconds: float) -> None:
            seen.append(trace.get_current_span())

    @observed.app.task(queue="emails")
    async def welcome(to: str) -> None:
        seen.append(trace.get_current_span())

    observed.app.middleware.append(Mine())
    welcome.send("ann")
    observed.work(1)
    assert [span.get_span_context().is_valid for span in seen] == [True, False]


def test_parent_makes_one_trace(tmp_path: Path) -> None:
    observed = Observed(tmp_path, parent=True)

    @observed.app.task(queue="emails")
    async def welcome(to: str) -> None: ...

    welcome.send("ann")
    observed.work(1)
    [send] = observed.spans(SpanKind.PRODUCER)
    [span] = observed.spans(SpanKind.CONSUMER)
    assert ids(span.parent) == ids(send.context)
    assert trace_of(span) == trace_of(send)
    assert not span.links


def test_baggage_reaches_the_handler_and_no_other(observed: Observed) -> None:
    seen: dict[str, object] = {}

    @observed.app.task(queue="emails", executor="async")
    async def welcome(to: str) -> None:
        seen[to] = baggage.get_baggage("tenant")

    token = context.attach(baggage.set_baggage("tenant", "7"))
    welcome.send("ann")
    context.detach(token)
    welcome.send("bob")
    observed.work(2)
    assert seen == {"ann": "7", "bob": None}


def test_a_handler_does_not_inherit_the_context_of_the_one_before(observed: Observed) -> None:
    mark = contextvars.ContextVar("mark", default="")
    seen: list[str] = []

    @observed.app.task(queue="emails")
    async def welcome(to: str) -> None:
        seen.append(mark.get())
        mark.set(to)

    welcome.send_many([{"to": str(n)} for n in range(30)])
    observed.work(30)
    assert seen == [""] * 30


def test_headers_of_strangers_harm_nothing(observed: Observed) -> None:
    @observed.app.task(queue="emails")
    async def welcome(to: str) -> None: ...

    queue = observed.app.db.queue("emails")
    for odd in (7, "nonsense", "", None, ["00-1-2-3"], {"a": 1}, "00-" + "0" * 32 + "-" + "0" * 16):
        queue.send(welcome.message("ann").body, type="welcome", headers={"traceparent": odd})
    queue.send(welcome.message("ann").body, type="welcome", headers={"baggage": "=;,%"})
    observed.work(8)
    spans = observed.spans(SpanKind.CONSUMER)
    assert len(spans) == 8
    assert all(not span.links and span.status.status_code is StatusCode.UNSET for span in spans)


@pytest.mark.parametrize(
    ("raised", "status", "kind", "events"),
    [
        (ValueError("no mailbox"), StatusCode.ERROR, "ValueError", ["exception"]),
        (fairturn.Retry("later"), StatusCode.ERROR, "Retry", []),
        (fairturn.GiveUp("never"), StatusCode.ERROR, "GiveUp", []),
        (fairturn.Defer(3600), StatusCode.UNSET, None, ["deferred"]),
    ],
)
def test_what_a_handler_raises(
    observed: Observed, raised: Exception, status: StatusCode, kind: str | None, events: list[str]
) -> None:
    @observed.app.task(queue="emails", retry=fairturn.Backoff(initial=3600))
    def welcome(to: str) -> None:
        raise raised

    welcome.send("ann")
    observed.work(1)
    [span] = observed.spans(SpanKind.CONSUMER)
    assert span.status.status_code is status
    assert about(span).get("error.type") == kind
    assert [event.name for event in span.events] == events
    if kind:
        assert span.status.description == f"{kind}: {raised}"


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_handler_that_is_too_slow(observed: Observed, kind: str) -> None:
    options: Any = {"queue": "emails", "timeout": 0.02, "retry": False}
    if kind == "async":

        @observed.app.task(**options)
        async def slow() -> None:
            await asyncio.Event().wait()
    else:

        @observed.app.task(**options)
        def slow() -> None:
            while True:
                pass

    slow.send()
    observed.work(1)
    [span] = observed.spans(SpanKind.CONSUMER)
    assert (span.status.status_code, span.status.description) == (
        StatusCode.ERROR,
        "cancelled: timeout",
    )
    assert about(span)["fairturn.cancelled"] == "timeout"


def test_a_handler_that_is_released_has_not_failed(observed: Observed) -> None:
    started = asyncio.Event()

    @observed.app.task(queue="emails")
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    endless.send()

    async def main() -> None:
        async with observed.app.worker(grace=0):
            await started.wait()
        await observed.app.close_async()

    asyncio.run(main())
    [span] = observed.spans(SpanKind.CONSUMER)
    assert span.status.status_code is StatusCode.UNSET
    assert about(span)["fairturn.cancelled"] == "stop"


# --- metrics ------------------------------------------------------------------------------------
def test_the_metrics(observed: Observed) -> None:
    @observed.app.task(queue="emails", retry=False)
    async def welcome(to: str) -> None:
        if to == "nobody":
            raise ValueError(to)

    welcome.send_many([{"to": to} for to in ("ann", "bob", "nobody")])
    observed.work(3)
    data = observed.reader.get_metrics_data()
    assert data is not None
    [resource] = data.resource_metrics
    [scope] = resource.scope_metrics
    assert scope.scope.name == "fairturn"
    found = {metric.name: metric for metric in scope.metrics}
    assert set(found) == {"fairturn.worker.messages", "fairturn.worker.duration"}
    messages: Any = found["fairturn.worker.messages"].data.data_points
    assert {point.attributes["outcome"]: point.value for point in messages} == {
        "acked": 2,
        "dead": 1,
    }
    assert {(p.attributes["queue"], p.attributes["task"]) for p in messages} == {
        ("emails", "welcome")
    }
    duration = found["fairturn.worker.duration"]
    assert duration.unit == "s"
    [point] = duration.data.data_points
    assert point.attributes == {"queue": "emails", "task": "welcome"}
    assert point.count == 3  # type: ignore[union-attr]
    assert point.explicit_bounds == BUCKETS  # type: ignore[union-attr]
    observed.meters.shutdown()


def test_no_provider_of_this_process_was_set() -> None:
    """The tests above must not depend on each other through the global provider."""
    assert type(trace.get_tracer_provider()).__module__ == "opentelemetry.trace"
