-- Events: what happened, in an append-only table (docs/semantics.md, 15).
--
-- Ids are handed out before they are committed, so a reader meets gaps. One whose rows somebody has
-- locked will be filled: the reader stops before it. An empty one was rolled back, or its INSERT is
-- just on its way between the number and the row. So whoever writes events first takes the row 'event'
-- of fairlead_lock in share mode: a reader who gets that row for itself, for a moment, knows that nobody
-- is on the way. Where there is always somebody, a gap is passed once a second has gone by.
--
-- Several rows go in by INSERT ... VALUES, never by INSERT ... SELECT: the latter reserves more ids
-- than it uses, and every reader would wait at the gap.

CREATE TABLE IF NOT EXISTS fairlead_event (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  at BIGINT NOT NULL,
  written TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), -- the server's clock, whatever `at` is
  kind VARBINARY(8) NOT NULL,
  queue VARBINARY(255) NOT NULL,
  message_id BIGINT NULL,
  `key` VARBINARY(255) NULL,
  channel VARBINARY(255) NULL,
  delay_us BIGINT NULL,
  data MEDIUMBLOB NULL
) ENGINE = InnoDB;

-- One row: the last event that maintenance has deleted. What is missing up to there is no gap.
CREATE TABLE IF NOT EXISTS fairlead_event_floor (
  name VARBINARY(8) NOT NULL PRIMARY KEY,
  id BIGINT NOT NULL
) ENGINE = InnoDB;

INSERT IGNORE INTO fairlead_event_floor (name, id) VALUES ('floor', 0);

INSERT IGNORE INTO fairlead_lock (name) VALUES ('event');

DELIMITER //

-- One event of a kind for each message ("1,2"), in that order, as their rows are now. p_error: of dead ones.
DROP PROCEDURE IF EXISTS fairlead_emit_ //
CREATE PROCEDURE fairlead_emit_(
  IN p_queue_id INT, IN p_ids LONGTEXT CHARACTER SET ascii, IN p_kind VARCHAR(8) CHARACTER SET ascii,
  IN p_error MEDIUMBLOB, IN p_now BIGINT
)
BEGIN
  DECLARE v_head VARCHAR(600) CHARACTER SET ascii;
  DECLARE v_some, v_rows LONGTEXT CHARACTER SET ascii;
  DECLARE v_lock VARBINARY(32);
  SELECT name INTO v_lock FROM fairlead_lock WHERE name = 'event' LOCK IN SHARE MODE;
  SELECT CONCAT('(', p_now, ',''', p_kind, ''',X''', HEX(name), ''',') INTO v_head
    FROM fairlead_queue WHERE id = p_queue_id;
  SET @fairlead_data = IF(p_kind = 'dead',
        JSON_OBJECT('error', CONVERT(p_error USING utf8mb4)), NULL);
  -- So many rows fit into GROUP_CONCAT however long their names are.
  WHILE p_ids <> '' DO
    SET v_some = SUBSTRING_INDEX(p_ids, ',', 500), p_ids = SUBSTR(p_ids, LENGTH(v_some) + 2);
    -- FOR UPDATE, though they are locked: an old snapshot of yours may not show them.
    SELECT GROUP_CONCAT(v_head, id, ',', COALESCE(CONCAT('X''', HEX(`key`), ''''), 'NULL'), ',X''',
             HEX(channel), ''',', IF(p_kind IN ('created', 'deferred'), delay, 'NULL'), ',',
             CASE p_kind
               WHEN 'leased' THEN CONCAT('''{"attempts": ', attempts, ', "deliveries": ', deliveries, '}''')
               WHEN 'progress' THEN CONCAT('JSON_OBJECT(''progress'', ',
                 COALESCE(fraction, 'NULL'), ', ''note'', (SELECT CONVERT(note USING utf8mb4)',
                 ' FROM fairlead_message WHERE id = ', id, '))')
               ELSE '@fairlead_data' END, ')' ORDER BY n) INTO v_rows
      FROM (
        SELECT j.n, m.id, m.`key`, m.channel, GREATEST(m.due_at - p_now, 0) AS delay, m.attempts,
               m.deliveries, CONCAT(m.progress DIV 1000000, '.', COALESCE(NULLIF(TRIM(TRAILING '0'
                 FROM LPAD(m.progress MOD 1000000, 6, '0')), ''), '0')) AS fraction
          FROM JSON_TABLE(CONCAT('[', v_some, ']'), '$[*]'
                 COLUMNS (n FOR ORDINALITY, id BIGINT PATH '$')) j
          STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id FOR UPDATE) told;
    IF v_rows IS NOT NULL THEN
      SET @fairlead_sql = CONCAT('INSERT INTO fairlead_event (at, kind, queue, message_id, `key`,',
        ' channel, delay_us, data) VALUES ', v_rows);
      PREPARE fairlead_emit FROM @fairlead_sql;
      EXECUTE fairlead_emit;
      DEALLOCATE PREPARE fairlead_emit;
    END IF;
  END WHILE;
  SET @fairlead_data = NULL;
END //

-- The library's batched send: (queue_id, '1,2', now).
DROP PROCEDURE IF EXISTS fairlead_created //
CREATE PROCEDURE fairlead_created(
  IN p_queue_id INT, IN p_ids LONGTEXT CHARACTER SET ascii, IN p_now BIGINT
)
BEGIN
  DECLARE v_own TINYINT;
  CALL fairlead_open_(v_own); -- in the batch's transaction: only for GROUP_CONCAT's bound
  CALL fairlead_emit_(p_queue_id, p_ids, 'created', NULL, p_now);
  IF v_own THEN COMMIT; END IF;
END //

-- How far one can read: p_end is the id before the first gap that may still be filled, among the next
-- p_rows events after p_after; p_more tells that there may be more behind it.
DROP PROCEDURE IF EXISTS fairlead_readable_ //
CREATE PROCEDURE fairlead_readable_(
  IN p_after BIGINT, IN p_rows INT, IN p_own TINYINT, OUT p_end BIGINT, OUT p_more TINYINT
)
BEGIN
  DECLARE v_gaps LONGTEXT CHARACTER SET ascii;
  DECLARE v_gap VARCHAR(64) CHARACTER SET ascii;
  DECLARE v_rows, v_count INT;
  DECLARE v_filled, v_quiet, v_own TINYINT DEFAULT 0;
  SELECT COUNT(*), COALESCE(MAX(id), p_after) INTO v_rows, p_end FROM (
    SELECT id FROM fairlead_event WHERE id > p_after ORDER BY id LIMIT p_rows) page;
  -- Gaps as "before:behind:young", at most 1,000 of them.
  SELECT COALESCE(GROUP_CONCAT(last, ':', id, ':', young ORDER BY id), ''), COUNT(*)
    INTO v_gaps, v_count FROM (
      SELECT last, id, young FROM (
        SELECT id, written > NOW(6) - INTERVAL 1 SECOND AS young,
               COALESCE(LAG(id) OVER (ORDER BY id), p_after) AS last
          FROM fairlead_event WHERE id > p_after AND id <= p_end) page
       WHERE id > last + 1 ORDER BY id LIMIT 1000) gaps;
  SET p_more = v_rows >= p_rows;
  IF v_count >= 1000 THEN
    SET p_end = SUBSTRING_INDEX(SUBSTRING_INDEX(v_gaps, ',', -1), ':', 1), p_more = 1;
  END IF;
  gap: WHILE v_gaps <> '' DO
    SET v_gap = SUBSTRING_INDEX(v_gaps, ',', 1), v_gaps = SUBSTR(v_gaps, LENGTH(v_gap) + 2);
    -- @stop events.gap
    CALL fairlead_filled_(v_gap, v_filled);
    IF NOT v_filled AND SUBSTRING_INDEX(v_gap, ':', -1) = '1' AND NOT v_quiet THEN
      -- In your transaction the lock would stay: there time must tell.
      IF p_own THEN CALL fairlead_quiet_(v_quiet); END IF;
      -- Asked again: the last of those who were on the way may have ended with a commit.
      IF v_quiet THEN
        CALL fairlead_filled_(v_gap, v_filled);
        COMMIT;
        CALL fairlead_open_(v_own);
      ELSE
        SET v_filled = 1;
      END IF;
    END IF;
    IF v_filled THEN
      SET p_end = SUBSTRING_INDEX(v_gap, ':', 1), p_more = 0;
      LEAVE gap;
    END IF;
  END WHILE;
END //

-- Whether a gap ("before:behind:…") has rows: somebody's who has not committed them, or committed since
-- our look; then the next read gives them.
DROP PROCEDURE IF EXISTS fairlead_filled_ //
CREATE PROCEDURE fairlead_filled_(IN p_gap VARCHAR(64) CHARACTER SET ascii, OUT p_filled TINYINT)
BEGIN
  SET p_filled = 0, @fairlead_found = 0;
  -- MariaDB takes NOWAIT in prepared statements only.
  SET @fairlead_sql = CONCAT('SELECT COUNT(*) INTO @fairlead_found FROM fairlead_event',
    ' FORCE INDEX (PRIMARY) WHERE id > ', SUBSTRING_INDEX(p_gap, ':', 1), ' AND id < ',
    SUBSTRING_INDEX(SUBSTRING_INDEX(p_gap, ':', 2), ':', -1), ' FOR UPDATE NOWAIT');
  PREPARE fairlead_gap FROM @fairlead_sql;
  BEGIN
    DECLARE CONTINUE HANDLER FOR 1205, 3572 SET p_filled = 1;
    EXECUTE fairlead_gap;
  END;
  DEALLOCATE PREPARE fairlead_gap;
  SET p_filled = p_filled OR @fairlead_found > 0;
END //

-- Whether no transaction that writes events is open; then none can begin to before the lock is let go.
DROP PROCEDURE IF EXISTS fairlead_quiet_ //
CREATE PROCEDURE fairlead_quiet_(OUT p_quiet TINYINT)
BEGIN
  SET p_quiet = 1;
  SET @fairlead_sql = 'SELECT name INTO @fairlead_found FROM fairlead_lock WHERE name = ''event'' FOR UPDATE NOWAIT';
  PREPARE fairlead_quiet FROM @fairlead_sql;
  BEGIN
    DECLARE CONTINUE HANDLER FOR 1205, 3572 SET p_quiet = 0;
    EXECUTE fairlead_quiet;
  END;
  DEALLOCATE PREPARE fairlead_quiet;
END //

-- The ids of the events to give ("1,2" or NULL) and the cursor behind them. p_kinds: '["done", …]'.
DROP PROCEDURE IF EXISTS fairlead_read_ //
CREATE PROCEDURE fairlead_read_(
  IN p_after VARCHAR(64) CHARACTER SET ascii, IN p_queue VARBINARY(1024),
  IN p_kinds LONGTEXT CHARACTER SET ascii, IN p_limit INT, IN p_own TINYINT,
  OUT p_ids LONGTEXT CHARACTER SET ascii, OUT p_cursor BIGINT
)
read_: BEGIN
  DECLARE v_id, v_lane, v_events, v_count, v_rows INT DEFAULT 0;
  DECLARE v_now, v_end, v_floor BIGINT DEFAULT 0;
  DECLARE v_more TINYINT DEFAULT 1;
  SET p_ids = NULL, p_cursor = 0;
  SELECT id INTO v_floor FROM fairlead_event_floor WHERE name = 'floor';
  IF p_queue IS NOT NULL THEN
    CALL fairlead_queue_(p_queue, NULL, v_id, v_lane, v_now, v_events);
  END IF;
  IF p_after IS NULL THEN
    -- Now: behind the last event, but before what may still come among the last ones.
    SELECT id INTO p_cursor FROM fairlead_event ORDER BY id DESC LIMIT 1;
    SET p_cursor = GREATEST(p_cursor - 100000, v_floor);
    CALL fairlead_readable_(p_cursor, 1000000, p_own, v_end, v_more);
    SET p_cursor = v_end;
    LEAVE read_;
  END IF;
  SET p_cursor = GREATEST(IF(p_after = '', 0, p_after), v_floor), p_limit = LEAST(p_limit, 10000),
      v_rows = IF(p_queue IS NULL AND p_kinds IS NULL, p_limit, 10000);
  page: WHILE v_more AND p_ids IS NULL DO
    CALL fairlead_readable_(p_cursor, v_rows, p_own, v_end, v_more);
    SELECT GROUP_CONCAT(id ORDER BY id), COUNT(*) INTO p_ids, v_count FROM (
      SELECT id FROM fairlead_event
       WHERE id > p_cursor AND id <= v_end AND (p_queue IS NULL OR queue = p_queue)
         AND (p_kinds IS NULL OR LOCATE(CONCAT('"', kind, '"'), p_kinds) > 0)
       ORDER BY id LIMIT p_limit) found;
    SET p_cursor = IF(v_count >= p_limit, SUBSTRING_INDEX(p_ids, ',', -1), v_end);
  END WHILE;
END //

-- CALL fairlead_events('', 'emails', '{"kinds": ["done", "dead"], "limit": 100}'): the events after a
-- cursor ('': from the beginning; NULL: none, only the cursor of now), of one queue or, with NULL, of all. Each
-- row's `cursor` is where to go on after it; @fairlead_cursor is where to go on after all.
DROP PROCEDURE IF EXISTS fairlead_events //
CREATE PROCEDURE fairlead_events(
  IN p_after VARCHAR(64) CHARACTER SET ascii, IN p_queue VARBINARY(1024),
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_cursor BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_known_(p_options, 'kinds,limit');
  IF p_after <> '' AND p_after NOT REGEXP '^[0-9]{1,18}$' THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45006, MESSAGE_TEXT =
      'after is the cursor of an event, an empty string, or NULL';
  END IF;
  CALL fairlead_open_(v_own);
  CALL fairlead_isolated_(v_own, 'reading events: ');
  CALL fairlead_read_(p_after, p_queue, JSON_EXTRACT(p_options, '$.kinds'),
    COALESCE(JSON_VALUE(p_options, '$.limit'), 100), v_own, v_ids, v_cursor);
  SET @fairlead_cursor = CAST(v_cursor AS CHAR);
  SELECT CAST(e.id AS CHAR) AS `cursor`, e.at, CONVERT(e.kind USING utf8mb4) AS kind,
         CONVERT(e.queue USING utf8mb4) AS queue, e.message_id AS id,
         CONVERT(e.`key` USING utf8mb4) AS `key`, CONVERT(e.channel USING utf8mb4) AS channel,
         e.delay_us, CONVERT(e.data USING utf8mb4) AS data
    FROM JSON_TABLE(CONCAT('[', COALESCE(v_ids, ''), ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
    STRAIGHT_JOIN fairlead_event e FORCE INDEX (PRIMARY) ON e.id = j.id ORDER BY e.id;
  IF v_own THEN COMMIT; END IF;
END //

-- What the library calls: the same columns as bytes, and a last row that only has the cursor.
DROP PROCEDURE IF EXISTS fairlead_events_after //
CREATE PROCEDURE fairlead_events_after(
  IN p_after VARCHAR(64) CHARACTER SET ascii, IN p_queue VARBINARY(1024),
  IN p_kinds LONGTEXT CHARACTER SET ascii, IN p_limit INT
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_cursor BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_isolated_(v_own, 'reading events: ');
  CALL fairlead_read_(p_after, p_queue, p_kinds, p_limit, v_own, v_ids, v_cursor);
  SELECT COALESCE(e.id, v_cursor) AS `cursor`, e.at, e.kind, e.queue, e.message_id, e.`key`, e.channel,
         e.delay_us, e.data
    FROM JSON_TABLE(CONCAT('[', COALESCE(CONCAT(v_ids, ','), ''), '0]'), '$[*]'
           COLUMNS (n FOR ORDINALITY, id BIGINT PATH '$')) j
    LEFT JOIN fairlead_event e FORCE INDEX (PRIMARY) ON e.id = j.id ORDER BY j.n;
  IF v_own THEN COMMIT; END IF;
END //

-- Delete events up to a time, oldest first. Times ascend with the ids, but for what committed late.
DROP PROCEDURE IF EXISTS fairlead_forget_events_ //
CREATE PROCEDURE fairlead_forget_events_(IN p_until BIGINT, IN p_limit INT, OUT p_count INT)
BEGIN
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_last, v_first BIGINT DEFAULT NULL;
  SELECT GROUP_CONCAT(id), COUNT(*), MAX(id) INTO v_ids, p_count, v_last FROM (
    SELECT id, at FROM fairlead_event ORDER BY id LIMIT p_limit FOR UPDATE SKIP LOCKED) oldest
   WHERE at <= p_until;
  IF p_count > 0 THEN
    DELETE e FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_event e FORCE INDEX (PRIMARY) ON e.id = j.id;
    SELECT id INTO v_first FROM fairlead_event ORDER BY id LIMIT 1;
    UPDATE fairlead_event_floor SET id = GREATEST(id, LEAST(v_last, COALESCE(v_first - 1, v_last)))
     WHERE name = 'floor';
  END IF;
END //

DELIMITER ;
