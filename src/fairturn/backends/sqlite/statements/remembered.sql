-- What a queue remembers for a while (docs/semantics.md §19).

-- name: sent_once(lane, names, now)
-- The messages that were sent under these names, unless the names have expired.
SELECT r.name, r.message_id FROM json_each(:names) n
CROSS JOIN fairturn_remembered r ON r.lane = :lane AND r.kind = 'o' AND r.name = n.value
WHERE r.expires_at > :now

-- name: remember_sent(lane, sent)
-- Triples [name, message id, expiry]. A name that exists already has expired.
INSERT INTO fairturn_remembered (lane, kind, name, message_id, expires_at)
SELECT :lane, 'o', json_extract(s.value, '$[0]'), json_extract(s.value, '$[1]'),
    json_extract(s.value, '$[2]')
FROM json_each(:sent) s WHERE true
ON CONFLICT (lane, kind, name) DO UPDATE SET message_id = excluded.message_id,
    expires_at = excluded.expires_at

-- name: remember(lane, name, value, expires_at)
INSERT INTO fairturn_remembered (lane, kind, name, value, expires_at)
VALUES (:lane, 'v', :name, :value, :expires_at)
ON CONFLICT (lane, kind, name) DO UPDATE SET value = excluded.value,
    expires_at = excluded.expires_at

-- name: recall(lane, name, now)
SELECT value FROM fairturn_remembered
WHERE lane = :lane AND kind = 'v' AND name = :name AND expires_at > :now

-- name: forget(lane, now, limit)
DELETE FROM fairturn_remembered WHERE id IN (
    SELECT id FROM fairturn_remembered
    WHERE lane = :lane AND expires_at <= :now ORDER BY expires_at LIMIT :limit)

-- name: forget_lane(lane, limit)
DELETE FROM fairturn_remembered WHERE id IN (
    SELECT id FROM fairturn_remembered WHERE lane = :lane LIMIT :limit)
