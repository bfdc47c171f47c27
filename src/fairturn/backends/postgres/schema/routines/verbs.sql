-- Fairturn on PostgreSQL: the verbs, and other changes of single messages.
--
-- Every *_rows function takes leases (id, token) as two arrays, each id once, and returns the ids whose lease was
-- lost. If all have one token, it is given once; else the ids are in ascending order. With p_strict a lost lease raises FT001, so that a transaction that acks a
-- delivery it no longer holds cannot commit. Rows are found by their primary key, never through the
-- partial indexes, whose dead entries pile up while somebody holds an old snapshot. That is why the
-- conditions say state::text, and id = ANY instead of a join: no cached plan can then use another index.

-- True if this row is leased under the token given for its id. (The planner puts this text in the place of the
-- call. width_bucket finds the id by halving: a worker's batch has hundreds of them.)
CREATE OR REPLACE FUNCTION fairturn.is_leased(m fairturn.message, p_lane int, p_ids bigint[], p_tokens bigint[])
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT m.state::text = 'l' AND m.lane = p_lane
    AND m.token = CASE WHEN cardinality(p_tokens) = 1 THEN p_tokens[1] ELSE p_tokens[width_bucket(m.id, p_ids)] END
$$;

-- The ids of p_ids whose lease was lost: all but p_done. Raises FT001 if p_strict and there is one.
CREATE OR REPLACE FUNCTION fairturn.lost_of(p_queue text, p_ids bigint[], p_done bigint[], p_strict boolean)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE v_lost bigint[];
BEGIN
  IF coalesce(cardinality(p_done), 0) = cardinality(p_ids) THEN
    RETURN '{}';
  END IF;
  v_lost := ARRAY(SELECT u.id FROM unnest(p_ids) u(id) WHERE u.id <> ALL (coalesce(p_done, '{}')));
  IF p_strict AND cardinality(v_lost) > 0 THEN
    RAISE EXCEPTION 'the lease on message % of queue % is lost', v_lost[1], quote_literal(p_queue)
      USING ERRCODE = 'FT001', DETAIL = v_lost[1]::text;
  END IF;
  RETURN v_lost;
END $$;

-- The end of all attempts: the messages are dead, or they move to the dead-letter queue. p_expired: because a
-- lease expired; then `recovered` stays as it is.
CREATE OR REPLACE FUNCTION fairturn.bury(q fairturn.queue, p_ids bigint[], p_error text, p_expired boolean, p_now bigint)
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  t fairturn.queue;
  v_groups bigint[];
BEGIN
  v_groups := ARRAY(SELECT group_id FROM fairturn.message WHERE id = ANY (p_ids) AND group_id IS NOT NULL);
  PERFORM fairturn.tell(q, 'dead', p_ids, p_now, p_error);
  IF q.dead_letter IS NOT NULL AND q.dead_letter <> q.name THEN
    SELECT * INTO t FROM fairturn.queue WHERE name = q.dead_letter;
  END IF;
  IF t.id IS NOT NULL THEN
    UPDATE fairturn.message SET lane = t.lane, origin = q.id, state = 'r', due_at = p_now, attempts = 0,
        key = NULL, expires_at = p_now + t.expires_us, error = p_error, lease_until = NULL,
        lease_no = NULL, permit_id = NULL, group_id = NULL, begun = false, recovered = recovered AND p_expired
      WHERE id = ANY (p_ids);
    INSERT INTO fairturn.tally (queue_id, at, sent) VALUES (t.id, p_now, cardinality(p_ids));
    PERFORM fairturn.tell(t, 'created', p_ids, p_now);
    PERFORM fairturn.wake(t.name);
  ELSE
    UPDATE fairturn.message SET state = 'x', finished_at = p_now, error = p_error, lease_until = NULL,
        lease_no = NULL, permit_id = NULL, begun = false, recovered = recovered AND p_expired
      WHERE id = ANY (p_ids);
  END IF;
  PERFORM fairturn.mark(v_groups, 'dead');
END $$;

CREATE OR REPLACE FUNCTION fairturn.ack_rows(p_queue text, p_ids bigint[], p_tokens bigint[], p_strict boolean, p_now bigint)
RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q record;
  v_done bigint[];
  v_groups bigint[];
  v_keys text[];
  v_channels text[];
BEGIN
  -- (`wanted` is the condition of fairturn.wake, which is not called here: every call costs time.)
  SELECT o.id, o.lane, o.retention_us, o.events, statement_timestamp() > transaction_timestamp() + interval '5 ms' OR EXISTS (
      SELECT 1 FROM fairturn.listener l WHERE l.queue IN (o.name, '')
        AND l.until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS wanted INTO q
    FROM fairturn.queue o WHERE o.name = p_queue;
  IF NOT FOUND THEN
    PERFORM fairturn.queue_row(p_queue);
  END IF;
  -- @stop ack.start
  IF q.retention_us = 0 THEN
    WITH gone AS (
      DELETE FROM fairturn.message m WHERE m.id = ANY (p_ids) AND fairturn.is_leased(m, q.lane, p_ids, p_tokens)
        RETURNING m.id, m.group_id, m.key, m.channel)
    SELECT array_agg(id), array_agg(group_id) FILTER (WHERE group_id IS NOT NULL), array_agg(key), array_agg(channel)
      INTO v_done, v_groups, v_keys, v_channels FROM gone;
  ELSE
    WITH kept AS (
      UPDATE fairturn.message m SET state = 'd', finished_at = fairturn.now_us(p_now), lease_until = NULL,
          lease_no = NULL, permit_id = NULL, begun = false, recovered = false
        WHERE m.id = ANY (p_ids) AND fairturn.is_leased(m, q.lane, p_ids, p_tokens)
        RETURNING m.id, m.group_id)
    SELECT array_agg(id), array_agg(group_id) FILTER (WHERE group_id IS NOT NULL) INTO v_done, v_groups FROM kept;
  END IF;
  IF v_done IS NOT NULL THEN
    INSERT INTO fairturn.tally (queue_id, at, acked) VALUES (q.id, fairturn.now_us(p_now), cardinality(v_done));
    IF q.events <> 0 THEN
      IF v_keys IS NULL THEN
        PERFORM fairturn.tell(fairturn.queue_row(p_queue), 'done', v_done, fairturn.now_us(p_now));
      ELSE
        PERFORM fairturn.tell_gone(p_queue, v_done, v_keys, v_channels, fairturn.now_us(p_now));
      END IF;
    END IF;
    IF v_groups IS NOT NULL THEN
      PERFORM fairturn.mark(v_groups, 'done');
    END IF;
    IF q.wanted THEN
      PERFORM pg_notify('fairturn', p_queue);
    END IF;
  END IF;
  IF cardinality(v_done) = cardinality(p_ids) THEN
    RETURN '{}';
  END IF;
  RETURN fairturn.lost_of(p_queue, p_ids, v_done, p_strict);
END $$;

-- The last steps of a verb for the leases p_done: count them, write the events, wake waiting consumers. Returns
-- the lost ids.
CREATE OR REPLACE FUNCTION fairturn.after_verb(q fairturn.queue, p_counter text, p_event text, p_ids bigint[],
  p_done bigint[], p_strict boolean, p_now bigint)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE v_n int := cardinality(p_done);
BEGIN
  IF v_n > 0 THEN
    IF p_counter IS NOT NULL THEN
      INSERT INTO fairturn.tally (queue_id, at, completed, deferred, released) VALUES (q.id, p_now,
        CASE WHEN p_counter = 'completed' THEN v_n END, CASE WHEN p_counter = 'deferred' THEN v_n END,
        CASE WHEN p_counter = 'released' THEN v_n END);
    END IF;
    IF q.events <> 0 AND p_event IS NOT NULL THEN
      PERFORM fairturn.tell(q, p_event, p_done, p_now);
    END IF;
    PERFORM fairturn.wake(q.name);
  END IF;
  RETURN CASE WHEN v_n = cardinality(p_ids) THEN '{}'
    ELSE fairturn.lost_of(q.name, p_ids, p_done, p_strict) END;
END $$;

CREATE OR REPLACE FUNCTION fairturn.complete_rows(p_queue text, p_ids bigint[], p_tokens bigint[], p_result bytea,
  p_result_json int, p_strict boolean, p_now bigint)
RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  v_now bigint := fairturn.now_us(p_now);
  v_done bigint[];
  v_groups bigint[];
BEGIN
  WITH kept AS (
    UPDATE fairturn.message m SET state = 'd', finished_at = v_now, result = p_result,
        json = (m.json & ~4) | (p_result_json * 4), attempts = 0, error = NULL, lease_until = NULL,
        lease_no = NULL, permit_id = NULL, begun = false, recovered = false
      WHERE m.id = ANY (p_ids) AND fairturn.is_leased(m, q.lane, p_ids, p_tokens)
      RETURNING m.id, m.group_id)
  SELECT array_agg(id), array_agg(group_id) FILTER (WHERE group_id IS NOT NULL) INTO v_done, v_groups FROM kept;
  IF v_groups IS NOT NULL THEN
    PERFORM fairturn.mark(v_groups, 'done');
  END IF;
  RETURN fairturn.after_verb(q, 'completed', 'done', p_ids, v_done, p_strict, v_now);
END $$;

CREATE OR REPLACE FUNCTION fairturn.defer_rows(p_queue text, p_ids bigint[], p_tokens bigint[], p_due bigint,
  p_delay bigint, p_keep_memo boolean, p_memo bytea, p_memo_json int, p_strict boolean, p_now bigint)
RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  v_now bigint := fairturn.now_us(p_now);
  v_due bigint := coalesce(p_due, v_now + p_delay);
  v_done bigint[];
BEGIN
  WITH back AS (
    UPDATE fairturn.message m SET state = CASE WHEN v_due <= v_now THEN 'r' ELSE 's' END, due_at = v_due,
        attempts = 0, memo = CASE WHEN p_keep_memo THEN m.memo ELSE p_memo END,
        json = CASE WHEN p_keep_memo THEN m.json ELSE (m.json & ~2) | (p_memo_json * 2) END,
        lease_until = NULL, lease_no = NULL, permit_id = NULL, recovered = false
      WHERE m.id = ANY (p_ids) AND fairturn.is_leased(m, q.lane, p_ids, p_tokens)
      RETURNING m.id)
  SELECT array_agg(id) INTO v_done FROM back;
  RETURN fairturn.after_verb(q, 'deferred', 'deferred', p_ids, v_done, p_strict, v_now);
END $$;

-- fail (p_kill false) and kill (p_kill true).
CREATE OR REPLACE FUNCTION fairturn.fail_rows(p_queue text, p_ids bigint[], p_tokens bigint[], p_error text,
  p_delay bigint, p_details bytea, p_reference text, p_kill boolean, p_strict boolean, p_now bigint)
RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  v_now bigint := fairturn.now_us(p_now);
  v_done bigint[];
  v_dead bigint[];
BEGIN
  SELECT array_agg(x.id), array_agg(x.id) FILTER (WHERE x.dies) INTO v_done, v_dead FROM (
    SELECT m.id, p_kill OR (coalesce(m.max_attempts, q.max_attempts) > 0
        AND m.attempts >= coalesce(m.max_attempts, q.max_attempts)) AS dies
      FROM fairturn.message m
      WHERE m.id = ANY (p_ids) AND fairturn.is_leased(m, q.lane, p_ids, p_tokens)
      ORDER BY m.id
      FOR UPDATE) x;
  v_done := coalesce(v_done, '{}');
  IF cardinality(v_done) > 0 THEN
    INSERT INTO fairturn.failure (queue_id, message_id, key, attempt, at, killed, error, details, reference)
      SELECT q.id, m.id, m.key, m.attempts, v_now, coalesce(m.id = ANY (v_dead), false), p_error, p_details, p_reference
      FROM fairturn.message m WHERE m.id = ANY (v_done) ORDER BY m.id;
    UPDATE fairturn.message m SET
        due_at = v_now + x.wait, state = CASE WHEN x.wait = 0 THEN 'r' ELSE 's' END,
        error = p_error, lease_until = NULL, lease_no = NULL, permit_id = NULL, recovered = false
      FROM (SELECT o.id, coalesce(p_delay, least(q.backoff_max_us,
              q.backoff_initial_us * power(q.backoff_factor::float8, least(o.attempts - 1, 60))))::bigint AS wait
            FROM fairturn.message o WHERE o.id = ANY (v_done) AND NOT coalesce(o.id = ANY (v_dead), false)) x
      WHERE m.id = x.id;
    IF q.events <> 0 THEN
      PERFORM fairturn.tell(q, 'deferred', ARRAY(SELECT i FROM unnest(v_done) i WHERE i <> ALL (coalesce(v_dead, '{}'))), v_now);
    END IF;
    IF v_dead IS NOT NULL THEN
      PERFORM fairturn.bury(q, v_dead, p_error, false, v_now);
    END IF;
    INSERT INTO fairturn.tally (queue_id, at, failed, killed, errors) VALUES (q.id, v_now,
      CASE WHEN NOT p_kill THEN cardinality(v_done) END, cardinality(v_dead), cardinality(v_done));
    PERFORM fairturn.wake(p_queue);
  END IF;
  RETURN fairturn.lost_of(p_queue, p_ids, v_done, p_strict);
END $$;

-- Returns the lost ids, and the latest of the new ends. p_exact: the lease may end earlier than before, and it
-- leaves its permit, which would extend it again.
CREATE OR REPLACE FUNCTION fairturn.extend_rows(p_queue text, p_ids bigint[], p_tokens bigint[], p_lease bigint,
  p_exact boolean, p_strict boolean, p_now bigint, OUT lost bigint[], OUT lease_until bigint)
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  v_now bigint := fairturn.now_us(p_now);
  v_done bigint[];
BEGIN
  WITH longer AS (
    UPDATE fairturn.message m
      SET lease_until = greatest(CASE WHEN NOT p_exact THEN m.lease_until END,
          v_now + coalesce(p_lease, m.lease_us, q.lease_us)),
        permit_id = CASE WHEN NOT p_exact THEN m.permit_id END
      WHERE m.id = ANY (p_ids) AND fairturn.is_leased(m, q.lane, p_ids, p_tokens)
      RETURNING m.id, m.lease_until)
  SELECT array_agg(id), max(l.lease_until) INTO v_done, extend_rows.lease_until
    FROM longer l;
  IF p_exact AND v_done IS NOT NULL THEN
    PERFORM fairturn.wake(p_queue);
  END IF;
  lost := fairturn.lost_of(p_queue, p_ids, v_done, p_strict);
END $$;

CREATE OR REPLACE FUNCTION fairturn.release_rows(p_queue text, p_ids bigint[], p_tokens bigint[], p_strict boolean, p_now bigint)
RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  v_done bigint[];
BEGIN
  WITH back AS (
    UPDATE fairturn.message m SET state = 'r', attempts = greatest(m.attempts - 1, 0), lease_until = NULL,
        lease_no = NULL, permit_id = NULL
      WHERE m.id = ANY (p_ids) AND fairturn.is_leased(m, q.lane, p_ids, p_tokens)
      RETURNING m.id)
  SELECT array_agg(id) INTO v_done FROM back;
  RETURN fairturn.after_verb(q, 'released', NULL, p_ids, v_done, p_strict, fairturn.now_us(p_now));
END $$;

CREATE OR REPLACE FUNCTION fairturn.progress_rows(p_queue text, p_ids bigint[], p_tokens bigint[], p_progress int, p_note text,
  p_strict boolean, p_now bigint)
RETURNS bigint[] LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  v_done bigint[];
BEGIN
  WITH told AS (
    UPDATE fairturn.message m SET progress = coalesce(p_progress, m.progress), note = coalesce(p_note, m.note)
      WHERE m.id = ANY (p_ids) AND fairturn.is_leased(m, q.lane, p_ids, p_tokens)
      RETURNING m.id)
  SELECT array_agg(id) INTO v_done FROM told;
  RETURN fairturn.after_verb(q, NULL, 'progress', p_ids, v_done, p_strict, fairturn.now_us(p_now));
END $$;

-- The message with this id, or else with this key, locked; a row of NULLs if there is none.
CREATE OR REPLACE FUNCTION fairturn.lock_message(p_lane int, p_id bigint, p_key text) RETURNS fairturn.message
LANGUAGE plpgsql AS $$
DECLARE m fairturn.message;
BEGIN
  IF p_id IS NOT NULL THEN
    SELECT * INTO m FROM fairturn.message WHERE id = p_id AND lane = p_lane FOR UPDATE;
  ELSE
    SELECT * INTO m FROM fairturn.message WHERE lane = p_lane AND key = p_key FOR UPDATE;
  END IF;
  RETURN m;
END $$;

-- Returns c: cancelled, l: leased (nothing was changed), n: there is nothing to cancel.
CREATE OR REPLACE FUNCTION fairturn.cancel_row(p_queue text, p_id bigint, p_key text, p_force boolean, p_now bigint)
RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  m fairturn.message := fairturn.lock_message(q.lane, p_id, p_key);
BEGIN
  IF m.id IS NULL OR (m.state IN ('d', 'x') AND NOT p_force) THEN
    RETURN 'n';
  ELSIF m.state = 'l' AND NOT p_force THEN
    RETURN 'l';
  END IF;
  DELETE FROM fairturn.message WHERE id = m.id;
  INSERT INTO fairturn.tally (queue_id, at, cancelled) VALUES (q.id, fairturn.now_us(p_now), 1);
  IF q.events <> 0 THEN
    PERFORM fairturn.tell_gone(q.name, ARRAY[m.id], ARRAY[m.key], ARRAY[m.channel], fairturn.now_us(p_now));
  END IF;
  IF m.group_id IS NOT NULL AND m.state NOT IN ('d', 'x') THEN
    PERFORM fairturn.mark(ARRAY[m.group_id], NULL);
    PERFORM fairturn.settle(100, p_now);
  END IF;
  PERFORM fairturn.wake(p_queue);
  RETURN 'c';
END $$;

-- Returns c: changed, l: leased (nothing was changed), n: there is nothing to reschedule.
CREATE OR REPLACE FUNCTION fairturn.reschedule_row(p_queue text, p_id bigint, p_key text, p_due bigint, p_delay bigint,
  p_rank int, p_now bigint)
RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  v_now bigint := fairturn.now_us(p_now);
  m fairturn.message := fairturn.lock_message(q.lane, p_id, p_key);
  v_due bigint;
BEGIN
  IF m.id IS NULL OR m.state NOT IN ('s', 'r', 'l') THEN
    RETURN 'n';
  ELSIF m.state = 'l' THEN
    RETURN 'l';
  END IF;
  v_due := coalesce(p_due, v_now + p_delay, m.due_at);
  UPDATE fairturn.message SET due_at = v_due, rank = coalesce(p_rank, m.rank),
      state = CASE WHEN p_due IS NULL AND p_delay IS NULL THEN m.state WHEN v_due <= v_now THEN 'r' ELSE 's' END
    WHERE id = m.id;
  PERFORM fairturn.tell(q, 'deferred', ARRAY[m.id], v_now);
  PERFORM fairturn.wake(p_queue);
  RETURN 'c';
END $$;

-- Up to p_limit finished messages in this state (d or x), the earliest first, locked: those finished at or before
-- p_before, none if it is NULL. (The state is a literal, so that its partial index can be used.)
CREATE OR REPLACE FUNCTION fairturn.lock_finished(p_lane int, p_state text, p_before bigint, p_limit int) RETURNS bigint[]
LANGUAGE plpgsql AS $$
BEGIN
  IF p_state = 'x' THEN
    RETURN ARRAY(SELECT m.id FROM fairturn.message m WHERE m.lane = p_lane AND m.state = 'x' AND m.finished_at <= p_before
      ORDER BY m.finished_at, m.id LIMIT p_limit FOR UPDATE SKIP LOCKED);
  END IF;
  RETURN ARRAY(SELECT m.id FROM fairturn.message m WHERE m.lane = p_lane AND m.state = 'd' AND m.finished_at <= p_before
    ORDER BY m.finished_at, m.id LIMIT p_limit FOR UPDATE SKIP LOCKED);
END $$;

-- Give dead messages fresh attempts, the earliest dead first, here or in another queue. Returns how many.
CREATE OR REPLACE FUNCTION fairturn.redrive(p_queue text, p_to text DEFAULT NULL, p_limit int DEFAULT 2147483647,
  p_delay_us bigint DEFAULT 0, p_now bigint DEFAULT NULL)
RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  t fairturn.queue := fairturn.queue_row(coalesce(p_to, p_queue));
  v_now bigint := fairturn.now_us(p_now);
  v_ids bigint[] := fairturn.lock_finished(q.lane, 'x', 9223372036854775807, p_limit);
BEGIN
  IF cardinality(v_ids) = 0 THEN
    RETURN 0;
  END IF;
  UPDATE fairturn.message m SET lane = t.lane, state = CASE WHEN p_delay_us = 0 THEN 'r' ELSE 's' END,
      due_at = v_now + p_delay_us, attempts = 0, finished_at = NULL, begun = false, first_at = NULL,
      key = CASE WHEN t.id = q.id THEN m.key END, group_id = CASE WHEN t.id = q.id THEN m.group_id END,
      origin = CASE WHEN t.id = q.id THEN m.origin END
    WHERE m.id = ANY (v_ids);
  IF t.id <> q.id THEN
    INSERT INTO fairturn.tally (queue_id, at, sent) VALUES (t.id, v_now, cardinality(v_ids));
  END IF;
  PERFORM fairturn.tell(t, CASE WHEN t.id = q.id THEN 'deferred' ELSE 'created' END, v_ids, v_now);
  PERFORM fairturn.wake(t.name);
  RETURN cardinality(v_ids);
END $$;

-- Delete finished messages in this state (d or x), the earliest first. Returns how many.
CREATE OR REPLACE FUNCTION fairturn.discard(p_queue text, p_state text, p_limit int, p_now bigint DEFAULT NULL)
RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q fairturn.queue := fairturn.queue_row(p_queue);
  v_ids bigint[] := fairturn.lock_finished(q.lane, p_state, 9223372036854775807, p_limit);
BEGIN
  IF cardinality(v_ids) > 0 THEN
    PERFORM fairturn.tell(q, 'deleted', v_ids, fairturn.now_us(p_now));
    DELETE FROM fairturn.message WHERE id = ANY (v_ids);
    INSERT INTO fairturn.tally (queue_id, at, cancelled) VALUES (q.id, fairturn.now_us(p_now), cardinality(v_ids));
  END IF;
  RETURN cardinality(v_ids);
END $$;

-- The SQL door: the verbs for one lease. A lost lease is an error.
CREATE OR REPLACE FUNCTION fairturn.ack(p_queue text, p_id bigint, p_token bigint, p_now bigint DEFAULT NULL)
RETURNS void LANGUAGE sql AS $$
  SELECT fairturn.ack_rows(p_queue, ARRAY[p_id], ARRAY[p_token], true, p_now) $$;

CREATE OR REPLACE FUNCTION fairturn.complete(p_queue text, p_id bigint, p_token bigint, p_result jsonb DEFAULT NULL,
  p_now bigint DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
  SELECT fairturn.complete_rows(p_queue, ARRAY[p_id], ARRAY[p_token], convert_to(p_result::text, 'UTF8'),
    (p_result IS NOT NULL)::int, true, p_now) $$;

-- p_memo NULL keeps the memo.
CREATE OR REPLACE FUNCTION fairturn.defer(p_queue text, p_id bigint, p_token bigint, p_delay interval DEFAULT '0',
  p_memo jsonb DEFAULT NULL, p_now bigint DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
  SELECT fairturn.defer_rows(p_queue, ARRAY[p_id], ARRAY[p_token], NULL,
    fairturn.us(p_delay), p_memo IS NULL, convert_to(p_memo::text, 'UTF8'),
    (p_memo IS NOT NULL)::int, true, p_now) $$;

-- p_delay NULL: the queue's back-off.
CREATE OR REPLACE FUNCTION fairturn.fail(p_queue text, p_id bigint, p_token bigint, p_error text DEFAULT 'failed',
  p_delay interval DEFAULT NULL, p_details jsonb DEFAULT NULL, p_reference text DEFAULT NULL,
  p_now bigint DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
  SELECT fairturn.fail_rows(p_queue, ARRAY[p_id], ARRAY[p_token], p_error,
    fairturn.us(p_delay), convert_to(p_details::text, 'UTF8'), p_reference,
    false, true, p_now) $$;

CREATE OR REPLACE FUNCTION fairturn.kill(p_queue text, p_id bigint, p_token bigint, p_error text DEFAULT 'killed',
  p_details jsonb DEFAULT NULL, p_reference text DEFAULT NULL, p_now bigint DEFAULT NULL)
RETURNS void LANGUAGE sql AS $$
  SELECT fairturn.fail_rows(p_queue, ARRAY[p_id], ARRAY[p_token], p_error, NULL,
    convert_to(p_details::text, 'UTF8'), p_reference, true, true, p_now) $$;

CREATE OR REPLACE FUNCTION fairturn.extend(p_queue text, p_id bigint, p_token bigint, p_lease interval DEFAULT NULL,
  p_exact boolean DEFAULT false, p_now bigint DEFAULT NULL) RETURNS timestamptz LANGUAGE sql AS $$
  SELECT to_timestamp(e.lease_until / 1000000.0) FROM fairturn.extend_rows(p_queue, ARRAY[p_id],
    ARRAY[p_token], fairturn.us(p_lease), p_exact, true, p_now) e $$;

CREATE OR REPLACE FUNCTION fairturn.release(p_queue text, p_id bigint, p_token bigint, p_now bigint DEFAULT NULL)
RETURNS void LANGUAGE sql AS $$
  SELECT fairturn.release_rows(p_queue, ARRAY[p_id], ARRAY[p_token], true, p_now) $$;

-- p_progress is a fraction from 0 to 1.
CREATE OR REPLACE FUNCTION fairturn.progress(p_queue text, p_id bigint, p_token bigint, p_progress numeric DEFAULT NULL,
  p_note text DEFAULT NULL, p_now bigint DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_progress NOT BETWEEN 0 AND 1 OR (p_progress IS NULL AND p_note IS NULL) THEN
    RAISE EXCEPTION 'give a progress from 0 to 1, a note, or both' USING ERRCODE = 'FT006';
  END IF;
  PERFORM fairturn.progress_rows(p_queue, ARRAY[p_id], ARRAY[p_token], round(p_progress * 1000000)::int,
    left(p_note, 1000), true, p_now);
END $$;

CREATE OR REPLACE FUNCTION fairturn.cancel(p_queue text, p_id bigint DEFAULT NULL, p_key text DEFAULT NULL,
  p_force boolean DEFAULT false, p_now bigint DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v text := fairturn.cancel_row(p_queue, p_id, p_key, p_force, p_now);
BEGIN
  IF v = 'l' THEN
    RAISE EXCEPTION 'the message is leased' USING ERRCODE = 'FT010', HINT = 'pass p_force => true';
  END IF;
  RETURN v = 'c';
END $$;
