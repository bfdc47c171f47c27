-- Fairlead on PostgreSQL: the clock, queues, policies, permits.
--
-- Errors of ours have SQLSTATEs FL001 lease lost, FL002 no such queue, FL003 duplicate key, FL004
-- channel full, FL005 bad name, FL006 bad argument, FL007 unsafe transaction, FL008 permit lost,
-- FL009 body too large; DETAIL carries what a client needs to build its own error.

CREATE FUNCTION fairlead.now_us(p_now bigint DEFAULT NULL) RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
  SELECT coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$;

CREATE FUNCTION fairlead.no_queue(p_queue text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'no queue is called %', quote_literal(p_queue)
    USING ERRCODE = 'FL002', DETAIL = p_queue, HINT = 'create it with queue_create()';
END $$;

-- The queue's row, or the error that it does not exist.
CREATE FUNCTION fairlead.queue_row(p_queue text) RETURNS fairlead.queue
LANGUAGE plpgsql STABLE AS $$
DECLARE q fairlead.queue;
BEGIN
  SELECT * INTO q FROM fairlead.queue WHERE name = p_queue;
  IF NOT FOUND THEN
    PERFORM fairlead.no_queue(p_queue);
  END IF;
  RETURN q;
END $$;

-- The queue as it is now, for whoever holds its gates, or the error that it was dropped meanwhile: with
-- a row of NULLs the choice would never end.
CREATE FUNCTION fairlead.queue_again(q fairlead.queue) RETURNS fairlead.queue
LANGUAGE plpgsql VOLATILE AS $$
DECLARE v_now fairlead.queue;
BEGIN
  SELECT * INTO v_now FROM fairlead.queue WHERE id = q.id;
  IF NOT FOUND THEN
    PERFORM fairlead.no_queue(q.name);
  END IF;
  RETURN v_now;
END $$;

-- A queue's name, or NULL if it was dropped. What a message may have is looked up by a function, not by a
-- subquery: that would be made ready by every receive, also where no message has it.
CREATE FUNCTION fairlead.queue_named(p_id int) RETURNS text
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN (SELECT q.name FROM fairlead.queue q WHERE q.id = p_id);
END $$;

CREATE FUNCTION fairlead.queue_create(p_queue text, p_settings jsonb DEFAULT '{}', p_now bigint DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_id int;
BEGIN
  IF p_queue IS NULL OR octet_length(p_queue) NOT BETWEEN 1 AND 255 THEN
    RAISE EXCEPTION 'a queue name has 1 to 255 bytes' USING ERRCODE = 'FL005';
  END IF;
  INSERT INTO fairlead.queue (name, created_at) VALUES (p_queue, fairlead.now_us(p_now))
    ON CONFLICT (name) DO NOTHING RETURNING id INTO v_id;
  IF v_id IS NULL THEN
    RETURN false;
  END IF;
  INSERT INTO fairlead.history (queue_id, minute) VALUES (v_id, 0);
  INSERT INTO fairlead.queue_gate (queue_id) VALUES (v_id);
  INSERT INTO fairlead.cursor (queue_id) VALUES (v_id);
  IF p_settings <> '{}' THEN
    PERFORM fairlead.queue_set(p_queue, p_settings, p_now);
  END IF;
  RETURN true;
END $$;

-- Settings by column name; what is not named stays. Unknown names are an error.
CREATE FUNCTION fairlead.queue_set(p_queue text, p_settings jsonb, p_now bigint DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  q fairlead.queue := fairlead.queue_row(p_queue);
  v_key text;
  v_meta text := nullif(p_settings ->> 'meta', '{}');
BEGIN
  FOR v_key IN SELECT jsonb_object_keys(p_settings) LOOP
    IF v_key IN ('id', 'name', 'lane', 'created_at') OR NOT (to_jsonb(q) ? v_key OR v_key = 'meta') THEN
      RAISE EXCEPTION 'a queue has no setting called %', quote_literal(v_key) USING ERRCODE = 'FL006';
    END IF;
  END LOOP;
  IF octet_length(v_meta) > 65536 OR json_typeof(v_meta::json) <> 'object' THEN
    RAISE EXCEPTION 'meta is a JSON object of at most 65536 bytes' USING ERRCODE = 'FL006';
  END IF;
  -- The limit binds the leases given after it: wait for receives that are deciding right now.
  PERFORM 1 FROM fairlead.queue_gate g WHERE g.queue_id = q.id FOR UPDATE;
  q := jsonb_populate_record(q, p_settings);
  UPDATE fairlead.queue SET
    lease_us = q.lease_us, max_attempts = q.max_attempts,
    backoff_initial_us = q.backoff_initial_us, backoff_factor = q.backoff_factor,
    backoff_max_us = q.backoff_max_us, retention_us = q.retention_us,
    dead_retention_us = q.dead_retention_us, failure_retention_us = q.failure_retention_us,
    dead_letter = q.dead_letter, max_body = q.max_body, expires_us = q.expires_us,
    paused = q.paused, events = q.events, limit_concurrency = q.limit_concurrency,
    limit_rate_count = q.limit_rate_count, limit_rate_period_us = q.limit_rate_period_us,
    limit_burst = q.limit_burst, max_concurrency = q.max_concurrency, rate_count = q.rate_count,
    rate_period_us = q.rate_period_us, burst = q.burst, weight = q.weight,
    channel_paused = q.channel_paused, ordered = q.ordered, max_size = q.max_size
  WHERE id = q.id;
  IF FOUND AND v_meta IS NOT NULL THEN
    INSERT INTO fairlead.queue_meta (queue_id, meta) VALUES (q.id, v_meta)
      ON CONFLICT (queue_id) DO UPDATE SET meta = excluded.meta;
  ELSIF p_settings ? 'meta' THEN
    DELETE FROM fairlead.queue_meta WHERE queue_id = q.id;
  END IF;
  PERFORM fairlead.wake(p_queue);
END $$;

CREATE FUNCTION fairlead.queue_purge(p_queue text, p_reset boolean DEFAULT false, p_now bigint DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE q fairlead.queue;
BEGIN
  SELECT * INTO q FROM fairlead.queue WHERE name = p_queue FOR UPDATE;
  IF NOT FOUND THEN
    PERFORM fairlead.queue_row(p_queue);
  END IF;
  UPDATE fairlead.queue SET lane = nextval('fairlead.lane') WHERE id = q.id;
  INSERT INTO fairlead.retired (lane, retired_at) VALUES (q.lane, fairlead.now_us(p_now));
  IF p_reset THEN
    DELETE FROM fairlead.failure WHERE queue_id = q.id;
    DELETE FROM fairlead.tally WHERE queue_id = q.id;
    DELETE FROM fairlead.history WHERE queue_id = q.id AND minute > 0;
    UPDATE fairlead.history SET sent = 0, delivered = 0, acked = 0, completed = 0, deferred = 0,
      failed = 0, killed = 0, recovered = 0, released = 0, cancelled = 0, expired = 0, errors = 0
      WHERE queue_id = q.id AND minute = 0;
  END IF;
END $$;

CREATE FUNCTION fairlead.queue_drop(p_queue text, p_now bigint DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE q fairlead.queue;
BEGIN
  DELETE FROM fairlead.queue WHERE name = p_queue RETURNING * INTO q;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  INSERT INTO fairlead.retired (lane, retired_at) VALUES (q.lane, fairlead.now_us(p_now));
  DELETE FROM fairlead.gate WHERE queue_id = q.id;
  DELETE FROM fairlead.queue_gate WHERE queue_id = q.id;
  DELETE FROM fairlead.cursor WHERE queue_id = q.id;
  DELETE FROM fairlead.failure WHERE queue_id = q.id;
  DELETE FROM fairlead.tally WHERE queue_id = q.id;
  DELETE FROM fairlead.history WHERE queue_id = q.id;
  RETURN true;
END $$;

-- A policy replaces the channel's former one whole. It takes the channel's gate, so that it binds
-- every lease given after it: a receive reads the policy only once it holds the gate.
CREATE FUNCTION fairlead.policy_set(
  p_queue text, p_channel text, p_max_concurrency int DEFAULT NULL, p_rate_count bigint DEFAULT NULL,
  p_rate_period_us bigint DEFAULT NULL, p_burst int DEFAULT 1, p_weight int DEFAULT 1,
  p_paused boolean DEFAULT false, p_ordered boolean DEFAULT false, p_max_size int DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE q fairlead.queue := fairlead.queue_row(p_queue);
BEGIN
  IF p_channel IS NULL OR octet_length(p_channel) > 255 THEN
    RAISE EXCEPTION 'a channel has at most 255 bytes' USING ERRCODE = 'FL005';
  END IF;
  IF (p_rate_count IS NULL) <> (p_rate_period_us IS NULL) THEN
    RAISE EXCEPTION 'a rate is a count and a period: give both' USING ERRCODE = 'FL006';
  END IF;
  PERFORM fairlead.share_gates(q.id);
  INSERT INTO fairlead.gate AS g (queue_id, channel) VALUES (q.id, p_channel)
    ON CONFLICT (queue_id, channel) DO UPDATE SET tat = g.tat;
  -- @stop policy_set.gate
  INSERT INTO fairlead.policy AS p
    VALUES (q.id, p_channel, p_max_concurrency, p_rate_count, p_rate_period_us, p_burst, p_weight,
            p_paused::int, p_ordered::int, p_max_size)
    ON CONFLICT (queue_id, channel) DO UPDATE SET
      max_concurrency = excluded.max_concurrency, rate_count = excluded.rate_count,
      rate_period_us = excluded.rate_period_us, burst = excluded.burst, weight = excluded.weight,
      paused = excluded.paused, ordered = excluded.ordered, max_size = excluded.max_size;
  PERFORM fairlead.wake(p_queue);
END $$;

CREATE FUNCTION fairlead.policy_clear(p_queue text, p_channel text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE q fairlead.queue := fairlead.queue_row(p_queue);
BEGIN
  PERFORM fairlead.share_gates(q.id);
  PERFORM 1 FROM fairlead.gate g WHERE g.queue_id = q.id AND g.channel = p_channel FOR UPDATE;
  DELETE FROM fairlead.policy WHERE queue_id = q.id AND channel = p_channel;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  PERFORM fairlead.wake(p_queue);
  RETURN true;
END $$;

CREATE FUNCTION fairlead.permit_create(p_name text, p_ttl_us bigint, p_now bigint DEFAULT NULL)
RETURNS bigint LANGUAGE sql AS $$
  INSERT INTO fairlead.permit (name, created_at, expires_at)
  SELECT p_name, n.now, n.now + p_ttl_us FROM (SELECT fairlead.now_us(p_now) AS now) n
  RETURNING id
$$;

-- An expired permit is never revived: recovery may already have given its leases away.
CREATE FUNCTION fairlead.permit_extend(p_permit bigint, p_ttl_us bigint, p_now bigint DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_now bigint := fairlead.now_us(p_now);
BEGIN
  UPDATE fairlead.permit SET expires_at = v_now + p_ttl_us
    WHERE id = p_permit AND expires_at > v_now;
  RETURN FOUND;
END $$;
