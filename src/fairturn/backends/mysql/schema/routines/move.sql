-- Moving ready messages to another queue (docs/semantics.md, 8.3), and making scheduled messages ready before
-- their due time (7.3).

DELIMITER //

-- Send locked messages ("1,2") of another queue to p_target as new messages, in this order. Columns that are
-- not named get their defaults. There is one INSERT for each, because LAST_INSERT_ID() does not tell the ids
-- of several rows. p_count: how many; 0 if the target was dropped meanwhile.
CREATE PROCEDURE fairturn_move_to_(
  IN p_target INT, IN p_ids LONGTEXT CHARACTER SET ascii, IN p_now BIGINT, OUT p_count INT
)
target: BEGIN
  DECLARE v_new LONGTEXT CHARACTER SET ascii DEFAULT NULL;
  DECLARE v_id VARCHAR(20) CHARACTER SET ascii;
  DECLARE v_lane, v_events INT DEFAULT NULL;
  DECLARE v_expires BIGINT;
  SET p_count = 0;
  SELECT lane, events, expires_us INTO v_lane, v_events, v_expires FROM fairturn_queue
   WHERE id = p_target;
  IF v_lane IS NULL THEN LEAVE target; END IF;
  WHILE p_ids <> '' DO
    SET v_id = SUBSTRING_INDEX(p_ids, ',', 1), p_ids = SUBSTR(p_ids, LENGTH(v_id) + 2);
    INSERT INTO fairturn_message (lane, state, version, channel, `rank`, due_at, json, created_at,
        expires_at, lease_us, max_attempts, type, headers, body)
      SELECT v_lane, 'r', m.version, m.channel, m.`rank`, p_now, m.json & 1, p_now,
             p_now + v_expires, m.lease_us, m.max_attempts, m.type, m.headers, m.body
        FROM fairturn_message m FORCE INDEX (PRIMARY) WHERE m.id = v_id;
    SET v_new = CONCAT_WS(',', v_new, LAST_INSERT_ID()), p_count = p_count + 1;
  END WHILE;
  INSERT INTO fairturn_tally (queue_id, minute, sent)
    VALUES (p_target, p_now - p_now MOD 60000000, p_count);
  IF v_events THEN CALL fairturn_emit_(p_target, v_new, 'created', NULL, p_now); END IF;
END //

-- Move up to p_limit ready messages, the oldest first, to the queue p_to, or (NULL) each to the queue where it
-- died. p_after: only messages after this id; it is set to the last id that was found. Before it the index
-- still has the entries that this transaction has deleted.
CREATE PROCEDURE fairturn_move_(
  IN p_queue_id INT, IN p_lane INT, IN p_events INT, IN p_to INT, IN p_limit INT, IN p_now BIGINT,
  INOUT p_after BIGINT, OUT p_count INT
)
move: BEGIN
  DECLARE v_ids, v_some, v_homes LONGTEXT CHARACTER SET ascii;
  DECLARE v_moved LONGTEXT CHARACTER SET ascii DEFAULT NULL;
  DECLARE v_home, v_count, v_grouped INT;
  DECLARE v_last BIGINT;
  -- They are found without locks, then locked by their ids (choose.sql says why). Ready messages have the
  -- wake_at 0, so the index `wake` has them by id.
  look: LOOP
    SELECT GROUP_CONCAT(id ORDER BY id), MAX(id) INTO v_some, v_last FROM (
      SELECT m.id FROM fairturn_message m FORCE INDEX (wake)
       WHERE m.lane = p_lane AND m.state = 'r' AND m.wake_at = 0 AND m.id > p_after
         AND (m.expires_at IS NULL OR m.expires_at > p_now)
         AND (p_to IS NOT NULL OR m.died_in <> p_queue_id
              AND (SELECT COUNT(*) FROM fairturn_queue q WHERE q.id = m.died_in) = 1)
       ORDER BY m.id LIMIT p_limit) found;
    SELECT GROUP_CONCAT(id ORDER BY id), COUNT(*), COUNT(group_id), GROUP_CONCAT(DISTINCT home ORDER BY home)
      INTO v_ids, p_count, v_grouped, v_homes FROM (
        SELECT m.id, m.group_id, COALESCE(p_to, m.died_in) AS home
          FROM JSON_TABLE(CONCAT('[', v_some, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
          STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
         WHERE m.lane = p_lane AND m.state = 'r' FOR UPDATE SKIP LOCKED) ready;
    SET p_after = COALESCE(v_last, p_after);
    -- If other sessions have locked all of them, the next ones are tried.
    IF p_count > 0 OR v_some IS NULL THEN LEAVE look; END IF;
  END LOOP;
  SET p_count = 0;
  -- @stop move.write
  WHILE v_homes <> '' DO
    SET v_home = SUBSTRING_INDEX(v_homes, ',', 1), v_homes = SUBSTR(v_homes, LENGTH(v_home) + 2);
    SELECT GROUP_CONCAT(m.id ORDER BY m.id) INTO v_some
      FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
     WHERE COALESCE(p_to, m.died_in) = v_home;
    CALL fairturn_move_to_(v_home, v_some, p_now, v_count);
    IF v_count > 0 THEN SET v_moved = CONCAT_WS(',', v_moved, v_some), p_count = p_count + v_count; END IF;
  END WHILE;
  IF p_count = 0 THEN LEAVE move; END IF;
  IF v_grouped > 0 THEN CALL fairturn_leave_(v_moved, 0, 0); END IF;
  IF p_events THEN CALL fairturn_emit_(p_queue_id, v_moved, 'deleted', NULL, p_now); END IF;
  DELETE m FROM JSON_TABLE(CONCAT('[', v_moved, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
    STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id;
END //

-- CALL fairturn_move('dead', 'emails', 1000, '{}'): move ready messages to another queue, or (NULL) each to
-- the queue where it died; how many. It locks the queue's row, so two moves of one queue run one after the
-- other, and the new ids have the old order. Besides moves, only a change of the settings waits for this lock.
CREATE PROCEDURE fairturn_move(
  IN p_queue VARBINARY(1024), IN p_to VARBINARY(1024), IN p_limit INT,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own, v_more TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_to_id, v_to_lane, v_to_events, v_count INT;
  DECLARE v_total, v_activated, v_recovered, v_killed INT DEFAULT 0;
  DECLARE v_now BIGINT;
  DECLARE v_after BIGINT DEFAULT 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_known_(p_options, 'now');
  IF p_to = p_queue OR p_limit < 1 OR p_limit IS NULL THEN
    CALL fairturn_refuse_(45006, 'a queue is moved to another one, and at least one message of it');
  END IF;
  CALL fairturn_open_(v_own);
  CALL fairturn_isolated_(v_own, 'moving: ');
  SELECT id INTO v_queue_id FROM fairturn_queue WHERE name = p_queue FOR UPDATE;
  CALL fairturn_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_queue_id, v_lane, v_now, v_events);
  IF p_to IS NOT NULL THEN
    CALL fairturn_queue_(p_to, v_now, v_to_id, v_to_lane, v_now, v_to_events);
  END IF;
  -- @stop move.sweep
  CALL fairturn_sweep_(v_queue_id, v_lane, v_events, 1000, v_now, v_activated, v_recovered, v_killed,
    v_more);
  -- At most 1,000 at a time: the lists stay short.
  batch: WHILE v_total < p_limit DO
    CALL fairturn_move_(v_queue_id, v_lane, v_events, v_to_id, LEAST(p_limit - v_total, 1000), v_now,
      v_after, v_count);
    SET v_total = v_total + v_count;
    IF v_count = 0 THEN LEAVE batch; END IF;
  END WHILE;
  IF v_own THEN
    COMMIT;
    CALL fairturn_settle_after_(v_now);
  END IF;
  SELECT v_total AS moved;
END //

-- CALL fairturn_promote('emails', 900000000, 1000, '{}'): make scheduled messages ready that are due within so
-- many microseconds, the earliest first; how many. It skips messages that are locked, that have expired, or
-- that were delivered before: such a message waits for its retry.
CREATE PROCEDURE fairturn_promote(
  IN p_queue VARBINARY(1024), IN p_within_us BIGINT, IN p_limit INT,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_portion, v_seen, v_count INT;
  DECLARE v_total INT DEFAULT 0;
  DECLARE v_now BIGINT;
  DECLARE v_from, v_after BIGINT DEFAULT 0;
  DECLARE v_some, v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_known_(p_options, 'now');
  IF p_within_us < 0 OR p_within_us IS NULL OR p_limit < 1 OR p_limit IS NULL THEN
    CALL fairturn_refuse_(45006, 'within is not negative, and the limit at least one message');
  END IF;
  CALL fairturn_open_(v_own);
  -- Under a stricter level the locks would keep others from scheduling messages until the caller commits.
  CALL fairturn_isolated_(v_own, 'promoting: ');
  CALL fairturn_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_queue_id, v_lane, v_now, v_events);
  -- At most 1,000 at a time: found without locks, then locked by their ids (choose.sql says why). Before
  -- v_from the index still has the entries of those that were promoted just now.
  batch: WHILE v_total < p_limit DO
    SET v_portion = LEAST(p_limit - v_total, 1000);
    SELECT GROUP_CONCAT(id ORDER BY wake_at, id), COUNT(*), MAX(wake_at) INTO v_some, v_seen, v_from FROM (
      SELECT id, wake_at FROM fairturn_message FORCE INDEX (wake)
       WHERE lane = v_lane AND state = 's' AND wake_at BETWEEN v_from AND v_now + p_within_us
         AND (wake_at > v_from OR id > v_after) AND first_at = 0 AND (expires_at IS NULL OR expires_at > v_now)
       ORDER BY wake_at, id LIMIT v_portion) soon;
    SELECT GROUP_CONCAT(id), COUNT(*) INTO v_ids, v_count FROM (
      SELECT m.id
        FROM JSON_TABLE(CONCAT('[', COALESCE(v_some, ''), ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
        STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
       WHERE m.lane = v_lane AND m.state = 's' AND m.wake_at <= v_now + p_within_us AND m.first_at = 0
         AND (m.expires_at IS NULL OR m.expires_at > v_now) FOR UPDATE SKIP LOCKED) locked;
    IF v_count > 0 THEN CALL fairturn_promote_(v_ids); END IF;
    SET v_total = v_total + v_count, v_after = SUBSTRING_INDEX(v_some, ',', -1);
    IF v_seen < v_portion THEN LEAVE batch; END IF;
  END WHILE;
  IF v_own THEN COMMIT; END IF;
  SELECT v_total AS promoted;
END //

DELIMITER ;
