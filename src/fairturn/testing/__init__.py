"""For your tests: a database in memory, a clock that you move, and ``drain()``.

Nothing here needs pytest. The pytest fixture is in ``pytest_fairturn``.
"""

from fairturn.testing.app import AppTest, use
from fairturn.testing.calls import SentCall
from fairturn.testing.clock import Clock
from fairturn.testing.drain import Drained
from fairturn.testing.memory import memory_database, memory_database_async

__all__ = [
    "AppTest",
    "Clock",
    "Drained",
    "SentCall",
    "memory_database",
    "memory_database_async",
    "use",
]
