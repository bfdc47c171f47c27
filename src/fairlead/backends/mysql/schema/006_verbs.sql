-- The verbs of a lease (docs/semantics.md, 5).
--
-- Leases are JSON: [[id, delivery], …]. A verb changes the messages whose lease is valid and answers
-- with the ids of the others, in one row; with {"strict": 1} one lost lease is an error and nothing
-- changes. Everything goes by primary key. Options may hold `now`.

DELIMITER //

-- Lock the messages whose lease is valid. p_ids is "1,2" or NULL, p_grouped how many have a group.
DROP PROCEDURE IF EXISTS fairlead_match_ //
CREATE PROCEDURE fairlead_match_(
  IN p_lane INT, IN p_leases LONGTEXT CHARACTER SET ascii,
  OUT p_ids LONGTEXT CHARACTER SET ascii, OUT p_count INT, OUT p_grouped INT,
  OUT p_lost LONGTEXT CHARACTER SET ascii
)
BEGIN
  SELECT GROUP_CONCAT(id), COUNT(*), COUNT(group_id) INTO p_ids, p_count, p_grouped FROM (
    SELECT m.id, m.group_id FROM JSON_TABLE(p_leases, '$[*]' COLUMNS (
             id BIGINT PATH '$[0]', delivery INT PATH '$[1]')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
     WHERE m.lane = p_lane AND m.state = 'l' AND m.deliveries = j.delivery
     GROUP BY m.id FOR UPDATE) valid;
  SET p_lost = '[]';
  IF p_count < JSON_LENGTH(p_leases) THEN
    SELECT CONCAT('[', COALESCE(GROUP_CONCAT(DISTINCT j.id ORDER BY j.id), ''), ']') INTO p_lost
      FROM JSON_TABLE(p_leases, '$[*]' COLUMNS (
             id BIGINT PATH '$[0]', delivery INT PATH '$[1]')) j
      LEFT JOIN fairlead_message m FORCE INDEX (PRIMARY)
             ON m.id = j.id AND m.lane = p_lane AND m.state = 'l' AND m.deliveries = j.delivery
     WHERE m.id IS NULL;
  END IF;
END //

-- Find the queue, lock the leases, and refuse lost ones if the caller is strict. p_known: the options
-- of this verb besides `strict` and `now`.
DROP PROCEDURE IF EXISTS fairlead_verb_ //
CREATE PROCEDURE fairlead_verb_(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii,
  IN p_options LONGTEXT CHARACTER SET utf8mb4, IN p_known VARCHAR(100) CHARACTER SET ascii,
  OUT p_queue_id INT, OUT p_lane INT, OUT p_events INT, OUT p_now BIGINT,
  OUT p_ids LONGTEXT CHARACTER SET ascii, OUT p_count INT, OUT p_grouped INT,
  OUT p_lost LONGTEXT CHARACTER SET ascii
)
BEGIN
  IF p_options NOT IN ('{"strict": 1}', '{"strict": 0}', '{"json": 0, "strict": 1}',
                       '{"json": 1, "strict": 1}') THEN
    CALL fairlead_known_(p_options, CONCAT('strict,now,', p_known));
  END IF;
  CALL fairlead_queue_(p_queue, JSON_VALUE(p_options, '$.now'), p_queue_id, p_lane, p_now, p_events);
  CALL fairlead_match_(p_lane, p_leases, p_ids, p_count, p_grouped, p_lost);
  IF p_lost <> '[]' THEN CALL fairlead_strict_(p_queue, p_lost, p_options); END IF;
END //

DROP PROCEDURE IF EXISTS fairlead_strict_ //
CREATE PROCEDURE fairlead_strict_(
  IN p_queue VARBINARY(1024), IN p_lost LONGTEXT CHARACTER SET ascii,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_text VARCHAR(128) CHARACTER SET utf8mb4;
  IF JSON_VALUE(p_options, '$.strict') IN ('1', 'true') THEN
    SET v_text = LEFT(CONCAT(SUBSTRING_INDEX(TRIM(BOTH ']' FROM TRIM(BOTH '[' FROM p_lost)), ',', 3),
      ' ', CONVERT(p_queue USING utf8mb4)), 128);
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45001, MESSAGE_TEXT = v_text;
  END IF;
END //

-- The queue of a name, the time, and whether it tells events; or QueueNotFound.
DROP PROCEDURE IF EXISTS fairlead_queue_ //
CREATE PROCEDURE fairlead_queue_(
  IN p_queue VARBINARY(1024), IN p_given BIGINT, OUT p_id INT, OUT p_lane INT, OUT p_now BIGINT,
  OUT p_events INT
)
BEGIN
  DECLARE v_text VARCHAR(128) CHARACTER SET utf8mb4;
  SET p_id = NULL;
  SELECT id, lane, COALESCE(p_given, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))), events
    INTO p_id, p_lane, p_now, p_events FROM fairlead_queue WHERE name = p_queue;
  IF p_id IS NULL THEN
    SET v_text = LEFT(CONVERT(p_queue USING utf8mb4), 128);
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45002, MESSAGE_TEXT = v_text;
  END IF;
END //

-- Ack without transaction control; carried acks come here, too.
DROP PROCEDURE IF EXISTS fairlead_ack_ //
CREATE PROCEDURE fairlead_ack_(
  IN p_queue_id INT, IN p_lane INT, IN p_retention BIGINT, IN p_events INT,
  IN p_leases LONGTEXT CHARACTER SET ascii, IN p_now BIGINT,
  OUT p_count INT, OUT p_lost LONGTEXT CHARACTER SET ascii
)
ack: BEGIN
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_grouped INT;
  IF p_retention = 0 AND NOT p_events THEN
    -- The usual case, all leases valid and without a group, is one statement. It is the first write of
    -- its procedure, so it can be taken back as a whole to find out about the others.
    DELETE m FROM JSON_TABLE(p_leases, '$[*]' COLUMNS (
             id BIGINT PATH '$[0]', delivery INT PATH '$[1]')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
     WHERE m.lane = p_lane AND m.state = 'l' AND m.deliveries = j.delivery AND m.group_id IS NULL;
    SET p_count = ROW_COUNT(), p_lost = '[]';
    IF p_count = JSON_LENGTH(p_leases) THEN LEAVE ack; END IF;
    ROLLBACK TO SAVEPOINT fairlead;
  END IF;
  CALL fairlead_match_(p_lane, p_leases, v_ids, p_count, v_grouped, p_lost);
  IF v_ids IS NULL THEN LEAVE ack; END IF;
  IF v_grouped > 0 THEN CALL fairlead_leave_(v_ids, 1, 0); END IF;
  IF p_events THEN
    CALL fairlead_emit_(p_queue_id, v_ids, IF(p_retention = 0, 'deleted', 'done'), NULL, p_now);
  END IF;
  IF p_retention = 0 THEN
    DELETE m FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id;
  ELSE
    UPDATE JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      SET m.state = 'd', m.wake_at = p_now, m.permit = 0, m.recovered = 0, m.begun = 0;
  END IF;
END //

DROP PROCEDURE IF EXISTS fairlead_ack //
CREATE PROCEDURE fairlead_ack(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_count INT;
  DECLARE v_now, v_retention BIGINT;
  DECLARE v_lost LONGTEXT CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  -- What the library says is not looked at: this is the hottest of the verbs.
  IF p_options NOT IN ('{"strict": 1}', '{"strict": 0}') THEN
    CALL fairlead_known_(p_options, 'strict,now');
  END IF;
  CALL fairlead_open_(v_own);
  SELECT id, lane, retention_us, events, COALESCE(JSON_VALUE(p_options, '$.now'),
           TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    INTO v_queue_id, v_lane, v_retention, v_events, v_now FROM fairlead_queue WHERE name = p_queue;
  IF v_queue_id IS NULL THEN
    CALL fairlead_queue_(p_queue, NULL, v_queue_id, v_lane, v_now, v_events); -- says so
  END IF;
  -- @stop ack.delete
  CALL fairlead_ack_(v_queue_id, v_lane, v_retention, v_events, p_leases, v_now, v_count, v_lost);
  IF v_lost <> '[]' THEN CALL fairlead_strict_(p_queue, v_lost, p_options); END IF;
  IF v_count > 0 THEN
    INSERT INTO fairlead_tally (queue_id, minute, acked)
      VALUES (v_queue_id, v_now - v_now MOD 60000000, v_count);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_lost AS lost;
END //

-- Options: json = 1 if the result is JSON (default: if it looks like it).
DROP PROCEDURE IF EXISTS fairlead_complete //
CREATE PROCEDURE fairlead_complete(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii, IN p_result LONGBLOB,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_grouped, v_count, v_json INT;
  DECLARE v_now BIGINT;
  DECLARE v_ids, v_lost LONGTEXT CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_verb_(p_queue, p_leases, p_options, 'json', v_queue_id, v_lane,
    v_events, v_now, v_ids, v_count, v_grouped, v_lost);
  SET v_json = COALESCE(JSON_VALUE(p_options, '$.json') IN ('1', 'true'),
    JSON_VALID(CONVERT(p_result USING utf8mb4)), 0);
  IF v_count > 0 THEN
    IF v_grouped > 0 THEN CALL fairlead_leave_(v_ids, 1, 0); END IF;
    UPDATE JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      SET m.state = 'd', m.wake_at = v_now, m.permit = 0, m.recovered = 0, m.begun = 0, m.attempts = 0,
          m.error = NULL, m.result = p_result, m.json = (m.json & 3) | IF(v_json, 4, 0);
    IF v_events THEN CALL fairlead_emit_(v_queue_id, v_ids, 'done', NULL, v_now); END IF;
    INSERT INTO fairlead_tally (queue_id, minute, completed)
      VALUES (v_queue_id, v_now - v_now MOD 60000000, v_count);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_lost AS lost;
END //

-- Options: delay (seconds) or delay_us, or due_us; clear_memo = 1, json as above, of the memo. A memo of
-- NULL is left as it is.
DROP PROCEDURE IF EXISTS fairlead_defer //
CREATE PROCEDURE fairlead_defer(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii, IN p_memo LONGBLOB,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_grouped, v_count, v_json, v_keep INT;
  DECLARE v_now, v_due BIGINT;
  DECLARE v_ids, v_lost LONGTEXT CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_verb_(p_queue, p_leases, p_options, 'delay,delay_us,due_us,clear_memo,json', v_queue_id, v_lane,
    v_events, v_now, v_ids, v_count, v_grouped, v_lost);
  SET v_due = COALESCE(JSON_VALUE(p_options, '$.due_us'),
        v_now + COALESCE(JSON_VALUE(p_options, '$.delay_us'),
          ROUND(JSON_VALUE(p_options, '$.delay') * 1000000), 0)),
      v_keep = p_memo IS NULL AND NOT COALESCE(JSON_VALUE(p_options, '$.clear_memo') IN ('1', 'true'), 0),
      v_json = COALESCE(JSON_VALUE(p_options, '$.json') IN ('1', 'true'),
        JSON_VALID(CONVERT(p_memo USING utf8mb4)), 0);
  IF v_count > 0 THEN
    UPDATE JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      SET m.state = IF(v_due <= v_now, 'r', 's'), m.wake_at = IF(v_due <= v_now, 0, v_due),
          m.due_at = v_due, m.permit = 0, m.recovered = 0, m.attempts = 0,
          m.memo = IF(v_keep, m.memo, p_memo),
          m.json = IF(v_keep, m.json, (m.json & 5) | IF(v_json, 2, 0));
    IF v_events THEN CALL fairlead_emit_(v_queue_id, v_ids, 'deferred', NULL, v_now); END IF;
    INSERT INTO fairlead_tally (queue_id, minute, deferred)
      VALUES (v_queue_id, v_now - v_now MOD 60000000, v_count);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_lost AS lost;
END //

-- Options: delay (seconds) or delay_us; without one the queue's back-off. reference.
DROP PROCEDURE IF EXISTS fairlead_fail //
CREATE PROCEDURE fairlead_fail(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii, IN p_error MEDIUMBLOB,
  IN p_details MEDIUMBLOB, IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_grouped, v_count, v_max, v_factor, v_killed INT DEFAULT 0;
  DECLARE v_now, v_delay, v_initial, v_maximum BIGINT;
  DECLARE v_ids, v_lost, v_dead, v_alive LONGTEXT CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_verb_(p_queue, p_leases, p_options, 'delay,delay_us,reference', v_queue_id, v_lane,
    v_events, v_now, v_ids, v_count, v_grouped, v_lost);
  IF v_count > 0 THEN
    SET v_delay = COALESCE(JSON_VALUE(p_options, '$.delay_us'),
          ROUND(JSON_VALUE(p_options, '$.delay') * 1000000));
    SELECT max_attempts, backoff_initial_us, backoff_factor, backoff_max_us
      INTO v_max, v_initial, v_factor, v_maximum FROM fairlead_queue WHERE id = v_queue_id;
    SELECT GROUP_CONCAT(IF(m.attempts >= COALESCE(m.max_attempts, v_max)
                           AND COALESCE(m.max_attempts, v_max) > 0, m.id, NULL)),
           GROUP_CONCAT(IF(m.attempts >= COALESCE(m.max_attempts, v_max)
                           AND COALESCE(m.max_attempts, v_max) > 0, NULL, m.id))
      INTO v_dead, v_alive
      FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id;
    IF v_alive IS NOT NULL THEN
      CALL fairlead_log_(v_queue_id, v_alive, v_now, 0, p_error, p_details,
        JSON_VALUE(p_options, '$.reference'));
      -- No double overflows at this exponent, and every longer wait is above any maximum.
      UPDATE (
          SELECT a.id, COALESCE(v_delay, CAST(LEAST(
                   v_initial * POW(v_factor, LEAST(a.attempts - 1, 60)), v_maximum) AS SIGNED)) AS delay
            FROM JSON_TABLE(CONCAT('[', v_alive, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
            STRAIGHT_JOIN fairlead_message a FORCE INDEX (PRIMARY) ON a.id = j.id) wait
        STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = wait.id
        SET m.due_at = v_now + wait.delay, m.state = IF(wait.delay <= 0, 'r', 's'),
            m.wake_at = IF(wait.delay <= 0, 0, v_now + wait.delay),
            m.permit = 0, m.recovered = 0, m.error = p_error;
      IF v_events THEN CALL fairlead_emit_(v_queue_id, v_alive, 'deferred', NULL, v_now); END IF;
    END IF;
    IF v_dead IS NOT NULL THEN
      CALL fairlead_log_(v_queue_id, v_dead, v_now, 1, p_error, p_details,
        JSON_VALUE(p_options, '$.reference'));
      CALL fairlead_die_(v_queue_id, v_dead, v_grouped, v_now, 1, p_error, v_killed);
    END IF;
    INSERT INTO fairlead_tally (queue_id, minute, failed, killed, errors)
      VALUES (v_queue_id, v_now - v_now MOD 60000000, v_count, NULLIF(v_killed, 0), v_count);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_lost AS lost;
END //

DROP PROCEDURE IF EXISTS fairlead_kill //
CREATE PROCEDURE fairlead_kill(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii, IN p_error MEDIUMBLOB,
  IN p_details MEDIUMBLOB, IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_grouped, v_count, v_killed INT DEFAULT 0;
  DECLARE v_now BIGINT;
  DECLARE v_ids, v_lost LONGTEXT CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_verb_(p_queue, p_leases, p_options, 'reference', v_queue_id, v_lane,
    v_events, v_now, v_ids, v_count, v_grouped, v_lost);
  IF v_count > 0 THEN
    CALL fairlead_log_(v_queue_id, v_ids, v_now, 1, p_error, p_details,
      JSON_VALUE(p_options, '$.reference'));
    CALL fairlead_die_(v_queue_id, v_ids, v_grouped, v_now, 1, p_error, v_killed);
    INSERT INTO fairlead_tally (queue_id, minute, killed, errors)
      VALUES (v_queue_id, v_now - v_now MOD 60000000, v_killed, v_count);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_lost AS lost;
END //

-- Options: lease (seconds) or lease_us; without one the message's, else the queue's. exact = 1: it may end
-- earlier than before, and is taken off its permit, which would revive it.
-- The second column is the new end of the last lease that was extended.
DROP PROCEDURE IF EXISTS fairlead_extend //
CREATE PROCEDURE fairlead_extend(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_grouped, v_count, v_exact INT;
  DECLARE v_now, v_lease, v_default, v_until BIGINT DEFAULT NULL;
  DECLARE v_ids, v_lost LONGTEXT CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_verb_(p_queue, p_leases, p_options, 'lease,lease_us,exact', v_queue_id, v_lane,
    v_events, v_now, v_ids, v_count, v_grouped, v_lost);
  IF v_count > 0 THEN
    SET v_lease = COALESCE(JSON_VALUE(p_options, '$.lease_us'),
          ROUND(JSON_VALUE(p_options, '$.lease') * 1000000)),
        v_exact = COALESCE(JSON_VALUE(p_options, '$.exact') IN ('1', 'true'), 0);
    SELECT lease_us INTO v_default FROM fairlead_queue WHERE id = v_queue_id;
    UPDATE JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      SET m.wake_at = GREATEST(IF(v_exact, 0, m.wake_at), v_now + COALESCE(v_lease, m.lease_us, v_default)),
          m.permit = IF(v_exact, 0, m.permit);
    SELECT m.wake_at INTO v_until
      FROM JSON_TABLE(p_leases, '$[*]' COLUMNS (n FOR ORDINALITY,
             id BIGINT PATH '$[0]', delivery INT PATH '$[1]')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
     WHERE m.lane = v_lane AND m.state = 'l' AND m.deliveries = j.delivery
     ORDER BY j.n DESC LIMIT 1;
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_lost AS lost, v_until AS lease_until;
END //

DROP PROCEDURE IF EXISTS fairlead_release //
CREATE PROCEDURE fairlead_release(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_grouped, v_count INT;
  DECLARE v_now BIGINT;
  DECLARE v_ids, v_lost LONGTEXT CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_verb_(p_queue, p_leases, p_options, '', v_queue_id, v_lane,
    v_events, v_now, v_ids, v_count, v_grouped, v_lost);
  IF v_count > 0 THEN
    UPDATE JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      SET m.state = 'r', m.wake_at = 0, m.permit = 0, m.attempts = m.attempts - 1;
    INSERT INTO fairlead_tally (queue_id, minute, released)
      VALUES (v_queue_id, v_now - v_now MOD 60000000, v_count);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_lost AS lost;
END //

-- Options: progress (0 to 1) or millionths; without one it stays, as the note does if it is NULL.
DROP PROCEDURE IF EXISTS fairlead_progress //
CREATE PROCEDURE fairlead_progress(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii, IN p_note MEDIUMBLOB,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_grouped, v_count, v_progress INT;
  DECLARE v_now BIGINT;
  DECLARE v_ids, v_lost LONGTEXT CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  SET v_progress = COALESCE(JSON_VALUE(p_options, '$.millionths'),
        ROUND(JSON_VALUE(p_options, '$.progress') * 1000000));
  IF v_progress NOT BETWEEN 0 AND 1000000 THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45006, MESSAGE_TEXT = 'progress is a number from 0 to 1';
  END IF;
  CALL fairlead_open_(v_own);
  CALL fairlead_verb_(p_queue, p_leases, p_options, 'progress,millionths', v_queue_id, v_lane,
    v_events, v_now, v_ids, v_count, v_grouped, v_lost);
  IF v_count > 0 THEN
    UPDATE JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      SET m.progress = COALESCE(v_progress, m.progress), m.note = COALESCE(p_note, m.note);
    IF v_events THEN CALL fairlead_emit_(v_queue_id, v_ids, 'progress', NULL, v_now); END IF;
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_lost AS lost;
END //

DELIMITER ;
