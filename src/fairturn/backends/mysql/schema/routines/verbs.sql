-- The verbs of a lease (docs/semantics.md, 5).
--
-- Leases are JSON: [[id, token], …], each id once. A verb changes the messages whose lease is valid. It returns one
-- row with the ids of the lost leases. With {"strict": 1} a lost lease is an error, and nothing changes.
-- Messages are found by primary key only. Every verb takes the option `now`.

DELIMITER //

-- Lock the messages whose lease is valid. p_ids: "1,2" or NULL. p_grouped: how many of them have a group.
CREATE PROCEDURE fairturn_match_(
  IN p_lane INT, IN p_leases LONGTEXT CHARACTER SET ascii,
  OUT p_ids LONGTEXT CHARACTER SET ascii, OUT p_count INT, OUT p_grouped INT,
  OUT p_lost LONGTEXT CHARACTER SET ascii
)
BEGIN
  SELECT GROUP_CONCAT(id), COUNT(*), COUNT(group_id) INTO p_ids, p_count, p_grouped FROM (
    SELECT m.id, m.group_id FROM JSON_TABLE(p_leases, '$[*]' COLUMNS (
             id BIGINT PATH '$[0]', token BIGINT PATH '$[1]')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
     WHERE m.lane = p_lane AND m.state = 'l' AND m.token = j.token
     GROUP BY m.id FOR UPDATE) valid;
  SET p_lost = '[]';
  IF p_count < JSON_LENGTH(p_leases) THEN
    SELECT CONCAT('[', COALESCE(GROUP_CONCAT(DISTINCT j.id ORDER BY j.id), ''), ']') INTO p_lost
      FROM JSON_TABLE(p_leases, '$[*]' COLUMNS (
             id BIGINT PATH '$[0]', token BIGINT PATH '$[1]')) j
      LEFT JOIN fairturn_message m FORCE INDEX (PRIMARY)
             ON m.id = j.id AND m.lane = p_lane AND m.state = 'l' AND m.token = j.token
     WHERE m.id IS NULL;
  END IF;
END //

-- Refuse lost leases if the caller wants that.
CREATE PROCEDURE fairturn_strict_(
  IN p_queue VARBINARY(1024), IN p_lost LONGTEXT CHARACTER SET ascii,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  IF JSON_VALUE(p_options, '$.strict') IN ('1', 'true') THEN
    CALL fairturn_refuse_(45001, CONCAT(SUBSTRING_INDEX(SUBSTR(p_lost, 2, LENGTH(p_lost) - 2), ',', 3),
      ' ', CONVERT(p_queue USING utf8mb4)));
  END IF;
END //

-- Ack without transaction control. A receive calls it for the acks that it carries.
CREATE PROCEDURE fairturn_ack_(
  IN p_queue_id INT, IN p_lane INT, IN p_retention BIGINT, IN p_events INT,
  IN p_leases LONGTEXT CHARACTER SET ascii, IN p_now BIGINT,
  OUT p_count INT, OUT p_lost LONGTEXT CHARACTER SET ascii
)
ack: BEGIN
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_grouped INT;
  IF p_retention = 0 AND NOT p_events THEN
    -- Usually all leases are valid and no message has a group: then one statement is enough. If not, it
    -- is rolled back and the messages are looked at one by one. It is the first write of the call, so
    -- nothing else is rolled back with it.
    DELETE m FROM JSON_TABLE(p_leases, '$[*]' COLUMNS (
             id BIGINT PATH '$[0]', token BIGINT PATH '$[1]')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
     WHERE m.lane = p_lane AND m.state = 'l' AND m.token = j.token AND m.group_id IS NULL;
    SET p_count = ROW_COUNT(), p_lost = '[]';
    IF p_count = JSON_LENGTH(p_leases) THEN LEAVE ack; END IF;
    ROLLBACK TO SAVEPOINT fairturn;
  END IF;
  CALL fairturn_match_(p_lane, p_leases, v_ids, p_count, v_grouped, p_lost);
  IF v_ids IS NULL THEN LEAVE ack; END IF;
  IF v_grouped > 0 THEN CALL fairturn_leave_(v_ids, 1, 0); END IF;
  IF p_events THEN
    CALL fairturn_emit_(p_queue_id, v_ids, IF(p_retention = 0, 'deleted', 'done'), NULL, p_now);
  END IF;
  IF p_retention = 0 THEN
    DELETE m FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id;
  ELSE
    UPDATE JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
      SET m.state = 'd', m.wake_at = p_now, m.permit = 0, m.recovered = 0, m.begun = 0;
  END IF;
END //

CREATE PROCEDURE fairturn_ack(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_count INT;
  DECLARE v_now, v_retention BIGINT;
  DECLARE v_lost LONGTEXT CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  -- Ack is called most often: the options that the library sends are not parsed.
  IF p_options NOT IN ('{"strict": 1}', '{"strict": 0}') THEN
    CALL fairturn_known_(p_options, 'strict,now');
  END IF;
  CALL fairturn_open_(v_own);
  SELECT id, lane, retention_us, events, COALESCE(JSON_VALUE(p_options, '$.now'),
           TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    INTO v_queue_id, v_lane, v_retention, v_events, v_now FROM fairturn_queue WHERE name = p_queue;
  IF v_queue_id IS NULL THEN
    CALL fairturn_refuse_(45002, CONVERT(p_queue USING utf8mb4));
  END IF;
  -- @stop ack.delete
  CALL fairturn_ack_(v_queue_id, v_lane, v_retention, v_events, p_leases, v_now, v_count, v_lost);
  IF v_lost <> '[]' THEN CALL fairturn_strict_(p_queue, v_lost, p_options); END IF;
  IF v_count > 0 THEN
    INSERT INTO fairturn_tally (queue_id, minute, acked)
      VALUES (v_queue_id, v_now - v_now MOD 60000000, v_count);
  END IF;
  IF v_own THEN COMMIT; END IF;
  SELECT v_lost AS lost;
END //

-- Every verb but ack. p_value: the result, memo, error or note. p_known: the options of this verb besides
-- `strict` and `now`. The steps:
--   1. check the options, find the queue
--   2. lock the messages whose lease is valid, refuse lost leases if the caller is strict
--   3. change the messages and count them: one branch for each verb
--   4. commit, return the lost leases
CREATE PROCEDURE fairturn_verb_(
  IN p_verb VARCHAR(8) CHARACTER SET ascii, IN p_queue VARBINARY(1024),
  IN p_leases LONGTEXT CHARACTER SET ascii, IN p_value LONGBLOB, IN p_details MEDIUMBLOB,
  IN p_options LONGTEXT CHARACTER SET utf8mb4, IN p_known VARCHAR(100) CHARACTER SET ascii
)
BEGIN
  DECLARE v_own, v_json TINYINT DEFAULT 0;
  DECLARE v_queue_id, v_lane, v_events, v_grouped, v_count INT;
  DECLARE v_now, v_until BIGINT;
  DECLARE v_ids, v_lost LONGTEXT CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_open_(v_own);
  IF p_options NOT IN ('{"strict": 1}', '{"strict": 0}', '{"json": 0, "strict": 1}',
                       '{"json": 1, "strict": 1}') THEN
    CALL fairturn_known_(p_options, CONCAT('strict,now,', p_known));
  END IF;
  CALL fairturn_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_queue_id, v_lane, v_now, v_events);
  CALL fairturn_match_(v_lane, p_leases, v_ids, v_count, v_grouped, v_lost);
  IF v_lost <> '[]' THEN CALL fairturn_strict_(p_queue, v_lost, p_options); END IF;
  IF v_count > 0 THEN
    CASE p_verb
      WHEN 'complete' THEN
        SET v_json = COALESCE(JSON_VALUE(p_options, '$.json') IN ('1', 'true'),
              JSON_VALID(CONVERT(p_value USING utf8mb4)), 0);
        IF v_grouped > 0 THEN CALL fairturn_leave_(v_ids, 1, 0); END IF;
        UPDATE JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
          STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
          SET m.state = 'd', m.wake_at = v_now, m.permit = 0, m.recovered = 0, m.begun = 0, m.attempts = 0,
              m.error = NULL, m.result = p_value, m.json = (m.json & 3) | IF(v_json, 4, 0);
        IF v_events THEN CALL fairturn_emit_(v_queue_id, v_ids, 'done', NULL, v_now); END IF;
        INSERT INTO fairturn_tally (queue_id, minute, completed)
          VALUES (v_queue_id, v_now - v_now MOD 60000000, v_count);
      WHEN 'defer' THEN BEGIN
        DECLARE v_due BIGINT DEFAULT COALESCE(JSON_VALUE(p_options, '$.due_us'),
          v_now + COALESCE(JSON_VALUE(p_options, '$.delay_us'),
            ROUND(JSON_VALUE(p_options, '$.delay') * 1000000), 0));
        DECLARE v_keep TINYINT DEFAULT p_value IS NULL
          AND NOT COALESCE(JSON_VALUE(p_options, '$.clear_memo') IN ('1', 'true'), 0);
        SET v_json = COALESCE(JSON_VALUE(p_options, '$.json') IN ('1', 'true'),
              JSON_VALID(CONVERT(p_value USING utf8mb4)), 0);
        UPDATE JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
          STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
          SET m.state = IF(v_due <= v_now, 'r', 's'), m.wake_at = IF(v_due <= v_now, 0, v_due),
              m.due_at = v_due, m.permit = 0, m.recovered = 0, m.attempts = 0,
              m.memo = IF(v_keep, m.memo, p_value),
              m.json = IF(v_keep, m.json, (m.json & 5) | IF(v_json, 2, 0));
        IF v_events THEN CALL fairturn_emit_(v_queue_id, v_ids, 'deferred', NULL, v_now); END IF;
        INSERT INTO fairturn_tally (queue_id, minute, deferred)
          VALUES (v_queue_id, v_now - v_now MOD 60000000, v_count);
      END;
      WHEN 'extend' THEN BEGIN
        DECLARE v_default BIGINT;
        DECLARE v_lease BIGINT DEFAULT COALESCE(JSON_VALUE(p_options, '$.lease_us'),
          ROUND(JSON_VALUE(p_options, '$.lease') * 1000000));
        DECLARE v_exact TINYINT DEFAULT COALESCE(JSON_VALUE(p_options, '$.exact') IN ('1', 'true'), 0);
        SELECT lease_us INTO v_default FROM fairturn_queue WHERE id = v_queue_id;
        -- An exact lease leaves its permit: the permit would extend it again.
        UPDATE JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
          STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
          SET m.wake_at = GREATEST(IF(v_exact, 0, m.wake_at), v_now + COALESCE(v_lease, m.lease_us, v_default)),
              m.permit = IF(v_exact, 0, m.permit);
        SELECT MAX(m.wake_at) INTO v_until
          FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
          STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id;
      END;
      WHEN 'release' THEN
        UPDATE JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
          STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
          SET m.state = 'r', m.wake_at = 0, m.permit = 0, m.attempts = m.attempts - 1;
        INSERT INTO fairturn_tally (queue_id, minute, released)
          VALUES (v_queue_id, v_now - v_now MOD 60000000, v_count);
      WHEN 'progress' THEN BEGIN
        DECLARE v_progress INT DEFAULT COALESCE(JSON_VALUE(p_options, '$.millionths'),
          ROUND(JSON_VALUE(p_options, '$.progress') * 1000000));
        UPDATE JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
          STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
          SET m.progress = COALESCE(v_progress, m.progress), m.note = COALESCE(p_value, m.note);
        IF v_events THEN CALL fairturn_emit_(v_queue_id, v_ids, 'progress', NULL, v_now); END IF;
      END;
      ELSE BEGIN -- fail, kill: messages without attempts left die (kill: all), the others wait for a retry
        DECLARE v_factor, v_killed INT;
        DECLARE v_delay, v_initial, v_maximum BIGINT;
        DECLARE v_reference MEDIUMBLOB DEFAULT JSON_VALUE(p_options, '$.reference');
        DECLARE v_alive LONGTEXT CHARACTER SET ascii;
        DECLARE v_dead LONGTEXT CHARACTER SET ascii DEFAULT v_ids;
        IF p_verb = 'fail' THEN
          SELECT GROUP_CONCAT(IF(m.attempts >= COALESCE(m.max_attempts, q.max_attempts)
                                 AND COALESCE(m.max_attempts, q.max_attempts) > 0, m.id, NULL)),
                 GROUP_CONCAT(IF(m.attempts >= COALESCE(m.max_attempts, q.max_attempts)
                                 AND COALESCE(m.max_attempts, q.max_attempts) > 0, NULL, m.id)),
                 MAX(q.backoff_initial_us), MAX(q.backoff_factor), MAX(q.backoff_max_us)
            INTO v_dead, v_alive, v_initial, v_factor, v_maximum
            FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
            STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
            STRAIGHT_JOIN fairturn_queue q FORCE INDEX (PRIMARY) ON q.id = v_queue_id;
        END IF;
        IF v_alive IS NOT NULL THEN
          CALL fairturn_log_(v_queue_id, v_alive, v_now, 0, p_value, p_details, v_reference);
          SET v_delay = COALESCE(JSON_VALUE(p_options, '$.delay_us'),
                ROUND(JSON_VALUE(p_options, '$.delay') * 1000000));
          -- With an exponent of at most 60 no double overflows. A longer wait is above every maximum anyway.
          UPDATE (
              SELECT a.id, COALESCE(v_delay, CAST(LEAST(
                       v_initial * POW(v_factor, LEAST(a.attempts - 1, 60)), v_maximum) AS SIGNED)) AS delay
                FROM JSON_TABLE(CONCAT('[', v_alive, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
                STRAIGHT_JOIN fairturn_message a FORCE INDEX (PRIMARY) ON a.id = j.id) wait
            STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = wait.id
            SET m.due_at = v_now + wait.delay, m.state = IF(wait.delay <= 0, 'r', 's'),
                m.wake_at = IF(wait.delay <= 0, 0, v_now + wait.delay),
                m.permit = 0, m.recovered = 0, m.error = p_value;
          IF v_events THEN CALL fairturn_emit_(v_queue_id, v_alive, 'deferred', NULL, v_now); END IF;
        END IF;
        IF v_dead IS NOT NULL THEN
          CALL fairturn_die_(v_queue_id, v_dead, v_grouped, v_now, 1, p_value, p_details, v_reference, v_killed);
        END IF;
        INSERT INTO fairturn_tally (queue_id, minute, failed, killed, errors)
          VALUES (v_queue_id, v_now - v_now MOD 60000000, IF(p_verb = 'fail', v_count, NULL), v_killed, v_count);
      END;
    END CASE;
  END IF;
  IF v_own THEN COMMIT; END IF;
  IF p_verb = 'extend' THEN
    SELECT v_lost AS lost, v_until AS lease_until;
  ELSE
    SELECT v_lost AS lost;
  END IF;
END //

-- Options: json = 1 if the result is JSON (default: if it looks like it).
CREATE PROCEDURE fairturn_complete(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii, IN p_result LONGBLOB,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  CALL fairturn_verb_('complete', p_queue, p_leases, p_result, NULL, p_options, 'json');
END //

-- Options: delay (seconds) or delay_us, or due_us; clear_memo = 1; json as for complete, but of the memo.
-- A memo of NULL keeps the old one.
CREATE PROCEDURE fairturn_defer(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii, IN p_memo LONGBLOB,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  CALL fairturn_verb_('defer', p_queue, p_leases, p_memo, NULL, p_options,
    'delay,delay_us,due_us,clear_memo,json');
END //

-- Options: delay (seconds) or delay_us, by default the queue's back-off; reference.
CREATE PROCEDURE fairturn_fail(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii, IN p_error MEDIUMBLOB,
  IN p_details MEDIUMBLOB, IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  CALL fairturn_verb_('fail', p_queue, p_leases, p_error, p_details, p_options, 'delay,delay_us,reference');
END //

-- Options: reference.
CREATE PROCEDURE fairturn_kill(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii, IN p_error MEDIUMBLOB,
  IN p_details MEDIUMBLOB, IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  CALL fairturn_verb_('kill', p_queue, p_leases, p_error, p_details, p_options, 'reference');
END //

-- Options: lease (seconds) or lease_us, by default the message's, else the queue's; exact = 1: the lease
-- may end earlier than before. The second column is the latest of the new ends.
CREATE PROCEDURE fairturn_extend(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  CALL fairturn_verb_('extend', p_queue, p_leases, NULL, NULL, p_options, 'lease,lease_us,exact');
END //

CREATE PROCEDURE fairturn_release(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  CALL fairturn_verb_('release', p_queue, p_leases, NULL, NULL, p_options, '');
END //

-- Options: progress (0 to 1) or millionths. What is not given keeps its value, also a note of NULL.
CREATE PROCEDURE fairturn_progress(
  IN p_queue VARBINARY(1024), IN p_leases LONGTEXT CHARACTER SET ascii, IN p_note MEDIUMBLOB,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_progress INT DEFAULT COALESCE(JSON_VALUE(p_options, '$.millionths'),
    ROUND(JSON_VALUE(p_options, '$.progress') * 1000000));
  IF v_progress NOT BETWEEN 0 AND 1000000 THEN
    CALL fairturn_refuse_(45006, 'progress is a number from 0 to 1');
  END IF;
  CALL fairturn_verb_('progress', p_queue, p_leases, p_note, NULL, p_options, 'progress,millionths');
END //

DELIMITER ;
