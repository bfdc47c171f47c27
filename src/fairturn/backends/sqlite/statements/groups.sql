-- Groups (docs/semantics.md §12).

-- fragment: unfinished_member
-- Written so that SQLite uses the index of the unfinished members.
group_id = :id AND state <> 'd' AND state <> 'x'

-- fragment: group
id, name, queue, on_dead, started_at, end_id, end_delay_us, abort_id, abort_delay_us, sent, done,
dead

-- fragment: group_row
g.name, g.queue, coalesce(g.outcome, CASE WHEN g.started_at IS NULL THEN 'o' ELSE 'r' END),
g.created_at, g.started_at, g.closed_at, g.sent, g.done, g.dead,
(SELECT count(*) FROM fairturn_message m
  WHERE m.group_id = g.id AND m.state <> 'd' AND m.state <> 'x' AND m.state = 'h'),
(SELECT count(*) FROM fairturn_message m
  WHERE m.group_id = g.id AND m.state <> 'd' AND m.state <> 'x' AND m.state IN ('s', 'r')),
(SELECT count(*) FROM fairturn_message m
  WHERE m.group_id = g.id AND m.state <> 'd' AND m.state <> 'x' AND m.state = 'l')

-- === opening and joining =========================================================================

-- name: open_groups(names)
SELECT g.name, g.id, g.started_at FROM json_each(:names) n
CROSS JOIN fairturn_group g ON g.name = n.value AND g.closed_at IS NULL

-- name: new_group(name, queue, on_dead, now, end_id, end_delay_us, abort_id, abort_delay_us)
INSERT INTO fairturn_group
    (name, queue, on_dead, created_at, end_id, end_delay_us, abort_id, abort_delay_us)
VALUES (:name, :queue, :on_dead, :now, :end_id, :end_delay_us, :abort_id, :abort_delay_us)
RETURNING id

-- name: join_groups(joined)
-- Pairs [group, number]: how many members were sent or replaced.
UPDATE fairturn_group SET sent = sent + j.number
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS number
        FROM json_each(:joined)) j
WHERE fairturn_group.id = j.id

-- name: start_group(name, now)
-- Returns a row if the group is open and was not started.
UPDATE fairturn_group SET started_at = :now
WHERE name = :name AND closed_at IS NULL AND started_at IS NULL
RETURNING id

-- name: start_members(id, now)
UPDATE fairturn_message SET state = CASE WHEN due_at <= :now THEN 'r' ELSE 's' END
WHERE {unfinished_member} AND state = 'h'

-- === closing =====================================================================================

-- name: end_members(ended)
-- Triples [group, done, dead]: how many members ended. Returns each group, whether it is open, and
-- whether it is complete: one probe of the index of the unfinished members.
UPDATE fairturn_group SET done = done + e.finished, dead = dead + e.died
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS finished,
             json_extract(value, '$[2]') AS died
        FROM json_each(:ended)) e
WHERE fairturn_group.id = e.id
RETURNING {group}, closed_at IS NULL, started_at IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM fairturn_message m
     WHERE m.group_id = fairturn_group.id AND m.state <> 'd' AND m.state <> 'x')

-- name: open_group(name)
SELECT {group} FROM fairturn_group WHERE name = :name AND closed_at IS NULL

-- name: tell_members(id, now)
-- The events of delete_members, in the queues that have events.
INSERT INTO fairturn_event (at, kind, queue, message_id, key, channel)
SELECT :now, 'deleted', q.name, m.id, m.key, m.channel
FROM fairturn_message m CROSS JOIN fairturn_queue q ON q.lane = m.lane AND q.events = 1
WHERE m.group_id = :id AND m.state <> 'd' AND m.state <> 'x'

-- name: count_members(id)
-- How many members each queue loses by a cancel. Purged and dropped queues are not counted.
SELECT q.id, count(*) FROM fairturn_message m CROSS JOIN fairturn_queue q ON q.lane = m.lane
WHERE m.group_id = :id AND m.state <> 'd' AND m.state <> 'x'
GROUP BY q.id

-- name: delete_members(id)
DELETE FROM fairturn_message
WHERE {unfinished_member} AND +lane IN (SELECT q.lane FROM fairturn_queue q)

-- name: leave_group(id)
-- The remaining members are in the lanes of purged and dropped queues. Maintenance deletes them.
UPDATE fairturn_message SET group_id = NULL WHERE {unfinished_member}

-- name: close_group(id, outcome, now)
UPDATE fairturn_group SET closed_at = :now, outcome = :outcome WHERE id = :id

-- name: release_work(id, lane, now, delay_us, expires_at, entry)
-- An end or abort message that is still held becomes an ordinary message. The entry is added before the
-- closing brace of its headers, so that nothing else in them changes.
UPDATE fairturn_message SET
    state = CASE WHEN coalesce(:now + :delay_us, due_at) <= :now THEN 'r' ELSE 's' END,
    due_at = coalesce(:now + :delay_us, due_at), created_at = :now, expires_at = :expires_at,
    headers = CAST(CASE WHEN length(headers) > 2
        THEN substr(CAST(headers AS TEXT), 1, length(CAST(headers AS TEXT)) - 1) || ','
        ELSE '{' END || :entry || '}' AS BLOB)
WHERE id = :id AND lane = :lane AND state = 'h' AND group_id IS NULL
RETURNING id

-- name: delete_work(id, lane)
DELETE FROM fairturn_message WHERE id = :id AND lane = :lane AND state = 'h' AND group_id IS NULL

-- === reading =====================================================================================

-- name: group_status(name)
SELECT {group_row} FROM fairturn_group g WHERE g.name = :name AND g.closed_at IS NULL

-- name: closed_status(name)
-- The group of this name that closed last.
SELECT {group_row} FROM fairturn_group g
WHERE g.name = :name AND g.closed_at IS NOT NULL ORDER BY g.closed_at DESC, g.id DESC LIMIT 1

-- name: groups(limit)
SELECT {group_row} FROM fairturn_group g WHERE g.closed_at IS NULL ORDER BY g.name LIMIT :limit
