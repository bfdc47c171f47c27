-- What a queue remembers for a while (docs/semantics.md, 19).
--
-- A send takes its name before its message has an id: until then the row has the id 0. No other session sees
-- this, because the row is locked until the transaction ends, and then it has the id or is deleted. If a row
-- does have the id 0, a transaction committed after an error: the name is free.
--
-- Only senders of the same name wait for each other. They wait in a locking read. Under READ COMMITTED it
-- keeps no lock where there is no row. INSERTs would wait, too, but if the first sender rolls back, each of
-- them keeps a lock on the gap, and they deadlock. Under stricter levels a locking read keeps a lock on the
-- gap as well. So there is only the INSERT; a deadlock is then an error, and never a second message.

DELIMITER //

-- Take a name for a message that will be sent. p_id: the message that has the name already, or NULL: taken.
CREATE PROCEDURE fairturn_once_(
  IN p_lane INT, IN p_name VARBINARY(1024), IN p_expires BIGINT, IN p_now BIGINT, OUT p_id BIGINT
)
once_: BEGIN
  DECLARE v_id, v_until BIGINT DEFAULT NULL;
  -- First without a lock.
  SELECT message_id, expires_at INTO v_id, v_until FROM fairturn_remembered
   WHERE lane = p_lane AND kind = 'o' AND name = p_name;
  IF v_id > 0 AND v_until > p_now THEN
    SET p_id = v_id;
    LEAVE once_;
  END IF;
  -- @stop once.wait
  IF /*M!100600 @@session.tx_isolation */ /*!80000 @@session.transaction_isolation */ = 'READ-COMMITTED' THEN
    SELECT message_id, expires_at INTO v_id, v_until FROM fairturn_remembered
     WHERE lane = p_lane AND kind = 'o' AND name = p_name FOR UPDATE;
    IF v_id > 0 AND v_until > p_now THEN
      SET p_id = v_id;
      LEAVE once_;
    END IF;
  END IF;
  -- @stop once.take
  INSERT INTO fairturn_remembered (lane, kind, name, expires_at) VALUES (p_lane, 'o', p_name, p_expires)
    ON DUPLICATE KEY UPDATE message_id = IF(expires_at <= p_now, 0, message_id),
      expires_at = IF(message_id = 0, VALUES(expires_at), expires_at);
  -- FOR UPDATE reads the present row, even if the caller's snapshot is older.
  SELECT NULLIF(message_id, 0) INTO p_id FROM fairturn_remembered
   WHERE lane = p_lane AND kind = 'o' AND name = p_name FOR UPDATE;
END //

-- Take the name of one message before fairturn_put_ sends it. p_id: the message that was sent under the name
-- before, or NULL. If there is no such queue, or the body is too large, no name is taken: fairturn_put_ raises
-- the error.
CREATE PROCEDURE fairturn_take_one_(
  IN p_once VARBINARY(1024), IN p_once_us BIGINT, IN p_queue VARBINARY(1024), IN p_size BIGINT, IN p_given BIGINT,
  OUT p_lane INT, OUT p_now BIGINT, OUT p_id BIGINT
)
BEGIN
  SELECT lane, COALESCE(p_given, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    INTO p_lane, p_now FROM fairturn_queue WHERE name = p_queue AND max_body >= p_size;
  IF p_lane IS NOT NULL THEN
    CALL fairturn_once_(p_lane, p_once, p_now + p_once_us, p_now, p_id);
  END IF;
END //

-- After fairturn_put_: give the name its message, or free it if nothing was sent.
CREATE PROCEDURE fairturn_give_one_(
  IN p_once VARBINARY(1024), IN p_lane INT, IN p_id BIGINT, IN p_outcome CHAR(1) CHARACTER SET ascii
)
BEGIN
  DECLARE v_lane INT DEFAULT NULL;
  IF p_outcome = 's' THEN
    UPDATE fairturn_remembered SET message_id = p_id WHERE lane = p_lane AND kind = 'o' AND name = p_once;
    SELECT lane INTO v_lane FROM fairturn_message WHERE id = p_id;
    IF v_lane <> p_lane THEN
      SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'the queue was purged meanwhile';
    END IF;
  ELSE
    DELETE FROM fairturn_remembered WHERE lane = p_lane AND kind = 'o' AND name = p_once;
  END IF;
END //

-- The library's send of one message with a once name: (id, outcome).
CREATE PROCEDURE fairturn_send_once(
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
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_open_(v_own);
  CALL fairturn_take_one_(p_once, p_once_us, p_queue, LENGTH(p_body), p_now, v_lane, v_now, v_id);
  IF v_id IS NOT NULL THEN
    SET v_outcome = 'd';
  ELSE
    CALL fairturn_put_(p_queue, p_channel, p_body, p_json, p_rank, p_due, p_delay, NULL, 'e', p_version,
      p_type, p_headers, p_lease, p_max_attempts, p_expires, NULL, p_group, v_now, v_id, v_outcome);
    CALL fairturn_give_one_(p_once, v_lane, v_id, v_outcome);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_id AS id, v_outcome AS outcome;
END //

-- Take the names of a batched send in its transaction: [["hex", expires_at], …]. They are in byte order and are
-- taken one after the other, so that two calls do not deadlock. One row, the names that have a message already:
-- [["hex", id], …].
CREATE PROCEDURE fairturn_once_take(
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
    CALL fairturn_once_(p_lane, UNHEX(v_name), v_expires, p_now, v_id);
    -- A SELECT INTO without a row inside the call also raises NOT FOUND here.
    SET v_done = 0, v_held = IF(v_id IS NULL, v_held, CONCAT(v_held, IF(v_held = '', '', ','), '["', v_name, '",', v_id, ']'));
  END LOOP;
  CLOSE v_names;
  SELECT CONCAT('[', v_held, ']') AS held;
END //

-- Give the names of a batched send their messages: [["hex", id], …]. A name with the id 0 is free again.
CREATE PROCEDURE fairturn_once_sent(IN p_lane INT, IN p_sent LONGTEXT CHARACTER SET ascii)
BEGIN
  UPDATE JSON_TABLE(p_sent, '$[*]' COLUMNS (
      name VARCHAR(510) CHARACTER SET ascii PATH '$[0]', id BIGINT PATH '$[1]')) j
    STRAIGHT_JOIN fairturn_remembered r FORCE INDEX (PRIMARY)
      ON r.lane = p_lane AND r.kind = 'o' AND r.name = UNHEX(j.name)
    SET r.message_id = j.id;
  DELETE r FROM JSON_TABLE(p_sent, '$[*]' COLUMNS (
      name VARCHAR(510) CHARACTER SET ascii PATH '$[0]', id BIGINT PATH '$[1]')) j
    STRAIGHT_JOIN fairturn_remembered r FORCE INDEX (PRIMARY)
      ON r.lane = p_lane AND r.kind = 'o' AND r.name = UNHEX(j.name)
   WHERE j.id = 0;
END //

CREATE PROCEDURE fairturn_remember_row(
  IN p_queue VARBINARY(1024), IN p_name VARBINARY(1024), IN p_value MEDIUMBLOB, IN p_keep_us BIGINT,
  IN p_now BIGINT
)
BEGIN
  DECLARE v_id, v_lane, v_events INT;
  DECLARE v_now BIGINT;
  CALL fairturn_queue_(p_queue, p_now, v_id, v_lane, v_now, v_events);
  INSERT INTO fairturn_remembered (lane, kind, name, expires_at, value)
    VALUES (v_lane, 'v', p_name, v_now + p_keep_us, p_value)
    ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at), value = VALUES(value);
END //

-- CALL fairturn_remember('emails', 'name', '{"any": "JSON"}', 60): keep a value for 60 seconds. It replaces an
-- earlier value.
CREATE PROCEDURE fairturn_remember(
  IN p_queue VARCHAR(255) CHARACTER SET utf8mb4, IN p_name LONGTEXT CHARACTER SET utf8mb4,
  IN p_value LONGTEXT CHARACTER SET utf8mb4, IN p_keep DOUBLE
)
BEGIN
  CALL fairturn_named_('', p_name, NULL, NULL, p_keep);
  IF p_name IS NULL OR p_keep IS NULL OR LENGTH(p_value) > 65536 OR NOT COALESCE(JSON_VALID(p_value), 0) THEN
    CALL fairturn_refuse_(45006,
      'a name, a value that is JSON of at most 65536 bytes, and how many seconds to keep it');
  END IF;
  CALL fairturn_remember_row(p_queue, p_name, p_value, ROUND(p_keep * 1000000), NULL);
END //

-- CALL fairturn_recall('emails', 'name', NULL): the value, or no row.
CREATE PROCEDURE fairturn_recall(
  IN p_queue VARBINARY(1024), IN p_name VARBINARY(1024), IN p_now BIGINT
)
BEGIN
  DECLARE v_id, v_lane, v_events INT;
  DECLARE v_now BIGINT;
  CALL fairturn_queue_(p_queue, p_now, v_id, v_lane, v_now, v_events);
  SELECT value FROM fairturn_remembered
   WHERE lane = v_lane AND kind = 'v' AND name = p_name AND expires_at > v_now;
END //

-- Delete names and values that have expired at p_until, oldest first. Locked rows are skipped.
CREATE PROCEDURE fairturn_forget_names_(
  IN p_lane INT, IN p_until BIGINT, IN p_limit INT, OUT p_total INT
)
BEGIN
  DECLARE v_names LONGTEXT CHARACTER SET ascii;
  DECLARE v_count, v_size INT;
  SET p_total = 0;
  batch: WHILE p_total < p_limit DO
    SET v_size = LEAST(p_limit - p_total, 1000); -- so many names fit into a list
    SELECT GROUP_CONCAT(CONCAT('["', HEX(kind), '","', HEX(name), '"]')), COUNT(*) INTO v_names, v_count FROM (
      SELECT kind, name FROM fairturn_remembered FORCE INDEX (expiry)
       WHERE lane = p_lane AND expires_at <= p_until ORDER BY expires_at LIMIT v_size
       FOR UPDATE SKIP LOCKED) past;
    IF v_count = 0 THEN LEAVE batch; END IF;
    DELETE r FROM JSON_TABLE(CONCAT('[', v_names, ']'), '$[*]' COLUMNS (
        kind VARCHAR(2) CHARACTER SET ascii PATH '$[0]', name VARCHAR(510) CHARACTER SET ascii PATH '$[1]')) j
      STRAIGHT_JOIN fairturn_remembered r FORCE INDEX (PRIMARY)
        ON r.lane = p_lane AND r.kind = UNHEX(j.kind) AND r.name = UNHEX(j.name);
    SET p_total = p_total + v_count;
  END WHILE;
END //

DELIMITER ;
