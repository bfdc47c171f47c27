"""Every operation of the seam on plain Python records, as docs/semantics.md words it.

Nothing here is fast or clever: a receive takes one message after the other, a count is a loop.
That makes it the oracle the databases are compared with, and a database for your unit tests. An
operation checks everything before it changes anything, so one that raises has done nothing.
"""

from __future__ import annotations

from fairlead.backends.memory.care import Care
from fairlead.backends.memory.core import op
from fairlead.backends.memory.insight import Insight
from fairlead.backends.memory.messages import Messages
from fairlead.backends.memory.moving import Moving
from fairlead.backends.memory.schedules import Schedules


class MemoryBackend(Schedules, Messages, Moving, Insight, Care):
    dialect = "memory"

    def translate(self, code: str, message: str) -> Exception | str | None:
        return None

    def migrations(self) -> list[tuple[str, str]]:
        return []

    @op
    def migrate(self) -> list[str]:
        return []

    @op
    def check(self) -> None:
        pass

    @op
    def clock(self) -> int:
        return self._clock()
