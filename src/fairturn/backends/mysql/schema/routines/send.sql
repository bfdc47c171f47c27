-- Sending. A sender inserts and never locks a gate. Its open transaction therefore delays nobody but
-- another sender of the same key.

DELIMITER //

-- Send one message. There is no transaction control, no dynamic SQL and no result set in it: a trigger may
-- call it. Outcomes: s sent, d duplicate, r replaced, f refused, e conflict, m full. The steps:
--   1. the queue, its policy for this channel, the size of the body, the group
--   2. attempts, until nobody else changes the holder of the key meanwhile:
--      - a holder that is not dead: duplicate, conflict, refused (leased), or replaced
--      - else: is the channel full? take the key from a dead holder, make the group, insert, count
--   3. the group's member and mark, the event
CREATE PROCEDURE fairturn_put_(
  IN p_queue VARBINARY(1024), IN p_channel VARBINARY(1024), IN p_body LONGBLOB, IN p_json TINYINT,
  IN p_rank INT, IN p_due BIGINT, IN p_delay BIGINT, IN p_key VARBINARY(1024),
  IN p_conflict CHAR(1) CHARACTER SET ascii, IN p_version INT, IN p_type VARBINARY(1024),
  IN p_headers MEDIUMBLOB, IN p_lease BIGINT, IN p_max_attempts INT, IN p_expires BIGINT,
  IN p_max_wait BIGINT, IN p_group VARBINARY(1024), IN p_now BIGINT, OUT p_id BIGINT,
  OUT p_outcome CHAR(1) CHARACTER SET ascii
)
put: BEGIN
  DECLARE v_queue_id, v_lane, v_max_size, v_size INT DEFAULT NULL;
  DECLARE v_tries INT DEFAULT 0;
  DECLARE v_now, v_max_body, v_queue_expires, v_due, v_holder, v_created, v_group,
    v_old_group BIGINT DEFAULT NULL;
  DECLARE v_lock VARBINARY(32);
  DECLARE v_state, v_locked, v_new BINARY(1) DEFAULT NULL;
  DECLARE v_duplicate, v_events TINYINT DEFAULT 0;
  DECLARE v_started TINYINT DEFAULT 1;

  SELECT q.id, q.lane, q.max_body, q.expires_us, IF(p.queue_id IS NULL, q.max_size, p.max_size),
         q.events, COALESCE(p_now, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
    INTO v_queue_id, v_lane, v_max_body, v_queue_expires, v_max_size, v_events, v_now
    FROM fairturn_queue q
    LEFT JOIN fairturn_policy p ON p.queue_id = q.id AND p.channel = p_channel
   WHERE q.name = p_queue;
  IF v_queue_id IS NULL THEN CALL fairturn_refuse_(45002, CONVERT(p_queue USING utf8mb4)); END IF;
  IF LENGTH(p_body) > v_max_body THEN
    CALL fairturn_refuse_(45009, CONCAT(LENGTH(p_body), ' ', v_max_body));
  END IF;
  -- @stop send.start
  SET v_due = COALESCE(p_due, v_now + p_delay);
  IF p_group IS NOT NULL THEN
    -- The group's row is locked before any message. A group that does not exist is made later, when it is
    -- clear that the message is sent.
    CALL fairturn_join_(p_group, p_queue, 0, v_now, v_group, v_started);
  END IF;

  attempt: LOOP
    try: BEGIN
      SET v_holder = NULL, v_state = NULL, v_locked = NULL, v_duplicate = 0;
      IF p_key IS NOT NULL THEN
        SELECT id, state INTO v_holder, v_state
          FROM fairturn_message FORCE INDEX (`key`) WHERE key_lane = v_lane AND `key` = p_key;
        IF v_state <> 'x' THEN
          SET p_id = v_holder;
          IF p_conflict <> 'r' THEN
            SET p_outcome = IF(p_conflict = 'i', 'd', 'e');
            LEAVE put;
          END IF;
          -- @stop put.holder
          SELECT state, created_at, group_id INTO v_locked, v_created, v_old_group
            FROM fairturn_message WHERE id = v_holder AND lane = v_lane AND `key` = p_key
           FOR UPDATE;
          IF v_locked = 'l' THEN
            SET p_outcome = 'f';
            LEAVE put;
          ELSEIF v_locked IN ('h', 's', 'r', 'd') THEN
            IF p_group IS NOT NULL AND v_group IS NULL THEN
              CALL fairturn_join_(p_group, p_queue, 1, v_now, v_group, v_started);
            END IF;
            SET v_created = IF(v_locked = 'd', v_now, v_created),
                v_due = LEAST(v_due, COALESCE(v_created + p_max_wait, v_due)),
                v_new = IF(NOT v_started, 'h', IF(v_due <= v_now, 'r', 's'));
            UPDATE fairturn_message
               SET channel = p_channel, body = p_body, json = p_json, headers = p_headers,
                   version = p_version, type = p_type, `rank` = p_rank, due_at = v_due,
                   created_at = v_created, state = v_new, wake_at = IF(v_new = 's', v_due, 0),
                   group_id = v_group, progress = NULL, note = NULL, lease_us = p_lease,
                   max_attempts = p_max_attempts,
                   expires_at = v_now + COALESCE(p_expires, v_queue_expires),
                   attempts = 0, memo = NULL, error = NULL, result = NULL, recovered = 0, begun = 0,
                   first_at = 0
             WHERE id = v_holder;
            SET p_outcome = 'r';
            IF v_old_group IS NOT NULL AND v_locked <> 'd' AND NOT v_old_group <=> v_group THEN
              INSERT INTO fairturn_group_mark (group_id) VALUES (v_old_group);
              DELETE FROM fairturn_member WHERE group_id = v_old_group AND message_id = v_holder;
            END IF;
            LEAVE attempt;
          END IF;
          LEAVE try; -- the holder was deleted or died between the two reads
        END IF;
      END IF;
      IF v_max_size IS NOT NULL AND v_tries = 0 THEN
        SELECT COUNT(*) INTO v_size FROM (
          SELECT 1 FROM fairturn_message FORCE INDEX (channel)
           WHERE lane = v_lane AND channel = p_channel AND state IN ('h', 'l', 'r', 's')
           LIMIT v_max_size) held;
        IF v_size >= v_max_size THEN
          SET p_id = v_max_size, p_outcome = 'm';
          LEAVE put;
        END IF;
      END IF;
      IF v_state = 'x' THEN
        UPDATE fairturn_message SET `key` = NULL
         WHERE id = v_holder AND state = 'x' AND `key` = p_key;
      END IF;
      IF p_group IS NOT NULL AND v_group IS NULL THEN
        CALL fairturn_join_(p_group, p_queue, 1, v_now, v_group, v_started);
      END IF;
      SET v_due = LEAST(v_due, COALESCE(v_now + p_max_wait, v_due)),
          v_new = IF(NOT v_started, 'h', IF(v_due <= v_now, 'r', 's'));
      -- @stop put.insert
      BEGIN
        -- Another send of this key may have been first: then its message is looked at.
        DECLARE CONTINUE HANDLER FOR 1062 SET v_duplicate = 1;
        INSERT INTO fairturn_message (lane, state, version, channel, `rank`, due_at, wake_at, json,
            created_at, expires_at, lease_us, max_attempts, group_id, `key`, type, headers, body)
          VALUES (v_lane, v_new, p_version, p_channel, p_rank, v_due,
            IF(v_new = 's', v_due, 0), p_json, v_now,
            v_now + COALESCE(p_expires, v_queue_expires),
            p_lease, p_max_attempts, v_group, p_key, p_type, p_headers, p_body);
      END;
      IF NOT v_duplicate THEN
        SET p_id = LAST_INSERT_ID(), p_outcome = 's';
        INSERT INTO fairturn_tally (queue_id, minute, sent)
          VALUES (v_queue_id, v_now - v_now MOD 60000000, 1);
        LEAVE attempt;
      END IF;
    END;
    -- Another session has changed the holder of the key meanwhile.
    SET v_tries = v_tries + 1;
    IF v_tries > 50 THEN
      SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'the key changes hands';
    END IF;
  END LOOP;
  IF v_group IS NOT NULL THEN
    INSERT IGNORE INTO fairturn_member (group_id, message_id) VALUES (v_group, p_id);
    INSERT INTO fairturn_group_mark (group_id, sent) VALUES (v_group, 1);
  END IF;
  IF v_events AND @fairturn_cluster IS NULL THEN CALL fairturn_cluster_(); END IF;
  IF v_events AND @fairturn_cluster THEN
    INSERT INTO fairturn_event_new (at, written, kind, queue, message_id, `key`, channel, delay_us)
      VALUES (v_now, SYSDATE(6), 'created', p_queue, p_id, p_key, p_channel,
        GREATEST(v_due - v_now, 0));
  ELSEIF v_events THEN
    SELECT name INTO v_lock FROM fairturn_lock WHERE name = 'event' LOCK IN SHARE MODE; -- see events.sql
    -- SYSDATE, not NOW: in a trigger the statement may have begun long ago.
    INSERT INTO fairturn_event (at, written, kind, queue, message_id, `key`, channel, delay_us)
      VALUES (v_now, SYSDATE(6), 'created', p_queue, p_id, p_key, p_channel,
        GREATEST(v_due - v_now, 0));
  END IF;
END //

-- The library's send of one message: (id, outcome).
CREATE PROCEDURE fairturn_send_one(
  IN p_queue VARBINARY(1024), IN p_channel VARBINARY(1024), IN p_body LONGBLOB, IN p_json TINYINT,
  IN p_rank INT, IN p_due BIGINT, IN p_delay BIGINT, IN p_key VARBINARY(1024),
  IN p_conflict CHAR(1) CHARACTER SET ascii, IN p_version INT, IN p_type VARBINARY(1024),
  IN p_headers MEDIUMBLOB, IN p_lease BIGINT, IN p_max_attempts INT, IN p_expires BIGINT,
  IN p_max_wait BIGINT, IN p_group VARBINARY(1024), IN p_now BIGINT
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_id BIGINT;
  DECLARE v_outcome CHAR(1) CHARACTER SET ascii;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_open_(v_own);
  CALL fairturn_put_(p_queue, p_channel, p_body, p_json, p_rank, p_due, p_delay, p_key, p_conflict,
    p_version, p_type, p_headers, p_lease, p_max_attempts, p_expires, p_max_wait, p_group, p_now,
    v_id, v_outcome);
  IF v_own THEN COMMIT; END IF;
  SELECT v_id AS id, v_outcome AS outcome;
END //

-- The public options of a message, as JSON:
--   channel priority delay at key on_conflict version type headers lease max_attempts expires json
--   group max_wait once once_for
-- Durations are seconds, `at` is seconds since the epoch. A trigger may call it. p_id: the message's id.
CREATE PROCEDURE fairturn_put(
  IN p_queue VARCHAR(255) CHARACTER SET utf8mb4, IN p_body LONGBLOB,
  IN p_options LONGTEXT CHARACTER SET utf8mb4, OUT p_id BIGINT
)
put: BEGIN
  DECLARE v_outcome CHAR(1) CHARACTER SET ascii;
  DECLARE v_options LONGTEXT CHARACTER SET utf8mb4 DEFAULT COALESCE(p_options, '{}');
  DECLARE v_channel, v_key, v_type, v_group, v_once LONGTEXT CHARACTER SET utf8mb4;
  DECLARE v_once_us, v_now BIGINT DEFAULT NULL;
  DECLARE v_lane INT DEFAULT NULL;
  DECLARE v_conflict VARCHAR(10) CHARACTER SET utf8mb4;
  IF v_options <> '{}' THEN
    CALL fairturn_known_(v_options, 'channel,priority,delay,at,key,on_conflict,version,type,headers,lease,max_attempts,expires,json,group,max_wait,once,once_for,now');
  END IF;
  SET v_channel = COALESCE(JSON_VALUE(v_options, '$.channel'), ''),
      v_group = JSON_VALUE(v_options, '$.group'), v_once = JSON_VALUE(v_options, '$.once'),
      v_once_us = ROUND(COALESCE(JSON_VALUE(v_options, '$.once_for'), 300) * 1000000),
      v_key = JSON_VALUE(v_options, '$.key'), v_type = JSON_VALUE(v_options, '$.type'),
      v_conflict = COALESCE(JSON_VALUE(v_options, '$.on_conflict'), 'error');
  IF v_conflict NOT IN ('error', 'ignore', 'replace') THEN
    CALL fairturn_refuse_(45006, 'on_conflict is "error", "ignore" or "replace"');
  END IF;
  CALL fairturn_named_(v_channel, v_key, v_type, v_group,
    LEAST(COALESCE(JSON_VALUE(v_options, '$.delay'), 0), COALESCE(JSON_VALUE(v_options, '$.max_wait'), 0)));
  IF v_once IS NOT NULL THEN
    IF v_key IS NOT NULL OR v_once_us <= 0 THEN
      CALL fairturn_refuse_(45006, 'once goes without a key, and once_for is above 0');
    END IF;
    CALL fairturn_named_('', v_once, NULL, NULL, 0);
    CALL fairturn_take_one_(v_once, v_once_us, p_queue, LENGTH(p_body), JSON_VALUE(v_options, '$.now'),
      v_lane, v_now, p_id);
    IF p_id IS NOT NULL THEN LEAVE put; END IF;
  END IF;
  CALL fairturn_put_(p_queue, v_channel, p_body,
    COALESCE(JSON_VALUE(v_options, '$.json') IN ('1', 'true'), JSON_VALID(CONVERT(p_body USING utf8mb4)), 0),
    -COALESCE(JSON_VALUE(v_options, '$.priority'), 0),
    ROUND(JSON_VALUE(v_options, '$.at') * 1000000),
    ROUND(COALESCE(JSON_VALUE(v_options, '$.delay'), 0) * 1000000),
    v_key, LEFT(v_conflict, 1), COALESCE(JSON_VALUE(v_options, '$.version'), 0), v_type,
    JSON_EXTRACT(v_options, '$.headers'), ROUND(JSON_VALUE(v_options, '$.lease') * 1000000),
    JSON_VALUE(v_options, '$.max_attempts'), ROUND(JSON_VALUE(v_options, '$.expires') * 1000000),
    ROUND(JSON_VALUE(v_options, '$.max_wait') * 1000000), v_group,
    COALESCE(v_now, JSON_VALUE(v_options, '$.now')), p_id, v_outcome);
  IF v_lane IS NOT NULL THEN
    CALL fairturn_give_one_(v_once, v_lane, p_id, v_outcome);
  END IF;
  IF v_outcome = 'e' THEN
    CALL fairturn_refuse_(45003, v_key);
  ELSEIF v_outcome = 'm' THEN
    CALL fairturn_refuse_(45004, v_channel);
  ELSEIF v_outcome = 'f' THEN
    CALL fairturn_refuse_(45006,
      'the key belongs to a leased message, which cannot be replaced; nothing was sent');
  END IF;
END //

-- CALL fairturn_send('emails', '{"to": "ann"}', '{"channel": "t7", "delay": 60}')
CREATE PROCEDURE fairturn_send(
  IN p_queue VARCHAR(255) CHARACTER SET utf8mb4, IN p_body LONGBLOB,
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own TINYINT DEFAULT 0;
  DECLARE v_id BIGINT;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_open_(v_own);
  CALL fairturn_put(p_queue, p_body, p_options, v_id);
  IF v_own THEN COMMIT; END IF;
  SELECT v_id AS id;
END //

-- CALL fairturn_send_many('emails', '[{"body": {"to": "ann"}, "channel": "t7"}, …]'): the ids in order.
-- All messages are sent or none. A body that is a JSON string is sent as JSON, too.
CREATE PROCEDURE fairturn_send_many(
  IN p_queue VARCHAR(255) CHARACTER SET utf8mb4, IN p_items LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_own, v_done TINYINT DEFAULT 0;
  DECLARE v_id BIGINT;
  DECLARE v_body, v_options LONGTEXT CHARACTER SET utf8mb4;
  DECLARE v_ids LONGTEXT CHARACTER SET ascii DEFAULT '';
  DECLARE v_items CURSOR FOR
    SELECT body, options FROM JSON_TABLE(p_items, '$[*]'
      COLUMNS (body JSON PATH '$.body', options JSON PATH '$')) item;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = 1;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    CALL fairturn_undo_(v_own);
    RESIGNAL;
  END;
  CALL fairturn_open_(v_own);
  OPEN v_items;
  item: LOOP
    FETCH v_items INTO v_body, v_options;
    IF v_done THEN LEAVE item; END IF;
    CALL fairturn_put(p_queue, v_body, JSON_SET(JSON_REMOVE(v_options, '$.body'), '$.json', 1), v_id);
    -- A SELECT INTO without a row inside the call also raises NOT FOUND here.
    SET v_done = 0, v_ids = CONCAT(v_ids, IF(v_ids = '', '', ','), v_id);
  END LOOP;
  CLOSE v_items;
  IF v_own THEN COMMIT; END IF;
  SELECT id FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]'
    COLUMNS (n FOR ORDINALITY, id BIGINT PATH '$')) sent ORDER BY n;
END //

DELIMITER ;
