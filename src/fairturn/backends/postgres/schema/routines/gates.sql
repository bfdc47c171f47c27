-- Fairturn on PostgreSQL: which channels are open, and the gates that are locked while limited channels deliver.

-- Which server this is, and which database of it. The numbers of leases (lease_no) are its own: after a failover or a
-- restore they begin again from an earlier one, and floors of the server before would hide leases.
CREATE OR REPLACE FUNCTION fairturn.server_mark() RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint # 'fairturn.lease_no'::regclass::oid::bigint
$$;

-- How many messages each channel may deliver now, by its policy: `room` (NULL: no limit, 0: closed). `gated`: it
-- may deliver only under its gate. `wait`: only its rate keeps it closed, for so long. p_floors maps a channel to
-- the oldest live lease that the consumer saw: leases are counted from there on. p_all: the caller holds all gates,
-- so that a gate is only read for its rate.
CREATE OR REPLACE FUNCTION fairturn.judge(q fairturn.queue, p_names text[], p_floors jsonb, p_all boolean, p_now bigint)
RETURNS TABLE (i bigint, channel text, weight int, gated boolean, room int, ordered boolean,
               "interval" bigint, wait bigint, has_gate boolean, floor bigint)
LANGUAGE plpgsql VOLATILE ROWS 100 AS $$
#variable_conflict use_column
DECLARE
  -- If no channel has a policy, or needs its gate, none is looked up.
  v_own boolean := EXISTS (SELECT 1 FROM fairturn.policy p WHERE p.queue_id = q.id);
  v_gates boolean := v_own OR q.rate_count IS NOT NULL OR NOT p_all;
BEGIN
  RETURN QUERY
  SELECT u.i, u.channel, e.weight, e.conc IS NOT NULL OR e.step IS NOT NULL OR e.ordered,
    CASE WHEN e.paused OR s.blocked THEN 0
         ELSE least(e.conc - l.n, r.allowed, 2147483647)::int END,
    e.ordered, e.step,
    CASE WHEN NOT e.paused AND NOT s.blocked AND r.allowed = 0 AND (e.conc IS NULL OR e.conc > l.n)
         THEN r.base - r.tolerance - p_now END,
    g.queue_id IS NOT NULL, l.floor
  FROM unnest(p_names) WITH ORDINALITY u(channel, i)
  -- (OFFSET 0: one probe for each name. With plain joins, all policies and gates of the queue are read and
  -- compared with every name: 1,000 limited channels were twice as slow.)
  LEFT JOIN LATERAL (SELECT * FROM fairturn.policy x
    WHERE v_own AND x.queue_id = q.id AND x.channel = u.channel OFFSET 0) p ON true
  LEFT JOIN LATERAL (SELECT * FROM fairturn.gate x
    WHERE v_gates AND x.queue_id = q.id AND x.channel = u.channel OFFSET 0) g ON true
  CROSS JOIN LATERAL (SELECT
    CASE WHEN p.queue_id IS NULL THEN q.max_concurrency ELSE p.max_concurrency END AS conc,
    CASE WHEN p.queue_id IS NULL THEN (q.rate_period_us + q.rate_count - 1) / q.rate_count
         ELSE (p.rate_period_us + p.rate_count - 1) / p.rate_count END AS step,
    coalesce(p.burst, q.burst) AS burst,
    coalesce(p.weight, q.weight) AS weight,
    coalesce(p.paused, q.channel_paused) <> 0 AS paused,
    coalesce(p.ordered, q.ordered) <> 0 AS ordered) e
  CROSS JOIN LATERAL (
    SELECT count(*)::int AS n, min(z.lease_no) AS floor FROM (
      SELECT m.lease_no FROM fairturn.message m
      WHERE m.lane = q.lane AND m.channel = u.channel AND m.state = 'l'
        AND m.lease_no >= coalesce((p_floors ->> u.channel)::bigint, 0)
      ORDER BY m.lease_no
      LIMIT CASE WHEN e.conc IS NOT NULL THEN e.conc WHEN e.ordered THEN 1 ELSE 0 END) z) l
  CROSS JOIN LATERAL (SELECT e.ordered AND (l.n > 0 OR EXISTS (
      SELECT 1 FROM fairturn.message b
      WHERE b.lane = q.lane AND b.channel = u.channel AND b.begun AND b.state IN ('s', 'l'))) AS blocked) s
  CROSS JOIN LATERAL (SELECT b.base, b.tolerance,
      CASE WHEN e.step IS NULL THEN NULL WHEN b.base - p_now > b.tolerance THEN 0
           ELSE least((b.tolerance - (b.base - p_now)) / e.step + 1, 2147483647) END AS allowed
    FROM (SELECT greatest(coalesce(g.tat, 0), p_now) AS base, (e.burst - 1) * e.step AS tolerance) b) r
  ORDER BY u.i;
END $$;

-- Taken before single gates are locked: see open_channels. (An advisory lock is a pair of numbers. The number of
-- the table is part of it, so that two schemas of one database have different locks.)
CREATE OR REPLACE FUNCTION fairturn.share_gates(p_queue_id int) RETURNS void LANGUAGE sql AS $$
  SELECT pg_advisory_xact_lock_shared(hashtext('fairturn.gate'::regclass::oid::text), p_queue_id)
$$;

-- Those of the named channels that are open, in their order, at most p_need. The gate of a limited channel is
-- locked, and its leases are counted again under the lock. `looked`: how many names were judged. The gates of
-- p_wait (channels whose acks this call carries) are waited for. Other gates are skipped while another session
-- holds them. `wait`, `waiting`: how long the rates of which channels keep them closed.
--
-- A large batch tries to take all gates of the queue with one lock instead of hundreds; then the channels are
-- judged only once. It does so only if p_own, in a transaction that ends with this call, so that others do not
-- wait for long. While other sessions hold gates, it locks them one by one like everybody.
CREATE OR REPLACE FUNCTION fairturn.open_channels(q fairturn.queue, p_names text[], p_need int, p_wait text[],
  p_floors jsonb, p_own boolean, p_given bigint, OUT channels text[], OUT weights int[], OUT rooms int[],
  OUT ordered boolean[], OUT intervals bigint[], OUT wait bigint, OUT waiting text[], OUT looked int,
  OUT floors jsonb, OUT lease_no bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_names text[];
  v_gates text[];
  v_missing text[];
  -- Objects as sets of names: a lookup in an array would read the whole array.
  v_waited jsonb;
  v_locked jsonb;
BEGIN
  channels := '{}'; weights := '{}'; rooms := '{}'; ordered := '{}'; intervals := '{}';
  IF p_own AND p_need >= 32
     AND pg_try_advisory_xact_lock(hashtext('fairturn.gate'::regclass::oid::text), q.id) THEN
    -- @stop receive.gates
    q := fairturn.queue_again(q);
    open_channels.lease_no := nextval('fairturn.lease_no');
    WITH j AS (
      SELECT j.*, count(*) FILTER (WHERE j.room IS DISTINCT FROM 0) OVER (ORDER BY j.i) AS rank
      FROM fairturn.judge(q, p_names, p_floors, true, fairturn.now_us(p_given)) j
    ), head AS (
      SELECT j.*, j.room IS DISTINCT FROM 0 AS open FROM j
      WHERE j.rank <= p_need AND NOT (j.rank = p_need AND j.room = 0) ORDER BY j.i)
    -- (The rows are in order: an ORDER BY in each aggregate would sort them five more times.)
    SELECT count(*), array_agg(h.channel) FILTER (WHERE h.open),
        array_agg(h.weight) FILTER (WHERE h.open),
        array_agg(coalesce(h.room, 2147483647)) FILTER (WHERE h.open),
        array_agg(h.ordered) FILTER (WHERE h.open),
        array_agg(h."interval") FILTER (WHERE h.open),
        jsonb_object_agg(h.channel, coalesce(h.floor, lease_no)) FILTER (WHERE h.open AND h.gated),
        array_agg(h.channel) FILTER (WHERE h.open AND h."interval" IS NOT NULL AND NOT h.has_gate),
        min(h.wait), array_agg(h.channel) FILTER (WHERE h.wait IS NOT NULL)
      INTO looked, channels, weights, rooms, ordered, intervals, floors, v_missing,
        open_channels.wait, waiting FROM head h;
    IF v_missing IS NOT NULL THEN
      -- The gate stores the time of the rate.
      INSERT INTO fairturn.gate (queue_id, channel) SELECT q.id, c FROM unnest(v_missing) c
        ON CONFLICT (queue_id, channel) DO NOTHING;
    END IF;
    channels := coalesce(channels, '{}');
    RETURN;
  END IF;
  PERFORM fairturn.share_gates(q.id);
  IF cardinality(p_names) = 1 AND p_names <@ p_wait THEN
    -- The ack that this call carries has just made room: go to the gate directly.
    SELECT ARRAY[g.channel] INTO v_gates FROM fairturn.gate g WHERE g.queue_id = q.id AND g.channel = p_names[1];
    looked := 1;
    v_names := p_names;
  END IF;
  IF v_gates IS NULL THEN
    -- First without locks: a closed channel costs one probe, and its gate is not locked for nothing.
    WITH j AS (
      SELECT j.*, count(*) FILTER (WHERE j.room IS DISTINCT FROM 0) OVER (ORDER BY j.i) AS rank
      FROM fairturn.judge(q, p_names, p_floors, false, fairturn.now_us(p_given)) j
    ), head AS (
      SELECT * FROM j WHERE j.rank <= p_need AND NOT (j.rank = p_need AND j.room = 0))
    SELECT count(*), array_agg(h.channel ORDER BY h.i) FILTER (WHERE h.room IS DISTINCT FROM 0),
        array_agg(h.channel) FILTER (WHERE h.gated AND h.room > 0),
        array_agg(h.channel ORDER BY h.channel COLLATE "C") FILTER (WHERE h.gated AND h.room > 0 AND NOT h.has_gate),
        min(h.wait), array_agg(h.channel) FILTER (WHERE h.wait IS NOT NULL)
      INTO looked, v_names, v_gates, v_missing, open_channels.wait, waiting FROM head h;
  END IF;
  IF v_names IS NULL THEN
    RETURN;
  END IF;
  -- @stop receive.judge
  IF v_gates IS NOT NULL THEN
    IF v_missing IS NOT NULL THEN
      -- Another session may be inserting the same gate in an open transaction. It holds the advisory lock then,
      -- and the channel is skipped instead of waited for. (At most 4,096 locks, because they are a scarce
      -- resource. So one new channel in 4,096 is skipped because of another channel.)
      INSERT INTO fairturn.gate (queue_id, channel)
        SELECT q.id, c FROM unnest(v_missing) c
        WHERE pg_try_advisory_xact_lock(hashtext('fairturn.gate'), hashtext(q.id || '.' || c) & 4095)
        ON CONFLICT (queue_id, channel) DO NOTHING;
    END IF;
    IF p_wait IS NOT NULL THEN
      v_waited := (SELECT jsonb_object_agg(c, 1) FROM unnest(p_wait) c);
      PERFORM 1 FROM fairturn.gate g
        WHERE g.queue_id = q.id AND g.channel = ANY (ARRAY(
          SELECT c FROM unnest(v_gates) c WHERE v_waited ? c ORDER BY c COLLATE "C"))
        ORDER BY g.channel FOR UPDATE;
    END IF;
    SELECT coalesce(jsonb_object_agg(x.channel, 1), '{}') INTO v_locked FROM (
      SELECT g.channel FROM fairturn.gate g WHERE g.queue_id = q.id AND g.channel = ANY (v_gates)
      ORDER BY g.channel FOR UPDATE SKIP LOCKED) x;
    -- @stop receive.gate
    v_names := ARRAY(SELECT u.c FROM unnest(v_names) WITH ORDINALITY u(c, i)
      WHERE v_locked ? u.c OR u.c <> ALL (v_gates) ORDER BY u.i);
    -- The policy may have changed before the gate was locked.
    q := fairturn.queue_again(q);
    -- Drawn while the gates are locked, so that it only grows within a limited channel.
    lease_no := nextval('fairturn.lease_no');
  END IF;
  -- A new statement has a new snapshot under READ COMMITTED, so the count is exact. The clock is read after
  -- the lock, so that the time of the rate never goes back.
  SELECT array_agg(j.channel ORDER BY j.i), array_agg(j.weight ORDER BY j.i),
      array_agg(coalesce(j.room, 2147483647) ORDER BY j.i), array_agg(j.ordered ORDER BY j.i),
      array_agg(j."interval" ORDER BY j.i),
      -- If nothing is leased now, counting may start at the next lease.
      jsonb_object_agg(j.channel, coalesce(j.floor, lease_no)) FILTER (WHERE j.gated)
    INTO channels, weights, rooms, ordered, intervals, floors
    FROM fairturn.judge(q, v_names, p_floors, false, fairturn.now_us(p_given)) j
    WHERE j.room IS DISTINCT FROM 0 AND (NOT j.gated OR v_locked ? j.channel);
  IF channels IS NULL AND open_channels.wait IS NULL AND v_names = p_names THEN
    SELECT min(j.wait), array_agg(j.channel) FILTER (WHERE j.wait IS NOT NULL) INTO open_channels.wait, waiting
      FROM fairturn.judge(q, v_names, p_floors, false, fairturn.now_us(p_given)) j;
  END IF;
  channels := coalesce(channels, '{}');
END $$;

-- The next messages of an ordered channel, without its first p_skip: those that were delivered before
-- (`begun`), by id, then the rest. (By id, because a retry has a later due time than the messages behind it, and
-- they must not overtake it.) A row that another session has locked, or that does not fit the filters, ends the
-- list, because nothing may overtake it.
CREATE OR REPLACE FUNCTION fairturn.take_ordered(p_lane int, p_channel text, p_skip int, p_quota int, p_version int,
  p_types text[], p_max_rank int, p_now bigint)
RETURNS TABLE (id bigint, rank int, due_at bigint, j bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  r record;
  v_n int := 0;
  v_most int := p_skip + p_quota;
BEGIN
  FOR r IN
    SELECT x.*, fairturn.lock_row(x.id, p_channel, x.rank, x.due_at, x.version, x.type) AS locked FROM (
      SELECT * FROM (
        (SELECT m.id, m.rank, m.due_at, true AS begun, m.version, m.type, m.expires_at FROM fairturn.message m
          WHERE m.lane = p_lane AND m.channel = p_channel AND m.begun AND m.state = 'r'
          ORDER BY m.rank, m.id LIMIT v_most)
        UNION ALL
        (SELECT y.* FROM unnest(fairturn.ready_versions(p_lane)) v CROSS JOIN LATERAL (
          SELECT m.id, m.rank, m.due_at, false, m.version, m.type, m.expires_at FROM fairturn.message m
          WHERE m.lane = p_lane AND m.version = v AND m.channel = p_channel AND m.state = 'r' AND NOT m.begun
          ORDER BY m.rank, m.due_at, m.id LIMIT v_most) y)) b
      ORDER BY b.begun DESC, b.rank, CASE WHEN NOT b.begun THEN b.due_at END, b.id LIMIT v_most) x
  LOOP
    EXIT WHEN NOT r.locked OR r.rank > p_max_rank OR (p_version IS NOT NULL AND r.version <> p_version)
      OR (p_types IS NOT NULL AND (r.type IS NULL OR r.type <> ALL (p_types))) OR r.expires_at <= p_now;
    v_n := v_n + 1;
    CONTINUE WHEN v_n <= p_skip;
    id := r.id; rank := r.rank; due_at := r.due_at; j := v_n - p_skip;
    RETURN NEXT;
  END LOOP;
END $$;

-- Lock a ready row. False if another session has locked it, or if it has changed since it was read: a
-- reschedule or a replace may have given it another place or another channel.
CREATE OR REPLACE FUNCTION fairturn.lock_row(p_id bigint, p_channel text, p_rank int, p_due bigint, p_version int, p_type text)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  -- @stop ordered.lock
  PERFORM 1 FROM fairturn.message m
    WHERE m.id = p_id AND m.state = 'r' AND m.channel = p_channel AND m.rank = p_rank AND m.due_at = p_due
      AND m.version = p_version AND m.type IS NOT DISTINCT FROM p_type
    FOR UPDATE SKIP LOCKED;
  RETURN FOUND;
END $$;

-- Lock up to quotas[i] eligible messages of channels[i] after the position (ranks, dues, ids)[i].
-- The result is in the order of the turns: in each turn a channel delivers weights[i] messages; of the first turn,
-- offs[i] have been delivered before. `credits`: how much of the turn is left after each message. p_skips: how
-- many messages of an ordered channel this call has taken before.
CREATE OR REPLACE FUNCTION fairturn.take(p_lane int, p_versions int[], p_version int, p_channels text[], p_quotas int[],
  p_weights int[], p_offs int[], p_ranks int[], p_dues bigint[], p_ids bigint[], p_ordered boolean[],
  p_skips int[], p_types text[], p_max_rank int, p_now bigint,
  OUT ids bigint[], OUT idx int[], OUT credits int[], OUT ranks int[], OUT dues bigint[])
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_version int := p_versions[1];
BEGIN
  -- @stop receive.take
  IF cardinality(p_versions) = 1 AND p_ordered IS NULL THEN
    SELECT array_agg(s.id), array_agg(s.i), array_agg(s.credit), array_agg(s.rank), array_agg(s.due_at)
      INTO take.ids, take.idx, take.credits, take.ranks, take.dues FROM (
      SELECT y.id, c.i::int AS i, (c.w - 1 - (c.off + y.j - 1) % c.w)::int AS credit, y.rank, y.due_at
      FROM unnest(p_channels, p_quotas, p_weights, p_offs, p_ranks, p_dues, p_ids) WITH ORDINALITY
        c(channel, quota, w, off, rank, due, id, i)
      CROSS JOIN LATERAL (
        SELECT z.id, z.rank, z.due_at, row_number() OVER () AS j FROM (
          SELECT m.id, m.rank, m.due_at FROM fairturn.message m
          WHERE m.lane = p_lane AND m.version = v_version AND m.channel = c.channel AND m.state = 'r'
            AND (m.rank, m.due_at, m.id) > (c.rank, c.due, c.id) AND m.rank <= p_max_rank
            AND (m.expires_at IS NULL OR m.expires_at > p_now)
            AND (p_types IS NULL OR m.type = ANY (p_types))
          ORDER BY m.rank, m.due_at, m.id LIMIT c.quota FOR UPDATE SKIP LOCKED) z) y
      WHERE c.quota > 0
      ORDER BY (c.off + y.j - 1) / c.w, c.i, y.j) s;
  ELSE
    SELECT array_agg(s.id), array_agg(s.i), array_agg(s.credit), array_agg(s.rank), array_agg(s.due_at)
      INTO take.ids, take.idx, take.credits, take.ranks, take.dues FROM (
      SELECT y.id, c.i::int AS i, (c.w - 1 - (c.off + y.j - 1) % c.w)::int AS credit, y.rank, y.due_at
      FROM unnest(p_channels, p_quotas, p_weights, p_offs, p_ranks, p_dues, p_ids, p_ordered, p_skips)
        WITH ORDINALITY c(channel, quota, w, off, rank, due, id, ordered, skip, i)
      CROSS JOIN LATERAL (
        SELECT x.id, x.rank, x.due_at, row_number() OVER (ORDER BY x.rank, x.due_at, x.id) AS j FROM (
          SELECT z.* FROM unnest(p_versions) v CROSS JOIN LATERAL (
            SELECT m.id, m.rank, m.due_at FROM fairturn.message m
            WHERE m.lane = p_lane AND m.version = v AND m.channel = c.channel AND m.state = 'r'
              AND NOT coalesce(c.ordered, false)
              AND (m.rank, m.due_at, m.id) > (c.rank, c.due, c.id) AND m.rank <= p_max_rank
              AND (m.expires_at IS NULL OR m.expires_at > p_now)
              AND (p_types IS NULL OR m.type = ANY (p_types))
            ORDER BY m.rank, m.due_at, m.id LIMIT c.quota FOR UPDATE SKIP LOCKED) z
          ORDER BY z.rank, z.due_at, z.id LIMIT c.quota) x
        UNION ALL
        SELECT t.id, t.rank, t.due_at, t.j FROM fairturn.take_ordered(p_lane, c.channel, c.skip,
          CASE WHEN c.ordered THEN c.quota ELSE 0 END, p_version, p_types, p_max_rank, p_now) t) y
      WHERE c.quota > 0
      ORDER BY (c.off + y.j - 1) / c.w, c.i, y.j) s;
  END IF;
  ids := coalesce(ids, '{}');
  idx := coalesce(idx, '{}');
END $$;
