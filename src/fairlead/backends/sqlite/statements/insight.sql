-- Looking without touching (§9, §13.2).

-- name: get_by_id(id, lane, now)
SELECT {peek_row} FROM fairlead_message
WHERE id = :id AND lane = :lane AND (expires_at IS NULL OR expires_at > :now)

-- name: get_by_key(key, lane, now)
SELECT {peek_row} FROM fairlead_message
WHERE lane = :lane AND key = :key AND (expires_at IS NULL OR expires_at > :now)

-- name: peek(lane, after, state, channel, now, limit)
-- By primary key from `after` on: no sort, and the first page of a big queue costs one page.
SELECT {peek_row} FROM fairlead_message NOT INDEXED
WHERE id > :after AND lane = :lane AND (:state IS NULL OR state = :state)
  AND (:channel IS NULL OR channel = :channel) AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id LIMIT :limit

-- name: peek_finished(lane, after, state, channel, now, limit)
-- The finished are few among many: from their own index.
SELECT {peek_row} FROM fairlead_message INDEXED BY fairlead_finished
WHERE lane = :lane AND (state = 'd' OR state = 'x') AND state = :state AND id > :after
  AND (:channel IS NULL OR channel = :channel) AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id LIMIT :limit

-- name: peek_busy(lane, after, state, channel, now, limit)
-- Likewise the leased, scheduled and held.
SELECT {peek_row} FROM fairlead_message INDEXED BY fairlead_busy
WHERE lane = :lane AND (state = 'l' OR state = 's' OR state = 'h') AND state = :state
  AND id > :after
  AND (:channel IS NULL OR channel = :channel) AND (expires_at IS NULL OR expires_at > :now)
ORDER BY id LIMIT :limit

-- name: stats_ready(lane)
-- From the index alone: (version, count, earliest due).
SELECT version, count(*), min(due_at) FROM fairlead_message
WHERE lane = :lane AND state = 'r' GROUP BY version

-- name: stats_busy(lane)
SELECT state, version, count(*) FROM fairlead_message
WHERE lane = :lane AND (state = 'l' OR state = 's' OR state = 'h') GROUP BY state, version

-- name: stats_finished(lane)
SELECT state, version, count(*) FROM fairlead_message
WHERE lane = :lane AND (state = 'd' OR state = 'x') GROUP BY state, version

-- name: stats_due(lane, now)
-- Scheduled by state, ready in fact.
SELECT count(*), min(due_at) FROM fairlead_message
WHERE lane = :lane AND state = 's' AND due_at <= :now

-- name: stats_lapsed(lane, now)
-- Leased by state, ready in fact: the deadline has passed and no live permit moves it on.
SELECT count(*), min(m.due_at) FROM fairlead_message m
LEFT JOIN fairlead_permit p ON p.id = m.permit_id AND p.expires_at > :now
WHERE m.lane = :lane AND m.state = 'l' AND m.lease_until <= :now AND p.id IS NULL

-- name: stats_expired(lane, now)
-- What the counts above must leave out, by what they took it for.
SELECT CASE WHEN m.state = 's' AND m.due_at <= :now THEN 'r'
            WHEN m.state = 'l' AND m.lease_until <= :now AND p.id IS NULL THEN 'r'
            ELSE m.state END AS counted, m.version, count(*)
FROM fairlead_message m
LEFT JOIN fairlead_permit p ON p.id = m.permit_id AND p.expires_at > :now
WHERE m.lane = :lane AND m.expires_at <= :now
GROUP BY counted, m.version

-- name: stats_oldest(lane, now)
-- The earliest due of what counts as ready, when some of it is past its expiry.
SELECT min(due_at) FROM (
    SELECT due_at, expires_at FROM fairlead_message WHERE lane = :lane AND state = 'r'
    UNION ALL
    SELECT due_at, expires_at FROM fairlead_message
     WHERE lane = :lane AND state = 's' AND due_at <= :now
    UNION ALL
    SELECT m.due_at, m.expires_at FROM fairlead_message m
      LEFT JOIN fairlead_permit p ON p.id = m.permit_id AND p.expires_at > :now
     WHERE m.lane = :lane AND m.state = 'l' AND m.lease_until <= :now AND p.id IS NULL
) WHERE expires_at IS NULL OR expires_at > :now

-- name: totals(queue_id)
SELECT {sum_counters} FROM fairlead_history WHERE queue_id = :queue_id

-- name: history(queue_id, since)
SELECT minute, {counters} FROM fairlead_history
WHERE queue_id = :queue_id AND minute >= max(:since, 0) ORDER BY minute

-- name: ahead(lane, channel, rank, due_at, id)
-- Ready messages of a channel that come before one of its messages, over all versions.
WITH RECURSIVE versions (version) AS (
    SELECT min(version) FROM fairlead_message WHERE lane = :lane AND state = 'r'
    UNION ALL
    SELECT (SELECT m.version FROM fairlead_message m
             WHERE m.lane = :lane AND m.state = 'r' AND m.version > v.version
             ORDER BY m.version LIMIT 1)
      FROM versions v WHERE v.version IS NOT NULL
)
SELECT count(*) FROM versions v CROSS JOIN fairlead_message m
    ON m.lane = :lane AND m.version = v.version AND m.channel = :channel AND m.state = 'r'
   AND (m.rank, m.due_at, m.id) < (:rank, :due_at, :id)

-- name: channel_leases(lane, channel)
SELECT count(*), min(lease_until) FROM fairlead_message
WHERE lane = :lane AND channel = :channel AND state = 'l'

-- name: queue_leases(lane)
SELECT count(*) FROM fairlead_message WHERE lane = :lane AND state = 'l'

-- name: gate(queue_id, channel)
SELECT tat FROM fairlead_gate WHERE queue_id = :queue_id AND channel = :channel

-- name: blocking(lane, channel, id)
-- What an ordered channel waits for: a leased message, else one on its way to a retry, else one
-- that was begun and goes first.
SELECT id FROM (
    SELECT id, 0 AS place FROM fairlead_message
     WHERE lane = :lane AND channel = :channel AND state = 'l' AND id <> :id
    UNION ALL
    SELECT id, CASE state WHEN 's' THEN 1 ELSE 2 END FROM fairlead_message m
     WHERE lane = :lane AND channel = :channel AND begun = 1 AND state <> 'l' AND id <> :id
       AND (state = 's'
         OR NOT EXISTS (SELECT 1 FROM fairlead_message o WHERE o.id = :id AND o.begun = 1))
) ORDER BY place, id LIMIT 1

-- name: failures(queue_id, name, limit)
SELECT :name, message_id, key, attempt, at, error, details, reference FROM fairlead_failure
WHERE queue_id = :queue_id ORDER BY at DESC, id DESC LIMIT :limit

-- name: failures_of_id(queue_id, name, id, limit)
SELECT :name, message_id, key, attempt, at, error, details, reference FROM fairlead_failure
WHERE message_id = :id AND queue_id = :queue_id ORDER BY at DESC, id DESC LIMIT :limit

-- name: failures_of_key(queue_id, name, key, limit)
SELECT :name, message_id, key, attempt, at, error, details, reference FROM fairlead_failure
WHERE key = :key AND queue_id = :queue_id ORDER BY at DESC, id DESC LIMIT :limit

-- name: trace_messages(key)
SELECT m.created_at, q.name, 'message', m.id, m.state, ''
FROM fairlead_queue q CROSS JOIN fairlead_message m ON m.lane = q.lane AND m.key = :key

-- name: trace_failures(key)
SELECT f.at, q.name, 'error', f.message_id, CASE f.fatal WHEN 1 THEN 'x' ELSE 'r' END, f.error
FROM fairlead_failure f JOIN fairlead_queue q ON q.id = f.queue_id
WHERE f.key = :key ORDER BY f.id

-- name: outcomes(ids, keys, queue_id, lane, now)
-- By id also what was dead-lettered from this queue and still is somewhere. One that is asked for
-- twice is answered once.
SELECT m.id, m.key, CASE m.lane WHEN :lane THEN m.state ELSE 'x' END, m.json, m.result, m.error,
    m.progress, m.note
FROM fairlead_message m
WHERE m.id IN (
        SELECT value FROM json_each(:ids)
        UNION
        SELECT k.id FROM json_each(:keys) j
        CROSS JOIN fairlead_message k ON k.lane = :lane AND k.key = j.value)
  AND (+m.lane = :lane OR (m.origin = :queue_id
    AND EXISTS (SELECT 1 FROM fairlead_queue q WHERE q.lane = m.lane)))
  AND (m.expires_at IS NULL OR m.expires_at > :now)
