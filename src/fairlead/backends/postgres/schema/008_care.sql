-- Fairlead on PostgreSQL: maintenance and exact numbers.

-- Sweep, retain, purge and fold for every queue, at most p_limit rows of each kind per queue.
CREATE FUNCTION fairlead.maintain(p_limit int DEFAULT 1000, p_now bigint DEFAULT NULL,
  OUT activated int, OUT recovered int, OUT killed int, OUT purged int, OUT more boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_now bigint := fairlead.now_us(p_now);
  q fairlead.queue;
  s record;
  v_lane fairlead.retired;
  v_n int;
  v_names int;
BEGIN
  activated := 0; recovered := 0; killed := 0; purged := 0; more := false;
  FOR q IN SELECT * FROM fairlead.queue ORDER BY id LOOP
    s := fairlead.sweep(q, p_limit, v_now, 0, 0);
    IF s.recovered + s.killed + s.expired > 0 THEN
      INSERT INTO fairlead.tally (queue_id, at, recovered, killed, expired, errors)
        VALUES (q.id, v_now, nullif(s.recovered, 0), nullif(s.killed, 0), nullif(s.expired, 0), nullif(s.killed, 0));
    END IF;
    activated := activated + s.activated;
    recovered := recovered + s.recovered;
    killed := killed + s.killed;
    more := more OR s.activated >= p_limit OR s.lapsed >= p_limit OR s.removed >= p_limit;

    DELETE FROM fairlead.message m WHERE m.id = ANY (ARRAY(
      SELECT d.id FROM fairlead.message d WHERE d.lane = q.lane AND d.state = 'd'
        AND d.finished_at <= v_now - CASE WHEN q.retention_us = 0 THEN 86400000000 ELSE q.retention_us END
      ORDER BY d.finished_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_n = ROW_COUNT;
    purged := purged + v_n;
    more := more OR v_n >= p_limit;
    IF q.dead_retention_us IS NOT NULL THEN
      DELETE FROM fairlead.message m WHERE m.id = ANY (ARRAY(
        SELECT d.id FROM fairlead.message d WHERE d.lane = q.lane AND d.state = 'x'
          AND d.finished_at <= v_now - q.dead_retention_us
        ORDER BY d.finished_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
      GET DIAGNOSTICS v_n = ROW_COUNT;
      purged := purged + v_n;
      more := more OR v_n >= p_limit;
    END IF;
    DELETE FROM fairlead.failure f WHERE f.id = ANY (ARRAY(
      SELECT o.id FROM fairlead.failure o WHERE o.queue_id = q.id AND o.at <= v_now - q.failure_retention_us
      ORDER BY o.at LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_n = ROW_COUNT;
    purged := purged + v_n;
    more := more OR v_n >= p_limit;

    more := fairlead.forget(q.lane, p_limit, v_now) >= p_limit OR more;
    more := more OR fairlead.fold(q.id, p_limit) >= p_limit;
    PERFORM fairlead.fold_history(q.id, v_now - 86400000000);
    -- Gates of channels without work, whose rate has caught up, serve nobody.
    DELETE FROM fairlead.gate g WHERE (g.queue_id, g.channel) IN (
      SELECT o.queue_id, o.channel FROM fairlead.gate o
      WHERE o.queue_id = q.id AND o.tat < v_now
        AND NOT EXISTS (SELECT 1 FROM fairlead.policy p WHERE p.queue_id = q.id AND p.channel = o.channel)
        AND fairlead.channel_size(q.lane, o.channel, 1) = 0
      LIMIT p_limit FOR UPDATE SKIP LOCKED);
  END LOOP;

  FOR v_lane IN SELECT * FROM fairlead.retired ORDER BY lane LOOP
    v_n := fairlead.sweep_lane(v_lane.lane, p_limit);
    purged := purged + v_n;
    v_names := fairlead.forget(v_lane.lane, p_limit, 9223372036854775807);
    more := more OR v_n >= p_limit OR v_names >= p_limit;
    IF v_n = 0 AND v_names = 0 AND v_lane.retired_at < v_now - 604800000000 THEN
      -- No send can still be open that began before the purge.
      DELETE FROM fairlead.retired WHERE lane = v_lane.lane;
    END IF;
  END LOOP;
  DELETE FROM fairlead.permit p WHERE p.id = ANY (ARRAY(
    SELECT o.id FROM fairlead.permit o WHERE o.expires_at <= v_now LIMIT p_limit FOR UPDATE SKIP LOCKED));

  PERFORM fairlead.settle(p_limit, p_now);
  DELETE FROM fairlead.group_ g WHERE g.id = ANY (ARRAY(
    SELECT o.id FROM fairlead.group_ o WHERE o.closed_at <= v_now - 86400000000
    ORDER BY o.closed_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
  DELETE FROM fairlead.event e USING (
      SELECT o.tx, o.id, o.at FROM fairlead.event o ORDER BY o.tx, o.id LIMIT p_limit FOR UPDATE SKIP LOCKED) old
    WHERE e.tx = old.tx AND e.id = old.id AND old.at <= v_now - 86400000000;
  GET DIAGNOSTICS v_n = ROW_COUNT;
  more := more OR v_n >= p_limit;
  DELETE FROM fairlead.sleeper WHERE until <= v_now;
END $$;

-- Minutes older than p_before become part of minute 0.
CREATE FUNCTION fairlead.fold_history(p_queue_id int, p_before bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM fairlead.history h WHERE h.queue_id = p_queue_id AND h.minute > 0 AND h.minute < p_before) THEN
    RETURN;
  END IF;
  PERFORM 1 FROM fairlead.history h WHERE h.queue_id = p_queue_id AND h.minute = 0 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  WITH old AS (
    DELETE FROM fairlead.history h WHERE h.queue_id = p_queue_id AND h.minute > 0 AND h.minute < p_before RETURNING *
  ), sum AS (
    SELECT coalesce(sum(sent), 0) AS sent, coalesce(sum(delivered), 0) AS delivered, coalesce(sum(acked), 0) AS acked,
      coalesce(sum(completed), 0) AS completed, coalesce(sum(deferred), 0) AS deferred, coalesce(sum(failed), 0) AS failed,
      coalesce(sum(killed), 0) AS killed, coalesce(sum(recovered), 0) AS recovered, coalesce(sum(released), 0) AS released,
      coalesce(sum(cancelled), 0) AS cancelled, coalesce(sum(expired), 0) AS expired, coalesce(sum(errors), 0) AS errors
    FROM old)
  UPDATE fairlead.history h SET sent = h.sent + s.sent, delivered = h.delivered + s.delivered, acked = h.acked + s.acked,
      completed = h.completed + s.completed, deferred = h.deferred + s.deferred, failed = h.failed + s.failed,
      killed = h.killed + s.killed, recovered = h.recovered + s.recovered, released = h.released + s.released,
      cancelled = h.cancelled + s.cancelled, expired = h.expired + s.expired, errors = h.errors + s.errors
    FROM sum s WHERE h.queue_id = p_queue_id AND h.minute = 0;
END $$;

-- Delete rows of a purged lane, state by state through each state's own index.
CREATE FUNCTION fairlead.sweep_lane(p_lane int, p_limit int) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_ids bigint[];
  v_groups bigint[];
BEGIN
  v_ids := ARRAY(SELECT id FROM fairlead.message WHERE lane = p_lane AND state = 'r' LIMIT p_limit);
  v_ids := v_ids || ARRAY(SELECT id FROM fairlead.message WHERE lane = p_lane AND state IN ('s', 'h')
    LIMIT p_limit - cardinality(v_ids));
  v_ids := v_ids || ARRAY(SELECT id FROM fairlead.message WHERE lane = p_lane AND state = 'l'
    LIMIT p_limit - cardinality(v_ids));
  v_ids := v_ids || ARRAY(SELECT id FROM fairlead.message WHERE lane = p_lane AND state = 'd'
    LIMIT p_limit - cardinality(v_ids));
  v_ids := v_ids || ARRAY(SELECT id FROM fairlead.message WHERE lane = p_lane AND state = 'x'
    LIMIT p_limit - cardinality(v_ids));
  WITH gone AS (DELETE FROM fairlead.message WHERE id = ANY (v_ids) RETURNING group_id)
  SELECT array_agg(group_id) FILTER (WHERE group_id IS NOT NULL) INTO v_groups FROM gone;
  PERFORM fairlead.mark(v_groups, NULL);
  RETURN cardinality(v_ids);
END $$;

-- Exact numbers of one queue (or of all), from one snapshot.
CREATE FUNCTION fairlead.stats(p_queue text DEFAULT NULL, p_now bigint DEFAULT NULL)
RETURNS TABLE (queue text, ready bigint, scheduled bigint, leased bigint, held bigint, done bigint, dead bigint,
  sent bigint, delivered bigint, acked bigint, completed bigint, deferred bigint, failed bigint, killed bigint,
  recovered bigint, released bigint, cancelled bigint, expired bigint, errors bigint, oldest_ready bigint, versions text)
LANGUAGE sql AS $$
  WITH clock AS MATERIALIZED (SELECT fairlead.now_us(p_now) AS now),
  rows AS (
    SELECT m.lane, m.version, m.due_at,
      CASE WHEN m.state = 's' AND m.due_at <= c.now THEN 'r'
           WHEN m.state = 'l' AND m.lease_until <= c.now AND NOT EXISTS (
             SELECT 1 FROM fairlead.permit p WHERE p.id = m.permit_id AND p.expires_at > c.now) THEN 'r'
           ELSE m.state END AS state
    FROM fairlead.message m CROSS JOIN clock c
    WHERE (m.expires_at IS NULL OR m.expires_at > c.now)
      AND (p_queue IS NULL OR m.lane = (SELECT lane FROM fairlead.queue WHERE name = p_queue))
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
  ), totals AS (
    SELECT t.queue_id, sum(t.sent) AS sent, sum(t.delivered) AS delivered, sum(t.acked) AS acked,
      sum(t.completed) AS completed, sum(t.deferred) AS deferred, sum(t.failed) AS failed, sum(t.killed) AS killed,
      sum(t.recovered) AS recovered, sum(t.released) AS released, sum(t.cancelled) AS cancelled,
      sum(t.expired) AS expired, sum(t.errors) AS errors
    FROM (SELECT queue_id, sent, delivered, acked, completed, deferred, failed, killed, recovered, released,
            cancelled, expired, errors FROM fairlead.tally
          UNION ALL
          SELECT queue_id, sent, delivered, acked, completed, deferred, failed, killed, recovered, released,
            cancelled, expired, errors FROM fairlead.history) t
    GROUP BY t.queue_id
  )
  SELECT q.name, coalesce(l.ready, 0), coalesce(l.scheduled, 0), coalesce(l.leased, 0), coalesce(l.held, 0),
    coalesce(l.done, 0), coalesce(l.dead, 0), coalesce(t.sent, 0)::bigint, coalesce(t.delivered, 0)::bigint,
    coalesce(t.acked, 0)::bigint, coalesce(t.completed, 0)::bigint, coalesce(t.deferred, 0)::bigint,
    coalesce(t.failed, 0)::bigint, coalesce(t.killed, 0)::bigint, coalesce(t.recovered, 0)::bigint,
    coalesce(t.released, 0)::bigint, coalesce(t.cancelled, 0)::bigint, coalesce(t.expired, 0)::bigint,
    coalesce(t.errors, 0)::bigint, l.oldest, coalesce(l.versions, '{}')
  FROM fairlead.queue q LEFT JOIN lanes l ON l.lane = q.lane LEFT JOIN totals t ON t.queue_id = q.id
  WHERE p_queue IS NULL OR q.name = p_queue
  ORDER BY q.name
$$;

-- Messages as a person wants to see them.
CREATE VIEW fairlead.messages AS
  SELECT m.id, q.name AS queue, m.channel,
    CASE m.state WHEN 'h' THEN 'held' WHEN 's' THEN 'scheduled' WHEN 'r' THEN 'ready' WHEN 'l' THEN 'leased'
      WHEN 'd' THEN 'done' ELSE 'dead' END AS state,
    -m.rank AS priority, to_timestamp(m.due_at / 1000000.0) AS due_at, m.key, m.version, m.type, m.attempts,
    m.deliveries, to_timestamp(CASE WHEN m.state = 'l' THEN m.lease_until END / 1000000.0) AS lease_until,
    to_timestamp(m.created_at / 1000000.0) AS created_at, to_timestamp(m.finished_at / 1000000.0) AS finished_at,
    to_timestamp(m.expires_at / 1000000.0) AS expires_at, m.error, octet_length(m.body) AS body_bytes,
    (SELECT g.name FROM fairlead.group_ g WHERE g.id = m.group_id) AS group_name, m.progress / 1000000.0 AS progress, m.note,
    (SELECT o.name FROM fairlead.queue o WHERE o.id = m.origin) AS origin,
    to_timestamp(m.first_at / 1000000.0) AS first_delivered_at
  FROM fairlead.message m JOIN fairlead.queue q ON q.lane = m.lane;
