-- Queues and policies (docs/semantics.md, 11), also the policies of a batch (16).

DELIMITER //

-- A duration may be given in seconds (lease) or microseconds (lease_us). Add the microseconds of the former.
CREATE PROCEDURE fairturn_durations_(INOUT p_options LONGTEXT CHARACTER SET utf8mb4)
BEGIN
  DECLARE v_names VARCHAR(1000) DEFAULT
    -- made from: mysql_durations
    CONCAT('lease,backoff_initial,backoff_max,retention,result_retention,dead_retention,',
      'failure_retention,expires,limit_rate_period,rate_period')
    -- end
  ;
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

-- Set those columns of a queue that the options name.
CREATE PROCEDURE fairturn_columns_(IN p_id INT, IN p_options LONGTEXT CHARACTER SET utf8mb4)
BEGIN
  DECLARE v LONGTEXT CHARACTER SET utf8mb4 DEFAULT p_options;
  DECLARE v_meta LONGTEXT CHARACTER SET utf8mb4;
  CALL fairturn_known_(v,
    -- made from: mysql_names
    CONCAT('lease_us,max_attempts,backoff_initial_us,backoff_factor,backoff_max_us,retention_us,',
      'result_retention_us,dead_retention_us,failure_retention_us,dead_letter,max_body,expires_us,',
      'paused,events,limit_concurrency,limit_rate_count,limit_rate_period_us,limit_burst,',
      'max_concurrency,rate_count,rate_period_us,burst,weight,channel_paused,ordered,max_size,',
      'meta,lease,backoff_initial,backoff_max,retention,result_retention,dead_retention,',
      'failure_retention,expires,limit_rate_period,rate_period,now')
    -- end
  );
  -- An object, or the text of one: the library sends text, which stays as it is, however deep it is nested.
  SET v_meta = JSON_UNQUOTE(JSON_EXTRACT(v, '$.meta'));
  IF v_meta IN ('null', '{}') THEN SET v_meta = NULL; END IF;
  IF LENGTH(v_meta) > 65536 OR v_meta NOT LIKE '{%}' THEN
    CALL fairturn_refuse_(45006, 'meta is a JSON object of at most 65536 bytes');
  END IF;
  CALL fairturn_durations_(v);
  UPDATE fairturn_queue SET
    -- made from: mysql_assignments
    lease_us = IF(JSON_CONTAINS_PATH(v, 'one', '$.lease_us'), JSON_VALUE(v, '$.lease_us'), lease_us),
    max_attempts = IF(JSON_CONTAINS_PATH(v, 'one', '$.max_attempts'), JSON_VALUE(v, '$.max_attempts'), max_attempts),
    backoff_initial_us = IF(JSON_CONTAINS_PATH(v, 'one', '$.backoff_initial_us'), JSON_VALUE(v, '$.backoff_initial_us'), backoff_initial_us),
    backoff_factor = IF(JSON_CONTAINS_PATH(v, 'one', '$.backoff_factor'), JSON_VALUE(v, '$.backoff_factor'), backoff_factor),
    backoff_max_us = IF(JSON_CONTAINS_PATH(v, 'one', '$.backoff_max_us'), JSON_VALUE(v, '$.backoff_max_us'), backoff_max_us),
    retention_us = IF(JSON_CONTAINS_PATH(v, 'one', '$.retention_us'), JSON_VALUE(v, '$.retention_us'), retention_us),
    result_retention_us = IF(JSON_CONTAINS_PATH(v, 'one', '$.result_retention_us'), JSON_VALUE(v, '$.result_retention_us'), result_retention_us),
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
    -- end
    meta = IF(JSON_CONTAINS_PATH(v, 'one', '$.meta'), v_meta, meta)
   WHERE id = p_id;
END //

-- CALL fairturn_queue_create('emails', '{"lease": 30, "max_attempts": 5}'): 1 if it was created.
CREATE PROCEDURE fairturn_queue_create(
  IN p_queue VARBINARY(1024), IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own, v_created TINYINT DEFAULT 0;
  DECLARE v_id, v_lane INT DEFAULT NULL;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  IF LENGTH(p_queue) NOT BETWEEN 1 AND 255 OR LOCATE(CHAR(0), p_queue) OR p_queue IS NULL THEN
    CALL fairturn_refuse_(45005, 'a queue name has 1 to 255 bytes without NUL');
  END IF;
  CALL fairturn_open_(v_own);
  SELECT id INTO v_id FROM fairturn_queue WHERE name = p_queue;
  IF v_id IS NULL THEN
    INSERT INTO fairturn_lane (queue_id) VALUES (NULL);
    SET v_lane = LAST_INSERT_ID();
    -- @stop create.insert
    INSERT IGNORE INTO fairturn_queue (name, lane, created_at)
      VALUES (p_queue, v_lane, COALESCE(JSON_VALUE(p_options, '$.now'),
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))));
    SELECT id INTO v_id FROM fairturn_queue WHERE name = p_queue AND lane = v_lane;
    IF v_id IS NOT NULL THEN
      SET v_created = 1;
      INSERT INTO fairturn_limit (queue_id) VALUES (v_id);
      INSERT INTO fairturn_cursor (queue_id) VALUES (v_id);
      CALL fairturn_columns_(v_id, p_options);
    END IF;
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_created AS created;
END //

-- It needs no transaction of its own: there is only one write.
CREATE PROCEDURE fairturn_queue_set(
  IN p_queue VARBINARY(1024), IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_id, v_lane, v_events INT;
  DECLARE v_now BIGINT;
  CALL fairturn_queue_(p_queue, NULL, v_id, v_lane, v_now, v_events);
  CALL fairturn_columns_(v_id, p_options);
END //

-- Fast: the queue gets a new lane, and maintenance deletes the rows of the old one.
-- Options: reset = 1 also deletes the totals, the history and the failures.
CREATE PROCEDURE fairturn_queue_purge(
  IN p_queue VARBINARY(1024), IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_id, v_old, v_events INT;
  DECLARE v_now BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_known_(p_options, 'reset,now');
  CALL fairturn_open_(v_own);
  CALL fairturn_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_id, v_old, v_now, v_events);
  SELECT lane INTO v_old FROM fairturn_queue WHERE id = v_id FOR UPDATE;
  INSERT INTO fairturn_lane (queue_id) VALUES (v_id);
  UPDATE fairturn_queue SET lane = LAST_INSERT_ID() WHERE id = v_id;
  INSERT INTO fairturn_retired (lane, retired_at) VALUES (v_old, v_now);
  IF JSON_VALUE(p_options, '$.reset') IN ('1', 'true') THEN
    CALL fairturn_reset_(v_id);
  END IF;
  IF v_own THEN COMMIT; END IF;
END //

-- 1 if there was such a queue.
CREATE PROCEDURE fairturn_queue_drop(
  IN p_queue VARBINARY(1024), IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_id, v_lane INT DEFAULT NULL;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_open_(v_own);
  SELECT id, lane INTO v_id, v_lane FROM fairturn_queue WHERE name = p_queue FOR UPDATE;
  IF v_id IS NOT NULL THEN
    DELETE FROM fairturn_queue WHERE id = v_id;
    INSERT INTO fairturn_retired (lane, retired_at) VALUES (v_lane, COALESCE(
      JSON_VALUE(p_options, '$.now'), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))));
    DELETE p FROM fairturn_policy p FORCE INDEX (PRIMARY) WHERE p.queue_id = v_id;
    DELETE g FROM fairturn_gate g FORCE INDEX (PRIMARY) WHERE g.queue_id = v_id;
    DELETE FROM fairturn_limit WHERE queue_id = v_id;
    DELETE FROM fairturn_cursor WHERE queue_id = v_id;
    CALL fairturn_reset_(v_id);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_id IS NOT NULL AS dropped;
END //

-- CALL fairturn_policy_set('emails', 'tenant-7', '{"max_concurrency": 2, "rate_count": 100,
-- "rate_period": 60, "burst": 1, "weight": 3, "paused": false, "ordered": false, "max_size": null}')
-- A policy is replaced as a whole: what is not named gets its default. The gate keeps the time of the rate.
CREATE PROCEDURE fairturn_policy_set(
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
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  IF LENGTH(p_channel) > 255 OR LOCATE(CHAR(0), p_channel) OR p_channel IS NULL THEN
    CALL fairturn_refuse_(45005, 'a channel has at most 255 bytes without NUL');
  END IF;
  CALL fairturn_known_(v, 'max_concurrency,rate_count,rate_period,rate_period_us,burst,weight,paused,ordered,max_size');
  CALL fairturn_durations_(v);
  CALL fairturn_open_(v_own);
  CALL fairturn_queue_(p_queue, NULL, v_id, v_lane, v_now, v_events);
  -- The gate puts this call and the receives in an order: a receive that holds the gate goes first, and a
  -- later one reads the policy again when it has the gate. A limited channel needs a gate, so it is made here.
  IF COALESCE(JSON_VALUE(v, '$.max_concurrency'), JSON_VALUE(v, '$.rate_count')) IS NOT NULL
     OR JSON_VALUE(v, '$.ordered') IN ('1', 'true') THEN
    INSERT IGNORE INTO fairturn_gate (queue_id, channel) VALUES (v_id, p_channel);
  END IF;
  SELECT tat INTO v_tat FROM fairturn_gate
   WHERE queue_id = v_id AND channel = p_channel FOR UPDATE;
  -- @stop policy_set.write
  REPLACE INTO fairturn_policy (queue_id, channel, max_concurrency, rate_count, rate_period_us, burst,
      weight, paused, ordered, max_size)
    VALUES (v_id, p_channel, JSON_VALUE(v, '$.max_concurrency'), JSON_VALUE(v, '$.rate_count'),
      JSON_VALUE(v, '$.rate_period_us'), COALESCE(JSON_VALUE(v, '$.burst'), 1),
      COALESCE(JSON_VALUE(v, '$.weight'), 1), COALESCE(JSON_VALUE(v, '$.paused') IN ('1', 'true'), 0),
      COALESCE(JSON_VALUE(v, '$.ordered') IN ('1', 'true'), 0), JSON_VALUE(v, '$.max_size'));
  IF v_own THEN COMMIT; END IF;
END //

-- 1 if the channel had a policy of its own.
CREATE PROCEDURE fairturn_policy_clear(IN p_queue VARBINARY(1024), IN p_channel VARBINARY(1024))
BEGIN
  CALL fairturn_policies_clear(JSON_ARRAY(JSON_ARRAY(HEX(p_queue), HEX(p_channel))));
END //

-- Set the policies of a batch, [["queue in hex", "channel in hex", max_concurrency, …], …], in one statement,
-- under the gates of their channels like fairturn_policy_set.
CREATE PROCEDURE fairturn_policies_set(IN p_policies LONGTEXT CHARACTER SET ascii)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_open_(v_own);
  CALL fairturn_queues_known_(p_policies);
  INSERT IGNORE INTO fairturn_gate (queue_id, channel)
    SELECT q.id, UNHEX(j.channel) FROM JSON_TABLE(p_policies, '$[*]' COLUMNS (
        queue VARCHAR(510) PATH '$[0]', channel VARCHAR(510) PATH '$[1]',
        max_concurrency INT PATH '$[2]', rate_count INT PATH '$[3]', ordered INT PATH '$[8]')) j
      STRAIGHT_JOIN fairturn_queue q ON q.name = UNHEX(j.queue)
     WHERE j.max_concurrency IS NOT NULL OR j.rate_count IS NOT NULL OR j.ordered = 1
     ORDER BY q.id, UNHEX(j.channel);
  CALL fairturn_gates_of_(p_policies);
  INSERT INTO fairturn_policy (queue_id, channel, max_concurrency, rate_count, rate_period_us, burst,
      weight, paused, ordered, max_size)
    SELECT q.id, UNHEX(j.channel), j.max_concurrency, j.rate_count, j.rate_period_us, j.burst,
           j.weight, j.paused, j.ordered, j.max_size
      FROM JSON_TABLE(p_policies, '$[*]' COLUMNS (
        queue VARCHAR(510) PATH '$[0]', channel VARCHAR(510) PATH '$[1]',
        max_concurrency INT PATH '$[2]', rate_count INT PATH '$[3]', rate_period_us BIGINT PATH '$[4]',
        burst INT PATH '$[5]', weight INT PATH '$[6]', paused INT PATH '$[7]', ordered INT PATH '$[8]',
        max_size INT PATH '$[9]')) j
      STRAIGHT_JOIN fairturn_queue q ON q.name = UNHEX(j.queue)
     ORDER BY q.id, UNHEX(j.channel)
    ON DUPLICATE KEY UPDATE max_concurrency = VALUES(max_concurrency),
      rate_count = VALUES(rate_count), rate_period_us = VALUES(rate_period_us),
      burst = VALUES(burst), weight = VALUES(weight), paused = VALUES(paused),
      ordered = VALUES(ordered), max_size = VALUES(max_size);
  IF v_own THEN COMMIT; END IF;
END //

-- Clear the policies of channels, [["queue in hex", "channel in hex"], …]; how many there were.
CREATE PROCEDURE fairturn_policies_clear(IN p_policies LONGTEXT CHARACTER SET ascii)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_count INT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_open_(v_own);
  CALL fairturn_queues_known_(p_policies);
  CALL fairturn_gates_of_(p_policies);
  DELETE p FROM JSON_TABLE(p_policies, '$[*]' COLUMNS (
      queue VARCHAR(510) PATH '$[0]', channel VARCHAR(510) PATH '$[1]')) j
    STRAIGHT_JOIN fairturn_queue q ON q.name = UNHEX(j.queue)
    STRAIGHT_JOIN fairturn_policy p FORCE INDEX (PRIMARY)
      ON p.queue_id = q.id AND p.channel = UNHEX(j.channel);
  SET v_count = ROW_COUNT();
  IF v_own THEN COMMIT; END IF;
  SELECT v_count AS cleared;
END //

-- Raise "no such queue" for the first queue of a batch's policies that does not exist.
CREATE PROCEDURE fairturn_queues_known_(IN p_policies LONGTEXT CHARACTER SET ascii)
BEGIN
  DECLARE v_missing VARCHAR(255) CHARACTER SET utf8mb4 DEFAULT NULL;
  SELECT CONVERT(UNHEX(j.queue) USING utf8mb4) INTO v_missing
    FROM JSON_TABLE(p_policies, '$[*]' COLUMNS (
      n FOR ORDINALITY, queue VARCHAR(510) PATH '$[0]')) j
    LEFT JOIN fairturn_queue q ON q.name = UNHEX(j.queue)
   WHERE q.id IS NULL ORDER BY j.n LIMIT 1;
  IF v_missing IS NOT NULL THEN CALL fairturn_refuse_(45002, v_missing); END IF;
END //

-- Lock the gates of a batch's policies, in the order of queues and channels.
CREATE PROCEDURE fairturn_gates_of_(IN p_policies LONGTEXT CHARACTER SET ascii)
BEGIN
  DECLARE v_count INT;
  SELECT COUNT(*) INTO v_count FROM (
    SELECT g.tat FROM (
        SELECT q.id, UNHEX(j.channel) AS channel FROM JSON_TABLE(p_policies, '$[*]' COLUMNS (
            queue VARCHAR(510) PATH '$[0]', channel VARCHAR(510) PATH '$[1]')) j
          STRAIGHT_JOIN fairturn_queue q ON q.name = UNHEX(j.queue)
         ORDER BY q.id, UNHEX(j.channel) LIMIT 1000000) wanted
      STRAIGHT_JOIN fairturn_gate g FORCE INDEX (PRIMARY)
        ON g.queue_id = wanted.id AND g.channel = wanted.channel FOR UPDATE) locked;
END //

DELIMITER ;
