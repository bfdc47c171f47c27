-- Dead messages and the failure log, waiting and finished messages, permits (docs/semantics.md, 2.4, 6-8).

DELIMITER //

-- Write a row of the failure log for each message ("1,2").
CREATE PROCEDURE fairturn_log_(
  IN p_queue_id INT, IN p_ids LONGTEXT CHARACTER SET ascii, IN p_now BIGINT, IN p_fatal TINYINT,
  IN p_error MEDIUMBLOB, IN p_details MEDIUMBLOB, IN p_reference MEDIUMBLOB
)
BEGIN
  INSERT INTO fairturn_failure
      (queue_id, message_id, `key`, attempt, at, fatal, error, details, reference)
    SELECT p_queue_id, m.id, m.`key`, m.attempts, p_now, p_fatal, p_error, p_details, p_reference
      FROM JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id;
END //

-- Locked messages die: they are dead in this queue, or ready in its dead-letter queue, if that is another
-- queue and exists. p_grouped: how many of them may have a group. p_verb: 1 for a verb, 0 for an expired lease.
CREATE PROCEDURE fairturn_die_(
  IN p_queue_id INT, IN p_ids LONGTEXT CHARACTER SET ascii, IN p_grouped INT, IN p_now BIGINT,
  IN p_verb TINYINT, IN p_error MEDIUMBLOB, IN p_details MEDIUMBLOB, IN p_reference MEDIUMBLOB,
  OUT p_killed INT
)
BEGIN
  DECLARE v_target, v_lane, v_events, v_target_events INT DEFAULT NULL;
  DECLARE v_expires BIGINT;
  SELECT q.events, t.id, t.lane, t.expires_us, t.events
    INTO v_events, v_target, v_lane, v_expires, v_target_events
    FROM fairturn_queue q LEFT JOIN fairturn_queue t ON t.name = q.dead_letter AND t.id <> q.id
   WHERE q.id = p_queue_id;
  CALL fairturn_log_(p_queue_id, p_ids, p_now, 1, p_error, p_details, p_reference);
  IF p_grouped > 0 THEN CALL fairturn_leave_(p_ids, 0, 1); END IF;
  IF v_events THEN CALL fairturn_emit_(p_queue_id, p_ids, 'dead', p_error, p_now); END IF;
  SET p_killed = JSON_LENGTH(CONCAT('[', p_ids, ']'));
  IF v_target IS NULL THEN
    UPDATE JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      SET m.state = 'x', m.wake_at = p_now, m.permit = 0, m.begun = 0, m.error = p_error,
          m.recovered = IF(p_verb, 0, m.recovered);
  ELSE
    UPDATE JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      SET m.lane = v_lane, m.state = 'r', m.wake_at = 0, m.due_at = p_now, m.attempts = 0,
          m.`key` = NULL, m.expires_at = p_now + v_expires, m.permit = 0, m.begun = 0,
          m.group_id = NULL, m.died_in = p_queue_id,
          m.error = p_error, m.recovered = IF(p_verb, 0, m.recovered);
    INSERT INTO fairturn_tally (queue_id, minute, sent)
      VALUES (v_target, p_now - p_now MOD 60000000, p_killed);
    IF v_target_events THEN CALL fairturn_emit_(v_target, p_ids, 'created', NULL, p_now); END IF;
  END IF;
END //

-- Lock one message, found by id or key. Its id, state and group are NULL if there is none.
CREATE PROCEDURE fairturn_find_(
  IN p_lane INT, IN p_id BIGINT, IN p_key VARBINARY(1024), OUT p_found BIGINT, OUT p_state BINARY(1),
  OUT p_group BIGINT
)
BEGIN
  SET p_found = NULL, p_state = NULL, p_group = NULL;
  IF p_id IS NULL THEN
    SELECT id INTO p_id FROM fairturn_message FORCE INDEX (`key`)
     WHERE key_lane = p_lane AND `key` = p_key;
  END IF;
  -- @stop find.lock
  SELECT id, state, group_id INTO p_found, p_state, p_group FROM fairturn_message
   WHERE id = p_id AND lane = p_lane AND (p_key IS NULL OR `key` = p_key) FOR UPDATE;
END //

-- CALL fairturn_cancel('emails', 7, NULL, '{"force": 1}'): c cancelled, l leased, n nothing to cancel.
CREATE PROCEDURE fairturn_cancel(
  IN p_queue VARBINARY(1024), IN p_id BIGINT, IN p_key VARBINARY(1024),
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events INT;
  DECLARE v_now, v_id, v_group BIGINT;
  DECLARE v_state BINARY(1);
  DECLARE v_outcome CHAR(1) CHARACTER SET ascii DEFAULT 'n';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_known_(p_options, 'force,now');
  CALL fairturn_open_(v_own);
  CALL fairturn_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_queue_id, v_lane, v_now, v_events);
  CALL fairturn_find_(v_lane, p_id, p_key, v_id, v_state, v_group);
  IF v_state IN ('h', 's', 'r')
     OR v_state IS NOT NULL AND JSON_VALUE(p_options, '$.force') IN ('1', 'true') THEN
    IF v_group IS NOT NULL THEN CALL fairturn_leave_(v_id, 0, 0); END IF;
    IF v_events THEN CALL fairturn_emit_(v_queue_id, v_id, 'deleted', NULL, v_now); END IF;
    DELETE FROM fairturn_message WHERE id = v_id;
    INSERT INTO fairturn_tally (queue_id, minute, cancelled)
      VALUES (v_queue_id, v_now - v_now MOD 60000000, 1);
    SET v_outcome = 'c';
  ELSEIF v_state = 'l' THEN
    SET v_outcome = 'l';
  END IF;
  IF v_own THEN
    COMMIT;
    -- Not left to the library: it does not know whether the message was a member.
    IF v_outcome = 'c' AND v_group IS NOT NULL THEN CALL fairturn_settle_after_(v_now); END IF;
  END IF;
  SELECT v_outcome AS outcome;
END //

-- Options: due_us, or delay (seconds) or delay_us; priority or rank. Outcomes: c changed, l leased, n neither.
CREATE PROCEDURE fairturn_reschedule(
  IN p_queue VARBINARY(1024), IN p_id BIGINT, IN p_key VARBINARY(1024),
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_rank INT;
  DECLARE v_now, v_id, v_due, v_group BIGINT;
  DECLARE v_state BINARY(1);
  DECLARE v_outcome CHAR(1) CHARACTER SET ascii DEFAULT 'n';
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_known_(p_options, 'delay,delay_us,due_us,priority,rank,now');
  CALL fairturn_open_(v_own);
  CALL fairturn_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_queue_id, v_lane, v_now, v_events);
  CALL fairturn_find_(v_lane, p_id, p_key, v_id, v_state, v_group);
  IF v_state IN ('s', 'r') THEN
    SET v_rank = COALESCE(JSON_VALUE(p_options, '$.rank'), -JSON_VALUE(p_options, '$.priority')),
        v_due = COALESCE(JSON_VALUE(p_options, '$.due_us'), v_now + COALESCE(
          JSON_VALUE(p_options, '$.delay_us'), ROUND(JSON_VALUE(p_options, '$.delay') * 1000000)));
    UPDATE fairturn_message
       SET `rank` = COALESCE(v_rank, `rank`), due_at = COALESCE(v_due, due_at),
           state = IF(v_due IS NULL, state, IF(v_due <= v_now, 'r', 's')),
           wake_at = IF(v_due IS NULL, wake_at, IF(v_due <= v_now, 0, v_due))
     WHERE id = v_id;
    IF v_events THEN CALL fairturn_emit_(v_queue_id, v_id, 'deferred', NULL, v_now); END IF;
    SET v_outcome = 'c';
  ELSEIF v_state = 'l' THEN
    SET v_outcome = 'l';
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_outcome AS outcome;
END //

-- CALL fairturn_redrive('emails', NULL, 100, '{"delay": 5}'): give dead messages fresh attempts, in their queue
-- (NULL) or in another one; how many.
CREATE PROCEDURE fairturn_redrive(
  IN p_queue VARBINARY(1024), IN p_to VARBINARY(1024), IN p_limit INT,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_to_id, v_to_lane, v_to_events, v_count, v_portion,
    v_grouped INT;
  DECLARE v_total INT DEFAULT 0;
  DECLARE v_now, v_due BIGINT;
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_known_(p_options, 'delay,delay_us,now');
  CALL fairturn_open_(v_own);
  CALL fairturn_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_queue_id, v_lane, v_now, v_events);
  SET v_to_lane = v_lane;
  IF p_to IS NOT NULL THEN
    CALL fairturn_queue_(p_to, v_now, v_to_id, v_to_lane, v_now, v_to_events);
    IF v_to_id = v_queue_id THEN SET p_to = NULL; END IF;
  END IF;
  SET v_due = v_now + COALESCE(JSON_VALUE(p_options, '$.delay_us'),
        ROUND(JSON_VALUE(p_options, '$.delay') * 1000000), 0);
  -- At most 10,000 at a time: a list can hold so many ids.
  batch: WHILE v_total < p_limit DO
    SET v_portion = LEAST(p_limit - v_total, 10000);
    SELECT GROUP_CONCAT(id), COUNT(*), COUNT(group_id) INTO v_ids, v_count, v_grouped FROM (
      SELECT id, group_id FROM fairturn_message FORCE INDEX (wake)
       WHERE lane = v_lane AND state = 'x' ORDER BY wake_at, id LIMIT v_portion
       FOR UPDATE SKIP LOCKED) dead;
    IF v_count = 0 THEN LEAVE batch; END IF;
    UPDATE JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      SET m.lane = v_to_lane, m.state = IF(v_due <= v_now, 'r', 's'),
          m.wake_at = IF(v_due <= v_now, 0, v_due), m.due_at = v_due, m.attempts = 0, m.begun = 0,
          m.`key` = IF(p_to IS NULL, m.`key`, NULL),
          m.group_id = IF(p_to IS NULL, m.group_id, NULL),
          m.died_in = IF(p_to IS NULL, m.died_in, NULL), m.first_at = 0;
    IF v_grouped > 0 AND p_to IS NULL THEN
      CALL fairturn_members_joined(CONCAT('[', v_ids, ']'), '[]');
    END IF;
    IF p_to IS NULL AND v_events THEN
      CALL fairturn_emit_(v_queue_id, v_ids, 'deferred', NULL, v_now);
    ELSEIF p_to IS NOT NULL AND v_to_events THEN
      CALL fairturn_emit_(v_to_id, v_ids, 'created', NULL, v_now);
    END IF;
    SET v_total = v_total + v_count;
  END WHILE;
  IF p_to IS NOT NULL AND v_total > 0 THEN
    INSERT INTO fairturn_tally (queue_id, minute, sent)
      VALUES (v_to_id, v_now - v_now MOD 60000000, v_total);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_total AS redriven;
END //

-- CALL fairturn_discard('emails', 'x', 100, '{}'): delete done (d) or dead (x) messages; how many.
CREATE PROCEDURE fairturn_discard(
  IN p_queue VARBINARY(1024), IN p_state BINARY(1), IN p_limit INT,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_count INT;
  DECLARE v_now BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  IF p_state NOT IN ('d', 'x') THEN
    CALL fairturn_refuse_(45006, 'the state is d (done) or x (dead)');
  END IF;
  CALL fairturn_known_(p_options, 'now');
  CALL fairturn_open_(v_own);
  CALL fairturn_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_queue_id, v_lane, v_now, v_events);
  CALL fairturn_delete_(v_lane, p_state, 9223372036854775807, p_limit, IF(v_events, v_queue_id, NULL), v_now, v_count);
  IF v_count > 0 THEN
    INSERT INTO fairturn_tally (queue_id, minute, cancelled)
      VALUES (v_queue_id, v_now - v_now MOD 60000000, v_count);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_count AS discarded;
END //

-- Delete messages of a lane that are in one state and finished at p_until at the latest, oldest first.
-- p_told: the queue that records events of it, or NULL.
CREATE PROCEDURE fairturn_delete_(
  IN p_lane INT, IN p_state BINARY(1), IN p_until BIGINT, IN p_limit INT, IN p_told INT,
  IN p_now BIGINT, OUT p_total INT
)
BEGIN
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_count, v_portion INT;
  SET p_total = 0;
  batch: WHILE p_total < p_limit DO
    SET v_portion = LEAST(p_limit - p_total, 10000);
    CALL fairturn_lock_(p_lane, p_state, p_until, v_portion, v_ids, v_count);
    IF v_count = 0 THEN LEAVE batch; END IF;
    IF p_told IS NOT NULL THEN CALL fairturn_emit_(p_told, v_ids, 'deleted', NULL, p_now); END IF;
    DELETE m FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id;
    SET p_total = p_total + v_count;
  END WHILE;
END //

-- A number that nobody has had before, of 52 bits, so that every reader of JSON keeps it exactly: the token of
-- a lease, or the id of a permit. RAND() alone would repeat itself, and RANDOM_BYTES() is too new.
CREATE PROCEDURE fairturn_new_token_(OUT p_token BIGINT)
BEGIN
  SET p_token = 1 + CONV(LEFT(SHA2(CONCAT(UUID(), RAND(), CONNECTION_ID()), 256), 13), 16, 10);
END //

-- p_id NULL: a new one.
CREATE PROCEDURE fairturn_permit_create(
  IN p_name VARBINARY(255), IN p_ttl_us BIGINT, IN p_now BIGINT, IN p_id BIGINT
)
BEGIN
  DECLARE v_now BIGINT
    DEFAULT COALESCE(p_now, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
  DECLARE v_id BIGINT DEFAULT p_id;
  IF v_id IS NULL THEN CALL fairturn_new_token_(v_id); END IF;
  INSERT INTO fairturn_permit (id, name, created_at, expires_at)
    VALUES (v_id, p_name, v_now, v_now + p_ttl_us);
  SELECT v_id AS id;
END //

-- 1 if the permit is alive. An expired permit is never extended.
CREATE PROCEDURE fairturn_permit_extend(IN p_permit BIGINT, IN p_ttl_us BIGINT, IN p_now BIGINT)
BEGIN
  DECLARE v_now BIGINT
    DEFAULT COALESCE(p_now, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
  DECLARE v_alive TINYINT DEFAULT 0;
  UPDATE fairturn_permit SET expires_at = v_now + p_ttl_us
   WHERE id = p_permit AND expires_at > v_now;
  -- Not ROW_COUNT(): it depends on the client's flags whether that counts a row without a change.
  SELECT COUNT(*) INTO v_alive FROM fairturn_permit
   WHERE id = p_permit AND expires_at >= v_now + p_ttl_us;
  SELECT v_alive AS alive;
END //

CREATE PROCEDURE fairturn_permit_close(IN p_permit BIGINT)
BEGIN
  DELETE FROM fairturn_permit WHERE id = p_permit;
END //

DELIMITER ;
