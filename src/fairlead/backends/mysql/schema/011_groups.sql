-- Groups: their tables, joining and leaving one (docs/semantics.md, 12).
--
-- Whether a group is complete is never counted: a row of fairlead_member is an unfinished member, and
-- a group without such rows is complete. (An index of the messages by group would hold an entry for
-- every message without one: measured, 8 % of a bulk send and 5 % of a receive.)
--
-- Whatever ends a member deletes its row there and leaves a mark in the same transaction, without
-- touching the group's row, so that members end side by side. Whoever settles (012) locks the group's
-- row, takes the marks it can see, and only then looks for members.
--
-- Lock order: the group's row, messages, members. A sender to a group holds its row in share mode.

CREATE TABLE IF NOT EXISTS fairlead_group (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  name VARBINARY(255) NOT NULL,
  open_name VARBINARY(255) NULL, -- its name while it is open: one group of a name is
  queue VARBINARY(255) NOT NULL,
  state BINARY(1) NOT NULL DEFAULT 'o', -- o open, r running, e ended, c cancelled, a aborted
  on_dead BINARY(1) NOT NULL DEFAULT 'i', -- i ignore, a abort
  end_id BIGINT NULL,
  abort_id BIGINT NULL,
  created_at BIGINT NOT NULL,
  started_at BIGINT NULL,
  closed_at BIGINT NULL,
  sent BIGINT NOT NULL DEFAULT 0,
  done BIGINT NOT NULL DEFAULT 0,
  dead BIGINT NOT NULL DEFAULT 0,
  UNIQUE KEY open_name (open_name),
  KEY name (name, closed_at),
  KEY closed (closed_at)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fairlead_member (
  group_id BIGINT NOT NULL,
  message_id BIGINT NOT NULL,
  PRIMARY KEY (group_id, message_id)
) ENGINE = InnoDB;

-- What happened to a group's members, at most one row per call and group.
CREATE TABLE IF NOT EXISTS fairlead_group_mark (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  group_id BIGINT NOT NULL,
  sent INT NOT NULL DEFAULT 0,
  done INT NOT NULL DEFAULT 0,
  dead INT NOT NULL DEFAULT 0,
  KEY member_of (group_id)
) ENGINE = InnoDB;

DELIMITER //

-- The open group of a name, its row locked in share mode, and whether it is started. NULL if there is
-- none, unless p_create: then it is made. No error is raised on the way: a trigger may send, too.
DROP PROCEDURE IF EXISTS fairlead_join_ //
CREATE PROCEDURE fairlead_join_(
  IN p_name VARBINARY(1024), IN p_queue VARBINARY(1024), IN p_create TINYINT, IN p_now BIGINT,
  OUT p_group BIGINT, OUT p_started TINYINT
)
join_: BEGIN
  DECLARE v_tries INT DEFAULT 0;
  DECLARE v_open VARBINARY(255);
  look: LOOP
    SET p_group = NULL, p_started = NULL, v_open = NULL;
    IF v_tries = 0 THEN
      -- By its id: who closes it holds the row and then writes the entry of its name.
      SELECT id INTO p_group FROM fairlead_group WHERE open_name = p_name;
      IF p_group IS NOT NULL THEN
        -- @stop join.lock
        SELECT started_at IS NOT NULL, open_name INTO p_started, v_open FROM fairlead_group
         WHERE id = p_group LOCK IN SHARE MODE;
      END IF;
    ELSE
      -- It closed meanwhile, or an old snapshot of yours does not show the one that is open.
      SELECT id, started_at IS NOT NULL, open_name INTO p_group, p_started, v_open
        FROM fairlead_group WHERE open_name = p_name LOCK IN SHARE MODE;
    END IF;
    IF v_open IS NOT NULL THEN LEAVE join_; END IF;
    SET v_tries = v_tries + 1;
    IF v_tries > 50 THEN
      SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'the group closes again and again';
    END IF;
    IF v_tries > 1 OR p_group IS NULL THEN
      IF NOT p_create THEN
        SET p_group = NULL;
        LEAVE join_;
      END IF;
      INSERT IGNORE INTO fairlead_group (name, open_name, queue, created_at)
        VALUES (p_name, p_name, p_queue, p_now);
    END IF;
  END LOOP;
END //

-- Unfinished members among locked messages ("1,2") are not that any more; p_done or p_dead says whether they
-- are counted so. Before the messages are changed.
DROP PROCEDURE IF EXISTS fairlead_leave_ //
CREATE PROCEDURE fairlead_leave_(
  IN p_ids LONGTEXT CHARACTER SET ascii, IN p_done TINYINT, IN p_dead TINYINT
)
BEGIN
  INSERT INTO fairlead_group_mark (group_id, done, dead)
    SELECT m.group_id, IF(p_done, COUNT(*), 0), IF(p_dead, COUNT(*), 0)
      FROM JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
     WHERE m.group_id IS NOT NULL AND m.state IN ('h', 's', 'r', 'l') GROUP BY m.group_id;
  DELETE b FROM JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
    STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
    STRAIGHT_JOIN fairlead_member b FORCE INDEX (PRIMARY)
      ON b.group_id = m.group_id AND b.message_id = m.id;
END //

-- CALL fairlead_group_start('import-7', '{}'): 1 if it was not started before; its held members go.
DROP PROCEDURE IF EXISTS fairlead_group_start //
CREATE PROCEDURE fairlead_group_start(
  IN p_group VARBINARY(1024), IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own, v_started TINYINT DEFAULT 0;
  DECLARE v_id, v_begun, v_now, v_member BIGINT DEFAULT NULL;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_known_(p_options, 'now');
  SET v_now = COALESCE(JSON_VALUE(p_options, '$.now'),
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
  CALL fairlead_open_(v_own);
  CALL fairlead_isolated_(v_own, 'starting a group: ');
  CALL fairlead_group_(p_group, v_id);
  IF v_id IS NOT NULL THEN
    SELECT started_at INTO v_begun FROM fairlead_group WHERE id = v_id;
    IF v_begun IS NULL THEN
      SET v_started = 1;
      UPDATE fairlead_group SET state = 'r', started_at = v_now WHERE id = v_id;
      -- @stop start.members
      UPDATE fairlead_member b
        STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = b.message_id
        SET m.state = IF(m.due_at <= v_now, 'r', 's'), m.wake_at = IF(m.due_at <= v_now, 0, m.due_at)
       WHERE b.group_id = v_id AND m.group_id = v_id AND m.state = 'h';
      SELECT message_id INTO v_member FROM fairlead_member WHERE group_id = v_id
       ORDER BY message_id DESC LIMIT 1;
      IF v_member IS NULL THEN
        CALL fairlead_close_(v_id, 'e', v_now);
      END IF;
    END IF;
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_started AS started;
END //

-- CALL fairlead_group_cancel('import-7', '{}'): 1 if such a group was open. Its unfinished members are
-- deleted; those that somebody has locked are waited for.
DROP PROCEDURE IF EXISTS fairlead_group_cancel //
CREATE PROCEDURE fairlead_group_cancel(
  IN p_group VARBINARY(1024), IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_id, v_now BIGINT DEFAULT NULL;
  DECLARE v_left INT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_known_(p_options, 'now');
  SET v_now = COALESCE(JSON_VALUE(p_options, '$.now'),
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
  CALL fairlead_open_(v_own);
  CALL fairlead_isolated_(v_own, 'cancelling a group: ');
  CALL fairlead_group_(p_group, v_id);
  IF v_id IS NOT NULL THEN
    CALL fairlead_remove_(v_id, 1, v_now, v_left);
    CALL fairlead_close_(v_id, 'c', v_now);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_id IS NOT NULL AS cancelled;
END //

-- Lock the open group of a name; NULL if there is none.
DROP PROCEDURE IF EXISTS fairlead_group_ //
CREATE PROCEDURE fairlead_group_(IN p_name VARBINARY(1024), OUT p_id BIGINT)
group_: BEGIN
  DECLARE v_id BIGINT;
  look: LOOP
    SET v_id = NULL, p_id = NULL;
    SELECT id INTO v_id FROM fairlead_group WHERE open_name = p_name;
    IF v_id IS NULL THEN LEAVE group_; END IF;
    -- @stop group.lock
    SELECT id INTO p_id FROM fairlead_group WHERE id = v_id AND open_name = p_name FOR UPDATE;
    IF p_id IS NOT NULL THEN LEAVE group_; END IF;
    -- It closed meanwhile: another one of its name may be open now.
  END LOOP;
END //

-- CALL fairlead_group_status('import-7', '{}'): the open group of that name, else the one that closed
-- last. With NULL for the name all open groups by name, at most `limit` of them (default 100).
DROP PROCEDURE IF EXISTS fairlead_group_status //
CREATE PROCEDURE fairlead_group_status(
  IN p_group VARBINARY(1024), IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_id BIGINT DEFAULT NULL;
  DECLARE v_limit INT DEFAULT COALESCE(JSON_VALUE(p_options, '$.limit'), 100);
  CALL fairlead_known_(p_options, 'limit,now');
  IF p_group IS NOT NULL THEN
    SELECT id INTO v_id FROM fairlead_group WHERE open_name = p_group;
    IF v_id IS NULL THEN
      SELECT id INTO v_id FROM fairlead_group WHERE name = p_group
       ORDER BY closed_at DESC, id DESC LIMIT 1;
    END IF;
  END IF;
  SELECT g.name, g.queue, g.state, g.created_at, g.started_at, g.closed_at,
         CAST(g.sent + COALESCE(k.sent, 0) AS SIGNED) AS sent,
         CAST(g.done + COALESCE(k.done, 0) AS SIGNED) AS done,
         CAST(g.dead + COALESCE(k.dead, 0) AS SIGNED) AS dead,
         CAST(COALESCE(c.held, 0) AS SIGNED) AS held,
         CAST(COALESCE(c.waiting, 0) AS SIGNED) AS waiting,
         CAST(COALESCE(c.leased, 0) AS SIGNED) AS leased
    FROM (SELECT * FROM fairlead_group
           WHERE id = v_id OR p_group IS NULL AND open_name IS NOT NULL
           ORDER BY name LIMIT v_limit) g
    LEFT JOIN (
      SELECT group_id, SUM(sent) AS sent, SUM(done) AS done, SUM(dead) AS dead
        FROM fairlead_group_mark WHERE p_group IS NULL OR group_id = v_id GROUP BY group_id) k
      ON k.group_id = g.id
    LEFT JOIN (
      SELECT b.group_id, SUM(m.state = 'h') AS held, SUM(m.state IN ('s', 'r')) AS waiting,
             SUM(m.state = 'l') AS leased
        FROM fairlead_member b
        STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = b.message_id
       WHERE p_group IS NULL OR b.group_id = v_id GROUP BY b.group_id) c ON c.group_id = g.id
   ORDER BY g.name;
END //

DELIMITER ;
