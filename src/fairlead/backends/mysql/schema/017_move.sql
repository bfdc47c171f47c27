-- Ready messages that go to another queue (docs/semantics.md, 8.3).

DELIMITER //

-- Send locked messages ("1,2") of another queue to p_target as new ones, in this order. Columns that are
-- not named start afresh. One INSERT each: of many rows nobody could tell the new ids. p_count: how many,
-- 0 if that queue has just been dropped.
DROP PROCEDURE IF EXISTS fairlead_move_to_ //
CREATE PROCEDURE fairlead_move_to_(
  IN p_target INT, IN p_ids LONGTEXT CHARACTER SET ascii, IN p_now BIGINT, OUT p_count INT
)
target: BEGIN
  DECLARE v_new LONGTEXT CHARACTER SET ascii DEFAULT NULL;
  DECLARE v_id VARCHAR(20) CHARACTER SET ascii;
  DECLARE v_lane, v_events INT DEFAULT NULL;
  DECLARE v_expires BIGINT;
  SET p_count = 0;
  SELECT lane, events, expires_us INTO v_lane, v_events, v_expires FROM fairlead_queue
   WHERE id = p_target;
  IF v_lane IS NULL THEN LEAVE target; END IF;
  WHILE p_ids <> '' DO
    SET v_id = SUBSTRING_INDEX(p_ids, ',', 1), p_ids = SUBSTR(p_ids, LENGTH(v_id) + 2);
    INSERT INTO fairlead_message (lane, state, version, channel, `rank`, due_at, json, created_at,
        expires_at, lease_us, max_attempts, type, headers, body)
      SELECT v_lane, 'r', m.version, m.channel, m.`rank`, p_now, m.json & 1, p_now,
             p_now + v_expires, m.lease_us, m.max_attempts, m.type, m.headers, m.body
        FROM fairlead_message m FORCE INDEX (PRIMARY) WHERE m.id = v_id;
    SET v_new = CONCAT_WS(',', v_new, LAST_INSERT_ID()), p_count = p_count + 1;
  END WHILE;
  INSERT INTO fairlead_tally (queue_id, minute, sent)
    VALUES (p_target, p_now - p_now MOD 60000000, p_count);
  IF v_events THEN CALL fairlead_emit_(p_target, v_new, 'created', NULL, p_now); END IF;
END //

-- Up to p_limit ready messages, the oldest first, to the queue p_to, or (NULL) each to where it died.
-- p_grouped: how many had a group. p_after: only those after this id; then the last that was looked at (what
-- this transaction has deleted still lies in the index before it).
DROP PROCEDURE IF EXISTS fairlead_move_ //
CREATE PROCEDURE fairlead_move_(
  IN p_queue_id INT, IN p_lane INT, IN p_events INT, IN p_to INT, IN p_limit INT, IN p_now BIGINT,
  INOUT p_after BIGINT, OUT p_count INT, OUT p_grouped INT
)
move: BEGIN
  DECLARE v_ids, v_some, v_homes LONGTEXT CHARACTER SET ascii;
  DECLARE v_moved LONGTEXT CHARACTER SET ascii DEFAULT NULL;
  DECLARE v_home, v_count INT;
  DECLARE v_last BIGINT;
  -- Looked for without locks, then locked by their ids (003 says why). What is ready has the wake-up time 0,
  -- so this index has it by age.
  look: LOOP
    SELECT GROUP_CONCAT(id ORDER BY id), MAX(id) INTO v_some, v_last FROM (
      SELECT m.id FROM fairlead_message m FORCE INDEX (wake)
       WHERE m.lane = p_lane AND m.state = 'r' AND m.wake_at = 0 AND m.id > p_after
         AND (m.expires_at IS NULL OR m.expires_at > p_now)
         AND (p_to IS NOT NULL OR m.died_in <> p_queue_id
              AND (SELECT COUNT(*) FROM fairlead_queue q WHERE q.id = m.died_in) = 1)
       ORDER BY m.id LIMIT p_limit) found;
    SELECT GROUP_CONCAT(id ORDER BY id), COUNT(*), COUNT(group_id), GROUP_CONCAT(DISTINCT home ORDER BY home)
      INTO v_ids, p_count, p_grouped, v_homes FROM (
        SELECT m.id, m.group_id, COALESCE(p_to, m.died_in) AS home
          FROM JSON_TABLE(CONCAT('[', v_some, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
          STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
         WHERE m.lane = p_lane AND m.state = 'r' FOR UPDATE SKIP LOCKED) ready;
    SET p_after = COALESCE(v_last, p_after);
    IF p_count > 0 OR v_some IS NULL THEN LEAVE look; END IF; -- else others have them all: go on behind
  END LOOP;
  SET p_count = 0;
  -- @stop move.write
  WHILE v_homes <> '' DO
    SET v_home = SUBSTRING_INDEX(v_homes, ',', 1), v_homes = SUBSTR(v_homes, LENGTH(v_home) + 2);
    SELECT GROUP_CONCAT(m.id ORDER BY m.id) INTO v_some
      FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
     WHERE COALESCE(p_to, m.died_in) = v_home;
    CALL fairlead_move_to_(v_home, v_some, p_now, v_count);
    IF v_count > 0 THEN SET v_moved = CONCAT_WS(',', v_moved, v_some), p_count = p_count + v_count; END IF;
  END WHILE;
  IF p_count = 0 THEN LEAVE move; END IF;
  IF p_grouped > 0 THEN CALL fairlead_leave_(v_moved, 0, 0); END IF;
  IF p_events THEN CALL fairlead_emit_(p_queue_id, v_moved, 'deleted', NULL, p_now); END IF;
  DELETE m FROM JSON_TABLE(CONCAT('[', v_moved, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
    STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id;
END //

-- CALL fairlead_move('dead', 'emails', 1000, '{}'): ready messages to another queue, or (NULL) each to the
-- queue where it died; how many. Two movers of one queue wait for each other at its row (nobody else does,
-- but who changes its settings), so that the new ids ascend in the old order.
DROP PROCEDURE IF EXISTS fairlead_move //
CREATE PROCEDURE fairlead_move(
  IN p_queue VARBINARY(1024), IN p_to VARBINARY(1024), IN p_limit INT,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_to_id, v_to_lane, v_to_events, v_count, v_members INT;
  DECLARE v_activated, v_recovered, v_killed, v_expired, v_gone, v_ended INT;
  DECLARE v_total, v_grouped INT DEFAULT 0;
  DECLARE v_now BIGINT;
  DECLARE v_after BIGINT DEFAULT 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_known_(p_options, 'now');
  IF p_to = p_queue OR p_limit < 1 OR p_limit IS NULL THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45006, MESSAGE_TEXT =
      'a queue is moved to another one, and at least one message of it';
  END IF;
  CALL fairlead_open_(v_own);
  CALL fairlead_isolated_(v_own, 'moving: ');
  SELECT id INTO v_queue_id FROM fairlead_queue WHERE name = p_queue FOR UPDATE;
  CALL fairlead_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_queue_id, v_lane, v_now, v_events);
  IF p_to IS NOT NULL THEN
    CALL fairlead_queue_(p_to, v_now, v_to_id, v_to_lane, v_now, v_to_events);
  END IF;
  -- @stop move.sweep
  CALL fairlead_sweep_(v_queue_id, v_lane, v_events, 1000, v_now, v_activated, v_recovered, v_killed,
    v_expired, v_gone, v_ended);
  IF v_recovered + v_killed + v_expired > 0 THEN
    INSERT INTO fairlead_tally (queue_id, minute, recovered, killed, expired, errors)
      VALUES (v_queue_id, v_now - v_now MOD 60000000, NULLIF(v_recovered, 0), NULLIF(v_killed, 0),
        NULLIF(v_expired, 0), NULLIF(v_killed, 0));
  END IF;
  -- In portions whose lists are short.
  batch: WHILE v_total < p_limit DO
    CALL fairlead_move_(v_queue_id, v_lane, v_events, v_to_id, LEAST(p_limit - v_total, 1000), v_now,
      v_after, v_count, v_members);
    SET v_total = v_total + v_count, v_grouped = v_grouped + v_members;
    IF v_count = 0 THEN LEAVE batch; END IF;
  END WHILE;
  IF v_own THEN
    COMMIT;
    IF v_grouped + v_gone + v_killed > 0 THEN CALL fairlead_settle_after_(v_now); END IF;
  END IF;
  SELECT v_total AS moved;
END //

DELIMITER ;
