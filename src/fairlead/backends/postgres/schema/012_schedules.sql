-- Fairlead on PostgreSQL: schedules (docs/semantics.md §18). When one ticks is decided by a client;
-- here it is stored, and moved from one tick to the next by exactly one of those who try.

CREATE TABLE fairlead.schedule (
  name text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 230),
  revision bigint NOT NULL, -- grows with every change: the token of who fires it
  queue text COLLATE "C" NOT NULL, -- by name: it may be dropped and made again
  spec text NOT NULL, -- JSON: cron and timezone, every_us and anchor_us, or at_us
  missed text NOT NULL CHECK (missed IN ('s', 'o', 'b')), -- skip, once, backfill
  overlap text NOT NULL CHECK (overlap IN ('s', 'a')), -- skip, allow
  owner text COLLATE "C", -- the app that declared it in its code
  paused smallint NOT NULL,
  next_at bigint, -- the tick it waits for; NULL: never again
  look_at bigint, -- when to look at it; NULL: paused, or never again
  last_at bigint, -- the last tick that was sent
  error text, -- why the tick it waits for could not be sent
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  json smallint NOT NULL,
  body bytea NOT NULL,
  options text NOT NULL -- JSON, as text since jsonb takes no NUL: channel, headers and the like of its messages
) WITH (fillfactor = 50, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX schedule_look ON fairlead.schedule (look_at, name) WHERE look_at IS NOT NULL;

-- One tick: if the schedule still has that revision, it goes on to p_next_at and the messages (those of
-- send_rows; NULL for none) are sent. How many were created or replaced; NULL: somebody else was faster.
CREATE FUNCTION fairlead.schedule_fire(p_name text, p_revision bigint, p_next_at bigint, p_tick bigint,
  p_queue text, p_channels text[], p_bodies bytea[], p_json int[], p_ranks int[], p_dues bigint[], p_delays bigint[],
  p_keys text[], p_conflicts text, p_versions int[], p_types text[], p_headers bytea[], p_leases bigint[],
  p_max_attempts int[], p_expires bigint[], p_max_waits bigint[], p_groups text[], p_now bigint)
RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  v_sent int := 0;
  v_there boolean;
  v_full boolean;
BEGIN
  UPDATE fairlead.schedule SET revision = revision + 1, next_at = p_next_at, look_at = p_next_at, error = NULL
    WHERE name = p_name AND revision = p_revision AND paused = 0;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  -- @stop fire.send
  IF cardinality(p_bodies) > 0 THEN
    SELECT count(*) FILTER (WHERE r.outcome IN ('s', 'r')), bool_or(r.outcome IN ('s', 'r', 'd')), bool_or(r.outcome = 'm')
      INTO v_sent, v_there, v_full
      FROM fairlead.send_rows(p_queue, p_channels, p_bodies, p_json, p_ranks, p_dues, p_delays, p_keys, p_conflicts,
        p_versions, p_types, p_headers, p_leases, p_max_attempts, p_expires, p_max_waits, p_groups, NULL, NULL, p_now) r;
    IF v_full THEN
      RAISE EXCEPTION 'channel % of queue % is full', quote_literal(p_channels[1]), quote_literal(p_queue)
        USING ERRCODE = 'FL004', DETAIL = p_channels[1];
    END IF;
    IF v_there THEN
      UPDATE fairlead.schedule SET last_at = p_tick WHERE name = p_name;
    END IF;
  END IF;
  RETURN v_sent;
END $$;
