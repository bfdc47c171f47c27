-- Fairlead on PostgreSQL: events, and waking those who sleep (docs/semantics.md §15).

-- Tell this queue's sleepers. They have said in a table that they sleep, so that a busy queue sends no
-- NOTIFY at all. In a transaction that is older than a moment it is sent always, since one may lie
-- down before that commits. (A statement alone begins microseconds after its transaction: binding
-- and executing it are two messages. A younger transaction is as good as alone: sleepers look again
-- 50 ms after they lay down.)
CREATE FUNCTION fairlead.wake(p_queue text) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  IF statement_timestamp() > transaction_timestamp() + interval '5 ms' OR EXISTS (
      SELECT 1 FROM fairlead.sleeper s WHERE s.queue IN (p_queue, '')
        AND s.until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) THEN
    PERFORM pg_notify('fairlead', p_queue);
  END IF;
END $$;

-- The listener p_who sleeps for this queue ('': any) for so long; 0: no longer.
CREATE FUNCTION fairlead.sleep(p_queue text, p_who int, p_us bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_us > 0 THEN
    INSERT INTO fairlead.sleeper VALUES (p_queue, p_who, fairlead.now_us() + p_us)
      ON CONFLICT (queue, who) DO UPDATE SET until = excluded.until;
  ELSE
    DELETE FROM fairlead.sleeper WHERE queue = p_queue AND who = p_who;
  END IF;
END $$;

-- Write an event for each of these messages, which still exist.
CREATE FUNCTION fairlead.tell(p_queue text, p_kind text, p_ids bigint[], p_now bigint, p_error text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  INSERT INTO fairlead.event (at, kind, queue, message_id, key, channel, delay_us, data)
    SELECT p_now, p_kind, p_queue, m.id, m.key, m.channel,
      CASE WHEN p_kind IN ('created', 'deferred') THEN greatest(m.due_at - p_now, 0) END,
      convert_to(CASE p_kind
        WHEN 'leased' THEN jsonb_build_object('attempts', m.attempts, 'deliveries', m.deliveries)
        WHEN 'dead' THEN jsonb_build_object('error', p_error)
        WHEN 'progress' THEN jsonb_build_object('progress', m.progress / 1000000.0, 'note', m.note)
      END::text, 'UTF8')
    FROM unnest(p_ids) WITH ORDINALITY u(id, i) JOIN fairlead.message m ON m.id = u.id ORDER BY u.i;
END $$;

-- Write an event for messages that are deleted.
CREATE FUNCTION fairlead.tell_gone(p_queue text, p_ids bigint[], p_keys text[], p_channels text[], p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO fairlead.event (at, kind, queue, message_id, key, channel)
    SELECT p_now, 'deleted', p_queue, u.id, u.key, u.channel FROM unnest(p_ids, p_keys, p_channels) u(id, key, channel);
END $$;

-- Every transaction of this database before this one has ended, and the next statement sees what it
-- did. (A snapshot's xmin would do too, but it waits for the other databases of the server as well.)
CREATE FUNCTION fairlead.oldest_open() RETURNS xid8 LANGUAGE plpgsql AS $$
DECLARE
  -- Whoever is older than this and still running is listed below; in this order.
  v_next bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  v_open bigint;
BEGIN
  PERFORM pg_stat_clear_snapshot();
  SELECT min(x.epoch + x.xid - CASE WHEN x.epoch + x.xid > v_next + 2147483648 THEN 4294967296 ELSE 0 END) INTO v_open
    FROM (SELECT v_next / 4294967296 * 4294967296 AS epoch, o.xid::text::bigint AS xid FROM (
        SELECT a.backend_xid AS xid FROM pg_stat_get_activity(NULL) a
        WHERE a.datid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
          AND a.usesysid IS NOT NULL -- autovacuum takes transaction ids too, and writes no events
        UNION ALL
        SELECT p.transaction FROM pg_prepared_xacts p WHERE p.database = current_database()) o
      WHERE o.xid IS NOT NULL) x;
  RETURN least(v_open, v_next)::text::xid8;
END $$;

-- Where a reader begins that wants only what happens from now on.
CREATE FUNCTION fairlead.events_now(p_queue text, OUT open xid8, OUT seen pg_snapshot) LANGUAGE plpgsql AS $$
BEGIN
  IF p_queue IS NOT NULL THEN
    PERFORM fairlead.queue_row(p_queue);
  END IF;
  open := fairlead.oldest_open();
  seen := pg_current_snapshot();
END $$;

-- The events after (p_tx, p_id), up to the oldest transaction still open; of one queue and of some
-- kinds if given. p_since is the snapshot of a reader that wants only what was not visible then.
-- The last row has no kind: everything before its tx has been read.
CREATE FUNCTION fairlead.events(p_tx xid8 DEFAULT '0', p_id bigint DEFAULT 0, p_limit int DEFAULT 100,
  p_queue text DEFAULT NULL, p_kinds text[] DEFAULT NULL, p_since pg_snapshot DEFAULT NULL)
RETURNS TABLE (tx xid8, id bigint, at bigint, kind text, queue text, message_id bigint, key text, channel text,
  delay_us bigint, data bytea) LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_open xid8 := fairlead.oldest_open();
  v_n int;
BEGIN
  IF p_queue IS NOT NULL THEN
    PERFORM fairlead.queue_row(p_queue);
  END IF;
  RETURN QUERY
    SELECT e.tx, e.id, e.at, e.kind, e.queue, e.message_id, e.key, e.channel, e.delay_us, e.data FROM fairlead.event e
    WHERE (e.tx, e.id) > (p_tx, p_id) AND e.tx < v_open AND (p_queue IS NULL OR e.queue = p_queue)
      AND (p_kinds IS NULL OR e.kind = ANY (p_kinds))
      AND (p_since IS NULL OR NOT pg_visible_in_snapshot(e.tx, p_since))
    ORDER BY e.tx, e.id LIMIT p_limit;
  GET DIAGNOSTICS v_n = ROW_COUNT;
  IF v_n < p_limit THEN
    RETURN QUERY SELECT greatest(v_open, p_tx), 0::bigint, NULL::bigint, NULL, NULL, NULL::bigint, NULL, NULL, NULL::bigint, NULL::bytea;
  END IF;
END $$;
