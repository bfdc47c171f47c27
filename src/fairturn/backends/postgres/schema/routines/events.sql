-- Fairturn on PostgreSQL: events, and NOTIFY for waiting consumers (docs/semantics.md §15).

-- Notify this queue's listeners. Listeners register in a table, so a busy queue without listeners sends
-- no NOTIFY at all. A transaction that is older than 5 ms always sends it, since a consumer may begin to
-- listen before that transaction commits. (A younger transaction need not: a listener checks the queue again
-- 50 ms after it has registered. The 5 ms are there because even a single statement begins microseconds after
-- its transaction.)
CREATE OR REPLACE FUNCTION fairturn.wake(p_queue text) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  IF statement_timestamp() > transaction_timestamp() + interval '5 ms' OR EXISTS (
      SELECT 1 FROM fairturn.listener l WHERE l.queue IN (p_queue, '')
        AND l.until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) THEN
    PERFORM pg_notify('fairturn', p_queue);
  END IF;
END $$;

-- Register the listener p_who for this queue ('': for any queue) for p_us microseconds. 0 ends it.
CREATE OR REPLACE FUNCTION fairturn.sleep(p_queue text, p_who int, p_us bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF p_us > 0 THEN
    INSERT INTO fairturn.listener VALUES (p_queue, p_who, fairturn.now_us() + p_us)
      ON CONFLICT (queue, who) DO UPDATE SET until = excluded.until;
  ELSE
    DELETE FROM fairturn.listener WHERE queue = p_queue AND who = p_who;
  END IF;
END $$;

-- Write an event for each of these messages, if the queue has events. The messages must still exist.
CREATE OR REPLACE FUNCTION fairturn.tell(q fairturn.queue, p_kind text, p_ids bigint[], p_now bigint, p_error text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  IF q.events = 0 THEN
    RETURN;
  END IF;
  INSERT INTO fairturn.event (at, kind, queue, message_id, key, channel, delay_us, data)
    SELECT p_now, p_kind, q.name, m.id, m.key, m.channel,
      CASE WHEN p_kind IN ('created', 'deferred') THEN greatest(m.due_at - p_now, 0) END,
      convert_to(CASE p_kind
        WHEN 'leased' THEN jsonb_build_object('attempts', m.attempts, 'deliveries', m.deliveries)
        WHEN 'dead' THEN jsonb_build_object('error', p_error)
        WHEN 'progress' THEN jsonb_build_object('progress', m.progress / 1000000.0, 'note', m.note)
      END::text, 'UTF8')
    FROM unnest(p_ids) WITH ORDINALITY u(id, i) JOIN fairturn.message m ON m.id = u.id ORDER BY u.i;
END $$;

-- Write an event for each of these messages, which have been deleted.
CREATE OR REPLACE FUNCTION fairturn.tell_gone(p_queue text, p_ids bigint[], p_keys text[], p_channels text[], p_now bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO fairturn.event (at, kind, queue, message_id, key, channel)
    SELECT p_now, 'deleted', p_queue, u.id, u.key, u.channel FROM unnest(p_ids, p_keys, p_channels) u(id, key, channel);
END $$;

-- The oldest transaction of this database that is still open. Every older one has ended, and the next statement
-- sees its changes. (The xmin of a snapshot is older: it also waits for the other databases of the server.)
CREATE OR REPLACE FUNCTION fairturn.oldest_open() RETURNS xid8 LANGUAGE plpgsql AS $$
DECLARE
  -- This is read before the list of running transactions: each older one has then ended or is in the list.
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

-- The position from which a reader reads only what happens from now on.
CREATE OR REPLACE FUNCTION fairturn.events_now(p_queue text, OUT open xid8, OUT seen pg_snapshot) LANGUAGE plpgsql AS $$
BEGIN
  IF p_queue IS NOT NULL THEN
    PERFORM fairturn.queue_row(p_queue);
  END IF;
  open := fairturn.oldest_open();
  seen := pg_current_snapshot();
END $$;

-- The events after (p_tx, p_id), up to the oldest transaction that is still open; of one queue and of some kinds
-- if they are given. p_since is a snapshot: only events that were not visible in it. If fewer than p_limit are
-- found, a last row without a kind follows: everything before its tx has been read.
CREATE OR REPLACE FUNCTION fairturn.events(p_tx xid8 DEFAULT '0', p_id bigint DEFAULT 0, p_limit int DEFAULT 100,
  p_queue text DEFAULT NULL, p_kinds text[] DEFAULT NULL, p_since pg_snapshot DEFAULT NULL)
RETURNS TABLE (tx xid8, id bigint, at bigint, kind text, queue text, message_id bigint, key text, channel text,
  delay_us bigint, data bytea) LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_open xid8 := fairturn.oldest_open();
  v_n int;
BEGIN
  IF p_queue IS NOT NULL THEN
    PERFORM fairturn.queue_row(p_queue);
  END IF;
  RETURN QUERY
    SELECT e.tx, e.id, e.at, e.kind, e.queue, e.message_id, e.key, e.channel, e.delay_us, e.data FROM fairturn.event e
    WHERE (e.tx, e.id) > (p_tx, p_id) AND e.tx < v_open AND (p_queue IS NULL OR e.queue = p_queue)
      AND (p_kinds IS NULL OR e.kind = ANY (p_kinds))
      AND (p_since IS NULL OR NOT pg_visible_in_snapshot(e.tx, p_since))
    ORDER BY e.tx, e.id LIMIT p_limit;
  GET DIAGNOSTICS v_n = ROW_COUNT;
  IF v_n < p_limit THEN
    RETURN QUERY SELECT greatest(v_open, p_tx), 0::bigint, NULL::bigint, NULL, NULL, NULL::bigint, NULL, NULL, NULL::bigint, NULL::bytea;
  END IF;
END $$;
