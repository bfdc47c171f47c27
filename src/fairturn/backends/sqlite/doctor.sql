-- What `fairturn doctor` reads from SQLite. Nothing here writes.

-- name: version()
SELECT sqlite_version()

-- name: files()
PRAGMA database_list

-- name: journal_mode()
PRAGMA journal_mode

-- name: synchronous()
PRAGMA synchronous

-- name: checkpoint()
PRAGMA wal_checkpoint(PASSIVE)

-- name: quick_check()
PRAGMA quick_check(10)

-- name: has_schema()
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'fairturn_migration'

-- name: expired_leases(before)
-- By lane, so that the index on (lane, lease_until) is used.
SELECT coalesce(sum((
    SELECT count(*) FROM fairturn_message AS m
    WHERE m.lane = q.lane AND m.state = 'l' AND m.lease_until <= :before
      AND NOT EXISTS (SELECT 1 FROM fairturn_permit AS p
                      WHERE p.id = m.permit_id AND p.expires_at > :before)
)), 0) FROM fairturn_queue AS q

-- name: backlog(most)
-- What waits for maintenance: the rows of retired lanes. (SQLite has no tallies to fold.) Lane by lane
-- and state by state, so that the partial indexes are used.
SELECT count(*) FROM (
    SELECT 1 FROM fairturn_lane AS l CROSS JOIN fairturn_message AS m
    WHERE l.retired_at IS NOT NULL AND m.lane = l.id AND m.state = 'r'
    UNION ALL
    SELECT 1 FROM fairturn_lane AS l CROSS JOIN fairturn_message AS m
    WHERE l.retired_at IS NOT NULL AND m.lane = l.id AND m.state = 's'
    UNION ALL
    SELECT 1 FROM fairturn_lane AS l CROSS JOIN fairturn_message AS m
    WHERE l.retired_at IS NOT NULL AND m.lane = l.id AND (m.state = 'd' OR m.state = 'x')
    LIMIT :most
)
