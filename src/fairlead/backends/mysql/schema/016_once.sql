-- What a queue remembers for a while (docs/semantics.md, 19): the names of sends, and values under names
-- of yours. It hangs on the lane: purge and drop forget it at once, and it is swept later.
--
-- A send takes its name before its message has an id, so for a moment the row says 0. Nobody else sees
-- that: the row is locked until the transaction ends, and then it has the id or is gone. One that does
-- say 0 was left by a transaction that committed after an error, and is free.
--
-- Senders of one name wait for each other, and nobody else does. They wait in a locking read, which under
-- READ COMMITTED keeps nothing where there is no row: INSERTs that wait for a row whose sender rolls back
-- are left with its gap, each of them, and then deadlock. Under stricter levels a locking read would keep
-- that gap by itself, so there they only INSERT; a deadlock is then reported, never a second message.

CREATE TABLE IF NOT EXISTS fairlead_remembered (
  lane INT NOT NULL,
  kind BINARY(1) NOT NULL, -- o once, v value
  name VARBINARY(255) NOT NULL,
  expires_at BIGINT NOT NULL,
  message_id BIGINT NOT NULL DEFAULT 0, -- of a send: the message, which may be gone
  value MEDIUMBLOB NULL, -- JSON
  PRIMARY KEY (lane, kind, name),
  KEY expiry (lane, expires_at)
) ENGINE = InnoDB;

DELIMITER //

-- Take a name for a message to come. p_id: the message that has it already; NULL: the name is ours.
DROP PROCEDURE IF EXISTS fairlead_once_ //
CREATE PROCEDURE fairlead_once_(
  IN p_lane INT, IN p_name VARBINARY(1024), IN p_expires BIGINT, IN p_now BIGINT, OUT p_id BIGINT
)
once_: BEGIN
  DECLARE v_id, v_until BIGINT DEFAULT NULL;
  -- A look costs no lock.
  SELECT message_id, expires_at INTO v_id, v_until FROM fairlead_remembered
   WHERE lane = p_lane AND kind = 'o' AND name = p_name;
  IF v_id > 0 AND v_until > p_now THEN
    SET p_id = v_id;
    LEAVE once_;
  END IF;
  -- @stop once.wait
  IF /*M!100600 @@session.tx_isolation */ /*!80000 @@session.transaction_isolation */ = 'READ-COMMITTED' THEN
    SELECT message_id, expires_at INTO v_id, v_until FROM fairlead_remembered
     WHERE lane = p_lane AND kind = 'o' AND name = p_name FOR UPDATE;
    IF v_id > 0 AND v_until > p_now THEN
      SET p_id = v_id;
      LEAVE once_;
    END IF;
  END IF;
  -- @stop once.take
  INSERT INTO fairlead_remembered (lane, kind, name, expires_at) VALUES (p_lane, 'o', p_name, p_expires)
    ON DUPLICATE KEY UPDATE message_id = IF(expires_at <= p_now, 0, message_id),
      expires_at = IF(message_id = 0, VALUES(expires_at), expires_at);
  -- What it says now, whatever the transaction could see when it began.
  SELECT NULLIF(message_id, 0) INTO p_id FROM fairlead_remembered
   WHERE lane = p_lane AND kind = 'o' AND name = p_name FOR UPDATE;
END //

-- Before fairlead_put_ of one message: p_id is what was sent under its name before, or NULL and the name is
-- ours. Without a queue, or with a body that is too large, nothing is taken: fairlead_put_ says what is wrong.
DROP PROCEDURE IF EXISTS fairlead_take_one_ //
CREATE PROCEDURE fairlead_take_one_(
  IN p_once VARBINARY(1024), IN p_once_us BIGINT, IN p_queue VARBINARY(1024), IN p_size BIGINT, IN p_given BIGINT,
  OUT p_lane INT, OUT p_now BIGINT, OUT p_id BIGINT
)
BEGIN
  SELECT lane, COALESCE(p_given, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    INTO p_lane, p_now FROM fairlead_queue WHERE name = p_queue AND max_body >= p_size;
  IF p_lane IS NOT NULL THEN
    CALL fairlead_once_(p_lane, p_once, p_now + p_once_us, p_now, p_id);
  END IF;
END //

-- After it: the name has its message, or is free again.
DROP PROCEDURE IF EXISTS fairlead_give_one_ //
CREATE PROCEDURE fairlead_give_one_(
  IN p_once VARBINARY(1024), IN p_lane INT, IN p_id BIGINT, IN p_outcome CHAR(1) CHARACTER SET ascii
)
BEGIN
  DECLARE v_lane INT DEFAULT NULL;
  IF p_outcome = 's' THEN
    UPDATE fairlead_remembered SET message_id = p_id WHERE lane = p_lane AND kind = 'o' AND name = p_once;
    SELECT lane INTO v_lane FROM fairlead_message WHERE id = p_id;
    IF v_lane <> p_lane THEN
      SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'the queue was purged meanwhile';
    END IF;
  ELSE
    DELETE FROM fairlead_remembered WHERE lane = p_lane AND kind = 'o' AND name = p_once;
  END IF;
END //

-- The library's send of one message with a name: (id, outcome).
DROP PROCEDURE IF EXISTS fairlead_send_once //
CREATE PROCEDURE fairlead_send_once(
  IN p_once VARBINARY(1024), IN p_once_us BIGINT,
  IN p_queue VARBINARY(1024), IN p_channel VARBINARY(1024), IN p_body LONGBLOB, IN p_json TINYINT,
  IN p_rank INT, IN p_due BIGINT, IN p_delay BIGINT, IN p_version INT, IN p_type VARBINARY(1024),
  IN p_headers MEDIUMBLOB, IN p_lease BIGINT, IN p_max_attempts INT, IN p_expires BIGINT,
  IN p_group VARBINARY(1024), IN p_now BIGINT
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_id, v_now BIGINT;
  DECLARE v_lane INT;
  DECLARE v_outcome CHAR(1) CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_take_one_(p_once, p_once_us, p_queue, LENGTH(p_body), p_now, v_lane, v_now, v_id);
  IF v_id IS NOT NULL THEN
    SET v_outcome = 'd';
  ELSE
    CALL fairlead_put_(p_queue, p_channel, p_body, p_json, p_rank, p_due, p_delay, NULL, 'e', p_version,
      p_type, p_headers, p_lease, p_max_attempts, p_expires, NULL, p_group, v_now, v_id, v_outcome);
    CALL fairlead_give_one_(p_once, v_lane, v_id, v_outcome);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_id AS id, v_outcome AS outcome;
END //

-- Take the names of a batched send, in its transaction: [["hex", expires_at], …], in byte order and one after
-- the other, so that two calls wait for each other but not in a circle. Those that have a message: (name, id).
DROP PROCEDURE IF EXISTS fairlead_once_take //
CREATE PROCEDURE fairlead_once_take(
  IN p_lane INT, IN p_names LONGTEXT CHARACTER SET ascii, IN p_now BIGINT
)
BEGIN
  DECLARE v_done TINYINT DEFAULT 0;
  DECLARE v_name VARCHAR(510) CHARACTER SET ascii;
  DECLARE v_expires, v_id BIGINT;
  DECLARE v_held LONGTEXT CHARACTER SET ascii DEFAULT '';
  DECLARE v_names CURSOR FOR
    SELECT name, expires FROM JSON_TABLE(p_names, '$[*]' COLUMNS (n FOR ORDINALITY,
      name VARCHAR(510) CHARACTER SET ascii PATH '$[0]', expires BIGINT PATH '$[1]')) j ORDER BY n;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = 1;
  OPEN v_names;
  name: LOOP
    FETCH v_names INTO v_name, v_expires;
    IF v_done THEN LEAVE name; END IF;
    CALL fairlead_once_(p_lane, UNHEX(v_name), v_expires, p_now, v_id);
    -- A look that finds nothing inside the call also raises NOT FOUND here.
    SET v_done = 0, v_held = IF(v_id IS NULL, v_held, CONCAT(v_held, IF(v_held = '', '', ','), '["', v_name, '",', v_id, ']'));
  END LOOP;
  CLOSE v_names;
  SELECT CONCAT('[', v_held, ']') AS held;
END //

-- Its messages have ids now: [["hex", id], …]. Names whose id is 0 are free again.
DROP PROCEDURE IF EXISTS fairlead_once_sent //
CREATE PROCEDURE fairlead_once_sent(IN p_lane INT, IN p_sent LONGTEXT CHARACTER SET ascii)
BEGIN
  UPDATE JSON_TABLE(p_sent, '$[*]' COLUMNS (
      name VARCHAR(510) CHARACTER SET ascii PATH '$[0]', id BIGINT PATH '$[1]')) j
    STRAIGHT_JOIN fairlead_remembered r FORCE INDEX (PRIMARY)
      ON r.lane = p_lane AND r.kind = 'o' AND r.name = UNHEX(j.name)
    SET r.message_id = j.id;
  DELETE r FROM JSON_TABLE(p_sent, '$[*]' COLUMNS (
      name VARCHAR(510) CHARACTER SET ascii PATH '$[0]', id BIGINT PATH '$[1]')) j
    STRAIGHT_JOIN fairlead_remembered r FORCE INDEX (PRIMARY)
      ON r.lane = p_lane AND r.kind = 'o' AND r.name = UNHEX(j.name)
   WHERE j.id = 0;
END //

DROP PROCEDURE IF EXISTS fairlead_remember_row //
CREATE PROCEDURE fairlead_remember_row(
  IN p_queue VARBINARY(1024), IN p_name VARBINARY(1024), IN p_value MEDIUMBLOB, IN p_keep_us BIGINT,
  IN p_now BIGINT
)
BEGIN
  DECLARE v_id, v_lane, v_events INT;
  DECLARE v_now BIGINT;
  CALL fairlead_queue_(p_queue, p_now, v_id, v_lane, v_now, v_events);
  INSERT INTO fairlead_remembered (lane, kind, name, expires_at, value)
    VALUES (v_lane, 'v', p_name, v_now + p_keep_us, p_value)
    ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at), value = VALUES(value);
END //

-- CALL fairlead_remember('emails', 'name', '{"any": "JSON"}', 60): for 60 seconds, instead of what was there.
DROP PROCEDURE IF EXISTS fairlead_remember //
CREATE PROCEDURE fairlead_remember(
  IN p_queue VARCHAR(255) CHARACTER SET utf8mb4, IN p_name LONGTEXT CHARACTER SET utf8mb4,
  IN p_value LONGTEXT CHARACTER SET utf8mb4, IN p_keep DOUBLE
)
BEGIN
  CALL fairlead_named_('', p_name, NULL, NULL, p_keep);
  IF p_name IS NULL OR p_keep IS NULL OR LENGTH(p_value) > 65536 OR NOT COALESCE(JSON_VALID(p_value), 0) THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45006, MESSAGE_TEXT =
      'a name, a value that is JSON of at most 65536 bytes, and how many seconds to keep it';
  END IF;
  CALL fairlead_remember_row(p_queue, p_name, p_value, ROUND(p_keep * 1000000), NULL);
END //

-- CALL fairlead_recall('emails', 'name', NULL): the value, or no row.
DROP PROCEDURE IF EXISTS fairlead_recall //
CREATE PROCEDURE fairlead_recall(
  IN p_queue VARBINARY(1024), IN p_name VARBINARY(1024), IN p_now BIGINT
)
BEGIN
  DECLARE v_id, v_lane, v_events INT;
  DECLARE v_now BIGINT;
  CALL fairlead_queue_(p_queue, p_now, v_id, v_lane, v_now, v_events);
  SELECT value FROM fairlead_remembered
   WHERE lane = v_lane AND kind = 'v' AND name = p_name AND expires_at > v_now;
END //

-- Delete what has expired by p_until, oldest first. What somebody has locked is left.
DROP PROCEDURE IF EXISTS fairlead_forget_names_ //
CREATE PROCEDURE fairlead_forget_names_(
  IN p_lane INT, IN p_until BIGINT, IN p_limit INT, OUT p_total INT
)
BEGIN
  DECLARE v_names LONGTEXT CHARACTER SET ascii;
  DECLARE v_count, v_size INT;
  SET p_total = 0;
  batch: WHILE p_total < p_limit DO
    SET v_size = LEAST(p_limit - p_total, 1000); -- what a list of names can hold
    SELECT GROUP_CONCAT(CONCAT('["', HEX(kind), '","', HEX(name), '"]')), COUNT(*) INTO v_names, v_count FROM (
      SELECT kind, name FROM fairlead_remembered FORCE INDEX (expiry)
       WHERE lane = p_lane AND expires_at <= p_until ORDER BY expires_at LIMIT v_size
       FOR UPDATE SKIP LOCKED) past;
    IF v_count = 0 THEN LEAVE batch; END IF;
    DELETE r FROM JSON_TABLE(CONCAT('[', v_names, ']'), '$[*]' COLUMNS (
        kind VARCHAR(2) CHARACTER SET ascii PATH '$[0]', name VARCHAR(510) CHARACTER SET ascii PATH '$[1]')) j
      STRAIGHT_JOIN fairlead_remembered r FORCE INDEX (PRIMARY)
        ON r.lane = p_lane AND r.kind = UNHEX(j.kind) AND r.name = UNHEX(j.name);
    SET p_total = p_total + v_count;
  END WHILE;
END //

DELIMITER ;
