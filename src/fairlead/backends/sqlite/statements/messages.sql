-- Messages nobody leases: waiting ones (§7), dead and done ones (§8).

-- name: state_by_id(id, lane)
SELECT id, state, due_at, group_id FROM fairlead_message WHERE id = :id AND lane = :lane

-- name: state_by_key(key, lane)
SELECT id, state, due_at, group_id FROM fairlead_message WHERE lane = :lane AND key = :key

-- name: reschedule(id, state, due_at, rank)
UPDATE fairlead_message SET state = :state, due_at = :due_at, rank = coalesce(:rank, rank)
WHERE id = :id

-- name: oldest_dead(lane, limit)
SELECT id FROM fairlead_message WHERE lane = :lane AND state = 'x'
ORDER BY finished_at, id LIMIT :limit

-- name: oldest_done(lane, limit)
SELECT id FROM fairlead_message WHERE lane = :lane AND state = 'd'
ORDER BY finished_at, id LIMIT :limit

-- name: redrive(ids, state, due_at)
UPDATE fairlead_message SET state = :state, due_at = :due_at, attempts = 0, begun = 0,
    finished_at = NULL
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: redrive_to(ids, state, due_at, lane)
UPDATE fairlead_message SET state = :state, due_at = :due_at, attempts = 0, begun = 0,
    finished_at = NULL, key = NULL, lane = :lane, group_id = NULL
WHERE id IN (SELECT value FROM json_each(:ids))
