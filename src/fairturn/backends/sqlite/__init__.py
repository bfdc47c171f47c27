"""SQLite: there is one writer at a time, so no gate is locked and no row is skipped."""

from fairturn.backends.sqlite.backend import SqliteBackend

__all__ = ["SqliteBackend"]
