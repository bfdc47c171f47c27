-- Groups: opening, joining, leaving, starting and cancelling one (docs/semantics.md, 12).
--
-- Nothing counts whether a group is complete: each unfinished member has a row in fairturn_member, and a
-- group without such rows is complete. A call that ends a member deletes this row and writes a mark in the
-- same transaction. It does not touch the group's row, so members can end at the same time. The session
-- that closes groups (groups_close.sql) locks the group's row, reads the marks, and then looks for members.
--
-- Lock order: the group's row, messages, members. A sender to a group holds its row in share mode.
--
-- A *work* is the end message or the abort message of a group: a held message of the group's queue that is
-- not a member.

DELIMITER //

-- Make a work. Its options are those of a send, as the library writes them: channel, key, type and headers in
-- hex, due or delay in microseconds. Options of NULL: there is no such work. `wake_at` keeps the delay.
-- p_key: the work's key, if a message that is not dead has it; then the work is not made.
CREATE PROCEDURE fairturn_work_(
  IN p_lane INT, IN p_max_body BIGINT, IN p_body LONGBLOB, IN p_options LONGTEXT CHARACTER SET ascii,
  IN p_now BIGINT, OUT p_id BIGINT, OUT p_key VARBINARY(255)
)
work: BEGIN
  DECLARE v_key VARBINARY(255) DEFAULT UNHEX(JSON_VALUE(p_options, '$.key'));
  DECLARE v_due BIGINT DEFAULT JSON_VALUE(p_options, '$.due');
  DECLARE v_delay BIGINT DEFAULT COALESCE(JSON_VALUE(p_options, '$.delay'), 0);
  DECLARE v_holder BIGINT DEFAULT NULL;
  DECLARE v_state BINARY(1) DEFAULT NULL;
  SET p_id = NULL, p_key = NULL;
  IF p_options IS NULL THEN LEAVE work; END IF;
  IF LENGTH(p_body) > p_max_body THEN
    CALL fairturn_refuse_(45009, CONCAT(LENGTH(p_body), ' ', p_max_body));
  END IF;
  IF v_key IS NOT NULL THEN
    SELECT id, state INTO v_holder, v_state FROM fairturn_message FORCE INDEX (`key`)
     WHERE key_lane = p_lane AND `key` = v_key;
    IF v_state <> 'x' THEN
      SET p_key = v_key;
      LEAVE work;
    END IF;
    IF v_holder IS NOT NULL THEN
      UPDATE fairturn_message SET `key` = NULL WHERE id = v_holder AND state = 'x' AND `key` = v_key;
    END IF;
  END IF;
  BEGIN
    -- Another send of this key may have been first.
    DECLARE EXIT HANDLER FOR 1062 SET p_key = v_key;
    INSERT INTO fairturn_message (lane, state, version, channel, `rank`, due_at, wake_at, json,
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

-- Make a group unless one of its name is open, and return whether it was made. If a work's key is taken,
-- the SQL door (p_door) raises an error, and the library gets -1 and the key.
CREATE PROCEDURE fairturn_open_group_(
  IN p_name VARBINARY(1024), IN p_queue VARBINARY(1024), IN p_on_dead BINARY(1), IN p_end LONGBLOB,
  IN p_end_options LONGTEXT CHARACTER SET ascii, IN p_abort LONGBLOB,
  IN p_abort_options LONGTEXT CHARACTER SET ascii, IN p_given BIGINT, IN p_door TINYINT
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_created INT DEFAULT 0;
  DECLARE v_group, v_now, v_end, v_abort, v_max_body BIGINT DEFAULT NULL;
  DECLARE v_queue_id, v_lane, v_events INT;
  DECLARE v_key VARBINARY(255) DEFAULT NULL;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_open_(v_own);
  SELECT id INTO v_group FROM fairturn_group WHERE open_name = p_name;
  IF v_group IS NULL THEN
    CALL fairturn_queue_(p_queue, p_given, v_queue_id, v_lane, v_now, v_events);
    SELECT max_body INTO v_max_body FROM fairturn_queue WHERE id = v_queue_id;
    -- @stop open.insert
    -- IGNORE: if another session has just opened this group, there is no row and no error.
    INSERT IGNORE INTO fairturn_group (name, open_name, queue, on_dead, created_at)
      VALUES (p_name, p_name, p_queue, p_on_dead, v_now);
    SET v_created = ROW_COUNT() = 1;
  END IF;
  IF v_created THEN
    SET v_group = LAST_INSERT_ID();
    CALL fairturn_work_(v_lane, v_max_body, p_end, p_end_options, v_now, v_end, v_key);
    IF v_key IS NULL THEN
      CALL fairturn_work_(v_lane, v_max_body, p_abort, p_abort_options, v_now, v_abort, v_key);
    END IF;
    UPDATE fairturn_group SET end_id = v_end, abort_id = v_abort WHERE id = v_group;
  END IF;
  IF v_key IS NOT NULL AND p_door THEN
    CALL fairturn_refuse_(45003, CONVERT(v_key USING utf8mb4));
  ELSEIF v_key IS NOT NULL THEN
    SET v_created = -1;
    CALL fairturn_undo_(v_own);
  ELSEIF v_own THEN
    COMMIT;
  END IF;
  IF p_door THEN
    SELECT v_created AS created;
  ELSE
    SELECT v_created AS created, v_key AS `key`;
  END IF;
END //

-- What the library calls: (created, key that is taken).
CREATE PROCEDURE fairturn_group_create(
  IN p_name VARBINARY(1024), IN p_queue VARBINARY(1024), IN p_on_dead BINARY(1), IN p_end LONGBLOB,
  IN p_end_options LONGTEXT CHARACTER SET ascii, IN p_abort LONGBLOB,
  IN p_abort_options LONGTEXT CHARACTER SET ascii, IN p_now BIGINT
)
BEGIN
  CALL fairturn_open_group_(p_name, p_queue, p_on_dead, p_end, p_end_options, p_abort, p_abort_options,
    p_now, 0);
END //

-- From the options of a work in the SQL door to its body and the options of fairturn_work_.
CREATE PROCEDURE fairturn_work_options_(
  IN p_options LONGTEXT CHARACTER SET utf8mb4, OUT p_body LONGBLOB,
  OUT p_known LONGTEXT CHARACTER SET ascii
)
work: BEGIN
  SET p_body = NULL, p_known = NULL;
  IF p_options IS NULL OR p_options = 'null' THEN LEAVE work; END IF;
  CALL fairturn_known_(p_options,
    'body,channel,priority,delay,at,key,version,type,headers,lease,max_attempts');
  CALL fairturn_named_(JSON_VALUE(p_options, '$.channel'), JSON_VALUE(p_options, '$.key'),
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

-- CALL fairturn_group_open('import-7', 'imports', '{"on_dead": "abort", "end": {"body": {"n": 7}},
-- "abort": {"body": 1, "channel": "t7", "delay": 5}}'): 1 if it was created.
CREATE PROCEDURE fairturn_group_open(
  IN p_group VARBINARY(1024), IN p_queue VARBINARY(1024),
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_end, v_abort LONGBLOB;
  DECLARE v_end_options, v_abort_options LONGTEXT CHARACTER SET ascii;
  DECLARE v_on_dead VARCHAR(10) CHARACTER SET utf8mb4;
  CALL fairturn_known_(p_options, 'on_dead,end,abort,now');
  CALL fairturn_named_(NULL, NULL, NULL, COALESCE(p_group, ''), NULL);
  SET v_on_dead = COALESCE(JSON_VALUE(p_options, '$.on_dead'), 'ignore');
  IF v_on_dead NOT IN ('ignore', 'abort') THEN
    CALL fairturn_refuse_(45006, 'on_dead is "ignore" or "abort"');
  END IF;
  CALL fairturn_work_options_(JSON_EXTRACT(p_options, '$.end'), v_end, v_end_options);
  CALL fairturn_work_options_(JSON_EXTRACT(p_options, '$.abort'), v_abort, v_abort_options);
  CALL fairturn_open_group_(p_group, p_queue, LEFT(v_on_dead, 1), v_end, v_end_options, v_abort,
    v_abort_options, JSON_VALUE(p_options, '$.now'), 1);
END //

-- Lock the open groups of some names ('["hex", …]', sorted) in share mode. With p_create the missing ones
-- are made. One row: '[["hex", id, started], …]' (backends/mysql/sends.py).
CREATE PROCEDURE fairturn_groups_join(
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
    CALL fairturn_join_(UNHEX(v_name), p_queue, p_create, p_now, v_group, v_started);
    IF v_group IS NOT NULL THEN
      SET v_found = CONCAT(v_found, IF(v_found = '', '', ','), '["', v_name, '",', v_group, ',',
        v_started, ']');
    END IF;
  END WHILE;
  SELECT CONCAT('[', v_found, ']') AS found;
END //

-- Messages ([ids]) become members of their groups. p_marks: [[group, how many were sent], …].
CREATE PROCEDURE fairturn_members_joined(
  IN p_ids LONGTEXT CHARACTER SET ascii, IN p_marks LONGTEXT CHARACTER SET ascii
)
BEGIN
  INSERT IGNORE INTO fairturn_member (group_id, message_id)
    SELECT m.group_id, m.id FROM JSON_TABLE(p_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
     WHERE m.group_id IS NOT NULL;
  INSERT INTO fairturn_group_mark (group_id, sent)
    SELECT group_id, sent FROM JSON_TABLE(p_marks, '$[*]' COLUMNS (
      group_id BIGINT PATH '$[0]', sent INT PATH '$[1]')) marks;
END //

-- Messages ("1,2") leave their groups because they will be replaced.
CREATE PROCEDURE fairturn_members_left(IN p_ids LONGTEXT CHARACTER SET ascii)
BEGIN
  CALL fairturn_leave_(p_ids, 0, 0);
END //

-- Lock the open group of a name in share mode. p_group: its id, or NULL if there is none; with p_create it is
-- then made. It is no error if another session makes it at the same time.
CREATE PROCEDURE fairturn_join_(
  IN p_name VARBINARY(1024), IN p_queue VARBINARY(1024), IN p_create TINYINT, IN p_now BIGINT,
  OUT p_group BIGINT, OUT p_started TINYINT
)
join_: BEGIN
  DECLARE v_tries INT DEFAULT 0;
  DECLARE v_open VARBINARY(255);
  IF @fairturn_cluster IS NULL THEN CALL fairturn_cluster_(); END IF;
  look: LOOP
    SET p_group = NULL, p_started = NULL, v_open = NULL;
    IF v_tries = 0 THEN
      -- Locked by its id: a session that closes it locks the row first, then the index entry of its name.
      SELECT id INTO p_group FROM fairturn_group WHERE open_name = p_name;
      IF p_group IS NOT NULL THEN
        -- @stop join.lock
        IF @fairturn_cluster THEN -- see cluster.sql
          UPDATE fairturn_group SET joins = joins + 1 WHERE id = p_group;
        END IF;
        SELECT started_at IS NOT NULL, open_name INTO p_started, v_open FROM fairturn_group
         WHERE id = p_group LOCK IN SHARE MODE;
      END IF;
    ELSE
      -- It closed meanwhile, or the caller's snapshot is too old to show the open one.
      IF @fairturn_cluster THEN
        UPDATE fairturn_group SET joins = joins + 1 WHERE open_name = p_name;
      END IF;
      SELECT id, started_at IS NOT NULL, open_name INTO p_group, p_started, v_open
        FROM fairturn_group WHERE open_name = p_name LOCK IN SHARE MODE;
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
      INSERT IGNORE INTO fairturn_group (name, open_name, queue, created_at)
        VALUES (p_name, p_name, p_queue, p_now);
    END IF;
  END LOOP;
END //

-- Unfinished members among locked messages ("1,2") leave their groups. p_done, p_dead: whether the group
-- counts them so. Call this before the messages are changed.
CREATE PROCEDURE fairturn_leave_(
  IN p_ids LONGTEXT CHARACTER SET ascii, IN p_done TINYINT, IN p_dead TINYINT
)
BEGIN
  INSERT INTO fairturn_group_mark (group_id, done, dead)
    SELECT m.group_id, IF(p_done, COUNT(*), 0), IF(p_dead, COUNT(*), 0)
      FROM JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
     WHERE m.group_id IS NOT NULL AND m.state IN ('h', 's', 'r', 'l') GROUP BY m.group_id;
  DELETE b FROM JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
    STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
    STRAIGHT_JOIN fairturn_member b FORCE INDEX (PRIMARY)
      ON b.group_id = m.group_id AND b.message_id = m.id;
END //

-- CALL fairturn_group_start('import-7', '{}'): 1 if it was not started before. Its held members are ready
-- or scheduled then.
CREATE PROCEDURE fairturn_group_start(
  IN p_group VARBINARY(1024), IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own, v_started TINYINT DEFAULT 0;
  DECLARE v_id, v_begun, v_now, v_member BIGINT DEFAULT NULL;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_known_(p_options, 'now');
  SET v_now = COALESCE(JSON_VALUE(p_options, '$.now'),
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
  CALL fairturn_open_(v_own);
  CALL fairturn_isolated_(v_own, 'starting a group: ');
  CALL fairturn_group_(p_group, v_id);
  IF v_id IS NOT NULL THEN
    SELECT started_at INTO v_begun FROM fairturn_group WHERE id = v_id;
    IF v_begun IS NULL THEN
      SET v_started = 1;
      UPDATE fairturn_group SET state = 'r', started_at = v_now WHERE id = v_id;
      -- @stop start.members
      UPDATE fairturn_member b
        STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = b.message_id
        SET m.state = IF(m.due_at <= v_now, 'r', 's'), m.wake_at = IF(m.due_at <= v_now, 0, m.due_at)
       WHERE b.group_id = v_id AND m.group_id = v_id AND m.state = 'h';
      SELECT message_id INTO v_member FROM fairturn_member WHERE group_id = v_id
       ORDER BY message_id DESC LIMIT 1;
      IF v_member IS NULL THEN
        CALL fairturn_close_(v_id, 'e', v_now);
      END IF;
    END IF;
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_started AS started;
END //

-- CALL fairturn_group_cancel('import-7', '{}'): 1 if such a group was open. Its unfinished members are
-- deleted; this waits for members that are locked.
CREATE PROCEDURE fairturn_group_cancel(
  IN p_group VARBINARY(1024), IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_id, v_now BIGINT DEFAULT NULL;
  DECLARE v_left INT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_known_(p_options, 'now');
  SET v_now = COALESCE(JSON_VALUE(p_options, '$.now'),
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
  CALL fairturn_open_(v_own);
  CALL fairturn_isolated_(v_own, 'cancelling a group: ');
  CALL fairturn_group_(p_group, v_id);
  IF v_id IS NOT NULL THEN
    CALL fairturn_remove_(v_id, 1, v_now, v_left);
    CALL fairturn_close_(v_id, 'c', v_now);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_id IS NOT NULL AS cancelled;
END //

-- Lock the open group of a name; NULL if there is none.
CREATE PROCEDURE fairturn_group_(IN p_name VARBINARY(1024), OUT p_id BIGINT)
group_: BEGIN
  DECLARE v_id BIGINT;
  look: LOOP
    SET v_id = NULL, p_id = NULL;
    SELECT id INTO v_id FROM fairturn_group WHERE open_name = p_name;
    IF v_id IS NULL THEN LEAVE group_; END IF;
    -- @stop group.lock
    SELECT id INTO p_id FROM fairturn_group WHERE id = v_id AND open_name = p_name FOR UPDATE;
    IF p_id IS NOT NULL THEN LEAVE group_; END IF;
    -- It closed meanwhile: another group of this name may be open now.
  END LOOP;
END //

-- CALL fairturn_group_status('import-7', '{}'): the open group of that name, or the one that closed last.
-- With NULL instead of a name: all open groups by name, at most `limit` (default 100).
CREATE PROCEDURE fairturn_group_status(
  IN p_group VARBINARY(1024), IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_id BIGINT DEFAULT NULL;
  DECLARE v_limit INT DEFAULT COALESCE(JSON_VALUE(p_options, '$.limit'), 100);
  CALL fairturn_known_(p_options, 'limit,now');
  IF p_group IS NOT NULL THEN
    SELECT id INTO v_id FROM fairturn_group WHERE open_name = p_group;
    IF v_id IS NULL THEN
      SELECT id INTO v_id FROM fairturn_group WHERE name = p_group
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
    FROM (SELECT * FROM fairturn_group
           WHERE id = v_id OR p_group IS NULL AND open_name IS NOT NULL
           ORDER BY name LIMIT v_limit) g
    LEFT JOIN (
      SELECT group_id, SUM(sent) AS sent, SUM(done) AS done, SUM(dead) AS dead
        FROM fairturn_group_mark WHERE p_group IS NULL OR group_id = v_id GROUP BY group_id) k
      ON k.group_id = g.id
    LEFT JOIN (
      SELECT b.group_id, SUM(m.state = 'h') AS held, SUM(m.state IN ('s', 'r')) AS waiting,
             SUM(m.state = 'l') AS leased
        FROM fairturn_member b
        STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = b.message_id
       WHERE p_group IS NULL OR b.group_id = v_id GROUP BY b.group_id) c ON c.group_id = g.id
   ORDER BY g.name;
END //

DELIMITER ;
