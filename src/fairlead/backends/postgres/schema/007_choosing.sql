-- Fairlead on PostgreSQL: the choice of a receive (docs/semantics.md §4.3 to §4.9).

-- Choose and lock up to p_n messages and say where the round stands. What they cost their channels
-- (`paying`, `prices`) and the queue (`price`) is charged, from `clock` on, once they are leased.
-- `wait`: when a rate is all that is in the way. `more`: the scan budget ended before once round.
CREATE FUNCTION fairlead.choose(q fairlead.queue, p_n int, p_version int, p_types text[], p_max_rank int,
  p_max_bytes bigint, p_channel text, p_credit int, p_versions int[], p_hint_channels text[],
  p_hint_ranks int[], p_hint_dues bigint[], p_hint_ids bigint[], p_floors jsonb, p_wait text[],
  p_own boolean, p_given bigint, OUT ids bigint[], OUT channel text, OUT credit int, OUT wait bigint, OUT more boolean,
  OUT versions int[], OUT ordered text[], OUT floors jsonb, OUT lease_no bigint,
  OUT clock bigint, OUT paying text[], OUT prices bigint[], OUT price bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  SCAN CONSTANT int := 256; -- closed channels passed by in one call
  v_now bigint := fairlead.now_us(p_given);
  v_n int := p_n;
  v_plain boolean;
  v_limit_wait bigint;
  v_limit_step bigint;
  v_limit_base bigint;
  -- the open channels, in the order of the round
  a_ch text[] := '{}'; a_w int[] := '{}'; a_room int[] := '{}'; a_ord boolean[] := '{}';
  a_step bigint[] := '{}'; a_alive boolean[] := '{}'; a_taken int[] := '{}';
  a_rank int[] := '{}'; a_due bigint[] := '{}'; a_id bigint[] := '{}';
  v_any_ordered boolean := false;
  -- what was taken, in order
  r_idx int[] := '{}'; r_credit int[] := '{}';
  w record; o record; t record;
  v_names text[]; v_hints int[];
  v_quota int[]; v_off int[];
  v_from text COLLATE "C" := p_channel; v_upto text COLLATE "C"; v_circled boolean := false;
  v_ptr int := 1; v_turn int := 0; v_rem int; v_full int; v_sum int;
  v_closed int := 0; v_i int; v_k int; v_got int; v_pre_done boolean := coalesce(p_credit, 0) <= 0 OR p_channel IS NULL;
  v_cut int;
  v_wait text[] := p_wait;
  v_alone boolean := false;
  v_hinted boolean;
BEGIN
  ids := '{}'; channel := p_channel; credit := coalesce(p_credit, 0); more := false; ordered := '{}';
  clock := v_now;

  IF q.limit_concurrency IS NOT NULL OR q.limit_rate_count IS NOT NULL THEN
    PERFORM 1 FROM fairlead.queue_gate g WHERE g.queue_id = q.id FOR UPDATE;
    q := fairlead.queue_again(q);
    -- @stop receive.limit
    v_now := fairlead.now_us(p_given);
    clock := v_now;
    IF q.limit_concurrency IS NOT NULL THEN
      v_n := least(v_n, q.limit_concurrency - (SELECT count(*) FROM (
        SELECT 1 FROM fairlead.message m WHERE m.lane = q.lane AND m.state = 'l' LIMIT q.limit_concurrency) x));
    END IF;
    IF q.limit_rate_count IS NOT NULL THEN
      v_limit_step := (q.limit_rate_period_us + q.limit_rate_count - 1) / q.limit_rate_count;
      SELECT greatest(g.tat, v_now) INTO v_limit_base FROM fairlead.queue_gate g WHERE g.queue_id = q.id;
      v_limit_wait := v_limit_base - v_now - (q.limit_burst - 1) * v_limit_step;
      IF v_n > 0 AND v_limit_wait > 0 THEN
        IF fairlead.any_eligible(q.lane, CASE WHEN p_version IS NULL THEN fairlead.ready_versions(q.lane)
             ELSE ARRAY[p_version] END, p_types, p_max_rank, v_now, NULL) THEN
          wait := v_limit_wait;
        END IF;
        RETURN;
      END IF;
      v_n := least(v_n, -v_limit_wait / v_limit_step + 1);
    END IF;
    IF v_n <= 0 THEN
      RETURN;
    END IF;
  END IF;

  versions := CASE WHEN p_version IS NOT NULL THEN ARRAY[p_version] ELSE coalesce(p_versions, fairlead.ready_versions(q.lane)) END;
  IF cardinality(versions) = 0 THEN
    RETURN;
  END IF;
  v_plain := q.max_concurrency IS NULL AND q.rate_count IS NULL AND q.ordered = 0 AND q.channel_paused = 0
    AND NOT EXISTS (SELECT 1 FROM fairlead.policy p WHERE p.queue_id = q.id);

  IF cardinality(p_hint_channels) = 1 AND cardinality(versions) = 1 AND coalesce(p_credit, 0) = 0 THEN
    -- A consumer that knows one channel, and there is no other: no round to walk.
    SELECT NOT EXISTS (SELECT 1 FROM fairlead.message m WHERE m.lane = q.lane AND m.version = versions[1]
          AND m.state = 'r' AND m.channel < p_hint_channels[1])
        AND NOT EXISTS (SELECT 1 FROM fairlead.message m WHERE m.lane = q.lane AND m.version = versions[1]
          AND m.state = 'r' AND m.channel > p_hint_channels[1])
        AND NOT EXISTS (SELECT 1 FROM fairlead.message m WHERE m.lane = q.lane AND m.version = versions[1]
          AND m.state = 'r' AND m.channel = p_hint_channels[1] AND m.rank < p_hint_ranks[1])
      INTO v_alone;
    IF v_alone AND v_plain AND q.weight = 1 AND p_max_bytes IS NULL THEN
      ids := ARRAY(SELECT m.id FROM fairlead.message m
        WHERE m.lane = q.lane AND m.version = versions[1] AND m.channel = p_hint_channels[1] AND m.state = 'r'
          AND (m.rank, m.due_at, m.id) > (p_hint_ranks[1], p_hint_dues[1], p_hint_ids[1])
          AND m.rank <= p_max_rank AND (m.expires_at IS NULL OR m.expires_at > v_now)
          AND (p_types IS NULL OR m.type = ANY (p_types))
        ORDER BY m.rank, m.due_at, m.id LIMIT v_n FOR UPDATE SKIP LOCKED);
      IF cardinality(ids) > 0 THEN
        channel := p_hint_channels[1];
        credit := 0;
        price := cardinality(ids) * v_limit_step;
      END IF;
      RETURN;
    END IF;
  END IF;
  v_hinted := v_plain AND p_versions IS NOT NULL AND p_channel IS NOT NULL AND cardinality(versions) = 1
    AND v_n > 1 AND cardinality(p_hint_channels) >= v_n;

  LOOP
    v_rem := v_n - cardinality(ids);
    EXIT WHEN v_rem <= 0;

    IF NOT v_pre_done THEN
      -- The channel in the middle of its turn comes first; in the round itself it comes last.
      v_names := ARRAY[p_channel];
      v_hints := ARRAY[NULL::int];
      v_k := 1;
    ELSIF v_ptr > cardinality(a_ch) AND NOT v_circled THEN
      -- Walk on. In a queue with policies look at a few more names than needed: some are closed.
      v_k := CASE WHEN v_plain THEN v_rem ELSE greatest(v_rem, 32) END;
      IF v_alone THEN
        v_names := p_hint_channels;
        v_hints := ARRAY[1];
        v_circled := true;
      ELSIF v_hinted THEN
        -- Dead entries are in the way, and the consumer knows enough channels for this batch: read
        -- on where it was. Channels it has not met are found by its next look, as for any hint.
        v_hinted := false;
        SELECT array_agg(x.channel), array_agg(CASE WHEN NOT x.above THEN x.k END) INTO v_names, v_hints FROM (
          SELECT h.channel, h.k::int AS k, EXISTS (SELECT 1 FROM fairlead.message m
              WHERE m.lane = q.lane AND m.version = versions[1] AND m.channel = h.channel AND m.state = 'r'
                AND m.rank < h.rank) AS above
          FROM unnest(p_hint_channels, p_hint_ranks) WITH ORDINALITY h(channel, rank, k)
          ORDER BY h.channel COLLATE "C" <= p_channel, h.k LIMIT v_k) x;
        v_from := v_names[v_k];
        IF v_from <= p_channel THEN
          v_upto := p_channel;
        END IF;
      ELSE
        w := fairlead.walk_all(q.lane, versions, v_from, v_upto, v_k, p_hint_channels, p_hint_ranks, p_hint_dues, p_hint_ids);
        v_names := w.channels;
        v_hints := w.hints;
        IF cardinality(v_names) < v_k AND v_upto IS NULL AND p_channel IS NOT NULL THEN
          -- The end of the names: go on from the start, up to where the round began.
          v_upto := p_channel;
          w := fairlead.walk_all(q.lane, versions, NULL, v_upto, v_k - cardinality(v_names), p_hint_channels,
            p_hint_ranks, p_hint_dues, p_hint_ids);
          v_names := v_names || w.channels;
          v_hints := v_hints || w.hints;
        END IF;
        IF cardinality(v_names) < v_k THEN
          v_circled := true;
        ELSE
          v_from := v_names[cardinality(v_names)];
        END IF;
      END IF;
    ELSE
      v_names := '{}';
    END IF;

    IF cardinality(v_names) > 0 THEN
      IF v_plain THEN
        a_ch := a_ch || v_names;
        a_w := a_w || array_fill(q.weight, ARRAY[cardinality(v_names)]);
        a_room := a_room || array_fill(2147483647, ARRAY[cardinality(v_names)]);
        a_alive := a_alive || array_fill(true, ARRAY[cardinality(v_names)]);
      ELSE
        o := fairlead.open_channels(q, v_names, v_rem, v_wait, p_floors, p_own, p_given);
        v_wait := NULL; -- waiting is over: whoever holds a gate may wait for no other
        wait := least(wait, CASE WHEN o.wait IS NOT NULL AND fairlead.any_eligible(q.lane, versions, p_types, p_max_rank, v_now, o.waiting)
                                 THEN o.wait END);
        lease_no := coalesce(o.lease_no, lease_no);
        floors := CASE WHEN floors IS NULL THEN o.floors ELSE coalesce(floors || o.floors, floors) END;
        v_closed := v_closed + o.looked - cardinality(o.channels);
        IF o.looked < cardinality(v_names) THEN
          -- The rest was not needed yet: the walk goes on behind the last one dealt with.
          v_from := v_names[o.looked];
          v_circled := false;
          IF v_upto IS NOT NULL AND v_from > v_upto THEN
            v_upto := NULL; -- it was the first half of the circle that was cut short
          END IF;
        END IF;
        IF cardinality(o.channels) > 0 THEN
          v_hints := CASE WHEN cardinality(p_hint_channels) = 0 -- (looking them up is quadratic)
            THEN array_fill(NULL::int, ARRAY[cardinality(o.channels)])
            ELSE ARRAY(SELECT v_hints[array_position(v_names, c)] FROM unnest(o.channels) c) END;
          a_ch := a_ch || o.channels;
          a_w := a_w || o.weights;
          a_room := a_room || o.rooms;
          a_step := a_step || o.intervals;
          a_alive := a_alive || array_fill(true, ARRAY[cardinality(o.channels)]);
          a_ord := a_ord || o.ordered;
          IF true = ANY (o.ordered) THEN
            v_any_ordered := true;
            ordered := ordered || ARRAY(SELECT c FROM unnest(o.channels, o.ordered) x(c, b) WHERE b);
          END IF;
        ELSIF v_pre_done THEN
          IF v_closed >= SCAN AND NOT v_circled THEN
            more := true;
            IF cardinality(ids) = 0 THEN
              channel := v_from;
              credit := 0;
            END IF;
            EXIT;
          END IF;
          CONTINUE;
        ELSE
          v_hints := '{}'; -- closed in the middle of its turn
        END IF;
      END IF;
      -- Where each new channel is read from: its hint, or its start.
      SELECT a_rank || array_agg(coalesce(p_hint_ranks[h], -2147483648)),
             a_due || array_agg(coalesce(p_hint_dues[h], -1)), a_id || array_agg(coalesce(p_hint_ids[h], -1))
        INTO a_rank, a_due, a_id FROM unnest(v_hints) h;
      a_taken := a_taken || array_fill(0, ARRAY[cardinality(v_hints)]);
      IF v_pre_done AND coalesce(p_credit, 0) > 0 AND cardinality(a_ch) > 1 AND a_ch[1] = p_channel
         AND a_ch[cardinality(a_ch)] = p_channel THEN
        -- It has already given in its unfinished turn: go on behind that.
        v_k := cardinality(a_ch);
        a_rank[v_k] := a_rank[1]; a_due[v_k] := a_due[1]; a_id[v_k] := a_id[1];
        a_room[v_k] := least(a_room[v_k], a_room[1] - a_taken[1]);
        a_taken[v_k] := 0;
        IF v_any_ordered AND a_ord[v_k] THEN
          a_taken[v_k] := a_taken[1];
          a_room[v_k] := a_room[1];
        END IF;
        a_alive[1] := false;
      END IF;
    ELSIF v_pre_done AND v_ptr > cardinality(a_ch) THEN
      -- A new round among those that still have something to give.
      EXIT WHEN NOT (true = ANY (a_alive));
      v_ptr := 1;
      v_turn := 0;
    END IF;

    -- Who gives how many, if all have enough.
    v_quota := array_fill(0, ARRAY[cardinality(a_ch)]);
    v_off := v_quota;
    IF NOT v_pre_done THEN
      v_pre_done := true;
      IF cardinality(a_ch) = 0 THEN
        CONTINUE; -- closed: the round goes on without it
      END IF;
      v_quota[1] := least(p_credit, v_rem, a_room[1]);
      t := fairlead.take(q.lane, versions, p_version, a_ch, v_quota, ARRAY[p_credit], v_off, a_rank,
        a_due, a_id, CASE WHEN v_any_ordered THEN a_ord END, a_taken, p_types, p_max_rank, v_now);
      v_ptr := 2;
      a_alive[1] := false;
    ELSIF v_plain AND q.weight = 1 AND cardinality(ids) = 0 AND v_ptr = 1 THEN
      -- The common case in closed form: all weights are 1 and nothing has been taken yet.
      v_k := cardinality(a_ch);
      v_full := v_rem / v_k;
      v_i := v_rem % v_k;
      v_quota := array_fill(v_full + 1, ARRAY[v_i]) || array_fill(v_full, ARRAY[v_k - v_i]);
      v_ptr := CASE WHEN v_i = 0 THEN v_k ELSE v_i END + 1;
      t := fairlead.take(q.lane, versions, p_version, a_ch, v_quota, a_w, v_off, a_rank, a_due, a_id,
        NULL, a_taken, p_types, p_max_rank, v_now);
    ELSE
      IF v_ptr = 1 AND v_turn = 0 AND v_circled THEN
        v_sum := (SELECT sum(x.w) FROM unnest(a_w, a_alive) x(w, alive) WHERE x.alive);
        v_full := v_rem / v_sum;
        v_rem := v_rem % v_sum;
      ELSE
        v_full := 0;
      END IF;
      v_i := v_ptr;
      IF v_full = 0 AND v_ptr = 1 AND v_turn = 0 AND cardinality(ids) = 0 AND 1 = ALL (a_w) AND true = ALL (a_alive) THEN
        -- Also common: one of each (open channels have room for one).
        v_k := least(v_rem, cardinality(a_ch));
        v_quota := array_fill(1, ARRAY[v_k]) || array_fill(0, ARRAY[cardinality(a_ch) - v_k]);
        v_rem := v_rem - v_k;
        v_ptr := v_k + 1;
        v_i := cardinality(a_ch) + 1;
      END IF;
      WHILE v_i <= cardinality(a_ch) AND (v_rem > 0 OR v_full > 0) LOOP
        IF a_alive[v_i] THEN
          v_k := CASE WHEN v_i = v_ptr AND v_turn > 0 THEN v_turn ELSE a_w[v_i] END;
          v_off[v_i] := a_w[v_i] - v_k;
          v_quota[v_i] := least(v_full * a_w[v_i]::bigint + least(v_k, v_rem), a_room[v_i] - a_taken[v_i]);
          IF v_rem > 0 THEN
            -- The turn ends here if this is where the batch is full.
            v_turn := CASE WHEN v_rem < v_k THEN v_k - v_rem ELSE 0 END;
            v_ptr := CASE WHEN v_turn > 0 THEN v_i ELSE v_i + 1 END;
            v_rem := v_rem - least(v_k, v_rem);
          END IF;
        ELSIF v_rem > 0 THEN
          v_ptr := v_i + 1;
          v_turn := 0;
        END IF;
        v_i := v_i + 1;
      END LOOP;
      IF v_rem > 0 OR (v_full > 0 AND v_ptr = 1 AND v_turn = 0) THEN
        v_ptr := cardinality(a_ch) + 1;
        v_turn := 0;
      END IF;
      t := fairlead.take(q.lane, versions, p_version, a_ch, v_quota, a_w, v_off, a_rank, a_due, a_id,
        CASE WHEN v_any_ordered THEN a_ord END, a_taken, p_types, p_max_rank, v_now);
    END IF;
    v_got := cardinality(t.ids);
    ids := ids || t.ids;
    r_idx := r_idx || t.idx;
    r_credit := r_credit || t.credits;
    EXIT WHEN cardinality(ids) >= v_n;

    -- Some came up short: remember how far each was read, and who has nothing more to give.
    FOR v_i IN 1 .. v_got LOOP
      v_k := t.idx[v_i];
      a_taken[v_k] := a_taken[v_k] + 1;
      v_quota[v_k] := v_quota[v_k] - 1;
      IF (a_rank[v_k], a_due[v_k], a_id[v_k]) < (t.ranks[v_i], t.dues[v_i], t.ids[v_i]) THEN
        a_rank[v_k] := t.ranks[v_i]; a_due[v_k] := t.dues[v_i]; a_id[v_k] := t.ids[v_i];
      END IF;
    END LOOP;
    FOR v_k IN 1 .. cardinality(a_ch) LOOP
      IF v_quota[v_k] > 0 OR a_taken[v_k] >= a_room[v_k] THEN
        a_alive[v_k] := false;
      END IF;
    END LOOP;
  END LOOP;

  IF p_max_bytes IS NOT NULL AND cardinality(ids) > 1 THEN
    SELECT count(*) INTO v_cut FROM (
      SELECT u.i, sum(octet_length(m.body)) OVER (ORDER BY u.i) AS total
      FROM unnest(ids) WITH ORDINALITY u(id, i) JOIN fairlead.message m ON m.id = u.id) x
      WHERE x.i = 1 OR x.total <= p_max_bytes;
    ids := ids[1:v_cut];
  END IF;
  v_got := cardinality(ids);
  IF v_got = 0 THEN
    RETURN;
  END IF;
  channel := a_ch[r_idx[v_got]];
  credit := r_credit[v_got];
  IF NOT v_plain AND cardinality(a_step) > 0 THEN
    SELECT array_agg(x.channel), array_agg(x.n * x.step) INTO paying, prices
      FROM (SELECT a_ch[u.i] AS channel, max(a_step[u.i]) AS step, count(*) AS n
            FROM unnest(r_idx[1:v_got]) u(i) WHERE a_step[u.i] IS NOT NULL GROUP BY 1) x;
  END IF;
  price := v_got * v_limit_step;
END $$;

-- The whole receive. The last row has no id and tells the consumer what to remember: channel and
-- attempts (its cursor and credit), due_at (retry after, µs), created_at (now), and headers: JSON
-- with the lost acks, the versions seen and the lease floors of limited channels. Its version is
-- the number of ready index entries that were read: many more than messages given means that dead
-- entries are in the way. Its key is the order in which the messages are given, since rows come back
-- as the primary key finds them.
CREATE FUNCTION fairlead.receive_rows(
  p_queue text, p_n int, p_lease bigint, p_version int, p_types text[], p_min_priority int,
  p_max_bytes bigint, p_permit bigint, p_ack_ids bigint[], p_ack_deliveries int[], p_channel text,
  p_credit int, p_versions int[], p_hint_channels text[], p_hint_ranks int[], p_hint_dues bigint[],
  p_hint_ids bigint[], p_floors jsonb, p_sweep boolean, p_lease_floor bigint, p_due_floor bigint, p_own boolean, p_now bigint)
RETURNS SETOF fairlead.delivery LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  q fairlead.queue := fairlead.queue_row(p_queue);
  v_now bigint := fairlead.now_us(p_now);
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
  v_after bigint;
  v_extra jsonb;
  v_read bigint := pg_stat_get_xact_tuples_returned('fairlead.message_ready'::regclass);
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'receive needs the isolation level READ COMMITTED, this transaction has %',
      upper(current_setting('transaction_isolation')) USING ERRCODE = 'FL007';
  END IF;
  IF p_permit IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM fairlead.permit p WHERE p.id = p_permit AND p.expires_at > v_now) THEN
    RAISE EXCEPTION 'permit % has expired', p_permit USING ERRCODE = 'FL008', DETAIL = p_permit::text;
  END IF;
  -- @stop receive.start
  IF cardinality(p_ack_ids) > 0 THEN
    -- (A large batch has all gates, or passes by those that are taken.)
    IF NOT (p_own AND p_n >= 32) AND (q.max_concurrency IS NOT NULL OR q.rate_count IS NOT NULL OR q.ordered <> 0
       OR EXISTS (SELECT 1 FROM fairlead.policy p WHERE p.queue_id = q.id)) THEN
      v_ack_channels := ARRAY(SELECT DISTINCT m.channel FROM fairlead.message m WHERE m.id = ANY (p_ack_ids));
    END IF;
    v_lost := fairlead.ack_rows(p_queue, p_ack_ids, p_ack_deliveries, false, p_now);
    -- @stop receive.acked
  END IF;

  LOOP
    IF v_sweep THEN
      v_swept := true;
      s := fairlead.sweep(q, 1000, v_now, coalesce(p_lease_floor, 0), coalesce(p_due_floor, 0));
      EXIT WHEN v_chosen AND s.activated + s.recovered + s.killed + s.removed = 0; -- nothing changed
      v_hints := s.recovered = 0; -- what is recovered lies before the hints
      IF s.recovered + s.killed + s.expired > 0 THEN
        INSERT INTO fairlead.tally (queue_id, at, recovered, killed, expired, errors)
          VALUES (q.id, v_now, nullif(s.recovered, 0), nullif(s.killed, 0), nullif(s.expired, 0), nullif(s.killed, 0));
      END IF;
    END IF;
    IF q.paused <> 0 THEN
      SELECT '{}'::bigint[] AS ids, p_channel AS channel, p_credit AS credit INTO c;
      EXIT WHEN v_swept;
      v_sweep := true;
    ELSE
      c := fairlead.choose(q, p_n, p_version, p_types, v_max_rank, p_max_bytes, p_channel, p_credit,
        CASE WHEN v_hints THEN p_versions END, CASE WHEN v_hints THEN p_hint_channels ELSE '{}' END,
        p_hint_ranks, p_hint_dues, p_hint_ids, p_floors, v_ack_channels, p_own, p_now);
      EXIT WHEN v_swept OR cardinality(c.ids) >= p_n;
      v_sweep := true;
      v_chosen := true;
    END IF;
  END LOOP;

  IF cardinality(c.ids) > 0 THEN
    v_no := coalesce(c.lease_no, nextval('fairlead.lease_no'));
    -- @stop receive.lease
    RETURN QUERY
      UPDATE fairlead.message m SET state = 'l', attempts = m.attempts + 1, deliveries = m.deliveries + 1,
          lease_until = v_now + coalesce(p_lease, m.lease_us, q.lease_us), lease_no = v_no,
          permit_id = p_permit, begun = m.begun OR m.channel = ANY (c.ordered), progress = NULL, note = NULL,
          first_at = coalesce(m.first_at, v_now)
        WHERE m.id = ANY (c.ids)
        RETURNING m.id, m.channel, m.body, m.headers, m.key, m.version, m.type, -m.rank, m.due_at,
          m.created_at, m.attempts, m.deliveries, m.memo, m.lease_until, (m.json | (m.begun::int << 3))::smallint, m.recovered::int,
          CASE WHEN m.group_id IS NOT NULL THEN (SELECT g.name FROM fairlead.group_ g WHERE g.id = m.group_id) END,
          CASE WHEN m.origin IS NOT NULL THEN fairlead.queue_named(m.origin) END, m.first_at;
    INSERT INTO fairlead.tally (queue_id, at, delivered) VALUES (q.id, v_now, cardinality(c.ids));
    IF q.events <> 0 THEN
      PERFORM fairlead.tell(q.name, 'leased', c.ids, v_now);
    END IF;
    IF c.paying IS NOT NULL THEN
      UPDATE fairlead.gate g SET tat = greatest(g.tat, c.clock) + x.price
        FROM unnest(c.paying, c.prices) x(channel, price)
        WHERE g.queue_id = q.id AND g.channel = x.channel;
    END IF;
    IF c.price IS NOT NULL THEN
      UPDATE fairlead.queue_gate g SET tat = greatest(g.tat, c.clock) + c.price WHERE g.queue_id = q.id;
    END IF;
  ELSIF q.paused = 0 THEN
    SELECT least((SELECT m.due_at - v_now FROM fairlead.message m WHERE m.lane = q.lane AND m.state = 's'
                    AND m.due_at >= coalesce(p_due_floor, 0) ORDER BY m.due_at LIMIT 1),
                 (SELECT m.lease_until - v_now FROM fairlead.message m WHERE m.lane = q.lane AND m.state = 'l'
                    AND m.lease_until >= coalesce(p_lease_floor, 0) ORDER BY m.lease_until LIMIT 1),
                 c.wait) INTO v_after;
    v_after := CASE WHEN c.more THEN 0 WHEN v_after < 0 THEN 0 ELSE v_after END;
  END IF;
  IF v_swept THEN
    PERFORM fairlead.fold(q.id, 1000);
    PERFORM fairlead.settle(100, p_now);
    IF coalesce(p_due_floor, 0) = 0 THEN -- it looks at everything, which is not often
      PERFORM fairlead.forget(q.lane, 1000, v_now);
    END IF;
  END IF;
  IF q.paused = 0 THEN
    v_extra := jsonb_build_object('versions', c.versions);
    IF c.floors IS NOT NULL THEN
      v_extra := v_extra || jsonb_build_object('floors', c.floors, 'ordered', c.ordered);
    END IF;
  ELSE
    v_extra := '{}';
  END IF;
  IF NOT v_hints THEN
    v_extra := v_extra || '{"look": true}';
  END IF;
  IF cardinality(v_lost) > 0 THEN
    v_extra := v_extra || jsonb_build_object('lost', v_lost);
  END IF;
  RETURN NEXT (NULL, c.channel, NULL,
    convert_to(v_extra::text, 'UTF8'), array_to_string(c.ids, ','),
    least(pg_stat_get_xact_tuples_returned('fairlead.message_ready'::regclass) - v_read, 2147483647)::int,
    NULL, NULL, v_after, v_now,
    c.credit, NULL, NULL, NULL, NULL, v_swept::int, NULL, NULL, NULL)::fairlead.delivery;
END $$;
