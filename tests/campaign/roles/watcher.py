"""The process that reads the events of the watched queue, from its own last line on."""

from __future__ import annotations

import fairturn
from tests.campaign import history
from tests.campaign.roles.role import Stage

LOST = "cursor lost"


def last_cursor(stage: Stage) -> str:
    """Where an earlier process of this name stopped; the beginning if there was none."""
    files = stage.directory.glob(f"{stage.spec.name}.*.history")
    mine = {path.stem for path in files}
    notes = [op for op in history.read(stage.directory, mine) if op.kind in ("event", LOST)]
    return notes[-1].about["cursor"] if notes else ""


class Watcher:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._cursor = last_cursor(stage)

    def step(self) -> None:
        with self._stage.history.call("events", after=self._cursor):
            try:
                for event in self._stage.db.events("watched", after=self._cursor, timeout=0.5):
                    self._note(event)
                    if self._stage.stopped():
                        break
            except fairturn.CursorLost:
                # As the error says: read again from the beginning.
                self._cursor = ""
                self._stage.history.note(LOST, cursor=self._cursor)

    def _note(self, event: fairturn.Event) -> None:
        # Noted before anything else: this line is also the position.
        self._stage.history.note(
            "event",
            cursor=event.cursor,
            what=event.kind,
            id=event.id,
            number=event.data.get("deliveries"),
        )
        self._cursor = event.cursor


ROLES = {"watcher": Watcher}
