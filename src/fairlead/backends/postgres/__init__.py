"""PostgreSQL: functions in schema/ are the implementation and the public SQL door."""

from fairlead.backends.postgres.backend import PostgresBackend

__all__ = ["PostgresBackend"]
