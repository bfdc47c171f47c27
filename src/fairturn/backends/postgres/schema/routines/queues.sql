-- Fairturn on PostgreSQL: the clock, queues, policies, permits.
--
-- The SQLSTATEs of Fairturn's errors: FT001 lease lost, FT002 no such queue, FT003 duplicate key, FT004 channel
-- full, FT005 bad name, FT006 bad argument, FT007 unsafe transaction, FT008 permit lost, FT009 body too large,
-- FT010 message is leased, FT011 cursor of events lost. DETAIL has the value that a client needs for its own error.

-- The database's clock, in microseconds; p_now, if it is given.
CREATE OR REPLACE FUNCTION fairturn.now_us(p_now bigint DEFAULT NULL) RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$;

CREATE OR REPLACE FUNCTION fairturn.us(p_time interval) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (extract(epoch FROM p_time) * 1000000)::bigint
$$;

CREATE OR REPLACE FUNCTION fairturn.no_queue(p_queue text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'no queue is called %', quote_literal(p_queue)
    USING ERRCODE = 'FT002', DETAIL = p_queue, HINT = 'create it with queue_create()';
END $$;

-- The queue's row. An error if there is none.
CREATE OR REPLACE FUNCTION fairturn.queue_row(p_queue text) RETURNS fairturn.queue
LANGUAGE plpgsql STABLE AS $$
DECLARE q fairturn.queue;
BEGIN
  SELECT * INTO q FROM fairturn.queue WHERE name = p_queue;
  IF NOT FOUND THEN
    PERFORM fairturn.no_queue(p_queue);
  END IF;
  RETURN q;
END $$;

-- The queue's row as it is now, for a caller that holds its gates. An error if the queue was dropped meanwhile:
-- with a row of NULLs, `choose` would never end.
CREATE OR REPLACE FUNCTION fairturn.queue_again(q fairturn.queue) RETURNS fairturn.queue
LANGUAGE plpgsql VOLATILE AS $$
DECLARE v_now fairturn.queue;
BEGIN
  SELECT * INTO v_now FROM fairturn.queue WHERE id = q.id;
  IF NOT FOUND THEN
    PERFORM fairturn.no_queue(q.name);
  END IF;
  RETURN v_now;
END $$;

-- A queue's name, or NULL if it was dropped. (A function, because a subquery in a receive's statement costs time
-- in every receive, even if no message needs it.)
CREATE OR REPLACE FUNCTION fairturn.queue_named(p_id int) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT q.name FROM fairturn.queue q WHERE q.id = p_id);
END $$;

CREATE OR REPLACE FUNCTION fairturn.queue_create(p_queue text, p_settings jsonb DEFAULT '{}', p_now bigint DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_id int;
BEGIN
  IF p_queue IS NULL OR octet_length(p_queue) NOT BETWEEN 1 AND 255 THEN
    RAISE EXCEPTION 'a queue name has 1 to 255 bytes' USING ERRCODE = 'FT005';
  END IF;
  INSERT INTO fairturn.queue (name, created_at) VALUES (p_queue, fairturn.now_us(p_now))
    ON CONFLICT (name) DO NOTHING RETURNING id INTO v_id;
  IF v_id IS NULL THEN
    RETURN false;
  END IF;
  INSERT INTO fairturn.history (queue_id, minute) VALUES (v_id, 0);
  INSERT INTO fairturn.queue_gate (queue_id) VALUES (v_id);
  INSERT INTO fairturn.cursor (queue_id) VALUES (v_id);
  IF p_settings <> '{}' THEN
    PERFORM fairturn.queue_set(p_queue, p_settings, p_now);
  END IF;
  RETURN true;
END $$;

-- Change settings by their column names; the others stay. Unknown names are an error.
CREATE OR REPLACE FUNCTION fairturn.queue_set(p_queue text, p_settings jsonb, p_now bigint DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  v_key text;
  v_meta text := nullif(p_settings ->> 'meta', '{}');
  -- Only the named columns are written, so that two sessions that set different ones lose nothing.
  v_columns text := (SELECT string_agg(format('%I = s.%I', k, k), ', ') FROM jsonb_object_keys(p_settings - 'meta') k);
BEGIN
  FOR v_key IN SELECT jsonb_object_keys(p_settings) LOOP
    IF v_key IN ('id', 'name', 'lane', 'created_at') OR NOT (to_jsonb(q) ? v_key OR v_key = 'meta') THEN
      RAISE EXCEPTION 'a queue has no setting called %', quote_literal(v_key) USING ERRCODE = 'FT006';
    END IF;
  END LOOP;
  IF octet_length(v_meta) > 65536 OR json_typeof(v_meta::json) <> 'object' THEN
    RAISE EXCEPTION 'meta is a JSON object of at most 65536 bytes' USING ERRCODE = 'FT006';
  END IF;
  -- A limit holds for all leases given after it, so wait for receives that are choosing now.
  PERFORM 1 FROM fairturn.queue_gate g WHERE g.queue_id = q.id FOR UPDATE;
  IF NOT FOUND THEN
    PERFORM fairturn.no_queue(p_queue); -- it was dropped meanwhile
  END IF;
  IF v_columns IS NOT NULL THEN
    EXECUTE format('UPDATE fairturn.queue SET %s FROM jsonb_populate_record(NULL::fairturn.queue, $1) s
      WHERE queue.id = $2', v_columns) USING p_settings, q.id;
  END IF;
  IF v_meta IS NOT NULL THEN
    INSERT INTO fairturn.queue_meta (queue_id, meta) VALUES (q.id, v_meta)
      ON CONFLICT (queue_id) DO UPDATE SET meta = excluded.meta;
  ELSIF p_settings ? 'meta' THEN
    DELETE FROM fairturn.queue_meta WHERE queue_id = q.id;
  END IF;
  PERFORM fairturn.wake(p_queue);
END $$;

CREATE OR REPLACE FUNCTION fairturn.queue_purge(p_queue text, p_reset boolean DEFAULT false, p_now bigint DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE q fairturn.queue;
BEGIN
  SELECT * INTO q FROM fairturn.queue WHERE name = p_queue FOR UPDATE;
  IF NOT FOUND THEN
    PERFORM fairturn.queue_row(p_queue);
  END IF;
  UPDATE fairturn.queue SET lane = nextval('fairturn.lane') WHERE id = q.id;
  INSERT INTO fairturn.retired (lane, retired_at) VALUES (q.lane, fairturn.now_us(p_now));
  IF p_reset THEN
    DELETE FROM fairturn.failure WHERE queue_id = q.id;
    DELETE FROM fairturn.tally WHERE queue_id = q.id;
    DELETE FROM fairturn.history WHERE queue_id = q.id AND minute > 0;
    UPDATE fairturn.history SET sent = 0, delivered = 0, acked = 0, completed = 0, deferred = 0,
      failed = 0, killed = 0, recovered = 0, released = 0, cancelled = 0, expired = 0, errors = 0
      WHERE queue_id = q.id AND minute = 0;
  END IF;
END $$;

CREATE OR REPLACE FUNCTION fairturn.queue_drop(p_queue text, p_now bigint DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE q fairturn.queue;
BEGIN
  DELETE FROM fairturn.queue WHERE name = p_queue RETURNING * INTO q;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  INSERT INTO fairturn.retired (lane, retired_at) VALUES (q.lane, fairturn.now_us(p_now));
  DELETE FROM fairturn.gate WHERE queue_id = q.id;
  DELETE FROM fairturn.queue_gate WHERE queue_id = q.id;
  DELETE FROM fairturn.cursor WHERE queue_id = q.id;
  DELETE FROM fairturn.failure WHERE queue_id = q.id;
  DELETE FROM fairturn.tally WHERE queue_id = q.id;
  DELETE FROM fairturn.history WHERE queue_id = q.id;
  RETURN true;
END $$;

-- Replace the whole policy of a channel. The channel's gate is locked, so that the policy holds for every lease
-- given after it: a receive reads the policy under the gate.
CREATE OR REPLACE FUNCTION fairturn.policy_set(
  p_queue text, p_channel text, p_max_concurrency int DEFAULT NULL, p_rate_count bigint DEFAULT NULL,
  p_rate_period_us bigint DEFAULT NULL, p_burst int DEFAULT 1, p_weight int DEFAULT 1,
  p_paused boolean DEFAULT false, p_ordered boolean DEFAULT false, p_max_size int DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE q fairturn.queue := fairturn.queue_row(p_queue);
BEGIN
  IF p_channel IS NULL OR octet_length(p_channel) > 255 THEN
    RAISE EXCEPTION 'a channel has at most 255 bytes' USING ERRCODE = 'FT005';
  END IF;
  IF (p_rate_count IS NULL) <> (p_rate_period_us IS NULL) THEN
    RAISE EXCEPTION 'a rate is a count and a period: give both' USING ERRCODE = 'FT006';
  END IF;
  PERFORM fairturn.share_gates(q.id);
  INSERT INTO fairturn.gate AS g (queue_id, channel) VALUES (q.id, p_channel)
    ON CONFLICT (queue_id, channel) DO UPDATE SET tat = g.tat;
  -- @stop policy_set.gate
  INSERT INTO fairturn.policy AS p
    VALUES (q.id, p_channel, p_max_concurrency, p_rate_count, p_rate_period_us, p_burst, p_weight,
            p_paused::int, p_ordered::int, p_max_size)
    ON CONFLICT (queue_id, channel) DO UPDATE SET
      max_concurrency = excluded.max_concurrency, rate_count = excluded.rate_count,
      rate_period_us = excluded.rate_period_us, burst = excluded.burst, weight = excluded.weight,
      paused = excluded.paused, ordered = excluded.ordered, max_size = excluded.max_size;
  PERFORM fairturn.wake(p_queue);
END $$;

CREATE OR REPLACE FUNCTION fairturn.policy_clear(p_queue text, p_channel text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE q fairturn.queue := fairturn.queue_row(p_queue);
BEGIN
  PERFORM fairturn.share_gates(q.id);
  PERFORM 1 FROM fairturn.gate g WHERE g.queue_id = q.id AND g.channel = p_channel FOR UPDATE;
  DELETE FROM fairturn.policy WHERE queue_id = q.id AND channel = p_channel;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM fairturn.wake(p_queue);
  RETURN true;
END $$;

-- A number that nobody has had before, of 53 bits, so that every reader of JSON keeps it exactly: the token of a
-- lease, or the id of a permit. (A UUID has a version and a variant in the middle; these digits are random.)
CREATE OR REPLACE FUNCTION fairturn.new_token() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT greatest(('x' || left(replace(u.id, '-', ''), 12) || right(u.id, 2))::bit(56)::bigint & 9007199254740991, 1)
  FROM (SELECT gen_random_uuid()::text AS id) u
$$;

CREATE OR REPLACE FUNCTION fairturn.permit_create(p_name text, p_ttl_us bigint, p_now bigint DEFAULT NULL,
  p_id bigint DEFAULT NULL)
RETURNS bigint LANGUAGE sql AS $$
  INSERT INTO fairturn.permit (id, name, created_at, expires_at)
  SELECT coalesce(p_id, fairturn.new_token()), p_name, n.now, n.now + p_ttl_us
    FROM (SELECT fairturn.now_us(p_now) AS now) n
  RETURNING id
$$;

-- False if the permit has expired: its messages may have been recovered already.
CREATE OR REPLACE FUNCTION fairturn.permit_extend(p_permit bigint, p_ttl_us bigint, p_now bigint DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_now bigint := fairturn.now_us(p_now);
BEGIN
  UPDATE fairturn.permit SET expires_at = v_now + p_ttl_us
    WHERE id = p_permit AND expires_at > v_now;
  RETURN FOUND;
END $$;
