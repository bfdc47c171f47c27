"""``fairturn maintain`` and ``fairturn doctor``."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Any

from rich.text import Text

from fairturn import doctor as examination
from fairturn.cli import show
from fairturn.cli.arguments import Context
from fairturn.cli.parsing import Duration
from fairturn.cli.session import Session, clean
from fairturn.core.values import Maintained

_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "bad": ("✗", "red")}


def maintain(*, limit: int = 1000, loop: Duration | None = None, session: Context) -> None:
    """Promote due messages, recover expired leases, and delete expired rows, in all queues.

    A receive promotes and recovers in its own queue only.

    Example: fairturn maintain --loop 1m

    Args:
        limit: The most rows of each kind per queue and round. Default 1000.
        loop: Repeat it for ever, with this pause.
    """
    while True:
        total = Maintained()
        while True:
            done = session.db.maintain(limit)
            total = Maintained(*(a + b for a, b in zip(total, done, strict=True)))
            if not done.more:
                break
        _report(session, total, stream=loop is not None)
        if loop is None:
            return
        time.sleep(max(float(loop), 0.1))


def _report(session: Session, done: Maintained, stream: bool) -> None:
    facts = {key: value for key, value in asdict(done).items() if key != "more"}
    if session.json:
        (session.emit_line if stream else session.emit)(facts)
    elif any(done) or not stream:
        parts = ", ".join(f"{value:,} {key}" for key, value in facts.items())
        session.say(f"{time.strftime('%H:%M:%S')} {parts}" if stream else parts)


def doctor(*, deep: bool = False, all: bool = False, session: Context) -> int:
    """Check the database: print what is wrong, why, and how to repair it.

    The exit code is 1 if anything is bad.

    Example: fairturn doctor --db postgresql://localhost/app

    Args:
        deep: Also read the whole file (SQLite).
        all: Also explain the good results.
    """
    found = [
        # The errors of a driver may contain a password.
        replace(one, what=session.scrub(one.what), fix=session.scrub(one.fix))
        for one in examination.examine(
            session.db, session.command, schema=session.schema, deep=deep
        )
    ]
    counts = {level: sum(f.level == level for f in found) for level in examination.LEVELS}
    if session.json:
        session.emit(
            {
                "database": session.shown,
                "dialect": session.db.target.backend.dialect,
                **counts,
                "findings": [asdict(finding) for finding in found],
            }
        )
    else:
        _print_findings(session, found, all)
        parts = [f"{counts['ok']} ok"]
        parts += [f"{show.many(counts['warn'], 'warning')}"] if counts["warn"] else []
        parts += [f"{counts['bad']} bad"] if counts["bad"] else []
        style = "red" if counts["bad"] else "yellow" if counts["warn"] else "green"
        session.say()
        session.say(f"{session.shown}: {', '.join(parts)}", style=style)
    return 1 if counts["bad"] else 0


def _print_findings(session: Session, found: list[Any], all: bool) -> None:
    for finding in found:
        mark, style = _MARKS[finding.level]
        session.say(Text.assemble((f"{mark} ", style), clean(finding.what)))
        if finding.level != "ok" or all:
            if finding.why:
                session.say(f"    why  {finding.why}", style="dim")
            if finding.fix:
                session.say(Text.assemble(("    fix  ", "dim"), (clean(finding.fix), "cyan")))
