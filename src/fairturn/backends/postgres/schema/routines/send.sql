-- Fairturn on PostgreSQL: sending. A sender takes no lock that a receiver or another sender needs; only
-- senders of the same key wait for each other.

-- The versions that have a message ready: one index probe for each.
CREATE OR REPLACE FUNCTION fairturn.ready_versions(p_lane int) RETURNS int[]
LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v bigint := -2147483649; -- below every version
  v_all int[] := '{}';
BEGIN
  LOOP
    SELECT m.version INTO v FROM fairturn.message m
      WHERE m.lane = p_lane AND m.state = 'r' AND m.version > v ORDER BY m.version LIMIT 1;
    EXIT WHEN NOT FOUND;
    v_all := v_all || v::int;
  END LOOP;
  RETURN v_all;
END $$;

-- The number of a channel's unfinished messages, counted no further than p_most.
CREATE OR REPLACE FUNCTION fairturn.channel_size(p_lane int, p_channel text, p_most int) RETURNS int
LANGUAGE sql STABLE AS $$
  SELECT count(*)::int FROM (
    SELECT 1 FROM unnest(fairturn.ready_versions(p_lane)) v
      CROSS JOIN LATERAL (SELECT 1 FROM fairturn.message m
        WHERE m.lane = p_lane AND m.version = v AND m.channel = p_channel AND m.state = 'r' LIMIT p_most) r
    UNION ALL
    (SELECT 1 FROM fairturn.message m
      WHERE m.lane = p_lane AND m.channel = p_channel AND m.state IN ('s', 'h') LIMIT p_most)
    UNION ALL
    (SELECT 1 FROM fairturn.message m
      WHERE m.lane = p_lane AND m.channel = p_channel AND m.state = 'l' LIMIT p_most)
    LIMIT p_most) x
$$;

-- The first channel that would exceed its max_size, and that size. p_channels has the channel of each new
-- message. Nothing is counted where no max_size is set.
CREATE OR REPLACE FUNCTION fairturn.full_channel(q fairturn.queue, p_channels text[], OUT channel text, OUT max_size int)
LANGUAGE plpgsql STABLE AS $$
DECLARE r record;
BEGIN
  IF q.max_size IS NULL AND NOT EXISTS (
    SELECT 1 FROM fairturn.policy p WHERE p.queue_id = q.id AND p.max_size IS NOT NULL) THEN
    RETURN;
  END IF;
  -- (A loop, because a statement that calls channel_size plans it again at each call: 100 microseconds.)
  FOR r IN
    SELECT c.channel, c.n, CASE WHEN p.queue_id IS NULL THEN q.max_size ELSE p.max_size END AS most
    FROM (SELECT u AS channel, count(*) AS n FROM unnest(p_channels) u GROUP BY u) c
    LEFT JOIN fairturn.policy p ON p.queue_id = q.id AND p.channel = c.channel
    ORDER BY c.channel COLLATE "C"
  LOOP
    IF r.most IS NOT NULL AND fairturn.channel_size(q.lane, r.channel, r.most) + r.n > r.most THEN
      channel := r.channel;
      max_size := r.most;
      RETURN;
    END IF;
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION fairturn.check_bodies(q fairturn.queue, p_largest bigint) RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF p_largest > q.max_body THEN
    RAISE EXCEPTION 'the body has % bytes and the queue takes at most %', p_largest, q.max_body
      USING ERRCODE = 'FT009', DETAIL = p_largest || '/' || q.max_body;
  END IF;
END $$;

-- Send one message without a key. Returns (id, 's'), or (max_size, 'm') if its channel is full.
CREATE OR REPLACE FUNCTION fairturn.send_one(
  p_queue text, p_channel text, p_body bytea, p_json int, p_rank int, p_due bigint, p_delay bigint,
  p_version int, p_type text, p_headers bytea, p_lease bigint, p_max_attempts int, p_expires bigint,
  p_group text, p_now bigint, OUT id bigint, OUT outcome text)
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  v_now bigint := fairturn.now_us(p_now);
  v_due bigint := coalesce(p_due, v_now + p_delay);
  v_full record;
  v_group bigint;
  v_held boolean := false;
BEGIN
  -- @stop send.start
  IF octet_length(p_body) > q.max_body THEN
    PERFORM fairturn.check_bodies(q, octet_length(p_body));
  END IF;
  v_full := fairturn.full_channel(q, ARRAY[p_channel]);
  IF v_full.max_size IS NOT NULL THEN
    id := v_full.max_size;
    outcome := 'm';
    RETURN;
  END IF;
  IF p_group IS NOT NULL THEN
    SELECT g.id, g.held INTO v_group, v_held FROM fairturn.group_join(p_group, p_queue, v_now) g;
  END IF;
  INSERT INTO fairturn.message AS m (due_at, created_at, lease_us, expires_at, lane, rank, version,
      max_attempts, json, state, channel, type, body, headers, group_id)
    VALUES (v_due, v_now, p_lease, v_now + coalesce(p_expires, q.expires_us), q.lane, p_rank,
      p_version, p_max_attempts, p_json, CASE WHEN v_held THEN 'h' WHEN v_due <= v_now THEN 'r' ELSE 's' END,
      p_channel, p_type, p_body, p_headers, v_group)
    RETURNING m.id INTO send_one.id;
  INSERT INTO fairturn.tally (queue_id, at, sent) VALUES (q.id, v_now, 1);
  IF v_group IS NOT NULL THEN
    INSERT INTO fairturn.group_mark (group_id, sent) VALUES (v_group, 1);
  END IF;
  IF q.events <> 0 THEN
    INSERT INTO fairturn.event (at, kind, queue, message_id, channel, delay_us)
      VALUES (v_now, 'created', p_queue, send_one.id, p_channel, greatest(v_due - v_now, 0));
  END IF;
  PERFORM fairturn.wake(p_queue);
  outcome := 's';
END $$;

-- Send many messages, with or without keys. Returns (id, outcome) in the order of the items. An array that
-- is NULL means the default for every item. Outcomes: s sent, d duplicate, r replaced, f refused, c collapsed,
-- e conflict, m channel full (id: its max_size), n not sent because of another item. p_settle: close the groups
-- that members have left; a batch does so itself, after its last send.
CREATE OR REPLACE FUNCTION fairturn.send_rows(
  p_queue text, p_channels text[], p_bodies bytea[], p_json int[], p_ranks int[], p_dues bigint[],
  p_delays bigint[], p_keys text[], p_conflicts text, p_versions int[], p_types text[],
  p_headers bytea[], p_leases bigint[], p_max_attempts int[], p_expires bigint[], p_max_waits bigint[],
  p_groups text[], p_onces text[], p_once_us bigint[], p_now bigint, p_settle boolean DEFAULT true)
RETURNS TABLE (id bigint, outcome text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  v_now bigint := fairturn.now_us(p_now);
  v_n int := cardinality(p_bodies);
  v_outcome text[];
  v_ids bigint[];
  v_full record;
  v_sent int;
  v_group_ids bigint[];
  v_held boolean[];
  v_left boolean;
BEGIN
  PERFORM fairturn.check_bodies(q, (SELECT max(octet_length(b)) FROM unnest(p_bodies) b));
  v_outcome := array_fill('s'::text, ARRAY[v_n]);
  v_ids := ARRAY(SELECT nextval('fairturn.message_id') FROM generate_series(1, v_n));
  IF p_keys IS NOT NULL THEN
    -- Of items with the same key only the last is sent.
    SELECT array_agg(CASE WHEN k.key IS NOT NULL AND k.i < k.last THEN 'c' ELSE 's' END ORDER BY k.i)
      INTO v_outcome
      FROM (SELECT u.key, u.i, max(u.i) OVER (PARTITION BY u.key) AS last
            FROM unnest(p_keys) WITH ORDINALITY u(key, i)) k;
    -- A conflict refuses the whole call before anything is written.
    -- (A scalar subquery is one probe of the key index; a join might be planned as a scan.)
    SELECT array_agg(CASE WHEN o.outcome = 's' AND substr(p_conflicts, o.i::int, 1) = 'e'
          AND (SELECT h.state FROM fairturn.message h WHERE h.lane = q.lane AND h.key = p_keys[o.i]) <> 'x'
        THEN 'e' ELSE o.outcome END ORDER BY o.i)
      INTO v_outcome
      FROM unnest(v_outcome) WITH ORDINALITY o(outcome, i);
    IF 'e' = ANY (v_outcome) THEN
      RETURN QUERY SELECT 0::bigint, CASE WHEN o = 'e' THEN o ELSE 'n' END FROM unnest(v_outcome) o;
      RETURN;
    END IF;
  END IF;
  IF p_onces IS NOT NULL THEN
    SELECT t.ids, t.outcome INTO v_ids, v_outcome
      FROM fairturn.once_take(q.lane, p_onces, p_once_us, v_ids, v_outcome, v_now) t;
  END IF;
  v_full := fairturn.full_channel(q, ARRAY(
    SELECT p_channels[o.i] FROM unnest(v_outcome) WITH ORDINALITY o(outcome, i)
    WHERE o.outcome = 's' AND (p_keys IS NULL OR p_keys[o.i] IS NULL OR NOT EXISTS (
      SELECT 1 FROM fairturn.message h WHERE h.lane = q.lane AND h.key = p_keys[o.i] AND h.state <> 'x'))));
  IF v_full.max_size IS NOT NULL THEN
    PERFORM fairturn.once_undo(q.lane, p_onces, v_ids, v_outcome);
    RETURN QUERY SELECT v_full.max_size::bigint, CASE WHEN c = v_full.channel THEN 'm' ELSE 'n' END
      FROM unnest(p_channels) c;
    RETURN;
  END IF;
  IF p_groups IS NOT NULL THEN
    SELECT array_agg(j.id ORDER BY u.i), array_agg(j.held ORDER BY u.i) INTO v_group_ids, v_held
      FROM unnest(p_groups) WITH ORDINALITY u(name, i)
      LEFT JOIN fairturn.groups_join(p_groups, p_queue, v_now) j ON j.name = u.name;
  END IF;
  -- @stop send.write
  BEGIN
    SELECT k.ids, k.outcome, k.sent, k.left_group INTO v_ids, v_outcome, v_sent, v_left FROM fairturn.send_write(
      q, v_ids, v_outcome, p_channels, p_bodies, p_json, p_ranks, p_dues, p_delays, p_keys,
      p_conflicts, p_versions, p_types, p_headers, p_leases, p_max_attempts, p_expires, p_max_waits,
      v_group_ids, v_held, v_now) k;
  EXCEPTION WHEN SQLSTATE 'FT003' THEN
    -- Another transaction has committed that key in the meantime. Only this block is rolled back.
    PERFORM fairturn.once_undo(q.lane, p_onces, v_ids, v_outcome);
    RETURN QUERY SELECT 0::bigint,
      CASE WHEN p_keys[o.i] = ANY (SELECT h.key FROM fairturn.message h WHERE h.lane = q.lane AND h.key = ANY (p_keys))
           THEN 'e' ELSE 'n' END
      FROM generate_series(1, v_n) o(i);
    RETURN;
  END;
  IF v_sent > 0 THEN
    INSERT INTO fairturn.tally (queue_id, at, sent) VALUES (q.id, v_now, v_sent);
  END IF;
  IF p_groups IS NOT NULL THEN
    INSERT INTO fairturn.group_mark (group_id, sent)
      SELECT u.g, count(*) FROM unnest(v_group_ids, v_outcome) u(g, o)
      WHERE u.g IS NOT NULL AND u.o IN ('s', 'r') GROUP BY u.g ORDER BY u.g;
  END IF;
  IF v_left AND p_settle THEN
    PERFORM fairturn.settle(100, p_now);
  END IF;
  IF q.events <> 0 THEN
    PERFORM fairturn.tell(q, 'created', ARRAY(
      SELECT u.i FROM unnest(v_ids, v_outcome) u(i, o) WHERE u.o IN ('s', 'r')), v_now);
  END IF;
  PERFORM fairturn.wake(p_queue);
  RETURN QUERY SELECT * FROM unnest(v_ids, v_outcome);
END $$;

-- The part of send_rows that writes. Messages with keys are inserted, and the holders of their keys locked, in
-- the order of the keys, so that two calls with the same keys wait for each other and never deadlock.
-- `left_group`: a replaced message has left its group.
CREATE OR REPLACE FUNCTION fairturn.send_write(
  q fairturn.queue, p_ids bigint[], p_outcome text[], p_channels text[], p_bodies bytea[],
  p_json int[], p_ranks int[], p_dues bigint[], p_delays bigint[], p_keys text[], p_conflicts text,
  p_versions int[], p_types text[], p_headers bytea[], p_leases bigint[], p_max_attempts int[],
  p_expires bigint[], p_max_waits bigint[], p_groups bigint[], p_held boolean[], p_now bigint,
  OUT ids bigint[], OUT outcome text[], OUT sent int, OUT left_group boolean)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_todo int[];
  v_i int;
  v_old record;
  v_due bigint;
  v_try int := 0;
BEGIN
  ids := p_ids;
  outcome := p_outcome;
  sent := 0;
  v_todo := ARRAY(SELECT i FROM unnest(p_outcome) WITH ORDINALITY o(o, i) WHERE o = 's');
  WHILE cardinality(v_todo) > 0 LOOP
    v_try := v_try + 1;
    IF v_try > 20 THEN
      RAISE EXCEPTION 'other sessions change the messages with these keys too fast: try again' USING ERRCODE = '40001';
    END IF;
    WITH row AS (
      SELECT t.i, x.*, least(coalesce(x.due, p_now + coalesce(x.delay, 0)), p_now + x.max_wait) AS due_at
      FROM unnest(p_channels, p_bodies, p_json, p_ranks, p_dues, p_delays, p_keys, p_versions,
                  p_types, p_headers, p_leases, p_max_attempts, p_expires, p_max_waits, p_groups, p_held)
        WITH ORDINALITY x(channel, body, json, rank, due, delay, key, version, type, headers, lease, attempts,
                          expires, max_wait, group_id, held, n)
      JOIN unnest(v_todo) t(i) ON t.i = x.n
    ), written AS (
      INSERT INTO fairturn.message AS m (id, due_at, created_at, lease_us, expires_at, lane, rank,
          version, max_attempts, json, state, channel, key, type, body, headers, group_id)
        SELECT p_ids[r.i], r.due_at, p_now, r.lease, p_now + coalesce(r.expires, q.expires_us),
          q.lane, coalesce(r.rank, 0), coalesce(r.version, 0), r.attempts, coalesce(r.json, 0),
          CASE WHEN r.held THEN 'h' WHEN r.due_at <= p_now THEN 'r' ELSE 's' END, coalesce(r.channel, ''), r.key,
          r.type, r.body, r.headers, r.group_id
        FROM row r ORDER BY r.key COLLATE "C" NULLS FIRST, r.i
        ON CONFLICT (lane, key) WHERE key IS NOT NULL DO NOTHING
        RETURNING m.id
    )
    SELECT array_agg(t.i ORDER BY p_keys[t.i] COLLATE "C") FILTER (WHERE w.id IS NULL), count(w.id) + sent
      INTO v_todo, sent
      FROM unnest(v_todo) t(i) LEFT JOIN written w ON w.id = p_ids[t.i];
    EXIT WHEN v_todo IS NULL;
    -- @stop send.holder
    -- The keys of the remaining items have holders.
    FOREACH v_i IN ARRAY v_todo LOOP
      IF substr(p_conflicts, v_i, 1) = 'r' THEN
        SELECT m.id, m.state, m.group_id, m.created_at INTO v_old FROM fairturn.message m
          WHERE m.lane = q.lane AND m.key = p_keys[v_i] FOR UPDATE;
      ELSE
        SELECT m.id, m.state INTO v_old FROM fairturn.message m
          WHERE m.lane = q.lane AND m.key = p_keys[v_i];
      END IF;
      CONTINUE WHEN NOT FOUND; -- the holder has just gone: insert again
      IF v_old.state = 'x' THEN
        -- A dead message loses its key to the new one.
        UPDATE fairturn.message m SET key = NULL WHERE m.id = v_old.id AND m.state = 'x';
        CONTINUE;
      END IF;
      IF substr(p_conflicts, v_i, 1) = 'e' THEN
        RAISE EXCEPTION 'duplicate key' USING ERRCODE = 'FT003', DETAIL = p_keys[v_i];
      ELSIF substr(p_conflicts, v_i, 1) = 'i' THEN
        outcome[v_i] := 'd';
      ELSIF v_old.state = 'l' THEN
        outcome[v_i] := 'f';
      ELSE
        outcome[v_i] := 'r';
        v_due := least(coalesce(p_dues[v_i], p_now + coalesce(p_delays[v_i], 0)),
          CASE WHEN v_old.state = 'd' THEN p_now ELSE v_old.created_at END + p_max_waits[v_i]);
        UPDATE fairturn.message m SET
          channel = coalesce(p_channels[v_i], ''), body = p_bodies[v_i], headers = p_headers[v_i],
          json = coalesce(p_json[v_i], 0), rank = coalesce(p_ranks[v_i], 0),
          version = coalesce(p_versions[v_i], 0), type = p_types[v_i], lease_us = p_leases[v_i],
          max_attempts = p_max_attempts[v_i],
          expires_at = p_now + coalesce(p_expires[v_i], q.expires_us),
          due_at = v_due, group_id = p_groups[v_i],
          state = CASE WHEN p_held[v_i] THEN 'h' WHEN v_due <= p_now THEN 'r' ELSE 's' END,
          created_at = CASE WHEN m.state = 'd' THEN p_now ELSE m.created_at END,
          attempts = 0, memo = NULL, result = NULL, error = NULL, finished_at = NULL,
          lease_until = NULL, progress = NULL, note = NULL, recovered = false, begun = false, first_at = NULL
          WHERE m.id = v_old.id;
        IF v_old.group_id <> coalesce(p_groups[v_i], 0) THEN
          PERFORM fairturn.mark(ARRAY[v_old.group_id], NULL);
          left_group := true;
        END IF;
      END IF;
      ids[v_i] := v_old.id;
      v_todo := array_remove(v_todo, v_i);
      -- @stop send.next
    END LOOP;
  END LOOP;
  -- A collapsed item has the id of the item that was sent for it.
  IF p_keys IS NOT NULL AND 'c' = ANY (outcome) THEN
    SELECT array_agg(CASE WHEN o.o = 'c' THEN ids[l.i] ELSE ids[o.i] END ORDER BY o.i) INTO ids
      FROM unnest(outcome) WITH ORDINALITY o(o, i)
      LEFT JOIN (SELECT k.key, max(k.i) AS i FROM unnest(p_keys) WITH ORDINALITY k(key, i) GROUP BY k.key) l
        ON l.key = p_keys[o.i];
  END IF;
END $$;

-- Prepare a bulk COPY: the lane, the clock, the ids, and the bounds that the rows are checked against. `bulk`
-- is false if the queue has a max_size or events; then the rows go through send_rows.
CREATE OR REPLACE FUNCTION fairturn.send_open(p_queue text, p_n int, p_now bigint,
  OUT lane int, OUT now bigint, OUT max_body bigint, OUT expires_us bigint, OUT bulk boolean, OUT ids bigint[])
LANGUAGE plpgsql AS $$
DECLARE q fairturn.queue := fairturn.queue_row(p_queue);
BEGIN
  lane := q.lane;
  now := fairturn.now_us(p_now);
  max_body := q.max_body;
  expires_us := q.expires_us;
  bulk := q.max_size IS NULL AND q.events = 0 AND NOT EXISTS (
    SELECT 1 FROM fairturn.policy p WHERE p.queue_id = q.id AND p.max_size IS NOT NULL);
  IF bulk THEN
    ids := ARRAY(SELECT nextval('fairturn.message_id') FROM generate_series(1, p_n));
    INSERT INTO fairturn.tally (queue_id, at, sent) VALUES (q.id, now, p_n);
    PERFORM fairturn.wake(p_queue);
  END IF;
END $$;

-- The SQL door: one message whose body is text, JSON unless p_json is false.
CREATE OR REPLACE FUNCTION fairturn.send(
  p_queue text, p_body text, p_channel text DEFAULT '', p_priority int DEFAULT 0,
  p_delay interval DEFAULT NULL, p_at timestamptz DEFAULT NULL, p_key text DEFAULT NULL,
  p_on_conflict text DEFAULT 'error', p_version int DEFAULT 0, p_type text DEFAULT NULL,
  p_headers jsonb DEFAULT NULL, p_lease interval DEFAULT NULL, p_max_attempts int DEFAULT NULL,
  p_expires interval DEFAULT NULL, p_json boolean DEFAULT true, p_max_wait interval DEFAULT NULL,
  p_group text DEFAULT NULL, p_once text DEFAULT NULL, p_once_for interval DEFAULT '300 s', p_now bigint DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  IF p_json THEN
    PERFORM p_body::json;
  END IF;
  RETURN fairturn.send_bytes(p_queue, convert_to(p_body, 'UTF8'), p_channel, p_priority, p_delay,
    p_at, p_key, p_on_conflict, p_version, p_type, p_headers, p_lease, p_max_attempts, p_expires,
    p_json, p_max_wait, p_group, p_once, p_once_for, p_now);
END $$;

-- The same with a body of any bytes.
CREATE OR REPLACE FUNCTION fairturn.send_bytes(
  p_queue text, p_body bytea, p_channel text DEFAULT '', p_priority int DEFAULT 0,
  p_delay interval DEFAULT NULL, p_at timestamptz DEFAULT NULL, p_key text DEFAULT NULL,
  p_on_conflict text DEFAULT 'error', p_version int DEFAULT 0, p_type text DEFAULT NULL,
  p_headers jsonb DEFAULT NULL, p_lease interval DEFAULT NULL, p_max_attempts int DEFAULT NULL,
  p_expires interval DEFAULT NULL, p_json boolean DEFAULT false, p_max_wait interval DEFAULT NULL,
  p_group text DEFAULT NULL, p_once text DEFAULT NULL, p_once_for interval DEFAULT '300 s', p_now bigint DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE r record;
BEGIN
  IF p_body IS NULL OR p_channel IS NULL OR p_delay < interval '0' OR p_lease < interval '0'
     OR p_max_attempts < 0 OR p_expires < interval '0' OR (p_delay IS NOT NULL AND p_at IS NOT NULL)
     OR p_max_wait < interval '0' OR (p_max_wait IS NOT NULL AND (p_key IS NULL OR p_on_conflict <> 'replace'))
     OR p_on_conflict NOT IN ('error', 'ignore', 'replace') THEN
    RAISE EXCEPTION 'a message needs a body and a channel; max_wait needs a key and on_conflict replace; delay, max_wait, lease, max_attempts and expires must not be negative; give delay or at, not both; on_conflict is error, ignore or replace'
      USING ERRCODE = 'FT006';
  END IF;
  IF p_once IS NOT NULL AND (p_key IS NOT NULL OR p_once_for IS NULL OR p_once_for <= interval '0') THEN
    RAISE EXCEPTION 'once and key exclude each other, and once_for must be above 0' USING ERRCODE = 'FT006';
  END IF;
  IF octet_length(p_channel) > 255 OR octet_length(p_key) NOT BETWEEN 1 AND 255 OR octet_length(p_type) NOT BETWEEN 1 AND 255
     OR octet_length(p_group) NOT BETWEEN 1 AND 255 OR octet_length(p_once) NOT BETWEEN 1 AND 255 THEN
    RAISE EXCEPTION 'channel, key, type, group and once have at most 255 bytes' USING ERRCODE = 'FT005';
  END IF;
  SELECT * INTO r FROM fairturn.send_rows(p_queue, ARRAY[p_channel], ARRAY[p_body],
    ARRAY[p_json::int], ARRAY[-p_priority], ARRAY[(extract(epoch FROM p_at) * 1000000)::bigint],
    ARRAY[coalesce(fairturn.us(p_delay), 0)], CASE WHEN p_key IS NOT NULL THEN ARRAY[p_key] END,
    left(p_on_conflict, 1), ARRAY[p_version], ARRAY[p_type], ARRAY[convert_to(p_headers::text, 'UTF8')],
    ARRAY[fairturn.us(p_lease)], ARRAY[p_max_attempts], ARRAY[fairturn.us(p_expires)],
    ARRAY[fairturn.us(p_max_wait)], CASE WHEN p_group IS NOT NULL THEN ARRAY[p_group] END,
    CASE WHEN p_once IS NOT NULL THEN ARRAY[p_once] END, ARRAY[fairturn.us(p_once_for)], p_now);
  IF r.outcome = 'e' THEN
    RAISE EXCEPTION 'queue % already has a message with key %', quote_literal(p_queue), quote_literal(p_key)
      USING ERRCODE = 'FT003', DETAIL = p_key, HINT = 'pass p_on_conflict => ''ignore'' or ''replace''';
  ELSIF r.outcome = 'f' THEN
    RAISE EXCEPTION 'message % with key % is leased and was not replaced', r.id, quote_literal(p_key)
      USING ERRCODE = 'FT010', HINT = 'send it again when the message is finished';
  ELSIF r.outcome = 'm' THEN
    RAISE EXCEPTION 'channel % of queue % is full', quote_literal(p_channel), quote_literal(p_queue)
      USING ERRCODE = 'FT004';
  END IF;
  RETURN r.id;
END $$;

-- The SQL door: many messages, as a JSON array of objects {"body": any JSON, "channel", "priority", "delay"
-- (seconds), "at" (seconds since the epoch), "key", "on_conflict", "version", "type", "headers", "lease",
-- "max_attempts", "expires", "max_wait", "group", "once", "once_for"}.
CREATE OR REPLACE FUNCTION fairturn.send_many(p_queue text, p_messages jsonb, p_now bigint DEFAULT NULL)
RETURNS TABLE (id bigint, outcome text) LANGUAGE plpgsql AS $$
DECLARE r record;
BEGIN
  SELECT array_agg(coalesce(m ->> 'channel', '') ORDER BY i) AS channels,
         array_agg(convert_to((m -> 'body')::text, 'UTF8') ORDER BY i) AS bodies,
         array_agg(1 ORDER BY i) AS json,
         array_agg(-coalesce((m ->> 'priority')::int, 0) ORDER BY i) AS ranks,
         array_agg(((m ->> 'at')::numeric * 1000000)::bigint ORDER BY i) AS dues,
         array_agg(coalesce(((m ->> 'delay')::numeric * 1000000)::bigint, 0) ORDER BY i) AS delays,
         array_agg(m ->> 'key' ORDER BY i) AS keys,
         string_agg(left(coalesce(m ->> 'on_conflict', 'error'), 1), '' ORDER BY i) AS conflicts,
         array_agg(coalesce((m ->> 'version')::int, 0) ORDER BY i) AS versions,
         array_agg(m ->> 'type' ORDER BY i) AS types,
         array_agg(convert_to((m -> 'headers')::text, 'UTF8') ORDER BY i) AS headers,
         array_agg(((m ->> 'lease')::numeric * 1000000)::bigint ORDER BY i) AS leases,
         array_agg((m ->> 'max_attempts')::int ORDER BY i) AS attempts,
         array_agg(((m ->> 'expires')::numeric * 1000000)::bigint ORDER BY i) AS expires,
         array_agg(((m ->> 'max_wait')::numeric * 1000000)::bigint ORDER BY i) AS max_waits,
         array_agg(m ->> 'group' ORDER BY i) AS groups, array_agg(m ->> 'once' ORDER BY i) AS onces,
         array_agg((coalesce((m ->> 'once_for')::numeric, 300) * 1000000)::bigint ORDER BY i) AS once_us
    INTO r FROM jsonb_array_elements(p_messages) WITH ORDINALITY e(m, i);
  IF r.channels IS NULL THEN
    RETURN;
  END IF;
  IF EXISTS (SELECT 1 FROM jsonb_array_elements(p_messages) m
      WHERE coalesce(m ->> 'on_conflict', 'error') NOT IN ('error', 'ignore', 'replace')
        OR NOT m ? 'body' OR (m ? 'delay' AND m ? 'at') OR (m ->> 'delay')::numeric < 0
        OR (m ->> 'lease')::numeric < 0 OR (m ->> 'max_attempts')::int < 0 OR (m ->> 'expires')::numeric < 0
        OR (m ->> 'once' IS NOT NULL AND m ->> 'key' IS NOT NULL) OR (m ->> 'once_for')::numeric <= 0) THEN
    RAISE EXCEPTION 'each message needs a body; delay, lease, max_attempts and expires must not be negative; give delay or at, not both; on_conflict is error, ignore or replace; once and key exclude each other, and once_for must be above 0'
      USING ERRCODE = 'FT006';
  END IF;
  IF EXISTS (SELECT 1 FROM jsonb_array_elements(p_messages) m
      WHERE octet_length(m ->> 'channel') > 255 OR octet_length(m ->> 'key') NOT BETWEEN 1 AND 255
        OR octet_length(m ->> 'type') NOT BETWEEN 1 AND 255 OR octet_length(m ->> 'group') NOT BETWEEN 1 AND 255
        OR octet_length(m ->> 'once') NOT BETWEEN 1 AND 255) THEN
    RAISE EXCEPTION 'channel, key, type, group and once have at most 255 bytes' USING ERRCODE = 'FT005';
  END IF;
  RETURN QUERY SELECT s.id, CASE s.outcome WHEN 's' THEN 'sent' WHEN 'd' THEN 'duplicate'
      WHEN 'r' THEN 'replaced' WHEN 'f' THEN 'refused' WHEN 'c' THEN 'collapsed'
      WHEN 'e' THEN 'conflict' WHEN 'm' THEN 'full' ELSE 'not sent' END
    FROM fairturn.send_rows(p_queue, r.channels, r.bodies, r.json, r.ranks, r.dues, r.delays,
      CASE WHEN EXISTS (SELECT 1 FROM unnest(r.keys) k WHERE k IS NOT NULL) THEN r.keys END,
      r.conflicts, r.versions, r.types, r.headers, r.leases, r.attempts, r.expires, r.max_waits,
      CASE WHEN EXISTS (SELECT 1 FROM unnest(r.groups) g WHERE g IS NOT NULL) THEN r.groups END,
      CASE WHEN EXISTS (SELECT 1 FROM unnest(r.onces) o WHERE o IS NOT NULL) THEN r.onces END, r.once_us, p_now) s;
END $$;
