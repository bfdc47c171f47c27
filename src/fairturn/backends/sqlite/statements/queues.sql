-- The schema, the clock and the queues.

-- name: clock()
SELECT fairturn_now_ns() / 1000

-- name: has_schema()
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'fairturn_migration'

-- name: installed()
SELECT coalesce((SELECT max(version) FROM fairturn_migration), 0),
    coalesce((SELECT generation FROM fairturn_installed), 0),
    coalesce((SELECT oldest_client FROM fairturn_installed), 0)

-- name: find_queue(name, now)
-- The first statement of most operations: the clock, the lane and the settings. The last column says
-- whether a policy has a max_size: if not, a send need not count.
SELECT coalesce(:now, fairturn_now_ns() / 1000), id, lane, tat, {queue},
    EXISTS (SELECT 1 FROM fairturn_policy p WHERE p.queue_id = q.id AND p.max_size IS NOT NULL)
FROM fairturn_queue q WHERE name = :name

-- name: open_queue(name, now)
-- The first statement of a receive: like find_queue, with one index probe each for the earliest expiry,
-- deadline of a lease and due time (is there anything to sweep?) and for the first and last version that
-- has something ready.
SELECT coalesce(:now, fairturn_now_ns() / 1000), id, lane, tat, {queue},
    (SELECT expires_at FROM fairturn_message m
      WHERE m.lane = q.lane AND expires_at IS NOT NULL ORDER BY expires_at LIMIT 1),
    (SELECT lease_until FROM fairturn_message m
      WHERE m.lane = q.lane AND state = 'l' ORDER BY lease_until LIMIT 1),
    (SELECT due_at FROM fairturn_message m
      WHERE m.lane = q.lane AND state = 's' ORDER BY due_at LIMIT 1),
    (SELECT version FROM fairturn_message m
      WHERE m.lane = q.lane AND state = 'r' ORDER BY version LIMIT 1),
    (SELECT version FROM fairturn_message m
      WHERE m.lane = q.lane AND state = 'r' ORDER BY version DESC LIMIT 1)
FROM fairturn_queue q WHERE name = :name

-- name: queue_names()
SELECT name FROM fairturn_queue ORDER BY name

-- name: queue(name)
SELECT name, created_at, {settings}, (SELECT m.meta FROM fairturn_meta m WHERE m.queue_id = q.id)
FROM fairturn_queue q WHERE name = :name

-- name: queues()
SELECT name, created_at, {settings}, (SELECT m.meta FROM fairturn_meta m WHERE m.queue_id = q.id)
FROM fairturn_queue q ORDER BY name

-- name: new_lane()
INSERT INTO fairturn_lane (retired_at) VALUES (NULL) RETURNING id

-- name: retire_lane(lane, now)
UPDATE fairturn_lane SET retired_at = :now WHERE id = :lane

-- name: create_queue(name, lane, now, {settings})
INSERT INTO fairturn_queue (name, lane, created_at, {settings})
VALUES (:name, :lane, coalesce(:now, fairturn_now_ns() / 1000), {settings_values})

-- name: set_queue(name, {settings})
-- All settings: those that the caller did not name were read in the same transaction.
UPDATE fairturn_queue SET ({settings}) = ({settings_values})
WHERE name = :name

-- name: set_meta(name, meta)
INSERT INTO fairturn_meta (queue_id, meta) SELECT id, :meta FROM fairturn_queue WHERE name = :name
ON CONFLICT (queue_id) DO UPDATE SET meta = excluded.meta

-- name: clear_meta(name)
DELETE FROM fairturn_meta WHERE queue_id = (SELECT id FROM fairturn_queue WHERE name = :name)

-- name: move_queue(queue_id, lane)
UPDATE fairturn_queue SET lane = :lane WHERE id = :queue_id

-- name: drop_queue(queue_id)
DELETE FROM fairturn_queue WHERE id = :queue_id

-- name: drop_policies(queue_id)
DELETE FROM fairturn_policy WHERE queue_id = :queue_id

-- name: drop_gates(queue_id)
DELETE FROM fairturn_gate WHERE queue_id = :queue_id

-- name: drop_history(queue_id)
DELETE FROM fairturn_history WHERE queue_id = :queue_id

-- name: drop_failures(queue_id)
DELETE FROM fairturn_failure WHERE queue_id = :queue_id

-- name: set_queue_tat(queue_id, tat)
UPDATE fairturn_queue SET tat = :tat WHERE id = :queue_id
