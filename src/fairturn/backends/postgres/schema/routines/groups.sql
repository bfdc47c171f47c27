-- Fairturn on PostgreSQL: groups (docs/semantics.md §12).

-- Leave marks for these groups. p_groups has one entry for each member that has ended; p_what: done, dead, or NULL
-- if they were deleted.
CREATE OR REPLACE FUNCTION fairturn.mark(p_groups bigint[], p_what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF cardinality(p_groups) > 0 THEN
    INSERT INTO fairturn.group_mark (group_id, done, dead)
      SELECT g, CASE WHEN p_what = 'done' THEN count(*) END, CASE WHEN p_what = 'dead' THEN count(*) END
      FROM unnest(p_groups) g GROUP BY g ORDER BY g;
  END IF;
END $$;

-- The open group of this name, which is created if there is none, and whether its members are held. The share
-- lock prevents its start and its end while this transaction is open.
CREATE OR REPLACE FUNCTION fairturn.group_join(p_name text, p_queue text, p_now bigint, OUT id bigint, OUT held boolean)
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
BEGIN
  WHILE p_name IS NOT NULL AND id IS NULL LOOP
    SELECT g.id, g.started_at IS NULL INTO group_join.id, held FROM fairturn.group_ g
      WHERE g.name = p_name AND g.closed_at IS NULL FOR SHARE;
    IF NOT FOUND THEN
      INSERT INTO fairturn.group_ (name, queue, on_dead, created_at) VALUES (p_name, p_queue, 'i', p_now)
        ON CONFLICT (name) WHERE closed_at IS NULL DO NOTHING;
    END IF;
  END LOOP;
END $$;

-- The same for many names, in the order of the names, so that two calls never deadlock.
CREATE OR REPLACE FUNCTION fairturn.groups_join(p_names text[], p_queue text, p_now bigint)
RETURNS TABLE (name text, id bigint, held boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
  FOR name IN SELECT DISTINCT u COLLATE "C" FROM unnest(p_names) u WHERE u IS NOT NULL ORDER BY 1 LOOP
    SELECT j.id, j.held INTO id, held FROM fairturn.group_join(name, p_queue, p_now) j;
    RETURN NEXT;
  END LOOP;
END $$;

-- Create a group. False if it is open already. The arrays hold its end message and its abort message, in the order
-- of the letters of p_works: 'e', 'a', 'ea' or ''.
CREATE OR REPLACE FUNCTION fairturn.group_make(p_name text, p_queue text, p_on_dead text, p_works text, p_channels text[],
  p_bodies bytea[], p_json int[], p_ranks int[], p_dues bigint[], p_delays bigint[], p_keys text[], p_versions int[],
  p_types text[], p_headers bytea[], p_leases bigint[], p_max_attempts int[], p_now bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  q fairturn.queue;
  v_now bigint := fairturn.now_us(p_now);
  v_group bigint;
  v_id bigint;
  i int;
BEGIN
  IF EXISTS (SELECT 1 FROM fairturn.group_ WHERE name = p_name AND closed_at IS NULL) THEN
    RETURN false;
  END IF;
  q := fairturn.queue_row(p_queue);
  INSERT INTO fairturn.group_ (name, queue, on_dead, created_at) VALUES (p_name, p_queue, p_on_dead::"char", v_now)
    ON CONFLICT (name) WHERE closed_at IS NULL DO NOTHING RETURNING id INTO v_group;
  IF v_group IS NULL THEN
    RETURN false;
  END IF;
  FOR i IN 1 .. length(p_works) LOOP
    PERFORM fairturn.check_bodies(q, octet_length(p_bodies[i]));
    UPDATE fairturn.message SET key = NULL WHERE lane = q.lane AND key = p_keys[i] AND state = 'x';
    INSERT INTO fairturn.message (due_at, created_at, lease_us, lease_until, lane, rank, version, max_attempts, json,
        state, channel, key, type, body, headers)
      VALUES (coalesce(p_dues[i], v_now), v_now, p_leases[i], CASE WHEN p_dues[i] IS NULL THEN p_delays[i] END, q.lane,
        p_ranks[i], p_versions[i], p_max_attempts[i], p_json[i], 'h', p_channels[i], p_keys[i], p_types[i], p_bodies[i],
        p_headers[i])
      ON CONFLICT (lane, key) WHERE key IS NOT NULL DO NOTHING
      RETURNING id INTO v_id;
    IF v_id IS NULL THEN
      RAISE EXCEPTION 'queue % already has a message with key %', quote_literal(p_queue), quote_literal(p_keys[i])
        USING ERRCODE = 'FT003', DETAIL = p_keys[i];
    END IF;
    UPDATE fairturn.group_ SET end_id = CASE WHEN substr(p_works, i, 1) = 'e' THEN v_id ELSE end_id END,
        abort_id = CASE WHEN substr(p_works, i, 1) = 'a' THEN v_id ELSE abort_id END
      WHERE id = v_group;
  END LOOP;
  RETURN true;
END $$;

-- True if no member is unfinished: one probe of an index that holds only unfinished members.
CREATE OR REPLACE FUNCTION fairturn.group_empty(p_group bigint) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  RETURN NOT EXISTS (SELECT 1 FROM fairturn.message m
    WHERE m.group_id = p_group AND m.state IN ('h', 's', 'r', 'l'));
END $$;

-- Close a group whose row is locked. Of its end message and its abort message, one is released, and the other is
-- deleted.
CREATE OR REPLACE FUNCTION fairturn.group_close(p_group bigint, p_outcome text, p_now bigint) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  g fairturn.group_;
  q fairturn.queue;
  v_told jsonb;
  v_work bigint;
BEGIN
  WITH gone AS (DELETE FROM fairturn.group_mark WHERE group_id = p_group RETURNING sent, done, dead),
  sum AS (SELECT coalesce(sum(sent), 0) AS sent, coalesce(sum(done), 0) AS done, coalesce(sum(dead), 0) AS dead FROM gone)
  UPDATE fairturn.group_ o SET closed_at = p_now, outcome = p_outcome::"char", sent = o.sent + s.sent,
      done = o.done + s.done, dead = o.dead + s.dead
    FROM sum s WHERE o.id = p_group RETURNING o.* INTO g;
  v_told := jsonb_build_object('name', g.name, 'outcome',
    CASE p_outcome WHEN 'e' THEN 'ended' WHEN 'c' THEN 'cancelled' ELSE 'aborted' END,
    'sent', g.sent, 'done', g.done, 'dead', g.dead);
  v_work := CASE WHEN p_outcome = 'e' THEN g.end_id ELSE g.abort_id END;
  DELETE FROM fairturn.message WHERE id = CASE WHEN p_outcome = 'e' THEN g.abort_id ELSE g.end_id END
    AND state::text = 'h' AND group_id IS NULL;
  SELECT * INTO q FROM fairturn.queue WHERE lane = (SELECT m.lane FROM fairturn.message m WHERE m.id = v_work);
  IF FOUND THEN
    UPDATE fairturn.message m SET created_at = p_now, lease_until = NULL, expires_at = p_now + q.expires_us,
        due_at = coalesce(p_now + m.lease_until, m.due_at),
        state = CASE WHEN coalesce(p_now + m.lease_until, m.due_at) <= p_now THEN 'r' ELSE 's' END,
        -- Added as text: headers may hold a NUL, which jsonb does not accept.
        headers = convert_to(coalesce(nullif(left(convert_from(m.headers, 'UTF8'), -1), '{') || ', ', '{')
          || '"fairturn.group": ' || v_told::text || '}', 'UTF8')
      WHERE m.id = v_work AND m.state::text = 'h' AND m.group_id IS NULL;
    IF FOUND THEN
      INSERT INTO fairturn.tally (queue_id, at, sent) VALUES (q.id, p_now, 1);
      PERFORM fairturn.tell(q, 'created', ARRAY[v_work], p_now);
    END IF;
  END IF;
  IF EXISTS (SELECT 1 FROM fairturn.queue o WHERE o.name = g.queue AND o.events <> 0) THEN
    INSERT INTO fairturn.event (at, kind, queue, data) VALUES (p_now, 'closed', g.queue, convert_to(v_told::text, 'UTF8'));
  END IF;
  PERFORM fairturn.wake(g.queue);
END $$;

-- Delete the unfinished members of a group whose row is locked.
CREATE OR REPLACE FUNCTION fairturn.group_clear(p_group bigint, p_now bigint) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE r record;
BEGIN
  FOR r IN
    WITH gone AS (
      DELETE FROM fairturn.message m WHERE m.group_id = p_group AND m.state IN ('h', 's', 'r', 'l')
        RETURNING m.id, m.lane, m.key, m.channel)
    SELECT q.id, q.name, q.events, array_agg(g.id) AS ids, array_agg(g.key) AS keys, array_agg(g.channel) AS channels
    FROM gone g JOIN fairturn.queue q ON q.lane = g.lane GROUP BY q.id, q.name, q.events
  LOOP
    INSERT INTO fairturn.tally (queue_id, at, cancelled) VALUES (r.id, p_now, cardinality(r.ids));
    IF r.events <> 0 THEN
      PERFORM fairturn.tell_gone(r.name, r.ids, r.keys, r.channels, p_now);
    END IF;
    PERFORM fairturn.wake(r.name);
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION fairturn.group_start(p_name text, p_now bigint DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now bigint := fairturn.now_us(p_now);
  g fairturn.group_;
  v_lane int;
BEGIN
  SELECT * INTO g FROM fairturn.group_ WHERE name = p_name AND closed_at IS NULL FOR UPDATE;
  IF NOT FOUND OR g.started_at IS NOT NULL THEN
    RETURN false;
  END IF;
  UPDATE fairturn.group_ SET started_at = v_now WHERE id = g.id;
  -- @stop group.start
  FOR v_lane IN
    WITH begun AS (
      UPDATE fairturn.message m SET state = CASE WHEN m.due_at <= v_now THEN 'r' ELSE 's' END
        WHERE m.group_id = g.id AND m.state = 'h' RETURNING m.lane)
    SELECT DISTINCT lane FROM begun
  LOOP
    PERFORM fairturn.wake(q.name) FROM fairturn.queue q WHERE q.lane = v_lane;
  END LOOP;
  IF fairturn.group_empty(g.id) THEN
    PERFORM fairturn.group_close(g.id, 'e', v_now);
  END IF;
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION fairturn.group_cancel(p_name text, p_now bigint DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  v_now bigint := fairturn.now_us(p_now);
  v_group bigint;
BEGIN
  SELECT id INTO v_group FROM fairturn.group_ WHERE name = p_name AND closed_at IS NULL FOR UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  -- @stop group.cancel
  PERFORM fairturn.group_clear(v_group, v_now);
  PERFORM fairturn.group_close(v_group, 'c', v_now);
  RETURN true;
END $$;

-- Check the groups that have marks, and close those that are complete. Returns how many were closed. Marks of
-- this transaction are not deleted, unless the group is closed: another session that checks the group before
-- this commit still sees the member, and without the mark nobody would check again.
CREATE OR REPLACE FUNCTION fairturn.settle(p_limit int DEFAULT 1000, p_now bigint DEFAULT NULL) RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_me xid8 := coalesce(pg_current_xact_id_if_assigned(), '0');
  v_group bigint;
  v_closed int := 0;
  v_outcome text;
  g fairturn.group_;
BEGIN
  FOR v_group IN
    SELECT DISTINCT x.group_id FROM (
      SELECT m.group_id FROM fairturn.group_mark m ORDER BY m.id LIMIT p_limit) x
    ORDER BY x.group_id
  LOOP
    SELECT * INTO g FROM fairturn.group_ WHERE id = v_group FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR g.closed_at IS NOT NULL THEN
      -- If it is locked, the other session closes it or leaves a mark of its own. If it is closed or deleted,
      -- its marks are useless.
      IF NOT EXISTS (SELECT 1 FROM fairturn.group_ WHERE id = v_group AND closed_at IS NULL) THEN
        DELETE FROM fairturn.group_mark WHERE group_id = v_group;
      END IF;
      CONTINUE;
    END IF;
    -- @stop settle.group
    WITH gone AS (DELETE FROM fairturn.group_mark WHERE group_id = v_group AND tx <> v_me RETURNING sent, done, dead),
    sum AS (SELECT coalesce(sum(sent), 0) AS sent, coalesce(sum(done), 0) AS done, coalesce(sum(dead), 0) AS dead FROM gone)
    UPDATE fairturn.group_ o SET sent = o.sent + s.sent, done = o.done + s.done, dead = o.dead + s.dead
      FROM sum s WHERE o.id = v_group RETURNING o.* INTO g;
    -- New statements, which see everything that was committed before the lock.
    v_outcome := NULL;
    IF g.on_dead = 'a' AND (g.dead > 0 OR EXISTS (
        SELECT 1 FROM fairturn.group_mark m WHERE m.group_id = v_group AND m.dead > 0)) THEN
      v_outcome := 'a';
      PERFORM fairturn.group_clear(v_group, fairturn.now_us(p_now));
    ELSIF g.started_at IS NOT NULL AND fairturn.group_empty(v_group) THEN
      v_outcome := 'e';
    END IF;
    IF v_outcome IS NOT NULL THEN
      PERFORM fairturn.group_close(v_group, v_outcome, fairturn.now_us(p_now));
      v_closed := v_closed + 1;
    END IF;
  END LOOP;
  RETURN v_closed;
END $$;

-- The group of this name: the open one, or else the one that closed last. Without a name: all open groups.
CREATE OR REPLACE FUNCTION fairturn.group_status(p_name text DEFAULT NULL, p_limit int DEFAULT 1000)
RETURNS TABLE (name text, queue text, state text, created_at bigint, started_at bigint, closed_at bigint,
  sent bigint, done bigint, dead bigint, held bigint, waiting bigint, leased bigint)
LANGUAGE sql STABLE AS $$
  SELECT g.name, g.queue, coalesce(g.outcome::text, CASE WHEN g.started_at IS NULL THEN 'o' ELSE 'r' END),
    g.created_at, g.started_at, g.closed_at, g.sent + m.sent, g.done + m.done, g.dead + m.dead, r.held, r.waiting, r.leased
  FROM (
    (SELECT * FROM fairturn.group_ WHERE name = p_name ORDER BY id DESC LIMIT 1)
    UNION ALL
    (SELECT * FROM fairturn.group_ WHERE p_name IS NULL AND closed_at IS NULL ORDER BY name LIMIT p_limit)) g
  CROSS JOIN LATERAL (
    SELECT coalesce(sum(k.sent), 0)::bigint AS sent, coalesce(sum(k.done), 0)::bigint AS done,
      coalesce(sum(k.dead), 0)::bigint AS dead
    FROM fairturn.group_mark k WHERE k.group_id = g.id) m
  CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE o.state = 'h') AS held, count(*) FILTER (WHERE o.state IN ('s', 'r')) AS waiting,
      count(*) FILTER (WHERE o.state = 'l') AS leased
    FROM fairturn.message o WHERE o.group_id = g.id AND o.state IN ('h', 's', 'r', 'l')) r
  ORDER BY g.name
$$;

-- The SQL door: create a group whose end and abort messages are JSON (NULL: none). False if it is open already.
CREATE OR REPLACE FUNCTION fairturn.group_open(p_name text, p_queue text, p_end jsonb DEFAULT NULL, p_abort jsonb DEFAULT NULL,
  p_on_dead text DEFAULT 'ignore', p_now bigint DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_n int := (p_end IS NOT NULL)::int + (p_abort IS NOT NULL)::int;
BEGIN
  IF p_name IS NULL OR octet_length(p_name) NOT BETWEEN 1 AND 255 THEN
    RAISE EXCEPTION 'a group name has 1 to 255 bytes' USING ERRCODE = 'FT005';
  ELSIF p_on_dead NOT IN ('ignore', 'abort') THEN
    RAISE EXCEPTION 'on_dead must be ignore or abort' USING ERRCODE = 'FT006';
  END IF;
  RETURN fairturn.group_make(p_name, p_queue, left(p_on_dead, 1),
    CASE WHEN p_end IS NULL THEN '' ELSE 'e' END || CASE WHEN p_abort IS NULL THEN '' ELSE 'a' END,
    array_fill(''::text, ARRAY[v_n]),
    array_remove(ARRAY[convert_to(p_end::text, 'UTF8'), convert_to(p_abort::text, 'UTF8')], NULL),
    array_fill(1, ARRAY[v_n]), array_fill(0, ARRAY[v_n]), NULL, array_fill(0::bigint, ARRAY[v_n]), NULL,
    array_fill(0, ARRAY[v_n]), NULL, NULL, NULL, NULL, p_now);
END $$;
