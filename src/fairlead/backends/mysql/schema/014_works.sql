-- Opening a group with its end and abort work (docs/semantics.md, 12.2), members in a batched send, and
-- the policies of a batch (16).

DELIMITER //

-- A work: a held message of the group's queue without a group. Its options are what the library makes
-- of a send: channel, key, type and headers in hex, due or delay in microseconds. `wake_at` keeps the delay.
-- p_id is NULL where the key has a holder other than a dead one.
DROP PROCEDURE IF EXISTS fairlead_work_ //
CREATE PROCEDURE fairlead_work_(
  IN p_lane INT, IN p_max_body BIGINT, IN p_body LONGBLOB, IN p_options LONGTEXT CHARACTER SET ascii,
  IN p_now BIGINT, OUT p_id BIGINT
)
work: BEGIN
  DECLARE v_key VARBINARY(255) DEFAULT UNHEX(JSON_VALUE(p_options, '$.key'));
  DECLARE v_due BIGINT DEFAULT JSON_VALUE(p_options, '$.due');
  DECLARE v_delay BIGINT DEFAULT COALESCE(JSON_VALUE(p_options, '$.delay'), 0);
  DECLARE v_holder BIGINT DEFAULT NULL;
  DECLARE v_state BINARY(1) DEFAULT NULL;
  DECLARE v_text VARCHAR(128) CHARACTER SET utf8mb4;
  SET p_id = NULL;
  IF LENGTH(p_body) > p_max_body THEN
    SET v_text = CONCAT(LENGTH(p_body), ' ', p_max_body);
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45009, MESSAGE_TEXT = v_text;
  END IF;
  IF v_key IS NOT NULL THEN
    SELECT id, state INTO v_holder, v_state FROM fairlead_message FORCE INDEX (`key`)
     WHERE lane = p_lane AND `key` = v_key;
    IF v_state <> 'x' THEN LEAVE work; END IF;
    IF v_holder IS NOT NULL THEN
      UPDATE fairlead_message SET `key` = NULL WHERE id = v_holder AND state = 'x' AND `key` = v_key;
    END IF;
  END IF;
  BEGIN
    -- Somebody else's send of this key may have come first.
    DECLARE EXIT HANDLER FOR 1062 SET p_id = NULL;
    INSERT INTO fairlead_message (lane, state, version, channel, `rank`, due_at, wake_at, json,
        created_at, lease_us, max_attempts, `key`, type, headers, body)
      VALUES (p_lane, 'h', COALESCE(JSON_VALUE(p_options, '$.version'), 0),
        UNHEX(JSON_VALUE(p_options, '$.channel')), COALESCE(JSON_VALUE(p_options, '$.rank'), 0),
        COALESCE(v_due, p_now + v_delay), IF(v_due IS NULL, v_delay, -1),
        COALESCE(JSON_VALUE(p_options, '$.json'), 0), p_now, JSON_VALUE(p_options, '$.lease'),
        JSON_VALUE(p_options, '$.max_attempts'), v_key, UNHEX(JSON_VALUE(p_options, '$.type')),
        UNHEX(JSON_VALUE(p_options, '$.headers')), p_body);
    SET p_id = LAST_INSERT_ID();
  END;
END //

-- Make a group unless one of its name is open. p_created: -1 if a work's key is taken (p_key).
DROP PROCEDURE IF EXISTS fairlead_open_group_ //
CREATE PROCEDURE fairlead_open_group_(
  IN p_name VARBINARY(1024), IN p_queue VARBINARY(1024), IN p_on_dead BINARY(1), IN p_end LONGBLOB,
  IN p_end_options LONGTEXT CHARACTER SET ascii, IN p_abort LONGBLOB,
  IN p_abort_options LONGTEXT CHARACTER SET ascii, IN p_given BIGINT, OUT p_created INT,
  OUT p_key VARBINARY(255)
)
open_: BEGIN
  DECLARE v_group, v_now, v_end, v_abort, v_max_body BIGINT DEFAULT NULL;
  DECLARE v_queue_id, v_lane, v_events INT;
  SET p_created = 0, p_key = NULL;
  SELECT id INTO v_group FROM fairlead_group WHERE open_name = p_name;
  IF v_group IS NOT NULL THEN LEAVE open_; END IF;
  CALL fairlead_queue_(p_queue, p_given, v_queue_id, v_lane, v_now, v_events);
  SELECT max_body INTO v_max_body FROM fairlead_queue WHERE id = v_queue_id;
  -- @stop open.insert
  -- Nobody's error: one that somebody else has just opened makes no row.
  INSERT IGNORE INTO fairlead_group (name, open_name, queue, on_dead, created_at)
    VALUES (p_name, p_name, p_queue, p_on_dead, v_now);
  IF ROW_COUNT() <> 1 THEN LEAVE open_; END IF;
  SET v_group = LAST_INSERT_ID(), p_created = 1;
  IF p_end_options IS NOT NULL THEN
    CALL fairlead_work_(v_lane, v_max_body, p_end, p_end_options, v_now, v_end);
    IF v_end IS NULL THEN
      SET p_created = -1, p_key = UNHEX(JSON_VALUE(p_end_options, '$.key'));
      LEAVE open_;
    END IF;
  END IF;
  IF p_abort_options IS NOT NULL THEN
    CALL fairlead_work_(v_lane, v_max_body, p_abort, p_abort_options, v_now, v_abort);
    IF v_abort IS NULL THEN
      SET p_created = -1, p_key = UNHEX(JSON_VALUE(p_abort_options, '$.key'));
      LEAVE open_;
    END IF;
  END IF;
  UPDATE fairlead_group SET end_id = v_end, abort_id = v_abort WHERE id = v_group;
END //

-- What the library calls: (created, key that is taken).
DROP PROCEDURE IF EXISTS fairlead_group_create //
CREATE PROCEDURE fairlead_group_create(
  IN p_name VARBINARY(1024), IN p_queue VARBINARY(1024), IN p_on_dead BINARY(1), IN p_end LONGBLOB,
  IN p_end_options LONGTEXT CHARACTER SET ascii, IN p_abort LONGBLOB,
  IN p_abort_options LONGTEXT CHARACTER SET ascii, IN p_now BIGINT
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_created INT;
  DECLARE v_key VARBINARY(255);
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_open_group_(p_name, p_queue, p_on_dead, p_end, p_end_options, p_abort,
    p_abort_options, p_now, v_created, v_key);
  IF v_created < 0 THEN
    CALL fairlead_undo_(v_own);
  ELSEIF v_own THEN
    COMMIT;
  END IF;
  SELECT v_created AS created, v_key AS `key`;
END //

-- The options of a work as the SQL door has them, as fairlead_work_ takes them.
DROP PROCEDURE IF EXISTS fairlead_work_options_ //
CREATE PROCEDURE fairlead_work_options_(
  IN p_options LONGTEXT CHARACTER SET utf8mb4, OUT p_body LONGBLOB,
  OUT p_known LONGTEXT CHARACTER SET ascii
)
work: BEGIN
  SET p_body = NULL, p_known = NULL;
  IF p_options IS NULL OR p_options = 'null' THEN LEAVE work; END IF;
  CALL fairlead_known_(p_options,
    'body,channel,priority,delay,at,key,version,type,headers,lease,max_attempts');
  CALL fairlead_named_(JSON_VALUE(p_options, '$.channel'), JSON_VALUE(p_options, '$.key'),
    JSON_VALUE(p_options, '$.type'), NULL, JSON_VALUE(p_options, '$.delay'));
  SET p_body = COALESCE(JSON_EXTRACT(p_options, '$.body'), 'null'),
      p_known = JSON_OBJECT('json', 1,
        'channel', HEX(COALESCE(JSON_VALUE(p_options, '$.channel'), '')),
        'key', HEX(JSON_VALUE(p_options, '$.key')), 'type', HEX(JSON_VALUE(p_options, '$.type')),
        'rank', -COALESCE(JSON_VALUE(p_options, '$.priority'), 0),
        'due', CAST(ROUND(JSON_VALUE(p_options, '$.at') * 1000000) AS SIGNED),
        'delay', CAST(ROUND(COALESCE(JSON_VALUE(p_options, '$.delay'), 0) * 1000000) AS SIGNED),
        'version', COALESCE(JSON_VALUE(p_options, '$.version'), 0),
        'headers', HEX(JSON_EXTRACT(p_options, '$.headers')),
        'lease', CAST(ROUND(JSON_VALUE(p_options, '$.lease') * 1000000) AS SIGNED),
        'max_attempts', JSON_VALUE(p_options, '$.max_attempts'));
END //

-- CALL fairlead_group_open('import-7', 'imports', '{"on_dead": "abort", "end": {"body": {"n": 7}},
-- "abort": {"body": 1, "channel": "t7", "delay": 5}}'): 1 if it was created.
DROP PROCEDURE IF EXISTS fairlead_group_open //
CREATE PROCEDURE fairlead_group_open(
  IN p_group VARBINARY(1024), IN p_queue VARBINARY(1024),
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_created INT;
  DECLARE v_key VARBINARY(255);
  DECLARE v_end, v_abort LONGBLOB;
  DECLARE v_end_options, v_abort_options LONGTEXT CHARACTER SET ascii;
  DECLARE v_on_dead VARCHAR(10) CHARACTER SET utf8mb4;
  DECLARE v_text VARCHAR(128) CHARACTER SET utf8mb4;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_known_(p_options, 'on_dead,end,abort,now');
  CALL fairlead_named_(NULL, NULL, NULL, COALESCE(p_group, ''), NULL);
  SET v_on_dead = COALESCE(JSON_VALUE(p_options, '$.on_dead'), 'ignore');
  IF v_on_dead NOT IN ('ignore', 'abort') THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45006, MESSAGE_TEXT = 'on_dead is "ignore" or "abort"';
  END IF;
  CALL fairlead_work_options_(JSON_EXTRACT(p_options, '$.end'), v_end, v_end_options);
  CALL fairlead_work_options_(JSON_EXTRACT(p_options, '$.abort'), v_abort, v_abort_options);
  CALL fairlead_open_(v_own);
  CALL fairlead_open_group_(p_group, p_queue, LEFT(v_on_dead, 1), v_end, v_end_options, v_abort,
    v_abort_options, JSON_VALUE(p_options, '$.now'), v_created, v_key);
  IF v_created < 0 THEN
    SET v_text = LEFT(CONVERT(v_key USING utf8mb4), 128);
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45003, MESSAGE_TEXT = v_text;
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_created AS created;
END //

-- The open groups among some names ('["hex", …]', sorted), locked in share mode; with p_create all of
-- them, made where need be: one row, '[["hex", id, started], …]' (backends/mysql/sending.py).
DROP PROCEDURE IF EXISTS fairlead_groups_join //
CREATE PROCEDURE fairlead_groups_join(
  IN p_names LONGTEXT CHARACTER SET ascii, IN p_queue VARBINARY(1024), IN p_create TINYINT,
  IN p_now BIGINT
)
BEGIN
  DECLARE v_n INT DEFAULT 0;
  DECLARE v_count INT DEFAULT JSON_LENGTH(p_names);
  DECLARE v_name VARCHAR(510) CHARACTER SET ascii;
  DECLARE v_group BIGINT;
  DECLARE v_started TINYINT;
  DECLARE v_found LONGTEXT CHARACTER SET ascii DEFAULT '';
  WHILE v_n < v_count DO
    SET v_name = JSON_VALUE(p_names, CONCAT('$[', v_n, ']')), v_n = v_n + 1;
    CALL fairlead_join_(UNHEX(v_name), p_queue, p_create, p_now, v_group, v_started);
    IF v_group IS NOT NULL THEN
      SET v_found = CONCAT(v_found, IF(v_found = '', '', ','), '["', v_name, '",', v_group, ',',
        v_started, ']');
    END IF;
  END WHILE;
  SELECT CONCAT('[', v_found, ']') AS found;
END //

-- Sent messages ([ids]) are members now; p_marks: [[group, how many were sent], …].
DROP PROCEDURE IF EXISTS fairlead_members_joined //
CREATE PROCEDURE fairlead_members_joined(
  IN p_ids LONGTEXT CHARACTER SET ascii, IN p_marks LONGTEXT CHARACTER SET ascii
)
BEGIN
  INSERT IGNORE INTO fairlead_member (group_id, message_id)
    SELECT m.group_id, m.id FROM JSON_TABLE(p_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
     WHERE m.group_id IS NOT NULL;
  INSERT INTO fairlead_group_mark (group_id, sent)
    SELECT group_id, sent FROM JSON_TABLE(p_marks, '$[*]' COLUMNS (
      group_id BIGINT PATH '$[0]', sent INT PATH '$[1]')) marks;
END //

-- Messages ("1,2") that are about to be replaced leave their groups.
DROP PROCEDURE IF EXISTS fairlead_members_left //
CREATE PROCEDURE fairlead_members_left(IN p_ids LONGTEXT CHARACTER SET ascii)
BEGIN
  CALL fairlead_leave_(p_ids, 0, 0);
END //

-- The policies of a batch, [["queue in hex", "channel in hex", max_concurrency, …], …], all in one
-- statement, under the gates of their channels as fairlead_policy_set has it.
DROP PROCEDURE IF EXISTS fairlead_policies_set //
CREATE PROCEDURE fairlead_policies_set(IN p_policies LONGTEXT CHARACTER SET ascii)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_queues_known_(p_policies);
  INSERT IGNORE INTO fairlead_gate (queue_id, channel)
    SELECT q.id, UNHEX(j.channel) FROM JSON_TABLE(p_policies, '$[*]' COLUMNS (
        queue VARCHAR(510) PATH '$[0]', channel VARCHAR(510) PATH '$[1]',
        max_concurrency INT PATH '$[2]', rate_count INT PATH '$[3]', ordered INT PATH '$[8]')) j
      STRAIGHT_JOIN fairlead_queue q ON q.name = UNHEX(j.queue)
     WHERE j.max_concurrency IS NOT NULL OR j.rate_count IS NOT NULL OR j.ordered = 1
     ORDER BY q.id, UNHEX(j.channel);
  CALL fairlead_gates_of_(p_policies);
  INSERT INTO fairlead_policy (queue_id, channel, max_concurrency, rate_count, rate_period_us, burst,
      weight, paused, ordered, max_size)
    SELECT q.id, UNHEX(j.channel), j.max_concurrency, j.rate_count, j.rate_period_us, j.burst,
           j.weight, j.paused, j.ordered, j.max_size
      FROM JSON_TABLE(p_policies, '$[*]' COLUMNS (
        queue VARCHAR(510) PATH '$[0]', channel VARCHAR(510) PATH '$[1]',
        max_concurrency INT PATH '$[2]', rate_count INT PATH '$[3]', rate_period_us BIGINT PATH '$[4]',
        burst INT PATH '$[5]', weight INT PATH '$[6]', paused INT PATH '$[7]', ordered INT PATH '$[8]',
        max_size INT PATH '$[9]')) j
      STRAIGHT_JOIN fairlead_queue q ON q.name = UNHEX(j.queue)
     ORDER BY q.id, UNHEX(j.channel)
    ON DUPLICATE KEY UPDATE max_concurrency = VALUES(max_concurrency),
      rate_count = VALUES(rate_count), rate_period_us = VALUES(rate_period_us),
      burst = VALUES(burst), weight = VALUES(weight), paused = VALUES(paused),
      ordered = VALUES(ordered), max_size = VALUES(max_size);
  IF v_own THEN COMMIT; END IF;
END //

-- The channels whose policy a batch clears, [["queue in hex", "channel in hex"], …].
DROP PROCEDURE IF EXISTS fairlead_policies_clear //
CREATE PROCEDURE fairlead_policies_clear(IN p_policies LONGTEXT CHARACTER SET ascii)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_queues_known_(p_policies);
  CALL fairlead_gates_of_(p_policies);
  DELETE p FROM JSON_TABLE(p_policies, '$[*]' COLUMNS (
      queue VARCHAR(510) PATH '$[0]', channel VARCHAR(510) PATH '$[1]')) j
    STRAIGHT_JOIN fairlead_queue q ON q.name = UNHEX(j.queue)
    STRAIGHT_JOIN fairlead_policy p FORCE INDEX (PRIMARY)
      ON p.queue_id = q.id AND p.channel = UNHEX(j.channel);
  IF v_own THEN COMMIT; END IF;
END //

-- QueueNotFound for the first queue of a batch's policies that is not there.
DROP PROCEDURE IF EXISTS fairlead_queues_known_ //
CREATE PROCEDURE fairlead_queues_known_(IN p_policies LONGTEXT CHARACTER SET ascii)
BEGIN
  DECLARE v_text VARCHAR(128) CHARACTER SET utf8mb4 DEFAULT NULL;
  SELECT LEFT(CONVERT(UNHEX(j.queue) USING utf8mb4), 128) INTO v_text
    FROM JSON_TABLE(p_policies, '$[*]' COLUMNS (
      n FOR ORDINALITY, queue VARCHAR(510) PATH '$[0]')) j
    LEFT JOIN fairlead_queue q ON q.name = UNHEX(j.queue)
   WHERE q.id IS NULL ORDER BY j.n LIMIT 1;
  IF v_text IS NOT NULL THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45002, MESSAGE_TEXT = v_text;
  END IF;
END //

-- Wait for the gates of a batch's policies, in the order of queues and channels.
DROP PROCEDURE IF EXISTS fairlead_gates_of_ //
CREATE PROCEDURE fairlead_gates_of_(IN p_policies LONGTEXT CHARACTER SET ascii)
BEGIN
  DECLARE v_count INT;
  SELECT COUNT(*) INTO v_count FROM (
    SELECT g.tat FROM (
        SELECT q.id, UNHEX(j.channel) AS channel FROM JSON_TABLE(p_policies, '$[*]' COLUMNS (
            queue VARCHAR(510) PATH '$[0]', channel VARCHAR(510) PATH '$[1]')) j
          STRAIGHT_JOIN fairlead_queue q ON q.name = UNHEX(j.queue)
         ORDER BY q.id, UNHEX(j.channel) LIMIT 1000000) wanted
      STRAIGHT_JOIN fairlead_gate g FORCE INDEX (PRIMARY)
        ON g.queue_id = wanted.id AND g.channel = wanted.channel FOR UPDATE) locked;
END //

DELIMITER ;
