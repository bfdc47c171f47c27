-- Fragments that several files use. The lists of columns (queue, settings, policy, counters and their
-- variants) come from common.py. The files of this folder have all statements that Fairturn sends to
-- SQLite; a § in them is one of docs/semantics.md. Two rules hold for all of them:
-- * A statement that writes starts with INSERT, UPDATE or DELETE, never with WITH: on your connection,
--   Python's sqlite3 module begins a transaction only before a statement that starts with one of these.
-- * A state is a literal, never a parameter, wherever a partial index is to be used.

-- fragment: row
id, channel, body, headers, key, version, type, -rank, due_at, created_at, attempts, deliveries,
CASE WHEN state = 'l' THEN token ELSE 0 END, memo, lease_until, json | (begun << 3), recovered,
CASE WHEN group_id IS NOT NULL THEN (SELECT g.name FROM fairturn_group g WHERE g.id = group_id) END,
CASE WHEN origin IS NOT NULL THEN (SELECT o.name FROM fairturn_queue o WHERE o.id = origin) END, first_at

-- fragment: peek_row
{row}, state, result, error, finished_at, expires_at, max_attempts, progress, note

-- fragment: ready_versions
-- The versions that have something ready, and a last row with NULL: one probe of the ready index for each.
versions (version) AS (
    SELECT min(version) FROM fairturn_message WHERE lane = :lane AND state = 'r'
    UNION ALL
    SELECT (SELECT m.version FROM fairturn_message m
             WHERE m.lane = :lane AND m.state = 'r' AND m.version > v.version
             ORDER BY m.version LIMIT 1)
      FROM versions v WHERE v.version IS NOT NULL
)
