"""``fairlead maintain`` and ``fairlead doctor``: keep an installation healthy."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from fairlead import doctor as examination
from fairlead.cli import show
from fairlead.cli.parsing import Duration
from fairlead.cli.session import Context, Session, clean
from fairlead.values import Maintained

_MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "bad": ("✗", "red")}


def maintain(
    *,
    limit: Annotated[int, Parameter(help="Rows of each kind per queue and round.")] = 1000,
    loop: Annotated[Duration | None, Parameter(help="Go on for ever, this often.")] = None,
    session: Context,
) -> None:
    """Promote due messages, recover expired leases, delete what has expired.

    Receives do the first two for their own queue; this does everything for all queues.

    Example: fairlead maintain --loop 1m
    """
    while True:
        total = Maintained()
        while True:
            done = session.db.maintain(limit)
            total = Maintained(*(a + b for a, b in zip(total, done, strict=True)))
            if not done.more:
                break
        _told(session, total, stream=loop is not None)
        if loop is None:
            return
        time.sleep(max(float(loop), 0.1))


def _told(session: Session, done: Maintained, stream: bool) -> None:
    facts = {key: value for key, value in asdict(done).items() if key != "more"}
    if session.json:
        (session.emit_line if stream else session.emit)(facts)
    elif any(done) or not stream:
        parts = ", ".join(f"{value:,} {key}" for key, value in facts.items())
        session.say(f"{time.strftime('%H:%M:%S')} {parts}" if stream else parts)


def doctor(
    *,
    deep: Annotated[bool, Parameter(help="Also read the whole database (SQLite).")] = False,
    all: Annotated[bool, Parameter(help="Also explain what is well.")] = False,
    session: Context,
) -> int:
    """Is this database a good home for queues? What is wrong, why, and the fix.

    Exit code 1 if anything is bad.

    Example: fairlead doctor --db postgresql://localhost/app
    """
    found = [
        # Drivers put what they like into their errors.
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
        text = Text.assemble((f"{mark} ", style), (clean(finding.what), ""))
        session.say(text)
        if finding.level != "ok" or all:
            if finding.why:
                session.say(f"    why  {finding.why}", style="dim")
            if finding.fix:
                session.say(Text.assemble(("    fix  ", "dim"), (clean(finding.fix), "cyan")))
