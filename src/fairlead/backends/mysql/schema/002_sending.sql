-- Sending. Senders insert and never take a gate, so a sender's open transaction delays nobody but
-- another sender of the same key.
--
-- Every procedure that a client calls works in the caller's transaction and without one: SAVEPOINT
-- and ROLLBACK TO fail with 1305 outside a transaction, and only then does it open and commit its
-- own. On an error it takes back what it did, never what its caller did.

DELIMITER //

-- One message, without transaction control, dynamic SQL or a result set: triggers may call it.
-- Outcomes: s sent, d duplicate, r replaced, f refused, e conflict, m full (nothing was sent).
DROP PROCEDURE IF EXISTS fairlead_put_ //
CREATE PROCEDURE fairlead_put_(
  IN p_queue VARBINARY(1024), IN p_channel VARBINARY(1024), IN p_body LONGBLOB, IN p_json TINYINT,
  IN p_rank INT, IN p_due BIGINT, IN p_delay BIGINT, IN p_key VARBINARY(1024),
  IN p_conflict CHAR(1) CHARACTER SET ascii, IN p_version INT, IN p_type VARBINARY(1024),
  IN p_headers MEDIUMBLOB, IN p_lease BIGINT, IN p_max_attempts INT, IN p_expires BIGINT,
  IN p_max_wait BIGINT, IN p_group VARBINARY(1024), IN p_now BIGINT, OUT p_id BIGINT, OUT p_outcome CHAR(1) CHARACTER SET ascii
)
put: BEGIN
  DECLARE v_queue_id, v_lane, v_max_size, v_size, v_tries INT DEFAULT NULL;
  DECLARE v_now, v_max_body, v_queue_expires, v_due, v_holder, v_created, v_group,
    v_old_group BIGINT DEFAULT NULL;
  DECLARE v_text VARCHAR(128) CHARACTER SET utf8mb4;
  DECLARE v_state, v_locked, v_new BINARY(1) DEFAULT NULL;
  DECLARE v_duplicate, v_events TINYINT DEFAULT 0;
  DECLARE v_started TINYINT DEFAULT 1;

  SELECT q.id, q.lane, q.max_body, q.expires_us, IF(p.queue_id IS NULL, q.max_size, p.max_size),
         q.events, COALESCE(p_now, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    INTO v_queue_id, v_lane, v_max_body, v_queue_expires, v_max_size, v_events, v_now
    FROM fairlead_queue q
    LEFT JOIN fairlead_policy p ON p.queue_id = q.id AND p.channel = p_channel
   WHERE q.name = p_queue;
  IF v_queue_id IS NULL THEN
    SET v_text = LEFT(CONVERT(p_queue USING utf8mb4), 128);
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45002, MESSAGE_TEXT = v_text;
  END IF;
  IF LENGTH(p_body) > v_max_body THEN
    SET v_text = CONCAT(LENGTH(p_body), ' ', v_max_body);
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45009, MESSAGE_TEXT = v_text;
  END IF;
  -- @stop send.start
  SET v_due = COALESCE(p_due, v_now + p_delay), v_tries = 0;
  IF p_group IS NOT NULL THEN
    -- Its row before any message; one that is not there is made once it is clear that it is needed.
    CALL fairlead_join_(p_group, p_queue, 0, v_now, v_group, v_started);
  END IF;

  attempt: LOOP
    SET v_holder = NULL, v_state = NULL, v_locked = NULL, v_duplicate = 0;
    IF p_key IS NOT NULL THEN
      SELECT id, state INTO v_holder, v_state
        FROM fairlead_message FORCE INDEX (`key`) WHERE lane = v_lane AND `key` = p_key;
      IF v_state <> 'x' THEN
        SET p_id = v_holder;
        IF p_conflict <> 'r' THEN
          SET p_outcome = IF(p_conflict = 'i', 'd', 'e');
          LEAVE put;
        END IF;
        -- @stop put.holder
        SELECT state, created_at, group_id INTO v_locked, v_created, v_old_group
          FROM fairlead_message WHERE id = v_holder AND lane = v_lane AND `key` = p_key
         FOR UPDATE;
        IF v_locked = 'l' THEN
          SET p_outcome = 'f';
          LEAVE put;
        ELSEIF v_locked IN ('h', 's', 'r', 'd') THEN
          IF p_group IS NOT NULL AND v_group IS NULL THEN
            CALL fairlead_join_(p_group, p_queue, 1, v_now, v_group, v_started);
          END IF;
          SET v_created = IF(v_locked = 'd', v_now, v_created),
              v_due = LEAST(v_due, COALESCE(v_created + p_max_wait, v_due)),
              v_new = IF(NOT v_started, 'h', IF(v_due <= v_now, 'r', 's'));
          UPDATE fairlead_message
             SET channel = p_channel, body = p_body, json = p_json, headers = p_headers,
                 version = p_version, type = p_type, `rank` = p_rank, due_at = v_due,
                 created_at = v_created, state = v_new, wake_at = IF(v_new = 's', v_due, 0),
                 group_id = v_group, progress = NULL, note = NULL, lease_us = p_lease, max_attempts = p_max_attempts,
                 expires_at = v_now + COALESCE(p_expires, v_queue_expires),
                 attempts = 0, memo = NULL, error = NULL, result = NULL, recovered = 0, begun = 0,
                 first_at = 0
           WHERE id = v_holder;
          SET p_outcome = 'r';
          IF v_old_group IS NOT NULL AND v_locked <> 'd' AND NOT v_old_group <=> v_group THEN
            INSERT INTO fairlead_group_mark (group_id) VALUES (v_old_group);
            DELETE FROM fairlead_member WHERE group_id = v_old_group AND message_id = v_holder;
          END IF;
          LEAVE attempt;
        END IF;
        -- The holder went or died between the two reads: look again.
        SET v_tries = v_tries + 1;
        IF v_tries > 50 THEN
          SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'the key changes hands';
        END IF;
        ITERATE attempt;
      END IF;
    END IF;
    IF v_max_size IS NOT NULL AND v_tries = 0 THEN
      SELECT COUNT(*) INTO v_size FROM (
        SELECT 1 FROM fairlead_message FORCE INDEX (channel)
         WHERE lane = v_lane AND channel = p_channel AND state IN ('h', 'l', 'r', 's')
         LIMIT v_max_size) held;
      IF v_size >= v_max_size THEN
        SET p_id = v_max_size, p_outcome = 'm';
        LEAVE put;
      END IF;
    END IF;
    IF v_state = 'x' THEN
      UPDATE fairlead_message SET `key` = NULL
       WHERE id = v_holder AND state = 'x' AND `key` = p_key;
    END IF;
    IF p_group IS NOT NULL AND v_group IS NULL THEN
      CALL fairlead_join_(p_group, p_queue, 1, v_now, v_group, v_started);
    END IF;
    SET v_due = LEAST(v_due, COALESCE(v_now + p_max_wait, v_due)),
        v_new = IF(NOT v_started, 'h', IF(v_due <= v_now, 'r', 's'));
    -- @stop put.insert
    BEGIN
      -- Somebody else's send of this key may have come first: then look at its message.
      DECLARE CONTINUE HANDLER FOR 1062 SET v_duplicate = 1;
      INSERT INTO fairlead_message (lane, state, version, channel, `rank`, due_at, wake_at, json,
          created_at, expires_at, lease_us, max_attempts, group_id, `key`, type, headers, body)
        VALUES (v_lane, v_new, p_version, p_channel, p_rank, v_due,
          IF(v_new = 's', v_due, 0), p_json, v_now,
          v_now + COALESCE(p_expires, v_queue_expires),
          p_lease, p_max_attempts, v_group, p_key, p_type, p_headers, p_body);
    END;
    IF NOT v_duplicate THEN
      SET p_id = LAST_INSERT_ID(), p_outcome = 's';
      INSERT INTO fairlead_tally (queue_id, minute, sent)
        VALUES (v_queue_id, v_now - v_now MOD 60000000, 1);
      LEAVE attempt;
    END IF;
    SET v_tries = v_tries + 1;
    IF v_tries > 50 THEN
      SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'the key changes hands';
    END IF;
  END LOOP;
  IF v_group IS NOT NULL THEN
    INSERT IGNORE INTO fairlead_member (group_id, message_id) VALUES (v_group, p_id);
    INSERT INTO fairlead_group_mark (group_id, sent) VALUES (v_group, 1);
  END IF;
  IF v_events THEN
    SELECT name INTO v_text FROM fairlead_lock WHERE name = 'event' LOCK IN SHARE MODE; -- 013 says why
    -- SYSDATE: in a trigger the time of the statement may be long past.
    INSERT INTO fairlead_event (at, written, kind, queue, message_id, `key`, channel, delay_us)
      VALUES (v_now, SYSDATE(6), 'created', p_queue, p_id, p_key, p_channel,
        GREATEST(v_due - v_now, 0));
  END IF;
END //

-- The library's send of one message: (id, outcome).
DROP PROCEDURE IF EXISTS fairlead_send_one //
CREATE PROCEDURE fairlead_send_one(
  IN p_queue VARBINARY(1024), IN p_channel VARBINARY(1024), IN p_body LONGBLOB, IN p_json TINYINT,
  IN p_rank INT, IN p_due BIGINT, IN p_delay BIGINT, IN p_key VARBINARY(1024),
  IN p_conflict CHAR(1) CHARACTER SET ascii, IN p_version INT, IN p_type VARBINARY(1024),
  IN p_headers MEDIUMBLOB, IN p_lease BIGINT, IN p_max_attempts INT, IN p_expires BIGINT,
  IN p_max_wait BIGINT, IN p_group VARBINARY(1024), IN p_now BIGINT
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_id BIGINT;
  DECLARE v_outcome CHAR(1) CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_put_(p_queue, p_channel, p_body, p_json, p_rank, p_due, p_delay, p_key, p_conflict,
    p_version, p_type, p_headers, p_lease, p_max_attempts, p_expires, p_max_wait, p_group, p_now,
    v_id, v_outcome);
  IF v_own THEN COMMIT; END IF;
  SELECT v_id AS id, v_outcome AS outcome;
END //

-- The public options of a message, as JSON:
--   channel priority delay at key on_conflict version type headers lease max_attempts expires json
--   group max_wait once once_for
-- Durations are seconds, `at` is seconds since the epoch. Usable from a trigger; gives the id.
DROP PROCEDURE IF EXISTS fairlead_put //
CREATE PROCEDURE fairlead_put(
  IN p_queue VARCHAR(255) CHARACTER SET utf8mb4, IN p_body LONGBLOB,
  IN p_options LONGTEXT CHARACTER SET utf8mb4, OUT p_id BIGINT
)
put: BEGIN
  DECLARE v_outcome CHAR(1) CHARACTER SET ascii;
  DECLARE v_options LONGTEXT CHARACTER SET utf8mb4 DEFAULT COALESCE(p_options, '{}');
  DECLARE v_channel, v_key, v_type, v_group, v_once LONGTEXT CHARACTER SET utf8mb4;
  DECLARE v_once_us, v_now BIGINT DEFAULT NULL;
  DECLARE v_lane INT DEFAULT NULL;
  DECLARE v_conflict VARCHAR(10) CHARACTER SET utf8mb4;
  DECLARE v_text VARCHAR(128) CHARACTER SET utf8mb4;
  IF v_options <> '{}' THEN
    CALL fairlead_known_(v_options, 'channel,priority,delay,at,key,on_conflict,version,type,headers,lease,max_attempts,expires,json,group,max_wait,once,once_for,now');
  END IF;
  SET v_channel = COALESCE(JSON_VALUE(v_options, '$.channel'), ''),
      v_group = JSON_VALUE(v_options, '$.group'), v_once = JSON_VALUE(v_options, '$.once'),
      v_once_us = ROUND(COALESCE(JSON_VALUE(v_options, '$.once_for'), 300) * 1000000),
      v_key = JSON_VALUE(v_options, '$.key'), v_type = JSON_VALUE(v_options, '$.type'),
      v_conflict = COALESCE(JSON_VALUE(v_options, '$.on_conflict'), 'error');
  IF v_conflict NOT IN ('error', 'ignore', 'replace') THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45006, MESSAGE_TEXT =
      'on_conflict is "error", "ignore" or "replace"';
  END IF;
  CALL fairlead_named_(v_channel, v_key, v_type, v_group,
    LEAST(COALESCE(JSON_VALUE(v_options, '$.delay'), 0), COALESCE(JSON_VALUE(v_options, '$.max_wait'), 0)));
  IF v_once IS NOT NULL THEN
    IF v_key IS NOT NULL OR v_once_us <= 0 THEN
      SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45006, MESSAGE_TEXT =
        'once goes without a key, and once_for is above 0';
    END IF;
    CALL fairlead_named_('', v_once, NULL, NULL, 0);
    CALL fairlead_take_one_(v_once, v_once_us, p_queue, LENGTH(p_body), JSON_VALUE(v_options, '$.now'),
      v_lane, v_now, p_id);
    IF p_id IS NOT NULL THEN LEAVE put; END IF;
  END IF;
  CALL fairlead_put_(p_queue, v_channel, p_body,
    COALESCE(JSON_VALUE(v_options, '$.json') IN ('1', 'true'), JSON_VALID(CONVERT(p_body USING utf8mb4)), 0),
    -COALESCE(JSON_VALUE(v_options, '$.priority'), 0),
    ROUND(JSON_VALUE(v_options, '$.at') * 1000000),
    ROUND(COALESCE(JSON_VALUE(v_options, '$.delay'), 0) * 1000000),
    v_key, LEFT(v_conflict, 1), COALESCE(JSON_VALUE(v_options, '$.version'), 0), v_type,
    JSON_EXTRACT(v_options, '$.headers'), ROUND(JSON_VALUE(v_options, '$.lease') * 1000000),
    JSON_VALUE(v_options, '$.max_attempts'), ROUND(JSON_VALUE(v_options, '$.expires') * 1000000),
    ROUND(JSON_VALUE(v_options, '$.max_wait') * 1000000), v_group,
    COALESCE(v_now, JSON_VALUE(v_options, '$.now')), p_id, v_outcome);
  IF v_lane IS NOT NULL THEN
    CALL fairlead_give_one_(v_once, v_lane, p_id, v_outcome);
  END IF;
  IF v_outcome = 'e' THEN
    SET v_text = LEFT(v_key, 128);
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45003, MESSAGE_TEXT = v_text;
  ELSEIF v_outcome = 'm' THEN
    SET v_text = LEFT(v_channel, 128);
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45004, MESSAGE_TEXT = v_text;
  ELSEIF v_outcome = 'f' THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45006, MESSAGE_TEXT =
      'the key belongs to a leased message, which cannot be replaced; nothing was sent';
  END IF;
END //

-- CALL fairlead_send('emails', '{"to": "ann"}', '{"channel": "t7", "delay": 60}')
DROP PROCEDURE IF EXISTS fairlead_send //
CREATE PROCEDURE fairlead_send(
  IN p_queue VARCHAR(255) CHARACTER SET utf8mb4, IN p_body LONGBLOB,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_id BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_put(p_queue, p_body, p_options, v_id);
  IF v_own THEN COMMIT; END IF;
  SELECT v_id AS id;
END //

-- CALL fairlead_send_many('emails', '[{"body": {"to": "ann"}, "channel": "t7"}, …]'): the ids in order.
-- A JSON string as body is sent as JSON, too. All or nothing.
DROP PROCEDURE IF EXISTS fairlead_send_many //
CREATE PROCEDURE fairlead_send_many(
  IN p_queue VARCHAR(255) CHARACTER SET utf8mb4, IN p_items LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own, v_done TINYINT DEFAULT 0;
  DECLARE v_id BIGINT;
  DECLARE v_body, v_options LONGTEXT CHARACTER SET utf8mb4;
  DECLARE v_ids LONGTEXT CHARACTER SET ascii DEFAULT '';
  DECLARE v_items CURSOR FOR
    SELECT body, options FROM JSON_TABLE(p_items, '$[*]'
      COLUMNS (body JSON PATH '$.body', options JSON PATH '$')) item;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = 1;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  OPEN v_items;
  item: LOOP
    FETCH v_items INTO v_body, v_options;
    IF v_done THEN LEAVE item; END IF;
    CALL fairlead_put(p_queue, v_body, JSON_SET(JSON_REMOVE(v_options, '$.body'), '$.json', 1), v_id);
    -- A look-up that finds nothing inside the call also raises NOT FOUND here.
    SET v_done = 0, v_ids = CONCAT(v_ids, IF(v_ids = '', '', ','), v_id);
  END LOOP;
  CLOSE v_items;
  IF v_own THEN COMMIT; END IF;
  SELECT id FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]'
    COLUMNS (n FOR ORDINALITY, id BIGINT PATH '$')) sent ORDER BY n;
END //

-- Refuse options that are no JSON object, or have a name that is not known ("a,b").
DROP PROCEDURE IF EXISTS fairlead_known_ //
CREATE PROCEDURE fairlead_known_(
  IN p_options LONGTEXT CHARACTER SET utf8mb4, IN p_known VARCHAR(1000) CHARACTER SET ascii
)
BEGIN
  DECLARE v_keys LONGTEXT CHARACTER SET utf8mb4 DEFAULT JSON_KEYS(p_options);
  DECLARE v_text VARCHAR(128) CHARACTER SET utf8mb4;
  DECLARE v_key VARCHAR(100) CHARACTER SET utf8mb4;
  DECLARE v_n INT DEFAULT COALESCE(JSON_LENGTH(v_keys), 0);
  IF v_keys IS NULL AND p_options IS NOT NULL THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45006, MESSAGE_TEXT = 'the options are a JSON object';
  END IF;
  WHILE v_n > 0 DO
    SET v_n = v_n - 1, v_key = LEFT(JSON_VALUE(v_keys, CONCAT('$[', v_n, ']')), 100);
    IF NOT FIND_IN_SET(CAST(v_key AS BINARY), CAST(p_known AS BINARY)) THEN
      SET v_text = CONCAT('there is no option ', v_key);
      SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45006, MESSAGE_TEXT = v_text;
    END IF;
  END WHILE;
END //

-- Refuse names that no column can hold, and a delay below 0.
DROP PROCEDURE IF EXISTS fairlead_named_ //
CREATE PROCEDURE fairlead_named_(
  IN p_channel LONGTEXT CHARACTER SET utf8mb4, IN p_key LONGTEXT CHARACTER SET utf8mb4,
  IN p_type LONGTEXT CHARACTER SET utf8mb4, IN p_group LONGTEXT CHARACTER SET utf8mb4,
  IN p_delay DOUBLE
)
BEGIN
  IF LENGTH(p_channel) > 255 OR LENGTH(p_key) > 255 OR LENGTH(p_type) > 255 OR LENGTH(p_group) > 255
     OR p_key = '' OR p_type = '' OR p_group = ''
     OR LOCATE(CHAR(0), CONCAT_WS('', p_channel, p_key, p_type, p_group)) THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45005, MESSAGE_TEXT =
      'a channel, key, type or group is at most 255 bytes without NUL; only a channel may be empty';
  END IF;
  IF p_delay < 0 THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45006, MESSAGE_TEXT = 'a delay is not below 0';
  END IF;
END //

-- Begin what a client called: p_own tells whether the procedure owns its transaction.
DROP PROCEDURE IF EXISTS fairlead_open_ //
CREATE PROCEDURE fairlead_open_(OUT p_own TINYINT)
BEGIN
  SET p_own = 0;
  BEGIN
    DECLARE CONTINUE HANDLER FOR 1305 SET p_own = 1;
    SAVEPOINT fairlead;
    ROLLBACK TO SAVEPOINT fairlead;
  END;
  IF p_own THEN
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SAVEPOINT fairlead;
  END IF;
  -- Lists of ids go through GROUP_CONCAT, which MySQL cuts at 1,024 bytes by default.
  IF @@session.group_concat_max_len < 1048576 THEN
    SET SESSION group_concat_max_len = 1048576;
  END IF;
END //

-- Take back what a failed call did. A deadlock has taken the savepoint with the transaction.
DROP PROCEDURE IF EXISTS fairlead_undo_ //
CREATE PROCEDURE fairlead_undo_(IN p_own TINYINT)
BEGIN
  DECLARE CONTINUE HANDLER FOR 1305 BEGIN END;
  IF p_own THEN
    ROLLBACK;
  ELSE
    ROLLBACK TO SAVEPOINT fairlead;
  END IF;
END //

DELIMITER ;
