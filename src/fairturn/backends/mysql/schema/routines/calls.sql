-- What every call needs: its transaction, errors, checks of its arguments, its queue.
--
-- A procedure that a client calls works inside the client's transaction and outside one. SAVEPOINT and
-- ROLLBACK TO fail with 1305 outside a transaction, and only then does the procedure begin and commit a
-- transaction of its own. After an error it undoes its own changes, never those of its caller.

DELIMITER //

-- Begin a call. p_own: whether the call has a transaction of its own.
CREATE PROCEDURE fairturn_open_(OUT p_own TINYINT)
BEGIN
  SET p_own = 0;
  BEGIN
    DECLARE CONTINUE HANDLER FOR 1305 SET p_own = 1;
    SAVEPOINT fairturn;
    ROLLBACK TO SAVEPOINT fairturn;
  END;
  IF p_own THEN
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
    SAVEPOINT fairturn;
  END IF;
  IF @fairturn_cluster IS NULL THEN CALL fairturn_cluster_(); END IF;
  -- Lists of ids are made with GROUP_CONCAT, which MySQL truncates to 1,024 bytes by default.
  IF @@session.group_concat_max_len < 1048576 THEN
    SET SESSION group_concat_max_len = 1048576;
  END IF;
END //

-- Undo what a failed call did. A deadlock has removed the savepoint together with the transaction: 1305.
CREATE PROCEDURE fairturn_undo_(IN p_own TINYINT)
BEGIN
  DECLARE CONTINUE HANDLER FOR 1305 BEGIN END;
  IF p_own THEN
    ROLLBACK;
  ELSE
    ROLLBACK TO SAVEPOINT fairturn;
  END IF;
END //

-- Refuse a stricter isolation level in the caller's transaction. A snapshot that is older than the lock
-- of a gate or a group shows neither all leases nor all members, and it does not show which events are
-- missing. p_what: what is refused, if it is not a receive.
CREATE PROCEDURE fairturn_isolated_(IN p_own TINYINT, IN p_what VARCHAR(30) CHARACTER SET ascii)
BEGIN
  IF NOT p_own AND /*M!100600 @@session.tx_isolation */ /*!80000 @@session.transaction_isolation */
     <> 'READ-COMMITTED' THEN
    CALL fairturn_refuse_(45007, CONCAT(p_what,
      'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED before your transaction'));
  END IF;
END //

-- Raise an error (docs/sql-mysql.md has the numbers). The server takes at most 128 characters of text.
CREATE PROCEDURE fairturn_refuse_(IN p_number INT, IN p_text LONGTEXT CHARACTER SET utf8mb4)
BEGIN
  DECLARE v_text VARCHAR(128) CHARACTER SET utf8mb4 DEFAULT LEFT(p_text, 128);
  SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = p_number, MESSAGE_TEXT = v_text;
END //

-- Refuse options that are not a JSON object, or that have a name which is not in p_known ("a,b").
CREATE PROCEDURE fairturn_known_(
  IN p_options LONGTEXT CHARACTER SET utf8mb4, IN p_known VARCHAR(1000) CHARACTER SET ascii
)
BEGIN
  DECLARE v_keys LONGTEXT CHARACTER SET utf8mb4 DEFAULT JSON_KEYS(p_options);
  DECLARE v_key VARCHAR(100) CHARACTER SET utf8mb4;
  DECLARE v_n INT DEFAULT COALESCE(JSON_LENGTH(v_keys), 0);
  IF v_keys IS NULL AND p_options IS NOT NULL THEN
    CALL fairturn_refuse_(45006, 'the options are a JSON object');
  END IF;
  WHILE v_n > 0 DO
    SET v_n = v_n - 1, v_key = LEFT(JSON_VALUE(v_keys, CONCAT('$[', v_n, ']')), 100);
    IF NOT FIND_IN_SET(CAST(v_key AS BINARY), CAST(p_known AS BINARY)) THEN
      CALL fairturn_refuse_(45006, CONCAT('there is no option ', v_key));
    END IF;
  END WHILE;
END //

-- Refuse names that no column can hold, and a delay below 0.
CREATE PROCEDURE fairturn_named_(
  IN p_channel LONGTEXT CHARACTER SET utf8mb4, IN p_key LONGTEXT CHARACTER SET utf8mb4,
  IN p_type LONGTEXT CHARACTER SET utf8mb4, IN p_group LONGTEXT CHARACTER SET utf8mb4,
  IN p_delay DOUBLE
)
BEGIN
  IF LENGTH(p_channel) > 255 OR LENGTH(p_key) > 255 OR LENGTH(p_type) > 255 OR LENGTH(p_group) > 255
     OR p_key = '' OR p_type = '' OR p_group = ''
     OR LOCATE(CHAR(0), CONCAT_WS('', p_channel, p_key, p_type, p_group)) THEN
    CALL fairturn_refuse_(45005,
      'a channel, key, type or group is at most 255 bytes without NUL; only a channel may be empty');
  END IF;
  IF p_delay < 0 THEN CALL fairturn_refuse_(45006, 'a delay is not below 0'); END IF;
END //

-- The queue of a name, the time, and whether the queue records events; or the error "no such queue".
CREATE PROCEDURE fairturn_queue_(
  IN p_queue VARBINARY(1024), IN p_given BIGINT, OUT p_id INT, OUT p_lane INT, OUT p_now BIGINT,
  OUT p_events INT
)
BEGIN
  SET p_id = NULL;
  SELECT id, lane, COALESCE(p_given, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))), events
    INTO p_id, p_lane, p_now, p_events FROM fairturn_queue WHERE name = p_queue;
  IF p_id IS NULL THEN CALL fairturn_refuse_(45002, CONVERT(p_queue USING utf8mb4)); END IF;
END //

-- Run a SELECT … FOR UPDATE NOWAIT; p_busy: whether another session holds a lock that it needs. MariaDB accepts
-- NOWAIT only in prepared statements.
CREATE PROCEDURE fairturn_nowait_(IN p_sql VARCHAR(1000) CHARACTER SET ascii, OUT p_busy TINYINT)
BEGIN
  SET p_busy = 0, @fairturn_sql = p_sql;
  PREPARE fairturn_nowait FROM @fairturn_sql;
  BEGIN
    DECLARE CONTINUE HANDLER FOR 1205, 3572 SET p_busy = 1;
    EXECUTE fairturn_nowait;
  END;
  DEALLOCATE PREPARE fairturn_nowait;
END //

DELIMITER ;
