-- What the library sends besides CALLs: migrating, the batched send (sending.py), and schedules.

-- name: lock_migrations(name)
SELECT GET_LOCK(SHA1(CONCAT(DATABASE(), ' ', :name)), 300)

-- name: unlock_migrations(name)
SELECT RELEASE_LOCK(SHA1(CONCAT(DATABASE(), ' ', :name)))

-- name: sql_mode()
SELECT @@session.sql_mode

-- name: set_sql_mode(mode)
SET SESSION sql_mode = :mode

-- name: has_migrations(name)
SELECT COUNT(*) FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :name

-- name: applied()
SELECT version, oldest_client FROM fairlead_migration ORDER BY version

-- name: clock()
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))

-- name: insert()
-- The rows are put behind it. One INSERT of n rows gets n consecutive ids.
INSERT INTO fairlead_message (lane, state, version, channel, `rank`, due_at, wake_at, json, created_at,
    expires_at, lease_us, max_attempts, `key`, type, headers, body)
VALUES

-- name: insert_keyed()
-- The same of rows with keys: one that somebody else has sent meanwhile makes no row and no error.
INSERT IGNORE INTO fairlead_message (lane, state, version, channel, `rank`, due_at, wake_at, json,
    created_at, expires_at, lease_us, max_attempts, `key`, type, headers, body)
VALUES

-- name: insert_grouped()
-- The same where some of the rows have a group.
INSERT INTO fairlead_message (lane, state, version, channel, `rank`, due_at, wake_at, json, created_at,
    expires_at, lease_us, max_attempts, `key`, type, headers, body, group_id)
VALUES

-- name: insert_keyed_grouped()
INSERT IGNORE INTO fairlead_message (lane, state, version, channel, `rank`, due_at, wake_at, json,
    created_at, expires_at, lease_us, max_attempts, `key`, type, headers, body, group_id)
VALUES

-- name: no_id()
-- An INSERT that makes no row leaves the last id as it was.
SELECT LAST_INSERT_ID(0)

-- name: replace()
-- The rows, which begin with an id that exists, are put behind it, then `replacing`.
INSERT INTO fairlead_message (id, lane, state, version, channel, `rank`, due_at, wake_at, json,
    created_at, expires_at, lease_us, max_attempts, `key`, type, headers, body, group_id)
VALUES

-- name: replacing()
-- The state comes last: created_at needs the old one.
ON DUPLICATE KEY UPDATE version = VALUES(version), channel = VALUES(channel), `rank` = VALUES(`rank`),
    due_at = VALUES(due_at), wake_at = VALUES(wake_at), json = VALUES(json),
    created_at = IF(state = 'd', VALUES(created_at), created_at), expires_at = VALUES(expires_at),
    lease_us = VALUES(lease_us), max_attempts = VALUES(max_attempts), type = VALUES(type),
    headers = VALUES(headers), body = VALUES(body), group_id = VALUES(group_id), progress = NULL,
    note = NULL, attempts = 0, memo = NULL, error = NULL,
    result = NULL, recovered = 0, begun = 0, first_at = 0, state = VALUES(state)

-- name: first_id()
SELECT LAST_INSERT_ID()

-- name: holders()
-- (id, key, state) of those who hold some keys; the list is put behind it.
SELECT id, `key`, state FROM fairlead_message FORCE INDEX (`key`) WHERE `key` IN

-- name: holders_lane()
AND lane =

-- name: lock_holders()
SELECT id, `key`, state, created_at, group_id FROM fairlead_message FORCE INDEX (PRIMARY) WHERE id IN

-- name: for_update()
ORDER BY id FOR UPDATE

-- name: free_keys()
UPDATE fairlead_message FORCE INDEX (PRIMARY) SET `key` = NULL WHERE state = 'x' AND id IN

-- name: claim_keys(pairs)
-- [[id, "key in hex"], …], in the order of the keys. One that somebody else has stays theirs.
UPDATE IGNORE JSON_TABLE(:pairs, '$[*]' COLUMNS (id BIGINT PATH '$[0]', name VARCHAR(510) PATH '$[1]')) j
STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id SET m.`key` = UNHEX(j.name)

-- name: savepoint()
SAVEPOINT fairlead_send

-- name: take_back()
ROLLBACK TO SAVEPOINT fairlead_send

-- name: count_sent(queue_id, minute, sent)
INSERT INTO fairlead_tally (queue_id, minute, sent) VALUES (:queue_id, :minute, :sent)

-- fragment: schedule
name, revision, queue, spec, missed, overlap, owner, paused, next_at, look_at, last_at, error,
created_at, updated_at, json, body, options

-- name: schedule(name)
SELECT {schedule} FROM fairlead_schedule WHERE name = :name

-- name: lock_schedule(name)
SELECT {schedule} FROM fairlead_schedule WHERE name = :name FOR UPDATE

-- name: schedules()
SELECT {schedule} FROM fairlead_schedule ORDER BY name

-- name: add_schedule(name, revision, queue, spec, missed, overlap, owner, paused, next_at, look_at, last_at, error, created_at, updated_at, json, body, options)
-- One that is there is locked: INSERT IGNORE would only share its lock, and two who then want to change
-- it would wait for each other. Its revision tells the two cases apart in every kind of session.
INSERT INTO fairlead_schedule ({schedule})
VALUES (:name, :revision, :queue, :spec, :missed, :overlap, :owner, :paused, :next_at, :look_at, :last_at,
    :error, :created_at, :updated_at, :json, :body, :options)
ON DUPLICATE KEY UPDATE fairlead_schedule.revision = fairlead_schedule.revision + 1

-- name: row_count()
-- Of the statement before: 1 inserted, updated or deleted; 2 found where an INSERT met a duplicate.
SELECT ROW_COUNT()

-- name: change_schedule(queue, spec, missed, overlap, owner, paused, next_at, look_at, last_at, error, updated_at, json, body, options, name)
UPDATE fairlead_schedule SET revision = revision + 1, queue = :queue, spec = :spec, missed = :missed,
    overlap = :overlap, owner = :owner, paused = :paused, next_at = :next_at, look_at = :look_at,
    last_at = :last_at, error = :error, updated_at = :updated_at, json = :json, body = :body,
    options = :options
WHERE name = :name

-- name: remove_schedule(name)
DELETE FROM fairlead_schedule WHERE name = :name

-- name: claim_schedule(next_at, look_at, name, revision)
UPDATE fairlead_schedule SET revision = revision + 1, next_at = :next_at, look_at = :look_at, error = NULL
WHERE name = :name AND revision = :revision AND paused = 0

-- name: schedule_sent(tick, name)
UPDATE fairlead_schedule SET last_at = :tick WHERE name = :name

-- name: schedule_failed(error, look_at, name, revision)
UPDATE fairlead_schedule SET revision = revision + 1, error = :error, look_at = :look_at
WHERE name = :name AND revision = :revision AND paused = 0
