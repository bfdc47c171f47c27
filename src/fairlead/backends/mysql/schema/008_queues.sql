-- Queues and policies (docs/semantics.md, 11).

DELIMITER //

-- Durations may be given in seconds (lease) or microseconds (lease_us): the latter everywhere here.
DROP PROCEDURE IF EXISTS fairlead_durations_ //
CREATE PROCEDURE fairlead_durations_(INOUT p_options LONGTEXT CHARACTER SET utf8mb4)
BEGIN
  DECLARE v_names VARCHAR(255) DEFAULT
    'lease,retention,dead_retention,failure_retention,expires,backoff_initial,backoff_max,rate_period,limit_rate_period';
  DECLARE v_name VARCHAR(64);
  SET p_options = COALESCE(p_options, '{}');
  WHILE v_names <> '' DO
    SET v_name = SUBSTRING_INDEX(v_names, ',', 1), v_names = SUBSTR(v_names, LENGTH(v_name) + 2);
    IF JSON_CONTAINS_PATH(p_options, 'one', CONCAT('$.', v_name)) THEN
      SET p_options = JSON_SET(p_options, CONCAT('$.', v_name, '_us'),
        CAST(ROUND(JSON_VALUE(p_options, CONCAT('$.', v_name)) * 1000000) AS SIGNED));
    END IF;
  END WHILE;
END //

-- Write the columns that the options name.
DROP PROCEDURE IF EXISTS fairlead_columns_ //
CREATE PROCEDURE fairlead_columns_(IN p_id INT, IN p_options LONGTEXT CHARACTER SET utf8mb4)
BEGIN
  DECLARE v LONGTEXT CHARACTER SET utf8mb4 DEFAULT p_options;
  DECLARE v_meta LONGTEXT CHARACTER SET utf8mb4;
  CALL fairlead_known_(v, 'lease,lease_us,max_attempts,backoff_initial,backoff_initial_us,backoff_factor,backoff_max,backoff_max_us,retention,retention_us,dead_retention,dead_retention_us,failure_retention,failure_retention_us,dead_letter,max_body,expires,expires_us,paused,events,limit_concurrency,limit_rate_count,limit_rate_period,limit_rate_period_us,limit_burst,max_concurrency,rate_count,rate_period,rate_period_us,burst,weight,channel_paused,ordered,max_size,meta,now');
  -- An object, or one as text: what a client has encoded stays as it is, however deep.
  SET v_meta = JSON_UNQUOTE(JSON_EXTRACT(v, '$.meta'));
  IF v_meta IN ('null', '{}') THEN SET v_meta = NULL; END IF;
  IF LENGTH(v_meta) > 65536 OR v_meta NOT LIKE '{%}' THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45006, MESSAGE_TEXT =
      'meta is a JSON object of at most 65536 bytes';
  END IF;
  CALL fairlead_durations_(v);
  UPDATE fairlead_queue SET
    lease_us = IF(JSON_CONTAINS_PATH(v, 'one', '$.lease_us'), JSON_VALUE(v, '$.lease_us'), lease_us),
    max_attempts = IF(JSON_CONTAINS_PATH(v, 'one', '$.max_attempts'), JSON_VALUE(v, '$.max_attempts'), max_attempts),
    backoff_initial_us = IF(JSON_CONTAINS_PATH(v, 'one', '$.backoff_initial_us'), JSON_VALUE(v, '$.backoff_initial_us'), backoff_initial_us),
    backoff_factor = IF(JSON_CONTAINS_PATH(v, 'one', '$.backoff_factor'), JSON_VALUE(v, '$.backoff_factor'), backoff_factor),
    backoff_max_us = IF(JSON_CONTAINS_PATH(v, 'one', '$.backoff_max_us'), JSON_VALUE(v, '$.backoff_max_us'), backoff_max_us),
    retention_us = IF(JSON_CONTAINS_PATH(v, 'one', '$.retention_us'), JSON_VALUE(v, '$.retention_us'), retention_us),
    dead_retention_us = IF(JSON_CONTAINS_PATH(v, 'one', '$.dead_retention_us'), JSON_VALUE(v, '$.dead_retention_us'), dead_retention_us),
    failure_retention_us = IF(JSON_CONTAINS_PATH(v, 'one', '$.failure_retention_us'), JSON_VALUE(v, '$.failure_retention_us'), failure_retention_us),
    dead_letter = IF(JSON_CONTAINS_PATH(v, 'one', '$.dead_letter'), CAST(JSON_VALUE(v, '$.dead_letter') AS BINARY), dead_letter),
    max_body = IF(JSON_CONTAINS_PATH(v, 'one', '$.max_body'), JSON_VALUE(v, '$.max_body'), max_body),
    expires_us = IF(JSON_CONTAINS_PATH(v, 'one', '$.expires_us'), JSON_VALUE(v, '$.expires_us'), expires_us),
    paused = IF(JSON_CONTAINS_PATH(v, 'one', '$.paused'), JSON_VALUE(v, '$.paused') IN ('1', 'true'), paused),
    events = IF(JSON_CONTAINS_PATH(v, 'one', '$.events'), JSON_VALUE(v, '$.events') IN ('1', 'true'), events),
    limit_concurrency = IF(JSON_CONTAINS_PATH(v, 'one', '$.limit_concurrency'), JSON_VALUE(v, '$.limit_concurrency'), limit_concurrency),
    limit_rate_count = IF(JSON_CONTAINS_PATH(v, 'one', '$.limit_rate_count'), JSON_VALUE(v, '$.limit_rate_count'), limit_rate_count),
    limit_rate_period_us = IF(JSON_CONTAINS_PATH(v, 'one', '$.limit_rate_period_us'), JSON_VALUE(v, '$.limit_rate_period_us'), limit_rate_period_us),
    limit_burst = IF(JSON_CONTAINS_PATH(v, 'one', '$.limit_burst'), JSON_VALUE(v, '$.limit_burst'), limit_burst),
    max_concurrency = IF(JSON_CONTAINS_PATH(v, 'one', '$.max_concurrency'), JSON_VALUE(v, '$.max_concurrency'), max_concurrency),
    rate_count = IF(JSON_CONTAINS_PATH(v, 'one', '$.rate_count'), JSON_VALUE(v, '$.rate_count'), rate_count),
    rate_period_us = IF(JSON_CONTAINS_PATH(v, 'one', '$.rate_period_us'), JSON_VALUE(v, '$.rate_period_us'), rate_period_us),
    burst = IF(JSON_CONTAINS_PATH(v, 'one', '$.burst'), JSON_VALUE(v, '$.burst'), burst),
    weight = IF(JSON_CONTAINS_PATH(v, 'one', '$.weight'), JSON_VALUE(v, '$.weight'), weight),
    channel_paused = IF(JSON_CONTAINS_PATH(v, 'one', '$.channel_paused'), JSON_VALUE(v, '$.channel_paused') IN ('1', 'true'), channel_paused),
    ordered = IF(JSON_CONTAINS_PATH(v, 'one', '$.ordered'), JSON_VALUE(v, '$.ordered') IN ('1', 'true'), ordered),
    max_size = IF(JSON_CONTAINS_PATH(v, 'one', '$.max_size'), JSON_VALUE(v, '$.max_size'), max_size),
    meta = IF(JSON_CONTAINS_PATH(v, 'one', '$.meta'), v_meta, meta)
   WHERE id = p_id;
END //

-- A number that no message has carried yet.
DROP PROCEDURE IF EXISTS fairlead_lane_ //
CREATE PROCEDURE fairlead_lane_(IN p_queue_id INT, OUT p_lane INT)
BEGIN
  INSERT INTO fairlead_lane (queue_id) VALUES (p_queue_id);
  SET p_lane = LAST_INSERT_ID();
END //

-- CALL fairlead_queue_create('emails', '{"lease": 30, "max_attempts": 5}'): 1 if it was created.
DROP PROCEDURE IF EXISTS fairlead_queue_create //
CREATE PROCEDURE fairlead_queue_create(
  IN p_queue VARBINARY(1024), IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own, v_created TINYINT DEFAULT 0;
  DECLARE v_id, v_lane INT DEFAULT NULL;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  IF LENGTH(p_queue) NOT BETWEEN 1 AND 255 OR LOCATE(CHAR(0), p_queue) OR p_queue IS NULL THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45005, MESSAGE_TEXT =
      'a queue name has 1 to 255 bytes without NUL';
  END IF;
  CALL fairlead_open_(v_own);
  SELECT id INTO v_id FROM fairlead_queue WHERE name = p_queue;
  IF v_id IS NULL THEN
    CALL fairlead_lane_(NULL, v_lane);
    -- @stop create.insert
    INSERT IGNORE INTO fairlead_queue (name, lane, created_at)
      VALUES (p_queue, v_lane, COALESCE(JSON_VALUE(p_options, '$.now'),
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))));
    SELECT id INTO v_id FROM fairlead_queue WHERE name = p_queue AND lane = v_lane;
    IF v_id IS NOT NULL THEN
      SET v_created = 1;
      INSERT INTO fairlead_limit (queue_id) VALUES (v_id);
      INSERT INTO fairlead_cursor (queue_id) VALUES (v_id);
      CALL fairlead_columns_(v_id, p_options);
    END IF;
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_created AS created;
END //

DROP PROCEDURE IF EXISTS fairlead_queue_set //
CREATE PROCEDURE fairlead_queue_set(
  IN p_queue VARBINARY(1024), IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_id, v_lane, v_events INT;
  DECLARE v_now BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_queue_(p_queue, NULL, v_id, v_lane, v_now, v_events);
  CALL fairlead_columns_(v_id, p_options);
  IF v_own THEN COMMIT; END IF;
END //

-- Instant: the queue gets a new lane, and the rows of the old one are swept later.
-- Options: reset = 1 also forgets totals, history and failures.
DROP PROCEDURE IF EXISTS fairlead_queue_purge //
CREATE PROCEDURE fairlead_queue_purge(
  IN p_queue VARBINARY(1024), IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_id, v_lane, v_old, v_events INT;
  DECLARE v_now BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_known_(p_options, 'reset,now');
  CALL fairlead_open_(v_own);
  CALL fairlead_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_id, v_old, v_now, v_events);
  SELECT lane INTO v_old FROM fairlead_queue WHERE id = v_id FOR UPDATE;
  CALL fairlead_lane_(v_id, v_lane);
  UPDATE fairlead_queue SET lane = v_lane WHERE id = v_id;
  INSERT INTO fairlead_retired (lane, retired_at) VALUES (v_old, v_now);
  IF JSON_VALUE(p_options, '$.reset') IN ('1', 'true') THEN
    CALL fairlead_reset_(v_id);
  END IF;
  IF v_own THEN COMMIT; END IF;
END //

-- 1 if there was such a queue.
DROP PROCEDURE IF EXISTS fairlead_queue_drop //
CREATE PROCEDURE fairlead_queue_drop(
  IN p_queue VARBINARY(1024), IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_id, v_lane INT DEFAULT NULL;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  SELECT id, lane INTO v_id, v_lane FROM fairlead_queue WHERE name = p_queue FOR UPDATE;
  IF v_id IS NOT NULL THEN
    DELETE FROM fairlead_queue WHERE id = v_id;
    INSERT INTO fairlead_retired (lane, retired_at) VALUES (v_lane, COALESCE(
      JSON_VALUE(p_options, '$.now'), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))));
    DELETE p FROM fairlead_policy p FORCE INDEX (PRIMARY) WHERE p.queue_id = v_id;
    DELETE g FROM fairlead_gate g FORCE INDEX (PRIMARY) WHERE g.queue_id = v_id;
    DELETE FROM fairlead_limit WHERE queue_id = v_id;
    DELETE FROM fairlead_cursor WHERE queue_id = v_id;
    CALL fairlead_reset_(v_id);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_id IS NOT NULL AS dropped;
END //

-- CALL fairlead_policy_set('emails', 'tenant-7', '{"max_concurrency": 2, "rate_count": 100,
-- "rate_period": 60, "burst": 1, "weight": 3, "paused": false, "ordered": false, "max_size": null}')
-- What is not named gets its default: a policy is replaced whole. Its gate keeps its time.
DROP PROCEDURE IF EXISTS fairlead_policy_set //
CREATE PROCEDURE fairlead_policy_set(
  IN p_queue VARBINARY(1024), IN p_channel VARBINARY(1024),
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_id, v_lane, v_events INT;
  DECLARE v_now, v_tat BIGINT;
  DECLARE v LONGTEXT CHARACTER SET utf8mb4 DEFAULT p_options;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  IF LENGTH(p_channel) > 255 OR LOCATE(CHAR(0), p_channel) OR p_channel IS NULL THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 45005, MESSAGE_TEXT =
      'a channel has at most 255 bytes without NUL';
  END IF;
  CALL fairlead_known_(v, 'max_concurrency,rate_count,rate_period,rate_period_us,burst,weight,paused,ordered,max_size');
  CALL fairlead_durations_(v);
  CALL fairlead_open_(v_own);
  CALL fairlead_queue_(p_queue, NULL, v_id, v_lane, v_now, v_events);
  -- The gate orders this with receives: those at the gate come first, later ones read the policy
  -- again once they have it. One that nobody has made yet is made here.
  IF COALESCE(JSON_VALUE(v, '$.max_concurrency'), JSON_VALUE(v, '$.rate_count')) IS NOT NULL
     OR JSON_VALUE(v, '$.ordered') IN ('1', 'true') THEN
    INSERT IGNORE INTO fairlead_gate (queue_id, channel) VALUES (v_id, p_channel);
  END IF;
  SELECT tat INTO v_tat FROM fairlead_gate
   WHERE queue_id = v_id AND channel = p_channel FOR UPDATE;
  -- @stop policy_set.write
  REPLACE INTO fairlead_policy (queue_id, channel, max_concurrency, rate_count, rate_period_us, burst,
      weight, paused, ordered, max_size)
    VALUES (v_id, p_channel, JSON_VALUE(v, '$.max_concurrency'), JSON_VALUE(v, '$.rate_count'),
      JSON_VALUE(v, '$.rate_period_us'), COALESCE(JSON_VALUE(v, '$.burst'), 1),
      COALESCE(JSON_VALUE(v, '$.weight'), 1), COALESCE(JSON_VALUE(v, '$.paused') IN ('1', 'true'), 0),
      COALESCE(JSON_VALUE(v, '$.ordered') IN ('1', 'true'), 0), JSON_VALUE(v, '$.max_size'));
  IF v_own THEN COMMIT; END IF;
END //

-- 1 if the channel had a policy of its own.
DROP PROCEDURE IF EXISTS fairlead_policy_clear //
CREATE PROCEDURE fairlead_policy_clear(IN p_queue VARBINARY(1024), IN p_channel VARBINARY(1024))
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_id, v_lane, v_events, v_count INT;
  DECLARE v_now, v_tat BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairlead_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairlead_open_(v_own);
  CALL fairlead_queue_(p_queue, NULL, v_id, v_lane, v_now, v_events);
  SELECT tat INTO v_tat FROM fairlead_gate
   WHERE queue_id = v_id AND channel = p_channel FOR UPDATE;
  DELETE FROM fairlead_policy WHERE queue_id = v_id AND channel = p_channel;
  SET v_count = ROW_COUNT();
  IF v_own THEN COMMIT; END IF;
  SELECT v_count AS cleared;
END //

DELIMITER ;
