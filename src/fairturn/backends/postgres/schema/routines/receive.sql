-- Fairturn on PostgreSQL: receive.
--
-- docs/semantics.md §4 says what each step promises. The place in the round is the consumer's own state (last
-- channel served, credit left of its turn); there is no row for a channel that a receive would write. Lock order:
-- queue gate, channel gates by name, messages.
--
-- receive_rows sets the planner's options for all functions that it calls: a plan that was cached while the
-- table was empty must not be a sequential scan when a million rows have arrived, and no call is planned again.
-- These functions have no settings of their own, because each setting costs time.

-- The whole receive: rows with messages, then one with the trailer.
CREATE OR REPLACE FUNCTION fairturn.receive_rows(
  p_queue text, p_n int, p_lease bigint, p_version int, p_types text[], p_min_priority int,
  p_max_bytes bigint, p_permit bigint, p_ack_ids bigint[], p_ack_tokens bigint[], p_channel text,
  p_credit int, p_versions int[], p_hint_channels text[], p_hint_ranks int[], p_hint_dues bigint[],
  p_hint_ids bigint[], p_floors jsonb, p_server bigint, p_sweep boolean, p_lease_floor bigint, p_due_floor bigint, p_own boolean, p_token bigint, p_now bigint)
RETURNS SETOF fairturn.receive_row LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  v_now bigint := fairturn.now_us(p_now);
  v_max_rank int := coalesce(-p_min_priority, 2147483647);
  v_lost bigint[] := '{}';
  v_ack_channels text[];
  v_sweep boolean := p_sweep OR p_now IS NOT NULL;
  v_swept boolean := false;
  v_hints boolean := true;
  v_chosen boolean := false;
  s record;
  c record;
  v_no bigint;
  v_floors jsonb := CASE WHEN p_floors IS NOT NULL AND p_server = fairturn.server_mark() THEN p_floors END;
  t fairturn.receive_trailer;
  v_last fairturn.receive_row;
  v_read bigint := pg_stat_get_xact_tuples_returned('fairturn.message_ready'::regclass);
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'receive needs the isolation level READ COMMITTED, this transaction has %',
      upper(current_setting('transaction_isolation')) USING ERRCODE = 'FT007';
  END IF;
  IF p_permit IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM fairturn.permit p WHERE p.id = p_permit AND p.expires_at > v_now) THEN
    RAISE EXCEPTION 'permit % has expired', p_permit USING ERRCODE = 'FT008', DETAIL = p_permit::text;
  END IF;
  -- @stop receive.start
  IF cardinality(p_ack_ids) > 0 THEN
    -- (A large batch takes all gates at once, or skips those that are locked.)
    IF NOT (p_own AND p_n >= 32) AND (q.max_concurrency IS NOT NULL OR q.rate_count IS NOT NULL OR q.ordered <> 0
       OR EXISTS (SELECT 1 FROM fairturn.policy p WHERE p.queue_id = q.id)) THEN
      v_ack_channels := ARRAY(SELECT DISTINCT m.channel FROM fairturn.message m WHERE m.id = ANY (p_ack_ids));
    END IF;
    v_lost := fairturn.ack_rows(p_queue, p_ack_ids, p_ack_tokens, false, p_now);
    -- @stop receive.acked
  END IF;

  LOOP
    IF v_sweep THEN
      v_swept := true;
      s := fairturn.sweep(q, 1000, v_now, coalesce(p_lease_floor, 0), coalesce(p_due_floor, 0));
      EXIT WHEN v_chosen AND s.activated + s.recovered + s.killed + s.removed = 0; -- nothing changed
      v_hints := s.recovered = 0; -- recovered messages lie before the hints
    END IF;
    IF q.paused <> 0 THEN
      SELECT '{}'::bigint[] AS ids, p_channel AS channel, p_credit AS credit INTO c;
      EXIT WHEN v_swept;
      v_sweep := true;
    ELSE
      c := fairturn.choose(q, p_n, p_version, p_types, v_max_rank, p_max_bytes, p_channel, p_credit,
        CASE WHEN v_hints THEN p_versions END, CASE WHEN v_hints THEN p_hint_channels ELSE '{}' END,
        p_hint_ranks, p_hint_dues, p_hint_ids, v_floors, v_ack_channels, p_own, p_now);
      EXIT WHEN v_swept OR cardinality(c.ids) >= p_n;
      v_sweep := true;
      v_chosen := true;
    END IF;
  END LOOP;

  IF cardinality(c.ids) > 0 THEN
    v_no := coalesce(c.lease_no, nextval('fairturn.lease_no'));
    -- @stop receive.lease
    RETURN QUERY
      UPDATE fairturn.message m SET state = 'l', attempts = m.attempts + 1, deliveries = m.deliveries + 1, token = p_token,
          lease_until = v_now + coalesce(p_lease, m.lease_us, q.lease_us), lease_no = v_no,
          permit_id = p_permit, begun = m.begun OR m.channel = ANY (c.ordered), progress = NULL, note = NULL,
          first_at = coalesce(m.first_at, v_now)
        WHERE m.id = ANY (c.ids)
        RETURNING m.id, m.channel, m.body, m.headers, m.key, m.version, m.type, -m.rank, m.due_at,
          m.created_at, m.attempts, m.deliveries, m.token, m.memo, m.lease_until, (m.json | (m.begun::int << 3))::smallint, m.recovered::int,
          CASE WHEN m.group_id IS NOT NULL THEN (SELECT g.name FROM fairturn.group_ g WHERE g.id = m.group_id) END,
          CASE WHEN m.origin IS NOT NULL THEN fairturn.queue_named(m.origin) END, m.first_at,
          NULL::fairturn.receive_trailer;
    INSERT INTO fairturn.tally (queue_id, at, delivered) VALUES (q.id, v_now, cardinality(c.ids));
    IF q.events <> 0 THEN
      PERFORM fairturn.tell(q, 'leased', c.ids, v_now);
    END IF;
    IF c.paying IS NOT NULL THEN
      UPDATE fairturn.gate g SET tat = greatest(g.tat, c.clock) + x.price
        FROM unnest(c.paying, c.prices) x(channel, price)
        WHERE g.queue_id = q.id AND g.channel = x.channel;
    END IF;
    IF c.price IS NOT NULL THEN
      UPDATE fairturn.queue_gate g SET tat = greatest(g.tat, c.clock) + c.price WHERE g.queue_id = q.id;
    END IF;
  ELSIF q.paused = 0 THEN
    SELECT least((SELECT m.due_at - v_now FROM fairturn.message m WHERE m.lane = q.lane AND m.state = 's'
                    AND m.due_at >= coalesce(p_due_floor, 0) ORDER BY m.due_at LIMIT 1),
                 (SELECT m.lease_until - v_now FROM fairturn.message m WHERE m.lane = q.lane AND m.state = 'l'
                    AND m.lease_until >= coalesce(p_lease_floor, 0) ORDER BY m.lease_until LIMIT 1),
                 c.wait) INTO t.retry_after_us;
    t.retry_after_us := CASE WHEN c.more THEN 0 WHEN t.retry_after_us < 0 THEN 0 ELSE t.retry_after_us END;
  END IF;
  IF v_swept THEN
    PERFORM fairturn.fold(q.id, 1000, 0);
    PERFORM fairturn.settle(100, p_now);
    IF coalesce(p_due_floor, 0) = 0 THEN -- the sweep reads everything, which is rare
      PERFORM fairturn.forget(q.lane, 1000, v_now);
    END IF;
  END IF;
  t.channel := c.channel;
  t.credit := c.credit;
  t.now_us := v_now;
  t.ids := c.ids;
  t.entries_read := least(pg_stat_get_xact_tuples_returned('fairturn.message_ready'::regclass) - v_read, 2147483647);
  t.swept := v_swept;
  t.recovered := NOT v_hints;
  t.lost := v_lost;
  IF q.paused = 0 THEN
    t.versions := c.versions;
    t.floors := c.floors;
    t.server := CASE WHEN c.floors IS NOT NULL THEN fairturn.server_mark() END;
    t.ordered := c.ordered;
  END IF;
  v_last.trailer := t;
  RETURN NEXT v_last;
END $$;

-- The SQL door: receive without a consumer state. The queue's cursor row stores the place in the round. If another
-- session has locked it, this one starts at a random place instead of waiting.
CREATE OR REPLACE FUNCTION fairturn.receive(p_queue text, p_n int DEFAULT 1, p_lease interval DEFAULT NULL,
  p_version int DEFAULT NULL, p_types text[] DEFAULT NULL, p_min_priority int DEFAULT NULL,
  p_max_bytes bigint DEFAULT NULL, p_permit bigint DEFAULT NULL, p_now bigint DEFAULT NULL)
RETURNS TABLE (id bigint, token bigint, channel text, body bytea, headers jsonb, key text, version int,
  type text, priority int, due_at timestamptz, created_at timestamptz, attempts int, deliveries int, memo bytea,
  lease_until timestamptz, is_json boolean, recovered boolean, group_name text, origin text,
  first_delivered_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  v_cursor fairturn.cursor;
  v_all fairturn.receive_row[];
  t fairturn.receive_trailer;
BEGIN
  IF p_n IS NULL OR p_n NOT BETWEEN 1 AND 10000 THEN
    RAISE EXCEPTION 'n must be between 1 and 10000' USING ERRCODE = 'FT006';
  END IF;
  SELECT * INTO v_cursor FROM fairturn.cursor k WHERE k.queue_id = q.id FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    v_cursor.channel := chr(33 + (random() * 90)::int);
  END IF;
  v_all := ARRAY(SELECT x FROM fairturn.receive_rows(p_queue, p_n, fairturn.us(p_lease),
    p_version, p_types, p_min_priority, p_max_bytes, p_permit, '{}', '{}', v_cursor.channel,
    coalesce(v_cursor.credit, 0), NULL, '{}', '{}', '{}', '{}', NULL, NULL, true, 0, 0, false, fairturn.new_token(), p_now) x);
  t := (v_all[cardinality(v_all)]).trailer;
  IF v_cursor.queue_id IS NOT NULL AND (t.channel, t.credit) IS DISTINCT FROM (v_cursor.channel, v_cursor.credit) THEN
    UPDATE fairturn.cursor k SET channel = t.channel, credit = t.credit WHERE k.queue_id = q.id;
  END IF;
  RETURN QUERY
    SELECT x.id, x.token, x.channel, x.body, convert_from(x.headers, 'UTF8')::jsonb, x.key, x.version, x.type,
      x.priority, to_timestamp(x.due_at / 1000000.0), to_timestamp(x.created_at / 1000000.0), x.attempts, x.deliveries, x.memo,
      to_timestamp(x.lease_until / 1000000.0), x.json & 1 = 1, x.recovered = 1, x.group_name, x.origin,
      to_timestamp(x.first_at / 1000000.0)
    FROM unnest(v_all) x WHERE x.id IS NOT NULL
    ORDER BY array_position(t.ids, x.id);
END $$;
