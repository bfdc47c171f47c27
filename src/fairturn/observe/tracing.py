"""OpenTelemetry for tasks: a middleware that uses only the API; the program configures the SDK.

A send is a PRODUCER span. A handler's run is a CONSUMER span in a trace of its own that *links* to
the send. It is no child of the send: a message may run hours later, and more than once, and a trace
of that length is hard to use. OpenTelemetry's conventions for messaging prefer links, too.

This module needs ``opentelemetry-api``. An App loads it only if the program has set up a provider.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer

from fairturn.observe.worker_metrics import BUCKETS, outcome
from fairturn.tasks.middleware import Middleware
from fairturn.tasks.verdicts import Defer, Signal, Verdict

if TYPE_CHECKING:
    from fairturn.core.sends import Send
    from fairturn.tasks.context import AnyContext
    from fairturn.tasks.task import Task

__all__ = ["Telemetry"]

SCOPE = "fairturn"
STOP = "stop"  # the reason of a cancellation that is no error: the worker stops


class Telemetry(Middleware):
    """Spans and metrics. ``parent=True`` makes a handler's span a child of the send's, so that both
    are in one trace. Without providers the global ones are used, even if they are set later."""

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
            "fairturn.worker.messages",
            unit="{message}",
            description="Handlers that ended, by outcome.",
        )
        self._duration = meter.create_histogram(
            "fairturn.worker.duration",
            unit="s",
            description="How long handlers took.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )

    def around_send(
        self, task: Task[..., Any], queue: str, count: int
    ) -> AbstractContextManager[Any]:
        """Return one span for each call, however many messages it sends."""
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
        """Store the trace context in the message: that of the send, or, for ``task.message()``,
        that of the caller."""
        own = message.headers or {}
        if "traceparent" in own:
            return  # set by the sender
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        if carrier:
            message.headers = {**carrier, **own}

    def handling(self, context: AnyContext) -> AbstractContextManager[Any]:
        return _HandlerSpan(self._tracer, context, self._parent)

    def finished(self, context: AnyContext, verdict: Verdict, seconds: float) -> None:
        about = {"queue": context.queue, "task": context.task}
        self._duration.record(seconds, about)
        self._messages.add(1, {**about, "outcome": outcome(verdict.kind, verdict.final)})


class _HandlerSpan(AbstractContextManager[Span]):
    """The span of one run of a handler."""

    def __init__(self, tracer: Tracer, context: AnyContext, parent: bool) -> None:
        self._tracer = tracer
        self._context = context
        self._parent = parent

    def __enter__(self) -> Span:
        message = self._context.message
        # Start with an empty context: the message does not come from the worker's own.
        base, links = contexts.Context(), list[Link]()
        # Headers may come from any sender: ignore values that are no text.
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
            "fairturn.attempt": message.attempts,
        }
        if message.channel:
            attributes["fairturn.channel"] = message.channel
        self._span = self._tracer.start_span(
            self._context.task, base, SpanKind.CONSUMER, attributes, links
        )
        self._token = contexts.attach(trace.set_span_in_context(self._span, base))
        return self._span

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        contexts.detach(self._token)
        if error is not None:
            self._record_error(error)
        self._span.end()

    def _record_error(self, error: BaseException) -> None:
        span, why = self._span, self._context.run.cancelled
        if why is not None:
            span.set_attribute("fairturn.cancelled", why)
        if isinstance(error, Defer):
            span.add_event("deferred")
        elif why != STOP:
            span.set_attribute("error.type", type(error).__qualname__)
            if not isinstance(error, Signal):  # a Signal is raised on purpose
                span.record_exception(error)
            text = f"cancelled: {why}" if why else f"{type(error).__name__}: {error}"
            span.set_status(StatusCode.ERROR, text)


def _about(queue: str, task: str) -> dict[str, str]:
    return {
        "messaging.system": "fairturn",
        "messaging.destination.name": queue,
        "fairturn.task": task,
    }
