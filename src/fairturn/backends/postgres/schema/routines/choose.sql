-- Fairturn on PostgreSQL: the choice of a receive (docs/semantics.md §4.3 to §4.9).

-- Is anything ready that fits the filters? (This is only asked when a rate is the obstacle.)
CREATE OR REPLACE FUNCTION fairturn.any_eligible(p_lane int, p_versions int[], p_types text[], p_max_rank int, p_now bigint,
  p_channels text[])
RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT 1 FROM fairturn.message m
    WHERE m.lane = p_lane AND m.state = 'r' AND m.version = ANY (p_versions) AND m.rank <= p_max_rank
      AND (p_channels IS NULL OR m.channel = ANY (p_channels))
      AND (m.expires_at IS NULL OR m.expires_at > p_now) AND (p_types IS NULL OR m.type = ANY (p_types)))
$$;

-- How many messages the queue's own limit allows now, at most p_n. Locks the queue's gate, then reads the
-- queue and the clock again. `step`: the price of one message under a rate. `wait`: how long the rate keeps
-- the queue closed, if it is the only obstacle.
CREATE OR REPLACE FUNCTION fairturn.queue_room(INOUT q fairturn.queue, p_n int, p_version int, p_types text[], p_max_rank int,
  p_given bigint, OUT room int, OUT clock bigint, OUT step bigint, OUT wait bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE v_wait bigint;
BEGIN
  PERFORM 1 FROM fairturn.queue_gate g WHERE g.queue_id = q.id FOR UPDATE;
  q := fairturn.queue_again(q);
  -- @stop receive.limit
  room := p_n;
  clock := fairturn.now_us(p_given);
  IF q.limit_concurrency IS NOT NULL THEN
    room := least(room, q.limit_concurrency - (SELECT count(*) FROM (
      SELECT 1 FROM fairturn.message m WHERE m.lane = q.lane AND m.state = 'l' LIMIT q.limit_concurrency) x));
  END IF;
  IF q.limit_rate_count IS NOT NULL THEN
    step := (q.limit_rate_period_us + q.limit_rate_count - 1) / q.limit_rate_count;
    SELECT greatest(g.tat, clock) - clock - (q.limit_burst - 1) * step INTO v_wait
      FROM fairturn.queue_gate g WHERE g.queue_id = q.id;
    IF room > 0 AND v_wait > 0 AND fairturn.any_eligible(q.lane, CASE WHEN p_version IS NULL
        THEN fairturn.ready_versions(q.lane) ELSE ARRAY[p_version] END, p_types, p_max_rank, clock, NULL) THEN
      wait := v_wait;
    END IF;
    room := least(room, CASE WHEN v_wait > 0 THEN 0 ELSE -v_wait / step + 1 END);
  END IF;
END $$;

-- True if nothing is ready outside this channel, and nothing in it is more urgent than p_rank.
CREATE OR REPLACE FUNCTION fairturn.is_alone(p_lane int, p_version int, p_channel text, p_rank int)
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN NOT EXISTS (SELECT 1 FROM fairturn.message m WHERE m.lane = p_lane AND m.version = p_version
      AND m.state = 'r' AND m.channel < p_channel)
    AND NOT EXISTS (SELECT 1 FROM fairturn.message m WHERE m.lane = p_lane AND m.version = p_version
      AND m.state = 'r' AND m.channel > p_channel)
    AND NOT EXISTS (SELECT 1 FROM fairturn.message m WHERE m.lane = p_lane AND m.version = p_version
      AND m.state = 'r' AND m.channel = p_channel AND m.rank < p_rank);
END $$;

-- How many messages each channel gives of the next p_rem, if all have enough: `quotas`, and in `offs` how many
-- of its current turn it has given before. `ptr` is the channel whose turn it is and `turn` what is left of that
-- turn (0: all of it); both are moved on. p_circled: the list has all channels of the round. p_first: nothing
-- has been taken yet. p_plain: weights are 1 and rooms without limit.
CREATE OR REPLACE FUNCTION fairturn.quotas(p_rem int, p_weights int[], p_rooms int[], p_taken int[], p_alive boolean[],
  p_circled boolean, p_first boolean, p_plain boolean, INOUT ptr int, INOUT turn int, OUT quotas int[], OUT offs int[])
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  v_rem int := p_rem;
  v_full int := 0; -- whole rounds that fit into p_rem
  v_n int := cardinality(p_weights);
  v_sum int;
  v_k int;
BEGIN
  offs := array_fill(0, ARRAY[v_n]);
  IF ptr = 1 AND turn = 0 THEN
    IF p_circled THEN
      v_sum := CASE WHEN p_plain AND p_first THEN v_n
        ELSE (SELECT sum(x.w) FROM unnest(p_weights, p_alive) x(w, alive) WHERE x.alive) END;
      v_full := v_rem / v_sum;
      v_rem := v_rem % v_sum;
    END IF;
    IF p_first AND (p_plain OR (v_full = 0 AND 1 = ALL (p_weights) AND true = ALL (p_alive))) THEN
      -- The common case in closed form: everybody gives the same, and the first ones one more. (An open
      -- channel has room for one.)
      v_k := least(v_rem, v_n);
      quotas := array_fill(v_full + 1, ARRAY[v_k]) || array_fill(v_full, ARRAY[v_n - v_k]);
      ptr := CASE WHEN v_k = 0 THEN v_n ELSE v_k END + 1;
      RETURN;
    END IF;
  END IF;
  quotas := offs;
  FOR i IN ptr .. v_n LOOP
    EXIT WHEN v_rem = 0 AND v_full = 0;
    IF p_alive[i] THEN
      v_k := CASE WHEN i = ptr AND turn > 0 THEN turn ELSE p_weights[i] END;
      offs[i] := p_weights[i] - v_k;
      quotas[i] := least(v_full * p_weights[i]::bigint + least(v_k, v_rem), p_rooms[i] - p_taken[i]);
      IF v_rem > 0 THEN
        -- The turn ends here if the batch is full here.
        turn := greatest(v_k - v_rem, 0);
        ptr := CASE WHEN turn > 0 THEN i ELSE i + 1 END;
        v_rem := greatest(v_rem - v_k, 0);
      END IF;
    ELSIF v_rem > 0 THEN
      ptr := i + 1;
      turn := 0;
    END IF;
  END LOOP;
  IF v_rem > 0 OR (v_full > 0 AND ptr = 1 AND turn = 0) THEN
    ptr := v_n + 1;
    turn := 0;
  END IF;
END $$;

-- Choose and lock up to p_n messages, and say where the round is then. What they cost their channels
-- (`paying`, `prices`) and the queue (`price`) is charged, from `clock` on, once they are leased.
-- `wait`: how long a rate is the only obstacle. `more`: SCAN closed channels were passed before the round was
-- complete.
--
-- The phases:
--   1. The queue's own limit: queue_room.
--   2. A consumer that reads one channel, while no other has anything ready: no round is needed.
--   3. The loop, until p_n messages are taken or the round has nothing more to give:
--      a. names: the channel whose turn the last receive did not finish, or the next ones of the round
--         (walk.sql). `v_names`, and in `v_hints` the index of each channel's hint.
--      b. open channels: those of the names that may give, under their gates (open_channels in gates.sql). They
--         are appended to the lists a_*. In a plain queue, which has no policies, all are open.
--      c. quotas: how many each of them gives. `v_ptr` and `v_turn` are the place in a_* where the next batch begins.
--      d. take (gates.sql): locks the messages. r_* has, for each of `ids`, its channel in a_*, and the credit after it.
--      e. If messages are still missing: note in a_* how far each channel was read, and which have no more.
--   4. The cut at p_max_bytes, the place in the round, the prices.
CREATE OR REPLACE FUNCTION fairturn.choose(q fairturn.queue, p_n int, p_version int, p_types text[], p_max_rank int,
  p_max_bytes bigint, p_channel text, p_credit int, p_versions int[], p_hint_channels text[],
  p_hint_ranks int[], p_hint_dues bigint[], p_hint_ids bigint[], p_floors jsonb, p_wait text[],
  p_own boolean, p_given bigint, OUT ids bigint[], OUT channel text, OUT credit int, OUT wait bigint, OUT more boolean,
  OUT versions int[], OUT ordered text[], OUT floors jsonb, OUT lease_no bigint,
  OUT clock bigint, OUT paying text[], OUT prices bigint[], OUT price bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  SCAN CONSTANT int := 256; -- closed channels passed in one call
  v_n int := p_n;
  v_rem int; -- how many messages are missing
  v_step bigint; -- the price of a message under the queue's rate
  v_plain boolean; -- no channel has a policy
  v_alone boolean := false; -- there is one channel, and the consumer has a hint for it
  v_hinted boolean; -- the next channels are those of the hints
  v_resume boolean := coalesce(p_credit, 0) > 0 AND p_channel IS NOT NULL; -- the unfinished turn comes first
  -- the round: behind v_from, up to v_upto (NULL: not yet past the last name)
  v_from text COLLATE "C" := p_channel; v_upto text COLLATE "C"; v_circled boolean := false;
  v_names text[]; v_hints int[];
  v_wait text[] := p_wait;
  v_closed int := 0;
  -- the open channels, in the order of the round: name, weight, room, ordered, price; whether it may have more;
  -- how many it gave; the position it was read to
  a_ch text[] := '{}'; a_w int[] := '{}'; a_room int[] := '{}'; a_ord boolean[] := '{}';
  a_step bigint[] := '{}'; a_alive boolean[] := '{}'; a_taken int[] := '{}';
  a_rank int[] := '{}'; a_due bigint[] := '{}'; a_id bigint[] := '{}';
  v_any_ordered boolean := false;
  v_ptr int := 1; v_turn int := 0;
  v_quota int[]; v_off int[];
  r_idx int[] := '{}'; r_credit int[] := '{}';
  l record; w record; o record; s record; t record; -- what the functions return
  v_k int; v_got int;
BEGIN
  ids := '{}'; channel := p_channel; credit := coalesce(p_credit, 0); more := false; ordered := '{}';
  clock := fairturn.now_us(p_given);

  IF q.limit_concurrency IS NOT NULL OR q.limit_rate_count IS NOT NULL THEN
    l := fairturn.queue_room(q, p_n, p_version, p_types, p_max_rank, p_given);
    q := l.q;
    clock := l.clock;
    v_step := l.step;
    wait := l.wait;
    v_n := l.room;
    IF v_n <= 0 THEN
      RETURN;
    END IF;
  END IF;

  versions := CASE WHEN p_version IS NOT NULL THEN ARRAY[p_version] ELSE coalesce(p_versions, fairturn.ready_versions(q.lane)) END;
  IF cardinality(versions) = 0 THEN
    RETURN;
  END IF;
  v_plain := q.max_concurrency IS NULL AND q.rate_count IS NULL AND q.ordered = 0 AND q.channel_paused = 0
    AND NOT EXISTS (SELECT 1 FROM fairturn.policy p WHERE p.queue_id = q.id);

  IF cardinality(p_hint_channels) = 1 AND cardinality(versions) = 1 AND coalesce(p_credit, 0) = 0 THEN
    v_alone := fairturn.is_alone(q.lane, versions[1], p_hint_channels[1], p_hint_ranks[1]);
    IF v_alone AND v_plain AND q.weight = 1 AND p_max_bytes IS NULL THEN
      ids := ARRAY(SELECT m.id FROM fairturn.message m
        WHERE m.lane = q.lane AND m.version = versions[1] AND m.channel = p_hint_channels[1] AND m.state = 'r'
          AND (m.rank, m.due_at, m.id) > (p_hint_ranks[1], p_hint_dues[1], p_hint_ids[1])
          AND m.rank <= p_max_rank AND (m.expires_at IS NULL OR m.expires_at > clock)
          AND (p_types IS NULL OR m.type = ANY (p_types))
        ORDER BY m.rank, m.due_at, m.id LIMIT v_n FOR UPDATE SKIP LOCKED);
      IF cardinality(ids) > 0 THEN
        channel := p_hint_channels[1];
        credit := 0;
        price := cardinality(ids) * v_step;
      END IF;
      RETURN;
    END IF;
  END IF;
  -- Dead entries are in the way, and the consumer knows enough channels for this batch. Channels it has not
  -- met are found by its next look, as for any hint.
  v_hinted := v_plain AND p_versions IS NOT NULL AND p_channel IS NOT NULL AND cardinality(versions) = 1
    AND v_n > 1 AND cardinality(p_hint_channels) >= v_n;

  LOOP
    v_rem := v_n - cardinality(ids);
    EXIT WHEN v_rem <= 0;

    v_names := '{}';
    IF v_resume THEN
      -- The channel in the middle of its turn comes first; in the round itself it comes last.
      v_names := ARRAY[p_channel];
      v_hints := ARRAY[NULL::int];
    ELSIF v_ptr > cardinality(a_ch) AND NOT v_circled THEN
      -- In a queue with policies look at a few more names than needed: some are closed.
      v_k := CASE WHEN v_plain THEN v_rem ELSE greatest(v_rem, 32) END;
      IF v_alone THEN
        v_names := p_hint_channels;
        v_hints := ARRAY[1];
        v_circled := true;
      ELSIF v_hinted THEN
        v_hinted := false;
        w := fairturn.walk_hints(q.lane, versions[1], p_channel, v_k, p_hint_channels, p_hint_ranks);
        v_names := w.channels;
        v_hints := w.hints;
        v_from := v_names[v_k];
        IF v_from <= p_channel THEN
          v_upto := p_channel;
        END IF;
      ELSE
        w := fairturn.walk_round(q.lane, versions, p_channel, v_from, v_upto, v_k, p_hint_channels, p_hint_ranks,
          p_hint_dues, p_hint_ids);
        v_names := w.channels;
        v_hints := w.hints;
        v_from := w.after;
        v_upto := w.upto;
        v_circled := w.circled;
      END IF;
    END IF;

    IF cardinality(v_names) > 0 THEN
      IF v_plain THEN
        a_ch := a_ch || v_names;
        a_w := a_w || array_fill(q.weight, ARRAY[cardinality(v_names)]);
        a_room := a_room || array_fill(2147483647, ARRAY[cardinality(v_names)]);
      ELSE
        o := fairturn.open_channels(q, v_names, v_rem, v_wait, p_floors, p_own, p_given);
        v_wait := NULL; -- waiting is over: whoever holds a gate may wait for no other
        wait := least(wait, CASE WHEN o.wait IS NOT NULL AND fairturn.any_eligible(q.lane, versions, p_types, p_max_rank, clock, o.waiting)
                                 THEN o.wait END);
        lease_no := coalesce(o.lease_no, lease_no);
        floors := CASE WHEN floors IS NULL THEN o.floors ELSE coalesce(floors || o.floors, floors) END;
        v_closed := v_closed + o.looked - cardinality(o.channels);
        IF o.looked < cardinality(v_names) THEN
          -- The rest was not needed yet: the walk goes on behind the last one that was judged.
          v_from := v_names[o.looked];
          v_circled := false;
          IF v_upto IS NOT NULL AND v_from > v_upto THEN
            v_upto := NULL; -- it was the first half of the circle that was cut short
          END IF;
        END IF;
        IF cardinality(o.channels) = 0 THEN
          IF v_resume THEN
            v_resume := false; -- closed in the middle of its turn
          ELSIF v_closed >= SCAN AND NOT v_circled THEN
            more := true;
            IF cardinality(ids) = 0 THEN
              channel := v_from;
              credit := 0;
            END IF;
            EXIT;
          END IF;
          CONTINUE;
        END IF;
        v_hints := CASE WHEN cardinality(p_hint_channels) = 0 -- (looking them up is quadratic)
          THEN array_fill(NULL::int, ARRAY[cardinality(o.channels)])
          ELSE ARRAY(SELECT v_hints[array_position(v_names, c)] FROM unnest(o.channels) c) END;
        a_ch := a_ch || o.channels;
        a_w := a_w || o.weights;
        a_room := a_room || o.rooms;
        a_step := a_step || o.intervals;
        a_ord := a_ord || o.ordered;
        IF true = ANY (o.ordered) THEN
          v_any_ordered := true;
          ordered := ordered || ARRAY(SELECT c FROM unnest(o.channels, o.ordered) x(c, b) WHERE b);
        END IF;
      END IF;
      -- Each new channel is read from its hint, or from its start.
      v_k := cardinality(v_hints);
      IF cardinality(p_hint_channels) = 0 THEN
        a_rank := a_rank || array_fill(-2147483648, ARRAY[v_k]);
        a_due := a_due || array_fill(-1::bigint, ARRAY[v_k]);
        a_id := a_id || array_fill(-1::bigint, ARRAY[v_k]);
      ELSE
        SELECT a_rank || array_agg(coalesce(p_hint_ranks[h], -2147483648)),
               a_due || array_agg(coalesce(p_hint_dues[h], -1)), a_id || array_agg(coalesce(p_hint_ids[h], -1))
          INTO a_rank, a_due, a_id FROM unnest(v_hints) h;
      END IF;
      a_alive := a_alive || array_fill(true, ARRAY[v_k]);
      a_taken := a_taken || array_fill(0, ARRAY[v_k]);
      v_k := cardinality(a_ch);
      IF coalesce(p_credit, 0) > 0 AND v_k > 1 AND a_ch[1] = p_channel AND a_ch[v_k] = p_channel THEN
        -- It has already given in its unfinished turn: go on behind that.
        a_rank[v_k] := a_rank[1]; a_due[v_k] := a_due[1]; a_id[v_k] := a_id[1];
        IF v_any_ordered AND a_ord[v_k] THEN
          a_taken[v_k] := a_taken[1];
          a_room[v_k] := a_room[1];
        ELSE
          a_room[v_k] := least(a_room[v_k], a_room[1] - a_taken[1]);
        END IF;
      END IF;
    ELSIF v_ptr > cardinality(a_ch) THEN
      -- A new round among those that still have something to give.
      EXIT WHEN NOT (true = ANY (a_alive));
      v_ptr := 1;
      v_turn := 0;
    END IF;

    IF v_resume THEN
      v_quota := ARRAY[least(p_credit, v_rem, a_room[1])];
      v_off := ARRAY[0];
      v_ptr := 2;
      a_alive[1] := false;
    ELSE
      s := fairturn.quotas(v_rem, a_w, a_room, a_taken, a_alive, v_circled, cardinality(ids) = 0, v_plain AND q.weight = 1,
        v_ptr, v_turn);
      v_quota := s.quotas;
      v_off := s.offs;
      v_ptr := s.ptr;
      v_turn := s.turn;
    END IF;
    t := fairturn.take(q.lane, versions, p_version, a_ch, v_quota, CASE WHEN v_resume THEN ARRAY[p_credit] ELSE a_w END, v_off,
      a_rank, a_due, a_id, CASE WHEN v_any_ordered THEN a_ord END, a_taken, p_types, p_max_rank, clock);
    v_resume := false;
    ids := ids || t.ids;
    r_idx := r_idx || t.idx;
    r_credit := r_credit || t.credits;
    EXIT WHEN cardinality(ids) >= v_n;

    -- Some gave fewer than their quota: note how far each was read, and which have nothing more to give.
    FOR v_i IN 1 .. cardinality(t.ids) LOOP
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
    SELECT count(*) INTO v_k FROM (
      SELECT u.i, sum(octet_length(m.body)) OVER (ORDER BY u.i) AS total
      FROM unnest(ids) WITH ORDINALITY u(id, i) JOIN fairturn.message m ON m.id = u.id) x
      WHERE x.i = 1 OR x.total <= p_max_bytes;
    ids := ids[1:v_k];
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
  price := v_got * v_step;
END $$;
