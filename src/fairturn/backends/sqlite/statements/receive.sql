-- Receiving (§4): which channels, which messages, the lease, the counters.

-- name: versions(lane)
WITH RECURSIVE {ready_versions}
SELECT version FROM versions WHERE version IS NOT NULL

-- fragment: round_channels
-- The last step of a walk: each channel with its first message and its own policy.
SELECT w.channel, w.id, w.rank, {own_policy}
FROM walk w
LEFT JOIN fairturn_policy p ON p.queue_id = :queue_id AND p.channel = w.channel
WHERE w.channel <= :last

-- fragment: eligible
-- The message n fits the filters and has not expired.
(n.expires_at IS NULL OR n.expires_at > :now)
  AND (:types IS NULL OR n.type IN (SELECT value FROM json_each(:types)))

-- name: walk(lane, version, first, last, limit, queue_id)
-- The channels from `first` to `last` that have something ready. Each costs one probe of the ready
-- index, no matter how many messages wait in it. An empty blob as `last` is greater than every text: no
-- end. No name contains a NUL, so name || char(0) is the least string after the name.
WITH RECURSIVE walk (id, channel, rank) AS (
    SELECT NULL, NULL, NULL
    UNION ALL
    SELECT m.id, m.channel, m.rank
      FROM walk w CROSS JOIN fairturn_message m ON m.id = (
        SELECT n.id FROM fairturn_message n
         WHERE n.lane = :lane AND n.version = :version AND n.state = 'r'
           AND n.channel >= coalesce(w.channel || char(0), :first)
         ORDER BY n.channel, n.rank, n.due_at, n.id LIMIT 1)
     WHERE w.channel IS NULL OR w.channel < :last
     LIMIT :limit + 1
)
{round_channels}

-- name: walk_filtered(lane, versions, first, last, limit, queue_id, types, now)
-- The same for several versions (their first messages are merged), for types, or while more messages
-- have expired than one sweep deletes. It reads every message that does not fit.
WITH RECURSIVE walk (id, channel, rank) AS (
    SELECT NULL, NULL, NULL
    UNION ALL
    SELECT h.id, h.channel, h.rank
      FROM walk w CROSS JOIN fairturn_message h ON h.id = (
        SELECT m.id
          FROM json_each(:versions) v CROSS JOIN fairturn_message m ON m.id = (
            SELECT n.id FROM fairturn_message n
             WHERE n.lane = :lane AND n.version = v.value AND n.state = 'r'
               AND n.channel >= coalesce(w.channel || char(0), :first) AND {eligible}
             ORDER BY n.channel, n.rank, n.due_at, n.id LIMIT 1)
         ORDER BY m.channel, m.rank, m.due_at, m.id LIMIT 1)
     WHERE w.channel IS NULL OR w.channel < :last
     LIMIT :limit + 1
)
{round_channels}

-- name: take(lane, version, channel, max_rank, limit)
-- The first messages of a channel.
SELECT id FROM fairturn_message
WHERE lane = :lane AND version = :version AND state = 'r' AND channel = :channel
  AND rank <= :max_rank
ORDER BY rank, due_at, id LIMIT :limit

-- name: take_each(lane, version, channels, max_rank, limit)
-- The first messages of each of several channels. Only the messages that are taken are sorted, not all
-- that wait.
SELECT m.channel, m.id FROM json_each(:channels) c CROSS JOIN fairturn_message m ON m.id IN (
    SELECT n.id FROM fairturn_message n
     WHERE n.lane = :lane AND n.version = :version AND n.state = 'r' AND n.channel = c.value
       AND n.rank <= :max_rank
     ORDER BY n.rank, n.due_at, n.id LIMIT :limit)
ORDER BY m.channel, m.rank, m.due_at, m.id

-- name: take_filtered(lane, versions, channels, max_rank, limit, types, now)
-- Like take_each, with the filters of walk_filtered: up to `limit` messages of each version, merged.
SELECT m.channel, m.id
FROM json_each(:channels) c CROSS JOIN json_each(:versions) v CROSS JOIN fairturn_message m
    ON m.id IN (
    SELECT n.id FROM fairturn_message n
     WHERE n.lane = :lane AND n.version = v.value AND n.state = 'r' AND n.channel = c.value
       AND n.rank <= :max_rank AND {eligible}
     ORDER BY n.rank, n.due_at, n.id LIMIT :limit)
ORDER BY m.channel, m.rank, m.due_at, m.id

-- name: begun_first(lane, channel)
-- The ready messages of an ordered channel that were delivered before (`begun`): they come first. There
-- are few, so sorting them is cheap. By id, because a retry has a later due time than the messages behind
-- it, and they must not overtake it.
SELECT id, version, type, rank, expires_at FROM fairturn_message
WHERE lane = :lane AND channel = :channel AND begun = 1 AND state = 'r'
ORDER BY rank, id

-- name: run(lane, versions, channel, limit)
-- The ready messages of an ordered channel that were not delivered before, of all versions. Nothing is
-- filtered here: the caller cuts the list at the first message that does not fit.
SELECT m.id, m.version, m.type, m.rank, m.expires_at
FROM json_each(:versions) v CROSS JOIN fairturn_message m ON m.id IN (
    SELECT n.id FROM fairturn_message n
     WHERE n.lane = :lane AND n.version = v.value AND n.state = 'r' AND n.channel = :channel
       AND n.begun = 0
     ORDER BY n.rank, n.due_at, n.id LIMIT :limit)
ORDER BY m.rank, m.due_at, m.id LIMIT :limit

-- name: gates(queue_id, lane, channels)
-- What decides whether limited channels are open: their leases, the time of their rate, and whether a
-- message waits for its retry.
SELECT c.value,
    (SELECT count(*) FROM fairturn_message m
      WHERE m.lane = :lane AND m.channel = c.value AND m.state = 'l'),
    coalesce((SELECT g.tat FROM fairturn_gate g
               WHERE g.queue_id = :queue_id AND g.channel = c.value), 0),
    EXISTS (SELECT 1 FROM fairturn_message m
             WHERE m.lane = :lane AND m.channel = c.value AND m.begun = 1 AND m.state = 's')
FROM json_each(:channels) c

-- name: leases(lane, limit)
-- The number of a queue's leases, counted no further than its limit.
SELECT count(*) FROM (
    SELECT 1 FROM fairturn_message WHERE lane = :lane AND state = 'l' LIMIT :limit)

-- name: body_sizes(ids)
SELECT id, length(body) FROM fairturn_message WHERE id IN (SELECT value FROM json_each(:ids))

-- name: begin_runs(ids)
UPDATE fairturn_message SET begun = 1 WHERE id IN (SELECT value FROM json_each(:ids))

-- name: lease(ids, now, lease_us, queue_lease_us, permit, token)
UPDATE fairturn_message SET state = 'l', attempts = attempts + 1, deliveries = deliveries + 1, token = :token,
    lease_until = :now + coalesce(:lease_us, lease_us, :queue_lease_us), permit_id = :permit,
    progress = NULL, note = NULL, first_at = coalesce(first_at, :now)
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING {row}

-- name: charge(queue_id, tats)
-- The new times of the rates, as pairs [channel, tat]. (WHERE true tells the parser that ON belongs to
-- the INSERT.)
INSERT INTO fairturn_gate (queue_id, channel, tat)
SELECT :queue_id, json_extract(value, '$[0]'), json_extract(value, '$[1]')
FROM json_each(:tats) WHERE true
ON CONFLICT (queue_id, channel) DO UPDATE SET tat = excluded.tat

-- name: next_events(lane)
-- When an empty queue may have something again: at the next due time, or the next deadline of a lease.
SELECT
    (SELECT due_at FROM fairturn_message
      WHERE lane = :lane AND state = 's' ORDER BY due_at LIMIT 1),
    (SELECT lease_until FROM fairturn_message
      WHERE lane = :lane AND state = 'l' ORDER BY lease_until LIMIT 1)

-- name: count(queue_id, minute, {counters})
-- At most once per call.
INSERT INTO fairturn_history (queue_id, minute, {counters})
VALUES (:queue_id, :minute, {counter_values})
ON CONFLICT (queue_id, minute) DO UPDATE SET {add_counters}
