-- Messages that are not leased: waiting ones (§7), dead and done ones (§8).

-- name: state_by_id(id, lane)
SELECT id, state, due_at, group_id FROM fairturn_message WHERE id = :id AND lane = :lane

-- name: state_by_key(key, lane)
SELECT id, state, due_at, group_id FROM fairturn_message WHERE lane = :lane AND key = :key

-- name: reschedule(id, state, due_at, rank)
UPDATE fairturn_message SET state = :state, due_at = :due_at, rank = coalesce(:rank, rank)
WHERE id = :id

-- name: oldest_dead(lane, limit)
SELECT id FROM fairturn_message WHERE lane = :lane AND state = 'x'
ORDER BY finished_at, id LIMIT :limit

-- name: oldest_done(lane, limit)
SELECT id FROM fairturn_message WHERE lane = :lane AND state = 'd'
ORDER BY finished_at, id LIMIT :limit

-- fragment: ready_by_age
-- Only ids are sorted, from the index alone; the rows are read in that order. (SQLite ignores the ORDER
-- BY of a joined subquery, unless it has a LIMIT.)
(SELECT id FROM fairturn_message WHERE lane = :lane AND state = 'r' ORDER BY id LIMIT -1) i
CROSS JOIN fairturn_message m ON m.id = i.id

-- name: movable(lane, now, limit)
-- The ready messages, the oldest first.
SELECT m.id, m.group_id FROM {ready_by_age}
WHERE m.expires_at IS NULL OR m.expires_at > :now LIMIT :limit

-- name: movable_home(lane, now, limit, queue_id)
-- Those of them that died in a queue that still exists, with its name.
SELECT m.id, m.group_id, t.name FROM {ready_by_age}
CROSS JOIN fairturn_queue t ON t.id = m.origin
WHERE t.id <> :queue_id AND (m.expires_at IS NULL OR m.expires_at > :now) LIMIT :limit

-- name: move(ids, now, lane, expires_at)
-- New messages, with ids in the order of the old ones. Columns that are not named get their defaults.
INSERT INTO fairturn_message (lane, created_at, state, version, channel, rank, due_at,
    max_attempts, lease_us, json, expires_at, type, headers, body)
SELECT :lane, :now, 'r', version, channel, rank, :now,
    max_attempts, lease_us, json & 1, :expires_at, type, headers, body
FROM fairturn_message WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id
RETURNING id

-- name: redrive(ids, state, due_at)
UPDATE fairturn_message SET state = :state, due_at = :due_at, attempts = 0, begun = 0,
    finished_at = NULL, first_at = NULL
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: redrive_to(ids, state, due_at, lane)
UPDATE fairturn_message SET state = :state, due_at = :due_at, attempts = 0, begun = 0,
    finished_at = NULL, first_at = NULL, key = NULL, lane = :lane, group_id = NULL, origin = NULL
WHERE id IN (SELECT value FROM json_each(:ids))
