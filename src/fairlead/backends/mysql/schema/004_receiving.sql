-- Receiving: carried acks, sweep, choice, lease (docs/semantics.md, 4).
--
-- Whatever is reached by its primary key says FORCE INDEX (PRIMARY): in a table of a few rows the
-- optimizer prefers a scan, which would wait for rows of other people's transactions.
--
-- Lock order: the queue's gate, channel gates in byte order, messages. Only the queue's gate and
-- the gates of carried acks are waited for, and these come first; everything later skips what is
-- locked, so a receive that holds a gate waits for nobody.

DELIMITER //

-- p_own: 0 in your transaction, 1 in its own, 2 in its own where something is locked already (then it
-- does not settle groups).
DROP PROCEDURE IF EXISTS fairlead_receive_ //
CREATE PROCEDURE fairlead_receive_(
  IN p_queue VARBINARY(1024), IN p_n INT, INOUT p_channel VARBINARY(255), INOUT p_credit INT,
  IN p_acks LONGTEXT CHARACTER SET ascii, IN p_lease BIGINT, IN p_version INT,
  IN p_types LONGTEXT CHARACTER SET ascii, IN p_min_priority INT, IN p_max_bytes BIGINT,
  IN p_permit BIGINT, IN p_now BIGINT, IN p_own TINYINT,
  OUT p_ids LONGTEXT CHARACTER SET ascii, OUT p_lost LONGTEXT CHARACTER SET ascii,
  OUT p_retry BIGINT
)
receive: BEGIN
  DECLARE v_queue_id, v_lane, v_limit, v_limit_rate, v_limit_burst, v_leased, v_version, v_older,
    v_count INT DEFAULT NULL;
  DECLARE v_paused, v_plain, v_gates, v_limited, v_budget, v_events, v_marks, v_own TINYINT DEFAULT 0;
  DECLARE v_lease, v_retention, v_limit_period, v_now, v_tat, v_interval, v_tolerance, v_base,
    v_wait, v_due, v_end, v_expiry, v_permit BIGINT DEFAULT NULL;
  DECLARE v_total, v_room, v_acked, v_activated, v_recovered, v_killed, v_expired, v_gone,
    v_ended INT DEFAULT 0;
  DECLARE v_versions LONGTEXT CHARACTER SET ascii;
  DECLARE v_ordered, v_rates LONGTEXT CHARACTER SET ascii DEFAULT '';
  DECLARE v_text VARCHAR(128) CHARACTER SET utf8mb4;

  SET p_ids = NULL, p_lost = '[]', p_retry = NULL;
  SELECT q.id, q.lane, q.paused, q.lease_us, q.retention_us, q.limit_concurrency, q.limit_rate_count,
         q.limit_rate_period_us, q.limit_burst,
         q.max_concurrency IS NULL AND q.rate_count IS NULL AND q.weight = 1 AND NOT q.channel_paused
         AND NOT q.ordered AND NOT EXISTS (SELECT 1 FROM fairlead_policy p WHERE p.queue_id = q.id),
         EXISTS (SELECT 1 FROM fairlead_gate g WHERE g.queue_id = q.id), q.events,
         EXISTS (SELECT 1 FROM fairlead_group_mark),
         COALESCE(p_now, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    INTO v_queue_id, v_lane, v_paused, v_lease, v_retention, v_limit, v_limit_rate, v_limit_period,
         v_limit_burst, v_plain, v_gates, v_events, v_marks, v_now
    FROM fairlead_queue q WHERE q.name = p_queue;
  IF v_queue_id IS NULL THEN
    SET v_text = LEFT(CONVERT(p_queue USING utf8mb4), 128);
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45002, MESSAGE_TEXT = v_text;
  END IF;
  IF p_permit IS NOT NULL THEN
    SELECT id INTO v_permit FROM fairlead_permit WHERE id = p_permit AND expires_at > v_now;
    IF v_permit IS NULL THEN
      SET v_text = p_permit;
      SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45008, MESSAGE_TEXT = v_text;
    END IF;
  END IF;

  IF v_marks AND p_own = 1 THEN
    -- Before our own marks, in transactions of its own (012), and nothing is locked yet.
    COMMIT;
    CALL fairlead_settle_all_(100, v_now, v_count);
    CALL fairlead_open_(v_own);
  END IF;

  -- @stop receive.start
  IF v_limit IS NOT NULL OR v_limit_rate IS NOT NULL THEN
    SET v_limited = 1;
    SELECT tat INTO v_tat FROM fairlead_limit WHERE queue_id = v_queue_id FOR UPDATE;
    SET v_tat = COALESCE(v_tat, 0);
    -- @stop receive.limit
  END IF;
  IF p_acks <> '[]' THEN
    IF v_gates THEN
      CALL fairlead_gates_(v_queue_id, v_lane, p_acks);
    END IF;
    -- @stop receive.ack
    CALL fairlead_ack_(v_queue_id, v_lane, v_retention, v_events, p_acks, v_now, v_acked, p_lost);
  END IF;
  IF p_now IS NULL AND (v_limited OR v_gates) THEN
    -- The clock counts from when the locks were had.
    SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) INTO v_now;
  END IF;

  -- Is there anything to sweep, and anything ready? Four index probes in one statement. Versions
  -- are asked for backwards: in front lie entries that the server has not removed yet.
  look: LOOP
    SELECT (SELECT expires_at FROM fairlead_message FORCE INDEX (expiry)
             WHERE lane = v_lane AND expires_at <= v_now LIMIT 1),
           (SELECT wake_at FROM fairlead_message FORCE INDEX (wake)
             WHERE lane = v_lane AND state = 'l' ORDER BY wake_at LIMIT 1),
           (SELECT wake_at FROM fairlead_message FORCE INDEX (wake)
             WHERE lane = v_lane AND state = 's' ORDER BY wake_at LIMIT 1),
           COALESCE(p_version, (SELECT version FROM fairlead_message FORCE INDEX (ready)
             WHERE lane = v_lane AND state = 'r' ORDER BY version DESC LIMIT 1))
      INTO v_expiry, v_end, v_due, v_version;
    IF v_activated IS NOT NULL AND (v_expiry <= v_now OR v_end <= v_now OR v_due <= v_now) THEN
      CALL fairlead_sweep_(v_queue_id, v_lane, v_events, 1000, v_now, v_activated, v_recovered, v_killed,
        v_expired, v_gone, v_ended);
      SET v_activated = NULL; -- once per call
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
          SELECT 1 FROM fairlead_message FORCE INDEX (wake)
           WHERE lane = v_lane AND state = 'l' LIMIT v_limit) leased;
        SET v_room = LEAST(v_room, v_limit - v_leased);
      END IF;
      IF v_limit_rate IS NOT NULL THEN
        SET v_interval = CEIL(v_limit_period / v_limit_rate), v_base = GREATEST(v_tat, v_now),
            v_tolerance = (v_limit_burst - 1) * v_interval;
        IF v_base - v_now > v_tolerance THEN
          SET p_retry = IF(v_room > 0, v_base - v_tolerance - v_now, NULL), v_room = 0;
        ELSE
          SET v_room = LEAST(v_room, (v_tolerance - (v_base - v_now)) DIV v_interval + 1);
        END IF;
      END IF;
      SET v_room = GREATEST(v_room, 0);
    END IF;

    IF v_version IS NOT NULL THEN
      SET v_versions = v_version;
      WHILE p_version IS NULL AND v_version IS NOT NULL DO
        SET v_older = NULL;
        SELECT version INTO v_older FROM fairlead_message FORCE INDEX (ready)
         WHERE lane = v_lane AND state = 'r' AND version < v_version ORDER BY version DESC LIMIT 1;
        SET v_version = v_older, v_versions = CONCAT_WS(',', v_versions, v_older);
      END WHILE;
      CALL fairlead_choose_(v_queue_id, v_lane, v_plain AND p_credit = 0,
        v_versions, p_version, v_room, -COALESCE(p_min_priority, -2147483647), p_types, p_max_bytes,
        v_now, p_channel, p_credit, p_ids, v_total, v_ordered, v_rates, v_wait, v_budget, v_count);
      -- The queue's rate only counts where somebody waits for it.
      SET p_retry = LEAST(COALESCE(IF(v_count > 0, p_retry, NULL), v_wait), COALESCE(v_wait, p_retry));
    ELSE
      SET p_retry = NULL;
    END IF;
  END;

  IF v_total > 0 THEN
    SET p_retry = NULL;
    -- @stop receive.lease
    -- By primary key in one plain UPDATE: a join with JSON_TABLE would go through a table of its own.
    SET @fairlead_sql = CONCAT('UPDATE fairlead_message FORCE INDEX (PRIMARY) SET state = ''l'',',
      ' wake_at = ', v_now, ' + ',
      COALESCE(p_lease, CONCAT('COALESCE(lease_us, ', v_lease, ')')), ', permit = ',
      COALESCE(p_permit, 0), ', attempts = attempts + 1, deliveries = deliveries + 1,',
      ' progress = NULL, note = NULL, first_at = IF(first_at = 0, ', v_now, ', first_at)',
      IF(v_ordered = '', '', CONCAT(', begun = IF(channel IN (', v_ordered, '), 1, begun)')),
      ' WHERE id IN (', p_ids, ')');
    PREPARE fairlead_lease FROM @fairlead_sql;
    EXECUTE fairlead_lease;
    DEALLOCATE PREPARE fairlead_lease;
    IF v_events THEN
      CALL fairlead_emit_(v_queue_id, p_ids, 'leased', NULL, v_now);
    END IF;
    IF v_rates <> '' THEN
      UPDATE fairlead_gate g
        JOIN JSON_TABLE(CONCAT('[', v_rates, ']'), '$[*]' COLUMNS (
               channel VARCHAR(510) PATH '$[0]', period BIGINT PATH '$[1]')) r
          ON g.queue_id = v_queue_id AND g.channel = UNHEX(r.channel)
        JOIN (SELECT m.channel, COUNT(*) AS given
                FROM JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
                STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id GROUP BY m.channel) c
          ON c.channel = g.channel
        SET g.tat = GREATEST(g.tat, v_now) + c.given * r.period;
    END IF;
    IF v_limit_rate IS NOT NULL THEN
      UPDATE fairlead_limit SET tat = GREATEST(tat, v_now) + v_total * v_interval
       WHERE queue_id = v_queue_id;
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

  IF v_total + v_acked + v_recovered + v_killed + v_expired > 0 THEN
    INSERT INTO fairlead_tally (queue_id, minute, delivered, acked, recovered, killed, expired, errors)
      VALUES (v_queue_id, v_now - v_now MOD 60000000, NULLIF(v_total, 0), NULLIF(v_acked, 0),
        NULLIF(v_recovered, 0), NULLIF(v_killed, 0), NULLIF(v_expired, 0), NULLIF(v_killed, 0));
    IF p_own AND LAST_INSERT_ID() MOD 512 = 0 THEN
      CALL fairlead_fold_(2000, v_now, v_count);
      CALL fairlead_forget_names_(v_lane, v_now, 2000, v_count);
    END IF;
  END IF;
END //

-- The gates of the channels whose messages are about to be acked, waited for in byte order. The
-- channels they free are then open to this very call, and other consumers pass by meanwhile.
DROP PROCEDURE IF EXISTS fairlead_gates_ //
CREATE PROCEDURE fairlead_gates_(
  IN p_queue_id INT, IN p_lane INT, IN p_leases LONGTEXT CHARACTER SET ascii
)
BEGIN
  DECLARE v_channels LONGTEXT CHARACTER SET ascii;
  SELECT GROUP_CONCAT(DISTINCT 'X''', HEX(m.channel), '''') INTO v_channels
    FROM JSON_TABLE(p_leases, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) j
    STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
    STRAIGHT_JOIN fairlead_gate g ON g.queue_id = p_queue_id AND g.channel = m.channel
   WHERE m.lane = p_lane AND m.state = 'l';
  IF v_channels IS NOT NULL THEN
    -- A range over the primary key locks in its order.
    SET @fairlead_sql = CONCAT('SELECT COUNT(*) INTO @fairlead_gates FROM fairlead_gate',
      ' FORCE INDEX (PRIMARY) WHERE queue_id = ', p_queue_id, ' AND channel IN (', v_channels,
      ') FOR UPDATE');
    PREPARE fairlead_gates FROM @fairlead_sql;
    EXECUTE fairlead_gates;
    DEALLOCATE PREPARE fairlead_gates;
  END IF;
END //

-- What the library calls. One result set: the messages in order (backends/base.py: ROW), then a
-- row without id that carries the memory (channel, credit in `version`), the lost acks (in
-- `headers`) and retry_after (in `due_at`).
-- Options: lease_us version types (hex) min_priority max_bytes permit now.
DROP PROCEDURE IF EXISTS fairlead_consume //
CREATE PROCEDURE fairlead_consume(
  IN p_queue VARBINARY(1024), IN p_n INT, IN p_channel VARBINARY(255), IN p_credit INT,
  IN p_acks LONGTEXT CHARACTER SET ascii, IN p_options LONGTEXT CHARACTER SET ascii
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_ids, v_lost, v_types LONGTEXT CHARACTER SET ascii DEFAULT NULL;
  DECLARE v_lease, v_max_bytes, v_permit, v_now, v_retry BIGINT DEFAULT NULL;
  DECLARE v_version, v_min_priority INT DEFAULT NULL;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_isolated_(v_own, '');
  IF p_options <> '{}' THEN
    SET v_lease = JSON_VALUE(p_options, '$.lease_us'), v_version = JSON_VALUE(p_options, '$.version'),
        v_types = JSON_EXTRACT(p_options, '$.types'),
        v_min_priority = JSON_VALUE(p_options, '$.min_priority'),
        v_max_bytes = JSON_VALUE(p_options, '$.max_bytes'),
        v_permit = JSON_VALUE(p_options, '$.permit'), v_now = JSON_VALUE(p_options, '$.now');
  END IF;
  CALL fairlead_receive_(p_queue, p_n, p_channel, p_credit, p_acks, v_lease, v_version, v_types,
    v_min_priority, v_max_bytes, v_permit, v_now, v_own, v_ids, v_lost, v_retry);
  SELECT m.id, COALESCE(m.channel, p_channel) AS channel, m.body,
         IF(m.id IS NULL, v_lost, m.headers) AS headers, m.`key`,
         COALESCE(m.version, p_credit) AS version, m.type, -m.`rank` AS priority,
         COALESCE(m.due_at, v_retry) AS due_at, m.created_at, m.attempts, m.deliveries, m.memo,
         m.wake_at AS lease_until, m.json | m.begun << 3 AS json, m.recovered, g.name AS `group`,
         o.name AS origin, NULLIF(m.first_at, 0) AS first_at
    FROM JSON_TABLE(CONCAT('[', COALESCE(CONCAT(v_ids, ','), ''), '0]'), '$[*]'
           COLUMNS (n FOR ORDINALITY, id BIGINT PATH '$')) j
    LEFT JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
    LEFT JOIN fairlead_group g ON g.id = m.group_id
    LEFT JOIN fairlead_queue o ON o.id = m.died_in
   ORDER BY j.n;
  IF v_own THEN COMMIT; END IF;
END //

-- CALL fairlead_receive('emails', 10, '{"lease": 30, "version": 2, "types": ["a"], "min_priority": 1,
-- "max_bytes": 100000, "permit": 7, "acks": [[1, 1]]}'): the messages. The round goes on where the
-- last caller left off, kept in a row that nobody waits for. @fairlead_retry_after: microseconds
-- until a next try is worth while if nothing came (0: at once, NULL: nothing is on its way);
-- @fairlead_lost: the ids of acks that came too late.
DROP PROCEDURE IF EXISTS fairlead_receive //
CREATE PROCEDURE fairlead_receive(
  IN p_queue VARCHAR(255) CHARACTER SET utf8mb4, IN p_n INT,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own, v_row TINYINT DEFAULT 0;
  DECLARE v_options LONGTEXT CHARACTER SET utf8mb4 DEFAULT COALESCE(p_options, '{}');
  DECLARE v_ids, v_lost, v_types LONGTEXT CHARACTER SET ascii DEFAULT NULL;
  DECLARE v_channel VARBINARY(255) DEFAULT NULL;
  DECLARE v_credit, v_queue_id, v_closed INT DEFAULT NULL;
  DECLARE v_retry BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  IF p_n NOT BETWEEN 1 AND 10000 OR p_n IS NULL THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45006, MESSAGE_TEXT = 'n is a number from 1 to 10000';
  END IF;
  IF v_options <> '{}' THEN
    CALL fairlead_known_(v_options, 'lease,version,types,min_priority,max_bytes,permit,acks,now');
  END IF;
  CALL fairlead_open_(v_own);
  CALL fairlead_isolated_(v_own, '');
  SELECT COUNT(*) INTO v_row FROM (SELECT 1 FROM fairlead_group_mark LIMIT 1) marked;
  IF v_row AND v_own THEN
    COMMIT;
    CALL fairlead_settle_all_(100, COALESCE(JSON_VALUE(v_options, '$.now'),
      TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))), v_closed);
    CALL fairlead_open_(v_own);
  END IF;
  SET v_row = 0;
  IF JSON_CONTAINS_PATH(v_options, 'one', '$.types') THEN
    SELECT CONCAT('[', COALESCE(GROUP_CONCAT('"', HEX(name), '"'), ''), ']') INTO v_types
      FROM JSON_TABLE(v_options, '$.types[*]' COLUMNS (name VARCHAR(255) CHARACTER SET utf8mb4 PATH '$')) t;
  END IF;
  SELECT id INTO v_queue_id FROM fairlead_queue WHERE name = CAST(p_queue AS BINARY);
  SELECT channel, credit, 1 INTO v_channel, v_credit, v_row FROM fairlead_cursor
   WHERE queue_id = v_queue_id FOR UPDATE SKIP LOCKED;
  IF NOT v_row THEN
    SELECT channel, credit INTO v_channel, v_credit FROM fairlead_cursor WHERE queue_id = v_queue_id;
  END IF;
  SET v_credit = COALESCE(v_credit, 0);
  CALL fairlead_receive_(p_queue, p_n, v_channel, v_credit,
    COALESCE(JSON_EXTRACT(v_options, '$.acks'), '[]'),
    ROUND(JSON_VALUE(v_options, '$.lease') * 1000000), JSON_VALUE(v_options, '$.version'), v_types,
    JSON_VALUE(v_options, '$.min_priority'), JSON_VALUE(v_options, '$.max_bytes'),
    JSON_VALUE(v_options, '$.permit'), JSON_VALUE(v_options, '$.now'), v_own * 2, v_ids, v_lost, v_retry);
  IF v_row THEN
    UPDATE fairlead_cursor SET channel = v_channel, credit = v_credit WHERE queue_id = v_queue_id;
  END IF;
  SET @fairlead_retry_after = v_retry, @fairlead_lost = v_lost;
  SELECT m.id, CONVERT(m.channel USING utf8mb4) AS channel, m.body,
         CONVERT(m.headers USING utf8mb4) AS headers, CONVERT(m.`key` USING utf8mb4) AS `key`,
         m.version, CONVERT(m.type USING utf8mb4) AS type, -m.`rank` AS priority, m.due_at,
         m.created_at, m.attempts, m.deliveries, m.memo, m.wake_at AS lease_until, m.json | m.begun << 3 AS json, m.recovered,
         CONVERT(g.name USING utf8mb4) AS `group`,
         CONVERT(o.name USING utf8mb4) AS origin, NULLIF(m.first_at, 0) AS first_at
    FROM JSON_TABLE(CONCAT('[', COALESCE(v_ids, ''), ']'), '$[*]'
           COLUMNS (n FOR ORDINALITY, id BIGINT PATH '$')) j
    STRAIGHT_JOIN fairlead_message m FORCE INDEX (PRIMARY) ON m.id = j.id
    LEFT JOIN fairlead_group g ON g.id = m.group_id
    LEFT JOIN fairlead_queue o ON o.id = m.died_in
   ORDER BY j.n;
  IF v_own THEN COMMIT; END IF;
END //

-- Under a snapshot older than a gate's lock the leases cannot be counted, nor a group's members, nor gaps
-- be told. p_what: who says so, if it is not receive.
DROP PROCEDURE IF EXISTS fairlead_isolated_ //
CREATE PROCEDURE fairlead_isolated_(IN p_own TINYINT, IN p_what VARCHAR(30) CHARACTER SET ascii)
BEGIN
  DECLARE v_text VARCHAR(128) CHARACTER SET ascii;
  IF NOT p_own AND /*M!100600 @@session.tx_isolation */ /*!80000 @@session.transaction_isolation */
     <> 'READ-COMMITTED' THEN
    SET v_text = CONCAT(p_what,
          'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED before your transaction');
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45007, MESSAGE_TEXT = v_text;
  END IF;
END //

DELIMITER ;
