"""Every operation of the seam on plain Python objects, as docs/semantics.md says it.

Nothing here is fast or clever: a receive takes one message after the other, a count is a loop. So
the databases can be compared with it, and users test with it. An operation checks everything before
it changes anything: one that raises has changed nothing.
"""

from __future__ import annotations

from fairturn.backends.memory.core import op
from fairturn.backends.memory.insight import Insight
from fairturn.backends.memory.maintenance import Care
from fairturn.backends.memory.messages import Messages
from fairturn.backends.memory.schedules import Schedules
from fairturn.backends.schema import Fit


class MemoryBackend(Schedules, Messages, Insight, Care):
    dialect = "memory"

    def translate(self, code: str, message: str) -> Exception | str | None:
        return None

    def migrations(self) -> list[tuple[str, str]]:
        return []

    @op
    def migrate(self) -> list[str]:
        return []

    @op
    def fit(self) -> Fit:
        return Fit("memory has no schema")

    @op
    def check(self) -> None:
        pass

    @op
    def clock(self) -> int:
        return self._clock()
