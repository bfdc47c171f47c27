-- Death and the failure log, waiting and finished messages, permits (docs/semantics.md, 2.4, 6-8).

DELIMITER //

DROP PROCEDURE IF EXISTS fairlead_log_ //
CREATE PROCEDURE fairlead_log_(
  IN p_queue_id INT, IN p_ids LONGTEXT CHARACTER SET ascii, IN p_now BIGINT, IN p_fatal TINYINT,
  IN p_error MEDIUMBLOB, IN p_details MEDIUMBLOB, IN p_reference MEDIUMBLOB
)
BEGIN
  INSERT INTO fairlead_failure
      (queue_id, message_id, `key`, attempt, at, fatal, error, details, reference)
    SELECT p_queue_id, m.id, m.`key`, m.attempts, p_now, p_fatal, p_error, p_details, p_reference
      FROM JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id;
END //

-- Kill locked messages: dead here, or ready in the dead-letter queue if that exists and is another.
DROP PROCEDURE IF EXISTS fairlead_die_ //
CREATE PROCEDURE fairlead_die_(
  IN p_queue_id INT, IN p_ids LONGTEXT CHARACTER SET ascii, IN p_now BIGINT, IN p_verb TINYINT,
  IN p_error MEDIUMBLOB, OUT p_killed INT
)
BEGIN
  DECLARE v_target, v_lane INT DEFAULT NULL;
  DECLARE v_expires BIGINT;
  SELECT t.id, t.lane, t.expires_us INTO v_target, v_lane, v_expires
    FROM fairlead_queue q JOIN fairlead_queue t ON t.name = q.dead_letter
   WHERE q.id = p_queue_id AND t.id <> q.id;
  SET p_killed = JSON_LENGTH(CONCAT('[', p_ids, ']'));
  IF v_target IS NULL THEN
    UPDATE JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      SET m.state = 'x', m.wake_at = p_now, m.permit = 0, m.begun = 0, m.error = p_error,
          m.recovered = IF(p_verb, 0, m.recovered);
  ELSE
    UPDATE JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      SET m.lane = v_lane, m.state = 'r', m.wake_at = 0, m.due_at = p_now, m.attempts = 0,
          m.`key` = NULL, m.expires_at = p_now + v_expires, m.permit = 0, m.begun = 0,
          m.error = p_error, m.recovered = IF(p_verb, 0, m.recovered);
    INSERT INTO fairlead_tally (queue_id, minute, sent)
      VALUES (v_target, p_now - p_now MOD 60000000, p_killed);
  END IF;
END //

-- Lock one message by id or key: its id and state, or NULLs.
DROP PROCEDURE IF EXISTS fairlead_find_ //
CREATE PROCEDURE fairlead_find_(
  IN p_lane INT, IN p_id BIGINT, IN p_key VARBINARY(1024), OUT p_found BIGINT, OUT p_state BINARY(1)
)
BEGIN
  SET p_found = NULL, p_state = NULL;
  IF p_id IS NULL THEN
    SELECT id INTO p_id FROM fairlead_message FORCE INDEX (`key`)
     WHERE lane = p_lane AND `key` = p_key;
  END IF;
  -- @stop find.lock
  SELECT id, state INTO p_found, p_state FROM fairlead_message
   WHERE id = p_id AND lane = p_lane AND (p_key IS NULL OR `key` = p_key) FOR UPDATE;
END //

-- CALL fairlead_cancel('emails', 7, NULL, '{"force": 1}'): c cancelled, l leased, n nothing to cancel.
DROP PROCEDURE IF EXISTS fairlead_cancel //
CREATE PROCEDURE fairlead_cancel(
  IN p_queue VARBINARY(1024), IN p_id BIGINT, IN p_key VARBINARY(1024),
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane INT;
  DECLARE v_now, v_id BIGINT;
  DECLARE v_state BINARY(1);
  DECLARE v_outcome CHAR(1) CHARACTER SET ascii DEFAULT 'n';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_queue_id, v_lane, v_now);
  CALL fairlead_find_(v_lane, p_id, p_key, v_id, v_state);
  IF v_state IN ('h', 's', 'r')
     OR v_state IS NOT NULL AND JSON_VALUE(p_options, '$.force') IN ('1', 'true') THEN
    DELETE FROM fairlead_message WHERE id = v_id;
    INSERT INTO fairlead_tally (queue_id, minute, cancelled)
      VALUES (v_queue_id, v_now - v_now MOD 60000000, 1);
    SET v_outcome = 'c';
  ELSEIF v_state = 'l' THEN
    SET v_outcome = 'l';
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_outcome AS outcome;
END //

-- Options: due_us, or delay (seconds) or delay_us; priority or rank. c changed, l leased, n not waiting.
DROP PROCEDURE IF EXISTS fairlead_reschedule //
CREATE PROCEDURE fairlead_reschedule(
  IN p_queue VARBINARY(1024), IN p_id BIGINT, IN p_key VARBINARY(1024),
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_rank INT;
  DECLARE v_now, v_id, v_due BIGINT;
  DECLARE v_state BINARY(1);
  DECLARE v_outcome CHAR(1) CHARACTER SET ascii DEFAULT 'n';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_queue_id, v_lane, v_now);
  CALL fairlead_find_(v_lane, p_id, p_key, v_id, v_state);
  IF v_state IN ('s', 'r') THEN
    SET v_rank = COALESCE(JSON_VALUE(p_options, '$.rank'), -JSON_VALUE(p_options, '$.priority')),
        v_due = COALESCE(JSON_VALUE(p_options, '$.due_us'), v_now + COALESCE(
          JSON_VALUE(p_options, '$.delay_us'), ROUND(JSON_VALUE(p_options, '$.delay') * 1000000)));
    IF v_due IS NOT NULL THEN
      UPDATE fairlead_message SET due_at = v_due, state = IF(v_due <= v_now, 'r', 's'),
             wake_at = IF(v_due <= v_now, 0, v_due) WHERE id = v_id;
    END IF;
    IF v_rank IS NOT NULL THEN
      UPDATE fairlead_message SET `rank` = v_rank WHERE id = v_id;
    END IF;
    SET v_outcome = 'c';
  ELSEIF v_state = 'l' THEN
    SET v_outcome = 'l';
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_outcome AS outcome;
END //

-- CALL fairlead_redrive('emails', NULL, 100, '{"delay": 5}'): dead messages back to work, here or in
-- another queue; how many.
DROP PROCEDURE IF EXISTS fairlead_redrive //
CREATE PROCEDURE fairlead_redrive(
  IN p_queue VARBINARY(1024), IN p_to VARBINARY(1024), IN p_limit INT,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_to_id, v_to_lane, v_count, v_portion INT;
  DECLARE v_total INT DEFAULT 0;
  DECLARE v_now, v_due BIGINT;
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_queue_id, v_lane, v_now);
  SET v_to_lane = v_lane;
  IF p_to IS NOT NULL THEN
    CALL fairlead_queue_(p_to, v_now, v_to_id, v_to_lane, v_now);
    IF v_to_id = v_queue_id THEN SET p_to = NULL; END IF;
  END IF;
  SET v_due = v_now + COALESCE(JSON_VALUE(p_options, '$.delay_us'),
        ROUND(JSON_VALUE(p_options, '$.delay') * 1000000), 0);
  -- In portions that a list of ids can hold.
  batch: WHILE v_total < p_limit DO
    SET v_portion = LEAST(p_limit - v_total, 10000);
    SELECT GROUP_CONCAT(id), COUNT(*) INTO v_ids, v_count FROM (
      SELECT id FROM fairlead_message FORCE INDEX (wake)
       WHERE lane = v_lane AND state = 'x' ORDER BY wake_at, id LIMIT v_portion
       FOR UPDATE SKIP LOCKED) dead;
    IF v_count = 0 THEN LEAVE batch; END IF;
    UPDATE JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      SET m.lane = v_to_lane, m.state = IF(v_due <= v_now, 'r', 's'),
          m.wake_at = IF(v_due <= v_now, 0, v_due), m.due_at = v_due, m.attempts = 0, m.begun = 0,
          m.`key` = IF(p_to IS NULL, m.`key`, NULL);
    SET v_total = v_total + v_count;
  END WHILE;
  IF p_to IS NOT NULL AND v_total > 0 THEN
    INSERT INTO fairlead_tally (queue_id, minute, sent)
      VALUES (v_to_id, v_now - v_now MOD 60000000, v_total);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_total AS redriven;
END //

-- CALL fairlead_discard('emails', 'x', 100, '{}'): delete done (d) or dead (x) messages; how many.
DROP PROCEDURE IF EXISTS fairlead_discard //
CREATE PROCEDURE fairlead_discard(
  IN p_queue VARBINARY(1024), IN p_state BINARY(1), IN p_limit INT,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_count INT;
  DECLARE v_now BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  IF p_state NOT IN ('d', 'x') THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45006, MESSAGE_TEXT = 'the state is d (done) or x (dead)';
  END IF;
  CALL fairlead_open_(v_own);
  CALL fairlead_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_queue_id, v_lane, v_now);
  CALL fairlead_delete_(v_lane, p_state, NULL, p_limit, v_count);
  IF v_count > 0 THEN
    INSERT INTO fairlead_tally (queue_id, minute, cancelled)
      VALUES (v_queue_id, v_now - v_now MOD 60000000, v_count);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_count AS discarded;
END //

-- Delete messages of a lane in one state, oldest first, finished at p_until at the latest.
DROP PROCEDURE IF EXISTS fairlead_delete_ //
CREATE PROCEDURE fairlead_delete_(
  IN p_lane INT, IN p_state BINARY(1), IN p_until BIGINT, IN p_limit INT, OUT p_total INT
)
BEGIN
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_count, v_portion INT;
  SET p_total = 0;
  batch: WHILE p_total < p_limit DO
    SET v_portion = LEAST(p_limit - p_total, 10000);
    SELECT GROUP_CONCAT(id), COUNT(*) INTO v_ids, v_count FROM (
      SELECT id FROM fairlead_message FORCE INDEX (wake)
       WHERE lane = p_lane AND state = p_state AND wake_at <= COALESCE(p_until, 9223372036854775807)
       ORDER BY wake_at, id LIMIT v_portion FOR UPDATE SKIP LOCKED) finished;
    IF v_count = 0 THEN LEAVE batch; END IF;
    DELETE m FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id;
    SET p_total = p_total + v_count;
  END WHILE;
END //

DROP PROCEDURE IF EXISTS fairlead_permit_create //
CREATE PROCEDURE fairlead_permit_create(IN p_name VARBINARY(255), IN p_ttl_us BIGINT, IN p_now BIGINT)
BEGIN
  DECLARE v_now BIGINT
    DEFAULT COALESCE(p_now, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
  INSERT INTO fairlead_permit (name, created_at, expires_at) VALUES (p_name, v_now, v_now + p_ttl_us);
  SELECT LAST_INSERT_ID() AS id;
END //

-- 1 if it is alive: an expired permit is never revived.
DROP PROCEDURE IF EXISTS fairlead_permit_extend //
CREATE PROCEDURE fairlead_permit_extend(IN p_permit BIGINT, IN p_ttl_us BIGINT, IN p_now BIGINT)
BEGIN
  DECLARE v_now BIGINT
    DEFAULT COALESCE(p_now, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
  DECLARE v_alive TINYINT DEFAULT 0;
  UPDATE fairlead_permit SET expires_at = v_now + p_ttl_us
   WHERE id = p_permit AND expires_at > v_now;
  -- The row count of an UPDATE that changes nothing depends on the client's flags, so this asks.
  SELECT COUNT(*) INTO v_alive FROM fairlead_permit
   WHERE id = p_permit AND expires_at >= v_now + p_ttl_us;
  SELECT v_alive AS alive;
END //

DROP PROCEDURE IF EXISTS fairlead_permit_close //
CREATE PROCEDURE fairlead_permit_close(IN p_permit BIGINT)
BEGIN
  DELETE FROM fairlead_permit WHERE id = p_permit;
END //

DELIMITER ;
