-- Fairlead on PostgreSQL: what a queue remembers for a while (docs/semantics.md §19): the names of
-- sends, and values under names of yours. It hangs on the lane: purge and drop forget it at once, and
-- it is swept later.
--
-- Two senders of one name: the second waits at the unique index until the first has ended. If that
-- committed, the second sees its row, although its own statement began before; if it rolled back, the
-- row is the second's. Under REPEATABLE READ and SERIALIZABLE a row that the transaction cannot see
-- yet is a serialization failure, never a second message. Only senders of one name wait for each other.

CREATE TABLE fairlead.remembered (
  lane int NOT NULL,
  kind "char" NOT NULL, -- o once, v value
  name text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 255),
  expires_at bigint NOT NULL,
  message_id bigint, -- of a send: the message, which may be gone
  value bytea, -- JSON
  PRIMARY KEY (lane, kind, name)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX remembered_expiry ON fairlead.remembered (lane, expires_at);

-- The items of a call whose names are free take them, each with its id; the others are duplicates (d)
-- and get the id of the message that was sent under their name. Items without a name are left alone.
CREATE FUNCTION fairlead.once_take(p_lane int, p_names text[], p_us bigint[], p_ids bigint[], p_outcome text[],
  p_now bigint, OUT ids bigint[], OUT outcome text[])
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  r record;
  v_name text;
  v_id bigint; -- the message under v_name
BEGIN
  ids := p_ids;
  outcome := p_outcome;
  -- In the order of the names, so that two calls with the same names never wait in a circle.
  FOR r IN SELECT u.name, u.us, u.id, u.i FROM unnest(p_names, p_us, p_ids) WITH ORDINALITY u(name, us, id, i)
      WHERE u.name IS NOT NULL ORDER BY u.name COLLATE "C", u.i LOOP
    IF r.name IS DISTINCT FROM v_name THEN
      v_name := r.name;
      -- A look costs no lock. (Its time is no condition, or the planner may walk the index of times.)
      SELECT CASE WHEN o.expires_at > p_now THEN o.message_id END INTO v_id FROM fairlead.remembered o
        WHERE o.lane = p_lane AND o.kind = 'o' AND o.name = r.name;
      IF v_id IS NULL THEN
        -- @stop once.take
        INSERT INTO fairlead.remembered AS o (lane, kind, name, message_id, expires_at)
          VALUES (p_lane, 'o', r.name, r.id, p_now + r.us)
          ON CONFLICT (lane, kind, name) DO UPDATE SET message_id = excluded.message_id, expires_at = excluded.expires_at
            WHERE o.expires_at <= p_now
          RETURNING o.message_id INTO v_id;
        IF FOUND THEN
          CONTINUE;
        END IF;
        -- Somebody came first in the meantime. Their row is locked now, so it is there.
        SELECT o.message_id INTO v_id FROM fairlead.remembered o
          WHERE o.lane = p_lane AND o.kind = 'o' AND o.name = r.name;
      END IF;
    END IF;
    ids[r.i] := v_id;
    outcome[r.i] := 'd';
  END LOOP;
END $$;

-- The messages with these ids are not sent after all: their names are as free as before.
CREATE FUNCTION fairlead.once_undo(p_lane int, p_names text[], p_ids bigint[], p_outcome text[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  DELETE FROM fairlead.remembered r USING unnest(p_names, p_ids, p_outcome) u(name, id, outcome)
    WHERE u.outcome = 's' AND r.lane = p_lane AND r.kind = 'o' AND r.name = u.name AND r.message_id = u.id;
END $$;

CREATE FUNCTION fairlead.remember_row(p_queue text, p_name text, p_value bytea, p_keep bigint, p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE q fairlead.queue := fairlead.queue_row(p_queue);
BEGIN
  INSERT INTO fairlead.remembered (lane, kind, name, value, expires_at)
    VALUES (q.lane, 'v', p_name, p_value, fairlead.now_us(p_now) + p_keep)
    ON CONFLICT (lane, kind, name) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at;
END $$;

-- The SQL door: keep a JSON value under a name for a while, instead of what was there.
CREATE FUNCTION fairlead.remember(p_queue text, p_name text, p_value text, p_keep interval, p_now bigint DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM p_value::json;
  IF p_value IS NULL OR octet_length(p_value) > 65536 OR p_keep IS NULL OR p_keep < interval '0' THEN
    RAISE EXCEPTION 'a value is JSON of at most 65536 bytes, and keep is not negative' USING ERRCODE = 'FL006';
  END IF;
  IF p_name IS NULL OR octet_length(p_name) NOT BETWEEN 1 AND 255 THEN
    RAISE EXCEPTION 'a name has 1 to 255 bytes' USING ERRCODE = 'FL005';
  END IF;
  PERFORM fairlead.remember_row(p_queue, p_name, convert_to(p_value, 'UTF8'),
    (extract(epoch FROM p_keep) * 1000000)::bigint, p_now);
END $$;

-- What is remembered under a name, as JSON; NULL: nothing.
CREATE FUNCTION fairlead.recall(p_queue text, p_name text, p_now bigint DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE q fairlead.queue := fairlead.queue_row(p_queue);
BEGIN
  RETURN (SELECT CASE WHEN r.expires_at > fairlead.now_us(p_now) THEN convert_from(r.value, 'UTF8') END
    FROM fairlead.remembered r WHERE r.lane = q.lane AND r.kind = 'v' AND r.name = p_name);
END $$;

-- Delete what has expired: how many. What somebody has locked is left.
CREATE FUNCTION fairlead.forget(p_lane int, p_limit int, p_now bigint) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE v_n int;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM fairlead.remembered r WHERE r.lane = p_lane AND r.expires_at <= p_now) THEN
    RETURN 0;
  END IF;
  DELETE FROM fairlead.remembered r WHERE r.ctid = ANY (ARRAY(
    SELECT o.ctid FROM fairlead.remembered o
    WHERE o.lane = p_lane AND o.expires_at <= p_now
    ORDER BY o.expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_n = ROW_COUNT;
  RETURN v_n;
END $$;
