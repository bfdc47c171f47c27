-- The round over the channels (docs/semantics.md, 4.8).
--
-- To take messages in turns is the same as to sort them. Message j of a channel with weight w belongs to turn
-- ceil((j - pre) / w) of that channel, where `pre` is the credit that is left of an earlier turn (turn 0). The
-- order is (turn, place of the channel in the round, j). So the walk takes one turn of each channel until it
-- has n messages. If one round gives fewer, it takes as many turns as are still needed of the channels that
-- may have more, and sorts all messages at the end.
--
-- Lists are JSON text. A row is [place, weight, pre, id], a channel is
-- [place, name in hex, weight, pre, room, ordered, got, may have more].

DELIMITER //

-- Choose and lock up to p_n messages of a queue. p_plain: no channel has a policy, and no credit is left.
-- p_channel, p_credit: the position in the round. p_ordered, p_rates: the channels that are ordered or have a
-- rate (fairturn_note_). p_wait: when a rate opens a channel. p_budget: the walk ended after 256 closed
-- channels. p_seen: whether there is a message that only waits for a rate or a limit. With p_n = 0 the
-- queue's limit is reached, and only p_wait and p_seen are wanted. The steps:
--   1. the rest of a turn that an earlier call began
--   2. the walk: one turn of each channel, from the last one served. Without policies and for more than 3
--      messages fairturn_walk_ does it; else here, channel by channel: find the next one, judge it, take
--   3. one round has not given enough: more turns (fairturn_more_)
--   4. sort, if there was more than one turn; the new position in the round
CREATE PROCEDURE fairturn_choose_(
  IN p_queue_id INT, IN p_lane INT, IN p_plain TINYINT, IN p_versions LONGTEXT CHARACTER SET ascii,
  IN p_version INT, IN p_n INT, IN p_max_rank INT, IN p_types LONGTEXT CHARACTER SET ascii,
  IN p_max_bytes BIGINT, IN p_now BIGINT, INOUT p_channel VARBINARY(255), INOUT p_credit INT,
  OUT p_ids LONGTEXT CHARACTER SET ascii, OUT p_total INT,
  OUT p_ordered LONGTEXT CHARACTER SET ascii, OUT p_rates LONGTEXT CHARACTER SET ascii,
  OUT p_wait BIGINT, OUT p_budget TINYINT, OUT p_seen TINYINT
)
choose: BEGIN
  DECLARE v_from VARBINARY(256) DEFAULT IF(p_channel IS NULL, '', CONCAT(p_channel, 0x00));
  DECLARE v_to VARBINARY(256) DEFAULT 0xFF; -- after every name in UTF-8
  DECLARE v_wrapped TINYINT DEFAULT p_channel IS NULL;
  DECLARE v_single TINYINT
    DEFAULT p_plain AND LOCATE(',', p_versions) = 0 AND p_max_rank = 2147483647;
  DECLARE v_version INT DEFAULT SUBSTRING_INDEX(p_versions, ',', 1);
  DECLARE v_round, v_passes, v_ordered, v_busy, v_rest, v_rest_ordered TINYINT DEFAULT 0;
  DECLARE v_found, v_last VARBINARY(255) DEFAULT NULL;
  DECLARE v_weight, v_want, v_last_weight, v_rest_weight, v_turns INT DEFAULT 1;
  DECLARE v_got, v_pre, v_closed, v_place, v_open, v_channels, v_count, v_room, v_last_got,
    v_last_pre, v_rest_got, v_rest_room INT DEFAULT 0;
  DECLARE v_head, v_interval, v_wait BIGINT DEFAULT NULL;
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_rows, v_list LONGTEXT CHARACTER SET ascii DEFAULT '';

  SET p_ids = NULL, p_total = 0, p_ordered = '', p_rates = '', p_wait = NULL, p_budget = 0, p_seen = 0;

  -- The rest of a turn that an earlier call began.
  IF p_credit > 0 AND p_channel IS NOT NULL AND p_n > 0 THEN
    CALL fairturn_next_(p_lane, p_versions, p_channel, p_channel, p_max_rank, p_types, p_now, v_found);
    IF v_found IS NOT NULL THEN
      CALL fairturn_judge_(p_queue_id, p_lane, p_channel, p_n, p_now, v_weight, v_room, v_ordered,
        v_interval, v_wait, v_busy);
      SET v_count = 0;
      IF v_room > 0 THEN
        CALL fairturn_take_(p_lane, p_versions, p_version, p_channel, v_ordered, 0,
          LEAST(p_credit, v_room, p_n), p_max_rank, p_types, p_now, v_ids, v_count);
      END IF;
      IF v_count > 0 THEN
        SET v_rest = 1, v_rest_got = v_count, v_rest_room = v_room, v_rest_weight = v_weight,
            v_rest_ordered = v_ordered, p_total = v_count, p_ids = v_ids, v_last = p_channel,
            v_last_got = v_count, v_last_weight = v_weight, v_last_pre = p_credit;
        CALL fairturn_row_(1000000, v_weight, p_credit, v_ids, v_rows);
        CALL fairturn_note_(p_channel, v_ordered, v_interval, p_ordered, p_rates);
      END IF;
    END IF;
  END IF;

  IF v_single AND p_n > 3 THEN
    CALL fairturn_walk_(p_lane, v_version, p_n, p_types, p_now, p_channel, v_from, v_ids, p_total,
      v_list, v_rows, v_channels, v_turns, v_round, p_budget, v_last);
    SET p_ids = v_ids, v_open = v_channels, p_seen = v_last IS NOT NULL, v_last_got = 1,
        v_found = v_last;
  END IF;
  walk: WHILE (p_total < p_n OR p_n = 0) AND NOT (v_single AND p_n > 3) DO
    SET v_found = NULL, v_head = NULL;
    IF v_single AND p_n > 0 THEN
      -- There are no policies: the next channel, and its first message.
      SELECT channel INTO v_found FROM fairturn_message FORCE INDEX (ready)
       WHERE lane = p_lane AND state = 'r' AND version = v_version
         AND channel >= v_from AND channel <= v_to
         AND (expires_at IS NULL OR expires_at > p_now)
         AND (p_types IS NULL OR LOCATE(CONCAT('"', HEX(type), '"'), p_types) > 0)
       ORDER BY channel LIMIT 1;
      IF v_found IS NOT NULL THEN
        SELECT id INTO v_head FROM fairturn_message FORCE INDEX (ready)
         WHERE lane = p_lane AND state = 'r' AND version = v_version AND channel = v_found
           AND (expires_at IS NULL OR expires_at > p_now)
           AND (p_types IS NULL OR LOCATE(CONCAT('"', HEX(type), '"'), p_types) > 0)
         ORDER BY `rank`, due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED;
      END IF;
    ELSE
      CALL fairturn_next_(p_lane, p_versions, v_from, v_to, p_max_rank, p_types, p_now, v_found);
    END IF;
    IF v_found IS NULL THEN
      IF v_wrapped THEN
        SET v_round = 1;
        LEAVE walk;
      END IF;
      SET v_wrapped = 1, v_from = '', v_to = p_channel;
      ITERATE walk;
    END IF;
    IF p_plain THEN
      SET p_seen = 1;
      IF p_n = 0 THEN LEAVE walk; END IF;
    END IF;

    SET v_place = v_place + 1, v_from = CONCAT(v_found, 0x00), v_got = 0, v_pre = 0, v_room = p_n;
    IF v_rest AND v_found = p_channel THEN
      -- Step 1 has judged this channel and taken its first messages.
      SET v_place = 1000000, v_got = v_rest_got, v_room = v_rest_room, v_weight = v_rest_weight,
          v_ordered = v_rest_ordered, v_pre = p_credit, v_interval = NULL;
    ELSEIF NOT p_plain THEN
      CALL fairturn_judge_(p_queue_id, p_lane, v_found, p_n, p_now, v_weight, v_room, v_ordered,
        v_interval, v_wait, v_busy);
      IF v_ordered AND (v_wait IS NOT NULL OR p_n = 0) THEN
        -- An ordered channel only waits for a rate if its head could be delivered without it.
        CALL fairturn_headed_(p_lane, v_found, p_version, p_max_rank, p_types, p_now, v_count);
        SET p_seen = p_seen OR v_count > 0, v_wait = IF(v_count > 0, v_wait, NULL);
      ELSE
        SET p_seen = 1;
      END IF;
      IF v_wait IS NOT NULL THEN
        SET p_wait = LEAST(COALESCE(p_wait, v_wait), v_wait);
      ELSEIF v_busy THEN
        SET p_wait = LEAST(COALESCE(p_wait, 5000), 5000); -- a gate is not locked for long
      END IF;
    END IF;
    SET v_want = LEAST(v_weight, v_room - v_got, p_n - p_total), v_count = 0;
    IF v_head IS NOT NULL THEN
      SET v_ids = v_head, v_count = 1;
    ELSEIF v_want > 0 AND NOT v_single THEN
      CALL fairturn_take_(p_lane, p_versions, p_version, v_found, v_ordered, v_got, v_want,
        p_max_rank, p_types, p_now, v_ids, v_count);
    END IF;

    IF v_count > 0 THEN
      SET p_ids = CONCAT_WS(',', p_ids, v_ids), p_total = p_total + v_count, v_got = v_got + v_count,
          v_last = v_found, v_last_got = v_got, v_last_weight = v_weight, v_last_pre = v_pre;
      CALL fairturn_row_(v_place, v_weight, v_pre, v_ids, v_rows);
      IF v_place < 1000000 AND NOT p_plain THEN
        CALL fairturn_note_(v_found, v_ordered, v_interval, p_ordered, p_rates);
      END IF;
    END IF;
    IF v_got > 0 THEN
      SET v_channels = v_channels + 1,
          v_list = CONCAT(v_list, IF(v_list = '', '', ','), '[', v_place, ',"', HEX(v_found), '",',
            v_weight, ',', v_pre, ',', v_room, ',', v_ordered, ',', v_got, ',',
            v_count = v_want AND v_got < v_room, ']');
      IF v_count = v_want AND v_got < v_room THEN SET v_open = v_open + v_weight; END IF;
    ELSE
      SET v_closed = v_closed + 1;
      IF v_closed >= 256 THEN
        SET p_budget = p_n > 0;
        LEAVE walk;
      END IF;
    END IF;
    IF v_wrapped AND v_found = p_channel THEN
      SET v_round = 1;
      LEAVE walk;
    END IF;
  END WHILE;

  IF p_total < p_n AND v_round AND v_open > 0 THEN
    -- @stop choose.more
    SET v_passes = 1;
    CALL fairturn_more_(p_lane, p_versions, p_version, p_n, p_max_rank, p_types, p_now, v_channels,
      v_open, v_turns, v_list, v_rows, p_ids, p_total);
    SET v_last_got = p_total;
  END IF;
  IF p_total = 0 THEN
    -- Only closed channels: the next call goes on after them.
    IF p_budget THEN SET p_channel = v_found, p_credit = 0; END IF;
    LEAVE choose;
  END IF;
  IF v_passes AND v_channels > 1 OR p_max_bytes IS NOT NULL THEN
    CALL fairturn_arrange_(v_rows, p_n, p_max_bytes, p_ids, p_total, p_channel, p_credit);
  ELSE
    -- The rows are in order already, and the turn of the last one is known.
    SET p_channel = v_last, p_credit = IF(v_last_got <= v_last_pre, v_last_pre - v_last_got,
      v_last_weight - 1 - (v_last_got - v_last_pre - 1) MOD v_last_weight);
  END IF;
END //

-- The walk if there are no policies. First the names of the next channels, each with one read of the index:
-- MIN() with constants, which only a prepared statement has. Then the first messages of these channels in one
-- statement. A channel whose messages are all locked counts as closed. If there are fewer than n channels,
-- nothing is taken (p_turns is 0): fairturn_more_ then takes several messages of each.
CREATE PROCEDURE fairturn_walk_(
  IN p_lane INT, IN p_version INT, IN p_n INT, IN p_types LONGTEXT CHARACTER SET ascii,
  IN p_now BIGINT, IN p_channel VARBINARY(255), IN p_from VARBINARY(256),
  OUT p_ids LONGTEXT CHARACTER SET ascii, OUT p_total INT, OUT p_list LONGTEXT CHARACTER SET ascii,
  OUT p_rows LONGTEXT CHARACTER SET ascii, OUT p_channels INT, OUT p_turns INT, OUT p_round TINYINT,
  OUT p_budget TINYINT, OUT p_last VARBINARY(255)
)
BEGIN
  DECLARE v_wrapped TINYINT DEFAULT p_channel IS NULL;
  DECLARE v_before VARBINARY(255) DEFAULT NULL;
  DECLARE v_names, v_ids, v_list, v_rows LONGTEXT CHARACTER SET ascii;
  DECLARE v_count, v_got, v_closed INT DEFAULT 0;
  SET p_ids = NULL, p_total = 0, p_list = '', p_rows = '', p_channels = 0, p_turns = 1, p_round = 0,
      p_budget = 0, p_last = NULL, @fairturn_lane = p_lane, @fairturn_version = p_version,
      @fairturn_from = p_from, @fairturn_to = 0xFF;
  PREPARE fairturn_walk FROM 'SELECT MIN(channel) INTO @fairturn_channel FROM fairturn_message
    FORCE INDEX (ready) WHERE lane = ? AND state = ''r'' AND version = ? AND channel >= ?
    AND channel <= ?';
  walk: REPEAT
    SET v_names = '', v_count = 0;
    name: WHILE v_count < p_n - p_total AND NOT p_round DO
      EXECUTE fairturn_walk USING @fairturn_lane, @fairturn_version, @fairturn_from, @fairturn_to;
      IF @fairturn_channel IS NULL THEN
        IF v_wrapped THEN
          SET p_round = 1;
          LEAVE name;
        END IF;
        SET v_wrapped = 1, @fairturn_from = '', @fairturn_to = p_channel;
        -- Usually there is no channel before the last one served, and the walk ends here. This is read
        -- backwards: at the front of the index are deleted entries that the server has not removed yet.
        SELECT channel INTO v_before FROM fairturn_message FORCE INDEX (ready)
         WHERE lane = p_lane AND state = 'r' AND version = p_version AND channel < p_channel
         ORDER BY channel DESC LIMIT 1;
        IF v_before IS NOT NULL THEN ITERATE name; END IF;
        SET @fairturn_channel = p_channel;
      END IF;
      SET v_names = CONCAT(v_names, IF(v_count = 0, '"', ',"'), HEX(@fairturn_channel), '"'),
          v_count = v_count + 1, @fairturn_from = CONCAT(@fairturn_channel, 0x00),
          p_round = v_wrapped AND @fairturn_channel <=> p_channel, p_last = @fairturn_channel;
    END WHILE;
    IF p_round AND p_total = 0 AND v_closed = 0 AND v_count < p_n THEN
      SET p_turns = 0, p_channels = v_count;
      SELECT COALESCE(GROUP_CONCAT('[', n, ',"', name, '",1,0,', p_n, ',0,0,1]' ORDER BY n), '')
        INTO p_list FROM JSON_TABLE(CONCAT('[', v_names, ']'), '$[*]'
          COLUMNS (n FOR ORDINALITY, name VARCHAR(510) PATH '$')) names;
    ELSEIF v_count > 0 THEN
      SELECT GROUP_CONCAT(id ORDER BY n), COUNT(id),
             GROUP_CONCAT(IF(id IS NULL, NULL, CONCAT('[', n, ',"', name, '",1,0,', p_n, ',0,1,1]'))
               ORDER BY n),
             GROUP_CONCAT(IF(id IS NULL, NULL, CONCAT('[', n, ',1,0,', id, ']')) ORDER BY n)
        INTO v_ids, v_got, v_list, v_rows
        FROM (
          SELECT p_channels + v_closed + n AS n, name, (
                   SELECT id FROM fairturn_message FORCE INDEX (ready)
                    WHERE lane = p_lane AND state = 'r' AND version = p_version
                      AND channel = UNHEX(names.name)
                      AND (expires_at IS NULL OR expires_at > p_now)
                      AND (p_types IS NULL OR LOCATE(CONCAT('"', HEX(type), '"'), p_types) > 0)
                    ORDER BY `rank`, due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED) AS id
            FROM JSON_TABLE(CONCAT('[', v_names, ']'), '$[*]'
                   COLUMNS (n FOR ORDINALITY, name VARCHAR(510) PATH '$')) names) heads;
      IF v_got > 0 THEN
        SET p_ids = CONCAT_WS(',', p_ids, v_ids), p_total = p_total + v_got,
            p_list = CONCAT(p_list, IF(p_list = '', '', ','), v_list),
            p_rows = CONCAT(p_rows, IF(p_rows = '', '', ','), v_rows),
            p_channels = p_channels + v_got;
      END IF;
      SET v_closed = v_closed + v_count - v_got, p_budget = v_closed >= 256;
    END IF;
  UNTIL p_total >= p_n OR p_round OR p_budget END REPEAT;
  DEALLOCATE PREPARE fairturn_walk;
  IF p_total > 0 THEN
    SET p_last = UNHEX(SUBSTRING_INDEX(SUBSTRING_INDEX(p_list, '"', -2), '"', 1));
  END IF;
END //

-- Whether an ordered channel is not blocked and its head fits (p_count: 1 or 0). The head is locked.
CREATE PROCEDURE fairturn_headed_(
  IN p_lane INT, IN p_channel VARBINARY(255), IN p_version INT, IN p_max_rank INT,
  IN p_types LONGTEXT CHARACTER SET ascii, IN p_now BIGINT, OUT p_count INT
)
BEGIN
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  DECLARE v_blocking INT;
  SELECT COUNT(*) INTO v_blocking FROM fairturn_message FORCE INDEX (channel)
   WHERE lane = p_lane AND channel = p_channel AND (state = 'l' OR state = 's' AND begun = 1);
  SET p_count = 0;
  IF v_blocking = 0 THEN
    CALL fairturn_take_ordered_(p_lane, p_channel, 0, 1, p_version, p_max_rank, p_types, p_now,
      v_ids, p_count);
  END IF;
END //

-- Take more turns of the channels that may have more, until there are n messages or no channel has more.
CREATE PROCEDURE fairturn_more_(
  IN p_lane INT, IN p_versions LONGTEXT CHARACTER SET ascii, IN p_version INT, IN p_n INT,
  IN p_max_rank INT, IN p_types LONGTEXT CHARACTER SET ascii, IN p_now BIGINT, IN p_channels INT,
  IN p_open INT, IN p_turns INT, IN p_list LONGTEXT CHARACTER SET ascii,
  INOUT p_rows LONGTEXT CHARACTER SET ascii, INOUT p_ids LONGTEXT CHARACTER SET ascii,
  INOUT p_total INT
)
BEGIN
  DECLARE v_turns INT DEFAULT p_turns;
  DECLARE v_place, v_weight, v_pre, v_room, v_ordered, v_got, v_more, v_want, v_count INT;
  DECLARE v_name VARCHAR(510) CHARACTER SET ascii;
  DECLARE v_list, v_ids LONGTEXT CHARACTER SET ascii;
  WHILE p_total < p_n AND p_open > 0 DO
    SET v_turns = v_turns + CEIL((p_n - p_total) / p_open), v_list = p_list, p_list = '', p_open = 0;
    BEGIN
      DECLARE v_done TINYINT DEFAULT 0;
      DECLARE v_channels CURSOR FOR SELECT * FROM JSON_TABLE(CONCAT('[', v_list, ']'), '$[*]' COLUMNS (
        place INT PATH '$[0]', name VARCHAR(510) PATH '$[1]', weight INT PATH '$[2]',
        pre INT PATH '$[3]', room INT PATH '$[4]', ordered INT PATH '$[5]', got INT PATH '$[6]',
        more INT PATH '$[7]')) channels;
      DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = 1;
      OPEN v_channels;
      channel: LOOP
        FETCH v_channels INTO v_place, v_name, v_weight, v_pre, v_room, v_ordered, v_got, v_more;
        IF v_done THEN LEAVE channel; END IF;
        IF NOT v_more THEN ITERATE channel; END IF;
        SET v_want = LEAST(p_n, v_room, v_pre + v_weight * v_turns) - v_got;
        IF p_channels = 1 THEN
          -- The only channel: all its messages are taken again in one step, and so in order.
          SET v_want = v_want + v_got, v_got = 0, p_total = 0, p_rows = '', p_ids = NULL;
        END IF;
        CALL fairturn_take_(p_lane, p_versions, p_version, UNHEX(v_name), v_ordered, v_got, v_want,
          p_max_rank, p_types, p_now, v_ids, v_count);
        SET v_done = 0; -- a SELECT INTO without a row inside the call also raises NOT FOUND here
        IF v_count > 0 THEN
          SET p_total = p_total + v_count, p_ids = CONCAT_WS(',', p_ids, v_ids), v_got = v_got + v_count;
          CALL fairturn_row_(v_place, v_weight, v_pre, v_ids, p_rows);
        END IF;
        IF v_count = v_want AND v_got < LEAST(v_room, p_n) THEN
          SET p_open = p_open + v_weight, p_list = CONCAT(p_list, IF(p_list = '', '', ','), '[',
            v_place, ',"', v_name, '",', v_weight, ',', v_pre, ',', v_room, ',', v_ordered, ',',
            v_got, ',1]');
        END IF;
      END LOOP;
      CLOSE v_channels;
    END;
  END WHILE;
END //

-- Sort the rows, keep the first n within max_bytes, and set the new position in the round.
CREATE PROCEDURE fairturn_arrange_(
  IN p_rows LONGTEXT CHARACTER SET ascii, IN p_n INT, IN p_max_bytes BIGINT,
  OUT p_ids LONGTEXT CHARACTER SET ascii, OUT p_total INT, OUT p_channel VARBINARY(255),
  OUT p_credit INT
)
BEGIN
  DECLARE v_credits LONGTEXT CHARACTER SET ascii;
  DECLARE v_keep INT;
  DECLARE v_last BIGINT;
  -- GROUP BY id: if a message was sent meanwhile, the same row may have been taken twice.
  SELECT GROUP_CONCAT(id ORDER BY turn, place, j), COUNT(*),
         GROUP_CONCAT(IF(j <= pre, pre - j, weight - 1 - (j - pre - 1) MOD weight)
                      ORDER BY turn, place, j)
    INTO p_ids, p_total, v_credits
    FROM (
      SELECT id, place, weight, pre, j, IF(j <= pre, 0, CEIL((j - pre) / weight)) AS turn
        FROM (
          SELECT id, place, weight, pre, ROW_NUMBER() OVER (PARTITION BY place ORDER BY n) AS j
            FROM (
              SELECT id, MIN(n) AS n, MIN(place) AS place, MIN(weight) AS weight, MIN(pre) AS pre
                FROM JSON_TABLE(CONCAT('[', p_rows, ']'), '$[*]' COLUMNS (n FOR ORDINALITY,
                       place INT PATH '$[0]', weight INT PATH '$[1]', pre INT PATH '$[2]',
                       id BIGINT PATH '$[3]')) taken
               GROUP BY id) once) numbered
       ORDER BY turn, place, j LIMIT p_n) chosen;
  IF p_max_bytes IS NOT NULL THEN
    SELECT COUNT(*) INTO v_keep FROM (
      SELECT SUM(LENGTH(m.body)) OVER (ORDER BY j.n ROWS UNBOUNDED PRECEDING) AS bytes
        FROM JSON_TABLE(CONCAT('[', p_ids, ']'), '$[*]'
               COLUMNS (n FOR ORDINALITY, id BIGINT PATH '$')) j
        STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id) given
     WHERE bytes <= p_max_bytes;
    SET p_total = GREATEST(v_keep, 1), p_ids = SUBSTRING_INDEX(p_ids, ',', p_total);
  END IF;
  SET v_last = SUBSTRING_INDEX(p_ids, ',', -1),
      p_credit = SUBSTRING_INDEX(SUBSTRING_INDEX(v_credits, ',', p_total), ',', -1);
  SELECT channel INTO p_channel FROM fairturn_message WHERE id = v_last;
END //

-- Add a channel's ids ("1,2") to the rows.
CREATE PROCEDURE fairturn_row_(
  IN p_place INT, IN p_weight INT, IN p_pre INT, IN p_ids LONGTEXT CHARACTER SET ascii,
  INOUT p_rows LONGTEXT CHARACTER SET ascii
)
BEGIN
  SET p_rows = CONCAT(p_rows, IF(p_rows = '', '', ','), '[', p_place, ',', p_weight, ',', p_pre, ',',
    REPLACE(p_ids, ',', CONCAT('],[', p_place, ',', p_weight, ',', p_pre, ',')), ']');
END //

-- Note that a channel is ordered (its messages become begun) or has a rate (which will be charged).
CREATE PROCEDURE fairturn_note_(
  IN p_channel VARBINARY(255), IN p_is_ordered TINYINT, IN p_interval BIGINT,
  INOUT p_ordered LONGTEXT CHARACTER SET ascii, INOUT p_rates LONGTEXT CHARACTER SET ascii
)
BEGIN
  IF p_is_ordered THEN
    SET p_ordered = CONCAT(p_ordered, IF(p_ordered = '', '', ','), 'X''', HEX(p_channel), '''');
  END IF;
  IF p_interval IS NOT NULL THEN
    SET p_rates = CONCAT(p_rates, IF(p_rates = '', '', ','), '["', HEX(p_channel), '",', p_interval, ']');
  END IF;
END //

DELIMITER ;
