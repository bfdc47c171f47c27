-- Fairturn on PostgreSQL: the sweep, maintenance and exact numbers.

-- Expire, recover and promote messages, at most p_limit of each, and count them. The caller has lately swept
-- everything before the floors: the dead index entries there are not visited again. `removed`: deleted because of
-- their expiry; `expired`: those of them that were never delivered; `lapsed`: leases past their deadline.
CREATE OR REPLACE FUNCTION fairturn.sweep(q fairturn.queue, p_limit int, p_now bigint, p_lease_floor bigint, p_due_floor bigint,
  OUT activated int, OUT recovered int, OUT killed int, OUT expired int, OUT removed int, OUT lapsed int)
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_ids bigint[];
  v_permits bigint[];
  v_gone record;
  v_alive bigint[];
  v_dead bigint[];
BEGIN
  activated := 0; recovered := 0; killed := 0; expired := 0; removed := 0; lapsed := 0;

  WITH gone AS (
    DELETE FROM fairturn.message m WHERE m.id = ANY (ARRAY(
        SELECT e.id FROM fairturn.message e WHERE e.lane = q.lane AND e.expires_at <= p_now
        ORDER BY e.expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED))
      RETURNING m.id, m.deliveries, m.key, m.channel, m.state, m.group_id)
  SELECT count(*) AS n, count(*) FILTER (WHERE g.deliveries = 0) AS unrun, array_agg(g.id) AS ids,
      array_agg(g.key) AS keys, array_agg(g.channel) AS channels,
      array_agg(g.group_id) FILTER (WHERE g.group_id IS NOT NULL AND g.state NOT IN ('d', 'x')) AS groups
    INTO v_gone FROM gone g;
  IF v_gone.n > 0 THEN
    removed := v_gone.n;
    expired := v_gone.unrun;
    IF q.events <> 0 THEN
      PERFORM fairturn.tell_gone(q.name, v_gone.ids, v_gone.keys, v_gone.channels, p_now);
    END IF;
    PERFORM fairturn.mark(v_gone.groups, NULL);
  END IF;

  SELECT array_agg(x.id), array_agg(x.permit_id) FILTER (WHERE x.permit_id IS NOT NULL)
    INTO v_ids, v_permits
    FROM (SELECT m.id, m.permit_id FROM fairturn.message m
      WHERE m.lane = q.lane AND m.state = 'l' AND m.lease_until <= p_now AND m.lease_until >= p_lease_floor
      ORDER BY m.lease_until LIMIT p_limit FOR UPDATE SKIP LOCKED) x;
  -- @stop sweep.recover
  IF v_ids IS NOT NULL THEN
    lapsed := cardinality(v_ids);
    IF v_permits IS NOT NULL THEN
      -- An expired permit is deleted, so that a late heartbeat cannot revive it. A locked one is being
      -- extended right now: its leases are left for the next sweep.
      DELETE FROM fairturn.permit p WHERE p.id = ANY (ARRAY(
        SELECT o.id FROM fairturn.permit o WHERE o.id = ANY (v_permits) AND o.expires_at <= p_now
        FOR UPDATE SKIP LOCKED));
      -- @stop sweep.permits
      WITH moved AS (
        UPDATE fairturn.message m SET lease_until = p.expires_at FROM fairturn.permit p
          WHERE m.id = ANY (v_ids) AND p.id = m.permit_id RETURNING m.id)
      SELECT array_agg(id) INTO v_alive FROM moved;
      v_ids := ARRAY(SELECT i FROM unnest(v_ids) i WHERE i <> ALL (coalesce(v_alive, '{}')));
    END IF;
    v_dead := ARRAY(SELECT m.id FROM fairturn.message m WHERE m.id = ANY (v_ids)
      AND coalesce(m.max_attempts, q.max_attempts) > 0
      AND m.attempts >= coalesce(m.max_attempts, q.max_attempts));
    IF cardinality(v_dead) > 0 THEN
      INSERT INTO fairturn.failure (queue_id, message_id, key, attempt, at, killed, error)
        SELECT q.id, m.id, m.key, m.attempts, p_now, true, 'lease expired with no attempts left'
        FROM fairturn.message m WHERE m.id = ANY (v_dead) ORDER BY m.id;
      PERFORM fairturn.bury(q, v_dead, 'lease expired with no attempts left', true, p_now);
      killed := cardinality(v_dead);
      v_ids := ARRAY(SELECT i FROM unnest(v_ids) i WHERE i <> ALL (v_dead));
    END IF;
    UPDATE fairturn.message m SET state = 'r', recovered = true, lease_until = NULL, lease_no = NULL,
        permit_id = NULL
      WHERE m.id = ANY (v_ids);
    recovered := coalesce(cardinality(v_ids), 0);
  END IF;

  WITH due AS (
    UPDATE fairturn.message m SET state = 'r' WHERE m.id = ANY (ARRAY(
        SELECT s.id FROM fairturn.message s WHERE s.lane = q.lane AND s.state = 's' AND s.due_at <= p_now
          AND s.due_at >= p_due_floor
        ORDER BY s.due_at LIMIT p_limit FOR UPDATE SKIP LOCKED))
      RETURNING 1)
  SELECT count(*) INTO activated FROM due;

  IF recovered + killed + expired > 0 THEN
    INSERT INTO fairturn.tally (queue_id, at, recovered, killed, expired, errors)
      VALUES (q.id, p_now, nullif(sweep.recovered, 0), nullif(sweep.killed, 0), nullif(sweep.expired, 0),
        nullif(sweep.killed, 0));
  END IF;
END $$;

-- Fold up to p_limit tallies of a queue into its history, and end the minutes before p_before: their sum is
-- minute 0. Returns how many tallies. One session folds at a time; others skip it.
CREATE OR REPLACE FUNCTION fairturn.fold(p_queue_id int, p_limit int, p_before bigint) RETURNS int
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE v_n int;
BEGIN
  PERFORM 1 FROM fairturn.history h WHERE h.queue_id = p_queue_id AND h.minute = 0 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  WITH gone AS (
    DELETE FROM fairturn.tally t WHERE t.queue_id = p_queue_id AND t.id = ANY (ARRAY(
        SELECT o.id FROM fairturn.tally o WHERE o.queue_id = p_queue_id ORDER BY o.id LIMIT p_limit
        FOR UPDATE SKIP LOCKED))
      RETURNING t.*
  ), summed AS (
    INSERT INTO fairturn.history AS h
      SELECT p_queue_id, g.at / 60000000 * 60000000, coalesce(sum(sent), 0), coalesce(sum(delivered), 0),
        coalesce(sum(acked), 0), coalesce(sum(completed), 0), coalesce(sum(deferred), 0),
        coalesce(sum(failed), 0), coalesce(sum(killed), 0), coalesce(sum(recovered), 0),
        coalesce(sum(released), 0), coalesce(sum(cancelled), 0), coalesce(sum(expired), 0),
        coalesce(sum(errors), 0)
      FROM gone g GROUP BY 2 ORDER BY 2
      ON CONFLICT (queue_id, minute) DO UPDATE SET
        sent = h.sent + excluded.sent, delivered = h.delivered + excluded.delivered,
        acked = h.acked + excluded.acked, completed = h.completed + excluded.completed,
        deferred = h.deferred + excluded.deferred, failed = h.failed + excluded.failed,
        killed = h.killed + excluded.killed, recovered = h.recovered + excluded.recovered,
        released = h.released + excluded.released, cancelled = h.cancelled + excluded.cancelled,
        expired = h.expired + excluded.expired, errors = h.errors + excluded.errors)
  SELECT count(*) INTO v_n FROM gone;
  IF p_before > 0 THEN
    -- An old minute becomes a tally at time 0, which the next call folds into minute 0.
    WITH old AS (
      DELETE FROM fairturn.history h WHERE h.queue_id = p_queue_id AND h.minute > 0 AND h.minute < p_before RETURNING *)
    INSERT INTO fairturn.tally (queue_id, at, sent, delivered, acked, completed, deferred, failed, killed, recovered,
        released, cancelled, expired, errors)
      SELECT queue_id, 0, sent, delivered, acked, completed, deferred, failed, killed, recovered, released, cancelled,
        expired, errors FROM old;
  END IF;
  RETURN v_n;
END $$;

-- For every queue: sweep, delete what was kept long enough, fold. At most p_limit rows of each kind per queue.
-- `more`: at least one kind may have more.
CREATE OR REPLACE FUNCTION fairturn.maintain(p_limit int DEFAULT 1000, p_now bigint DEFAULT NULL,
  OUT activated int, OUT recovered int, OUT killed int, OUT purged int, OUT more boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  DAY CONSTANT bigint := 86400000000;
  v_now bigint := fairturn.now_us(p_now);
  q fairturn.queue;
  s record;
  v_done bigint[];
  v_dead bigint[];
  v_failures bigint[];
  v_lane fairturn.retired;
  v_n int;
  v_names int;
BEGIN
  activated := 0; recovered := 0; killed := 0; purged := 0; more := false;
  FOR q IN SELECT * FROM fairturn.queue ORDER BY id LOOP
    s := fairturn.sweep(q, p_limit, v_now, 0, 0);
    activated := activated + s.activated;
    recovered := recovered + s.recovered;
    killed := killed + s.killed;

    v_done := fairturn.lock_finished(q.lane, 'd', v_now - CASE WHEN q.retention_us = 0 THEN q.result_retention_us ELSE q.retention_us END,
      p_limit);
    v_dead := fairturn.lock_finished(q.lane, 'x', v_now - q.dead_retention_us, p_limit);
    DELETE FROM fairturn.message WHERE id = ANY (v_done || v_dead);
    v_failures := ARRAY(SELECT f.id FROM fairturn.failure f
      WHERE f.queue_id = q.id AND f.at <= v_now - q.failure_retention_us ORDER BY f.at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    DELETE FROM fairturn.failure WHERE id = ANY (v_failures);
    purged := purged + cardinality(v_done) + cardinality(v_dead) + cardinality(v_failures);

    more := greatest(s.activated, s.lapsed, s.removed, cardinality(v_done), cardinality(v_dead), cardinality(v_failures),
      fairturn.forget(q.lane, p_limit, v_now), fairturn.fold(q.id, p_limit, v_now - DAY)) >= p_limit OR more;
    -- A gate without use: its channel has no unfinished message and no policy, and its rate has caught up.
    DELETE FROM fairturn.gate g WHERE (g.queue_id, g.channel) IN (
      SELECT o.queue_id, o.channel FROM fairturn.gate o
      WHERE o.queue_id = q.id AND o.tat < v_now
        AND NOT EXISTS (SELECT 1 FROM fairturn.policy p WHERE p.queue_id = q.id AND p.channel = o.channel)
        AND fairturn.channel_size(q.lane, o.channel, 1) = 0
      LIMIT p_limit FOR UPDATE SKIP LOCKED);
  END LOOP;

  FOR v_lane IN SELECT * FROM fairturn.retired ORDER BY lane LOOP
    v_n := fairturn.sweep_lane(v_lane.lane, p_limit);
    purged := purged + v_n;
    v_names := fairturn.forget(v_lane.lane, p_limit, 9223372036854775807);
    more := more OR v_n >= p_limit OR v_names >= p_limit;
    IF v_n = 0 AND v_names = 0 AND v_lane.retired_at < v_now - 7 * DAY THEN
      -- No transaction that sent before the purge is still open.
      DELETE FROM fairturn.retired WHERE lane = v_lane.lane;
    END IF;
  END LOOP;
  DELETE FROM fairturn.permit p WHERE p.id = ANY (ARRAY(
    SELECT o.id FROM fairturn.permit o WHERE o.expires_at <= v_now LIMIT p_limit FOR UPDATE SKIP LOCKED));

  PERFORM fairturn.settle(p_limit, p_now);
  DELETE FROM fairturn.group_ g WHERE g.id = ANY (ARRAY(
    SELECT o.id FROM fairturn.group_ o WHERE o.closed_at <= v_now - DAY
    ORDER BY o.closed_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
  DELETE FROM fairturn.event e USING (
      SELECT o.tx, o.id, o.at FROM fairturn.event o ORDER BY o.tx, o.id LIMIT p_limit FOR UPDATE SKIP LOCKED) old
    WHERE e.tx = old.tx AND e.id = old.id AND old.at <= v_now - DAY;
  GET DIAGNOSTICS v_n = ROW_COUNT;
  more := more OR v_n >= p_limit;
  DELETE FROM fairturn.listener WHERE until <= v_now;
END $$;

-- Delete up to p_limit rows of a retired lane, one state after the other, each through its own index. Returns
-- how many.
CREATE OR REPLACE FUNCTION fairturn.sweep_lane(p_lane int, p_limit int) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_ids bigint[] := ARRAY(
    (SELECT id FROM fairturn.message WHERE lane = p_lane AND state = 'r' LIMIT p_limit)
    UNION ALL (SELECT id FROM fairturn.message WHERE lane = p_lane AND state IN ('s', 'h') LIMIT p_limit)
    UNION ALL (SELECT id FROM fairturn.message WHERE lane = p_lane AND state = 'l' LIMIT p_limit)
    UNION ALL (SELECT id FROM fairturn.message WHERE lane = p_lane AND state = 'd' LIMIT p_limit)
    UNION ALL (SELECT id FROM fairturn.message WHERE lane = p_lane AND state = 'x' LIMIT p_limit)
    LIMIT p_limit);
  v_groups bigint[];
BEGIN
  WITH gone AS (DELETE FROM fairturn.message WHERE id = ANY (v_ids) RETURNING group_id)
  SELECT array_agg(group_id) FILTER (WHERE group_id IS NOT NULL) INTO v_groups FROM gone;
  PERFORM fairturn.mark(v_groups, NULL);
  RETURN cardinality(v_ids);
END $$;

-- The counters of all queues by minute: the history, and the tallies that are not folded yet. (The planner puts
-- this text in the place of the call.)
CREATE OR REPLACE FUNCTION fairturn.counted() RETURNS SETOF fairturn.history LANGUAGE sql STABLE AS $$
  SELECT * FROM fairturn.history
  UNION ALL
  SELECT queue_id, at / 60000000 * 60000000, coalesce(sent, 0), coalesce(delivered, 0), coalesce(acked, 0),
    coalesce(completed, 0), coalesce(deferred, 0), coalesce(failed, 0), coalesce(killed, 0), coalesce(recovered, 0),
    coalesce(released, 0), coalesce(cancelled, 0), coalesce(expired, 0), coalesce(errors, 0)
  FROM fairturn.tally
$$;

-- Exact numbers of one queue, or of all, from one snapshot.
CREATE OR REPLACE FUNCTION fairturn.stats(p_queue text DEFAULT NULL, p_now bigint DEFAULT NULL)
RETURNS TABLE (queue text, ready bigint, scheduled bigint, leased bigint, held bigint, done bigint, dead bigint,
  sent bigint, delivered bigint, acked bigint, completed bigint, deferred bigint, failed bigint, killed bigint,
  recovered bigint, released bigint, cancelled bigint, expired bigint, errors bigint, oldest_ready bigint, versions text)
LANGUAGE sql AS $$
  WITH clock AS MATERIALIZED (SELECT fairturn.now_us(p_now) AS now),
  rows AS (
    SELECT m.lane, m.version, m.due_at,
      CASE WHEN m.state = 's' AND m.due_at <= c.now THEN 'r'
           WHEN m.state = 'l' AND m.lease_until <= c.now AND NOT EXISTS (
             SELECT 1 FROM fairturn.permit p WHERE p.id = m.permit_id AND p.expires_at > c.now) THEN 'r'
           ELSE m.state END AS state
    FROM fairturn.message m CROSS JOIN clock c
    WHERE (m.expires_at IS NULL OR m.expires_at > c.now)
      AND (p_queue IS NULL OR m.lane = (SELECT lane FROM fairturn.queue WHERE name = p_queue))
  ), counts AS (
    SELECT r.lane, r.version, count(*) AS n, count(*) FILTER (WHERE r.state = 'r') AS ready,
      count(*) FILTER (WHERE r.state = 's') AS scheduled, count(*) FILTER (WHERE r.state = 'l') AS leased,
      count(*) FILTER (WHERE r.state = 'h') AS held, count(*) FILTER (WHERE r.state = 'd') AS done,
      count(*) FILTER (WHERE r.state = 'x') AS dead, min(r.due_at) FILTER (WHERE r.state = 'r') AS oldest
    FROM rows r GROUP BY r.lane, r.version
  ), lanes AS (
    SELECT c.lane, sum(c.ready)::bigint AS ready, sum(c.scheduled)::bigint AS scheduled, sum(c.leased)::bigint AS leased,
      sum(c.held)::bigint AS held, sum(c.done)::bigint AS done, sum(c.dead)::bigint AS dead, min(c.oldest) AS oldest,
      jsonb_object_agg(c.version, c.n)::text AS versions
    FROM counts c GROUP BY c.lane
  )
  SELECT q.name, coalesce(l.ready, 0), coalesce(l.scheduled, 0), coalesce(l.leased, 0), coalesce(l.held, 0),
    coalesce(l.done, 0), coalesce(l.dead, 0), t.*, l.oldest, coalesce(l.versions, '{}')
  FROM fairturn.queue q LEFT JOIN lanes l ON l.lane = q.lane
  CROSS JOIN LATERAL (
    -- (The row of minute 0 always exists.)
    SELECT sum(c.sent)::bigint, sum(c.delivered)::bigint, sum(c.acked)::bigint, sum(c.completed)::bigint,
      sum(c.deferred)::bigint, sum(c.failed)::bigint, sum(c.killed)::bigint, sum(c.recovered)::bigint,
      sum(c.released)::bigint, sum(c.cancelled)::bigint, sum(c.expired)::bigint, sum(c.errors)::bigint
    FROM fairturn.counted() c WHERE c.queue_id = q.id) t
  WHERE p_queue IS NULL OR q.name = p_queue
  ORDER BY q.name
$$;
