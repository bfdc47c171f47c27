"""Stop points: the schema's ``-- @stop name`` comments made into places where a session waits.

An operation on a server is one call, so a race inside it can only be scheduled from inside. The
migrations of these backends are the real ones, with each stop comment replaced by a call that does
nothing, unless the session has named that stop *and* a test holds its lock.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from fairlead.backends.mysql import MysqlBackend
from fairlead.backends.mysql import schema as mysql_schema
from fairlead.backends.postgres import PostgresBackend

SCHEMA = "stops"
PREFIX = "stops_"

_STOP = re.compile(r"^([ \t]*)-- @stop ([a-z_.]+)[ \t]*$", re.MULTILINE)

_POSTGRES = """
CREATE FUNCTION stops.stop_here(p_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_name = ANY (string_to_array(current_setting('stops.names', true), ',')) THEN
    PERFORM pg_advisory_lock_shared(hashtext(p_name), pg_backend_pid());
    PERFORM pg_advisory_unlock_shared(hashtext(p_name), pg_backend_pid());
  END IF;
END $$;
"""

_MYSQL = """
DELIMITER //
DROP PROCEDURE IF EXISTS stops_stop_here_ //
CREATE PROCEDURE stops_stop_here_(IN p_name VARCHAR(64) CHARACTER SET ascii)
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


def names(directory: Path) -> set[str]:
    """The stop points in a backend's schema files."""
    texts = (path.read_text("utf-8") for path in directory.glob("*.sql"))
    return {found[2] for text in texts for found in _STOP.finditer(text)}


class StoppingPostgres(PostgresBackend):
    def __init__(self) -> None:
        super().__init__(schema=SCHEMA)

    def migrations(self) -> list[tuple[str, str]]:
        (first, text), *rest = super().migrations()
        texts = [(first, text + _POSTGRES), *rest]
        return [(n, _STOP.sub(r"\1PERFORM stops.stop_here('\2');", t)) for n, t in texts]


class StoppingMysql(MysqlBackend):
    def __init__(self) -> None:
        super().__init__(prefix=PREFIX)

    def migrate(self) -> Any:
        return _migrate(super().migrate())


def _migrate(op: Any) -> Any:
    """The migration's statements as they are, but for the stops; and the procedure behind them."""
    for statement in mysql_schema.statements(_MYSQL):
        yield statement, ()
    answer: Any = None
    while True:
        try:
            step = op.send(answer)
        except StopIteration as stop:
            return stop.value
        if isinstance(step, tuple):
            text, params = step
            step = (_STOP.sub(r"\1CALL stops_stop_here_('\2');", text), params)
        answer = yield step
