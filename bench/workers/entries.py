"""The entries: one for each row of the table."""

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
    Entry("fairturn", "Fairturn, async handlers", DRAIN, "async", "fairturn_drain"),
    Entry("fairturn", "Fairturn, sync handlers (threads)", DRAIN, "sync", "fairturn_drain"),
    Entry("pgqueuer", "pgqueuer", DRAIN, "async", "pgqueuer_drain"),
    Entry("graphile", "graphile-worker", DRAIN, "async", "graphile.mjs"),
    Entry("pg-boss", "pg-boss", DRAIN, "async", "pgboss.mjs"),
    Entry("procrastinate", "procrastinate", DRAIN, "async", "procrastinate_drain"),
    Entry("fairturn", "Fairturn, max_concurrency=1", LIMIT, "channels", "fairturn_drain"),
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
    """The entries of these names, each with its command or the reason why it cannot run here."""
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
        if entry.name == "fairturn":
            found[entry] = _fairturn(entry)
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


def _fairturn(entry: Entry) -> Command:
    import fairturn

    return Command([sys.executable, "-m", f"bench.workers.{entry.script}"], fairturn.__version__)


def _rival(entry: Entry, place: install.Installed) -> Command:
    package = "graphile-worker" if entry.name == "graphile" else entry.name
    version = place.versions[package]
    if place.folder is None:
        return Command([place.interpreter, "-m", f"bench.workers.{entry.script}"], version)
    for source in HERE.glob("*.mjs"):  # Node searches for packages beside the script
        shutil.copy(source, place.folder)
    return Command([place.interpreter, str(place.folder / entry.script)], version)
