-- Events (docs/semantics.md §15). One statement per call for any number of messages. The event of a
-- deletion is written before it, while the row still has its key and its channel.

-- name: tell(ids, now, kind, queue, data)
INSERT INTO fairturn_event (at, kind, queue, message_id, key, channel, data)
SELECT :now, :kind, :queue, m.id, m.key, m.channel, :data
FROM json_each(:ids) i CROSS JOIN fairturn_message m ON m.id = i.value

-- name: tell_due(ids, now, kind, queue)
-- For messages that wait now: with the time until they are due.
INSERT INTO fairturn_event (at, kind, queue, message_id, key, channel, delay_us)
SELECT :now, :kind, :queue, m.id, m.key, m.channel, max(m.due_at - :now, 0)
FROM json_each(:ids) i CROSS JOIN fairturn_message m ON m.id = i.value

-- name: tell_leased(ids, now, queue)
INSERT INTO fairturn_event (at, kind, queue, message_id, key, channel, data)
SELECT :now, 'leased', :queue, m.id, m.key, m.channel,
    CAST(json_object('attempts', m.attempts, 'deliveries', m.deliveries) AS BLOB)
FROM json_each(:ids) i CROSS JOIN fairturn_message m ON m.id = i.value

-- name: tell_progress(ids, now, queue)
INSERT INTO fairturn_event (at, kind, queue, message_id, key, channel, data)
SELECT :now, 'progress', :queue, m.id, m.key, m.channel,
    CAST(json_object('progress', m.progress / 1000000.0, 'note', m.note) AS BLOB)
FROM json_each(:ids) i CROSS JOIN fairturn_message m ON m.id = i.value

-- name: tell_closed(now, queue, data)
INSERT INTO fairturn_event (at, kind, queue, data) VALUES (:now, 'closed', :queue, :data)

-- name: last_event(after)
-- If there is a newer one. A cursor is the event's id and time.
SELECT id, id || '-' || at FROM fairturn_event WHERE id > :after ORDER BY id DESC LIMIT 1

-- name: event_gone(id, at)
-- A row if the event of a cursor is gone although older ones are kept, or if another event has its id: an old
-- copy of the file was restored.
SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM fairturn_event WHERE id = :id AND at = :at)
  AND EXISTS (SELECT 1 FROM fairturn_event WHERE id <= :id)

-- name: events(after, last, queue, kinds, limit)
SELECT id || '-' || at, at, kind, queue, message_id, key, channel, delay_us, data
FROM fairturn_event
WHERE id > :after AND id <= :last AND (:queue IS NULL OR queue = :queue)
  AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))
ORDER BY id LIMIT :limit
