"""The memory backend: docs/semantics.md in plain Python. Tests compare the databases with it."""

from fairturn.backends.memory.backend import MemoryBackend

__all__ = ["MemoryBackend"]
