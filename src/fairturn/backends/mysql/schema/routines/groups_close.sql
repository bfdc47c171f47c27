-- When groups close (docs/semantics.md, 12.5 to 12.11).
--
-- Exactly one session closes a group: it locks the group's row, reads and deletes the marks, and then looks
-- for members in a new statement, which has a new snapshot. If a member has ended by then, its mark was
-- read. If a member ends later, its mark is still there afterwards.
--
-- Settling needs a transaction of its own. In the transaction that ended a member it would delete a mark
-- before other sessions see that the member has ended. If they check meanwhile, nobody closes the group.

DELIMITER //

-- Close a group whose row is locked. p_state: e ended, c cancelled, a aborted. One work is sent, the other is
-- deleted.
CREATE PROCEDURE fairturn_close_(IN p_group BIGINT, IN p_state BINARY(1), IN p_now BIGINT)
BEGIN
  DECLARE v_out, v_end, v_abort, v_work, v_delay, v_due, v_expires BIGINT DEFAULT NULL;
  DECLARE v_name, v_queue, v_lock VARBINARY(255);
  DECLARE v_sent, v_done, v_dead BIGINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_marks INT DEFAULT NULL;
  DECLARE v_told LONGTEXT CHARACTER SET utf8mb4;
  DECLARE v_headers MEDIUMBLOB;
  CALL fairturn_count_(p_group, v_marks);
  SELECT name, queue, end_id, abort_id, sent, done, dead
    INTO v_name, v_queue, v_end, v_abort, v_sent, v_done, v_dead FROM fairturn_group WHERE id = p_group;
  UPDATE fairturn_group SET state = p_state, open_name = NULL, closed_at = p_now WHERE id = p_group;
  SELECT id, lane, events, expires_us INTO v_queue_id, v_lane, v_events, v_expires
    FROM fairturn_queue WHERE name = v_queue;
  IF v_queue_id IS NOT NULL THEN
    -- Not JSON_OBJECT: there MariaDB quotes numbers that come from variables.
    SET v_told = CONCAT('{"name": ', JSON_QUOTE(CONVERT(v_name USING utf8mb4)), ', "outcome": "',
          CASE p_state WHEN 'e' THEN 'ended' WHEN 'c' THEN 'cancelled' ELSE 'aborted' END,
          '", "sent": ', v_sent, ', "done": ', v_done, ', "dead": ', v_dead, '}');
    SET v_out = IF(p_state = 'e', v_end, v_abort);
    -- A work may have been purged, cancelled by hand or replaced: then it is not found.
    DELETE FROM fairturn_message WHERE id = IF(p_state = 'e', v_abort, v_end)
       AND lane = v_lane AND state = 'h' AND group_id IS NULL;
    SELECT id, wake_at, due_at, headers INTO v_work, v_delay, v_due, v_headers FROM fairturn_message
     WHERE id = v_out AND lane = v_lane AND state = 'h' AND group_id IS NULL FOR UPDATE;
    IF v_work IS NOT NULL THEN
      SET v_due = IF(v_delay < 0, v_due, p_now + v_delay);
      UPDATE fairturn_message
         SET state = IF(v_due <= p_now, 'r', 's'), wake_at = IF(v_due <= p_now, 0, v_due),
             due_at = v_due, created_at = p_now, expires_at = p_now + v_expires,
             -- JSON_EXTRACT: without it MariaDB takes the variable for a string.
             headers = JSON_SET(COALESCE(CONVERT(v_headers USING utf8mb4), '{}'),
               '$."fairturn.group"', JSON_EXTRACT(v_told, '$'))
       WHERE id = v_work;
      INSERT INTO fairturn_tally (queue_id, minute, sent)
        VALUES (v_queue_id, p_now - p_now MOD 60000000, 1);
    END IF;
    IF v_events THEN
      IF v_work IS NOT NULL THEN
        CALL fairturn_emit_(v_queue_id, v_work, 'created', NULL, p_now);
      END IF;
      IF @fairturn_cluster THEN
        INSERT INTO fairturn_event_new (at, kind, queue, data) VALUES (p_now, 'closed', v_queue, v_told);
      ELSE
        SELECT name INTO v_lock FROM fairturn_lock WHERE name = 'event' LOCK IN SHARE MODE; -- see events.sql
        INSERT INTO fairturn_event (at, kind, queue, data) VALUES (p_now, 'closed', v_queue, v_told);
      END IF;
    END IF;
  END IF;
END //

-- Add the marks of a group to its counts. Its row is locked. p_marks: how many marks there were.
CREATE PROCEDURE fairturn_count_(IN p_group BIGINT, OUT p_marks INT)
count_: BEGIN
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_marks INT;
  DECLARE v_sent, v_done, v_dead BIGINT;
  SET p_marks = 0;
  batch: LOOP
    SELECT GROUP_CONCAT(id), COUNT(*), SUM(sent), SUM(done), SUM(dead)
      INTO v_ids, v_marks, v_sent, v_done, v_dead
      FROM (SELECT id, sent, done, dead FROM fairturn_group_mark FORCE INDEX (member_of)
             WHERE group_id = p_group LIMIT 10000) marks;
    IF v_marks = 0 THEN LEAVE count_; END IF;
    DELETE k FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_group_mark k FORCE INDEX (PRIMARY) ON k.id = j.id;
    -- joins: in a cluster the row must be written, even if all counts are 0 (cluster.sql).
    UPDATE fairturn_group
       SET sent = sent + v_sent, done = done + v_done, dead = dead + v_dead,
           joins = joins + COALESCE(@fairturn_cluster, 0)
     WHERE id = p_group;
    SET p_marks = p_marks + v_marks;
  END LOOP;
END //

-- Delete the unfinished members of a group whose row is locked. p_wait: wait for members that another session
-- has locked; otherwise these stay, and p_left is their number. Messages are locked before members.
CREATE PROCEDURE fairturn_remove_(
  IN p_group BIGINT, IN p_wait TINYINT, IN p_now BIGINT, OUT p_left INT
)
remove_: BEGIN
  DECLARE v_after BIGINT DEFAULT 0;
  DECLARE v_all, v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_seen, v_count INT;
  SET p_left = 0;
  batch: LOOP
    SELECT GROUP_CONCAT(message_id), COUNT(*), MAX(message_id) INTO v_all, v_seen, v_after FROM (
      SELECT message_id FROM fairturn_member
       WHERE group_id = p_group AND message_id > v_after ORDER BY message_id LIMIT 10000) members;
    IF v_seen = 0 THEN LEAVE remove_; END IF;
    -- @stop remove.lock
    IF p_wait THEN
      SELECT GROUP_CONCAT(id), COUNT(*) INTO v_ids, v_count FROM (
        SELECT m.id FROM JSON_TABLE(CONCAT('[', v_all, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
          STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
         WHERE m.group_id = p_group AND m.state IN ('h', 's', 'r', 'l') FOR UPDATE) locked;
    ELSE
      SELECT GROUP_CONCAT(id), COUNT(*) INTO v_ids, v_count FROM (
        SELECT m.id FROM JSON_TABLE(CONCAT('[', v_all, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
          STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
         WHERE m.group_id = p_group AND m.state IN ('h', 's', 'r', 'l')
         FOR UPDATE SKIP LOCKED) locked;
      SET p_left = p_left + v_seen - v_count;
    END IF;
    IF v_count > 0 THEN
      CALL fairturn_remove_some_(p_group, v_ids, p_now);
    END IF;
  END LOOP;
END //

-- Delete locked members. Messages of purged queues only leave the group: maintenance deletes their rows.
CREATE PROCEDURE fairturn_remove_some_(
  IN p_group BIGINT, IN p_ids LONGTEXT CHARACTER SET ascii, IN p_now BIGINT
)
BEGIN
  DECLARE v_queue INT DEFAULT 0;
  DECLARE v_told LONGTEXT CHARACTER SET ascii;
  DECLARE v_next INT;
  INSERT INTO fairturn_tally (queue_id, minute, cancelled)
    SELECT q.id, p_now - p_now MOD 60000000, COUNT(*)
      FROM JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      STRAIGHT_JOIN fairturn_queue q ON q.lane = m.lane
     GROUP BY q.id;
  queue: LOOP
    SELECT (SELECT id FROM fairturn_queue WHERE events = 1 AND id > v_queue ORDER BY id LIMIT 1) INTO v_next;
    IF v_next IS NULL THEN LEAVE queue; END IF;
    SET v_queue = v_next;
    SELECT GROUP_CONCAT(m.id ORDER BY m.id) INTO v_told
      FROM JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      STRAIGHT_JOIN fairturn_queue q ON q.lane = m.lane WHERE q.id = v_queue;
    IF v_told IS NOT NULL THEN
      CALL fairturn_emit_(v_queue, v_told, 'deleted', NULL, p_now);
    END IF;
  END LOOP;
  DELETE b FROM JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
    STRAIGHT_JOIN fairturn_member b FORCE INDEX (PRIMARY)
      ON b.group_id = p_group AND b.message_id = j.id;
  DELETE m FROM JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
    STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
    STRAIGHT_JOIN fairturn_queue q ON q.lane = m.lane;
END //

-- Lock the works of a group. p_busy: how many of them another session has locked.
CREATE PROCEDURE fairturn_works_busy_(IN p_group BIGINT, OUT p_busy INT)
BEGIN
  DECLARE v_end, v_abort BIGINT;
  DECLARE v_there, v_free INT;
  SELECT COALESCE(end_id, 0), COALESCE(abort_id, 0) INTO v_end, v_abort
    FROM fairturn_group WHERE id = p_group;
  SELECT COUNT(*) INTO v_free FROM (
    SELECT id FROM fairturn_message FORCE INDEX (PRIMARY) WHERE id IN (v_end, v_abort)
    FOR UPDATE SKIP LOCKED) free;
  SELECT COUNT(*) INTO v_there FROM fairturn_message FORCE INDEX (PRIMARY)
   WHERE id IN (v_end, v_abort);
  SET p_busy = GREATEST(v_there - v_free, 0);
END //

-- One pass over the groups with marks, at most p_limit marks, in a transaction of its own. A group that
-- another session has locked, for example a sender, keeps its marks.
CREATE PROCEDURE fairturn_settle_(
  IN p_limit INT, IN p_now BIGINT, OUT p_marks INT, OUT p_closed INT
)
BEGIN
  DECLARE v_group BIGINT DEFAULT 0;
  DECLARE v_next, v_locked, v_member BIGINT;
  DECLARE v_state, v_on_dead, v_outcome BINARY(1);
  DECLARE v_dead BIGINT;
  DECLARE v_marks, v_left INT;
  SET p_marks = 0, p_closed = 0;
  group_: WHILE p_marks < p_limit DO
    SET v_locked = NULL, v_member = NULL, v_left = 0;
    -- A subquery, since a SELECT INTO without a row leaves a warning, for which a client asks in a round
    -- trip more. Not SET v_next = (SELECT …): that would lock what it reads.
    SELECT (SELECT group_id FROM fairturn_group_mark FORCE INDEX (member_of)
             WHERE group_id > v_group ORDER BY group_id LIMIT 1) INTO v_next;
    IF v_next IS NULL THEN LEAVE group_; END IF;
    SET v_group = v_next;
    -- @stop settle.lock
    SELECT id INTO v_locked FROM fairturn_group WHERE id = v_group FOR UPDATE SKIP LOCKED;
    IF v_locked IS NULL THEN
      SELECT COUNT(*) INTO v_left FROM fairturn_group WHERE id = v_group;
      IF v_left > 0 THEN ITERATE group_; END IF;
    END IF;
    CALL fairturn_count_(v_group, v_marks);
    -- @stop settle.look
    SET v_state = NULL, v_outcome = NULL, v_left = 0;
    SELECT state, on_dead, dead INTO v_state, v_on_dead, v_dead FROM fairturn_group
     WHERE id = v_group;
    IF v_state IN ('o', 'r') AND v_on_dead = 'a' AND v_dead > 0 THEN
      SET v_outcome = 'a';
      CALL fairturn_remove_(v_group, 0, p_now, v_left);
    ELSEIF v_state = 'r' THEN
      -- Backwards: at the front of the index are deleted entries that the server has not removed yet.
      SELECT message_id INTO v_member FROM fairturn_member WHERE group_id = v_group
       ORDER BY message_id DESC LIMIT 1;
      IF v_member IS NULL THEN SET v_outcome = 'e'; END IF;
    END IF;
    IF v_outcome IS NOT NULL AND v_left = 0 THEN
      CALL fairturn_works_busy_(v_group, v_left);
    END IF;
    IF v_left > 0 THEN
      -- Another session has locked a member or a work: the next pass closes the group.
      INSERT INTO fairturn_group_mark (group_id) VALUES (v_group);
    ELSE
      SET p_marks = p_marks + v_marks;
      IF v_outcome IS NOT NULL THEN
        CALL fairturn_close_(v_group, v_outcome, p_now);
        SET p_closed = p_closed + 1;
      END IF;
    END IF;
  END WHILE;
END //

-- Settle in transactions of its own; the caller must have none. It is repeated until a pass finds no mark: a
-- session that met one of our locks meanwhile has left its marks for us.
CREATE PROCEDURE fairturn_settle_all_(IN p_limit INT, IN p_now BIGINT, OUT p_closed INT)
BEGIN
  DECLARE v_own TINYINT;
  DECLARE v_marks, v_closed INT;
  SET p_closed = 0;
  REPEAT
    CALL fairturn_open_(v_own);
    CALL fairturn_settle_(p_limit, p_now, v_marks, v_closed);
    COMMIT;
    SET p_closed = p_closed + v_closed, p_limit = p_limit - v_marks;
  UNTIL v_marks = 0 OR p_limit <= 0 END REPEAT;
END //

-- Settle after a call that has committed its own transaction. The call has succeeded, so an error by a lock
-- (timeout, deadlock) is ignored: the marks stay, and the next receive settles them.
CREATE PROCEDURE fairturn_settle_after_(IN p_now BIGINT)
BEGIN
  DECLARE v_closed INT;
  DECLARE EXIT HANDLER FOR 1205, 1213, 1020 ROLLBACK;
  CALL fairturn_settle_all_(100, p_now, v_closed);
END //

-- CALL fairturn_settle(100, '{}'): close the groups that are complete; how many. In the caller's transaction
-- it does nothing.
CREATE PROCEDURE fairturn_settle(IN p_limit INT, IN p_options LONGTEXT CHARACTER SET utf8mb4)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_closed INT DEFAULT 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_known_(p_options, 'now');
  CALL fairturn_open_(v_own);
  IF v_own THEN
    COMMIT;
    CALL fairturn_settle_all_(p_limit, COALESCE(JSON_VALUE(p_options, '$.now'),
      TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))), v_closed);
  END IF;
  SELECT v_closed AS closed;
END //

DELIMITER ;
