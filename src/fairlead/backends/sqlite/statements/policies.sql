-- Policies and channels.

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
