-- Fairlead on PostgreSQL: the shortest way to receive, for a consumer that knows the queue's only
-- channel and version and has just been given a full batch from there.

-- Leases from p_channel after the position (p_rank, p_due, p_id), if the queue has no policy, limit
-- or pause, no other channel and version with something ready, and nothing more urgent before the
-- position. Otherwise it does nothing and returns no row at all: the caller then takes the long way
-- (receive_rows). The last row is that of receive_rows; the others come back as the key finds them.
CREATE FUNCTION fairlead.receive_lone(p_queue text, p_n int, p_lease bigint, p_channel text, p_version int,
  p_rank int, p_due bigint, p_id bigint, p_ack_ids bigint[], p_ack_deliveries int[])
RETURNS SETOF fairlead.delivery LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  q record;
  v_now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
  v_got int;
  v_lost bigint[];
  v_read bigint := pg_stat_get_xact_tuples_returned('fairlead.message_ready'::regclass);
BEGIN
  SELECT o.id, o.lane, o.lease_us INTO q FROM fairlead.queue o
    WHERE o.name = p_queue AND o.paused = 0 AND o.limit_concurrency IS NULL AND o.limit_rate_count IS NULL
      AND o.max_concurrency IS NULL AND o.rate_count IS NULL AND o.ordered = 0 AND o.channel_paused = 0
      AND o.weight = 1 AND current_setting('transaction_isolation') = 'read committed'
      AND NOT EXISTS (SELECT 1 FROM fairlead.policy p WHERE p.queue_id = o.id)
      AND NOT EXISTS (SELECT 1 FROM fairlead.message m WHERE m.lane = o.lane AND m.state = 'r' AND m.version < p_version)
      AND NOT EXISTS (SELECT 1 FROM fairlead.message m WHERE m.lane = o.lane AND m.state = 'r' AND m.version > p_version)
      AND NOT EXISTS (SELECT 1 FROM fairlead.message m WHERE m.lane = o.lane AND m.state = 'r'
        AND m.version = p_version AND m.channel < p_channel)
      AND NOT EXISTS (SELECT 1 FROM fairlead.message m WHERE m.lane = o.lane AND m.state = 'r'
        AND m.version = p_version AND m.channel > p_channel)
      AND NOT EXISTS (SELECT 1 FROM fairlead.message m WHERE m.lane = o.lane AND m.state = 'r'
        AND m.version = p_version AND m.channel = p_channel AND m.rank < p_rank);
  IF NOT FOUND THEN
    RETURN;
  END IF;
  RETURN QUERY
    UPDATE fairlead.message m SET state = 'l', attempts = m.attempts + 1, deliveries = m.deliveries + 1,
        lease_until = v_now + coalesce(p_lease, m.lease_us, q.lease_us), lease_no = nextval('fairlead.lease_no'),
        permit_id = NULL
      WHERE m.id = ANY (ARRAY(
        SELECT r.id FROM fairlead.message r
        WHERE r.lane = q.lane AND r.version = p_version AND r.channel = p_channel AND r.state = 'r'
          AND (r.rank, r.due_at, r.id) > (p_rank, p_due, p_id) AND (r.expires_at IS NULL OR r.expires_at > v_now)
        ORDER BY r.rank, r.due_at, r.id LIMIT p_n FOR UPDATE SKIP LOCKED))
      RETURNING m.id, m.channel, m.body, m.headers, m.key, m.version, m.type, -m.rank, m.due_at, m.created_at,
        m.attempts, m.deliveries, m.memo, m.lease_until, m.json, m.recovered::int;
  GET DIAGNOSTICS v_got = ROW_COUNT;
  IF v_got = 0 THEN
    RETURN;
  END IF;
  IF cardinality(p_ack_ids) > 0 THEN
    v_lost := fairlead.ack_rows(p_queue, p_ack_ids, p_ack_deliveries, false, v_now);
  END IF;
  INSERT INTO fairlead.tally (queue_id, at, delivered) VALUES (q.id, v_now, v_got);
  RETURN NEXT (NULL, p_channel, NULL,
    CASE WHEN cardinality(v_lost) > 0 THEN convert_to(jsonb_build_object('lost', v_lost)::text, 'UTF8') END, NULL,
    least(pg_stat_get_xact_tuples_returned('fairlead.message_ready'::regclass) - v_read, 2147483647)::int,
    NULL, NULL, NULL, v_now, 0, NULL, NULL, NULL, NULL, 0)::fairlead.delivery;
END $$;
