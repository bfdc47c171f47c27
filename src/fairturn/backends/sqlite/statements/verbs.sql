-- The verbs (§5, §13.1), and permits (§6).

-- name: ack(ids, lane, token)
-- By primary key, if the token is that of the message's latest lease. The plus signs keep SQLite from
-- reading all leases of the queue instead. One token at a time: a batch has few, and this is a fifth faster
-- than comparing pairs.
DELETE FROM fairturn_message
WHERE id IN (SELECT value FROM json_each(:ids))
  AND token = :token AND +lane = :lane AND +state = 'l'
RETURNING id, group_id

-- name: leases_of(ids, lane, token, queue_attempts)
-- The valid ones of these leases, which have one token, with the columns that the verbs need.
SELECT id, attempts, coalesce(max_attempts, :queue_attempts), group_id
FROM fairturn_message
WHERE id IN (SELECT value FROM json_each(:ids))
  AND token = :token AND +lane = :lane AND +state = 'l'

-- name: valid_leases(leases, lane, queue_attempts)
-- The same for pairs [id, token].
SELECT id, attempts, coalesce(max_attempts, :queue_attempts), group_id
FROM fairturn_message
WHERE (id, token) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:leases))
  AND +lane = :lane AND +state = 'l'

-- name: delete(ids)
DELETE FROM fairturn_message WHERE id IN (SELECT value FROM json_each(:ids))

-- name: keep(ids, now)
-- An ack in a queue that keeps done messages.
UPDATE fairturn_message SET state = 'd', finished_at = :now, result = NULL, begun = 0,
    recovered = 0, permit_id = NULL, lease_until = NULL, json = json & 3
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: complete(ids, now, result, result_json)
UPDATE fairturn_message SET state = 'd', finished_at = :now, result = :result, attempts = 0,
    error = NULL, begun = 0, recovered = 0, permit_id = NULL, lease_until = NULL,
    json = json & 3 | :result_json
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: defer(ids, state, due_at)
UPDATE fairturn_message SET state = :state, due_at = :due_at, attempts = 0, recovered = 0,
    permit_id = NULL, lease_until = NULL
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: set_memo(ids, memo, memo_json)
UPDATE fairturn_message SET memo = :memo, json = json & 5 | :memo_json
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: log_failures(failed, queue_id, now, error, details, reference)
-- Pairs [id, fatal], in their order. Runs before the verb itself, while the row still has its key and
-- its attempts.
INSERT INTO fairturn_failure
    (queue_id, message_id, key, attempt, at, error, details, reference, fatal)
SELECT :queue_id, m.id, m.key, m.attempts, :now, :error, :details, :reference,
    json_extract(f.value, '$[1]')
FROM json_each(:failed) f CROSS JOIN fairturn_message m ON m.id = json_extract(f.value, '$[0]')

-- name: retry(ids, state, due_at, error)
UPDATE fairturn_message SET state = :state, due_at = :due_at, error = :error, recovered = 0,
    permit_id = NULL, lease_until = NULL
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: bury(ids, now, error, keep_recovered)
UPDATE fairturn_message SET state = 'x', finished_at = :now, error = :error, begun = 0,
    recovered = recovered * :keep_recovered, permit_id = NULL, lease_until = NULL
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: dead_letter(ids, now, error, keep_recovered, origin, lane, expires_at)
-- The message moves to the dead-letter queue, without its key and its group, and with fresh attempts.
UPDATE fairturn_message SET lane = :lane, state = 'r', due_at = :now, attempts = 0, key = NULL,
    expires_at = :expires_at, error = :error, begun = 0, recovered = recovered * :keep_recovered,
    permit_id = NULL, lease_until = NULL, finished_at = NULL, origin = :origin, group_id = NULL
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: extend(ids, now, lease_us, queue_lease_us)
UPDATE fairturn_message SET
    lease_until = max(lease_until, :now + coalesce(:lease_us, lease_us, :queue_lease_us))
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING id, lease_until

-- name: extend_exactly(ids, now, lease_us, queue_lease_us)
-- The lease leaves its permit, which would extend it again.
UPDATE fairturn_message SET permit_id = NULL,
    lease_until = :now + coalesce(:lease_us, lease_us, :queue_lease_us)
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING id, lease_until

-- name: release(ids)
UPDATE fairturn_message SET state = 'r', attempts = max(attempts - 1, 0),
    permit_id = NULL, lease_until = NULL
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: progress(ids, progress, note)
-- NULL: unchanged.
UPDATE fairturn_message SET progress = coalesce(:progress, progress), note = coalesce(:note, note)
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: create_permit(id, name, ttl_us, now)
INSERT INTO fairturn_permit (id, name, created_at, expires_at)
SELECT :id, :name, t.now, t.now + :ttl_us FROM (SELECT coalesce(:now, fairturn_now_ns() / 1000) AS now) t

-- name: live_permit(id, now)
SELECT 1 FROM fairturn_permit WHERE id = :id AND expires_at > :now

-- name: extend_permit(id, ttl_us, now)
UPDATE fairturn_permit SET expires_at = :now + :ttl_us
WHERE id = :id AND expires_at > :now RETURNING 1

-- name: close_permit(id)
DELETE FROM fairturn_permit WHERE id = :id

-- name: permits(now)
SELECT p.id, p.name, p.created_at, p.expires_at, coalesce(l.leases, 0)
FROM fairturn_permit p LEFT JOIN (
    SELECT m.permit_id, count(*) AS leases
      FROM fairturn_queue q CROSS JOIN fairturn_message m ON m.lane = q.lane AND m.state = 'l'
     WHERE m.permit_id IS NOT NULL GROUP BY m.permit_id) l ON l.permit_id = p.id
WHERE p.expires_at > :now ORDER BY p.created_at, p.name, p.id
