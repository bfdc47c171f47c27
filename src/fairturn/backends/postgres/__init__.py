"""PostgreSQL: the functions in schema/ are the implementation, and the SQL door."""

from fairturn.backends.postgres.backend import PostgresBackend

__all__ = ["PostgresBackend"]
