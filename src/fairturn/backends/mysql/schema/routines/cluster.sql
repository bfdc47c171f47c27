-- What is different in a Galera cluster, where several nodes write (docs/decisions/012-galera.md).
--
-- A node locks rows on itself only. At its commit the cluster compares the rows that a transaction has
-- *written* with those that others have written meanwhile, and refuses it with error 1213 if one of them is
-- the same. So where a single server needs a lock, a cluster needs a write: of the gate, the row of the queue's
-- limit, the row of the group. A single server does not write these rows.

DELIMITER //

-- Whether this server is a node of a cluster, in @fairturn_cluster. A session asks once: fairturn_open_ and what
-- is called without it set the variable, all others only read it. A server without Galera has no @@wsrep_on.
CREATE PROCEDURE fairturn_cluster_()
BEGIN
  SELECT COUNT(*) INTO @fairturn_cluster
    FROM /*M! information_schema.SESSION_VARIABLES */ /*!80000 performance_schema.session_variables */ v
   WHERE v.VARIABLE_NAME = 'wsrep_on' AND v.VARIABLE_VALUE = 'ON';
END //

-- Give events their places: move up to p_limit committed events of a cluster from fairturn_event_new to
-- fairturn_event. There they have the ids after the last one, without gaps. Two nodes that do this at the same
-- time write the same ids, and the cluster refuses one of them. So the ids are an order that no late commit
-- changes: it only gets its places later. p_count: how many were moved; 0 also if another session of this node
-- moves them now.
--
-- Causes keep their places before their effects: a transaction that has seen another one has larger ids in
-- fairturn_event_new, since a node counts on from the largest id that it has applied.
CREATE PROCEDURE fairturn_place_(IN p_limit INT, OUT p_count INT)
place: BEGIN
  DECLARE v_mine INT DEFAULT 0;
  DECLARE v_last, v_floor BIGINT DEFAULT 0;
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  -- Another node was first, and its events have been applied here meanwhile.
  DECLARE EXIT HANDLER FOR 1062
    SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'another node gives events their places';
  SET p_count = 0;
  SELECT COUNT(*) INTO v_mine FROM (
    SELECT name FROM fairturn_lock WHERE name = 'place' FOR UPDATE SKIP LOCKED) mine;
  IF NOT v_mine THEN LEAVE place; END IF;
  SELECT GROUP_CONCAT(id ORDER BY id), COUNT(*) INTO v_ids, p_count FROM (
    SELECT id FROM fairturn_event_new ORDER BY id LIMIT p_limit) first;
  IF p_count = 0 THEN LEAVE place; END IF;
  SELECT COALESCE((SELECT id FROM fairturn_event ORDER BY id DESC LIMIT 1), 0), id INTO v_last, v_floor
    FROM fairturn_event_floor WHERE name = 'floor';
  SET v_last = GREATEST(v_last, v_floor);
  INSERT INTO fairturn_event (id, at, written, kind, queue, message_id, `key`, channel, delay_us, data)
    SELECT v_last + j.n, e.at, e.written, e.kind, e.queue, e.message_id, e.`key`, e.channel, e.delay_us, e.data
      FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (n FOR ORDINALITY, id BIGINT PATH '$')) j
      STRAIGHT_JOIN fairturn_event_new e FORCE INDEX (PRIMARY) ON e.id = j.id;
  DELETE e FROM JSON_TABLE(CONCAT('[', v_ids, ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
    STRAIGHT_JOIN fairturn_event_new e FORCE INDEX (PRIMARY) ON e.id = j.id;
END //

-- All of them, in transactions of its own; the caller must have none. If another node is first (1213), it goes
-- on with what is left.
CREATE PROCEDURE fairturn_place_all_()
BEGIN
  DECLARE v_own TINYINT;
  DECLARE v_count, v_left, v_tries INT DEFAULT 0;
  SELECT COUNT(*) INTO v_left FROM (SELECT 1 FROM fairturn_event_new LIMIT 1) new;
  WHILE v_left DO
    BEGIN
      DECLARE EXIT HANDLER FOR 1213, 1205, 1020
      BEGIN
        ROLLBACK;
        SET v_count = 0;
      END;
      CALL fairturn_open_(v_own);
      CALL fairturn_place_(1000, v_count);
      COMMIT;
    END;
    SET v_tries = IF(v_count > 0, 0, v_tries + 1), v_left = 0;
    IF v_tries < 10 THEN
      SELECT COUNT(*) INTO v_left FROM (SELECT 1 FROM fairturn_event_new LIMIT 1) new;
    END IF;
  END WHILE;
END //

DELIMITER ;
