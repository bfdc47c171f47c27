"""Who runs what: one entry is one row of the table."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.workers import install

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DRAIN, LIMIT = "drain", "limit 1"


@dataclass(frozen=True)
class Entry:
    """A row: `name` selects it (--only), `case` is the argument of its script."""

    name: str
    shown: str
    workload: str
    case: str
    script: str

    @property
    def key(self) -> str:
        return f"{self.name}-{self.case}"


ENTRIES = (
    Entry("fairlead", "Fairlead, async handlers", DRAIN, "async", "fairlead_drain"),
    Entry("fairlead", "Fairlead, sync handlers (threads)", DRAIN, "sync", "fairlead_drain"),
    Entry("pgqueuer", "pgqueuer", DRAIN, "async", "pgqueuer_drain"),
    Entry("graphile", "graphile-worker", DRAIN, "async", "graphile.mjs"),
    Entry("pg-boss", "pg-boss", DRAIN, "async", "pgboss.mjs"),
    Entry("procrastinate", "procrastinate", DRAIN, "async", "procrastinate_drain"),
    Entry("fairlead", "Fairlead, max_concurrency=1", LIMIT, "channels", "fairlead_drain"),
    Entry("pgqueuer", "pgqueuer", LIMIT, "none", ""),
    Entry("graphile", "graphile-worker, named queues", LIMIT, "channels", "graphile.mjs"),
    Entry("pg-boss", "pg-boss, key_strict_fifo", LIMIT, "fifo", "pgboss.mjs"),
    Entry("pg-boss", "pg-boss, groupConcurrency 1", LIMIT, "groups", "pgboss.mjs"),
    Entry("procrastinate", "procrastinate, lock", LIMIT, "channels", "procrastinate_drain"),
)
NAMES = tuple(dict.fromkeys(entry.name for entry in ENTRIES))


@dataclass(frozen=True)
class Command:
    """How to start an entry's script, and which version of the rival it runs."""

    words: list[str]
    version: str


def commands(names: set[str]) -> dict[Entry, Command | install.Missing]:
    """Every wanted entry with its command, or with why it cannot run here."""
    makers: dict[str, Callable[[], install.Installed]] = {
        "pgqueuer": install.python_rivals,
        "procrastinate": install.python_rivals,
        "graphile": install.node_rivals,
        "pg-boss": install.node_rivals,
    }
    places: dict[Callable[[], install.Installed], install.Installed | install.Missing] = {}
    found: dict[Entry, Command | install.Missing] = {}
    for entry in ENTRIES:
        if entry.name not in names:
            continue
        if not entry.script:
            found[entry] = install.Missing("has no limit per channel")
            continue
        if entry.name == "fairlead":
            found[entry] = _fairlead(entry)
            continue
        make = makers[entry.name]
        if make not in places:
            try:
                places[make] = make()
            except install.Missing as why:
                places[make] = why
        place = places[make]
        found[entry] = place if isinstance(place, install.Missing) else _rival(entry, place)
    return found


def _fairlead(entry: Entry) -> Command:
    import fairlead

    return Command([sys.executable, "-m", f"bench.workers.{entry.script}"], fairlead.__version__)


def _rival(entry: Entry, place: install.Installed) -> Command:
    package = "graphile-worker" if entry.name == "graphile" else entry.name
    version = place.versions[package]
    if place.folder is None:
        return Command([place.interpreter, "-m", f"bench.workers.{entry.script}"], version)
    for source in HERE.glob("*.mjs"):  # Node looks for packages next to the script
        shutil.copy(source, place.folder)
    return Command([place.interpreter, str(place.folder / entry.script)], version)
