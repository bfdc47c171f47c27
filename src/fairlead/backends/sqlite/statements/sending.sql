-- Sending (docs/semantics.md §3).

-- name: insert(lane, now, state, version, channel, rank, due_at, max_attempts, lease_us, json, expires_at, type, headers, body, key)
-- Also made into statements of many rows at load; the first two parameters are shared by all.
INSERT INTO fairlead_message (lane, created_at, state, version, channel, rank, due_at,
    max_attempts, lease_us, json, expires_at, type, headers, body, key)
VALUES (:lane, :now, :state, :version, :channel, :rank, :due_at,
    :max_attempts, :lease_us, :json, :expires_at, :type, :headers, :body, :key)
RETURNING id

-- name: insert_members(lane, now, state, version, channel, rank, due_at, max_attempts, lease_us, json, expires_at, type, headers, body, key, group_id)
-- A statement of its own: one more parameter makes the insert a tenth slower.
INSERT INTO fairlead_message (lane, created_at, state, version, channel, rank, due_at,
    max_attempts, lease_us, json, expires_at, type, headers, body, key, group_id)
VALUES (:lane, :now, :state, :version, :channel, :rank, :due_at,
    :max_attempts, :lease_us, :json, :expires_at, :type, :headers, :body, :key, :group_id)
RETURNING id

-- name: holders(lane, keys)
-- Who has these keys.
SELECT m.key, m.id, m.state, m.created_at, m.group_id FROM json_each(:keys) k
CROSS JOIN fairlead_message m ON m.lane = :lane AND m.key = k.value

-- name: free_keys(ids)
-- The dead give their keys away.
UPDATE fairlead_message SET key = NULL WHERE id IN (SELECT value FROM json_each(:ids))

-- name: replace(id, now, state, version, channel, rank, due_at, max_attempts, lease_us, json, expires_at, type, headers, body, group_id)
-- A waiting or done message becomes the new one in place; re-armed from done it is born anew.
UPDATE fairlead_message SET
    created_at = CASE state WHEN 'd' THEN :now ELSE created_at END,
    state = :state, version = :version, channel = :channel, rank = :rank, due_at = :due_at,
    max_attempts = :max_attempts, lease_us = :lease_us, json = :json, expires_at = :expires_at,
    group_id = :group_id, type = :type, headers = :headers, body = :body,
    attempts = 0, recovered = 0, begun = 0,
    memo = NULL, error = NULL, result = NULL, finished_at = NULL,
    progress = NULL, note = NULL, first_at = NULL
WHERE id = :id
