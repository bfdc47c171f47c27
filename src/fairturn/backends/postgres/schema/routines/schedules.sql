-- Fairturn on PostgreSQL: schedules (docs/semantics.md §18). A client computes the due times. The database stores
-- the next one, and lets exactly one of several clients handle it.

-- Handle one due time (p_tick): if the schedule still has this revision, send the messages (the arguments of
-- send_rows; NULL: none) and set its next due time. Returns how many were sent or replaced; NULL: another client
-- was faster.
CREATE OR REPLACE FUNCTION fairturn.schedule_fire(p_name text, p_revision bigint, p_next_at bigint, p_tick bigint,
  p_queue text, p_channels text[], p_bodies bytea[], p_json int[], p_ranks int[], p_dues bigint[], p_delays bigint[],
  p_keys text[], p_conflicts text, p_versions int[], p_types text[], p_headers bytea[], p_leases bigint[],
  p_max_attempts int[], p_expires bigint[], p_max_waits bigint[], p_groups text[], p_now bigint)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  v_sent int := 0;
  v_there boolean;
  v_full boolean;
BEGIN
  UPDATE fairturn.schedule SET revision = revision + 1, next_at = p_next_at, look_at = p_next_at, error = NULL
    WHERE name = p_name AND revision = p_revision AND paused = 0;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  -- @stop fire.send
  IF cardinality(p_bodies) > 0 THEN
    SELECT count(*) FILTER (WHERE r.outcome IN ('s', 'r')), bool_or(r.outcome IN ('s', 'r', 'd')), bool_or(r.outcome = 'm')
      INTO v_sent, v_there, v_full
      FROM fairturn.send_rows(p_queue, p_channels, p_bodies, p_json, p_ranks, p_dues, p_delays, p_keys, p_conflicts,
        p_versions, p_types, p_headers, p_leases, p_max_attempts, p_expires, p_max_waits, p_groups, NULL, NULL, p_now) r;
    IF v_full THEN
      RAISE EXCEPTION 'channel % of queue % is full', quote_literal(p_channels[1]), quote_literal(p_queue)
        USING ERRCODE = 'FT004', DETAIL = p_channels[1];
    END IF;
    IF v_there THEN
      UPDATE fairturn.schedule SET last_at = p_tick WHERE name = p_name;
    END IF;
  END IF;
  RETURN v_sent;
END $$;
