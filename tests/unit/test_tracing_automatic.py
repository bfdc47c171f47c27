"""When an App uses OpenTelemetry by itself. Each program is a process of its own: a provider can be
set only once in each."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest


def run(directory: Path, program: str) -> Any:
    """What a program prints, as JSON: each is a process of its own, with providers of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


COMMON = """
    import json, sys
    import fairturn

    app = fairturn.App("sqlite:///jobs.db")
    app.db.queue("default").create()

    @app.task
    def welcome(to: str) -> None: ...

    def names():
        return [type(one).__name__ for one in app.middleware]
"""


def test_a_program_without_opentelemetry_never_loads_it(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        COMMON
        + """
    welcome.send("ann")
    app.worker()
    print(json.dumps([names(), [name for name in sys.modules if "opentelemetry" in name]]))
    """,
    )
    assert found == [[], []]


def test_an_api_without_a_provider_changes_nothing(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
    from opentelemetry import metrics, trace
    """
        + COMMON
        + """
    with trace.get_tracer("x").start_as_current_span("nobody collects this"):
        welcome.send("ann")
    trace.set_tracer_provider(trace.NoOpTracerProvider())
    metrics.set_meter_provider(metrics.NoOpMeterProvider())
    [message] = app.db.queue("default").peek(1)
    print(json.dumps([names(), message.headers, "fairturn.observe.tracing" in sys.modules]))
    """,
    )
    assert found == [[], {}, False]


@pytest.mark.parametrize("what", ["trace", "metrics"])
def test_a_provider_that_is_set_after_the_app_is_used(tmp_path: Path, what: str) -> None:
    setting = {
        "trace": """
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    trace.set_tracer_provider(TracerProvider())
    """,
        "metrics": """
    from opentelemetry import metrics
    from opentelemetry.sdk.metrics import MeterProvider
    metrics.set_meter_provider(MeterProvider())
    """,
    }
    found = run(
        tmp_path,
        COMMON
        + """
    class Mine(fairturn.Middleware): ...
    app.middleware.append(Mine())
    before = names()
    """
        + setting[what]
        + """
    welcome.send("ann")
    [message] = app.db.queue("default").peek(1)
    refusing = fairturn.App("sqlite:///jobs.db", telemetry=False)
    from fairturn.observe.tracing import Telemetry
    own = fairturn.App("sqlite:///jobs.db", middleware=[Telemetry(parent=True)])
    print(json.dumps([before, names(), names(), sorted(message.headers),
                      len(refusing.middleware), len(own.middleware)]))
    """,
    )
    carried = ["traceparent"] if what == "trace" else []
    assert found == [["Mine"], ["Telemetry", "Mine"], ["Telemetry", "Mine"], carried, 0, 1]


def test_insisting_needs_the_api(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
    import json, sys
    import fairturn
    app = fairturn.App("sqlite:///a.db", telemetry=True)
    insisted = [type(one).__name__ for one in app.middleware]
    for name in list(sys.modules):
        if name.startswith(("opentelemetry", "fairturn.observe.tracing")):
            del sys.modules[name]
    sys.modules["opentelemetry"] = None  # as if it were not installed
    try:
        fairturn.App("sqlite:///a.db", telemetry=True)
    except fairturn.InvalidArgument as error:
        print(json.dumps([insisted, str(error)]))
    """,
    )
    assert found[0] == ["Telemetry"]
    assert "install opentelemetry-api" in found[1]


def test_a_handler_in_a_process_of_its_own(tmp_path: Path) -> None:
    """The other process imports the module, and with it the provider that the module sets up."""
    (tmp_path / "traced.py").write_text(
        textwrap.dedent("""
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
        import fairturn

        def line(span):
            return span.to_json(indent=None) + "\\n"

        exporter = ConsoleSpanExporter(out=open("spans", "a"), formatter=line)
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        app = fairturn.App("sqlite:///jobs.db")

        @app.task(executor="process", result=True)
        def welcome(to: str) -> str:
            return f"hello {to}"
        """)
    )
    result = run(
        tmp_path,
        """
    import asyncio, json
    from traced import app, welcome

    async def main():
        await app.async_db.queue("default").create()
        sent = await welcome.send_async("ann")
        async with app.worker():
            outcome = await welcome.wait_async(sent, timeout=30)
        await app.close_async()
        return outcome.result

    print(json.dumps(asyncio.run(main())))
    """,
    )
    assert result == "hello ann"
    spans = {
        span["kind"]: span
        for span in map(json.loads, (tmp_path / "spans").read_text().splitlines())
    }
    send, handled = spans["SpanKind.PRODUCER"], spans["SpanKind.CONSUMER"]
    assert [link["context"]["span_id"] for link in handled["links"]] == [send["context"]["span_id"]]
    assert handled["attributes"]["fairturn.task"] == "welcome"
