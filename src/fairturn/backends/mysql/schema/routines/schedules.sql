-- Schedules (docs/semantics.md, 18). The library computes due times; the database stores the next one of each
-- schedule. Of several sessions that want to handle it exactly one succeeds (claim_schedule in statements.sql).

DELIMITER //

-- The schedules that are due, after (p_after_at, p_after_name). There is at least one row: each has the time,
-- and when the first of the other schedules is due.
CREATE PROCEDURE fairturn_schedules_due(
  IN p_after_at BIGINT, IN p_after_name VARBINARY(1024), IN p_limit INT, IN p_now BIGINT
)
BEGIN
  DECLARE v_later BIGINT DEFAULT NULL;
  DECLARE v_now BIGINT DEFAULT COALESCE(p_now,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
  SELECT MIN(look_at) INTO v_later FROM fairturn_schedule WHERE look_at > v_now;
  SELECT v_now AS now, v_later AS later, s.* FROM (SELECT 1 AS one) o LEFT JOIN (
    SELECT name, revision, queue, spec, missed, overlap, owner, paused, next_at, look_at, last_at,
           error, created_at, updated_at, json, body, options
      FROM fairturn_schedule FORCE INDEX (look)
     WHERE look_at <= v_now AND look_at >= p_after_at
       AND (look_at > p_after_at OR name > p_after_name)
     ORDER BY look_at, name LIMIT p_limit) s ON TRUE
   ORDER BY s.look_at, s.name;
END //

DELIMITER ;
