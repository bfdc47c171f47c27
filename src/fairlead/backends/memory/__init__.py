"""The model: docs/semantics.md in plain Python, the oracle of every other backend."""

from fairlead.backends.memory.backend import MemoryBackend

__all__ = ["MemoryBackend"]
