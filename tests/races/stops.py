"""Stop points: the routines' ``-- @stop name`` comments made into places where a session waits.

An operation on a server is one call, so a race inside it can only be scheduled from inside. The
routines of these backends are the real ones, with each stop comment replaced by a call that does
nothing, unless the session has named that stop *and* a test holds its lock.
"""

from __future__ import annotations

import re

from fairturn.backends.mysql import MysqlBackend
from fairturn.backends.postgres import PostgresBackend

SCHEMA = "stops"
PREFIX = "stops_"

_STOP = re.compile(r"^([ \t]*)-- @stop ([a-z_.]+)[ \t]*$", re.MULTILINE)

_POSTGRES = """
CREATE OR REPLACE FUNCTION fairturn.stop_here(p_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_name = ANY (string_to_array(current_setting('stops.names', true), ',')) THEN
    PERFORM pg_advisory_lock_shared(hashtext(p_name), pg_backend_pid());
    PERFORM pg_advisory_unlock_shared(hashtext(p_name), pg_backend_pid());
  END IF;
END $$;
"""

_MYSQL = """
DELIMITER //
CREATE PROCEDURE fairturn_stop_here_(IN p_name VARCHAR(64) CHARACTER SET ascii)
BEGIN
  DECLARE v_got INT;
  IF FIND_IN_SET(p_name, @stops_names) THEN
    -- The first lock only tells where the session stands.
    SELECT GET_LOCK(CONCAT('at ', p_name, '@', CONNECTION_ID()), 60) INTO v_got;
    SELECT GET_LOCK(CONCAT(p_name, '@', CONNECTION_ID()), 60) INTO v_got;
    DO RELEASE_LOCK(CONCAT(p_name, '@', CONNECTION_ID()));
    DO RELEASE_LOCK(CONCAT('at ', p_name, '@', CONNECTION_ID()));
  END IF;
END //
DELIMITER ;
"""


def names(dialect: str) -> set[str]:
    """The stop points in a backend's routines."""
    texts = (PostgresBackend if dialect == "postgresql" else MysqlBackend).routine_texts
    return {found[2] for text in texts for found in _STOP.finditer(text)}


def _stopping(texts: tuple[str, ...], call: str, stop_here: str) -> tuple[str, ...]:
    return (stop_here, *(_STOP.sub(rf"\1{call}('\2');", text) for text in texts))


class StoppingPostgres(PostgresBackend):
    routine_texts = _stopping(
        PostgresBackend.routine_texts, "PERFORM fairturn.stop_here", _POSTGRES
    )

    def __init__(self) -> None:
        super().__init__(schema=SCHEMA)


class StoppingMysql(MysqlBackend):
    routine_texts = _stopping(MysqlBackend.routine_texts, "CALL fairturn_stop_here_", _MYSQL)

    def __init__(self) -> None:
        super().__init__(prefix=PREFIX)
