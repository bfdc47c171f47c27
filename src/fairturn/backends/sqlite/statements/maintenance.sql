-- Sweeping (§2.2) and maintenance (§10).

-- fragment: expiring
SELECT id FROM fairturn_message WHERE lane = :lane AND expires_at <= :now
ORDER BY expires_at, id LIMIT :limit

-- name: expiring(lane, now, limit)
-- The messages that `expire` will delete next, for their events.
{expiring}

-- name: expire(lane, now, limit)
DELETE FROM fairturn_message WHERE id IN ({expiring})
RETURNING deliveries = 0, group_id

-- name: lapsed(lane, now, queue_attempts, limit)
-- Leases past their deadline, the earliest first, with the columns that decide what follows.
SELECT m.id, m.attempts, coalesce(m.max_attempts, :queue_attempts), m.permit_id, p.expires_at,
    m.group_id
FROM fairturn_message m LEFT JOIN fairturn_permit p ON p.id = m.permit_id
WHERE m.lane = :lane AND m.state = 'l' AND m.lease_until <= :now
ORDER BY m.lease_until LIMIT :limit

-- name: live_on(ids)
-- The permit is alive, so it extends these leases.
UPDATE fairturn_message SET
    lease_until = (SELECT p.expires_at FROM fairturn_permit p WHERE p.id = permit_id)
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: recover(ids)
UPDATE fairturn_message SET state = 'r', recovered = 1, lease_until = NULL, permit_id = NULL
WHERE id IN (SELECT value FROM json_each(:ids))

-- name: end_permits(ids, now)
-- An expired permit whose messages were recovered must not be revived by a late heartbeat.
DELETE FROM fairturn_permit
WHERE id IN (SELECT value FROM json_each(:ids)) AND expires_at <= :now

-- name: promote(lane, now, limit)
UPDATE fairturn_message SET state = 'r' WHERE id IN (
    SELECT id FROM fairturn_message WHERE lane = :lane AND state = 's' AND due_at <= :now
    ORDER BY due_at, id LIMIT :limit)

-- name: promote_early(lane, due, now, limit)
-- Before their due time (§7.3). Expired messages are left to the sweep. Messages that were delivered
-- before are left alone: they wait for a retry.
UPDATE fairturn_message SET state = 'r' WHERE id IN (
    SELECT id FROM fairturn_message WHERE lane = :lane AND state = 's' AND due_at <= :due
        AND first_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY due_at, id LIMIT :limit)

-- name: changes()
-- How many rows the last statement changed.
SELECT changes()

-- name: forget_done(lane, before, limit)
DELETE FROM fairturn_message WHERE id IN (
    SELECT id FROM fairturn_message WHERE lane = :lane AND state = 'd' AND finished_at <= :before
    ORDER BY finished_at LIMIT :limit)

-- name: forget_dead(lane, before, limit)
DELETE FROM fairturn_message WHERE id IN (
    SELECT id FROM fairturn_message WHERE lane = :lane AND state = 'x' AND finished_at <= :before
    ORDER BY finished_at LIMIT :limit)

-- name: forget_failures(queue_id, before, limit)
DELETE FROM fairturn_failure WHERE id IN (
    SELECT id FROM fairturn_failure WHERE queue_id = :queue_id AND at <= :before
    ORDER BY at LIMIT :limit)

-- name: idle_gates(queue_id, now, limit)
DELETE FROM fairturn_gate WHERE queue_id = :queue_id AND channel IN (
    SELECT channel FROM fairturn_gate WHERE queue_id = :queue_id AND tat <= :now LIMIT :limit)

-- name: idle_permits(now, limit)
-- Expired permits without leases. One with leases is deleted by the sweep that recovers its messages.
DELETE FROM fairturn_permit WHERE id IN (
    SELECT p.id FROM fairturn_permit p
     WHERE p.expires_at <= :now AND p.id NOT IN (
        SELECT m.permit_id
          FROM fairturn_queue q CROSS JOIN fairturn_message m ON m.lane = q.lane AND m.state = 'l'
         WHERE m.permit_id IS NOT NULL)
     LIMIT :limit)

-- name: retired_lanes()
SELECT id FROM fairturn_lane WHERE retired_at IS NOT NULL ORDER BY id

-- name: sweep_lane(lane, limit)
-- One state after the other, each through its own index: no index has all rows of a lane.
DELETE FROM fairturn_message WHERE id IN (
    SELECT id FROM (
        SELECT id FROM fairturn_message WHERE lane = :lane AND state = 'r'
        UNION ALL
        SELECT id FROM fairturn_message
         WHERE lane = :lane AND (state = 'l' OR state = 's' OR state = 'h')
        UNION ALL
        SELECT id FROM fairturn_message WHERE lane = :lane AND (state = 'd' OR state = 'x'))
    LIMIT :limit)
RETURNING group_id

-- name: drop_lane(lane)
DELETE FROM fairturn_lane WHERE id = :lane

-- name: fold_history(queue_id, before)
-- Add old minutes to the row of minute -1.
INSERT INTO fairturn_history (queue_id, minute, {counters})
SELECT :queue_id, -1, {sum_counters} FROM fairturn_history
WHERE queue_id = :queue_id AND minute >= 0 AND minute < :before HAVING count(*) > 0
ON CONFLICT (queue_id, minute) DO UPDATE SET {add_counters}

-- name: drop_folded(queue_id, before)
DELETE FROM fairturn_history WHERE queue_id = :queue_id AND minute >= 0 AND minute < :before

-- name: forget_groups(before, limit)
DELETE FROM fairturn_group WHERE id IN (
    SELECT id FROM fairturn_group WHERE closed_at <= :before ORDER BY closed_at LIMIT :limit)

-- name: forget_events(before, limit)
DELETE FROM fairturn_event WHERE id IN (
    SELECT id FROM fairturn_event WHERE at <= :before ORDER BY at LIMIT :limit)
