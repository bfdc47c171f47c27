-- Fairlead on PostgreSQL: ready messages that go to another queue (docs/semantics.md §8.3).

-- Send messages of another queue, which still exist, to queue t as new ones, in the order of p_ids.
-- Columns that are not named start afresh.
CREATE FUNCTION fairlead.move_rows(t fairlead.queue, p_ids bigint[], p_now bigint) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE v_new bigint[] := ARRAY(SELECT nextval('fairlead.message_id') FROM generate_series(1, cardinality(p_ids)));
BEGIN
  INSERT INTO fairlead.message (id, due_at, created_at, lease_us, expires_at, lane, rank, version, max_attempts,
      json, state, channel, type, body, headers)
    SELECT u.new, p_now, p_now, m.lease_us, p_now + t.expires_us, t.lane, m.rank, m.version,
      m.max_attempts, m.json & 1, 'r', m.channel, m.type, m.body, m.headers
    FROM unnest(p_ids, v_new) u(old, new) JOIN fairlead.message m ON m.id = u.old;
  INSERT INTO fairlead.tally (queue_id, at, sent) VALUES (t.id, p_now, cardinality(p_ids));
  IF t.events <> 0 THEN
    PERFORM fairlead.tell(t.name, 'created', v_new, p_now);
  END IF;
  PERFORM fairlead.wake(t.name);
END $$;

-- Move up to p_limit ready messages, the oldest first, to p_to; without it each to the queue where it
-- died. How many. Movers of one queue wait for each other, so that the new ids ascend in the old order whoever
-- draws them; nobody else does: the lock is theirs alone, and needs no right to change the queue's row.
CREATE FUNCTION fairlead.move(p_queue text, p_to text DEFAULT NULL, p_limit int DEFAULT 1000, p_now bigint DEFAULT NULL)
RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q fairlead.queue;
  t fairlead.queue;
  s record;
  v_now bigint;
  v_to int;
  v_ids bigint[];
  v_homes int[];
  v_some bigint[];
  v_gone bigint[] := '{}';
  v_groups bigint[];
BEGIN
  PERFORM pg_advisory_xact_lock(hashtextextended('fairlead.move.' || p_queue, 0));
  q := fairlead.queue_row(p_queue);
  IF p_to = p_queue OR p_limit < 1 THEN
    RAISE EXCEPTION 'a queue is moved to another one, and at least one message of it' USING ERRCODE = 'FL006';
  ELSIF p_to IS NOT NULL THEN
    v_to := (fairlead.queue_row(p_to)).id;
  END IF;
  v_now := fairlead.now_us(p_now);
  -- @stop move.sweep
  s := fairlead.sweep(q, 1000, v_now, 0, 0);
  IF s.recovered + s.killed + s.expired > 0 THEN
    INSERT INTO fairlead.tally (queue_id, at, recovered, killed, expired, errors)
      VALUES (q.id, v_now, nullif(s.recovered, 0), nullif(s.killed, 0), nullif(s.expired, 0), nullif(s.killed, 0));
  END IF;
  -- Sorted from the index of what is ready; what else must be known is read from the rows that are taken.
  -- (OFFSET 0 keeps the planner from walking over the messages of all queues in the order of their ids.)
  SELECT array_agg(x.id), array_agg(x.home) INTO v_ids, v_homes FROM (
    SELECT m.id, coalesce(v_to, m.origin) AS home
      FROM (SELECT a.id FROM (SELECT r.id FROM fairlead.message r WHERE r.lane = q.lane AND r.state = 'r' OFFSET 0) a
            ORDER BY a.id OFFSET 0) i
      JOIN fairlead.message m ON m.id = i.id
      WHERE m.lane = q.lane AND m.state::text = 'r' AND (m.expires_at IS NULL OR m.expires_at > v_now)
        AND (v_to IS NOT NULL OR (m.origin <> q.id AND (SELECT h.id FROM fairlead.queue h WHERE h.id = m.origin) IS NOT NULL))
      ORDER BY i.id LIMIT p_limit FOR UPDATE OF m SKIP LOCKED) x;
  -- @stop move.write
  FOR t IN SELECT h.* FROM fairlead.queue h WHERE h.id = ANY (v_homes) ORDER BY h.id LOOP
    v_some := ARRAY(SELECT u.id FROM unnest(v_ids, v_homes) u(id, home) WHERE u.home = t.id ORDER BY u.id);
    PERFORM fairlead.move_rows(t, v_some, v_now);
    v_gone := v_gone || v_some; -- (a queue may have been dropped meanwhile: then they stay)
  END LOOP;
  IF cardinality(v_gone) > 0 THEN
    IF q.events <> 0 THEN
      PERFORM fairlead.tell(q.name, 'deleted', v_gone, v_now);
    END IF;
    WITH gone AS (DELETE FROM fairlead.message m WHERE m.id = ANY (v_gone) RETURNING m.group_id)
    SELECT array_agg(g.group_id) FILTER (WHERE g.group_id IS NOT NULL) INTO v_groups FROM gone g;
    PERFORM fairlead.mark(v_groups, NULL);
    PERFORM fairlead.wake(p_queue);
  END IF;
  IF v_groups IS NOT NULL OR s.removed + s.killed > 0 THEN
    PERFORM fairlead.settle(100, p_now);
  END IF;
  RETURN cardinality(v_gone);
END $$;
