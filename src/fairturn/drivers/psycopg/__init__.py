"""PostgreSQL through psycopg 3, sync and async: our own connections, and yours."""

from fairturn.drivers.psycopg.driver import PsycopgDriver, connect
from fairturn.drivers.psycopg.driver_async import AsyncPsycopgDriver, connect_async

__all__ = ["AsyncPsycopgDriver", "PsycopgDriver", "connect", "connect_async"]
