-- Reading queues and messages without locks (docs/semantics.md, 9). Numbers that must agree come from one
-- statement: under READ COMMITTED every statement has its own snapshot.

DELIMITER //

-- The settings of one queue or of all. As JSON: an older client ignores a setting that it does not know.
CREATE PROCEDURE fairturn_queues(IN p_queue VARBINARY(1024))
BEGIN
  SELECT name, created_at, JSON_OBJECT(
      -- made from: mysql_pairs
      'lease_us', lease_us,
      'max_attempts', max_attempts,
      'backoff_initial_us', backoff_initial_us,
      'backoff_factor', backoff_factor,
      'backoff_max_us', backoff_max_us,
      'retention_us', retention_us,
      'result_retention_us', result_retention_us,
      'dead_retention_us', dead_retention_us,
      'failure_retention_us', failure_retention_us,
      'dead_letter', CONVERT(dead_letter USING utf8mb4),
      'max_body', max_body,
      'expires_us', expires_us,
      'paused', paused,
      'events', events,
      'limit_concurrency', limit_concurrency,
      'limit_rate_count', limit_rate_count,
      'limit_rate_period_us', limit_rate_period_us,
      'limit_burst', limit_burst,
      'max_concurrency', max_concurrency,
      'rate_count', rate_count,
      'rate_period_us', rate_period_us,
      'burst', burst,
      'weight', weight,
      'channel_paused', channel_paused,
      'ordered', ordered,
      'max_size', max_size
      -- end
    ) AS settings, meta
    FROM fairturn_queue WHERE p_queue IS NULL OR name = p_queue ORDER BY name;
END //

-- What the library's batched send needs from the queue and the session (backends/mysql/sends.py).
CREATE PROCEDURE fairturn_sender(IN p_queue VARBINARY(1024), IN p_now BIGINT)
BEGIN
  SELECT id, lane, max_body, expires_us, max_size, events,
         COALESCE(p_now, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) AS now,
         @@session.auto_increment_increment AS step, @@session.max_allowed_packet AS packet,
         EXISTS (SELECT 1 FROM fairturn_policy p WHERE p.queue_id = q.id) AS policies
    FROM fairturn_queue q WHERE name = p_queue;
END //

-- Of those channels ('["hex", …]') that have a max_size: this, and how many unfinished messages they hold.
CREATE PROCEDURE fairturn_sizes(
  IN p_queue_id INT, IN p_lane INT, IN p_channels LONGTEXT CHARACTER SET ascii
)
BEGIN
  SELECT c.channel, c.max_size, (
           SELECT COUNT(*) FROM fairturn_message m FORCE INDEX (channel)
            WHERE m.lane = p_lane AND m.channel = c.channel
              AND m.state IN ('h', 'l', 'r', 's')) AS size
    FROM (
      SELECT UNHEX(j.name) AS channel, IF(p.queue_id IS NULL, q.max_size, p.max_size) AS max_size
        FROM JSON_TABLE(p_channels, '$[*]' COLUMNS (name VARCHAR(510) PATH '$')) j
        JOIN fairturn_queue q ON q.id = p_queue_id
        LEFT JOIN fairturn_policy p ON p.queue_id = q.id AND p.channel = UNHEX(j.name)) c
   WHERE c.max_size IS NOT NULL;
END //

-- One message by id or key, or no row.
CREATE PROCEDURE fairturn_get(
  IN p_queue VARBINARY(1024), IN p_id BIGINT, IN p_key VARBINARY(1024),
  IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_id, v_lane, v_events INT;
  DECLARE v_now BIGINT;
  CALL fairturn_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_id, v_lane, v_now, v_events);
  IF p_id IS NULL THEN
    SELECT id INTO p_id FROM fairturn_message FORCE INDEX (`key`)
     WHERE key_lane = v_lane AND `key` = p_key;
  END IF;
  CALL fairturn_messages_(v_lane, p_id, p_key, v_now);
END //

-- The messages of some ids ("1,2"), by id, that are in the lane, have the key (NULL: any) and have not
-- expired. The columns are those of PeekRow in core/rows.py.
CREATE PROCEDURE fairturn_messages_(
  IN p_lane INT, IN p_ids LONGTEXT CHARACTER SET ascii, IN p_key VARBINARY(1024), IN p_now BIGINT
)
BEGIN
  SELECT m.id, m.channel, m.body, m.headers, m.`key`, m.version, m.type, -m.`rank` AS priority,
         m.due_at, m.created_at, m.attempts, m.deliveries, IF(m.state = 'l', m.token, 0) AS token, m.memo,
         IF(m.state = 'l', m.wake_at, NULL) AS lease_until, m.json | m.begun << 3 AS json, m.recovered,
         (SELECT g.name FROM fairturn_group g WHERE g.id = m.group_id) AS `group`,
         (SELECT o.name FROM fairturn_queue o WHERE o.id = m.died_in) AS origin,
         NULLIF(m.first_at, 0) AS first_at, m.state, m.result, m.error,
         IF(m.state IN ('d', 'x'), m.wake_at, NULL) AS finished_at, m.expires_at,
         m.max_attempts, m.progress, m.note
    FROM JSON_TABLE(CONCAT('[', COALESCE(p_ids, ''), ']'), '$[*]' COLUMNS (id BIGINT PATH '$')) j
    STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = j.id
   WHERE m.lane = p_lane AND (p_key IS NULL OR m.`key` = p_key)
     AND (m.expires_at IS NULL OR m.expires_at > p_now)
   ORDER BY j.id;
END //

-- CALL fairturn_peek('emails', 20, '{"state": "x", "channel": "t7", "after": 0}'): by id.
CREATE PROCEDURE fairturn_peek(
  IN p_queue VARBINARY(1024), IN p_n INT, IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_id, v_lane, v_events INT;
  DECLARE v_now BIGINT;
  DECLARE v_after BIGINT DEFAULT COALESCE(JSON_VALUE(p_options, '$.after'), 0);
  DECLARE v_state BINARY(1) DEFAULT JSON_VALUE(p_options, '$.state');
  DECLARE v_channel VARBINARY(1024) DEFAULT JSON_VALUE(p_options, '$.channel');
  DECLARE v_ids LONGTEXT CHARACTER SET ascii;
  CALL fairturn_known_(p_options, 'state,channel,after,now');
  CALL fairturn_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_id, v_lane, v_now, v_events);
  IF v_channel IS NOT NULL THEN
    SELECT GROUP_CONCAT(id) INTO v_ids FROM (
      SELECT id FROM fairturn_message FORCE INDEX (channel)
      WHERE lane = v_lane AND channel = v_channel AND (v_state IS NULL OR state = v_state)
         AND (expires_at IS NULL OR expires_at > v_now) AND id > v_after ORDER BY id LIMIT p_n) page;
  ELSEIF v_state IS NOT NULL THEN
    SELECT GROUP_CONCAT(id) INTO v_ids FROM (
      SELECT id FROM fairturn_message FORCE INDEX (wake)
       WHERE lane = v_lane AND state = v_state AND (expires_at IS NULL OR expires_at > v_now)
         AND id > v_after ORDER BY id LIMIT p_n) page;
  ELSE
    -- The index `expiry` has the messages without an expiry by id.
    SELECT GROUP_CONCAT(id) INTO v_ids FROM (
      SELECT id FROM (
        (SELECT id FROM fairturn_message FORCE INDEX (expiry)
          WHERE lane = v_lane AND expires_at IS NULL AND id > v_after ORDER BY id LIMIT p_n)
        UNION ALL
        (SELECT id FROM fairturn_message FORCE INDEX (expiry)
          WHERE lane = v_lane AND expires_at > v_now AND id > v_after
          ORDER BY id LIMIT p_n)) both_kinds
       ORDER BY id LIMIT p_n) page;
  END IF;
  CALL fairturn_messages_(v_lane, v_ids, NULL, v_now);
END //

-- CALL fairturn_stats(NULL, '{}'): for each queue the number of messages in each state, the totals since its
-- creation, the oldest due time of a ready message, and the number of messages of each version.
CREATE PROCEDURE fairturn_stats(
  IN p_queue VARBINARY(1024), IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_id, v_events INT DEFAULT 0;
  DECLARE v_low INT DEFAULT 0;
  DECLARE v_high INT DEFAULT 2147483647;
  DECLARE v_never BIGINT DEFAULT 9223372036854775807;
  DECLARE v_now BIGINT DEFAULT COALESCE(JSON_VALUE(p_options, '$.now'),
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
  CALL fairturn_known_(p_options, 'now');
  IF p_queue IS NOT NULL THEN
    CALL fairturn_queue_(p_queue, v_now, v_id, v_low, v_now, v_events);
    SET v_high = v_low;
  END IF;
  -- All rows are counted in the index `ready`. The few that have expired (e), are due, or have an ended
  -- lease (w) are counted separately, and the numbers are corrected by them.
  SELECT q.name,
         CAST(COALESCE(c.r, 0) - COALESCE(e.r, 0) + COALESCE(w.due, 0) + COALESCE(w.ended, 0)
              AS SIGNED) AS ready,
         CAST(COALESCE(c.s, 0) - COALESCE(e.s, 0) - COALESCE(w.due, 0) AS SIGNED) AS scheduled,
         CAST(COALESCE(c.l, 0) - COALESCE(e.l, 0) - COALESCE(w.ended, 0) AS SIGNED) AS leased,
         CAST(COALESCE(c.h, 0) - COALESCE(e.h, 0) AS SIGNED) AS held,
         CAST(COALESCE(c.d, 0) - COALESCE(e.d, 0) AS SIGNED) AS done,
         CAST(COALESCE(c.x, 0) - COALESCE(e.x, 0) AS SIGNED) AS dead,
         CAST(COALESCE(t.sent, 0) AS SIGNED) AS sent,
         CAST(COALESCE(t.delivered, 0) AS SIGNED) AS delivered,
         CAST(COALESCE(t.acked, 0) AS SIGNED) AS acked,
         CAST(COALESCE(t.completed, 0) AS SIGNED) AS completed,
         CAST(COALESCE(t.deferred, 0) AS SIGNED) AS deferred,
         CAST(COALESCE(t.failed, 0) AS SIGNED) AS failed,
         CAST(COALESCE(t.killed, 0) AS SIGNED) AS killed,
         CAST(COALESCE(t.recovered, 0) AS SIGNED) AS recovered,
         CAST(COALESCE(t.released, 0) AS SIGNED) AS released,
         CAST(COALESCE(t.cancelled, 0) AS SIGNED) AS cancelled,
         CAST(COALESCE(t.expired, 0) AS SIGNED) AS expired,
         CAST(COALESCE(t.errors, 0) AS SIGNED) AS errors,
         NULLIF(LEAST(COALESCE(w.oldest, v_never), COALESCE(IF(COALESCE(e.r, 0) = 0, c.oldest, (
                  SELECT MIN(m.due_at) FROM fairturn_message m FORCE INDEX (ready)
                   WHERE m.lane = q.lane AND m.state = 'r'
                     AND (m.expires_at IS NULL OR m.expires_at > v_now))), v_never)), v_never) AS oldest_due,
         COALESCE(v.versions, '{}') AS versions
    FROM fairturn_queue q
    LEFT JOIN (
      SELECT lane, SUM(IF(state = 'r', n, 0)) AS r, SUM(IF(state = 's', n, 0)) AS s,
             SUM(IF(state = 'l', n, 0)) AS l, SUM(IF(state = 'h', n, 0)) AS h,
             SUM(IF(state = 'd', n, 0)) AS d, SUM(IF(state = 'x', n, 0)) AS x,
             MIN(IF(state = 'r', oldest, NULL)) AS oldest
        FROM (SELECT lane, state, COUNT(*) AS n, MIN(due_at) AS oldest
                FROM fairturn_message FORCE INDEX (ready)
               WHERE lane BETWEEN v_low AND v_high GROUP BY lane, state) states
       GROUP BY lane) c ON c.lane = q.lane
    LEFT JOIN (
      SELECT lane, SUM(state = 'r') AS r, SUM(state = 's') AS s, SUM(state = 'l') AS l,
             SUM(state = 'h') AS h, SUM(state = 'd') AS d, SUM(state = 'x') AS x
        FROM fairturn_message FORCE INDEX (expiry)
       WHERE lane BETWEEN v_low AND v_high AND expires_at <= v_now GROUP BY lane) e ON e.lane = q.lane
    LEFT JOIN (
      SELECT m.lane, SUM(m.state = 's') AS due, SUM(m.state = 'l') AS ended, MIN(m.due_at) AS oldest
        FROM fairturn_queue o
        STRAIGHT_JOIN fairturn_message m FORCE INDEX (wake)
          ON m.lane = o.lane AND m.state IN ('l', 's') AND m.wake_at <= v_now
        LEFT JOIN fairturn_permit p ON p.id = m.permit AND p.expires_at > v_now
       WHERE o.lane BETWEEN v_low AND v_high AND (m.expires_at IS NULL OR m.expires_at > v_now)
         AND (m.state = 's' OR p.id IS NULL) GROUP BY m.lane) w ON w.lane = q.lane
    LEFT JOIN (
      SELECT lane, CONCAT('{', GROUP_CONCAT('"', version, '": ', n ORDER BY version SEPARATOR ', '), '}')
             AS versions
        FROM (
          SELECT lane, version, SUM(n) AS n FROM (
            SELECT lane, version, COUNT(*) AS n FROM fairturn_message FORCE INDEX (ready)
             WHERE lane BETWEEN v_low AND v_high GROUP BY lane, version
            UNION ALL
            SELECT lane, version, -1 FROM fairturn_message FORCE INDEX (expiry)
             WHERE lane BETWEEN v_low AND v_high AND expires_at <= v_now) counted
           GROUP BY lane, version HAVING SUM(n) > 0) n
       GROUP BY lane) v ON v.lane = q.lane
    LEFT JOIN (
      SELECT queue_id, SUM(sent) AS sent, SUM(delivered) AS delivered, SUM(acked) AS acked,
             SUM(completed) AS completed, SUM(deferred) AS deferred, SUM(failed) AS failed,
             SUM(killed) AS killed, SUM(recovered) AS recovered, SUM(released) AS released,
             SUM(cancelled) AS cancelled, SUM(expired) AS expired, SUM(errors) AS errors
        FROM (SELECT queue_id, sent, delivered, acked, completed, deferred, failed, killed, recovered,
                     released, cancelled, expired, errors FROM fairturn_history
              UNION ALL
              SELECT queue_id, sent, delivered, acked, completed, deferred, failed, killed, recovered,
                     released, cancelled, expired, errors FROM fairturn_tally) counted
       GROUP BY queue_id) t ON t.queue_id = q.id
   WHERE p_queue IS NULL OR q.id = v_id
   ORDER BY q.name;
END //

-- The totals of each minute with traffic from p_since on.
CREATE PROCEDURE fairturn_history_of(IN p_queue VARBINARY(1024), IN p_since BIGINT)
BEGIN
  DECLARE v_id, v_lane, v_events INT;
  DECLARE v_now BIGINT;
  CALL fairturn_queue_(p_queue, NULL, v_id, v_lane, v_now, v_events);
  SELECT minute, CAST(COALESCE(SUM(sent), 0) AS SIGNED) AS sent,
         CAST(COALESCE(SUM(delivered), 0) AS SIGNED) AS delivered,
         CAST(COALESCE(SUM(acked), 0) AS SIGNED) AS acked,
         CAST(COALESCE(SUM(completed), 0) AS SIGNED) AS completed,
         CAST(COALESCE(SUM(deferred), 0) AS SIGNED) AS deferred,
         CAST(COALESCE(SUM(failed), 0) AS SIGNED) AS failed,
         CAST(COALESCE(SUM(killed), 0) AS SIGNED) AS killed,
         CAST(COALESCE(SUM(recovered), 0) AS SIGNED) AS recovered,
         CAST(COALESCE(SUM(released), 0) AS SIGNED) AS released,
         CAST(COALESCE(SUM(cancelled), 0) AS SIGNED) AS cancelled,
         CAST(COALESCE(SUM(expired), 0) AS SIGNED) AS expired,
         CAST(COALESCE(SUM(errors), 0) AS SIGNED) AS errors
    FROM (SELECT minute, sent, delivered, acked, completed, deferred, failed, killed, recovered,
                 released, cancelled, expired, errors
            FROM fairturn_history WHERE queue_id = v_id AND minute >= GREATEST(p_since, 1)
          UNION ALL
          SELECT minute, sent, delivered, acked, completed, deferred, failed, killed, recovered,
                 released, cancelled, expired, errors
            FROM fairturn_tally WHERE queue_id = v_id AND minute >= p_since) counted
   GROUP BY minute ORDER BY minute;
END //

-- Every channel with unfinished messages or a policy of its own, by name.
CREATE PROCEDURE fairturn_channels(IN p_queue VARBINARY(1024), IN p_limit INT)
BEGIN
  DECLARE v_id, v_lane, v_events INT;
  DECLARE v_now BIGINT;
  CALL fairturn_queue_(p_queue, NULL, v_id, v_lane, v_now, v_events);
  SELECT c.channel, CAST(SUM(c.r) AS SIGNED) AS ready, CAST(SUM(c.s) AS SIGNED) AS scheduled,
         CAST(SUM(c.l) AS SIGNED) AS leased, p.max_concurrency, p.rate_count, p.rate_period_us,
         p.burst, p.weight, p.paused, p.ordered, p.max_size
    FROM (
      (SELECT channel, SUM(state = 'r') AS r, SUM(state = 's') AS s, SUM(state = 'l') AS l
         FROM fairturn_message FORCE INDEX (channel)
        WHERE lane = v_lane GROUP BY channel HAVING SUM(state IN ('h', 'l', 'r', 's')) > 0
        ORDER BY channel LIMIT p_limit)
      UNION ALL
      (SELECT channel, 0, 0, 0 FROM fairturn_policy WHERE queue_id = v_id
        ORDER BY channel LIMIT p_limit)) c
    LEFT JOIN fairturn_policy p ON p.queue_id = v_id AND p.channel = c.channel
   GROUP BY c.channel ORDER BY c.channel LIMIT p_limit;
END //

-- What explain needs besides the message and its queue: the time, the policy in effect, how many ready
-- messages are ahead, the leases of the channel and of the queue, the next end of a lease, the times of the
-- rates, and the message that blocks this one.
CREATE PROCEDURE fairturn_facts(
  IN p_queue VARBINARY(1024), IN p_id BIGINT, IN p_options LONGTEXT CHARACTER SET utf8mb4
)
BEGIN
  DECLARE v_id, v_lane, v_events, v_rank, v_begun INT;
  DECLARE v_now, v_due BIGINT;
  DECLARE v_channel VARBINARY(255);
  CALL fairturn_queue_(p_queue, JSON_VALUE(p_options, '$.now'), v_id, v_lane, v_now, v_events);
  SELECT channel, `rank`, due_at, begun INTO v_channel, v_rank, v_due, v_begun FROM fairturn_message
   WHERE id = p_id AND lane = v_lane;
  SELECT v_now AS now, IF(p.queue_id IS NULL, q.max_concurrency, p.max_concurrency) AS max_concurrency,
         IF(p.queue_id IS NULL, q.rate_count, p.rate_count) AS rate_count,
         IF(p.queue_id IS NULL, q.rate_period_us, p.rate_period_us) AS rate_period_us,
         IF(p.queue_id IS NULL, q.burst, p.burst) AS burst,
         IF(p.queue_id IS NULL, q.weight, p.weight) AS weight,
         IF(p.queue_id IS NULL, q.channel_paused, p.paused) AS paused,
         IF(p.queue_id IS NULL, q.ordered, p.ordered) AS ordered,
         IF(p.queue_id IS NULL, q.max_size, p.max_size) AS max_size,
         (SELECT COUNT(*) FROM fairturn_message m FORCE INDEX (channel)
           WHERE m.lane = v_lane AND m.channel = v_channel AND m.state = 'r'
             AND (m.`rank` < v_rank OR m.`rank` = v_rank AND (m.due_at < v_due
                  OR m.due_at = v_due AND m.id < p_id))) AS ahead,
         (SELECT COUNT(*) FROM fairturn_message m FORCE INDEX (channel)
           WHERE m.lane = v_lane AND m.channel = v_channel AND m.state = 'l') AS leased,
         (SELECT COUNT(*) FROM fairturn_message m FORCE INDEX (wake)
           WHERE m.lane = v_lane AND m.state = 'l') AS leased_queue,
         (SELECT MIN(m.wake_at) FROM fairturn_message m FORCE INDEX (channel)
           WHERE m.lane = v_lane AND m.channel = v_channel AND m.state = 'l') AS next_lease_end,
         COALESCE(g.tat, 0) AS tat, COALESCE(t.tat, 0) AS queue_tat,
         -- In an ordered channel: a leased message, one that waits for its retry, or a begun one.
         IF(IF(p.queue_id IS NULL, q.ordered, p.ordered) = 0, NULL, (
           SELECT m.id FROM fairturn_message m FORCE INDEX (channel)
            WHERE m.lane = v_lane AND m.channel = v_channel AND m.id <> p_id
              AND (m.state = 'l' OR m.begun = 1 AND (m.state = 's' OR m.state = 'r' AND NOT v_begun))
            ORDER BY FIELD(m.state, 'l', 's', 'r'), m.id LIMIT 1)) AS blocking_id
    FROM fairturn_queue q
    LEFT JOIN fairturn_policy p ON p.queue_id = q.id AND p.channel = v_channel
    LEFT JOIN fairturn_gate g ON g.queue_id = q.id AND g.channel = v_channel
    LEFT JOIN fairturn_limit t ON t.queue_id = q.id
   WHERE q.id = v_id;
END //

-- The failure log of a queue, newest first.
CREATE PROCEDURE fairturn_failures(
  IN p_queue VARBINARY(1024), IN p_id BIGINT, IN p_key VARBINARY(1024), IN p_n INT
)
BEGIN
  DECLARE v_id, v_lane, v_events INT;
  DECLARE v_now BIGINT;
  CALL fairturn_queue_(p_queue, NULL, v_id, v_lane, v_now, v_events);
  SELECT p_queue AS queue, message_id, `key`, attempt, at, error, details, reference
    FROM fairturn_failure
   WHERE queue_id = v_id AND (p_id IS NULL OR message_id = p_id) AND (p_key IS NULL OR `key` = p_key)
   ORDER BY id DESC LIMIT p_n;
END //

-- The history of a key over all queues, by time.
CREATE PROCEDURE fairturn_trace(IN p_key VARBINARY(1024))
BEGIN
  SELECT m.created_at AS at, q.name AS queue, 'message' AS kind, m.id AS message_id, m.state, '' AS text
    FROM fairturn_queue q
    STRAIGHT_JOIN fairturn_message m FORCE INDEX (`key`) ON m.key_lane = q.lane AND m.`key` = p_key
  UNION ALL
  SELECT f.at, q.name, 'error', f.message_id, IF(f.fatal, 'x', 'r'), f.error
    FROM fairturn_failure f JOIN fairturn_queue q ON q.id = f.queue_id
   WHERE f.`key` = p_key
   ORDER BY at, message_id;
END //

-- The states and results of some messages of a queue: [ids], ["keys in hex"]. A message that moved from here
-- to a dead-letter queue, and still exists, counts as dead. Columns: OutcomeRow in core/rows.py.
CREATE PROCEDURE fairturn_outcomes(
  IN p_queue VARBINARY(1024), IN p_ids LONGTEXT CHARACTER SET ascii,
  IN p_keys LONGTEXT CHARACTER SET ascii, IN p_now BIGINT
)
BEGIN
  DECLARE v_id, v_lane, v_events INT;
  DECLARE v_now BIGINT;
  CALL fairturn_queue_(p_queue, p_now, v_id, v_lane, v_now, v_events);
  SELECT m.id, m.`key`, IF(m.lane = v_lane, m.state, 'x') AS state, m.json, m.result, m.error,
         m.progress, m.note
    FROM (SELECT id FROM JSON_TABLE(p_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) i
          UNION
          SELECT k.id FROM JSON_TABLE(p_keys, '$[*]' COLUMNS (name VARCHAR(510) PATH '$')) j
            STRAIGHT_JOIN fairturn_message k FORCE INDEX (`key`)
              ON k.key_lane = v_lane AND k.`key` = UNHEX(j.name)) wanted
    STRAIGHT_JOIN fairturn_message m FORCE INDEX (PRIMARY) ON m.id = wanted.id
   WHERE (m.expires_at IS NULL OR m.expires_at > v_now)
     AND (m.lane = v_lane OR m.died_in = v_id
          AND EXISTS (SELECT 1 FROM fairturn_queue q WHERE q.lane = m.lane));
END //

-- The live permits, with the number of their leases.
CREATE PROCEDURE fairturn_permits(IN p_now BIGINT)
BEGIN
  DECLARE v_now BIGINT
    DEFAULT COALESCE(p_now, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)));
  SELECT p.id, p.name, p.created_at, p.expires_at, COALESCE(l.leases, 0) AS leases
    FROM fairturn_permit p
    LEFT JOIN (
      SELECT m.permit, COUNT(*) AS leases FROM fairturn_queue q
        STRAIGHT_JOIN fairturn_message m FORCE INDEX (wake) ON m.lane = q.lane AND m.state = 'l'
       WHERE m.permit > 0 GROUP BY m.permit) l ON l.permit = p.id
   WHERE p.expires_at > v_now ORDER BY p.created_at, p.name, p.id;
END //

DELIMITER ;
