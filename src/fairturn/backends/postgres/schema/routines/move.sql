-- Fairturn on PostgreSQL: move ready messages to another queue (docs/semantics.md §8.3), and promote scheduled
-- ones before their due time (§7.3).

-- Copy these messages to queue t as new ones, in the order of p_ids. Columns that are not named get their defaults.
CREATE OR REPLACE FUNCTION fairturn.move_rows(t fairturn.queue, p_ids bigint[], p_now bigint) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE v_new bigint[] := ARRAY(SELECT nextval('fairturn.message_id') FROM generate_series(1, cardinality(p_ids)));
BEGIN
  INSERT INTO fairturn.message (id, due_at, created_at, lease_us, expires_at, lane, rank, version, max_attempts,
      json, state, channel, type, body, headers)
    SELECT u.new, p_now, p_now, m.lease_us, p_now + t.expires_us, t.lane, m.rank, m.version,
      m.max_attempts, m.json & 1, 'r', m.channel, m.type, m.body, m.headers
    FROM unnest(p_ids, v_new) u(old, new) JOIN fairturn.message m ON m.id = u.old;
  INSERT INTO fairturn.tally (queue_id, at, sent) VALUES (t.id, p_now, cardinality(p_ids));
  PERFORM fairturn.tell(t, 'created', v_new, p_now);
  PERFORM fairturn.wake(t.name);
END $$;

-- Move up to p_limit ready messages, the oldest first, to p_to, or without it each to the queue where it died.
-- Returns how many. Moves of one queue wait for each other, so that the new ids are in the order of the old ones.
-- Nothing else waits for this advisory lock, and it needs no right to change the queue's row.
CREATE OR REPLACE FUNCTION fairturn.move(p_queue text, p_to text DEFAULT NULL, p_limit int DEFAULT 1000, p_now bigint DEFAULT NULL)
RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q fairturn.queue;
  t fairturn.queue;
  s record;
  v_now bigint;
  v_to int;
  v_ids bigint[];
  v_homes int[];
  v_some bigint[];
  v_gone bigint[] := '{}';
  v_groups bigint[];
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('fairturn.move.' || p_queue, 0));
  q := fairturn.queue_row(p_queue);
  IF p_to = p_queue OR p_limit < 1 THEN
    RAISE EXCEPTION 'messages move to another queue, and the limit must be at least 1' USING ERRCODE = 'FT006';
  ELSIF p_to IS NOT NULL THEN
    v_to := (fairturn.queue_row(p_to)).id;
  END IF;
  v_now := fairturn.now_us(p_now);
  -- @stop move.sweep
  s := fairturn.sweep(q, 1000, v_now, 0, 0);
  -- Only ids are sorted, from the index of ready messages; the rows are read in that order, up to the limit.
  -- (OFFSET 0 keeps the planner from reading the messages of all queues in the order of their ids.)
  SELECT array_agg(x.id), array_agg(x.home) INTO v_ids, v_homes FROM (
    SELECT m.id, coalesce(v_to, m.origin) AS home
      FROM (SELECT a.id FROM (SELECT r.id FROM fairturn.message r WHERE r.lane = q.lane AND r.state = 'r' OFFSET 0) a
            ORDER BY a.id OFFSET 0) i
      JOIN fairturn.message m ON m.id = i.id
      WHERE m.lane = q.lane AND m.state::text = 'r' AND (m.expires_at IS NULL OR m.expires_at > v_now)
        AND (v_to IS NOT NULL OR (m.origin <> q.id AND (SELECT h.id FROM fairturn.queue h WHERE h.id = m.origin) IS NOT NULL))
      ORDER BY i.id LIMIT p_limit FOR UPDATE OF m SKIP LOCKED) x;
  -- @stop move.write
  FOR t IN SELECT h.* FROM fairturn.queue h WHERE h.id = ANY (v_homes) ORDER BY h.id LOOP
    v_some := ARRAY(SELECT u.id FROM unnest(v_ids, v_homes) u(id, home) WHERE u.home = t.id ORDER BY u.id);
    PERFORM fairturn.move_rows(t, v_some, v_now);
    v_gone := v_gone || v_some; -- (messages for a queue that was dropped meanwhile stay)
  END LOOP;
  IF cardinality(v_gone) > 0 THEN
    PERFORM fairturn.tell(q, 'deleted', v_gone, v_now);
    WITH gone AS (DELETE FROM fairturn.message m WHERE m.id = ANY (v_gone) RETURNING m.group_id)
    SELECT array_agg(g.group_id) FILTER (WHERE g.group_id IS NOT NULL) INTO v_groups FROM gone g;
    PERFORM fairturn.mark(v_groups, NULL);
    PERFORM fairturn.wake(p_queue);
  END IF;
  IF v_groups IS NOT NULL OR s.removed + s.killed > 0 THEN
    PERFORM fairturn.settle(100, p_now);
  END IF;
  RETURN cardinality(v_gone);
END $$;

-- Make up to p_limit scheduled messages ready that are due within p_within_us, the earliest first. Returns how
-- many. Locked messages are skipped, and so are expired ones and those that were delivered before: they wait
-- for a retry.
CREATE OR REPLACE FUNCTION fairturn.promote(p_queue text, p_within_us bigint, p_limit int DEFAULT 1000, p_now bigint DEFAULT NULL)
RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  v_now bigint := fairturn.now_us(p_now);
  v_n int;
BEGIN
  IF p_within_us < 0 OR p_within_us IS NULL OR p_limit < 1 OR p_limit IS NULL THEN
    RAISE EXCEPTION 'within must not be negative, and the limit must be at least 1' USING ERRCODE = 'FT006';
  END IF;
  UPDATE fairturn.message m SET state = 'r' WHERE m.id = ANY (ARRAY(
    SELECT s.id FROM fairturn.message s WHERE s.lane = q.lane AND s.state = 's' AND s.due_at <= v_now + p_within_us
      AND s.first_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > v_now)
    ORDER BY s.due_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_n = ROW_COUNT;
  IF v_n > 0 THEN
    PERFORM fairturn.wake(p_queue);
  END IF;
  RETURN v_n;
END $$;
