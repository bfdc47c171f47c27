-- Events (docs/semantics.md, 15).
--
-- A row gets its id before it is committed, so a reader meets gaps. A gap with locked rows will be filled:
-- the reader stops before it. A gap without rows was rolled back, or its INSERT has its ids and has not
-- written the rows yet. Therefore a writer of events first locks the row 'event' of fairturn_lock in share
-- mode. A reader that gets this row for itself knows that no INSERT is under way. If there is always a
-- writer, the reader passes a gap after a second.
--
-- Several rows are written by INSERT ... VALUES, never by INSERT ... SELECT: that reserves more ids than it
-- uses, and every reader would wait at the gap.
--
-- In a Galera cluster nobody sees the locks of another node. There events are first written to
-- fairturn_event_new, and readers give them their ids: in this order there is no gap (cluster.sql).

DELIMITER //

-- Write one event of a kind for each message ("1,2"), in that order, from its present row. p_error: the error
-- of dead messages.
CREATE PROCEDURE fairturn_emit_(
  IN p_queue_id INT, IN p_ids LONGTEXT CHARACTER SET ascii, IN p_kind VARCHAR(8) CHARACTER SET ascii,
  IN p_error MEDIUMBLOB, IN p_now BIGINT
)
BEGIN
  DECLARE v_head VARCHAR(600) CHARACTER SET ascii;
  DECLARE v_some, v_rows LONGTEXT CHARACTER SET ascii;
  DECLARE v_lock VARBINARY(32);
  IF NOT @fairturn_cluster THEN
    SELECT name INTO v_lock FROM fairturn_lock WHERE name = 'event' LOCK IN SHARE MODE;
  END IF;
  SELECT CONCAT('(', p_now, ',''', p_kind, ''',X''', HEX(name), ''',') INTO v_head
    FROM fairturn_queue WHERE id = p_queue_id;
  SET @fairturn_data = IF(p_kind = 'dead',
        JSON_OBJECT('error', CONVERT(p_error USING utf8mb4)), NULL);
  -- 500 rows fit into GROUP_CONCAT, however long their names are.
  WHILE p_ids <> '' DO
    SET v_some = SUBSTRING_INDEX(p_ids, ',', 500), p_ids = SUBSTR(p_ids, LENGTH(v_some) + 2);
    -- FOR UPDATE, though they are locked: the caller's snapshot may be too old to show the present rows.
    SELECT GROUP_CONCAT(v_head, id, ',', COALESCE(CONCAT('X''', HEX(`key`), ''''), 'NULL'), ',X''',
             HEX(channel), ''',', IF(p_kind IN ('created', 'deferred'), delay, 'NULL'), ',',
             CASE p_kind
               WHEN 'leased' THEN CONCAT('''{"attempts": ', attempts, ', "deliveries": ', deliveries, '}''')
               WHEN 'progress' THEN CONCAT('JSON_OBJECT(''progress'', ',
                 COALESCE(fraction, 'NULL'), ', ''note'', (SELECT CONVERT(note USING utf8mb4)',
                 ' FROM fairturn_message WHERE id = ', id, '))')
               ELSE '@fairturn_data' END, ')' ORDER BY n) INTO v_rows
      FROM (
        SELECT j.n, m.id, m.`key`, m.channel, GREATEST(m.due_at - p_now, 0) AS delay, m.attempts,
               m.deliveries, CONCAT(m.progress DIV 1000000, '.', COALESCE(NULLIF(TRIM(TRAILING '0'
                 FROM LPAD(m.progress MOD 1000000, 6, '0')), ''), '0')) AS fraction
          FROM JSON_TABLE(CONCAT('[', v_some, ']'), '$[*]'
                 COLUMNS (n FOR ORDINALITY, id BIGINT PATH '$')) j
          STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id FOR UPDATE) told;
    IF v_rows IS NOT NULL THEN
      SET @fairturn_sql = CONCAT('INSERT INTO ',
        IF(@fairturn_cluster, 'fairturn_event_new', 'fairturn_event'), ' (at, kind, queue, message_id, `key`,',
        ' channel, delay_us, data) VALUES ', v_rows);
      PREPARE fairturn_emit FROM @fairturn_sql;
      EXECUTE fairturn_emit;
      DEALLOCATE PREPARE fairturn_emit;
    END IF;
  END WHILE;
  SET @fairturn_data = NULL;
END //

-- The events of the library's batched send. p_ids: "1,2".
CREATE PROCEDURE fairturn_created(
  IN p_queue_id INT, IN p_ids LONGTEXT CHARACTER SET ascii, IN p_now BIGINT
)
BEGIN
  DECLARE v_own TINYINT;
  CALL fairturn_open_(v_own); -- only for the length of GROUP_CONCAT: the batch has a transaction
  CALL fairturn_emit_(p_queue_id, p_ids, 'created', NULL, p_now);
  IF v_own THEN COMMIT; END IF;
END //

-- How far events can be read. p_end: among the next p_rows events after p_after, the id before the first gap
-- that may still be filled. p_more: whether there may be more events after it.
CREATE PROCEDURE fairturn_readable_(
  IN p_after BIGINT, IN p_rows INT, IN p_own TINYINT, OUT p_end BIGINT, OUT p_more TINYINT
)
BEGIN
  DECLARE v_gaps LONGTEXT CHARACTER SET ascii;
  DECLARE v_gap VARCHAR(64) CHARACTER SET ascii;
  DECLARE v_rows, v_count INT;
  DECLARE v_filled, v_quiet, v_busy, v_own TINYINT DEFAULT 0;
  SELECT COUNT(*), COALESCE(MAX(id), p_after) INTO v_rows, p_end FROM (
    SELECT id FROM fairturn_event WHERE id > p_after ORDER BY id LIMIT p_rows) page;
  -- Gaps as "before:behind:young", at most 1,000 of them.
  SELECT COALESCE(GROUP_CONCAT(last, ':', id, ':', young ORDER BY id), ''), COUNT(*)
    INTO v_gaps, v_count FROM (
      SELECT last, id, young FROM (
        SELECT id, written > NOW(6) - INTERVAL 1 SECOND AS young,
               COALESCE(LAG(id) OVER (ORDER BY id), p_after) AS last
          FROM fairturn_event WHERE id > p_after AND id <= p_end) page
       WHERE id > last + 1 ORDER BY id LIMIT 1000) gaps;
  SET p_more = v_rows >= p_rows;
  IF v_count >= 1000 THEN
    SET p_end = SUBSTRING_INDEX(SUBSTRING_INDEX(v_gaps, ',', -1), ':', 1), p_more = 1;
  END IF;
  gap: WHILE v_gaps <> '' DO
    SET v_gap = SUBSTRING_INDEX(v_gaps, ',', 1), v_gaps = SUBSTR(v_gaps, LENGTH(v_gap) + 2);
    -- @stop events.gap
    CALL fairturn_filled_(v_gap, v_filled);
    IF NOT v_filled AND SUBSTRING_INDEX(v_gap, ':', -1) = '1' AND NOT v_quiet THEN
      -- In the caller's transaction the lock would stay: there only the time decides.
      IF p_own THEN
        CALL fairturn_nowait_('SELECT name INTO @fairturn_found FROM fairturn_lock WHERE name = ''event''
          FOR UPDATE NOWAIT', v_busy);
        SET v_quiet = NOT v_busy;
      END IF;
      -- Checked again: the last of the writers may have committed meanwhile.
      IF v_quiet THEN
        CALL fairturn_filled_(v_gap, v_filled);
        COMMIT;
        CALL fairturn_open_(v_own);
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

-- Whether a gap ("before:behind:…") has rows: of a transaction that is still open, or committed since the
-- gap was found. The next read returns them.
CREATE PROCEDURE fairturn_filled_(IN p_gap VARCHAR(64) CHARACTER SET ascii, OUT p_filled TINYINT)
BEGIN
  SET @fairturn_found = 0;
  CALL fairturn_nowait_(CONCAT('SELECT COUNT(*) INTO @fairturn_found FROM fairturn_event',
    ' FORCE INDEX (PRIMARY) WHERE id > ', SUBSTRING_INDEX(p_gap, ':', 1), ' AND id < ',
    SUBSTRING_INDEX(SUBSTRING_INDEX(p_gap, ':', 2), ':', -1), ' FOR UPDATE NOWAIT'), p_filled);
  SET p_filled = p_filled OR @fairturn_found > 0;
END //

-- Read events. p_kinds: '["done", …]' or NULL. p_door: 1 for the SQL door, 0 for the library.
CREATE PROCEDURE fairturn_read_(
  IN p_after VARCHAR(64) CHARACTER SET ascii, IN p_queue VARBINARY(1024),
  IN p_kinds LONGTEXT CHARACTER SET ascii, IN p_limit INT, IN p_door TINYINT
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_id, v_lane, v_events, v_count, v_rows INT DEFAULT 0;
  DECLARE v_now, v_end, v_floor, v_cursor BIGINT DEFAULT 0;
  DECLARE v_after BIGINT DEFAULT COALESCE(NULLIF(SUBSTRING_INDEX(p_after, '-', 1), ''), 0);
  DECLARE v_at BIGINT DEFAULT IF(LOCATE('-', p_after), SUBSTRING_INDEX(p_after, '-', -1), NULL);
  DECLARE v_text VARCHAR(64) CHARACTER SET ascii DEFAULT NULL;
  DECLARE v_more TINYINT DEFAULT 1;
  DECLARE v_ids LONGTEXT CHARACTER SET ascii DEFAULT NULL;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_open_(v_own);
  CALL fairturn_isolated_(v_own, 'reading events: ');
  SELECT COUNT(*) INTO v_count FROM (SELECT 1 FROM fairturn_event_new LIMIT 1) new;
  IF v_count > 0 AND v_own THEN
    COMMIT;
    CALL fairturn_place_all_();
    CALL fairturn_open_(v_own);
  ELSEIF v_count > 0 THEN
    CALL fairturn_place_(10000, v_count);
  END IF;
  SELECT id INTO v_floor FROM fairturn_event_floor WHERE name = 'floor';
  IF p_queue IS NOT NULL THEN
    CALL fairturn_queue_(p_queue, NULL, v_id, v_lane, v_now, v_events);
  END IF;
  -- A cursor is the id and the time of the last event that was read. If that is not there, and was not deleted
  -- by maintenance, or another event has its id, the database was set back. (Not in the IF: InnoDB locks what
  -- an expression reads.)
  SELECT COUNT(*) INTO v_count FROM fairturn_event WHERE id = v_after AND at = v_at;
  IF v_at IS NOT NULL AND v_after > v_floor AND v_count = 0 THEN
    CALL fairturn_refuse_(45011, 'the event of this cursor is gone: a failover or a restore set the database back');
  END IF;
  IF p_after IS NULL THEN
    -- The present cursor: after the last event, but before a gap among the last ones that may be filled.
    SELECT id INTO v_cursor FROM fairturn_event ORDER BY id DESC LIMIT 1;
    CALL fairturn_readable_(GREATEST(v_cursor - 100000, v_floor), 1000000, v_own, v_cursor, v_more);
  ELSE
    SET v_cursor = GREATEST(v_after, v_floor), p_limit = LEAST(p_limit, 10000),
        v_rows = IF(p_queue IS NULL AND p_kinds IS NULL, p_limit, 10000);
    WHILE v_more AND v_ids IS NULL DO
      CALL fairturn_readable_(v_cursor, v_rows, v_own, v_end, v_more);
      SELECT GROUP_CONCAT(id ORDER BY id), COUNT(*) INTO v_ids, v_count FROM (
        SELECT id FROM fairturn_event
         WHERE id > v_cursor AND id <= v_end AND (p_queue IS NULL OR queue = p_queue)
           AND (p_kinds IS NULL OR LOCATE(CONCAT('"', kind, '"'), p_kinds) > 0)
         ORDER BY id LIMIT p_limit) found;
      SET v_cursor = IF(v_count >= p_limit, SUBSTRING_INDEX(v_ids, ',', -1), v_end);
    END WHILE;
  END IF;
  SELECT CONCAT(id, '-', at) INTO v_text FROM fairturn_event WHERE id = v_cursor;
  SET v_text = COALESCE(v_text, IF(v_cursor = v_after, p_after, NULL), v_cursor);
  IF p_door THEN
    SET @fairturn_cursor = v_text;
    SELECT CONCAT(e.id, '-', e.at) AS `cursor`, e.at, CONVERT(e.kind USING utf8mb4) AS kind,
           CONVERT(e.queue USING utf8mb4) AS queue, e.message_id AS id,
           CONVERT(e.`key` USING utf8mb4) AS `key`, CONVERT(e.channel USING utf8mb4) AS channel,
           e.delay_us, CONVERT(e.data USING utf8mb4) AS data
      FROM JSON_TABLE(CONCAT('[', COALESCE(v_ids, ''), ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_event e FORCE INDEX (PRIMARY) ON e.id = j.id ORDER BY e.id;
  ELSE
    SELECT COALESCE(CONCAT(e.id, '-', e.at), v_text) AS `cursor`, e.at, e.kind, e.queue, e.message_id, e.`key`, e.channel,
           e.delay_us, e.data
      FROM JSON_TABLE(CONCAT('[', COALESCE(CONCAT(v_ids, ','), ''), '0]'), '$[*]'
             COLUMNS (n FOR ORDINALITY, id BIGINT PATH '$')) j
      LEFT JOIN fairturn_event e FORCE INDEX (PRIMARY) ON e.id = j.id ORDER BY j.n;
  END IF;
  IF v_own THEN COMMIT; END IF;
END //

-- CALL fairturn_events('', 'emails', '{"kinds": ["done", "dead"], "limit": 100}'): the events after a
-- cursor ('': from the beginning; NULL: no events, only the present cursor) of one queue, or with NULL of
-- all. Reading can go on after each row from its `cursor`, and after all rows from @fairturn_cursor.
CREATE PROCEDURE fairturn_events(
  IN p_after VARCHAR(64) CHARACTER SET ascii, IN p_queue VARBINARY(1024),
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  CALL fairturn_known_(p_options, 'kinds,limit');
  IF p_after <> '' AND p_after NOT REGEXP '^[0-9]{1,18}(-[0-9]{1,18})?$' THEN
    CALL fairturn_refuse_(45006, 'after is the cursor of an event, an empty string, or NULL');
  END IF;
  CALL fairturn_read_(p_after, p_queue, JSON_EXTRACT(p_options, '$.kinds'),
    COALESCE(JSON_VALUE(p_options, '$.limit'), 100), 1);
END //

-- What the library calls: the same columns as bytes, and a last row that only has the cursor.
CREATE PROCEDURE fairturn_events_after(
  IN p_after VARCHAR(64) CHARACTER SET ascii, IN p_queue VARBINARY(1024),
  IN p_kinds LONGTEXT CHARACTER SET ascii, IN p_limit INT
)
BEGIN
  CALL fairturn_read_(p_after, p_queue, p_kinds, p_limit, 0);
END //

-- Delete events up to a time, oldest first. Times ascend with the ids, except for late commits.
CREATE PROCEDURE fairturn_forget_events_(IN p_until BIGINT, IN p_limit INT, OUT p_count INT)
BEGIN
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_last, v_first BIGINT DEFAULT NULL;
  SELECT GROUP_CONCAT(id), COUNT(*), MAX(id) INTO v_ids, p_count, v_last FROM (
    SELECT id, at FROM fairturn_event ORDER BY id LIMIT p_limit FOR UPDATE SKIP LOCKED) oldest
   WHERE at <= p_until;
  IF p_count > 0 THEN
    DELETE e FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_event e FORCE INDEX (PRIMARY) ON e.id = j.id;
    SELECT id INTO v_first FROM fairturn_event ORDER BY id LIMIT 1;
    UPDATE fairturn_event_floor SET id = GREATEST(id, LEAST(v_last, COALESCE(v_first - 1, v_last)))
     WHERE name = 'floor';
  END IF;
END //

DELIMITER ;
