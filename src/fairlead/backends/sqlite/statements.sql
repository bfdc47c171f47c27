-- Every statement Fairlead sends to SQLite. Two rules hold throughout:
-- * What writes starts with INSERT, UPDATE or DELETE, never with WITH: in your transaction Python's
--   sqlite3 module only opens the transaction for a statement that starts with one of those.
-- * A state is a literal, never a parameter, wherever a partial index must be found.

-- fragment: row
id, channel, body, headers, key, version, type, -rank, due_at, created_at, attempts, deliveries,
memo, lease_until, json, recovered

-- fragment: peek_row
{row}, state, result, error, finished_at, expires_at, max_attempts

-- fragment: settings
lease_us, max_attempts, backoff_initial_us, backoff_factor, backoff_max_us, retention_us,
dead_retention_us, failure_retention_us, dead_letter, max_body, expires_us, paused,
limit_concurrency, limit_rate_count, limit_rate_period_us, limit_burst,
max_concurrency, rate_count, rate_period_us, burst, weight, channel_paused, ordered, max_size

-- fragment: policy
max_concurrency, rate_count, rate_period_us, burst, weight, paused, ordered, max_size

-- fragment: counters
sent, delivered, acked, completed, deferred, failed, killed, recovered, released, cancelled,
expired, errors

-- fragment: add_counters
sent = sent + excluded.sent, delivered = delivered + excluded.delivered,
acked = acked + excluded.acked, completed = completed + excluded.completed,
deferred = deferred + excluded.deferred, failed = failed + excluded.failed,
killed = killed + excluded.killed, recovered = recovered + excluded.recovered,
released = released + excluded.released, cancelled = cancelled + excluded.cancelled,
expired = expired + excluded.expired, errors = errors + excluded.errors

-- fragment: sum_counters
coalesce(sum(sent), 0), coalesce(sum(delivered), 0), coalesce(sum(acked), 0),
coalesce(sum(completed), 0), coalesce(sum(deferred), 0), coalesce(sum(failed), 0),
coalesce(sum(killed), 0), coalesce(sum(recovered), 0), coalesce(sum(released), 0),
coalesce(sum(cancelled), 0), coalesce(sum(expired), 0), coalesce(sum(errors), 0)

-- === schema and clock ============================================================================

-- name: clock()
SELECT fairlead_now()

-- name: has_schema()
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'fairlead_migration'

-- name: migrations()
SELECT version, oldest_client FROM fairlead_migration ORDER BY version

-- === queues ======================================================================================

-- name: find_queue(name, now)
-- The first statement of most operations: the clock, the lane and the settings. The last column
-- spares sends without any max_size the count.
SELECT coalesce(:now, fairlead_now()), id, lane, tat, {settings},
    EXISTS (SELECT 1 FROM fairlead_policy p WHERE p.queue_id = q.id AND p.max_size IS NOT NULL)
FROM fairlead_queue q WHERE name = :name

-- name: open_queue(name, now)
-- The first statement of a receive: as find_queue, and one index probe each for what tells whether
-- there is anything to sweep (expiry, lapsed lease, due) and which versions are ready.
SELECT coalesce(:now, fairlead_now()), id, lane, tat, {settings},
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
SELECT name, created_at, {settings} FROM fairlead_queue WHERE name = :name

-- name: queues()
SELECT name, created_at, {settings} FROM fairlead_queue ORDER BY name

-- name: new_lane()
INSERT INTO fairlead_lane (retired_at) VALUES (NULL) RETURNING id

-- name: retire_lane(lane, now)
UPDATE fairlead_lane SET retired_at = :now WHERE id = :lane

-- name: create_queue(name, lane, now, lease_us, max_attempts, backoff_initial_us, backoff_factor, backoff_max_us, retention_us, dead_retention_us, failure_retention_us, dead_letter, max_body, expires_us, paused, limit_concurrency, limit_rate_count, limit_rate_period_us, limit_burst, max_concurrency, rate_count, rate_period_us, burst, weight, channel_paused, ordered, max_size)
INSERT INTO fairlead_queue (name, lane, created_at, {settings})
VALUES (:name, :lane, coalesce(:now, fairlead_now()),
    :lease_us, :max_attempts, :backoff_initial_us, :backoff_factor, :backoff_max_us, :retention_us,
    :dead_retention_us, :failure_retention_us, :dead_letter, :max_body, :expires_us, :paused,
    :limit_concurrency, :limit_rate_count, :limit_rate_period_us, :limit_burst,
    :max_concurrency, :rate_count, :rate_period_us, :burst, :weight, :channel_paused, :ordered,
    :max_size)

-- name: set_queue(name, lease_us, max_attempts, backoff_initial_us, backoff_factor, backoff_max_us, retention_us, dead_retention_us, failure_retention_us, dead_letter, max_body, expires_us, paused, limit_concurrency, limit_rate_count, limit_rate_period_us, limit_burst, max_concurrency, rate_count, rate_period_us, burst, weight, channel_paused, ordered, max_size)
-- All settings at once: what the caller did not name was read in the same transaction.
UPDATE fairlead_queue SET ({settings}) = (
    :lease_us, :max_attempts, :backoff_initial_us, :backoff_factor, :backoff_max_us, :retention_us,
    :dead_retention_us, :failure_retention_us, :dead_letter, :max_body, :expires_us, :paused,
    :limit_concurrency, :limit_rate_count, :limit_rate_period_us, :limit_burst,
    :max_concurrency, :rate_count, :rate_period_us, :burst, :weight, :channel_paused, :ordered,
    :max_size)
WHERE name = :name

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

-- === policies ====================================================================================

-- name: set_policy(queue_id, channel, max_concurrency, rate_count, rate_period_us, burst, weight, paused, ordered, max_size)
INSERT INTO fairlead_policy (queue_id, channel, {policy})
VALUES (:queue_id, :channel, :max_concurrency, :rate_count, :rate_period_us, :burst, :weight,
    :paused, :ordered, :max_size)
ON CONFLICT (queue_id, channel) DO UPDATE SET ({policy}) = (
    :max_concurrency, :rate_count, :rate_period_us, :burst, :weight, :paused, :ordered, :max_size)

-- name: get_policy(queue_id, channel)
SELECT {policy} FROM fairlead_policy WHERE queue_id = :queue_id AND channel = :channel

-- name: clear_policy(queue_id, channel)
DELETE FROM fairlead_policy WHERE queue_id = :queue_id AND channel = :channel RETURNING 1

-- name: sizes(queue_id, channels)
-- The max_size of those channels that have a policy of their own.
SELECT p.channel, p.max_size FROM json_each(:channels) c
CROSS JOIN fairlead_policy p ON p.queue_id = :queue_id AND p.channel = c.value

-- name: unfinished(lane, channel, limit)
-- How full a channel is, counted no further than its max_size.
WITH RECURSIVE versions (version) AS (
    SELECT min(version) FROM fairlead_message WHERE lane = :lane AND state = 'r'
    UNION ALL
    SELECT (SELECT m.version FROM fairlead_message m
             WHERE m.lane = :lane AND m.state = 'r' AND m.version > v.version
             ORDER BY m.version LIMIT 1)
      FROM versions v WHERE v.version IS NOT NULL
)
SELECT count(*) FROM (
    SELECT 1 FROM fairlead_message
     WHERE lane = :lane AND channel = :channel AND (state = 'l' OR state = 's' OR state = 'h')
    UNION ALL
    SELECT 1 FROM versions v CROSS JOIN fairlead_message m
        ON m.lane = :lane AND m.version = v.version AND m.channel = :channel AND m.state = 'r'
    LIMIT :limit
)

-- name: channels(queue_id, lane, limit)
-- Skip-scan: the next channel is the least of the next with a policy, the next with a leased,
-- scheduled or held message, and the next with a ready one of each version. No name holds a NUL,
-- so name || char(0) is the least string after name.
WITH RECURSIVE versions (version) AS (
    SELECT min(version) FROM fairlead_message WHERE lane = :lane AND state = 'r'
    UNION ALL
    SELECT (SELECT m.version FROM fairlead_message m
             WHERE m.lane = :lane AND m.state = 'r' AND m.version > v.version
             ORDER BY m.version LIMIT 1)
      FROM versions v WHERE v.version IS NOT NULL
), walk (channel, step) AS (
    SELECT NULL, 0
    UNION ALL
    SELECT (SELECT min(channel) FROM (
        SELECT (SELECT p.channel FROM fairlead_policy p
                 WHERE p.queue_id = :queue_id
                   AND p.channel >= coalesce(w.channel || char(0), '')
                 ORDER BY p.channel LIMIT 1) AS channel
        UNION ALL
        SELECT (SELECT m.channel FROM fairlead_message m
                 WHERE m.lane = :lane AND (m.state = 'l' OR m.state = 's' OR m.state = 'h')
                   AND m.channel >= coalesce(w.channel || char(0), '')
                 ORDER BY m.channel LIMIT 1)
        UNION ALL
        SELECT (SELECT m.channel FROM fairlead_message m
                 WHERE m.lane = :lane AND m.version = v.version AND m.state = 'r'
                   AND m.channel >= coalesce(w.channel || char(0), '')
                 ORDER BY m.channel LIMIT 1)
          FROM versions v
    )), w.step + 1
    FROM walk w WHERE (w.step = 0 OR w.channel IS NOT NULL) AND w.step < :limit
)
SELECT w.channel,
    (SELECT count(*) FROM versions v CROSS JOIN fairlead_message m
        ON m.lane = :lane AND m.version = v.version AND m.channel = w.channel AND m.state = 'r'),
    (SELECT count(*) FROM fairlead_message m
      WHERE m.lane = :lane AND m.channel = w.channel AND m.state = 's'),
    (SELECT count(*) FROM fairlead_message m
      WHERE m.lane = :lane AND m.channel = w.channel AND m.state = 'l'),
    p.max_concurrency, p.rate_count, p.rate_period_us, p.burst, p.weight, p.paused, p.ordered,
    p.max_size
FROM walk w
LEFT JOIN fairlead_policy p ON p.queue_id = :queue_id AND p.channel = w.channel
WHERE w.channel IS NOT NULL ORDER BY w.step

-- === sending =====================================================================================

-- name: insert(lane, now, state, version, channel, rank, due_at, max_attempts, lease_us, json, expires_at, key, type, headers, body)
-- Also made into statements of many rows at load; the first two parameters are shared by all.
INSERT INTO fairlead_message (lane, created_at, state, version, channel, rank, due_at,
    max_attempts, lease_us, json, expires_at, key, type, headers, body)
VALUES (:lane, :now, :state, :version, :channel, :rank, :due_at,
    :max_attempts, :lease_us, :json, :expires_at, :key, :type, :headers, :body)
RETURNING id

-- name: holders(lane, keys)
-- Who has these keys.
SELECT m.key, m.id, m.state FROM json_each(:keys) k
CROSS JOIN fairlead_message m ON m.lane = :lane AND m.key = k.value

-- name: free_keys(ids)
-- The dead give their keys away.
UPDATE fairlead_message SET key = NULL WHERE id IN (SELECT value FROM json_each(:ids))

-- name: replace(id, now, state, version, channel, rank, due_at, max_attempts, lease_us, json, expires_at, type, headers, body)
-- A waiting or done message becomes the new one in place; re-armed from done it is born anew.
UPDATE fairlead_message SET
    created_at = CASE state WHEN 'd' THEN :now ELSE created_at END,
    state = :state, version = :version, channel = :channel, rank = :rank, due_at = :due_at,
    max_attempts = :max_attempts, lease_us = :lease_us, json = :json, expires_at = :expires_at,
    type = :type, headers = :headers, body = :body,
    attempts = 0, recovered = 0, begun = 0,
    memo = NULL, error = NULL, result = NULL, finished_at = NULL
WHERE id = :id

-- === sweeping ====================================================================================

-- name: expire(lane, now, limit)
DELETE FROM fairlead_message WHERE id IN (
    SELECT id FROM fairlead_message WHERE lane = :lane AND expires_at <= :now
    ORDER BY expires_at LIMIT :limit)
RETURNING deliveries = 0

-- name: lapsed(lane, now, queue_attempts, limit)
-- Leases past their deadline, the earliest first, with what decides their fate.
SELECT m.id, m.attempts, coalesce(m.max_attempts, :queue_attempts), m.permit_id, p.expires_at
FROM fairlead_message m LEFT JOIN fairlead_permit p ON p.id = m.permit_id
WHERE m.lane = :lane AND m.state = 'l' AND m.lease_until <= :now
ORDER BY m.lease_until LIMIT :limit

-- name: live_on(ids)
-- The permit is alive: its heartbeat is the lease's.
UPDATE fairlead_message SET
    lease_until = (SELECT p.expires_at FROM fairlead_permit p WHERE p.id = permit_id)
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: recover(ids)
UPDATE fairlead_message SET state = 'r', recovered = 1, lease_until = NULL, permit_id = NULL
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: end_permits(ids, now)
-- An expired permit whose leases were taken back must not be revived by a late heartbeat.
DELETE FROM fairlead_permit
WHERE id IN (SELECT value FROM json_each(:ids)) AND expires_at <= :now

-- name: promote(lane, now, limit)
UPDATE fairlead_message SET state = 'r' WHERE id IN (
    SELECT id FROM fairlead_message WHERE lane = :lane AND state = 's' AND due_at <= :now
    ORDER BY due_at, id LIMIT :limit)

-- name: changes()
-- How many rows the statement before this one changed.
SELECT changes()

-- === receiving ===================================================================================

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
-- the runs given out under the ordered policy, so sorting them is cheap.
SELECT id, version, type, rank, expires_at FROM fairlead_message
WHERE lane = :lane AND channel = :channel AND begun = 1 AND state = 'r'
ORDER BY rank, due_at, id

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
    lease_until = :now + coalesce(:lease_us, lease_us, :queue_lease_us), permit_id = :permit
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

-- === the verbs ===================================================================================

-- name: ack(ids, lane, delivery)
-- By primary key, and only where the lease is the message's latest: the plus signs keep SQLite from
-- walking over all leases of the queue instead. Leases of one delivery number at a time: a batch has
-- one or two, and this is a fifth faster than comparing pairs.
DELETE FROM fairlead_message
WHERE id IN (SELECT value FROM json_each(:ids))
  AND deliveries = :delivery AND +lane = :lane AND +state = 'l'
RETURNING id

-- name: valid_leases(leases, lane, queue_attempts)
-- Of [id, delivery] pairs those that hold, with what the verbs need to know.
SELECT id, deliveries, attempts, coalesce(max_attempts, :queue_attempts)
FROM fairlead_message
WHERE (id, deliveries) IN (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:leases))
  AND +lane = :lane AND +state = 'l'

-- name: delete(ids)
DELETE FROM fairlead_message WHERE id IN (SELECT value FROM json_each(:ids))

-- name: keep(ids, now)
-- An ack where the queue keeps finished messages.
UPDATE fairlead_message SET state = 'd', finished_at = :now, result = NULL, begun = 0,
    recovered = 0, permit_id = NULL, lease_until = NULL, json = json & 3
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: complete(ids, now, result, result_json)
UPDATE fairlead_message SET state = 'd', finished_at = :now, result = :result, attempts = 0,
    error = NULL, begun = 0, recovered = 0, permit_id = NULL, lease_until = NULL,
    json = json & 3 | :result_json
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: defer(ids, state, due_at)
UPDATE fairlead_message SET state = :state, due_at = :due_at, attempts = 0, recovered = 0,
    permit_id = NULL, lease_until = NULL
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: set_memo(ids, memo, memo_json)
UPDATE fairlead_message SET memo = :memo, json = json & 5 | :memo_json
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: log_failures(failed, queue_id, now, error, details, reference)
-- [id, fatal] pairs, in their order. Before the verb itself, while the row still has its key and its
-- attempts.
INSERT INTO fairlead_failure
    (queue_id, message_id, key, attempt, at, error, details, reference, fatal)
SELECT :queue_id, m.id, m.key, m.attempts, :now, :error, :details, :reference,
    json_extract(f.value, '$[1]')
FROM json_each(:failed) f CROSS JOIN fairlead_message m ON m.id = json_extract(f.value, '$[0]')

-- name: retry(ids, state, due_at, error)
UPDATE fairlead_message SET state = :state, due_at = :due_at, error = :error, recovered = 0,
    permit_id = NULL, lease_until = NULL
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: bury(ids, now, error, keep_recovered)
UPDATE fairlead_message SET state = 'x', finished_at = :now, error = :error, begun = 0,
    recovered = recovered * :keep_recovered, permit_id = NULL, lease_until = NULL
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: dead_letter(ids, now, error, keep_recovered, origin, lane, expires_at)
-- Death where the queue has a dead-letter queue: the message starts anew there, without its key.
UPDATE fairlead_message SET lane = :lane, state = 'r', due_at = :now, attempts = 0, key = NULL,
    expires_at = :expires_at, error = :error, begun = 0, recovered = recovered * :keep_recovered,
    permit_id = NULL, lease_until = NULL, finished_at = NULL, origin = :origin
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: extend(ids, now, lease_us, queue_lease_us)
UPDATE fairlead_message SET
    lease_until = max(lease_until, :now + coalesce(:lease_us, lease_us, :queue_lease_us))
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING id, lease_until

-- name: release(ids)
UPDATE fairlead_message SET state = 'r', attempts = max(attempts - 1, 0),
    permit_id = NULL, lease_until = NULL
WHERE id IN (SELECT value FROM json_each(:ids))

-- === waiting and finished messages ===============================================================

-- name: state_by_id(id, lane)
SELECT id, state, due_at FROM fairlead_message WHERE id = :id AND lane = :lane

-- name: state_by_key(key, lane)
SELECT id, state, due_at FROM fairlead_message WHERE lane = :lane AND key = :key

-- name: reschedule(id, state, due_at, rank)
UPDATE fairlead_message SET state = :state, due_at = :due_at, rank = coalesce(:rank, rank)
WHERE id = :id

-- name: oldest_dead(lane, limit)
SELECT id FROM fairlead_message WHERE lane = :lane AND state = 'x'
ORDER BY finished_at, id LIMIT :limit

-- name: oldest_done(lane, limit)
SELECT id FROM fairlead_message WHERE lane = :lane AND state = 'd'
ORDER BY finished_at, id LIMIT :limit

-- name: redrive(ids, state, due_at)
UPDATE fairlead_message SET state = :state, due_at = :due_at, attempts = 0, begun = 0,
    finished_at = NULL
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: redrive_to(ids, state, due_at, lane)
UPDATE fairlead_message SET state = :state, due_at = :due_at, attempts = 0, begun = 0,
    finished_at = NULL, key = NULL, lane = :lane
WHERE id IN (SELECT value FROM json_each(:ids))

-- === permits =====================================================================================

-- name: create_permit(name, ttl_us, now)
INSERT INTO fairlead_permit (name, created_at, expires_at)
SELECT :name, t.now, t.now + :ttl_us FROM (SELECT coalesce(:now, fairlead_now()) AS now) t
RETURNING id

-- name: live_permit(id, now)
SELECT 1 FROM fairlead_permit WHERE id = :id AND expires_at > :now

-- name: extend_permit(id, ttl_us, now)
UPDATE fairlead_permit SET expires_at = :now + :ttl_us
WHERE id = :id AND expires_at > :now RETURNING 1

-- name: close_permit(id)
DELETE FROM fairlead_permit WHERE id = :id

-- name: permits(now)
SELECT p.id, p.name, p.created_at, p.expires_at, coalesce(l.leases, 0)
FROM fairlead_permit p LEFT JOIN (
    SELECT m.permit_id, count(*) AS leases
      FROM fairlead_queue q CROSS JOIN fairlead_message m ON m.lane = q.lane AND m.state = 'l'
     WHERE m.permit_id IS NOT NULL GROUP BY m.permit_id) l ON l.permit_id = p.id
WHERE p.expires_at > :now ORDER BY p.id

-- === insight =====================================================================================

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

-- === care ========================================================================================

-- name: forget_done(lane, before, limit)
DELETE FROM fairlead_message WHERE id IN (
    SELECT id FROM fairlead_message WHERE lane = :lane AND state = 'd' AND finished_at <= :before
    ORDER BY finished_at LIMIT :limit)

-- name: forget_dead(lane, before, limit)
DELETE FROM fairlead_message WHERE id IN (
    SELECT id FROM fairlead_message WHERE lane = :lane AND state = 'x' AND finished_at <= :before
    ORDER BY finished_at LIMIT :limit)

-- name: forget_failures(queue_id, before, limit)
DELETE FROM fairlead_failure WHERE id IN (
    SELECT id FROM fairlead_failure WHERE queue_id = :queue_id AND at <= :before
    ORDER BY at LIMIT :limit)

-- name: idle_gates(queue_id, now, limit)
DELETE FROM fairlead_gate WHERE queue_id = :queue_id AND channel IN (
    SELECT channel FROM fairlead_gate WHERE queue_id = :queue_id AND tat <= :now LIMIT :limit)

-- name: idle_permits(now, limit)
-- Expired, and nobody leases with them; those with leases are ended by the sweep that recovers them.
DELETE FROM fairlead_permit WHERE id IN (
    SELECT p.id FROM fairlead_permit p
     WHERE p.expires_at <= :now AND p.id NOT IN (
        SELECT m.permit_id
          FROM fairlead_queue q CROSS JOIN fairlead_message m ON m.lane = q.lane AND m.state = 'l'
         WHERE m.permit_id IS NOT NULL)
     LIMIT :limit)

-- name: retired_lanes()
SELECT id FROM fairlead_lane WHERE retired_at IS NOT NULL ORDER BY id

-- name: sweep_lane(lane, limit)
-- One state after the other, each through its own index: no index holds every row of a lane.
DELETE FROM fairlead_message WHERE id IN (
    SELECT id FROM (
        SELECT id FROM fairlead_message WHERE lane = :lane AND state = 'r'
        UNION ALL
        SELECT id FROM fairlead_message
         WHERE lane = :lane AND (state = 'l' OR state = 's' OR state = 'h')
        UNION ALL
        SELECT id FROM fairlead_message WHERE lane = :lane AND (state = 'd' OR state = 'x'))
    LIMIT :limit)

-- name: drop_lane(lane)
DELETE FROM fairlead_lane WHERE id = :lane

-- name: fold_history(queue_id, before)
-- Old minutes become part of the row of minute -1.
INSERT INTO fairlead_history (queue_id, minute, {counters})
SELECT :queue_id, -1, {sum_counters} FROM fairlead_history
WHERE queue_id = :queue_id AND minute >= 0 AND minute < :before HAVING count(*) > 0
ON CONFLICT (queue_id, minute) DO UPDATE SET {add_counters}

-- name: drop_folded(queue_id, before)
DELETE FROM fairlead_history WHERE queue_id = :queue_id AND minute >= 0 AND minute < :before
