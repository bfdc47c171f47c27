-- Reading without changing anything (§9, §13.2).

-- name: get_by_id(id, lane, now)
SELECT {peek_row} FROM fairturn_message
WHERE id = :id AND lane = :lane AND (expires_at IS NULL OR expires_at > :now)

-- name: get_by_key(key, lane, now)
SELECT {peek_row} FROM fairturn_message
WHERE lane = :lane AND key = :key AND (expires_at IS NULL OR expires_at > :now)

-- name: peek(lane, after, state, channel, now, limit)
-- By primary key from `after` on: nothing is sorted, and only as many rows are read as needed.
SELECT {peek_row} FROM fairturn_message NOT INDEXED
WHERE id > :after AND lane = :lane AND (:state IS NULL OR state = :state)
  AND (:channel IS NULL OR channel = :channel) AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id LIMIT :limit

-- name: peek_finished(lane, after, state, channel, now, limit)
-- The finished messages may be few among many, so their own index is used.
SELECT {peek_row} FROM fairturn_message INDEXED BY fairturn_finished
WHERE lane = :lane AND (state = 'd' OR state = 'x') AND state = :state AND id > :after
  AND (:channel IS NULL OR channel = :channel) AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id LIMIT :limit

-- name: peek_busy(lane, after, state, channel, now, limit)
-- The same for leased, scheduled and held messages.
SELECT {peek_row} FROM fairturn_message INDEXED BY fairturn_busy
WHERE lane = :lane AND (state = 'l' OR state = 's' OR state = 'h') AND state = :state
  AND id > :after
  AND (:channel IS NULL OR channel = :channel) AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id LIMIT :limit

-- name: stats_ready(lane)
-- (version, number, earliest due time), from the index alone.
SELECT version, count(*), min(due_at) FROM fairturn_message
WHERE lane = :lane AND state = 'r' GROUP BY version

-- name: stats_busy(lane)
SELECT state, version, count(*) FROM fairturn_message
WHERE lane = :lane AND (state = 'l' OR state = 's' OR state = 'h') GROUP BY state, version

-- name: stats_finished(lane)
SELECT state, version, count(*) FROM fairturn_message
WHERE lane = :lane AND (state = 'd' OR state = 'x') GROUP BY state, version

-- name: stats_due(lane, now)
-- Scheduled by their state, but due.
SELECT count(*), min(due_at) FROM fairturn_message
WHERE lane = :lane AND state = 's' AND due_at <= :now

-- name: stats_lapsed(lane, now)
-- Leased by their state, but past the deadline, and no live permit extends them.
SELECT count(*), min(m.due_at) FROM fairturn_message m
LEFT JOIN fairturn_permit p ON p.id = m.permit_id AND p.expires_at > :now
WHERE m.lane = :lane AND m.state = 'l' AND m.lease_until <= :now AND p.id IS NULL

-- name: stats_expired(lane, now)
-- Expired messages, which the counts above include, by the state under which they were counted.
SELECT CASE WHEN m.state = 's' AND m.due_at <= :now THEN 'r'
            WHEN m.state = 'l' AND m.lease_until <= :now AND p.id IS NULL THEN 'r'
            ELSE m.state END AS counted, m.version, count(*)
FROM fairturn_message m
LEFT JOIN fairturn_permit p ON p.id = m.permit_id AND p.expires_at > :now
WHERE m.lane = :lane AND m.expires_at <= :now
GROUP BY counted, m.version

-- name: stats_oldest(lane, now)
-- The earliest due time of the messages that count as ready, without expired ones.
SELECT min(due_at) FROM (
    SELECT due_at, expires_at FROM fairturn_message WHERE lane = :lane AND state = 'r'
    UNION ALL
    SELECT due_at, expires_at FROM fairturn_message
     WHERE lane = :lane AND state = 's' AND due_at <= :now
    UNION ALL
    SELECT m.due_at, m.expires_at FROM fairturn_message m
      LEFT JOIN fairturn_permit p ON p.id = m.permit_id AND p.expires_at > :now
     WHERE m.lane = :lane AND m.state = 'l' AND m.lease_until <= :now AND p.id IS NULL
) WHERE expires_at IS NULL OR expires_at > :now

-- name: totals(queue_id)
SELECT {sum_counters} FROM fairturn_history WHERE queue_id = :queue_id

-- name: history(queue_id, since)
SELECT minute, {counters} FROM fairturn_history
WHERE queue_id = :queue_id AND minute >= max(:since, 0) ORDER BY minute

-- name: ahead(lane, channel, rank, due_at, id)
-- How many ready messages of a channel come before one of its messages, over all versions.
WITH RECURSIVE {ready_versions}
SELECT count(*) FROM versions v CROSS JOIN fairturn_message m
    ON m.lane = :lane AND m.version = v.version AND m.channel = :channel AND m.state = 'r'
   AND (m.rank, m.due_at, m.id) < (:rank, :due_at, :id)

-- name: channel_leases(lane, channel)
SELECT count(*), min(lease_until) FROM fairturn_message
WHERE lane = :lane AND channel = :channel AND state = 'l'

-- name: queue_leases(lane)
SELECT count(*) FROM fairturn_message WHERE lane = :lane AND state = 'l'

-- name: gate(queue_id, channel)
SELECT tat FROM fairturn_gate WHERE queue_id = :queue_id AND channel = :channel

-- name: blocking(lane, channel, id)
-- The message that an ordered channel waits for: one that is leased, else one that waits for its retry,
-- else one that was delivered before and comes first.
SELECT id FROM (
    SELECT id, 0 AS place FROM fairturn_message
     WHERE lane = :lane AND channel = :channel AND state = 'l' AND id <> :id
    UNION ALL
    SELECT id, CASE state WHEN 's' THEN 1 ELSE 2 END FROM fairturn_message m
     WHERE lane = :lane AND channel = :channel AND begun = 1 AND state <> 'l' AND id <> :id
       AND (state = 's'
         OR NOT EXISTS (SELECT 1 FROM fairturn_message o WHERE o.id = :id AND o.begun = 1))
) ORDER BY place, id LIMIT 1

-- name: failures(queue_id, name, limit)
SELECT :name, message_id, key, attempt, at, error, details, reference FROM fairturn_failure
WHERE queue_id = :queue_id ORDER BY at DESC, id DESC LIMIT :limit

-- name: failures_of_id(queue_id, name, id, limit)
SELECT :name, message_id, key, attempt, at, error, details, reference FROM fairturn_failure
WHERE message_id = :id AND queue_id = :queue_id ORDER BY at DESC, id DESC LIMIT :limit

-- name: failures_of_key(queue_id, name, key, limit)
SELECT :name, message_id, key, attempt, at, error, details, reference FROM fairturn_failure
WHERE key = :key AND queue_id = :queue_id ORDER BY at DESC, id DESC LIMIT :limit

-- name: trace_messages(key)
SELECT m.created_at, q.name, 'message', m.id, m.state, ''
FROM fairturn_queue q CROSS JOIN fairturn_message m ON m.lane = q.lane AND m.key = :key

-- name: trace_failures(key)
SELECT f.at, q.name, 'error', f.message_id, CASE f.fatal WHEN 1 THEN 'x' ELSE 'r' END, f.error
FROM fairturn_failure f JOIN fairturn_queue q ON q.id = f.queue_id
WHERE f.key = :key ORDER BY f.id

-- name: outcomes(ids, keys, queue_id, lane, now)
-- By id, also messages that moved from here to a dead-letter queue and still exist. A message that is
-- named twice is returned once.
SELECT m.id, m.key, CASE m.lane WHEN :lane THEN m.state ELSE 'x' END, m.json, m.result, m.error,
    m.progress, m.note
FROM fairturn_message m
WHERE m.id IN (
        SELECT value FROM json_each(:ids)
        UNION
        SELECT k.id FROM json_each(:keys) j
        CROSS JOIN fairturn_message k ON k.lane = :lane AND k.key = j.value)
  AND (+m.lane = :lane OR (m.origin = :queue_id
    AND EXISTS (SELECT 1 FROM fairturn_queue q WHERE q.lane = m.lane)))
  AND (m.expires_at IS NULL OR m.expires_at > :now)
