-- Choosing what a receive gives: which channel is next, whether it is open, what it has to give.
--
-- Always SELECT ... INTO, never SET v = (SELECT ...): the latter takes shared locks. Variables are
-- not constants to MIN() and MAX(), so the first entry of an index is ORDER BY ... LIMIT 1.
--
-- Rows are locked by their ids, or by an index whose columns are given up to the one that orders it. A
-- scan of a range (<, BETWEEN) locks the entry behind it too, until the transaction ends, and that is
-- the first of the next channel or of the next queue, whose consumers would not see it, or wait.

DELIMITER //

-- The next channel in [p_from, p_to] with an eligible message of one of p_versions ("0,1"), or NULL.
DROP PROCEDURE IF EXISTS fairlead_next_ //
CREATE PROCEDURE fairlead_next_(
  IN p_lane INT, IN p_versions LONGTEXT CHARACTER SET ascii, IN p_from VARBINARY(256),
  IN p_to VARBINARY(256), IN p_max_rank INT, IN p_types LONGTEXT CHARACTER SET ascii,
  IN p_now BIGINT, OUT p_channel VARBINARY(255)
)
BEGIN
  DECLARE v_rest LONGTEXT CHARACTER SET ascii DEFAULT p_versions;
  DECLARE v_version INT;
  DECLARE v_found VARBINARY(255);
  SET p_channel = NULL;
  WHILE v_rest <> '' DO
    SET v_version = SUBSTRING_INDEX(v_rest, ',', 1), v_found = NULL,
        v_rest = SUBSTR(v_rest, LENGTH(SUBSTRING_INDEX(v_rest, ',', 1)) + 2);
    SELECT channel INTO v_found FROM fairlead_message FORCE INDEX (ready)
     WHERE lane = p_lane AND state = 'r' AND version = v_version
       AND channel >= p_from AND channel <= p_to AND `rank` <= p_max_rank
       AND (expires_at IS NULL OR expires_at > p_now)
       AND (p_types IS NULL OR LOCATE(CONCAT('"', HEX(type), '"'), p_types) > 0)
     ORDER BY channel LIMIT 1;
    IF p_channel IS NULL OR v_found < p_channel THEN
      SET p_channel = v_found;
    END IF;
  END WHILE;
END //

-- Lock messages of one channel, from number p_skip of its order, and list their ids ("1,2").
DROP PROCEDURE IF EXISTS fairlead_take_ //
CREATE PROCEDURE fairlead_take_(
  IN p_lane INT, IN p_versions LONGTEXT CHARACTER SET ascii, IN p_channel VARBINARY(255),
  IN p_skip INT, IN p_n INT, IN p_max_rank INT, IN p_types LONGTEXT CHARACTER SET ascii,
  IN p_now BIGINT, OUT p_ids LONGTEXT CHARACTER SET ascii, OUT p_count INT
)
BEGIN
  DECLARE v_version INT;
  IF LOCATE(',', p_versions) = 0 AND p_max_rank = 2147483647 THEN
    SET v_version = p_versions;
    -- The types are tested last and apart: with them in the statement it is as fast as without.
    SELECT GROUP_CONCAT(id ORDER BY `rank`, due_at, id), COUNT(*) INTO p_ids, p_count FROM (
      SELECT id, `rank`, due_at FROM fairlead_message FORCE INDEX (ready)
       WHERE lane = p_lane AND state = 'r' AND version = v_version AND channel = p_channel
         AND (expires_at IS NULL OR expires_at > p_now)
         AND (p_types IS NULL OR LOCATE(CONCAT('"', HEX(type), '"'), p_types) > 0)
       ORDER BY `rank`, due_at, id LIMIT p_skip, p_n FOR UPDATE SKIP LOCKED) taken;
  ELSE
    CALL fairlead_pick_(p_lane, p_versions, p_channel, p_skip, p_n, p_max_rank, p_types, p_now,
      p_ids, p_count);
  END IF;
END //

-- The same of several versions, or down to a priority: looked for without locks, then locked by their
-- ids. If others have locked too many of them, more are looked for.
DROP PROCEDURE IF EXISTS fairlead_pick_ //
CREATE PROCEDURE fairlead_pick_(
  IN p_lane INT, IN p_versions LONGTEXT CHARACTER SET ascii, IN p_channel VARBINARY(255),
  IN p_skip INT, IN p_n INT, IN p_max_rank INT, IN p_types LONGTEXT CHARACTER SET ascii,
  IN p_now BIGINT, OUT p_ids LONGTEXT CHARACTER SET ascii, OUT p_count INT
)
BEGIN
  DECLARE v_rest, v_some, v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_version, v_seen INT;
  DECLARE v_wanted INT DEFAULT p_skip + p_n;
  DECLARE v_limit INT DEFAULT p_skip + p_n;
  look: LOOP
    SET v_rest = p_versions, v_some = NULL;
    WHILE v_rest <> '' DO
      SET v_version = SUBSTRING_INDEX(v_rest, ',', 1),
          v_rest = SUBSTR(v_rest, LENGTH(SUBSTRING_INDEX(v_rest, ',', 1)) + 2);
      SELECT GROUP_CONCAT(id), COUNT(*) INTO v_ids, v_seen FROM (
        SELECT id FROM fairlead_message FORCE INDEX (ready)
         WHERE lane = p_lane AND state = 'r' AND version = v_version AND channel = p_channel
           AND `rank` <= p_max_rank AND (expires_at IS NULL OR expires_at > p_now)
           AND (p_types IS NULL OR LOCATE(CONCAT('"', HEX(type), '"'), p_types) > 0)
         ORDER BY `rank`, due_at, id LIMIT v_limit) first;
      SET v_some = NULLIF(CONCAT_WS(',', v_some, v_ids), '');
    END WHILE;
    IF LOCATE(',', p_versions) > 0 THEN -- the best of the best of each
      SELECT GROUP_CONCAT(id), COUNT(*) INTO v_some, v_seen FROM (
        SELECT m.id
          FROM JSON_TABLE(CONCAT('[', COALESCE(v_some, ''), ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
          STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
         ORDER BY m.`rank`, m.due_at, m.id LIMIT v_limit) best;
    END IF;
    SELECT GROUP_CONCAT(id ORDER BY `rank`, due_at, id), COUNT(*) INTO v_ids, p_count FROM (
      SELECT m.id, m.`rank`, m.due_at
        FROM JSON_TABLE(CONCAT('[', COALESCE(v_some, ''), ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
        STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
       WHERE m.lane = p_lane AND m.state = 'r' AND m.channel = p_channel
         AND FIND_IN_SET(m.version, p_versions) > 0 AND m.`rank` <= p_max_rank
         AND (m.expires_at IS NULL OR m.expires_at > p_now)
         AND (p_types IS NULL OR LOCATE(CONCAT('"', HEX(m.type), '"'), p_types) > 0)
       FOR UPDATE SKIP LOCKED) locked;
    -- (40,000 ids fit into one list.)
    IF p_count >= v_wanted OR v_seen < v_limit OR v_limit >= 40000 THEN LEAVE look; END IF;
    SET v_limit = LEAST(v_limit * 4, 40000);
  END LOOP;
  SELECT GROUP_CONCAT(IF(n > p_skip AND n <= v_wanted, id, NULL) ORDER BY n),
         COALESCE(SUM(n > p_skip AND n <= v_wanted), 0) INTO p_ids, p_count
    FROM JSON_TABLE(CONCAT('[', COALESCE(v_ids, ''), ']'), '$[*]'
           COLUMNS (n FOR ORDINALITY, id BIGINT PATH '$')) chosen;
END //

-- The head of an ordered channel and the run after it without a gap, at most p_n. What it may give
-- is decided on all versions and types: a message that does not fit ends the run. So does one that
-- somebody has locked; to skip it would let the next one overtake.
DROP PROCEDURE IF EXISTS fairlead_take_ordered_ //
CREATE PROCEDURE fairlead_take_ordered_(
  IN p_lane INT, IN p_channel VARBINARY(255), IN p_skip INT, IN p_n INT, IN p_version INT,
  IN p_max_rank INT, IN p_types LONGTEXT CHARACTER SET ascii, IN p_now BIGINT,
  OUT p_ids LONGTEXT CHARACTER SET ascii, OUT p_count INT
)
BEGIN
  DECLARE v_run, v_locked LONGTEXT CHARACTER SET ascii;
  DECLARE v_wanted INT DEFAULT p_skip + p_n;
  DECLARE v_version INT DEFAULT -1;
  DECLARE v_all LONGTEXT CHARACTER SET ascii DEFAULT NULL;
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_next INT;
  -- Begun ones, however many versions there are, are few: their own index entries.
  SELECT GROUP_CONCAT(id) INTO v_all FROM fairlead_message FORCE INDEX (channel)
   WHERE lane = p_lane AND channel = p_channel AND state = 'r' AND begun = 1;
  -- The first ones of each version that is ready anywhere in the lane.
  version: LOOP
    SET v_next = NULL;
    SELECT version INTO v_next FROM fairlead_message FORCE INDEX (ready)
     WHERE lane = p_lane AND state = 'r' AND version > v_version ORDER BY version LIMIT 1;
    IF v_next IS NULL THEN LEAVE version; END IF;
    SET v_version = v_next;
    SELECT GROUP_CONCAT(id) INTO v_ids FROM (
      SELECT id FROM fairlead_message FORCE INDEX (ready)
       WHERE lane = p_lane AND state = 'r' AND version = v_version AND channel = p_channel
       ORDER BY `rank`, due_at, id LIMIT v_wanted) first;
    SET v_all = NULLIF(CONCAT_WS(',', v_all, v_ids), '');
  END LOOP;
  -- The run: rows before the first that does not fit.
  SELECT GROUP_CONCAT(id ORDER BY begun DESC, `rank`, IF(begun, 0, due_at), id) INTO v_run FROM (
    SELECT id, begun, `rank`, due_at, SUM(NOT COALESCE(fits, 0)) OVER (
             ORDER BY begun DESC, `rank`, IF(begun, 0, due_at), id ROWS UNBOUNDED PRECEDING) AS gaps
      FROM (
        SELECT m.id, m.begun, m.`rank`, m.due_at,
               (p_version IS NULL OR m.version = p_version) AND m.`rank` <= p_max_rank
               AND (m.expires_at IS NULL OR m.expires_at > p_now)
               AND (p_types IS NULL OR LOCATE(CONCAT('"', HEX(m.type), '"'), p_types) > 0) AS fits
          FROM (SELECT DISTINCT id FROM JSON_TABLE(CONCAT('[', COALESCE(v_all, ''), ']'), '$[*]'
                  COLUMNS (id BIGINT PATH '$')) ids) j
          STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
         WHERE m.lane = p_lane AND m.channel = p_channel AND m.state = 'r'
         ORDER BY m.begun DESC, m.`rank`, IF(m.begun, 0, m.due_at), m.id LIMIT v_wanted) head) run
   WHERE gaps = 0;
  -- @stop ordered.lock
  -- Under the lock everything is asked again, and given only as far as the order is still the same:
  -- a send may have replaced one of them, or a reschedule moved it.
  SELECT GROUP_CONCAT(id ORDER BY begun DESC, `rank`, IF(begun, 0, due_at), id) INTO v_locked FROM (
    SELECT m.id, m.begun, m.`rank`, m.due_at
      FROM JSON_TABLE(CONCAT('[', COALESCE(v_run, ''), ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
     WHERE m.lane = p_lane AND m.channel = p_channel AND m.state = 'r'
       AND (p_version IS NULL OR m.version = p_version) AND m.`rank` <= p_max_rank
       AND (m.expires_at IS NULL OR m.expires_at > p_now)
       AND (p_types IS NULL OR LOCATE(CONCAT('"', HEX(m.type), '"'), p_types) > 0)
     FOR UPDATE SKIP LOCKED) locked;
  SELECT GROUP_CONCAT(IF(n > p_skip, id, NULL) ORDER BY n), SUM(n > p_skip) INTO p_ids, p_count
    FROM (
      SELECT n, id, SUM(FIND_IN_SET(id, COALESCE(v_locked, '')) <> n) OVER (
               ORDER BY n ROWS UNBOUNDED PRECEDING) AS gaps
        FROM JSON_TABLE(CONCAT('[', COALESCE(v_run, ''), ']'), '$[*]'
               COLUMNS (n FOR ORDINALITY, id BIGINT PATH '$')) j) run
   WHERE gaps = 0;
  SET p_count = COALESCE(p_count, 0);
END //

-- Whether a channel is open and how much it may give (p_room, 0 = closed). A channel with a limit
-- is first looked at without its gate; the gate is only locked to give, and then everything is
-- read and counted again in new statements, which see all that was committed before.
-- p_wait: what is left until its rate opens it, if that alone keeps it closed.
-- p_busy: somebody else is at the gate.
DROP PROCEDURE IF EXISTS fairlead_judge_ //
CREATE PROCEDURE fairlead_judge_(
  IN p_queue_id INT, IN p_lane INT, IN p_channel VARBINARY(255), IN p_n INT, IN p_now BIGINT,
  OUT p_weight INT, OUT p_room INT, OUT p_ordered TINYINT, OUT p_interval BIGINT,
  OUT p_wait BIGINT, OUT p_busy TINYINT
)
judge: BEGIN
  DECLARE v_max, v_rate, v_burst, v_paused, v_leased, v_locked, v_exists INT;
  DECLARE v_period, v_tat, v_base, v_tolerance BIGINT;
  SET p_wait = NULL, p_busy = 0, v_locked = 0;
  look: LOOP
    SET p_room = 0, p_interval = NULL;
    SELECT IF(p.queue_id IS NULL, q.max_concurrency, p.max_concurrency),
           IF(p.queue_id IS NULL, q.rate_count, p.rate_count),
           IF(p.queue_id IS NULL, q.rate_period_us, p.rate_period_us),
           IF(p.queue_id IS NULL, q.burst, p.burst), IF(p.queue_id IS NULL, q.weight, p.weight),
           IF(p.queue_id IS NULL, q.channel_paused, p.paused),
           IF(p.queue_id IS NULL, q.ordered, p.ordered), COALESCE(g.tat, 0), g.queue_id IS NOT NULL
      INTO v_max, v_rate, v_period, v_burst, p_weight, v_paused, p_ordered, v_tat, v_exists
      FROM fairlead_queue q
      LEFT JOIN fairlead_policy p ON p.queue_id = q.id AND p.channel = p_channel
      LEFT JOIN fairlead_gate g ON g.queue_id = q.id AND g.channel = p_channel
     WHERE q.id = p_queue_id;
    SET p_weight = GREATEST(p_weight, 1);
    IF v_paused THEN LEAVE judge; END IF;
    IF v_max IS NULL AND v_rate IS NULL AND NOT p_ordered THEN
      SET p_room = p_n;
      LEAVE judge;
    END IF;
    IF v_rate IS NOT NULL THEN
      SET p_interval = CEIL(v_period / v_rate), v_tolerance = (v_burst - 1) * p_interval;
    END IF;
    SET p_room = GREATEST(p_n, 1);
    IF p_ordered THEN
      SELECT COUNT(*) INTO v_leased FROM (
        (SELECT 1 FROM fairlead_message FORCE INDEX (channel)
          WHERE lane = p_lane AND channel = p_channel AND state = 'l' LIMIT 1)
        UNION ALL
        (SELECT 1 FROM fairlead_message FORCE INDEX (channel)
          WHERE lane = p_lane AND channel = p_channel AND state = 's' AND begun = 1 LIMIT 1)) open;
      IF v_leased > 0 THEN SET p_room = 0; END IF;
    END IF;
    IF v_max IS NOT NULL AND p_room > 0 THEN
      SELECT COUNT(*) INTO v_leased FROM (
        SELECT 1 FROM fairlead_message FORCE INDEX (channel)
         WHERE lane = p_lane AND channel = p_channel AND state = 'l' LIMIT v_max) leased;
      SET p_room = LEAST(p_room, v_max - v_leased);
    END IF;
    IF v_rate IS NOT NULL AND p_room > 0 THEN
      SET v_base = GREATEST(v_tat, p_now);
      IF v_base - p_now > v_tolerance THEN
        SET p_room = 0, p_wait = v_base - v_tolerance - p_now;
      ELSE
        SET p_room = LEAST(p_room, (v_tolerance - (v_base - p_now)) DIV p_interval + 1);
      END IF;
    END IF;
    -- p_n = 0: the queue's limit is reached and only the waiting time is of interest.
    IF v_locked OR p_room <= 0 OR p_n = 0 THEN LEAVE judge; END IF;

    -- @stop judge.lock
    IF v_exists THEN
      SELECT tat, 1 INTO v_tat, v_locked FROM fairlead_gate
       WHERE queue_id = p_queue_id AND channel = p_channel FOR UPDATE SKIP LOCKED;
    ELSE
      CALL fairlead_gate_(p_queue_id, p_channel, v_tat, v_locked);
    END IF;
    IF NOT v_locked THEN
      SET p_room = 0, p_busy = 1;
      LEAVE judge;
    END IF;
    -- @stop judge.locked
  END LOOP;
END //

-- Make and lock a gate that is not there yet, without ever waiting for somebody who makes it, too.
DROP PROCEDURE IF EXISTS fairlead_gate_ //
CREATE PROCEDURE fairlead_gate_(
  IN p_queue_id INT, IN p_channel VARBINARY(255), OUT p_tat BIGINT, OUT p_locked TINYINT
)
gate: BEGIN
  DECLARE v_busy TINYINT DEFAULT 0;
  SET p_tat = 0, p_locked = 0, @fairlead_tat = NULL;
  -- MariaDB takes NOWAIT in prepared statements only.
  SET @fairlead_sql = CONCAT('SELECT tat INTO @fairlead_tat FROM fairlead_gate WHERE queue_id = ',
    p_queue_id, ' AND channel = X''', HEX(p_channel), ''' FOR UPDATE NOWAIT');
  PREPARE fairlead_gate FROM @fairlead_sql;
  BEGIN
    DECLARE CONTINUE HANDLER FOR 1205, 3572 SET v_busy = 1;
    EXECUTE fairlead_gate;
  END;
  DEALLOCATE PREPARE fairlead_gate;
  IF @fairlead_tat IS NOT NULL THEN
    SET p_tat = @fairlead_tat, p_locked = 1;
  END IF;
  IF v_busy OR p_locked THEN LEAVE gate; END IF;
  INSERT IGNORE INTO fairlead_gate (queue_id, channel) VALUES (p_queue_id, p_channel);
  SELECT tat, 1 INTO p_tat, p_locked FROM fairlead_gate
   WHERE queue_id = p_queue_id AND channel = p_channel FOR UPDATE SKIP LOCKED;
END //

DELIMITER ;
