-- Schedules (docs/semantics.md, 18). When one ticks is decided by a client; here it is stored, and moved
-- from one tick to the next by exactly one of those who try (statements.sql: claim_schedule).

CREATE TABLE IF NOT EXISTS fairlead_schedule (
  name VARBINARY(230) NOT NULL PRIMARY KEY,
  revision BIGINT NOT NULL, -- grows with every change: the token of who fires it
  queue VARBINARY(255) NOT NULL, -- by name: it may be dropped and made again
  spec BLOB NOT NULL, -- JSON: cron and timezone, every_us and anchor_us, or at_us
  missed BINARY(1) NOT NULL, -- s skip, o once, b backfill
  overlap BINARY(1) NOT NULL, -- s skip, a allow
  owner VARBINARY(255) NULL, -- the app that declared it in its code
  paused TINYINT NOT NULL,
  next_at BIGINT NULL, -- the tick it waits for; NULL: never again
  look_at BIGINT NULL, -- when to look at it; NULL: paused, or never again
  last_at BIGINT NULL, -- the last tick that was sent
  error MEDIUMBLOB NULL, -- why the tick it waits for could not be sent
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  json TINYINT NOT NULL,
  body LONGBLOB NOT NULL,
  options MEDIUMBLOB NOT NULL, -- JSON: channel, headers and the like of its messages
  KEY look (look_at, name)
) ENGINE = InnoDB;

DELIMITER //

-- The library's look at what is due, from the one after (p_after_at, p_after_name). One row at least: the
-- clock, and when the next of the others is to be looked at.
DROP PROCEDURE IF EXISTS fairlead_schedules_due //
CREATE PROCEDURE fairlead_schedules_due(
  IN p_after_at BIGINT, IN p_after_name VARBINARY(1024), IN p_limit INT, IN p_now BIGINT
)
BEGIN
  DECLARE v_later BIGINT DEFAULT NULL;
  DECLARE v_now BIGINT DEFAULT COALESCE(p_now,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
  SELECT MIN(look_at) INTO v_later FROM fairlead_schedule WHERE look_at > v_now;
  SELECT v_now AS now, v_later AS later, s.* FROM (SELECT 1 AS one) o LEFT JOIN (
    SELECT name, revision, queue, spec, missed, overlap, owner, paused, next_at, look_at, last_at,
           error, created_at, updated_at, json, body, options
      FROM fairlead_schedule FORCE INDEX (look)
     WHERE look_at <= v_now AND look_at >= p_after_at
       AND (look_at > p_after_at OR name > p_after_name)
     ORDER BY look_at, name LIMIT p_limit) s ON TRUE
   ORDER BY s.look_at, s.name;
END //

DELIMITER ;
