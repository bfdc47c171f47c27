"""OpenTelemetry for tasks: a middleware that uses the API only; the program says who collects.

A send is a PRODUCER span, a handler's run a CONSUMER span in a trace of its own that *links* to the
send. Not a child of it: a message may run hours later, and more than once, and a trace that never
ends helps nobody. OpenTelemetry's conventions for messaging prefer links, too.

This module needs ``opentelemetry-api``. An App loads it only where a program has set up a provider.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer

from fairlead.tasks.middleware import Middleware
from fairlead.tasks.verdicts import Defer, Signal, Verdict
from fairlead.worker.metrics import BUCKETS, outcome

if TYPE_CHECKING:
    from fairlead.tasks.context import AnyContext
    from fairlead.tasks.task import Task
    from fairlead.values import Send

SCOPE = "fairlead"
STOP = "stop"  # why a handler is cancelled that has done nothing wrong


class Telemetry(Middleware):
    """Spans and metrics. ``parent=True`` makes a handler's span a child of the send's, for those
    who want one trace over both. Without providers the global ones are used, whenever they are
    set."""

    def __init__(
        self,
        *,
        parent: bool = False,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._parent = parent
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._messages = meter.create_counter(
            "fairlead.worker.messages",
            unit="{message}",
            description="Handlers that ended, by what became of their message.",
        )
        self._duration = meter.create_histogram(
            "fairlead.worker.duration",
            unit="s",
            description="How long handlers took.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )

    def around_send(
        self, task: Task[..., Any], queue: str, count: int
    ) -> AbstractContextManager[Any]:
        """One span for each call, however many messages it sends."""
        attributes: dict[str, str | int] = {
            **_about(queue, task.name),
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
        }
        if count != 1:
            attributes["messaging.batch.message_count"] = count
        return self._tracer.start_as_current_span(
            f"send {queue}", kind=SpanKind.PRODUCER, attributes=attributes
        )

    def sending(self, task: Task[..., Any], message: Send) -> None:
        """Each message carries the context in which it was made: that of the send, or, for
        ``task.message()``, whatever the caller is in."""
        own = message.headers or {}
        if "traceparent" in own:
            return  # the sender knows better
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        if carrier:
            message.headers = {**carrier, **own}

    def handling(self, context: AnyContext) -> AbstractContextManager[Any]:
        return _Consuming(self._tracer, context, self._parent)

    def finished(self, context: AnyContext, verdict: Verdict, seconds: float) -> None:
        about = {"queue": context.queue, "task": context.task}
        self._duration.record(seconds, about)
        self._messages.add(1, {**about, "outcome": outcome(verdict.kind, verdict.final)})


class _Consuming(AbstractContextManager[Span]):
    """The span of one run of a handler."""

    def __init__(self, tracer: Tracer, context: AnyContext, parent: bool) -> None:
        self._tracer = tracer
        self._context = context
        self._parent = parent

    def __enter__(self) -> Span:
        message = self._context.message
        # From nothing: the worker's own context is not where this message comes from.
        base, links = contexts.Context(), list[Link]()
        # Headers may come from anybody; what is no text is no trace context.
        carrier = {k.lower(): v for k, v in message.headers.items() if isinstance(v, str)}
        if carrier:
            base = propagate.extract(carrier, base)
            sender = trace.get_current_span(base).get_span_context()
            if sender.is_valid and not self._parent:
                links.append(Link(sender))
                base = trace.set_span_in_context(trace.INVALID_SPAN, base)  # baggage stays
        attributes: dict[str, str | int] = {
            **_about(message.queue, self._context.task),
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.message.id": str(message.id),
            "fairlead.attempt": message.attempts,
        }
        if message.channel:
            attributes["fairlead.channel"] = message.channel
        self._span = self._tracer.start_span(
            self._context.task, base, SpanKind.CONSUMER, attributes, links
        )
        self._token = contexts.attach(trace.set_span_in_context(self._span, base))
        return self._span

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        contexts.detach(self._token)
        if error is not None:
            self._tell(error)
        self._span.end()

    def _tell(self, error: BaseException) -> None:
        span, why = self._span, self._context.run.cancelled
        if why is not None:
            span.set_attribute("fairlead.cancelled", why)
        if isinstance(error, Defer):
            span.add_event("deferred")
        elif why != STOP:
            span.set_attribute("error.type", type(error).__qualname__)
            if not isinstance(error, Signal):  # which is a message, not an accident
                span.record_exception(error)
            text = f"cancelled: {why}" if why else f"{type(error).__name__}: {error}"
            span.set_status(StatusCode.ERROR, text)


def _about(queue: str, task: str) -> dict[str, str]:
    return {
        "messaging.system": "fairlead",
        "messaging.destination.name": queue,
        "fairlead.task": task,
    }
