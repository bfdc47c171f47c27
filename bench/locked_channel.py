"""The rival design: each channel has a row with its first message, and every operation locks it.

It has three statements per message, like LonnyMQ (create, dequeue, delete), one message per call, and
its tables and indexes, but not its events and names. A channel's row is made from its policy with its
first message. It holds the size, the running leases and the first message, and is deleted with the
last one. This was written from LonnyMQ's description, not from its code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench import floors

SCHEMA = """
CREATE TABLE IF NOT EXISTS lc_policy (id text PRIMARY KEY, max_concurrency int, max_size int, interval_ms int);
CREATE TABLE IF NOT EXISTS lc_channel (id text PRIMARY KEY, max_concurrency int, max_size int, interval_ms int,
  size int NOT NULL, running int NOT NULL, head bigint, head_due bigint, prev_at bigint NOT NULL, next_at bigint);
CREATE INDEX IF NOT EXISTS lc_next ON lc_channel (next_at)
  WHERE head IS NOT NULL AND (max_concurrency IS NULL OR running < max_concurrency);
CREATE TABLE IF NOT EXISTS lc_message (id bigserial PRIMARY KEY, channel text, content bytea, state bytea,
  locked bool NOT NULL DEFAULT false, attempts int NOT NULL DEFAULT 0, due bigint, unlock_at bigint);
CREATE INDEX IF NOT EXISTS lc_due ON lc_message (channel, due, id) WHERE NOT locked;
CREATE INDEX IF NOT EXISTS lc_unlock ON lc_message (unlock_at) WHERE locked;
CREATE OR REPLACE FUNCTION lc_create(p_channel text, p_content bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE c lc_channel; p lc_policy; v_id bigint; v_now bigint := extract(epoch FROM clock_timestamp()) * 1000;
BEGIN
  SELECT * INTO c FROM lc_channel WHERE id = p_channel FOR UPDATE;
  IF NOT FOUND THEN
    SELECT * INTO p FROM lc_policy WHERE id = p_channel;
    INSERT INTO lc_channel AS n VALUES (p_channel, p.max_concurrency, p.max_size, p.interval_ms, 0, 0, NULL, NULL, v_now, NULL)
      ON CONFLICT (id) DO UPDATE SET id = n.id RETURNING * INTO c;
  END IF;
  IF c.size >= c.max_size THEN
    RETURN NULL;
  END IF;
  INSERT INTO lc_message (channel, due, content) VALUES (p_channel, v_now, p_content) RETURNING id INTO v_id;
  IF c.head IS NULL OR (v_now, v_id) < (c.head_due, c.head) THEN
    UPDATE lc_channel SET size = size + 1, head = v_id, head_due = v_now,
      next_at = greatest(c.prev_at + coalesce(c.interval_ms, 0), v_now) WHERE id = p_channel;
  ELSE
    UPDATE lc_channel SET size = size + 1 WHERE id = p_channel;
  END IF;
  RETURN v_id;
END $$;
CREATE OR REPLACE FUNCTION lc_dequeue() RETURNS TABLE (id bigint, attempts int, content bytea) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE c lc_channel; m lc_message; h record; v_now bigint := extract(epoch FROM clock_timestamp()) * 1000;
BEGIN
  SELECT * INTO m FROM lc_message WHERE locked AND unlock_at <= v_now ORDER BY unlock_at LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF FOUND THEN
    RETURN QUERY UPDATE lc_message SET attempts = lc_message.attempts + 1, unlock_at = v_now + 30000
      WHERE lc_message.id = m.id RETURNING lc_message.id, lc_message.attempts, lc_message.content;
    RETURN;
  END IF;
  SELECT * INTO c FROM lc_channel WHERE head IS NOT NULL AND (max_concurrency IS NULL OR running < max_concurrency)
    ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND OR c.next_at > v_now THEN
    RETURN;
  END IF;
  UPDATE lc_message SET locked = true, attempts = lc_message.attempts + 1, unlock_at = v_now + 30000
    WHERE lc_message.id = c.head RETURNING lc_message.* INTO m;
  SELECT n.id, n.due INTO h FROM lc_message n WHERE n.channel = c.id AND NOT n.locked ORDER BY n.due, n.id LIMIT 1;
  UPDATE lc_channel SET running = running + 1, prev_at = v_now, head = h.id, head_due = h.due,
    next_at = greatest(h.due, v_now + coalesce(c.interval_ms, 0)) WHERE lc_channel.id = c.id;
  RETURN QUERY SELECT m.id, m.attempts, m.content;
END $$;
CREATE OR REPLACE FUNCTION lc_delete(p_id bigint, p_attempts int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE m record; c lc_channel;
BEGIN
  SELECT channel, locked, attempts INTO m FROM lc_message WHERE id = p_id FOR UPDATE;
  IF NOT FOUND THEN RETURN 'not found'; END IF;
  IF NOT m.locked OR m.attempts <> p_attempts THEN RETURN 'state invalid'; END IF;
  SELECT * INTO c FROM lc_channel WHERE id = m.channel FOR UPDATE;
  DELETE FROM lc_message WHERE id = p_id;
  IF c.size = 1 AND NOT EXISTS (SELECT 1 FROM lc_policy WHERE id = m.channel) THEN
    DELETE FROM lc_channel WHERE id = m.channel;
  ELSE
    UPDATE lc_channel SET running = running - 1, size = size - 1 WHERE id = m.channel;
  END IF;
  RETURN 'deleted';
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
            driver.execute("SELECT lc_delete($1, $2)", (id, attempts))
            deleted += 1
        return deleted

    return call
