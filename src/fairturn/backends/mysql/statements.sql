-- The library's statements besides CALL: migrations, the batched send (sends.py), and schedules.

-- name: lock_migrations(name)
SELECT GET_LOCK(SHA1(CONCAT(DATABASE(), ' ', :name)), 300)

-- name: unlock_migrations(name)
SELECT RELEASE_LOCK(SHA1(CONCAT(DATABASE(), ' ', :name)))

-- name: sql_mode()
SELECT @@session.sql_mode

-- name: set_sql_mode(mode)
SET SESSION sql_mode = :mode

-- name: has_schema(name)
SELECT COUNT(*) FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = :name

-- name: installed(prefix, same_prefix)
-- The state of the migrations, and the names of the procedures that exist: one in each row.
SELECT COALESCE((SELECT MAX(version) FROM fairturn_migration), 0), COALESCE(i.generation, 0),
    COALESCE(i.oldest_client, 0), COALESCE(i.routines, X''), r.ROUTINE_NAME
FROM (SELECT 1) one LEFT JOIN fairturn_installed i ON TRUE
LEFT JOIN information_schema.ROUTINES r ON r.ROUTINE_SCHEMA = DATABASE()
    AND r.ROUTINE_TYPE = 'PROCEDURE' AND LEFT(r.ROUTINE_NAME, CHAR_LENGTH(:prefix)) = :same_prefix

-- name: routines()
SELECT name, hash, retired FROM fairturn_routine

-- name: retire_routine(name)
UPDATE fairturn_routine SET retired = 1 WHERE name = :name

-- name: forget_routine(name)
DELETE FROM fairturn_routine WHERE name = :name

-- name: clock()
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))

-- fragment: message
lane, state, version, channel, `rank`, due_at, wake_at, json, created_at, expires_at, lease_us,
max_attempts, `key`, type, headers, body

-- name: insert()
-- The rows follow. One INSERT of n rows gets n consecutive ids.
INSERT INTO fairturn_message ({message}) VALUES

-- name: insert_keyed()
-- The same for rows with keys. If another session has sent a key meanwhile, there is no row and no error.
INSERT IGNORE INTO fairturn_message ({message}) VALUES

-- name: insert_grouped()
-- The same if some of the rows have a group.
INSERT INTO fairturn_message ({message}, group_id) VALUES

-- name: insert_keyed_grouped()
INSERT IGNORE INTO fairturn_message ({message}, group_id) VALUES

-- name: no_id()
-- Before an INSERT IGNORE: if it makes no row, the last id stays 0.
SELECT LAST_INSERT_ID(0)

-- name: replace()
-- The rows follow, each with the id of an existing message first, then `replacing`.
INSERT INTO fairturn_message (id, {message}, group_id) VALUES

-- name: replacing()
-- The state is set last, because created_at needs the old state.
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
-- The messages that have some keys. The list of keys follows.
SELECT id, `key`, state FROM fairturn_message FORCE INDEX (`key`) WHERE `key` IN

-- name: holders_lane()
AND key_lane =

-- name: lock_holders()
SELECT id, `key`, state, created_at, group_id FROM fairturn_message FORCE INDEX (PRIMARY) WHERE id IN

-- name: for_update()
ORDER BY id FOR UPDATE

-- name: free_keys()
UPDATE fairturn_message FORCE INDEX (PRIMARY) SET `key` = NULL WHERE state = 'x' AND id IN

-- name: claim_keys(pairs)
-- [[id, "key in hex"], …], in the order of the keys. IGNORE: a key that another message has is not taken.
UPDATE IGNORE JSON_TABLE(:pairs, '$[*]' COLUMNS (id BIGINT PATH '$[0]', name VARCHAR(510) PATH '$[1]')) j
STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id SET m.`key` = UNHEX(j.name)

-- name: savepoint()
SAVEPOINT fairturn_send

-- name: take_back()
ROLLBACK TO SAVEPOINT fairturn_send

-- name: count_sent(queue_id, minute, sent)
INSERT INTO fairturn_tally (queue_id, minute, sent) VALUES (:queue_id, :minute, :sent)

-- fragment: schedule
name, revision, queue, spec, missed, overlap, owner, paused, next_at, look_at, last_at, error,
created_at, updated_at, json, body, options

-- name: schedule(name)
SELECT {schedule} FROM fairturn_schedule WHERE name = :name

-- name: lock_schedule(name)
SELECT {schedule} FROM fairturn_schedule WHERE name = :name FOR UPDATE

-- name: schedules()
SELECT {schedule} FROM fairturn_schedule ORDER BY name

-- name: add_schedule({schedule})
-- An existing schedule is locked by the UPDATE. INSERT IGNORE would lock it in share mode, and two sessions
-- that then change it would deadlock. The changed revision makes ROW_COUNT() 2 with every client flag.
INSERT INTO fairturn_schedule ({schedule})
VALUES (:name, :revision, :queue, :spec, :missed, :overlap, :owner, :paused, :next_at, :look_at, :last_at,
    :error, :created_at, :updated_at, :json, :body, :options)
ON DUPLICATE KEY UPDATE fairturn_schedule.revision = fairturn_schedule.revision + 1

-- name: row_count()
-- Of the statement before: 1 inserted, updated or deleted; 2 an INSERT found an existing row and updated it.
SELECT ROW_COUNT()

-- name: change_schedule(queue, spec, missed, overlap, owner, paused, next_at, look_at, last_at, error, updated_at, json, body, options, name)
UPDATE fairturn_schedule SET revision = revision + 1, queue = :queue, spec = :spec, missed = :missed,
    overlap = :overlap, owner = :owner, paused = :paused, next_at = :next_at, look_at = :look_at,
    last_at = :last_at, error = :error, updated_at = :updated_at, json = :json, body = :body,
    options = :options
WHERE name = :name

-- name: remove_schedule(name)
DELETE FROM fairturn_schedule WHERE name = :name

-- name: claim_schedule(next_at, look_at, name, revision)
UPDATE fairturn_schedule SET revision = revision + 1, next_at = :next_at, look_at = :look_at, error = NULL
WHERE name = :name AND revision = :revision AND paused = 0

-- name: schedule_sent(tick, name)
UPDATE fairturn_schedule SET last_at = :tick WHERE name = :name

-- name: schedule_failed(error, look_at, name, revision)
UPDATE fairturn_schedule SET revision = revision + 1, error = :error, look_at = :look_at
WHERE name = :name AND revision = :revision AND paused = 0
