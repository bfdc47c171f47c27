-- Sweeping (§2.2) and maintenance (§10).

-- fragment: expiring
SELECT id FROM fairlead_message WHERE lane = :lane AND expires_at <= :now
ORDER BY expires_at, id LIMIT :limit

-- name: expiring(lane, now, limit)
-- Those that expire will delete next, for the events that tell it.
{expiring}

-- name: expire(lane, now, limit)
DELETE FROM fairlead_message WHERE id IN ({expiring})
RETURNING deliveries = 0, group_id

-- name: lapsed(lane, now, queue_attempts, limit)
-- Leases past their deadline, the earliest first, with what decides their fate.
SELECT m.id, m.attempts, coalesce(m.max_attempts, :queue_attempts), m.permit_id, p.expires_at,
    m.group_id
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

-- name: promote_early(lane, due, now, limit)
-- For those who ask for them ahead of their time (§7.3); what has expired is left to the sweep, and
-- what was delivered before to its time: that is a pause.
UPDATE fairlead_message SET state = 'r' WHERE id IN (
    SELECT id FROM fairlead_message WHERE lane = :lane AND state = 's' AND due_at <= :due
        AND first_at IS NULL AND (expires_at IS NULL OR expires_at > :now)
    ORDER BY due_at, id LIMIT :limit)

-- name: changes()
-- How many rows the statement before this one changed.
SELECT changes()

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
RETURNING group_id

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

-- name: forget_groups(before, limit)
DELETE FROM fairlead_group WHERE id IN (
    SELECT id FROM fairlead_group WHERE closed_at <= :before ORDER BY closed_at LIMIT :limit)

-- name: forget_events(before, limit)
DELETE FROM fairlead_event WHERE id IN (
    SELECT id FROM fairlead_event WHERE at <= :before ORDER BY at LIMIT :limit)
