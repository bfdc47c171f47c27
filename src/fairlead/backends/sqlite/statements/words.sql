-- Every statement Fairlead sends to SQLite is in the files of this folder; what several of them say
-- alike is here. Two rules hold throughout:
-- * What writes starts with INSERT, UPDATE or DELETE, never with WITH: in your transaction Python's
--   sqlite3 module only opens the transaction for a statement that starts with one of those.
-- * A state is a literal, never a parameter, wherever a partial index must be found.

-- fragment: row
id, channel, body, headers, key, version, type, -rank, due_at, created_at, attempts, deliveries,
memo, lease_until, json | (begun << 3), recovered,
CASE WHEN group_id IS NOT NULL THEN (SELECT g.name FROM fairlead_group g WHERE g.id = group_id) END,
CASE WHEN origin IS NOT NULL THEN (SELECT o.name FROM fairlead_queue o WHERE o.id = origin) END, first_at

-- fragment: peek_row
{row}, state, result, error, finished_at, expires_at, max_attempts, progress, note

-- fragment: settings
lease_us, max_attempts, backoff_initial_us, backoff_factor, backoff_max_us, retention_us,
dead_retention_us, failure_retention_us, dead_letter, max_body, expires_us, paused, events,
limit_concurrency, limit_rate_count, limit_rate_period_us, limit_burst,
max_concurrency, rate_count, rate_period_us, burst, weight, channel_paused, ordered, max_size

-- fragment: policy
max_concurrency, rate_count, rate_period_us, burst, weight, paused, ordered, max_size

-- fragment: counters
sent, delivered, acked, completed, deferred, failed, killed, recovered, released, cancelled,
expired, errors

-- fragment: add_counters
sent = sent + excluded.sent, delivered = delivered + excluded.delivered,
acked = acked + excluded.acked, completed = completed + excluded.completed,
deferred = deferred + excluded.deferred, failed = failed + excluded.failed,
killed = killed + excluded.killed, recovered = recovered + excluded.recovered,
released = released + excluded.released, cancelled = cancelled + excluded.cancelled,
expired = expired + excluded.expired, errors = errors + excluded.errors

-- fragment: sum_counters
coalesce(sum(sent), 0), coalesce(sum(delivered), 0), coalesce(sum(acked), 0),
coalesce(sum(completed), 0), coalesce(sum(deferred), 0), coalesce(sum(failed), 0),
coalesce(sum(killed), 0), coalesce(sum(recovered), 0), coalesce(sum(released), 0),
coalesce(sum(cancelled), 0), coalesce(sum(expired), 0), coalesce(sum(errors), 0)
