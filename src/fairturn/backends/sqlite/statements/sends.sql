-- Sending (docs/semantics.md §3).

-- fragment: sent
state, version, channel, rank, due_at, max_attempts, lease_us, json, expires_at, type, headers, body, key

-- fragment: sent_values
:state, :version, :channel, :rank, :due_at, :max_attempts, :lease_us, :json, :expires_at, :type, :headers,
:body, :key

-- name: insert(lane, now, {sent})
-- At load, statements for many rows are made from it; all rows share the first two parameters.
INSERT INTO fairturn_message (lane, created_at, {sent}) VALUES (:lane, :now, {sent_values})
RETURNING id

-- name: insert_members(lane, now, {sent}, group_id)
-- A separate statement, because one more parameter makes the insert a tenth slower.
INSERT INTO fairturn_message (lane, created_at, {sent}, group_id)
VALUES (:lane, :now, {sent_values}, :group_id)
RETURNING id

-- name: holders(lane, keys)
-- The messages that have these keys.
SELECT m.key, m.id, m.state, m.created_at, m.group_id FROM json_each(:keys) k
CROSS JOIN fairturn_message m ON m.lane = :lane AND m.key = k.value

-- name: free_keys(ids)
-- Dead messages lose their keys to new ones.
UPDATE fairturn_message SET key = NULL WHERE id IN (SELECT value FROM json_each(:ids))

-- name: replace(id, now, state, version, channel, rank, due_at, max_attempts, lease_us, json, expires_at, type, headers, body, group_id)
-- A waiting or done message becomes the new one. A re-armed one, which was done, gets a new created_at.
UPDATE fairturn_message SET
    created_at = CASE state WHEN 'd' THEN :now ELSE created_at END,
    state = :state, version = :version, channel = :channel, rank = :rank, due_at = :due_at,
    max_attempts = :max_attempts, lease_us = :lease_us, json = :json, expires_at = :expires_at,
    group_id = :group_id, type = :type, headers = :headers, body = :body,
    attempts = 0, recovered = 0, begun = 0,
    memo = NULL, error = NULL, result = NULL, finished_at = NULL,
    progress = NULL, note = NULL, first_at = NULL
WHERE id = :id
