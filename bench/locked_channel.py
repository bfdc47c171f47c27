"""The design to beat: one row per channel carries its head and is locked by every operation.

Three statements per message as LonnyMQ does them (create, dequeue, delete), reduced to what the
design costs: a channel row updated and locked by each, one message per call.
Written from its description; not its code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench import floors

SCHEMA = """
CREATE TABLE IF NOT EXISTS lc_channel (id text PRIMARY KEY, size int NOT NULL DEFAULT 0,
  running int NOT NULL DEFAULT 0, head bigint, next_at bigint);
CREATE INDEX IF NOT EXISTS lc_next ON lc_channel (next_at) WHERE head IS NOT NULL;
CREATE TABLE IF NOT EXISTS lc_message (id bigserial PRIMARY KEY, channel text, locked bool NOT NULL DEFAULT false,
  attempts int NOT NULL DEFAULT 0, due bigint, unlock_at bigint, content bytea);
CREATE INDEX IF NOT EXISTS lc_due ON lc_message (channel, due, id) WHERE NOT locked;
CREATE INDEX IF NOT EXISTS lc_unlock ON lc_message (unlock_at) WHERE locked;
CREATE OR REPLACE FUNCTION lc_create(p_channel text, p_content bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v_id bigint; v_now bigint := extract(epoch FROM clock_timestamp()) * 1000;
BEGIN
  INSERT INTO lc_channel (id) VALUES (p_channel) ON CONFLICT (id) DO NOTHING;
  PERFORM 1 FROM lc_channel WHERE id = p_channel FOR UPDATE;
  INSERT INTO lc_message (channel, due, content) VALUES (p_channel, v_now, p_content) RETURNING id INTO v_id;
  UPDATE lc_channel SET size = size + 1, head = coalesce(head, v_id), next_at = coalesce(next_at, v_now)
    WHERE id = p_channel;
  RETURN v_id;
END $$;
CREATE OR REPLACE FUNCTION lc_dequeue() RETURNS TABLE (id bigint, attempts int, content bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE c record; m record; h record; v_now bigint := extract(epoch FROM clock_timestamp()) * 1000;
BEGIN
  SELECT * INTO m FROM lc_message WHERE locked AND unlock_at <= v_now ORDER BY unlock_at LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    SELECT * INTO c FROM lc_channel WHERE head IS NOT NULL ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN; END IF;
    SELECT * INTO m FROM lc_message WHERE id = c.head;
  END IF;
  UPDATE lc_message SET locked = true, attempts = attempts + 1, unlock_at = v_now + 30000 WHERE id = m.id;
  SELECT * INTO h FROM lc_message WHERE channel = m.channel AND NOT locked ORDER BY due, id LIMIT 1;
  UPDATE lc_channel SET running = running + 1, head = h.id, next_at = greatest(h.due, v_now) WHERE id = m.channel;
  RETURN QUERY SELECT m.id::bigint, m.attempts + 1, m.content::bytea;
END $$;
CREATE OR REPLACE FUNCTION lc_delete(p_id bigint, p_attempts int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_channel text;
BEGIN
  SELECT channel INTO v_channel FROM lc_message WHERE id = p_id;
  PERFORM 1 FROM lc_channel WHERE id = v_channel FOR UPDATE;
  DELETE FROM lc_message WHERE id = p_id AND locked AND attempts = p_attempts;
  UPDATE lc_channel SET running = running - 1, size = size - 1 WHERE id = v_channel;
END $$;
"""


def install(db: Any) -> None:
    driver = floors.connection(db)
    driver.execute(SCHEMA, ())
    driver.close()


def client(db: Any, channel: str) -> Callable[[], int]:
    driver = floors.connection(db)

    def call() -> int:
        driver.execute("SELECT lc_create($1, $2)", (channel, b"x" * 200))
        deleted = 0
        for id, attempts, _ in driver.execute("SELECT * FROM lc_dequeue() WHERE $1", (True,)):
            driver.execute("SELECT 1 FROM (SELECT lc_delete($1, $2)) x", (id, attempts))
            deleted += 1
        return deleted

    return call
