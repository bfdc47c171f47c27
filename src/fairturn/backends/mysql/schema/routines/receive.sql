-- Receiving: carried acks, sweep, choice, lease (docs/semantics.md, 4).
--
-- Rows that are found by primary key have FORCE INDEX (PRIMARY): in a small table the optimizer prefers a
-- scan, which would wait for the rows of other transactions.
--
-- Lock order: the row of the queue's limit, channel gates in byte order, messages. A receive waits only for
-- the row of the limit and for the gates of carried acks, and it locks these first. Later it skips locked
-- rows. So a receive that holds a gate waits for nobody.

DELIMITER //

-- Receive up to p_n messages. p_channel, p_credit: the position in the round. p_own: 0 in the caller's
-- transaction, 1 in a transaction of its own, 2 the same with locks already (then groups are not settled).
-- The steps:
--   1. the queue and its settings, the permit
--   2. settle groups, in transactions of their own
--   3. locks: the queue's limit, the gates of carried acks; then the carried acks
--   4. look: is something ready, due, expired, or a lease ended? If so, sweep and look again
--   5. choose: the room that the queue's limit leaves, the versions, then the round over the channels
--      (round.sql)
--   6. lease the chosen messages, record events, charge the rates; or, without a message, compute p_retry
--   7. count, and sometimes fold the counters
CREATE PROCEDURE fairturn_receive_(
  IN p_queue VARBINARY(1024), IN p_n INT, INOUT p_channel VARBINARY(255), INOUT p_credit INT,
  IN p_acks LONGTEXT CHARACTER SET ascii, IN p_lease BIGINT, IN p_version INT,
  IN p_types LONGTEXT CHARACTER SET ascii, IN p_min_priority INT, IN p_max_bytes BIGINT,
  IN p_permit BIGINT, IN p_token BIGINT, IN p_now BIGINT, IN p_own TINYINT,
  OUT p_ids LONGTEXT CHARACTER SET ascii, OUT p_lost LONGTEXT CHARACTER SET ascii,
  OUT p_retry BIGINT
)
BEGIN
  DECLARE v_queue_id, v_lane, v_limit, v_limit_rate, v_limit_burst, v_leased, v_version, v_older,
    v_count INT DEFAULT NULL;
  DECLARE v_paused, v_plain, v_gates, v_limited, v_budget, v_events, v_marks, v_own, v_swept,
    v_more TINYINT DEFAULT 0;
  DECLARE v_lease, v_retention, v_limit_period, v_now, v_tat, v_interval, v_wait, v_due, v_end,
    v_expiry, v_permit BIGINT DEFAULT NULL;
  DECLARE v_total, v_room, v_acked, v_activated, v_recovered, v_killed INT DEFAULT 0;
  DECLARE v_versions LONGTEXT CHARACTER SET ascii;
  DECLARE v_ordered, v_rates LONGTEXT CHARACTER SET ascii DEFAULT '';

  SET p_ids = NULL, p_lost = '[]', p_retry = NULL;
  SELECT q.id, q.lane, q.paused, q.lease_us, q.retention_us, q.limit_concurrency, q.limit_rate_count,
         q.limit_rate_period_us, q.limit_burst,
         q.max_concurrency IS NULL AND q.rate_count IS NULL AND q.weight = 1 AND NOT q.channel_paused
         AND NOT q.ordered AND NOT EXISTS (SELECT 1 FROM fairturn_policy p WHERE p.queue_id = q.id),
         EXISTS (SELECT 1 FROM fairturn_gate g WHERE g.queue_id = q.id), q.events,
         EXISTS (SELECT 1 FROM fairturn_group_mark),
         COALESCE(p_now, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    INTO v_queue_id, v_lane, v_paused, v_lease, v_retention, v_limit, v_limit_rate, v_limit_period,
         v_limit_burst, v_plain, v_gates, v_events, v_marks, v_now
    FROM fairturn_queue q WHERE q.name = p_queue;
  IF v_queue_id IS NULL THEN CALL fairturn_refuse_(45002, CONVERT(p_queue USING utf8mb4)); END IF;
  IF p_permit IS NOT NULL THEN
    SELECT id INTO v_permit FROM fairturn_permit WHERE id = p_permit AND expires_at > v_now;
    IF v_permit IS NULL THEN CALL fairturn_refuse_(45008, p_permit); END IF;
  END IF;

  IF v_marks AND p_own = 1 THEN
    -- Now, because nothing is locked yet and this call has written no mark (groups_close.sql).
    COMMIT;
    CALL fairturn_settle_all_(100, v_now, v_count);
    CALL fairturn_open_(v_own);
  END IF;

  -- @stop receive.start
  IF v_limit IS NOT NULL OR v_limit_rate IS NOT NULL THEN
    SET v_limited = 1;
    SELECT tat INTO v_tat FROM fairturn_limit WHERE queue_id = v_queue_id FOR UPDATE;
    SET v_tat = COALESCE(v_tat, 0);
    -- @stop receive.limit
  END IF;
  IF p_acks <> '[]' THEN
    IF v_gates THEN
      CALL fairturn_gates_(v_queue_id, v_lane, p_acks);
    END IF;
    -- @stop receive.ack
    CALL fairturn_ack_(v_queue_id, v_lane, v_retention, v_events, p_acks, v_now, v_acked, p_lost);
  END IF;
  IF p_now IS NULL AND (v_limited OR v_gates) THEN
    -- The call may have waited for the locks: the time counts from now on.
    SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) INTO v_now;
  END IF;

  -- Four reads of an index in one statement. Versions are read backwards: at the front of the index are
  -- deleted entries that the server has not removed yet.
  look: LOOP
    SELECT (SELECT expires_at FROM fairturn_message FORCE INDEX (expiry)
             WHERE lane = v_lane AND expires_at <= v_now LIMIT 1),
           (SELECT wake_at FROM fairturn_message FORCE INDEX (wake)
             WHERE lane = v_lane AND state = 'l' ORDER BY wake_at LIMIT 1),
           (SELECT wake_at FROM fairturn_message FORCE INDEX (wake)
             WHERE lane = v_lane AND state = 's' ORDER BY wake_at LIMIT 1),
           COALESCE(p_version, (SELECT version FROM fairturn_message FORCE INDEX (ready)
             WHERE lane = v_lane AND state = 'r' ORDER BY version DESC LIMIT 1))
      INTO v_expiry, v_end, v_due, v_version;
    IF NOT v_swept AND (v_expiry <= v_now OR v_end <= v_now OR v_due <= v_now) THEN
      CALL fairturn_sweep_(v_queue_id, v_lane, v_events, 1000, v_now, v_activated, v_recovered, v_killed,
        v_more);
      SET v_swept = 1;
      ITERATE look;
    END IF;
    LEAVE look;
  END LOOP;

  choose: BEGIN
    IF v_paused THEN LEAVE choose; END IF;
    SET v_room = p_n;
    IF v_limited THEN
      IF v_limit IS NOT NULL THEN
        SELECT COUNT(*) INTO v_leased FROM (
          SELECT 1 FROM fairturn_message FORCE INDEX (wake)
           WHERE lane = v_lane AND state = 'l' LIMIT v_limit) leased;
        SET v_room = GREATEST(LEAST(v_room, v_limit - v_leased), 0);
      END IF;
      IF v_limit_rate IS NOT NULL AND v_room > 0 THEN
        CALL fairturn_rate_(v_tat, v_limit_rate, v_limit_period, v_limit_burst, v_now, v_room, v_interval,
          p_retry);
      END IF;
    END IF;

    IF v_version IS NOT NULL THEN
      SET v_versions = v_version;
      WHILE p_version IS NULL AND v_version IS NOT NULL DO
        SET v_older = NULL;
        SELECT version INTO v_older FROM fairturn_message FORCE INDEX (ready)
         WHERE lane = v_lane AND state = 'r' AND version < v_version ORDER BY version DESC LIMIT 1;
        SET v_version = v_older, v_versions = CONCAT_WS(',', v_versions, v_older);
      END WHILE;
      CALL fairturn_choose_(v_queue_id, v_lane, v_plain AND p_credit = 0,
        v_versions, p_version, v_room, -COALESCE(p_min_priority, -2147483647), p_types, p_max_bytes,
        v_now, p_channel, p_credit, p_ids, v_total, v_ordered, v_rates, v_wait, v_budget, v_count);
      -- The time of the queue's rate counts only if there is a message that waits for it.
      SET p_retry = LEAST(COALESCE(IF(v_count > 0, p_retry, NULL), v_wait), COALESCE(v_wait, p_retry));
    ELSE
      SET p_retry = NULL;
    END IF;
  END;

  IF v_total > 0 THEN
    SET p_retry = NULL;
    -- @stop receive.lease
    -- Dynamic SQL with a list of ids: a join with JSON_TABLE needs a temporary table.
    SET @fairturn_sql = CONCAT('UPDATE fairturn_message FORCE INDEX (PRIMARY) SET state = ''l'',',
      ' wake_at = ', v_now, ' + ',
      COALESCE(p_lease, CONCAT('COALESCE(lease_us, ', v_lease, ')')), ', permit = ',
      COALESCE(p_permit, 0), ', token = ', p_token,
      ', attempts = attempts + 1, deliveries = deliveries + 1,',
      ' progress = NULL, note = NULL, first_at = IF(first_at = 0, ', v_now, ', first_at)',
      IF(v_ordered = '', '', CONCAT(', begun = IF(channel IN (', v_ordered, '), 1, begun)')),
      ' WHERE id IN (', p_ids, ')');
    PREPARE fairturn_lease FROM @fairturn_sql;
    EXECUTE fairturn_lease;
    DEALLOCATE PREPARE fairturn_lease;
    IF v_events THEN
      CALL fairturn_emit_(v_queue_id, p_ids, 'leased', NULL, v_now);
    END IF;
    IF v_rates <> '' THEN
      UPDATE fairturn_gate g
        JOIN JSON_TABLE(CONCAT('[', v_rates, ']'), '$[*]' COLUMNS (
               channel VARCHAR(510) PATH '$[0]', period BIGINT PATH '$[1]')) r
          ON g.queue_id = v_queue_id AND g.channel = UNHEX(r.channel)
        JOIN (SELECT m.channel, COUNT(*) AS given
                FROM JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
                STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id GROUP BY m.channel) c
          ON c.channel = g.channel
        SET g.tat = GREATEST(g.tat, v_now) + c.given * r.period;
    END IF;
    IF v_limit_rate IS NOT NULL THEN
      UPDATE fairturn_limit SET tat = GREATEST(tat, v_now) + v_total * v_interval
       WHERE queue_id = v_queue_id;
    ELSEIF v_limited AND @fairturn_cluster THEN -- the lock is not enough (cluster.sql)
      UPDATE fairturn_limit SET tat = GREATEST(tat + 1, v_now) WHERE queue_id = v_queue_id;
    END IF;
  ELSEIF NOT v_paused THEN
    IF v_budget THEN
      SET p_retry = 0;
    ELSE
      SET p_retry = LEAST(COALESCE(p_retry, v_due - v_now, v_end - v_now),
                          COALESCE(v_due - v_now, v_end - v_now, p_retry),
                          COALESCE(v_end - v_now, p_retry, v_due - v_now));
      IF p_retry < 0 THEN SET p_retry = 0; END IF;
    END IF;
  ELSE
    SET p_retry = NULL;
  END IF;

  IF v_total + v_acked > 0 THEN
    INSERT INTO fairturn_tally (queue_id, minute, delivered, acked)
      VALUES (v_queue_id, v_now - v_now MOD 60000000, NULLIF(v_total, 0), NULLIF(v_acked, 0));
    IF p_own AND LAST_INSERT_ID() MOD 512 = 0 THEN
      CALL fairturn_fold_(2000, v_now, v_count);
      CALL fairturn_forget_names_(v_lane, v_now, 2000, v_count);
    END IF;
  END IF;
END //

-- Lock the gates of the channels of carried acks, in byte order. The acks make room in these channels; with
-- their gates locked this call can use the room, and other consumers skip them.
CREATE PROCEDURE fairturn_gates_(
  IN p_queue_id INT, IN p_lane INT, IN p_leases LONGTEXT CHARACTER SET ascii
)
BEGIN
  DECLARE v_channels LONGTEXT CHARACTER SET ascii;
  SELECT GROUP_CONCAT(DISTINCT 'X''', HEX(m.channel), '''') INTO v_channels
    FROM JSON_TABLE(p_leases, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) j
    STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
    STRAIGHT_JOIN fairturn_gate g ON g.queue_id = p_queue_id AND g.channel = m.channel
   WHERE m.lane = p_lane AND m.state = 'l';
  IF v_channels IS NOT NULL THEN
    -- IN over the primary key locks the rows in the order of the index.
    SET @fairturn_sql = CONCAT('SELECT COUNT(*) INTO @fairturn_gates FROM fairturn_gate',
      ' FORCE INDEX (PRIMARY) WHERE queue_id = ', p_queue_id, ' AND channel IN (', v_channels,
      ') FOR UPDATE');
    PREPARE fairturn_gates FROM @fairturn_sql;
    EXECUTE fairturn_gates;
    DEALLOCATE PREPARE fairturn_gates;
  END IF;
END //

-- The library's receive. One result set: the messages in order (MessageRow in core/rows.py), then a row that
-- has only the trailer. This is JSON: the position in the round (channel in hex, credit), the lost acks, and,
-- if there is no message, when to try again.
-- p_token: of the leases that it takes. Options: lease_us, version, types (hex), min_priority, max_bytes,
-- permit, now.
CREATE PROCEDURE fairturn_consume(
  IN p_queue VARBINARY(1024), IN p_n INT, IN p_channel VARBINARY(255), IN p_credit INT,
  IN p_token BIGINT, IN p_acks LONGTEXT CHARACTER SET ascii, IN p_options LONGTEXT CHARACTER SET ascii
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_ids, v_lost, v_types LONGTEXT CHARACTER SET ascii DEFAULT NULL;
  DECLARE v_lease, v_max_bytes, v_permit, v_now, v_retry BIGINT DEFAULT NULL;
  DECLARE v_version, v_min_priority INT DEFAULT NULL;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_open_(v_own);
  CALL fairturn_isolated_(v_own, '');
  IF p_options <> '{}' THEN
    SET v_lease = JSON_VALUE(p_options, '$.lease_us'), v_version = JSON_VALUE(p_options, '$.version'),
        v_types = JSON_EXTRACT(p_options, '$.types'),
        v_min_priority = JSON_VALUE(p_options, '$.min_priority'),
        v_max_bytes = JSON_VALUE(p_options, '$.max_bytes'),
        v_permit = JSON_VALUE(p_options, '$.permit'), v_now = JSON_VALUE(p_options, '$.now');
  END IF;
  CALL fairturn_receive_(p_queue, p_n, p_channel, p_credit, p_acks, v_lease, v_version, v_types,
    v_min_priority, v_max_bytes, v_permit, p_token, v_now, v_own, v_ids, v_lost, v_retry);
  SELECT m.id, m.channel, m.body, m.headers, m.`key`, m.version, m.type, -m.`rank` AS priority,
         m.due_at, m.created_at, m.attempts, m.deliveries, m.token, m.memo, m.wake_at AS lease_until,
         m.json | m.begun << 3 AS json, m.recovered, g.name AS `group`, o.name AS origin,
         NULLIF(m.first_at, 0) AS first_at,
         -- Without the casts MariaDB takes the variables for strings.
         IF(j.id = 0, JSON_OBJECT('channel', HEX(p_channel), 'credit', CAST(p_credit AS SIGNED),
           'retry_after_us', CAST(v_retry AS SIGNED), 'lost', JSON_EXTRACT(v_lost, '$')), NULL) AS trailer
    FROM JSON_TABLE(CONCAT('[', COALESCE(CONCAT(v_ids, ','), ''), '0]'), '$[*]'
           COLUMNS (n FOR ORDINALITY, id BIGINT PATH '$')) j
    LEFT JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
    LEFT JOIN fairturn_group g ON g.id = m.group_id
    LEFT JOIN fairturn_queue o ON o.id = m.died_in
   ORDER BY j.n;
  IF v_own THEN COMMIT; END IF;
END //

-- CALL fairturn_receive('emails', 10, '{"lease": 30, "version": 2, "types": ["a"], "min_priority": 1,
-- "max_bytes": 100000, "permit": 7, "acks": [[id, token]]}'): the messages. The round goes on where the last
-- caller stopped: the position is in fairturn_cursor. If another session has locked it, it is only read.
-- @fairturn_retry_after: without a message, the microseconds until the next try makes sense (0: now, NULL: no
-- message is expected). @fairturn_lost: the ids of the lost acks.
CREATE PROCEDURE fairturn_receive(
  IN p_queue VARCHAR(255) CHARACTER SET utf8mb4, IN p_n INT,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own, v_row TINYINT DEFAULT 0;
  DECLARE v_options LONGTEXT CHARACTER SET utf8mb4 DEFAULT COALESCE(p_options, '{}');
  DECLARE v_ids, v_lost, v_types LONGTEXT CHARACTER SET ascii DEFAULT NULL;
  DECLARE v_channel VARBINARY(255) DEFAULT NULL;
  DECLARE v_credit, v_queue_id, v_closed INT DEFAULT NULL;
  DECLARE v_retry, v_token BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  IF p_n NOT BETWEEN 1 AND 10000 OR p_n IS NULL THEN
    CALL fairturn_refuse_(45006, 'n is a number from 1 to 10000');
  END IF;
  IF v_options <> '{}' THEN
    CALL fairturn_known_(v_options, 'lease,version,types,min_priority,max_bytes,permit,acks,now');
  END IF;
  CALL fairturn_open_(v_own);
  CALL fairturn_isolated_(v_own, '');
  SELECT COUNT(*) INTO v_row FROM (SELECT 1 FROM fairturn_group_mark LIMIT 1) marked;
  IF v_row AND v_own THEN
    COMMIT;
    CALL fairturn_settle_all_(100, COALESCE(JSON_VALUE(v_options, '$.now'),
      TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))), v_closed);
    CALL fairturn_open_(v_own);
  END IF;
  SET v_row = 0;
  IF JSON_CONTAINS_PATH(v_options, 'one', '$.types') THEN
    SELECT CONCAT('[', COALESCE(GROUP_CONCAT('"', HEX(name), '"'), ''), ']') INTO v_types
      FROM JSON_TABLE(v_options, '$.types[*]' COLUMNS (name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$')) t;
  END IF;
  SELECT id INTO v_queue_id FROM fairturn_queue WHERE name = CAST(p_queue AS BINARY);
  SELECT channel, credit, 1 INTO v_channel, v_credit, v_row FROM fairturn_cursor
   WHERE queue_id = v_queue_id FOR UPDATE SKIP LOCKED;
  IF NOT v_row THEN
    SELECT channel, credit INTO v_channel, v_credit FROM fairturn_cursor WHERE queue_id = v_queue_id;
  END IF;
  SET v_credit = COALESCE(v_credit, 0);
  CALL fairturn_new_token_(v_token);
  CALL fairturn_receive_(p_queue, p_n, v_channel, v_credit,
    COALESCE(JSON_EXTRACT(v_options, '$.acks'), '[]'),
    ROUND(JSON_VALUE(v_options, '$.lease') * 1000000), JSON_VALUE(v_options, '$.version'), v_types,
    JSON_VALUE(v_options, '$.min_priority'), JSON_VALUE(v_options, '$.max_bytes'),
    JSON_VALUE(v_options, '$.permit'), v_token, JSON_VALUE(v_options, '$.now'), v_own * 2, v_ids, v_lost, v_retry);
  IF v_row THEN
    UPDATE fairturn_cursor SET channel = v_channel, credit = v_credit WHERE queue_id = v_queue_id;
  END IF;
  SET @fairturn_retry_after = v_retry, @fairturn_lost = v_lost;
  SELECT m.id, CONVERT(m.channel USING utf8mb4) AS channel, m.body,
         CONVERT(m.headers USING utf8mb4) AS headers, CONVERT(m.`key` USING utf8mb4) AS `key`,
         m.version, CONVERT(m.type USING utf8mb4) AS type, -m.`rank` AS priority, m.due_at,
         m.created_at, m.attempts, m.deliveries, m.token, m.memo, m.wake_at AS lease_until, m.json | m.begun << 3 AS json, m.recovered,
         CONVERT(g.name USING utf8mb4) AS `group`,
         CONVERT(o.name USING utf8mb4) AS origin, NULLIF(m.first_at, 0) AS first_at
    FROM JSON_TABLE(CONCAT('[', COALESCE(v_ids, ''), ']'), '$[*]'
           COLUMNS (n FOR ORDINALITY, id BIGINT PATH '$')) j
    STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
    LEFT JOIN fairturn_group g ON g.id = m.group_id
    LEFT JOIN fairturn_queue o ON o.id = m.died_in
   ORDER BY j.n;
  IF v_own THEN COMMIT; END IF;
END //

DELIMITER ;
