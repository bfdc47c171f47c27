-- Fairturn on PostgreSQL: two faster receives for a consumer whose last receive was filled.
--
-- Each does what receive_rows would have done, or it changes nothing and returns no row; then the caller calls
-- receive_rows. They handle only simple cases, and the trailer has only what they know.

-- One message from the next channel after p_after, in a queue without policies whose ready messages all have
-- p_version. The message and the trailer are in one row.
CREATE OR REPLACE FUNCTION fairturn.receive_next(p_queue text, p_lease bigint, p_permit bigint, p_after text, p_version int,
  p_token bigint, p_ack_ids bigint[], p_ack_tokens bigint[])
RETURNS SETOF fairturn.receive_row LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  q record;
  v_now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  v_read bigint := pg_stat_get_xact_tuples_returned('fairturn.message_ready'::regclass);
  v_row fairturn.receive_row;
  t fairturn.receive_trailer;
BEGIN
  SELECT o.id, o.lane, o.lease_us INTO q FROM fairturn.queue o
    WHERE o.name = p_queue AND o.paused = 0 AND o.limit_concurrency IS NULL AND o.limit_rate_count IS NULL
      AND o.max_concurrency IS NULL AND o.rate_count IS NULL AND o.ordered = 0 AND o.channel_paused = 0
      AND o.weight = 1 AND o.events = 0 AND current_setting('transaction_isolation') = 'read committed'
      AND NOT EXISTS (SELECT 1 FROM fairturn.policy p WHERE p.queue_id = o.id)
      AND NOT EXISTS (SELECT 1 FROM fairturn.message m WHERE m.lane = o.lane AND m.state = 'r' AND m.version < p_version)
      AND NOT EXISTS (SELECT 1 FROM fairturn.message m WHERE m.lane = o.lane AND m.state = 'r' AND m.version > p_version)
      AND (p_permit IS NULL OR EXISTS (SELECT 1 FROM fairturn.permit p WHERE p.id = p_permit AND p.expires_at > v_now));
  IF NOT FOUND THEN
    RETURN;
  END IF;
  -- @stop next.take
  UPDATE fairturn.message m SET state = 'l', attempts = m.attempts + 1, deliveries = m.deliveries + 1, token = p_token,
      lease_until = v_now + coalesce(p_lease, m.lease_us, q.lease_us), lease_no = nextval('fairturn.lease_no'),
      permit_id = p_permit, progress = NULL, note = NULL, first_at = coalesce(m.first_at, v_now)
    WHERE m.id = (SELECT coalesce(
      (SELECT r.id FROM fairturn.message r
        WHERE r.lane = q.lane AND r.version = p_version AND r.state = 'r' AND r.channel > p_after
          AND (r.expires_at IS NULL OR r.expires_at > v_now)
        ORDER BY r.channel, r.rank, r.due_at, r.id LIMIT 1 FOR UPDATE SKIP LOCKED),
      (SELECT r.id FROM fairturn.message r
        WHERE r.lane = q.lane AND r.version = p_version AND r.state = 'r' AND r.channel <= p_after
          AND (r.expires_at IS NULL OR r.expires_at > v_now)
        ORDER BY r.channel, r.rank, r.due_at, r.id LIMIT 1 FOR UPDATE SKIP LOCKED)))
    RETURNING m.id, m.channel, m.body, m.headers, m.key, m.version, m.type, -m.rank, m.due_at, m.created_at,
      m.attempts, m.deliveries, m.token, m.memo, m.lease_until, (m.json | (m.begun::int << 3))::smallint, m.recovered::int,
      CASE WHEN m.group_id IS NOT NULL THEN (SELECT g.name FROM fairturn.group_ g WHERE g.id = m.group_id) END,
      CASE WHEN m.origin IS NOT NULL THEN fairturn.queue_named(m.origin) END, m.first_at,
      NULL::fairturn.receive_trailer INTO v_row;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  IF cardinality(p_ack_ids) > 0 THEN
    t.lost := fairturn.ack_rows(p_queue, p_ack_ids, p_ack_tokens, false, v_now);
  END IF;
  INSERT INTO fairturn.tally (queue_id, at, delivered) VALUES (q.id, v_now, 1);
  t.entries_read := least(pg_stat_get_xact_tuples_returned('fairturn.message_ready'::regclass) - v_read, 2147483647);
  v_row.trailer := t;
  RETURN NEXT v_row;
END $$;

-- The queue, if p_channel has no limit, or only one on its concurrency (`most`). (The planner puts this text in
-- the place of the call, so that it is read with the snapshot of the calling statement.)
CREATE OR REPLACE FUNCTION fairturn.lone_channel(p_queue text, p_channel text)
RETURNS TABLE (id int, lane int, lease_us bigint, most int) LANGUAGE sql STABLE AS $$
  SELECT o.id, o.lane, o.lease_us, CASE WHEN p.queue_id IS NULL THEN o.max_concurrency ELSE p.max_concurrency END
  FROM fairturn.queue o LEFT JOIN fairturn.policy p ON p.queue_id = o.id AND p.channel = p_channel
  WHERE o.name = p_queue AND o.paused = 0 AND o.events = 0 AND o.limit_concurrency IS NULL AND o.limit_rate_count IS NULL
    AND CASE WHEN p.queue_id IS NULL THEN o.rate_count IS NULL AND o.ordered = 0 AND o.channel_paused = 0 AND o.weight = 1
        ELSE p.rate_count IS NULL AND p.ordered = 0 AND p.paused = 0 AND p.weight = 1 END
$$;

-- Up to p_n messages of p_channel after the position (p_rank, p_due, p_id), if no other channel or version has
-- anything ready, and nothing more urgent lies before the position. If the channel is limited, its gate is locked
-- (a call that carries acks waits for it), and its leases are counted from p_floor on. A trailer without messages:
-- the acks were carried out, and the channel is closed. The messages are in no particular order.
CREATE OR REPLACE FUNCTION fairturn.receive_lone(p_queue text, p_n int, p_lease bigint, p_permit bigint, p_channel text,
  p_version int, p_rank int, p_due bigint, p_id bigint, p_floor bigint, p_server bigint, p_token bigint,
  p_ack_ids bigint[], p_ack_tokens bigint[])
RETURNS SETOF fairturn.receive_row LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  q record;
  v_now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  v_room int := p_n;
  v_floor bigint;
  v_no bigint;
  v_got int := 0;
  t fairturn.receive_trailer;
  v_last fairturn.receive_row;
  v_read bigint := pg_stat_get_xact_tuples_returned('fairturn.message_ready'::regclass);
BEGIN
  SELECT o.* INTO q FROM fairturn.lone_channel(p_queue, p_channel) o
    WHERE current_setting('transaction_isolation') = 'read committed'
      AND NOT EXISTS (SELECT 1 FROM fairturn.message m WHERE m.lane = o.lane AND m.state = 'r' AND m.version < p_version)
      AND NOT EXISTS (SELECT 1 FROM fairturn.message m WHERE m.lane = o.lane AND m.state = 'r' AND m.version > p_version)
      AND NOT EXISTS (SELECT 1 FROM fairturn.message m WHERE m.lane = o.lane AND m.state = 'r'
        AND m.version = p_version AND m.channel < p_channel)
      AND NOT EXISTS (SELECT 1 FROM fairturn.message m WHERE m.lane = o.lane AND m.state = 'r'
        AND m.version = p_version AND m.channel > p_channel)
      AND NOT EXISTS (SELECT 1 FROM fairturn.message m WHERE m.lane = o.lane AND m.state = 'r'
        AND m.version = p_version AND m.channel = p_channel AND m.rank < p_rank)
      AND (p_permit IS NULL OR EXISTS (SELECT 1 FROM fairturn.permit p WHERE p.id = p_permit AND p.expires_at > v_now));
  IF NOT FOUND THEN
    RETURN;
  END IF;
  IF q.most IS NOT NULL THEN
    PERFORM fairturn.share_gates(q.id);
    IF cardinality(p_ack_ids) > 0 THEN
      PERFORM 1 FROM fairturn.gate g WHERE g.queue_id = q.id AND g.channel = p_channel FOR UPDATE;
    ELSE
      PERFORM 1 FROM fairturn.gate g WHERE g.queue_id = q.id AND g.channel = p_channel FOR UPDATE SKIP LOCKED;
    END IF;
    IF NOT FOUND THEN
      RETURN;
    END IF;
    -- @stop lone.gate
    -- Drawn while the gate is locked, so that it only grows within the channel.
    v_no := nextval('fairturn.lease_no');
  END IF;
  IF cardinality(p_ack_ids) > 0 THEN
    t.lost := fairturn.ack_rows(p_queue, p_ack_ids, p_ack_tokens, false, v_now);
  END IF;
  IF q.most IS NOT NULL THEN
    -- A new statement under the gate: the count is exact, and the limit is the present one.
    SELECT least(p_n, coalesce(o.most, p_n) - l.n), coalesce(l.floor, v_no) INTO v_room, v_floor
      FROM fairturn.lone_channel(p_queue, p_channel) o CROSS JOIN LATERAL (
        SELECT count(*)::int AS n, min(z.lease_no) AS floor FROM (
          SELECT m.lease_no FROM fairturn.message m
          WHERE m.lane = o.lane AND m.channel = p_channel AND m.state = 'l'
            AND m.lease_no >= CASE WHEN p_server = fairturn.server_mark() THEN p_floor ELSE 0 END
          ORDER BY m.lease_no LIMIT coalesce(o.most, 0)) z) l
      WHERE o.lane = q.lane;
  END IF;
  IF v_room > 0 THEN
    RETURN QUERY
      UPDATE fairturn.message m SET state = 'l', attempts = m.attempts + 1, deliveries = m.deliveries + 1, token = p_token,
          lease_until = v_now + coalesce(p_lease, m.lease_us, q.lease_us),
          lease_no = coalesce(v_no, nextval('fairturn.lease_no')), permit_id = p_permit, progress = NULL, note = NULL,
          first_at = coalesce(m.first_at, v_now)
        WHERE m.id = ANY (ARRAY(
          SELECT r.id FROM fairturn.message r
          WHERE r.lane = q.lane AND r.version = p_version AND r.channel = p_channel AND r.state = 'r'
            AND (r.rank, r.due_at, r.id) > (p_rank, p_due, p_id) AND (r.expires_at IS NULL OR r.expires_at > v_now)
          ORDER BY r.rank, r.due_at, r.id LIMIT v_room FOR UPDATE SKIP LOCKED))
        RETURNING m.id, m.channel, m.body, m.headers, m.key, m.version, m.type, -m.rank, m.due_at, m.created_at,
          m.attempts, m.deliveries, m.token, m.memo, m.lease_until, (m.json | (m.begun::int << 3))::smallint, m.recovered::int,
          CASE WHEN m.group_id IS NOT NULL THEN (SELECT g.name FROM fairturn.group_ g WHERE g.id = m.group_id) END,
          CASE WHEN m.origin IS NOT NULL THEN fairturn.queue_named(m.origin) END, m.first_at,
          NULL::fairturn.receive_trailer;
    GET DIAGNOSTICS v_got = ROW_COUNT;
  END IF;
  IF v_got > 0 THEN
    INSERT INTO fairturn.tally (queue_id, at, delivered) VALUES (q.id, v_now, v_got);
  ELSIF t.lost IS NULL THEN
    RETURN;
  END IF;
  t.channel := p_channel;
  t.entries_read := least(pg_stat_get_xact_tuples_returned('fairturn.message_ready'::regclass) - v_read, 2147483647);
  IF v_floor IS NOT NULL THEN
    t.floors := jsonb_build_object(p_channel, v_floor);
    t.server := fairturn.server_mark();
  END IF;
  v_last.trailer := t;
  RETURN NEXT v_last;
END $$;
