-- Fairlead on PostgreSQL: scheduled messages that are ready ahead of their time (docs/semantics.md §7.3).

-- Up to p_limit scheduled messages that are due within p_within_us are ready now, the earliest due first; how
-- many. What the sweep does with those that are due, which skips what somebody has locked; but it also leaves
-- alone what has expired, and what was delivered before: the due time of that is a pause.
CREATE FUNCTION fairlead.promote(p_queue text, p_within_us bigint, p_limit int DEFAULT 1000, p_now bigint DEFAULT NULL)
RETURNS int LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  q fairlead.queue := fairlead.queue_row(p_queue);
  v_now bigint := fairlead.now_us(p_now);
  v_n int;
BEGIN
  IF p_within_us < 0 OR p_within_us IS NULL OR p_limit < 1 OR p_limit IS NULL THEN
    RAISE EXCEPTION 'within is not negative, and the limit at least one message' USING ERRCODE = 'FL006';
  END IF;
  UPDATE fairlead.message m SET state = 'r' WHERE m.id = ANY (ARRAY(
    SELECT s.id FROM fairlead.message s WHERE s.lane = q.lane AND s.state = 's' AND s.due_at <= v_now + p_within_us
      AND s.first_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > v_now)
    ORDER BY s.due_at LIMIT p_limit FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_n = ROW_COUNT;
  IF v_n > 0 THEN
    PERFORM fairlead.wake(p_queue);
  END IF;
  RETURN v_n;
END $$;
