-- The sweep, the fold of the counters, maintenance (docs/semantics.md, 2.2 and 10).
--
-- All of it skips locked rows, so it never waits and never deadlocks.

DELIMITER //

-- Expire, recover and promote messages of one queue, at most p_limit each, and count them. What was done is
-- added to the INOUT arguments; p_more is 1 if one of the three steps reached the limit.
CREATE PROCEDURE fairturn_sweep_(
  IN p_queue_id INT, IN p_lane INT, IN p_events INT, IN p_limit INT, IN p_now BIGINT,
  INOUT p_activated INT, INOUT p_recovered INT, INOUT p_killed INT, INOUT p_more TINYINT
)
BEGIN
  DECLARE v_some, v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_grouped, v_gone, v_ended, v_activated INT;
  DECLARE v_expired INT; -- those of v_gone that were never delivered
  DECLARE v_recovered, v_killed INT DEFAULT 0;
  SELECT GROUP_CONCAT(id) INTO v_some FROM (
    SELECT id FROM fairturn_message FORCE INDEX (expiry)
     WHERE lane = p_lane AND expires_at <= p_now ORDER BY expires_at, id LIMIT p_limit) past;
  SELECT GROUP_CONCAT(id), COUNT(*), COALESCE(SUM(deliveries = 0), 0), COUNT(group_id)
    INTO v_ids, v_gone, v_expired, v_grouped FROM (
      SELECT m.id, m.deliveries, m.group_id
        FROM JSON_TABLE(CONCAT('[', COALESCE(v_some, ''), ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
        STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
       WHERE m.lane = p_lane AND m.expires_at <= p_now FOR UPDATE SKIP LOCKED) locked;
  IF v_gone > 0 THEN
    IF v_grouped > 0 THEN CALL fairturn_leave_(v_ids, 0, 0); END IF;
    IF p_events THEN CALL fairturn_emit_(p_queue_id, v_ids, 'deleted', NULL, p_now); END IF;
    DELETE m FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id;
  END IF;

  CALL fairturn_lock_(p_lane, 'l', p_now, p_limit, v_ids, v_ended);
  IF v_ended > 0 THEN
    -- @stop sweep.recover
    CALL fairturn_recover_(p_queue_id, v_ids, p_now, v_recovered, v_killed);
  END IF;

  CALL fairturn_lock_(p_lane, 's', p_now, p_limit, v_ids, v_activated);
  IF v_activated > 0 THEN
    -- @stop sweep.promote
    CALL fairturn_promote_(v_ids);
  END IF;

  IF v_recovered + v_killed + v_expired > 0 THEN
    INSERT INTO fairturn_tally (queue_id, minute, recovered, killed, expired, errors)
      VALUES (p_queue_id, p_now - p_now MOD 60000000, NULLIF(v_recovered, 0), NULLIF(v_killed, 0),
        NULLIF(v_expired, 0), NULLIF(v_killed, 0));
  END IF;
  SET p_activated = p_activated + v_activated, p_recovered = p_recovered + v_recovered,
      p_killed = p_killed + v_killed,
      p_more = p_more OR GREATEST(v_activated, v_ended, v_gone) >= p_limit;
END //

-- Lock the first p_limit messages of one state whose wake_at is not after p_until ("1,2"). They are found
-- without locks, then locked by their ids (choose.sql says why).
CREATE PROCEDURE fairturn_lock_(
  IN p_lane INT, IN p_state BINARY(1), IN p_until BIGINT, IN p_limit INT,
  OUT p_ids LONGTEXT CHARACTER SET ascii, OUT p_count INT
)
BEGIN
  DECLARE v_some LONGTEXT CHARACTER SET ascii;
  SELECT GROUP_CONCAT(id) INTO v_some FROM (
    SELECT id FROM fairturn_message FORCE INDEX (wake)
     WHERE lane = p_lane AND state = p_state AND wake_at <= p_until
     ORDER BY wake_at, id LIMIT p_limit) found;
  SELECT GROUP_CONCAT(id), COUNT(*) INTO p_ids, p_count FROM (
    SELECT m.id
      FROM JSON_TABLE(CONCAT('[', COALESCE(v_some, ''), ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
     WHERE m.lane = p_lane AND m.state = p_state AND m.wake_at <= p_until
     FOR UPDATE SKIP LOCKED) locked;
END //

-- Make locked scheduled messages ("1,2") ready. Not by a join with JSON_TABLE: that needs a temporary table.
CREATE PROCEDURE fairturn_promote_(IN p_ids LONGTEXT CHARACTER SET ascii)
BEGIN
  SET @fairturn_sql = CONCAT('UPDATE fairturn_message FORCE INDEX (PRIMARY) SET state = ''r'',',
    ' wake_at = 0 WHERE id IN (', p_ids, ')');
  PREPARE fairturn_promote FROM @fairturn_sql;
  EXECUTE fairturn_promote;
  DEALLOCATE PREPARE fairturn_promote;
END //

-- The leases of locked messages have ended. Those of a live permit are extended. Of the others, messages with
-- attempts left are ready again, and the rest dies.
CREATE PROCEDURE fairturn_recover_(
  IN p_queue_id INT, IN p_ids LONGTEXT CHARACTER SET ascii, IN p_now BIGINT,
  OUT p_recovered INT, OUT p_killed INT
)
BEGIN
  DECLARE v_permits, v_over, v_dead, v_alive LONGTEXT CHARACTER SET ascii DEFAULT NULL;
  DECLARE v_max, v_grouped INT;
  SET p_recovered = 0, p_killed = 0;
  SELECT GROUP_CONCAT(DISTINCT m.permit) INTO v_permits
    FROM JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
    STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id WHERE m.permit > 0;
  IF v_permits IS NOT NULL THEN
    -- A locked permit is being extended at this moment: its leases wait for the next sweep.
    SELECT GROUP_CONCAT(id) INTO v_over FROM (
      SELECT p.id FROM JSON_TABLE(CONCAT('[', v_permits, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
        STRAIGHT_JOIN fairturn_permit p FORCE INDEX (PRIMARY) ON p.id = j.id
       WHERE p.expires_at <= p_now FOR UPDATE SKIP LOCKED) past;
    -- @stop sweep.permits
    UPDATE JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      STRAIGHT_JOIN fairturn_permit p FORCE INDEX (PRIMARY) ON p.id = m.permit AND p.expires_at > p_now
      SET m.wake_at = p.expires_at;
    DELETE p FROM JSON_TABLE(CONCAT('[', COALESCE(v_over, ''), ']'), '$[*]'
             COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_permit p FORCE INDEX (PRIMARY) ON p.id = j.id;
  END IF;
  SELECT max_attempts INTO v_max FROM fairturn_queue WHERE id = p_queue_id;
  SELECT GROUP_CONCAT(IF(COALESCE(m.max_attempts, v_max) > 0
                         AND m.attempts >= COALESCE(m.max_attempts, v_max), m.id, NULL)),
         GROUP_CONCAT(IF(COALESCE(m.max_attempts, v_max) > 0
                         AND m.attempts >= COALESCE(m.max_attempts, v_max), NULL, m.id)),
         SUM(COALESCE(m.max_attempts, v_max) = 0 OR m.attempts < COALESCE(m.max_attempts, v_max)),
         COUNT(m.group_id)
    INTO v_dead, v_alive, p_recovered, v_grouped
    FROM JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
    STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
    LEFT JOIN fairturn_permit p ON p.id = m.permit
   WHERE m.wake_at <= p_now AND p.id IS NULL;
  SET p_recovered = COALESCE(p_recovered, 0);
  IF v_alive IS NOT NULL THEN
    UPDATE JSON_TABLE(CONCAT('[', v_alive, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      SET m.state = 'r', m.wake_at = 0, m.permit = 0, m.recovered = 1;
  END IF;
  IF v_dead IS NOT NULL THEN
    CALL fairturn_die_(p_queue_id, v_dead, v_grouped, p_now, 0, 'lease expired with no attempts left', NULL,
      NULL, p_killed);
  END IF;
END //

-- Add tallies to the history, unless another session does it now. Tallies of open transactions are skipped.
CREATE PROCEDURE fairturn_fold_(IN p_limit INT, IN p_now BIGINT, OUT p_folded INT)
fold: BEGIN
  DECLARE v_mine TINYINT DEFAULT 0;
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  SET p_folded = 0;
  SELECT 1 INTO v_mine FROM fairturn_lock WHERE name = 'fold' FOR UPDATE SKIP LOCKED;
  IF NOT v_mine THEN LEAVE fold; END IF;
  SELECT GROUP_CONCAT(id), COUNT(*) INTO v_ids, p_folded FROM (
    SELECT id FROM fairturn_tally ORDER BY id LIMIT p_limit FOR UPDATE SKIP LOCKED) tallies;
  IF p_folded = 0 THEN LEAVE fold; END IF;
  INSERT INTO fairturn_history (queue_id, minute, sent, delivered, acked, completed, deferred, failed,
      killed, recovered, released, cancelled, expired, errors)
    SELECT t.queue_id, IF(t.minute <= p_now - 86400000000, 0, t.minute) AS at,
           COALESCE(SUM(t.sent), 0), COALESCE(SUM(t.delivered), 0), COALESCE(SUM(t.acked), 0),
           COALESCE(SUM(t.completed), 0), COALESCE(SUM(t.deferred), 0), COALESCE(SUM(t.failed), 0),
           COALESCE(SUM(t.killed), 0), COALESCE(SUM(t.recovered), 0), COALESCE(SUM(t.released), 0),
           COALESCE(SUM(t.cancelled), 0), COALESCE(SUM(t.expired), 0), COALESCE(SUM(t.errors), 0)
      FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_tally t FORCE INDEX (PRIMARY) ON t.id = j.id
      STRAIGHT_JOIN fairturn_queue q ON q.id = t.queue_id
     GROUP BY t.queue_id, at
    ON DUPLICATE KEY UPDATE
      sent = fairturn_history.sent + VALUES(sent),
      delivered = fairturn_history.delivered + VALUES(delivered),
      acked = fairturn_history.acked + VALUES(acked),
      completed = fairturn_history.completed + VALUES(completed),
      deferred = fairturn_history.deferred + VALUES(deferred),
      failed = fairturn_history.failed + VALUES(failed),
      killed = fairturn_history.killed + VALUES(killed),
      recovered = fairturn_history.recovered + VALUES(recovered),
      released = fairturn_history.released + VALUES(released),
      cancelled = fairturn_history.cancelled + VALUES(cancelled),
      expired = fairturn_history.expired + VALUES(expired),
      errors = fairturn_history.errors + VALUES(errors);
  DELETE t FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
    STRAIGHT_JOIN fairturn_tally t FORCE INDEX (PRIMARY) ON t.id = j.id;
END //

-- Minutes older than the history's retention become tallies again: the next fold adds them to minute 0.
-- Under the fold's lock.
CREATE PROCEDURE fairturn_age_(IN p_queue_id INT, IN p_now BIGINT)
age: BEGIN
  DECLARE v_mine TINYINT DEFAULT 0;
  DECLARE v_old INT;
  SELECT 1 INTO v_mine FROM fairturn_lock WHERE name = 'fold' FOR UPDATE SKIP LOCKED;
  IF NOT v_mine THEN LEAVE age; END IF;
  SELECT COUNT(*) INTO v_old FROM fairturn_history
   WHERE queue_id = p_queue_id AND minute > 0 AND minute <= p_now - 86400000000;
  IF v_old = 0 THEN LEAVE age; END IF;
  INSERT INTO fairturn_tally (queue_id, minute, sent, delivered, acked, completed, deferred, failed, killed,
      recovered, released, cancelled, expired, errors)
    SELECT queue_id, minute, sent, delivered, acked, completed, deferred, failed, killed, recovered,
           released, cancelled, expired, errors
      FROM fairturn_history
     WHERE queue_id = p_queue_id AND minute > 0 AND minute <= p_now - 86400000000;
  DELETE FROM fairturn_history
   WHERE queue_id = p_queue_id AND minute > 0 AND minute <= p_now - 86400000000;
END //

-- Delete failures of a queue up to a time, oldest first.
CREATE PROCEDURE fairturn_forget_(
  IN p_queue_id INT, IN p_until BIGINT, IN p_limit INT, OUT p_total INT
)
BEGIN
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_count, v_size INT;
  SET p_total = 0;
  batch: WHILE p_total < p_limit DO
    SET v_size = LEAST(p_limit - p_total, 10000);
    SELECT GROUP_CONCAT(id), COUNT(*) INTO v_ids, v_count FROM (
      SELECT id FROM fairturn_failure FORCE INDEX (queue)
       WHERE queue_id = p_queue_id AND at <= p_until ORDER BY at LIMIT v_size
       FOR UPDATE SKIP LOCKED) old;
    IF v_count = 0 THEN LEAVE batch; END IF;
    DELETE f FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_failure f FORCE INDEX (PRIMARY) ON f.id = j.id;
    SET p_total = p_total + v_count;
  END WHILE;
END //

-- Delete the totals, the history and the failures of a queue. Tallies of open transactions are skipped: a
-- later fold adds them to the history, or deletes them if the queue was dropped.
CREATE PROCEDURE fairturn_reset_(IN p_queue_id INT)
BEGIN
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_count INT;
  batch: LOOP
    SELECT GROUP_CONCAT(id), COUNT(*) INTO v_ids, v_count FROM (
      SELECT id FROM fairturn_tally WHERE queue_id = p_queue_id LIMIT 10000
      FOR UPDATE SKIP LOCKED) tallies;
    IF v_count = 0 THEN LEAVE batch; END IF;
    DELETE t FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_tally t FORCE INDEX (PRIMARY) ON t.id = j.id;
  END LOOP;
  DELETE h FROM fairturn_history h FORCE INDEX (PRIMARY) WHERE h.queue_id = p_queue_id;
  CALL fairturn_forget_(p_queue_id, 9223372036854775807, 2147483647, v_count);
END //

-- One queue: sweep, retention, failures, names, idle gates, old minutes.
CREATE PROCEDURE fairturn_maintain_queue_(
  IN p_queue_id INT, IN p_limit INT, IN p_now BIGINT, INOUT p_activated INT, INOUT p_recovered INT,
  INOUT p_killed INT, INOUT p_purged INT, INOUT p_more TINYINT
)
maintain: BEGIN
  DECLARE v_lane, v_events, v_done, v_dead, v_failures, v_names INT DEFAULT NULL;
  DECLARE v_retention, v_dead_retention, v_failure_retention BIGINT;
  DECLARE v_gates LONGTEXT CHARACTER SET ascii;
  SELECT lane, events, IF(retention_us = 0, result_retention_us, retention_us), dead_retention_us,
         failure_retention_us
    INTO v_lane, v_events, v_retention, v_dead_retention, v_failure_retention
    FROM fairturn_queue WHERE id = p_queue_id;
  IF v_lane IS NULL THEN LEAVE maintain; END IF;

  CALL fairturn_sweep_(p_queue_id, v_lane, v_events, p_limit, p_now, p_activated, p_recovered, p_killed,
    p_more);
  -- Without a retention (NULL) nothing is older than it.
  CALL fairturn_delete_(v_lane, 'd', p_now - v_retention, p_limit, NULL, p_now, v_done);
  CALL fairturn_delete_(v_lane, 'x', p_now - v_dead_retention, p_limit, NULL, p_now, v_dead);
  CALL fairturn_forget_(p_queue_id, p_now - v_failure_retention, p_limit, v_failures);
  CALL fairturn_forget_names_(v_lane, p_now, p_limit, v_names);
  SET p_purged = p_purged + v_done + v_dead + v_failures,
      p_more = p_more OR GREATEST(v_done, v_dead, v_failures, v_names) >= p_limit;

  -- A gate is idle if its channel has no policy and no unfinished message, and its rate is not ahead of time.
  SELECT GROUP_CONCAT('"', HEX(channel), '"') INTO v_gates FROM (
    SELECT g.channel FROM fairturn_gate g
     WHERE g.queue_id = p_queue_id AND g.tat <= p_now
       AND NOT EXISTS (SELECT 1 FROM fairturn_policy p
                        WHERE p.queue_id = g.queue_id AND p.channel = g.channel)
       AND NOT EXISTS (SELECT 1 FROM fairturn_message m FORCE INDEX (channel)
                        WHERE m.lane = v_lane AND m.channel = g.channel
                          AND m.state IN ('h', 'l', 'r', 's'))
     LIMIT p_limit) idle;
  IF v_gates IS NOT NULL THEN
    SELECT GROUP_CONCAT('"', HEX(channel), '"') INTO v_gates FROM (
      SELECT g.channel
        FROM JSON_TABLE(CONCAT('[', v_gates, ']'), '$[*]' COLUMNS (name VARCHAR(510) PATH '$')) j
        STRAIGHT_JOIN fairturn_gate g FORCE INDEX (PRIMARY)
          ON g.queue_id = p_queue_id AND g.channel = UNHEX(j.name)
       WHERE g.tat <= p_now FOR UPDATE SKIP LOCKED) locked;
    DELETE g FROM JSON_TABLE(CONCAT('[', COALESCE(v_gates, ''), ']'), '$[*]'
             COLUMNS (name VARCHAR(510) PATH '$')) j
      STRAIGHT_JOIN fairturn_gate g FORCE INDEX (PRIMARY)
        ON g.queue_id = p_queue_id AND g.channel = UNHEX(j.name);
  END IF;
  CALL fairturn_age_(p_queue_id, p_now);
END //

-- What belongs to no queue: retired lanes, expired permits, closed groups, events, tallies.
CREATE PROCEDURE fairturn_maintain_rest_(
  IN p_limit INT, IN p_now BIGINT, INOUT p_purged INT, INOUT p_more TINYINT
)
BEGIN
  DECLARE v_done TINYINT DEFAULT 0;
  DECLARE v_lane, v_count, v_grouped, v_folded, v_names INT;
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_lanes CURSOR FOR SELECT lane FROM fairturn_retired ORDER BY lane;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = 1;
  OPEN v_lanes;
  lane: LOOP
    FETCH v_lanes INTO v_lane;
    IF v_done THEN LEAVE lane; END IF;
    SELECT GROUP_CONCAT(id), COUNT(*), COUNT(group_id) INTO v_ids, v_count, v_grouped FROM (
      SELECT id, group_id FROM fairturn_message FORCE INDEX (wake) WHERE lane = v_lane LIMIT p_limit
      FOR UPDATE SKIP LOCKED) rest;
    CALL fairturn_forget_names_(v_lane, 9223372036854775807, p_limit, v_names);
    IF v_count > 0 THEN
      IF v_grouped > 0 THEN CALL fairturn_leave_(v_ids, 0, 0); END IF;
      DELETE m FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
        STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id;
    ELSEIF v_names = 0 THEN
      -- The lane is kept for a week: a send that began before the purge may still commit into it.
      DELETE FROM fairturn_retired WHERE lane = v_lane AND retired_at <= p_now - 604800000000;
    END IF;
    SET p_purged = p_purged + v_count, v_done = 0,
        p_more = p_more OR v_count >= p_limit OR v_names >= p_limit;
  END LOOP;
  CLOSE v_lanes;

  SELECT GROUP_CONCAT(id) INTO v_ids FROM (
    SELECT p.id FROM fairturn_permit p
     WHERE p.expires_at <= p_now AND p.id NOT IN (
       SELECT m.permit FROM fairturn_queue q
         STRAIGHT_JOIN fairturn_message m FORCE INDEX (wake) ON m.lane = q.lane AND m.state = 'l')
     LIMIT p_limit) past;
  IF v_ids IS NOT NULL THEN
    DELETE p FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_permit p FORCE INDEX (PRIMARY) ON p.id = j.id WHERE p.expires_at <= p_now;
  END IF;

  -- Closed groups and events are kept for a day.
  SELECT GROUP_CONCAT(id), COUNT(*) INTO v_ids, v_count FROM (
    SELECT id FROM fairturn_group FORCE INDEX (closed) WHERE closed_at <= p_now - 86400000000
     LIMIT p_limit FOR UPDATE SKIP LOCKED) past;
  IF v_count > 0 THEN
    DELETE g FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_group g FORCE INDEX (PRIMARY) ON g.id = j.id;
  END IF;
  SET p_more = p_more OR v_count >= p_limit;
  SELECT COUNT(*) INTO v_count FROM (SELECT 1 FROM fairturn_event_new LIMIT 1) new;
  IF v_count > 0 THEN -- of a cluster, if nobody reads its events (cluster.sql)
    CALL fairturn_place_(p_limit, v_count);
    SET p_more = p_more OR v_count >= p_limit;
  END IF;
  CALL fairturn_forget_events_(p_now - 86400000000, p_limit, v_count);
  SET p_more = p_more OR v_count >= p_limit;

  fold: LOOP
    CALL fairturn_fold_(LEAST(p_limit, 5000), p_now, v_folded);
    IF v_folded < LEAST(p_limit, 5000) THEN LEAVE fold; END IF;
  END LOOP;
END //

-- CALL fairturn_maintain(1000, '{}'): activated, recovered, killed, purged, more. Outside the caller's
-- transaction there is one transaction for each queue.
CREATE PROCEDURE fairturn_maintain(IN p_limit INT, IN p_options LONGTEXT CHARACTER SET utf8mb4)
BEGIN
  DECLARE v_own, v_more TINYINT DEFAULT 0;
  DECLARE v_activated, v_recovered, v_killed, v_purged, v_closed, v_id INT DEFAULT 0;
  DECLARE v_next INT;
  DECLARE v_now BIGINT DEFAULT COALESCE(JSON_VALUE(p_options, '$.now'),
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_known_(p_options, 'now');
  SET p_limit = LEAST(p_limit, 10000); -- what a list of ids can hold
  CALL fairturn_open_(v_own);
  queue: LOOP
    SELECT (SELECT id FROM fairturn_queue WHERE id > v_id ORDER BY id LIMIT 1) INTO v_next;
    IF v_next IS NULL THEN LEAVE queue; END IF;
    SET v_id = v_next;
    CALL fairturn_maintain_queue_(v_id, p_limit, v_now, v_activated, v_recovered, v_killed, v_purged,
      v_more);
    IF v_own THEN
      COMMIT;
      CALL fairturn_open_(v_own);
    END IF;
  END LOOP;
  CALL fairturn_maintain_rest_(p_limit, v_now, v_purged, v_more);
  IF v_own THEN
    COMMIT;
    CALL fairturn_settle_all_(p_limit, v_now, v_closed);
  END IF;
  SELECT v_activated AS activated, v_recovered AS recovered, v_killed AS killed, v_purged AS purged,
         v_more AS more;
END //

DELIMITER ;
