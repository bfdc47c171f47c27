-- Policies and channels.

-- name: set_policy(queue_id, channel, {policy})
INSERT INTO fairturn_policy (queue_id, channel, {policy})
VALUES (:queue_id, :channel, {policy_values})
ON CONFLICT (queue_id, channel) DO UPDATE SET ({policy}) = ({policy_values})

-- name: get_policy(queue_id, channel)
SELECT {policy} FROM fairturn_policy WHERE queue_id = :queue_id AND channel = :channel

-- name: clear_policy(queue_id, channel)
DELETE FROM fairturn_policy WHERE queue_id = :queue_id AND channel = :channel RETURNING 1

-- name: sizes(queue_id, channels)
-- The max_size of these channels, if they have a policy of their own.
SELECT p.channel, p.max_size FROM json_each(:channels) c
CROSS JOIN fairturn_policy p ON p.queue_id = :queue_id AND p.channel = c.value

-- name: unfinished(lane, channel, limit)
-- The number of a channel's unfinished messages, counted no further than its max_size.
WITH RECURSIVE {ready_versions}
SELECT count(*) FROM (
    SELECT 1 FROM fairturn_message
     WHERE lane = :lane AND channel = :channel AND (state = 'l' OR state = 's' OR state = 'h')
    UNION ALL
    SELECT 1 FROM versions v CROSS JOIN fairturn_message m
        ON m.lane = :lane AND m.version = v.version AND m.channel = :channel AND m.state = 'r'
    LIMIT :limit
)

-- name: channels(queue_id, lane, limit)
-- Each step finds the next channel: the least of the next one with a policy, the next one with a leased,
-- scheduled or held message, and, for each version, the next one with a ready message. No name contains a
-- NUL, so name || char(0) is the least string after the name.
WITH RECURSIVE {ready_versions}, walk (channel, step) AS (
    SELECT NULL, 0
    UNION ALL
    SELECT (SELECT min(channel) FROM (
        SELECT (SELECT p.channel FROM fairturn_policy p
                 WHERE p.queue_id = :queue_id
                   AND p.channel >= coalesce(w.channel || char(0), '')
                 ORDER BY p.channel LIMIT 1) AS channel
        UNION ALL
        SELECT (SELECT m.channel FROM fairturn_message m
                 WHERE m.lane = :lane AND (m.state = 'l' OR m.state = 's' OR m.state = 'h')
                   AND m.channel >= coalesce(w.channel || char(0), '')
                 ORDER BY m.channel LIMIT 1)
        UNION ALL
        SELECT (SELECT m.channel FROM fairturn_message m
                 WHERE m.lane = :lane AND m.version = v.version AND m.state = 'r'
                   AND m.channel >= coalesce(w.channel || char(0), '')
                 ORDER BY m.channel LIMIT 1)
          FROM versions v
    )), w.step + 1
    FROM walk w WHERE (w.step = 0 OR w.channel IS NOT NULL) AND w.step < :limit
)
SELECT w.channel,
    (SELECT count(*) FROM versions v CROSS JOIN fairturn_message m
        ON m.lane = :lane AND m.version = v.version AND m.channel = w.channel AND m.state = 'r'),
    (SELECT count(*) FROM fairturn_message m
      WHERE m.lane = :lane AND m.channel = w.channel AND m.state = 's'),
    (SELECT count(*) FROM fairturn_message m
      WHERE m.lane = :lane AND m.channel = w.channel AND m.state = 'l'),
    {own_policy}
FROM walk w
LEFT JOIN fairturn_policy p ON p.queue_id = :queue_id AND p.channel = w.channel
WHERE w.channel IS NOT NULL ORDER BY w.step
