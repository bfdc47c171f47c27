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

-- The server's timeline: a failover begins a new one, in which transaction numbers may come again.
CREATE OR REPLACE FUNCTION fairturn.timeline() RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END
$$;

-- The position from which a reader reads only what happens from now on: the last event that nothing can precede
-- any more, and the snapshot in which the events behind it are known already.
CREATE OR REPLACE FUNCTION fairturn.events_now(p_queue text, OUT tx xid8, OUT id bigint, OUT at bigint, OUT since pg_snapshot,
  OUT timeline text) LANGUAGE plpgsql
SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE v_open xid8;
BEGIN
  IF p_queue IS NOT NULL THEN
    PERFORM fairturn.queue_row(p_queue);
  END IF;
  PERFORM fairturn.events_adopt();
  v_open := fairturn.oldest_open();
  since := pg_current_snapshot();
  timeline := fairturn.timeline();
  SELECT e.tx, e.id, e.at INTO tx, id, at FROM fairturn.event e WHERE e.tx < v_open ORDER BY e.tx DESC, e.id DESC LIMIT 1;
END $$;

-- A dump that was restored on another server has transaction numbers of the old one. Those that are higher than the
-- number of the restore itself (the row's xmin; never so in a row that was written here) would be sorted behind new
-- events, or hide for long: they get that number. Once for each server.
CREATE OR REPLACE FUNCTION fairturn.events_adopt() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_here bigint := (SELECT c.system_identifier FROM pg_control_system() c);
  v_next bigint;
BEGIN
  IF EXISTS (SELECT 1 FROM fairturn.event_server s WHERE s.system_identifier = v_here)
     OR current_setting('transaction_read_only') = 'on' THEN
    RETURN;
  END IF;
  v_next := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
  UPDATE fairturn.event e SET tx = x.here::text::xid8
    FROM (SELECT o.tx, o.id, -- xmin has 32 bits, tx has 64
            v_next - (v_next - o.xmin::text::bigint) % 4294967296 AS here FROM fairturn.event o) x
    WHERE e.tx = x.tx AND e.id = x.id AND e.tx::text::bigint > x.here;
  DELETE FROM fairturn.event_server;
  INSERT INTO fairturn.event_server VALUES (v_here);
END $$;

-- The events after (p_tx, p_id), up to the oldest transaction that is still open; of one queue and of some kinds
-- if they are given. p_at: the time of the event (p_tx, p_id). If another event is in its place, or it is gone
-- although older ones are kept, the database was set back: FT011. p_since is a snapshot of p_timeline: only events
-- that were not visible in it. If fewer than p_limit are found, a last row without a kind follows: the position up
-- to which everything has been read.
CREATE OR REPLACE FUNCTION fairturn.events(p_tx xid8 DEFAULT '0', p_id bigint DEFAULT 0, p_limit int DEFAULT 100,
  p_queue text DEFAULT NULL, p_kinds text[] DEFAULT NULL, p_at bigint DEFAULT NULL, p_since pg_snapshot DEFAULT NULL,
  p_timeline text DEFAULT NULL)
RETURNS TABLE (tx xid8, id bigint, at bigint, kind text, queue text, message_id bigint, key text, channel text,
  delay_us bigint, data bytea) LANGUAGE plpgsql
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_open xid8;
  -- In another timeline its numbers mean other transactions.
  v_since pg_snapshot := CASE WHEN p_timeline = fairturn.timeline() THEN p_since END;
  v_n int;
BEGIN
  IF p_queue IS NOT NULL THEN
    PERFORM fairturn.queue_row(p_queue);
  END IF;
  PERFORM fairturn.events_adopt();
  IF p_at IS NOT NULL
     AND NOT EXISTS (SELECT 1 FROM fairturn.event e WHERE e.tx = p_tx AND e.id = p_id AND e.at = p_at)
     AND EXISTS (SELECT 1 FROM fairturn.event e WHERE (e.tx, e.id) <= (p_tx, p_id)) THEN
    RAISE EXCEPTION 'the event of this cursor is gone' USING ERRCODE = 'FT011',
      HINT = 'the database was set back by a failover or a restore: read again from the beginning, or from now';
  END IF;
  v_open := fairturn.oldest_open();
  RETURN QUERY
    SELECT e.tx, e.id, e.at, e.kind, e.queue, e.message_id, e.key, e.channel, e.delay_us, e.data FROM fairturn.event e
    WHERE (e.tx, e.id) > (p_tx, p_id) AND e.tx < v_open AND (p_queue IS NULL OR e.queue = p_queue)
      AND (p_kinds IS NULL OR e.kind = ANY (p_kinds))
      AND (v_since IS NULL OR NOT pg_visible_in_snapshot(e.tx, v_since))
    ORDER BY e.tx, e.id LIMIT p_limit;
  GET DIAGNOSTICS v_n = ROW_COUNT;
  IF v_n < p_limit THEN
    RETURN QUERY SELECT e.tx, e.id, e.at, NULL, NULL, NULL::bigint, NULL, NULL, NULL::bigint, NULL::bytea
      FROM fairturn.event e WHERE (e.tx, e.id) > (p_tx, p_id) AND e.tx < v_open ORDER BY e.tx DESC, e.id DESC LIMIT 1;
  END IF;
END $$;
