-- What `fairturn doctor` reads from PostgreSQL. Nothing here writes. All results are bigint or text. The texts of
-- running queries are not read: they may contain private data.

-- name: server()
SELECT current_setting('server_version_num')::bigint,
       current_setting('server_version'),
       current_setting('fsync'),
       current_setting('synchronous_commit'),
       current_setting('autovacuum'),
       current_setting('track_counts'),
       current_setting('max_connections')::bigint,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')::bigint,
       pg_is_in_recovery()::int::bigint,
       pg_backend_pid()::bigint

-- name: isolation()
-- The default for your own sessions. Those of Fairturn set READ COMMITTED themselves.
SELECT split_part(setting, '=', 2),
       CASE WHEN s.setrole <> 0 THEN 'the role' ELSE 'the database' END
FROM pg_db_role_setting AS s, unnest(s.setconfig) AS setting
WHERE setting LIKE 'default_transaction_isolation=%'
  AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
  AND s.setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = current_user))

-- name: file_isolation()
-- Only some roles may read this view.
SELECT setting, 'the server' FROM pg_file_settings
WHERE name = 'default_transaction_isolation' AND applied

-- name: horizon()
-- Sessions whose snapshot or transaction prevents the removal of dead rows.
SELECT pid::bigint, coalesce(usename, '?')::text, coalesce(application_name, ''),
       coalesce(state, '?'),
       greatest(coalesce(age(backend_xmin), 0), coalesce(age(backend_xid), 0))::bigint,
       coalesce(extract(epoch FROM clock_timestamp() - xact_start), 0)::bigint,
       coalesce(host(client_addr), 'local')
FROM pg_stat_activity
WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
  AND pid <> pg_backend_pid()
  AND backend_type NOT IN ('walsender', 'autovacuum worker')
  AND datname = current_database()
ORDER BY xact_start NULLS LAST
LIMIT 5

-- name: prepared()
SELECT gid, owner::text, age(transaction)::bigint,
       extract(epoch FROM clock_timestamp() - prepared)::bigint
FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared LIMIT 5

-- name: slots()
SELECT slot_name::text, active::int::bigint, coalesce(age(xmin), 0)::bigint,
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint
FROM pg_replication_slots
WHERE (xmin IS NOT NULL OR NOT active) AND NOT pg_is_in_recovery()
ORDER BY 3 DESC LIMIT 5

-- name: standbys()
-- A standby with hot_standby_feedback reports the oldest snapshot of its readers.
SELECT pid::bigint, coalesce(application_name, ''), coalesce(host(client_addr), 'local'),
       coalesce(age(backend_xmin), 0)::bigint
FROM pg_stat_replication WHERE backend_xmin IS NOT NULL ORDER BY 4 DESC LIMIT 5

-- name: message_table(schema)
SELECT s.n_live_tup::bigint, s.n_dead_tup::bigint,
       coalesce(extract(epoch FROM clock_timestamp()
                        - greatest(s.last_autovacuum, s.last_vacuum)), -1)::bigint,
       coalesce(array_to_string(c.reloptions, ','), ''),
       pg_total_relation_size(c.oid)::bigint
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_stat_all_tables AS s ON s.relid = c.oid
WHERE n.nspname = :schema AND c.relname = 'message'

-- name: waits(schema)
-- Sessions that wait for a lock while they hold one on a table of Fairturn, and the sessions they wait for. (A wait
-- for a row is listed as a wait for a transaction, so the table is known only from the locks that are held.)
SELECT a.pid::bigint, coalesce(a.usename, '?')::text, coalesce(a.application_name, ''),
       extract(epoch FROM clock_timestamp() - a.query_start)::bigint,
       array_to_string(pg_blocking_pids(a.pid), ', ')
FROM pg_stat_activity AS a
WHERE a.wait_event_type = 'Lock' AND a.datname = current_database()
  AND EXISTS (
    SELECT FROM pg_locks AS l
    JOIN pg_class AS c ON c.oid = l.relation
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE l.pid = a.pid AND n.nspname = :schema)
ORDER BY a.query_start LIMIT 5

-- name: has_schema(schema)
SELECT count(*)::bigint FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = :schema AND c.relname = 'migration'

-- name: expired_leases(before)
SELECT coalesce(sum((
    SELECT count(*) FROM fairturn.message AS m
    WHERE m.lane = q.lane AND m.state = 'l' AND m.lease_until <= :before::bigint
      AND NOT EXISTS (SELECT FROM fairturn.permit AS p
                      WHERE p.id = m.permit_id AND p.expires_at > :before::bigint)
)), 0)::bigint FROM fairturn.queue AS q

-- name: backlog(most)
SELECT count(*)::bigint FROM (SELECT FROM fairturn.tally LIMIT :most::bigint) AS t
