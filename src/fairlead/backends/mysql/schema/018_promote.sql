-- Scheduled messages that are ready ahead of their time (docs/semantics.md, 7.3).

DELIMITER //

-- CALL fairlead_promote('emails', 900000000, 1000, '{}'): scheduled messages that are due within so many
-- microseconds are ready now, the earliest due first; how many. It skips what somebody has locked, what has
-- expired, and what was delivered before: the due time of that is a pause.
DROP PROCEDURE IF EXISTS fairlead_promote //
CREATE PROCEDURE fairlead_promote(
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
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_known_(p_options, 'now');
  IF p_within_us < 0 OR p_within_us IS NULL OR p_limit < 1 OR p_limit IS NULL THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45006, MESSAGE_TEXT =
      'within is not negative, and the limit at least one message';
  END IF;
  CALL fairlead_open_(v_own);
  CALL fairlead_isolated_(v_own, 'promoting: '); -- else nobody could schedule there until you commit
  CALL fairlead_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_queue_id, v_lane, v_now, v_events);
  -- In portions whose lists are short, looked for without locks, then locked by their ids (003 says why).
  -- What was promoted just now still lies in the index, before v_from.
  batch: WHILE v_total < p_limit DO
    SET v_portion = LEAST(p_limit - v_total, 1000);
    SELECT GROUP_CONCAT(id ORDER BY wake_at, id), COUNT(*), MAX(wake_at) INTO v_some, v_seen, v_from FROM (
      SELECT id, wake_at FROM fairlead_message FORCE INDEX (wake)
       WHERE lane = v_lane AND state = 's' AND wake_at BETWEEN v_from AND v_now + p_within_us
         AND (wake_at > v_from OR id > v_after) AND first_at = 0 AND (expires_at IS NULL OR expires_at > v_now)
       ORDER BY wake_at, id LIMIT v_portion) soon;
    SELECT GROUP_CONCAT(id), COUNT(*) INTO v_ids, v_count FROM (
      SELECT m.id
        FROM JSON_TABLE(CONCAT('[', COALESCE(v_some, ''), ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
        STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
       WHERE m.lane = v_lane AND m.state = 's' AND m.wake_at <= v_now + p_within_us AND m.first_at = 0
         AND (m.expires_at IS NULL OR m.expires_at > v_now) FOR UPDATE SKIP LOCKED) locked;
    IF v_count > 0 THEN CALL fairlead_promote_(v_ids); END IF;
    SET v_total = v_total + v_count, v_after = SUBSTRING_INDEX(v_some, ',', -1);
    IF v_seen < v_portion THEN LEAVE batch; END IF;
  END WHILE;
  IF v_own THEN COMMIT; END IF;
  SELECT v_total AS promoted;
END //

DELIMITER ;
