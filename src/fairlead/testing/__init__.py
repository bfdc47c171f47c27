"""For your tests: an application's messages in memory, a clock you move, and ``drain()``.

Nothing here knows pytest; its fixture is in ``pytest_fairlead``.
"""

from fairlead.testing.app import AppTest, use
from fairlead.testing.calls import SentCall
from fairlead.testing.clock import Clock
from fairlead.testing.draining import Drained
from fairlead.testing.memory import memory_database, memory_database_async

__all__ = [
    "AppTest",
    "Clock",
    "Drained",
    "SentCall",
    "memory_database",
    "memory_database_async",
    "use",
]
