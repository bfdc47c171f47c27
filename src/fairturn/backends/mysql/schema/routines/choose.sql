-- Choosing from one channel: which channel is next, whether it is open, which messages it delivers.
--
-- Always SELECT ... INTO, never SET v = (SELECT ...): that takes shared locks. The first entry of an index is
-- read with ORDER BY ... LIMIT 1: MIN() and MAX() use the index only for constants, and variables are none.
--
-- Rows are locked by their ids, or by an index with `=` for all columns before those in ORDER BY
-- (docs/decisions/006-mysql-locks.md). The scan of a range (<, BETWEEN) also locks the next entry after the
-- range until the transaction ends. That entry is the first of the next channel or queue: its consumers
-- would not see the message, or they would wait.

DELIMITER //

-- The next channel in [p_from, p_to] with an eligible message of one of p_versions ("0,1"), or NULL.
CREATE PROCEDURE fairturn_next_(
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
    SELECT channel INTO v_found FROM fairturn_message FORCE INDEX (ready)
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

-- Lock up to p_n messages of one channel after the first p_skip of its order, and list their ids ("1,2").
-- p_version: the only version that the caller wants, or NULL. p_versions: those to look for ("0,1").
CREATE PROCEDURE fairturn_take_(
  IN p_lane INT, IN p_versions LONGTEXT CHARACTER SET ascii, IN p_version INT,
  IN p_channel VARBINARY(255), IN p_ordered TINYINT, IN p_skip INT, IN p_n INT, IN p_max_rank INT,
  IN p_types LONGTEXT CHARACTER SET ascii, IN p_now BIGINT,
  OUT p_ids LONGTEXT CHARACTER SET ascii, OUT p_count INT
)
BEGIN
  DECLARE v_version INT;
  IF p_ordered THEN
    CALL fairturn_take_ordered_(p_lane, p_channel, p_skip, p_n, p_version, p_max_rank, p_types, p_now,
      p_ids, p_count);
  ELSEIF LOCATE(',', p_versions) = 0 AND p_max_rank = 2147483647 THEN
    SET v_version = p_versions;
    -- The test of the types costs nothing measurable when p_types is NULL.
    SELECT GROUP_CONCAT(id ORDER BY `rank`, due_at, id), COUNT(*) INTO p_ids, p_count FROM (
      SELECT id, `rank`, due_at FROM fairturn_message FORCE INDEX (ready)
       WHERE lane = p_lane AND state = 'r' AND version = v_version AND channel = p_channel
         AND (expires_at IS NULL OR expires_at > p_now)
         AND (p_types IS NULL OR LOCATE(CONCAT('"', HEX(type), '"'), p_types) > 0)
       ORDER BY `rank`, due_at, id LIMIT p_skip, p_n FOR UPDATE SKIP LOCKED) taken;
  ELSE
    CALL fairturn_pick_(p_lane, p_versions, p_channel, p_skip, p_n, p_max_rank, p_types, p_now,
      p_ids, p_count);
  END IF;
END //

-- The same for several versions, or with a lowest priority: messages are found without locks, then locked by
-- their ids. If other sessions have locked too many of them, more are looked for.
CREATE PROCEDURE fairturn_pick_(
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
        SELECT id FROM fairturn_message FORCE INDEX (ready)
         WHERE lane = p_lane AND state = 'r' AND version = v_version AND channel = p_channel
           AND `rank` <= p_max_rank AND (expires_at IS NULL OR expires_at > p_now)
           AND (p_types IS NULL OR LOCATE(CONCAT('"', HEX(type), '"'), p_types) > 0)
         ORDER BY `rank`, due_at, id LIMIT v_limit) first;
      SET v_some = NULLIF(CONCAT_WS(',', v_some, v_ids), '');
    END WHILE;
    IF LOCATE(',', p_versions) > 0 THEN -- the first of all versions among the first of each
      SELECT GROUP_CONCAT(id), COUNT(*) INTO v_some, v_seen FROM (
        SELECT m.id
          FROM JSON_TABLE(CONCAT('[', COALESCE(v_some, ''), ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
          STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
         ORDER BY m.`rank`, m.due_at, m.id LIMIT v_limit) best;
    END IF;
    SELECT GROUP_CONCAT(id ORDER BY `rank`, due_at, id), COUNT(*) INTO v_ids, p_count FROM (
      SELECT m.id, m.`rank`, m.due_at
        FROM JSON_TABLE(CONCAT('[', COALESCE(v_some, ''), ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
        STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
       WHERE m.lane = p_lane AND m.state = 'r' AND m.channel = p_channel
         AND FIND_IN_SET(m.version, p_versions) > 0 AND m.`rank` <= p_max_rank
         AND (m.expires_at IS NULL OR m.expires_at > p_now)
         AND (p_types IS NULL OR LOCATE(CONCAT('"', HEX(m.type), '"'), p_types) > 0)
       FOR UPDATE SKIP LOCKED) locked;
    -- 40,000 ids fit into a list.
    IF p_count >= v_wanted OR v_seen < v_limit OR v_limit >= 40000 THEN LEAVE look; END IF;
    SET v_limit = LEAST(v_limit * 4, 40000);
  END LOOP;
  SELECT GROUP_CONCAT(IF(n > p_skip AND n <= v_wanted, id, NULL) ORDER BY n),
         COALESCE(SUM(n > p_skip AND n <= v_wanted), 0) INTO p_ids, p_count
    FROM JSON_TABLE(CONCAT('[', COALESCE(v_ids, ''), ']'), '$[*]'
           COLUMNS (n FOR ORDINALITY, id BIGINT PATH '$')) chosen;
END //

-- Lock the head of an ordered channel and the messages after it without a gap: a run of at most p_n. The order
-- is that of all versions and types: a message that does not fit ends the run. A locked message ends it, too:
-- if it were skipped, the next one would overtake it. The steps:
--   1. find the begun messages, and the first ones of each version, without locks
--   2. the run: those before the first that does not fit
--   3. lock the run, and check it again
--   4. keep what has the same order as before
CREATE PROCEDURE fairturn_take_ordered_(
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
  -- There are few begun messages, and the index `channel` has them for all versions.
  SELECT GROUP_CONCAT(id) INTO v_all FROM fairturn_message FORCE INDEX (channel)
   WHERE lane = p_lane AND channel = p_channel AND state = 'r' AND begun = 1;
  -- The first messages of each version that is ready anywhere in the lane.
  version: LOOP
    SET v_next = NULL;
    SELECT version INTO v_next FROM fairturn_message FORCE INDEX (ready)
     WHERE lane = p_lane AND state = 'r' AND version > v_version ORDER BY version LIMIT 1;
    IF v_next IS NULL THEN LEAVE version; END IF;
    SET v_version = v_next;
    SELECT GROUP_CONCAT(id) INTO v_ids FROM (
      SELECT id FROM fairturn_message FORCE INDEX (ready)
       WHERE lane = p_lane AND state = 'r' AND version = v_version AND channel = p_channel
       ORDER BY `rank`, due_at, id LIMIT v_wanted) first;
    SET v_all = NULLIF(CONCAT_WS(',', v_all, v_ids), '');
  END LOOP;
  -- The run: the messages before the first that does not fit.
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
          STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
         WHERE m.lane = p_lane AND m.channel = p_channel AND m.state = 'r'
         ORDER BY m.begun DESC, m.`rank`, IF(m.begun, 0, m.due_at), m.id LIMIT v_wanted) head) run
   WHERE gaps = 0;
  -- @stop ordered.lock
  -- Under the lock all conditions are checked again. Only messages in an unchanged order are kept: a send may
  -- have replaced one of them, or a reschedule moved it.
  SELECT GROUP_CONCAT(id ORDER BY begun DESC, `rank`, IF(begun, 0, due_at), id) INTO v_locked FROM (
    SELECT m.id, m.begun, m.`rank`, m.due_at
      FROM JSON_TABLE(CONCAT('[', COALESCE(v_run, ''), ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
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

-- Whether a channel is open, and its room (p_room, 0: closed). A limited channel is first checked without its
-- gate. If it is open, the gate is locked, and everything is read and counted again in new statements: they
-- see all that was committed before.
-- p_wait: if only its rate keeps it closed, how long. p_busy: another session has locked the gate.
CREATE PROCEDURE fairturn_judge_(
  IN p_queue_id INT, IN p_lane INT, IN p_channel VARBINARY(255), IN p_n INT, IN p_now BIGINT,
  OUT p_weight INT, OUT p_room INT, OUT p_ordered TINYINT, OUT p_interval BIGINT,
  OUT p_wait BIGINT, OUT p_busy TINYINT
)
judge: BEGIN
  DECLARE v_max, v_rate, v_burst, v_paused, v_leased, v_locked, v_exists INT;
  DECLARE v_period, v_tat BIGINT;
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
      FROM fairturn_queue q
      LEFT JOIN fairturn_policy p ON p.queue_id = q.id AND p.channel = p_channel
      LEFT JOIN fairturn_gate g ON g.queue_id = q.id AND g.channel = p_channel
     WHERE q.id = p_queue_id;
    SET p_weight = GREATEST(p_weight, 1);
    IF v_paused THEN LEAVE judge; END IF;
    IF v_max IS NULL AND v_rate IS NULL AND NOT p_ordered THEN
      SET p_room = p_n;
      LEAVE judge;
    END IF;
    SET p_room = GREATEST(p_n, 1);
    IF p_ordered THEN
      SELECT COUNT(*) INTO v_leased FROM (
        (SELECT 1 FROM fairturn_message FORCE INDEX (channel)
          WHERE lane = p_lane AND channel = p_channel AND state = 'l' LIMIT 1)
        UNION ALL
        (SELECT 1 FROM fairturn_message FORCE INDEX (channel)
          WHERE lane = p_lane AND channel = p_channel AND state = 's' AND begun = 1 LIMIT 1)) open;
      IF v_leased > 0 THEN SET p_room = 0; END IF;
    END IF;
    IF v_max IS NOT NULL AND p_room > 0 THEN
      SELECT COUNT(*) INTO v_leased FROM (
        SELECT 1 FROM fairturn_message FORCE INDEX (channel)
         WHERE lane = p_lane AND channel = p_channel AND state = 'l' LIMIT v_max) leased;
      SET p_room = LEAST(p_room, v_max - v_leased);
    END IF;
    IF v_rate IS NOT NULL AND p_room > 0 THEN
      CALL fairturn_rate_(v_tat, v_rate, v_period, v_burst, p_now, p_room, p_interval, p_wait);
    END IF;
    -- p_n = 0: the queue's limit is reached, and only the waiting time is wanted.
    IF v_locked OR p_room <= 0 OR p_n = 0 THEN LEAVE judge; END IF;

    -- @stop judge.lock
    IF v_exists THEN
      SELECT tat, 1 INTO v_tat, v_locked FROM fairturn_gate
       WHERE queue_id = p_queue_id AND channel = p_channel FOR UPDATE SKIP LOCKED;
    ELSE
      CALL fairturn_gate_(p_queue_id, p_channel, v_tat, v_locked);
    END IF;
    IF NOT v_locked THEN
      SET p_room = 0, p_busy = 1;
      LEAVE judge;
    END IF;
    -- In a cluster the lock is not enough (cluster.sql). With a rate, the lease writes the gate.
    IF @fairturn_cluster AND v_rate IS NULL THEN
      UPDATE fairturn_gate SET tat = GREATEST(tat + 1, p_now)
       WHERE queue_id = p_queue_id AND channel = p_channel;
    END IF;
    -- @stop judge.locked
  END LOOP;
END //

-- The room that a rate leaves (GCRA). p_room: at most what it was. p_interval: the time between two messages
-- that are evenly spaced. p_wait: if there is no room, how long until there is.
CREATE PROCEDURE fairturn_rate_(
  IN p_tat BIGINT, IN p_count INT, IN p_period BIGINT, IN p_burst INT, IN p_now BIGINT,
  INOUT p_room INT, OUT p_interval BIGINT, OUT p_wait BIGINT
)
BEGIN
  DECLARE v_ahead BIGINT DEFAULT GREATEST(p_tat - p_now, 0);
  DECLARE v_tolerance BIGINT;
  SET p_interval = CEIL(p_period / p_count), v_tolerance = (p_burst - 1) * p_interval, p_wait = NULL;
  IF v_ahead > v_tolerance THEN
    SET p_room = 0, p_wait = v_ahead - v_tolerance;
  ELSE
    SET p_room = LEAST(p_room, (v_tolerance - v_ahead) DIV p_interval + 1);
  END IF;
END //

-- Make and lock a gate that does not exist, without waiting for another session that makes it, too.
CREATE PROCEDURE fairturn_gate_(
  IN p_queue_id INT, IN p_channel VARBINARY(255), OUT p_tat BIGINT, OUT p_locked TINYINT
)
gate: BEGIN
  DECLARE v_busy TINYINT;
  SET p_tat = 0, p_locked = 0, @fairturn_tat = NULL;
  CALL fairturn_nowait_(CONCAT('SELECT tat INTO @fairturn_tat FROM fairturn_gate WHERE queue_id = ',
    p_queue_id, ' AND channel = X''', HEX(p_channel), ''' FOR UPDATE NOWAIT'), v_busy);
  IF @fairturn_tat IS NOT NULL THEN
    SET p_tat = @fairturn_tat, p_locked = 1;
  END IF;
  IF v_busy OR p_locked THEN LEAVE gate; END IF;
  INSERT IGNORE INTO fairturn_gate (queue_id, channel) VALUES (p_queue_id, p_channel);
  SELECT tat, 1 INTO p_tat, p_locked FROM fairturn_gate
   WHERE queue_id = p_queue_id AND channel = p_channel FOR UPDATE SKIP LOCKED;
END //

DELIMITER ;
