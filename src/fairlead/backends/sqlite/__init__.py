"""Fairlead in SQLite: one writer at a time, so no gate is ever locked and no row ever skipped."""

from fairlead.backends.sqlite.backend import SqliteBackend

__all__ = ["SqliteBackend"]
