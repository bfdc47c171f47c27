-- Schedules (docs/semantics.md §18).

-- fragment: schedule
name, revision, queue, spec, missed, overlap, owner, paused, next_at, look_at, last_at, error,
created_at, updated_at, json, body, options

-- name: schedule(name)
SELECT {schedule} FROM fairturn_schedule WHERE name = :name

-- name: schedules()
SELECT {schedule} FROM fairturn_schedule ORDER BY name

-- name: schedules_due(now, after_at, after_name, limit)
SELECT {schedule} FROM fairturn_schedule
WHERE look_at <= :now AND (look_at, name) > (:after_at, :after_name)
ORDER BY look_at, name LIMIT :limit

-- name: next_look(now)
SELECT min(look_at) FROM fairturn_schedule WHERE look_at > :now

-- name: add_schedule({schedule})
INSERT INTO fairturn_schedule ({schedule})
VALUES (:name, :revision, :queue, :spec, :missed, :overlap, :owner, :paused, :next_at, :look_at,
    :last_at, :error, :created_at, :updated_at, :json, :body, :options)
ON CONFLICT (name) DO NOTHING RETURNING revision

-- name: change_schedule(name, queue, spec, missed, overlap, owner, paused, next_at, look_at, last_at, error, updated_at, json, body, options)
UPDATE fairturn_schedule SET revision = revision + 1, queue = :queue, spec = :spec,
    missed = :missed, overlap = :overlap, owner = :owner, paused = :paused, next_at = :next_at,
    look_at = :look_at, last_at = :last_at, error = :error, updated_at = :updated_at, json = :json,
    body = :body, options = :options
WHERE name = :name

-- name: remove_schedule(name)
DELETE FROM fairturn_schedule WHERE name = :name RETURNING revision

-- name: claim_schedule(name, revision, next_at)
-- Returns a row if this caller handles the due time.
UPDATE fairturn_schedule
SET revision = revision + 1, next_at = :next_at, look_at = :next_at, error = NULL
WHERE name = :name AND revision = :revision AND paused = 0 RETURNING revision

-- name: schedule_sent(name, tick)
UPDATE fairturn_schedule SET last_at = :tick WHERE name = :name

-- name: schedule_failed(name, revision, error, look_at)
UPDATE fairturn_schedule SET revision = revision + 1, error = :error, look_at = :look_at
WHERE name = :name AND revision = :revision AND paused = 0
