-- Fairturn on PostgreSQL: what a queue remembers for a while (docs/semantics.md §19).
--
-- Two sessions send under the same name: the second waits at the unique index until the first has ended. If the
-- first commits, the second sees its row, although its own statement began before; if it rolls back, the second
-- gets the name. Under REPEATABLE READ and SERIALIZABLE, a row that the transaction cannot see yet is a
-- serialization failure, never a second message. Only senders of the same name wait for each other.

-- Take the free names of a call, each for the id of its item. The other items are duplicates (d) and get the id of
-- the message that was sent under their name. Items without a name stay as they are.
CREATE OR REPLACE FUNCTION fairturn.once_take(p_lane int, p_names text[], p_us bigint[], p_ids bigint[], p_outcome text[],
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
  -- In the order of the names, so that two calls with the same names never deadlock.
  FOR r IN SELECT u.name, u.us, u.id, u.i FROM unnest(p_names, p_us, p_ids) WITH ORDINALITY u(name, us, id, i)
      WHERE u.name IS NOT NULL ORDER BY u.name COLLATE "C", u.i LOOP
    IF r.name IS DISTINCT FROM v_name THEN
      v_name := r.name;
      -- Read it first, without a lock. (The expiry is not in WHERE: the planner might use its index instead.)
      SELECT CASE WHEN o.expires_at > p_now THEN o.message_id END INTO v_id FROM fairturn.remembered o
        WHERE o.lane = p_lane AND o.kind = 'o' AND o.name = r.name;
      IF v_id IS NULL THEN
        -- @stop once.take
        INSERT INTO fairturn.remembered AS o (lane, kind, name, message_id, expires_at)
          VALUES (p_lane, 'o', r.name, r.id, p_now + r.us)
          ON CONFLICT (lane, kind, name) DO UPDATE SET message_id = excluded.message_id, expires_at = excluded.expires_at
            WHERE o.expires_at <= p_now
          RETURNING o.message_id INTO v_id;
        IF FOUND THEN
          CONTINUE;
        END IF;
        -- Another session was faster. Its row is locked by the INSERT above, so it cannot vanish.
        SELECT o.message_id INTO v_id FROM fairturn.remembered o
          WHERE o.lane = p_lane AND o.kind = 'o' AND o.name = r.name;
      END IF;
    END IF;
    ids[r.i] := v_id;
    outcome[r.i] := 'd';
  END LOOP;
END $$;

-- Free the names that once_take took for these ids, because the messages are not sent.
CREATE OR REPLACE FUNCTION fairturn.once_undo(p_lane int, p_names text[], p_ids bigint[], p_outcome text[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  DELETE FROM fairturn.remembered r USING unnest(p_names, p_ids, p_outcome) u(name, id, outcome)
    WHERE u.outcome = 's' AND r.lane = p_lane AND r.kind = 'o' AND r.name = u.name AND r.message_id = u.id;
END $$;

CREATE OR REPLACE FUNCTION fairturn.remember_row(p_queue text, p_name text, p_value bytea, p_keep bigint, p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE q fairturn.queue := fairturn.queue_row(p_queue);
BEGIN
  INSERT INTO fairturn.remembered (lane, kind, name, value, expires_at)
    VALUES (q.lane, 'v', p_name, p_value, fairturn.now_us(p_now) + p_keep)
    ON CONFLICT (lane, kind, name) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at;
END $$;

-- The SQL door: keep a JSON value under a name for a while. It replaces an older value.
CREATE OR REPLACE FUNCTION fairturn.remember(p_queue text, p_name text, p_value text, p_keep interval, p_now bigint DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM p_value::json;
  IF p_value IS NULL OR octet_length(p_value) > 65536 OR p_keep IS NULL OR p_keep < interval '0' THEN
    RAISE EXCEPTION 'a value is JSON of at most 65536 bytes, and keep must not be negative' USING ERRCODE = 'FT006';
  END IF;
  IF p_name IS NULL OR octet_length(p_name) NOT BETWEEN 1 AND 255 THEN
    RAISE EXCEPTION 'a name has 1 to 255 bytes' USING ERRCODE = 'FT005';
  END IF;
  PERFORM fairturn.remember_row(p_queue, p_name, convert_to(p_value, 'UTF8'),
    fairturn.us(p_keep), p_now);
END $$;

-- The value that is remembered under a name, as JSON. NULL: there is none.
CREATE OR REPLACE FUNCTION fairturn.recall(p_queue text, p_name text, p_now bigint DEFAULT NULL) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE q fairturn.queue := fairturn.queue_row(p_queue);
BEGIN
  RETURN (SELECT CASE WHEN r.expires_at > fairturn.now_us(p_now) THEN convert_from(r.value, 'UTF8') END
    FROM fairturn.remembered r WHERE r.lane = q.lane AND r.kind = 'v' AND r.name = p_name);
END $$;

-- Delete expired rows of a lane, except locked ones. Returns how many.
CREATE OR REPLACE FUNCTION fairturn.forget(p_lane int, p_limit int, p_now bigint) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE v_n int;
BEGIN
  IF NOT EXISTS (SELECT 1 FROM fairturn.remembered r WHERE r.lane = p_lane AND r.expires_at <= p_now) THEN
    RETURN 0;
  END IF;
  DELETE FROM fairturn.remembered r WHERE r.ctid = ANY (ARRAY(
    SELECT o.ctid FROM fairturn.remembered o
    WHERE o.lane = p_lane AND o.expires_at <= p_now
    ORDER BY o.expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_n = ROW_COUNT;
  RETURN v_n;
END $$;
