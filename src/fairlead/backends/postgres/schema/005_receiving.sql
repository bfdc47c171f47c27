-- Fairlead on PostgreSQL: receive.
--
-- The ready index is ordered by channel, so "the next channel after this one with something ready"
-- is one probe. Round-robin needs no state but the consumer's own cursor (last channel served,
-- credit left of its turn); no channel row is ever written. What each step promises is in
-- docs/semantics.md §4. Lock order: queue gate, channel gates by name, messages.
--
-- receive_rows sets the planner's choices for everything below it: a plan that was cached while the
-- table was empty must not turn into a sequential scan when a million rows arrive, and no call may
-- be planned anew. The functions it calls have no settings of their own, since each costs time.

CREATE TYPE fairlead.delivery AS (
  id bigint, channel text, body bytea, headers bytea, key text, version int, type text, priority int,
  due_at bigint, created_at bigint, attempts int, deliveries int, memo bytea, lease_until bigint,
  json smallint, recovered int, group_name text, origin text, first_at bigint);

-- Expire, recover, promote: at most p_limit rows each. The floors are times below which the caller
-- has swept lately: dead index entries before them are not visited again.
CREATE FUNCTION fairlead.sweep(q fairlead.queue, p_limit int, p_now bigint, p_lease_floor bigint, p_due_floor bigint,
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
    DELETE FROM fairlead.message m WHERE m.id = ANY (ARRAY(
        SELECT e.id FROM fairlead.message e WHERE e.lane = q.lane AND e.expires_at <= p_now
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
      PERFORM fairlead.tell_gone(q.name, v_gone.ids, v_gone.keys, v_gone.channels, p_now);
    END IF;
    PERFORM fairlead.mark(v_gone.groups, NULL);
  END IF;

  SELECT array_agg(x.id), array_agg(x.permit_id) FILTER (WHERE x.permit_id IS NOT NULL)
    INTO v_ids, v_permits
    FROM (SELECT m.id, m.permit_id FROM fairlead.message m
      WHERE m.lane = q.lane AND m.state = 'l' AND m.lease_until <= p_now AND m.lease_until >= p_lease_floor
      ORDER BY m.lease_until LIMIT p_limit FOR UPDATE SKIP LOCKED) x;
  -- @stop sweep.recover
  IF v_ids IS NOT NULL THEN
    lapsed := cardinality(v_ids);
    IF v_permits IS NOT NULL THEN
      -- Deleting an expired permit is what keeps a late heartbeat from reviving it. One that is
      -- locked is being extended right now: its leases are left for the next sweep.
      DELETE FROM fairlead.permit p WHERE p.id = ANY (ARRAY(
        SELECT o.id FROM fairlead.permit o WHERE o.id = ANY (v_permits) AND o.expires_at <= p_now
        FOR UPDATE SKIP LOCKED));
      -- @stop sweep.permits
      WITH moved AS (
        UPDATE fairlead.message m SET lease_until = p.expires_at FROM fairlead.permit p
          WHERE m.id = ANY (v_ids) AND p.id = m.permit_id RETURNING m.id)
      SELECT array_agg(id) INTO v_alive FROM moved;
      v_ids := ARRAY(SELECT i FROM unnest(v_ids) i WHERE i <> ALL (coalesce(v_alive, '{}')));
    END IF;
    v_dead := ARRAY(SELECT m.id FROM fairlead.message m WHERE m.id = ANY (v_ids)
      AND coalesce(m.max_attempts, q.max_attempts) > 0
      AND m.attempts >= coalesce(m.max_attempts, q.max_attempts));
    IF cardinality(v_dead) > 0 THEN
      INSERT INTO fairlead.failure (queue_id, message_id, key, attempt, at, killed, error)
        SELECT q.id, m.id, m.key, m.attempts, p_now, true, 'lease expired with no attempts left'
        FROM fairlead.message m WHERE m.id = ANY (v_dead) ORDER BY m.id;
      PERFORM fairlead.bury(q, v_dead, 'lease expired with no attempts left', true, p_now);
      killed := cardinality(v_dead);
      v_ids := ARRAY(SELECT i FROM unnest(v_ids) i WHERE i <> ALL (v_dead));
    END IF;
    UPDATE fairlead.message m SET state = 'r', recovered = true, lease_until = NULL, lease_no = NULL,
        permit_id = NULL
      WHERE m.id = ANY (v_ids);
    recovered := coalesce(cardinality(v_ids), 0);
  END IF;

  WITH due AS (
    UPDATE fairlead.message m SET state = 'r' WHERE m.id = ANY (ARRAY(
        SELECT s.id FROM fairlead.message s WHERE s.lane = q.lane AND s.state = 's' AND s.due_at <= p_now
          AND s.due_at >= p_due_floor
        ORDER BY s.due_at LIMIT p_limit FOR UPDATE SKIP LOCKED))
      RETURNING 1)
  SELECT count(*) INTO activated FROM due;
END $$;

-- Fold up to p_limit tally rows into the per-minute history. One folder at a time; others pass by.
CREATE FUNCTION fairlead.fold(p_queue_id int, p_limit int) RETURNS int
LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE v_n int;
BEGIN
  PERFORM 1 FROM fairlead.history h WHERE h.queue_id = p_queue_id AND h.minute = 0 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  WITH gone AS (
    DELETE FROM fairlead.tally t WHERE t.queue_id = p_queue_id AND t.id = ANY (ARRAY(
        SELECT o.id FROM fairlead.tally o WHERE o.queue_id = p_queue_id ORDER BY o.id LIMIT p_limit
        FOR UPDATE SKIP LOCKED))
      RETURNING t.*
  ), summed AS (
    INSERT INTO fairlead.history AS h
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
  RETURN v_n;
END $$;

-- The next p_most channels of one version with something ready, after p_after (NULL: from the
-- start), up to p_upto. Hinted channels are entered at their hint, and only the gaps between them
-- are probed, so that dead index entries of drained messages are not visited. `hints` has the
-- index of the hint that a channel may be read from, or NULL.
CREATE FUNCTION fairlead.walk(p_lane int, p_version int, p_after text, p_upto text, p_most int,
  p_channels text[], p_ranks int[], p_dues bigint[], p_ids bigint[], OUT channels text[], OUT hints int[])
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
  -- Above every name: names have at most 255 bytes.
  v_top CONSTANT text COLLATE "C" := repeat(chr(1114111), 64);
  v_k int := 1;
  v_n int := 0;
  v_after text COLLATE "C" := p_after;
BEGIN
  channels := '{}';
  hints := '{}';
  IF p_after IS NULL THEN
    -- The channel '' sorts before all others; no name is less than it to start after.
    v_after := '';
    IF p_channels[1] = '' THEN
      IF EXISTS (SELECT 1 FROM fairlead.message m WHERE m.lane = p_lane AND m.version = p_version
          AND m.channel = '' AND m.state = 'r' AND m.rank < p_ranks[1]) THEN
        channels := ARRAY[''];
        hints := ARRAY[NULL::int];
      ELSIF EXISTS (SELECT 1 FROM fairlead.message m WHERE m.lane = p_lane AND m.version = p_version
          AND m.channel = '' AND m.state = 'r' AND (m.rank, m.due_at, m.id) > (p_ranks[1], p_dues[1], p_ids[1])) THEN
        channels := ARRAY[''];
        hints := ARRAY[1];
      END IF;
    ELSIF EXISTS (SELECT 1 FROM fairlead.message m WHERE m.lane = p_lane AND m.version = p_version
        AND m.channel = '' AND m.state = 'r') THEN
      channels := ARRAY[''];
      hints := ARRAY[NULL::int];
    END IF;
    v_n := cardinality(channels);
  END IF;
  WHILE p_channels[v_k] <= v_after LOOP
    v_k := v_k + 1;
  END LOOP;
  IF v_n >= p_most THEN
    RETURN;
  END IF;
  IF p_channels[v_k] IS NULL THEN
    -- No hints ahead: plain probes.
    SELECT channels || coalesce(array_agg(s.channel), '{}'),
           hints || coalesce(array_agg(NULL::int), '{}')
      INTO walk.channels, walk.hints
      FROM (
        WITH RECURSIVE step(channel, n) AS (
          SELECT v_after COLLATE "C", v_n
          UNION ALL
          SELECT g.channel, w.n + 1
          FROM step w CROSS JOIN LATERAL (
            SELECT m.channel FROM fairlead.message m
              WHERE m.lane = p_lane AND m.version = p_version AND m.state = 'r'
                AND m.channel > w.channel AND m.channel <= coalesce(p_upto, v_top) COLLATE "C"
              ORDER BY m.channel LIMIT 1) g
          WHERE w.n < p_most
        )
        SELECT channel FROM step OFFSET 1) s;
    RETURN;
  END IF;
  -- (OFFSET 0 keeps the planner from copying a probe into every place that uses its answer.)
  SELECT channels || coalesce(array_agg(s.channel) FILTER (WHERE s.live), '{}'),
         hints || coalesce(array_agg(s.hint) FILTER (WHERE s.live), '{}')
    INTO walk.channels, walk.hints
    FROM (
      WITH RECURSIVE step(channel, k, live, hint, n) AS (
        SELECT v_after COLLATE "C", v_k, false, NULL::int, v_n
        UNION ALL
        SELECT coalesce(g.channel, h.channel) COLLATE "C",
               CASE WHEN g.channel IS NULL THEN w.k + 1 ELSE w.k END,
               g.channel IS NOT NULL OR p.above OR p.ahead,
               CASE WHEN g.channel IS NULL AND NOT p.above THEN w.k END,
               w.n + (g.channel IS NOT NULL OR p.above OR p.ahead)::int
        FROM step w
        CROSS JOIN LATERAL (SELECT CASE WHEN p_channels[w.k] <= coalesce(p_upto, v_top) COLLATE "C" THEN p_channels[w.k] END AS channel OFFSET 0) h
        CROSS JOIN LATERAL (SELECT (
          SELECT m.channel FROM fairlead.message m
            WHERE m.lane = p_lane AND m.version = p_version AND m.state = 'r'
              AND m.channel > w.channel AND m.channel < coalesce(h.channel, v_top) COLLATE "C"
              AND m.channel <= coalesce(p_upto, v_top) COLLATE "C"
            ORDER BY m.channel LIMIT 1) AS channel OFFSET 0) g
        CROSS JOIN LATERAL (SELECT
          CASE WHEN g.channel IS NULL AND h.channel IS NOT NULL THEN EXISTS (
            SELECT 1 FROM fairlead.message m WHERE m.lane = p_lane AND m.version = p_version
              AND m.channel = h.channel AND m.state = 'r' AND m.rank < p_ranks[w.k]) END AS above,
          CASE WHEN g.channel IS NULL AND h.channel IS NOT NULL THEN EXISTS (
            SELECT 1 FROM fairlead.message m WHERE m.lane = p_lane AND m.version = p_version
              AND m.channel = h.channel AND m.state = 'r'
              AND (m.rank, m.due_at, m.id) > (p_ranks[w.k], p_dues[w.k], p_ids[w.k])) END AS ahead OFFSET 0) p
        WHERE w.n < p_most AND coalesce(g.channel, h.channel) IS NOT NULL
      )
      SELECT * FROM step) s;
END $$;

-- Is anything ready that fits the filters? (Only asked when the queue's own rate is the obstacle.)
CREATE FUNCTION fairlead.any_eligible(p_lane int, p_versions int[], p_types text[], p_max_rank int, p_now bigint,
  p_channels text[])
RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT 1 FROM fairlead.message m
    WHERE m.lane = p_lane AND m.state = 'r' AND m.version = ANY (p_versions) AND m.rank <= p_max_rank
      AND (p_channels IS NULL OR m.channel = ANY (p_channels))
      AND (m.expires_at IS NULL OR m.expires_at > p_now) AND (p_types IS NULL OR m.type = ANY (p_types)))
$$;

-- The next channels over several versions; hints serve only a queue of one version.
CREATE FUNCTION fairlead.walk_all(p_lane int, p_versions int[], p_after text, p_upto text, p_most int,
  p_channels text[], p_ranks int[], p_dues bigint[], p_ids bigint[], OUT channels text[], OUT hints int[])
LANGUAGE plpgsql STABLE AS $$
DECLARE w record;
BEGIN
  IF cardinality(p_versions) = 1 THEN
    w := fairlead.walk(p_lane, p_versions[1], p_after, p_upto, p_most, p_channels, p_ranks, p_dues, p_ids);
    channels := w.channels;
    hints := w.hints;
  ELSE
    channels := ARRAY(SELECT DISTINCT c COLLATE "C" FROM unnest(p_versions) v CROSS JOIN LATERAL
      unnest((fairlead.walk(p_lane, v, p_after, p_upto, p_most, '{}', '{}', '{}', '{}')).channels) c
      ORDER BY 1 LIMIT p_most);
    hints := array_fill(NULL::int, ARRAY[cardinality(channels)]);
  END IF;
END $$;

-- The SQL door: receive without a memory. The queue's cursor row keeps the round going; a caller
-- that finds it taken starts at a random place instead of waiting.
CREATE FUNCTION fairlead.receive(p_queue text, p_n int DEFAULT 1, p_lease interval DEFAULT NULL,
  p_version int DEFAULT NULL, p_types text[] DEFAULT NULL, p_min_priority int DEFAULT NULL,
  p_max_bytes bigint DEFAULT NULL, p_permit bigint DEFAULT NULL, p_now bigint DEFAULT NULL)
RETURNS TABLE (id bigint, delivery int, channel text, body bytea, headers jsonb, key text, version int,
  type text, priority int, due_at timestamptz, created_at timestamptz, attempts int, memo bytea,
  lease_until timestamptz, is_json boolean, recovered boolean, group_name text, origin text,
  first_delivered_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  q fairlead.queue := fairlead.queue_row(p_queue);
  v_cursor fairlead.cursor;
  r fairlead.delivery;
  v_all fairlead.delivery[];
BEGIN
  IF p_n IS NULL OR p_n NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'n must be between 1 and 10000' USING ERRCODE = 'FL006';
  END IF;
  SELECT * INTO v_cursor FROM fairlead.cursor k WHERE k.queue_id = q.id FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    v_cursor.channel := chr(33 + (random() * 90)::int);
  END IF;
  v_all := ARRAY(SELECT x FROM fairlead.receive_rows(p_queue, p_n, (extract(epoch FROM p_lease) * 1000000)::bigint,
    p_version, p_types, p_min_priority, p_max_bytes, p_permit, '{}', '{}', v_cursor.channel,
    coalesce(v_cursor.credit, 0), NULL, '{}', '{}', '{}', '{}', NULL, true, 0, 0, false, p_now) x);
  r := v_all[cardinality(v_all)];
  IF v_cursor.queue_id IS NOT NULL AND (r.channel, r.attempts) IS DISTINCT FROM (v_cursor.channel, v_cursor.credit) THEN
    UPDATE fairlead.cursor k SET channel = r.channel, credit = r.attempts WHERE k.queue_id = q.id;
  END IF;
  RETURN QUERY
    SELECT x.id, x.deliveries, x.channel, x.body, convert_from(x.headers, 'UTF8')::jsonb, x.key, x.version, x.type,
      x.priority, to_timestamp(x.due_at / 1000000.0), to_timestamp(x.created_at / 1000000.0), x.attempts, x.memo,
      to_timestamp(x.lease_until / 1000000.0), x.json & 1 = 1, x.recovered = 1, x.group_name, x.origin,
      to_timestamp(x.first_at / 1000000.0)
    FROM unnest(v_all) x WHERE x.id IS NOT NULL
    ORDER BY array_position(string_to_array(r.key, ',')::bigint[], x.id);
END $$;
