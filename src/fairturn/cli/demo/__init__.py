"""``fairturn demo``: show what Fairturn does in twenty seconds, and measure it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from fairturn.cli.arguments import Context
from fairturn.cli.demo.crew import Crew
from fairturn.cli.demo.display import live, plain
from fairturn.cli.demo.measure import Measured
from fairturn.cli.demo.story import QUEUE, Plan, prepare
from fairturn.cli.demo.summary import facts, tell
from fairturn.cli.errors import CommandError
from fairturn.cli.parsing import Duration

LEAST = 3.0  # seconds: a shorter demo shows too little


def demo(*, seconds: Duration = 20, session: Context) -> int:
    """Show Fairturn at work: a noisy tenant, quiet ones, limits, a crash, a dead message.

    It runs on --db, or on SQLite in a temporary file, which is kept. It never touches the database
    of $FAIRTURN_URL.

    Example: fairturn demo

    Args:
        seconds: How long it may take. Default 20s.
    """
    plan = Plan(max(float(seconds), LEAST))
    if session.given is None or session.from_environment:
        path = Path(tempfile.mkdtemp(prefix="fairturn-demo-")) / "demo.db"
        session.use(f"sqlite:///{path}")
    else:
        session.creates = True
        session.db.migrate()
        if QUEUE in session.db.queues():
            drop = session.command("queue", "drop", QUEUE)
            raise CommandError(f"queue {QUEUE!r} exists in {session.shown}", f"Drop it: {drop}")
    queue = session.queue(QUEUE)
    measured = Measured(plan)
    prepare(queue, measured)
    crew = Crew(session.db, measured)
    measured.started = time.monotonic()
    crew.start()
    try:
        show = live if session.out.is_terminal and not session.json else plain
        show(session, queue, measured)
    finally:
        crew.stop()
    measured.ended = time.monotonic()
    result = facts(queue, measured)
    if session.json:
        session.emit({"database": session.shown, **result})
    else:
        tell(session, plan, result)
    return 0 if all(check["ok"] for check in result["checks"]) else 1
