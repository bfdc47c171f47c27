-- The schema, the clock and the queues.

-- name: clock()
SELECT fairlead_now_ns() / 1000

-- name: has_schema()
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'fairlead_migration'

-- name: migrations()
SELECT version, oldest_client FROM fairlead_migration ORDER BY version

-- name: find_queue(name, now)
-- The first statement of most operations: the clock, the lane and the settings. The last column
-- spares sends without any max_size the count.
SELECT coalesce(:now, fairlead_now_ns() / 1000), id, lane, tat, name, {settings},
    EXISTS (SELECT 1 FROM fairlead_policy p WHERE p.queue_id = q.id AND p.max_size IS NOT NULL)
FROM fairlead_queue q WHERE name = :name

-- name: open_queue(name, now)
-- The first statement of a receive: as find_queue, and one index probe each for what tells whether
-- there is anything to sweep (expiry, lapsed lease, due) and which versions are ready.
SELECT coalesce(:now, fairlead_now_ns() / 1000), id, lane, tat, name, {settings},
    (SELECT expires_at FROM fairlead_message m
      WHERE m.lane = q.lane AND expires_at IS NOT NULL ORDER BY expires_at LIMIT 1),
    (SELECT lease_until FROM fairlead_message m
      WHERE m.lane = q.lane AND state = 'l' ORDER BY lease_until LIMIT 1),
    (SELECT due_at FROM fairlead_message m
      WHERE m.lane = q.lane AND state = 's' ORDER BY due_at LIMIT 1),
    (SELECT version FROM fairlead_message m
      WHERE m.lane = q.lane AND state = 'r' ORDER BY version LIMIT 1),
    (SELECT version FROM fairlead_message m
      WHERE m.lane = q.lane AND state = 'r' ORDER BY version DESC LIMIT 1)
FROM fairlead_queue q WHERE name = :name

-- name: queue_names()
SELECT name FROM fairlead_queue ORDER BY name

-- name: queue(name)
SELECT name, created_at, {settings}, (SELECT m.meta FROM fairlead_meta m WHERE m.queue_id = q.id)
FROM fairlead_queue q WHERE name = :name

-- name: queues()
SELECT name, created_at, {settings}, (SELECT m.meta FROM fairlead_meta m WHERE m.queue_id = q.id)
FROM fairlead_queue q ORDER BY name

-- name: new_lane()
INSERT INTO fairlead_lane (retired_at) VALUES (NULL) RETURNING id

-- name: retire_lane(lane, now)
UPDATE fairlead_lane SET retired_at = :now WHERE id = :lane

-- name: create_queue(name, lane, now, lease_us, max_attempts, backoff_initial_us, backoff_factor, backoff_max_us, retention_us, dead_retention_us, failure_retention_us, dead_letter, max_body, expires_us, paused, events, limit_concurrency, limit_rate_count, limit_rate_period_us, limit_burst, max_concurrency, rate_count, rate_period_us, burst, weight, channel_paused, ordered, max_size)
INSERT INTO fairlead_queue (name, lane, created_at, {settings})
VALUES (:name, :lane, coalesce(:now, fairlead_now_ns() / 1000),
    :lease_us, :max_attempts, :backoff_initial_us, :backoff_factor, :backoff_max_us, :retention_us,
    :dead_retention_us, :failure_retention_us, :dead_letter, :max_body, :expires_us, :paused,
    :events, :limit_concurrency, :limit_rate_count, :limit_rate_period_us, :limit_burst,
    :max_concurrency, :rate_count, :rate_period_us, :burst, :weight, :channel_paused, :ordered,
    :max_size)

-- name: set_queue(name, lease_us, max_attempts, backoff_initial_us, backoff_factor, backoff_max_us, retention_us, dead_retention_us, failure_retention_us, dead_letter, max_body, expires_us, paused, events, limit_concurrency, limit_rate_count, limit_rate_period_us, limit_burst, max_concurrency, rate_count, rate_period_us, burst, weight, channel_paused, ordered, max_size)
-- All settings at once: what the caller did not name was read in the same transaction.
UPDATE fairlead_queue SET ({settings}) = (
    :lease_us, :max_attempts, :backoff_initial_us, :backoff_factor, :backoff_max_us, :retention_us,
    :dead_retention_us, :failure_retention_us, :dead_letter, :max_body, :expires_us, :paused,
    :events, :limit_concurrency, :limit_rate_count, :limit_rate_period_us, :limit_burst,
    :max_concurrency, :rate_count, :rate_period_us, :burst, :weight, :channel_paused, :ordered,
    :max_size)
WHERE name = :name

-- name: set_meta(name, meta)
INSERT INTO fairlead_meta (queue_id, meta) SELECT id, :meta FROM fairlead_queue WHERE name = :name
ON CONFLICT (queue_id) DO UPDATE SET meta = excluded.meta

-- name: clear_meta(name)
DELETE FROM fairlead_meta WHERE queue_id = (SELECT id FROM fairlead_queue WHERE name = :name)

-- name: move_queue(queue_id, lane)
UPDATE fairlead_queue SET lane = :lane WHERE id = :queue_id

-- name: drop_queue(queue_id)
DELETE FROM fairlead_queue WHERE id = :queue_id

-- name: drop_policies(queue_id)
DELETE FROM fairlead_policy WHERE queue_id = :queue_id

-- name: drop_gates(queue_id)
DELETE FROM fairlead_gate WHERE queue_id = :queue_id

-- name: drop_history(queue_id)
DELETE FROM fairlead_history WHERE queue_id = :queue_id

-- name: drop_failures(queue_id)
DELETE FROM fairlead_failure WHERE queue_id = :queue_id

-- name: set_queue_tat(queue_id, tat)
UPDATE fairlead_queue SET tat = :tat WHERE id = :queue_id
