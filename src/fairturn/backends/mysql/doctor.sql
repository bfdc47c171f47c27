-- What `fairturn doctor` reads from MySQL and MariaDB. Nothing here writes. There is no percent sign, because
-- drivers take it for a placeholder.

-- name: version()
SELECT VERSION()

-- name: variables()
SHOW GLOBAL VARIABLES WHERE Variable_name IN (
    'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin', 'max_allowed_packet',
    'tx_isolation', 'transaction_isolation', 'max_connections', 'innodb_lock_wait_timeout',
    'innodb_doublewrite', 'innodb_autoinc_lock_mode', 'binlog_format', 'wsrep_on', 'wsrep_sync_wait',
    'wsrep_retry_autocommit')

-- name: connections()
SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Innodb_history_list_length',
    'wsrep_cluster_size', 'wsrep_cluster_status', 'wsrep_local_state_comment', 'wsrep_ready',
    'wsrep_flow_control_paused', 'wsrep_local_cert_failures', 'wsrep_local_bf_aborts')

-- name: history_metric()
SELECT CAST(`COUNT` AS SIGNED) FROM information_schema.INNODB_METRICS
WHERE NAME = 'trx_rseg_history_len'

-- name: transactions()
-- The transactions that have been open longest, without this session's.
SELECT CAST(t.trx_mysql_thread_id AS SIGNED),
       CAST(TIMESTAMPDIFF(SECOND, t.trx_started, NOW()) AS SIGNED),
       CAST(t.trx_rows_locked AS SIGNED),
       COALESCE(p.USER, '?'), COALESCE(p.HOST, '?'), COALESCE(p.COMMAND, '?')
FROM information_schema.INNODB_TRX AS t
LEFT JOIN information_schema.PROCESSLIST AS p ON p.ID = t.trx_mysql_thread_id
WHERE t.trx_mysql_thread_id NOT IN (0, CONNECTION_ID())
ORDER BY t.trx_started LIMIT 5

-- name: waits()
SELECT CAST(trx_mysql_thread_id AS SIGNED),
       CAST(TIMESTAMPDIFF(SECOND, trx_wait_started, NOW()) AS SIGNED)
FROM information_schema.INNODB_TRX
WHERE trx_state = 'LOCK WAIT' AND trx_mysql_thread_id <> CONNECTION_ID()
ORDER BY trx_wait_started LIMIT 5

-- name: has_schema(prefix)
SELECT COUNT(*) FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = CONCAT(:prefix, '_migration')

-- name: expired_leases(before)
SELECT CAST(COALESCE(SUM((
    SELECT COUNT(*) FROM fairturn_message AS m
    WHERE m.lane = q.lane AND m.state = 'l' AND m.wake_at <= :before
      AND NOT EXISTS (
        SELECT 1 FROM fairturn_permit AS p WHERE p.id = m.permit AND p.expires_at
            > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
)), 0) AS SIGNED) FROM fairturn_queue AS q

-- name: backlog(most)
SELECT COUNT(*) FROM (SELECT 1 FROM fairturn_tally LIMIT :most) AS t
