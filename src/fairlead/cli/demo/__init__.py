"""``fairlead demo``: the product in twenty seconds, every number measured in the run."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from fairlead.cli.demo.crew import Crew
from fairlead.cli.demo.display import live, plain
from fairlead.cli.demo.measure import Measured
from fairlead.cli.demo.story import QUEUE, Plan, prepare
from fairlead.cli.demo.summary import facts, tell
from fairlead.cli.parsing import Duration
from fairlead.cli.session import Context, Refused

LEAST = 3.0  # seconds: below this the crash cannot be recovered in time


def demo(*, seconds: Duration = 20, session: Context) -> int:
    """See it work: a noisy tenant, quiet ones, limits, a crash, a dead message.

    Runs on SQLite in a temporary file, which is kept for you to look into; or on --db. It never
    touches the database of $FAIRLEAD_URL.

    Example: fairlead demo

    Args:
        seconds: How long it may take.
    """
    plan = Plan(max(float(seconds), LEAST))
    if session.given is None or session.from_environment:
        path = Path(tempfile.mkdtemp(prefix="fairlead-demo-")) / "demo.db"
        session.use(f"sqlite:///{path}")
    else:
        session.creates = True
        session.db.migrate()
        if QUEUE in session.db.queues():
            drop = session.command("queue", "drop", QUEUE)
            raise Refused(f"queue {QUEUE!r} exists in {session.shown} already. Drop it: {drop}")
    queue = session.queue(QUEUE)
    measured = Measured(plan)
    prepare(queue, plan, measured)
    crew = Crew(session.db, plan, measured)
    measured.begin(time.monotonic())
    crew.start()
    try:
        show = live if session.out.is_terminal and not session.json else plain
        show(session, queue, plan, measured)
    finally:
        crew.stop()
    measured.end(time.monotonic())
    result = facts(session.db, queue, plan, measured)
    if session.json:
        session.emit({"database": session.shown, **result})
    else:
        tell(session, plan, result)
    return 0 if all(check["ok"] for check in result["checks"]) else 1
