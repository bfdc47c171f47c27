-- Receiving (§4): which channels, which messages, the lease, the counters.

-- name: versions(lane)
-- Skip-scan over the ready index: the versions that have anything ready.
WITH RECURSIVE versions (version) AS (
    SELECT min(version) FROM fairlead_message WHERE lane = :lane AND state = 'r'
    UNION ALL
    SELECT (SELECT m.version FROM fairlead_message m
             WHERE m.lane = :lane AND m.state = 'r' AND m.version > v.version
             ORDER BY m.version LIMIT 1)
      FROM versions v WHERE v.version IS NOT NULL
)
SELECT version FROM versions WHERE version IS NOT NULL

-- name: walk(lane, version, first, last, limit, queue_id)
-- Skip-scan: the channels from `first` to `last` that have something ready, each with its head and
-- its own policy. One probe of the ready index per channel, however many messages wait in it. An
-- empty blob as `last` is greater than every text: no end.
WITH RECURSIVE walk (id, channel, rank) AS (
    SELECT * FROM (
        SELECT id, channel, rank FROM fairlead_message
         WHERE lane = :lane AND version = :version AND state = 'r' AND channel >= :first
         ORDER BY channel, rank, due_at, id LIMIT 1)
    UNION ALL
    SELECT m.id, m.channel, m.rank
      FROM walk w CROSS JOIN fairlead_message m ON m.id = (
        SELECT n.id FROM fairlead_message n
         WHERE n.lane = :lane AND n.version = :version AND n.state = 'r' AND n.channel > w.channel
         ORDER BY n.channel, n.rank, n.due_at, n.id LIMIT 1)
     WHERE w.channel < :last
     LIMIT :limit
)
SELECT w.channel, w.id, w.rank, p.max_concurrency, p.rate_count, p.rate_period_us, p.burst,
    p.weight, p.paused, p.ordered, p.max_size
FROM walk w
LEFT JOIN fairlead_policy p ON p.queue_id = :queue_id AND p.channel = w.channel
WHERE w.channel <= :last

-- name: walk_filtered(lane, versions, first, last, limit, queue_id, types, now)
-- As walk, for several versions (their heads are merged), for types, or while more messages than
-- one sweep takes are past their expiry. It walks past every message that does not fit.
WITH RECURSIVE walk (id, channel, rank) AS (
    SELECT * FROM (
        SELECT m.id, m.channel, m.rank
          FROM json_each(:versions) v CROSS JOIN fairlead_message m ON m.id = (
            SELECT n.id FROM fairlead_message n
             WHERE n.lane = :lane AND n.version = v.value AND n.state = 'r' AND n.channel >= :first
               AND (n.expires_at IS NULL OR n.expires_at > :now)
               AND (:types IS NULL OR n.type IN (SELECT value FROM json_each(:types)))
             ORDER BY n.channel, n.rank, n.due_at, n.id LIMIT 1)
         ORDER BY m.channel, m.rank, m.due_at, m.id LIMIT 1)
    UNION ALL
    SELECT h.id, h.channel, h.rank
      FROM walk w CROSS JOIN fairlead_message h ON h.id = (
        SELECT m.id
          FROM json_each(:versions) v CROSS JOIN fairlead_message m ON m.id = (
            SELECT n.id FROM fairlead_message n
             WHERE n.lane = :lane AND n.version = v.value AND n.state = 'r'
               AND n.channel > w.channel
               AND (n.expires_at IS NULL OR n.expires_at > :now)
               AND (:types IS NULL OR n.type IN (SELECT value FROM json_each(:types)))
             ORDER BY n.channel, n.rank, n.due_at, n.id LIMIT 1)
         ORDER BY m.channel, m.rank, m.due_at, m.id LIMIT 1)
     WHERE w.channel < :last
     LIMIT :limit
)
SELECT w.channel, w.id, w.rank, p.max_concurrency, p.rate_count, p.rate_period_us, p.burst,
    p.weight, p.paused, p.ordered, p.max_size
FROM walk w
LEFT JOIN fairlead_policy p ON p.queue_id = :queue_id AND p.channel = w.channel
WHERE w.channel <= :last

-- name: take(lane, version, channel, max_rank, limit)
-- The first messages of one channel.
SELECT id FROM fairlead_message
WHERE lane = :lane AND version = :version AND state = 'r' AND channel = :channel
  AND rank <= :max_rank
ORDER BY rank, due_at, id LIMIT :limit

-- name: take_each(lane, version, channels, max_rank, limit)
-- The first messages of each of several channels. The order within a channel is made afterwards,
-- over what was taken and not over the backlog.
SELECT m.channel, m.id FROM json_each(:channels) c CROSS JOIN fairlead_message m ON m.id IN (
    SELECT n.id FROM fairlead_message n
     WHERE n.lane = :lane AND n.version = :version AND n.state = 'r' AND n.channel = c.value
       AND n.rank <= :max_rank
     ORDER BY n.rank, n.due_at, n.id LIMIT :limit)
ORDER BY m.channel, m.rank, m.due_at, m.id

-- name: take_filtered(lane, versions, channels, max_rank, limit, types, now)
-- As take_each, with the filters of walk_filtered: up to `limit` of each version, merged.
SELECT m.channel, m.id
FROM json_each(:channels) c CROSS JOIN json_each(:versions) v CROSS JOIN fairlead_message m
    ON m.id IN (
    SELECT n.id FROM fairlead_message n
     WHERE n.lane = :lane AND n.version = v.value AND n.state = 'r' AND n.channel = c.value
       AND n.rank <= :max_rank
       AND (n.expires_at IS NULL OR n.expires_at > :now)
       AND (:types IS NULL OR n.type IN (SELECT value FROM json_each(:types)))
     ORDER BY n.rank, n.due_at, n.id LIMIT :limit)
ORDER BY m.channel, m.rank, m.due_at, m.id

-- name: begun_first(lane, channel)
-- The messages of an ordered channel that were begun before and wait: they go first. No more than
-- the runs given out under the ordered policy, so sorting them is cheap. In the order of their ids: a
-- retry has a later due time than those behind it, which must not overtake it for that.
SELECT id, version, type, rank, expires_at FROM fairlead_message
WHERE lane = :lane AND channel = :channel AND begun = 1 AND state = 'r'
ORDER BY rank, id

-- name: run(lane, versions, channel, limit)
-- The messages of an ordered channel that were never begun, of all versions; a run is cut at the
-- first that does not fit, so nothing is filtered here.
SELECT m.id, m.version, m.type, m.rank, m.expires_at
FROM json_each(:versions) v CROSS JOIN fairlead_message m ON m.id IN (
    SELECT n.id FROM fairlead_message n
     WHERE n.lane = :lane AND n.version = v.value AND n.state = 'r' AND n.channel = :channel
       AND n.begun = 0
     ORDER BY n.rank, n.due_at, n.id LIMIT :limit)
ORDER BY m.rank, m.due_at, m.id LIMIT :limit

-- name: gates(queue_id, lane, channels)
-- What decides whether channels with a limit are open: leases, GCRA time, a begun retry on its way.
SELECT c.value,
    (SELECT count(*) FROM fairlead_message m
      WHERE m.lane = :lane AND m.channel = c.value AND m.state = 'l'),
    coalesce((SELECT g.tat FROM fairlead_gate g
               WHERE g.queue_id = :queue_id AND g.channel = c.value), 0),
    EXISTS (SELECT 1 FROM fairlead_message m
             WHERE m.lane = :lane AND m.channel = c.value AND m.begun = 1 AND m.state = 's')
FROM json_each(:channels) c

-- name: leases(lane, limit)
-- The leases of a queue, counted no further than its limit.
SELECT count(*) FROM (
    SELECT 1 FROM fairlead_message WHERE lane = :lane AND state = 'l' LIMIT :limit)

-- name: body_sizes(ids)
SELECT id, length(body) FROM fairlead_message WHERE id IN (SELECT value FROM json_each(:ids))

-- name: begin_runs(ids)
UPDATE fairlead_message SET begun = 1 WHERE id IN (SELECT value FROM json_each(:ids))

-- name: lease(ids, now, lease_us, queue_lease_us, permit)
UPDATE fairlead_message SET state = 'l', attempts = attempts + 1, deliveries = deliveries + 1,
    lease_until = :now + coalesce(:lease_us, lease_us, :queue_lease_us), permit_id = :permit,
    progress = NULL, note = NULL, first_at = coalesce(first_at, :now)
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING {row}

-- name: charge(queue_id, tats)
-- The new GCRA times of the channels that gave, as [channel, tat] pairs. WHERE true tells the parser
-- that ON belongs to the INSERT.
INSERT INTO fairlead_gate (queue_id, channel, tat)
SELECT :queue_id, json_extract(value, '$[0]'), json_extract(value, '$[1]')
FROM json_each(:tats) WHERE true
ON CONFLICT (queue_id, channel) DO UPDATE SET tat = excluded.tat

-- name: next_events(lane)
-- When an empty queue may have something again: the next due time and the next lease to lapse.
SELECT
    (SELECT due_at FROM fairlead_message
      WHERE lane = :lane AND state = 's' ORDER BY due_at LIMIT 1),
    (SELECT lease_until FROM fairlead_message
      WHERE lane = :lane AND state = 'l' ORDER BY lease_until LIMIT 1)

-- name: count(queue_id, minute, sent, delivered, acked, completed, deferred, failed, killed, recovered, released, cancelled, expired, errors)
-- Once per call at most.
INSERT INTO fairlead_history (queue_id, minute, {counters})
VALUES (:queue_id, :minute, :sent, :delivered, :acked, :completed, :deferred, :failed, :killed,
    :recovered, :released, :cancelled, :expired, :errors)
ON CONFLICT (queue_id, minute) DO UPDATE SET {add_counters}
