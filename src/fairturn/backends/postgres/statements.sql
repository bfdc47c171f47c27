-- Fairturn on PostgreSQL: the statements of the library. Most of them call the functions of schema/routines. Lists
-- of numbers are passed as text: '{1,2,3}' is written and parsed several times faster than a driver's array, and
-- is the same for every driver. The lists of a policy's columns come from fragments.py.

-- fragment: row
m.id, m.channel, m.body, m.headers, m.key, m.version, m.type, -m.rank, m.due_at, m.created_at, m.attempts,
m.deliveries, CASE WHEN m.state = 'l' THEN m.token ELSE 0 END, m.memo, CASE WHEN m.state <> 'h' THEN m.lease_until END,
(m.json | (m.begun::int << 3))::smallint, m.recovered::int,
(SELECT g.name FROM fairturn.group_ g WHERE g.id = m.group_id),
(SELECT o.name FROM fairturn.queue o WHERE o.id = m.origin), m.first_at, m.state::text, m.result, m.error,
m.finished_at, m.expires_at, m.max_attempts, m.progress, m.note

-- name: clock()
SELECT fairturn.now_us()

-- name: schema_exists(schema)
SELECT to_regclass(:schema::text || '.migration') IS NOT NULL

-- name: installed(names)
-- The installed version, and which of these functions are missing.
SELECT coalesce((SELECT max(m.version) FROM fairturn.migration m), 0), coalesce(i.generation, 0),
  coalesce(i.oldest_client, 0), coalesce(i.routines, ''),
  (SELECT string_agg(n, ',') FROM unnest(:names::text::text[]) n WHERE NOT EXISTS (
    SELECT 1 FROM pg_catalog.pg_proc p WHERE p.proname = n::name AND p.pronamespace = 'fairturn'::regnamespace))
FROM (SELECT 1) x LEFT JOIN fairturn.installed i ON true

-- name: lock_migrations(schema)
-- Of two processes that migrate at the same time, one waits for the other.
SELECT 1 FROM (SELECT pg_advisory_xact_lock(hashtextextended('fairturn.migrate.' || :schema::text, 0))) x

-- name: queue_create(queue, settings, now)
SELECT fairturn.queue_create(:queue::text, :settings::text::jsonb, :now::bigint)

-- name: queue_set(queue, settings, now)
SELECT 1 FROM (SELECT fairturn.queue_set(:queue::text, :settings::text::jsonb, :now::bigint)) x

-- name: queues(queue)
SELECT to_jsonb(q)::text, (SELECT x.meta FROM fairturn.queue_meta x WHERE x.queue_id = q.id)
FROM fairturn.queue q WHERE :queue::text IS NULL OR q.name = :queue::text ORDER BY q.name

-- name: queue_purge(queue, reset, now)
SELECT 1 FROM (SELECT fairturn.queue_purge(:queue::text, :reset::int <> 0, :now::bigint)) x

-- name: queue_drop(queue, now)
SELECT fairturn.queue_drop(:queue::text, :now::bigint)

-- name: policy_set(queue, channel, {policy})
SELECT 1 FROM (SELECT fairturn.policy_set(:queue::text, :channel::text, {policy_arguments})) x

-- name: policy_clear(queue, channel)
SELECT fairturn.policy_clear(:queue::text, :channel::text)

-- name: channels(queue, limit)
-- The channels that have unfinished messages or a policy of their own.
SELECT coalesce(c.channel, p.channel), coalesce(c.ready, 0), coalesce(c.scheduled, 0), coalesce(c.leased, 0), {own_policy}
FROM (SELECT m.channel, count(*) FILTER (WHERE m.state = 'r') AS ready,
        count(*) FILTER (WHERE m.state = 's') AS scheduled, count(*) FILTER (WHERE m.state = 'l') AS leased
      FROM fairturn.message m
      WHERE m.lane = (SELECT lane FROM fairturn.queue WHERE name = :queue::text) AND m.state IN ('r', 's', 'l', 'h')
      GROUP BY m.channel) c
FULL JOIN (SELECT * FROM fairturn.policy WHERE queue_id = (SELECT id FROM fairturn.queue WHERE name = :queue::text)) p
  ON p.channel = c.channel
ORDER BY coalesce(c.channel, p.channel) COLLATE "C" LIMIT :limit::int

-- fragment: send_arguments
-- (Each parameter is named once, for drivers that count placeholders.)
:queue::text AS queue, :channel::text AS channel, :body::bytea AS body, :json::int AS json, :rank::int AS rank,
:due::bigint AS due, :delay::bigint AS delay, :version::int AS version, :type::text AS type, :headers::bytea AS headers,
:lease::bigint AS lease, :max_attempts::int AS max_attempts, :expires::bigint AS expires

-- fragment: send_queue
-- `wanted` is the condition of fairturn.wake.
o.id, o.lane, o.expires_us, statement_timestamp() > transaction_timestamp() + interval '5 ms' OR EXISTS (
  SELECT 1 FROM fairturn.listener l WHERE l.queue IN (a.queue, '') AND l.until > a.now) AS wanted

-- fragment: is_plain_send
-- The queue has no max_size and no events, and the body is not too large.
o.name = a.queue AND o.max_size IS NULL AND o.events = 0 AND octet_length(a.body) <= o.max_body
  AND NOT EXISTS (SELECT 1 FROM fairturn.policy p WHERE p.queue_id = o.id AND p.max_size IS NOT NULL)

-- fragment: sent_columns
due_at, created_at, lease_us, expires_at, lane, rank, version, max_attempts, json, state, channel, type, body, headers

-- fragment: sent_values
coalesce(a.due, a.now + a.delay), a.now, a.lease, a.now + coalesce(a.expires, q.expires_us), q.lane, a.rank,
a.version, a.max_attempts, a.json, CASE WHEN coalesce(a.due, a.now + a.delay) <= a.now THEN 'r'::"char" ELSE 's'::"char" END,
a.channel, a.type, a.body, a.headers

-- name: send_plain(queue, channel, body, json, rank, due, delay, version, type, headers, lease, max_attempts, expires, now)
-- One message without a key, in one statement. It returns no row if the send is not plain; then send_one is called.
WITH a AS (SELECT {send_arguments}, fairturn.now_us(:now::bigint) AS now OFFSET 0),
q AS (SELECT {send_queue} FROM fairturn.queue o, a WHERE {is_plain_send}),
m AS (INSERT INTO fairturn.message ({sent_columns}) SELECT {sent_values} FROM q, a RETURNING id),
t AS (INSERT INTO fairturn.tally (queue_id, at, sent) SELECT q.id, a.now, 1 FROM q, a)
SELECT m.id, CASE WHEN q.wanted THEN 's' || pg_notify('fairturn', a.queue)::text ELSE 's' END FROM m, q, a

-- name: send_once(queue, channel, body, json, rank, due, delay, version, type, headers, lease, max_attempts, expires, once, once_us, now)
-- The same with a once name (docs/semantics.md §19). A duplicate is found without a lock. It returns no row if the
-- send is not plain, or if another session took the name while this one waited; then send_rows is called.
WITH a AS (
  SELECT {send_arguments}, :once::text AS once, :once_us::bigint AS once_us, fairturn.now_us(:now::bigint) AS now OFFSET 0
), q AS (
  SELECT {send_queue},
    (SELECT CASE WHEN r.expires_at > a.now THEN r.message_id END FROM fairturn.remembered r
      WHERE r.lane = o.lane AND r.kind = 'o' AND r.name = a.once) AS held
  FROM fairturn.queue o, a WHERE {is_plain_send}
), n AS (
  INSERT INTO fairturn.remembered AS r (lane, kind, name, message_id, expires_at)
  SELECT q.lane, 'o', a.once, nextval('fairturn.message_id'), a.now + a.once_us FROM q, a WHERE q.held IS NULL
  ON CONFLICT (lane, kind, name) DO UPDATE SET message_id = excluded.message_id, expires_at = excluded.expires_at
    WHERE r.expires_at <= (SELECT a.now FROM a)
  RETURNING r.message_id
), m AS (
  INSERT INTO fairturn.message (id, {sent_columns}) SELECT n.message_id, {sent_values} FROM n, q, a RETURNING id
), t AS (
  INSERT INTO fairturn.tally (queue_id, at, sent) SELECT q.id, a.now, 1 FROM m, q, a)
SELECT m.id, CASE WHEN q.wanted OR clock_timestamp() > statement_timestamp() + interval '5 ms' -- it has waited
  THEN 's' || pg_notify('fairturn', a.queue)::text ELSE 's' END FROM m, q, a
UNION ALL SELECT q.held, 'd' FROM q WHERE q.held IS NOT NULL

-- name: send_one(queue, channel, body, json, rank, due, delay, version, type, headers, lease, max_attempts, expires, group, now)
SELECT * FROM fairturn.send_one(:queue::text, :channel::text, :body::bytea, :json::int, :rank::int, :due::bigint,
  :delay::bigint, :version::int, :type::text, :headers::bytea, :lease::bigint, :max_attempts::int,
  :expires::bigint, :group::text, :now::bigint)

-- name: send_rows(queue, channels, bodies, json, ranks, dues, delays, keys, conflicts, versions, types, headers, leases, max_attempts, expires, max_waits, groups, onces, once_us, now)
SELECT * FROM fairturn.send_rows(:queue::text, :channels::text[], :bodies::bytea[], :json::text::int[],
  :ranks::text::int[], :dues::text::bigint[], :delays::text::bigint[], :keys::text[], :conflicts::text,
  :versions::text::int[], :types::text[], :headers::bytea[], :leases::text::bigint[],
  :max_attempts::text::int[], :expires::text::bigint[], :max_waits::text::bigint[], :groups::text[],
  :onces::text[], :once_us::text::bigint[], :now::bigint)

-- name: send_open(queue, n, now)
SELECT lane, now, max_body, expires_us, bulk::int, ids[1], ids[array_upper(ids, 1)], array_to_string(
  CASE WHEN ids[array_upper(ids, 1)] - ids[1] + 1 <> :n::int THEN ids END, ',')
FROM fairturn.send_open(:queue::text, :n::int, :now::bigint)

-- fragment: leased
r.id, r.channel, r.body, r.headers, r.key, r.version, r.type, r.priority, r.due_at, r.created_at, r.attempts,
r.deliveries, r.token, r.memo, r.lease_until, r.json, r.recovered, r.group_name, r.origin, r.first_at

-- fragment: trailer
-- As JSON, which is the same for every driver. NULL in the row of a message.
row_to_json(r.trailer)::text

-- name: receive(queue, n, lease, version, types, min_priority, max_bytes, permit, ack_ids, ack_tokens, channel, credit, versions, hint_channels, hint_ranks, hint_dues, hint_ids, floors, server, sweep, lease_floor, due_floor, own, token, now)
SELECT {leased}, {trailer} FROM fairturn.receive_rows(:queue::text, :n::int, :lease::bigint, :version::int, :types::text[],
  :min_priority::int, :max_bytes::bigint, :permit::bigint, :ack_ids::text::bigint[], :ack_tokens::text::bigint[],
  :channel::text, :credit::int, :versions::text::int[], :hint_channels::text::text[], :hint_ranks::text::int[],
  :hint_dues::text::bigint[], :hint_ids::text::bigint[], :floors::text::jsonb, :server::bigint, :sweep::int <> 0,
  :lease_floor::bigint, :due_floor::bigint, :own::int <> 0, :token::bigint, :now::bigint) r

-- name: receive_next(queue, lease, permit, after, version, token, ack_ids, ack_tokens)
SELECT {leased}, (r.trailer).entries_read, array_to_string((r.trailer).lost, ',')
FROM fairturn.receive_next(:queue::text, :lease::bigint, :permit::bigint,
  :after::text, :version::int, :token::bigint, :ack_ids::text::bigint[], :ack_tokens::text::bigint[]) r

-- name: receive_lone(queue, n, lease, permit, channel, version, rank, due, id, floor, server, token, ack_ids, ack_tokens)
SELECT {leased}, (r.trailer).entries_read, array_to_string((r.trailer).lost, ','), (r.trailer).floors::text,
  (r.trailer).server
FROM fairturn.receive_lone(:queue::text, :n::int, :lease::bigint, :permit::bigint, :channel::text,
  :version::int, :rank::int, :due::bigint, :id::bigint, :floor::bigint, :server::bigint, :token::bigint, :ack_ids::text::bigint[],
  :ack_tokens::text::bigint[]) r

-- name: ack(queue, ids, tokens, strict, now)
SELECT unnest(fairturn.ack_rows(:queue::text, :ids::text::bigint[], :tokens::text::bigint[], :strict::int <> 0, :now::bigint))

-- name: complete(queue, ids, tokens, result, result_json, strict, now)
SELECT unnest(fairturn.complete_rows(:queue::text, :ids::text::bigint[], :tokens::text::bigint[], :result::bytea,
  :result_json::int, :strict::int <> 0, :now::bigint))

-- name: defer(queue, ids, tokens, due, delay, keep_memo, memo, memo_json, strict, now)
SELECT unnest(fairturn.defer_rows(:queue::text, :ids::text::bigint[], :tokens::text::bigint[], :due::bigint,
  :delay::bigint, :keep_memo::int <> 0, :memo::bytea, :memo_json::int, :strict::int <> 0, :now::bigint))

-- name: fail(queue, ids, tokens, error, delay, details, reference, kill, strict, now)
SELECT unnest(fairturn.fail_rows(:queue::text, :ids::text::bigint[], :tokens::text::bigint[], :error::text,
  :delay::bigint, :details::bytea, :reference::text, :kill::int <> 0, :strict::int <> 0, :now::bigint))

-- name: extend(queue, ids, tokens, lease, exact, strict, now)
SELECT array_to_string(lost, ','), lease_until FROM fairturn.extend_rows(:queue::text, :ids::text::bigint[],
  :tokens::text::bigint[], :lease::bigint, :exact::int <> 0, :strict::int <> 0, :now::bigint)

-- name: release(queue, ids, tokens, strict, now)
SELECT unnest(fairturn.release_rows(:queue::text, :ids::text::bigint[], :tokens::text::bigint[], :strict::int <> 0, :now::bigint))

-- name: progress(queue, ids, tokens, progress, note, strict, now)
SELECT unnest(fairturn.progress_rows(:queue::text, :ids::text::bigint[], :tokens::text::bigint[], :progress::int,
  :note::text, :strict::int <> 0, :now::bigint))

-- name: cancel(queue, id, key, force, now)
SELECT fairturn.cancel_row(:queue::text, :id::bigint, :key::text, :force::int <> 0, :now::bigint)

-- name: reschedule(queue, id, key, due, delay, rank, now)
SELECT fairturn.reschedule_row(:queue::text, :id::bigint, :key::text, :due::bigint, :delay::bigint, :rank::int, :now::bigint)

-- name: promote(queue, within, limit, now)
SELECT fairturn.promote(:queue::text, :within::bigint, :limit::int, :now::bigint)

-- name: move(queue, to, limit, now)
SELECT fairturn.move(:queue::text, :to::text, :limit::int, :now::bigint)

-- name: redrive(queue, to, limit, delay, now)
SELECT fairturn.redrive(:queue::text, :to::text, :limit::int, :delay::bigint, :now::bigint)

-- name: discard(queue, state, limit, now)
SELECT fairturn.discard(:queue::text, :state::text, :limit::int, :now::bigint)

-- name: permit_create(name, ttl, now, id)
SELECT fairturn.permit_create(:name::text, :ttl::bigint, :now::bigint, :id::bigint)

-- name: permit_extend(permit, ttl, now)
SELECT fairturn.permit_extend(:permit::bigint, :ttl::bigint, :now::bigint)

-- name: permit_close(permit)
DELETE FROM fairturn.permit WHERE id = :permit::bigint

-- name: permits(now)
SELECT p.id, p.name, p.created_at, p.expires_at,
  (SELECT count(*) FROM fairturn.queue q JOIN fairturn.message m ON m.lane = q.lane
    WHERE m.state = 'l' AND m.permit_id = p.id)
FROM fairturn.permit p WHERE p.expires_at > fairturn.now_us(:now::bigint) ORDER BY p.created_at, p.name, p.id

-- name: get(queue, id, key, now)
-- By id or by key: each branch uses its own index.
SELECT {row} FROM fairturn.message m
WHERE m.lane = (SELECT lane FROM fairturn.queue WHERE name = :queue::text) AND m.id = :id::bigint
  AND (m.expires_at IS NULL OR m.expires_at > fairturn.now_us(:now::bigint))
UNION ALL
SELECT {row} FROM fairturn.message m
WHERE m.lane = (SELECT lane FROM fairturn.queue WHERE name = :queue::text) AND m.key = :key::text
  AND (m.expires_at IS NULL OR m.expires_at > fairturn.now_us(:now::bigint))

-- name: peek(queue, after, state, channel, now, limit)
SELECT {row} FROM fairturn.message m
WHERE m.lane = (SELECT lane FROM fairturn.queue WHERE name = :queue::text) AND m.id > :after::bigint
  AND (:state::text IS NULL OR m.state = :state::text::"char")
  AND (:channel::text IS NULL OR m.channel = :channel::text)
  AND (m.expires_at IS NULL OR m.expires_at > fairturn.now_us(:now::bigint))
ORDER BY m.id LIMIT :limit::int

-- name: stats(queue, now)
SELECT * FROM fairturn.stats(:queue::text, :now::bigint)

-- name: history(queue, since)
SELECT t.minute, sum(t.sent)::bigint, sum(t.delivered)::bigint, sum(t.acked)::bigint, sum(t.completed)::bigint,
  sum(t.deferred)::bigint, sum(t.failed)::bigint, sum(t.killed)::bigint, sum(t.recovered)::bigint,
  sum(t.released)::bigint, sum(t.cancelled)::bigint, sum(t.expired)::bigint, sum(t.errors)::bigint
FROM fairturn.counted() t
WHERE t.queue_id = (SELECT id FROM fairturn.queue WHERE name = :queue::text) AND t.minute > 0 AND t.minute >= :since::bigint
GROUP BY t.minute ORDER BY t.minute

-- name: facts(queue, id, key, now)
-- Everything that `explain` needs, from one snapshot.
SELECT {row}, n.now, to_jsonb(q)::text,
  {effective_policy},
  (SELECT count(*) FROM fairturn.message a WHERE a.lane = m.lane AND a.state = 'r' AND a.channel = m.channel
    AND (a.rank, a.due_at, a.id) < (m.rank, m.due_at, m.id)),
  (SELECT count(*) FROM fairturn.message l WHERE l.lane = m.lane AND l.state = 'l' AND l.channel = m.channel),
  (SELECT count(*) FROM fairturn.message l WHERE l.lane = m.lane AND l.state = 'l'),
  (SELECT min(l.lease_until) FROM fairturn.message l WHERE l.lane = m.lane AND l.state = 'l' AND l.channel = m.channel),
  coalesce((SELECT g.tat FROM fairturn.gate g WHERE g.queue_id = q.id AND g.channel = m.channel), 0),
  coalesce((SELECT g.tat FROM fairturn.queue_gate g WHERE g.queue_id = q.id), 0),
  CASE WHEN coalesce(p.ordered, q.ordered) <> 0 THEN coalesce(
    (SELECT min(b.id) FROM fairturn.message b WHERE b.lane = m.lane AND b.channel = m.channel AND b.id <> m.id
      AND b.state = 'l'),
    (SELECT min(b.id) FROM fairturn.message b WHERE b.lane = m.lane AND b.channel = m.channel AND b.id <> m.id
      AND b.begun AND b.state = 's'),
    (SELECT min(b.id) FROM fairturn.message b WHERE b.lane = m.lane AND b.channel = m.channel AND b.id <> m.id
      AND b.begun AND b.state = 'r' AND NOT m.begun)) END
FROM fairturn.queue_row(:queue::text) q
CROSS JOIN (SELECT fairturn.now_us(:now::bigint) AS now) n
JOIN fairturn.message m ON m.lane = q.lane AND (m.id = :id::bigint OR m.key = :key::text)
LEFT JOIN fairturn.policy p ON p.queue_id = q.id AND p.channel = m.channel
WHERE m.expires_at IS NULL OR m.expires_at > n.now

-- name: failures(queue, id, key, limit)
SELECT q.name, f.message_id, f.key, f.attempt, f.at, f.error, f.details, f.reference
FROM fairturn.queue_row(:queue::text) q JOIN fairturn.failure f ON f.queue_id = q.id
WHERE (:id::bigint IS NULL OR f.message_id = :id::bigint) AND (:key::text IS NULL OR f.key = :key::text)
ORDER BY f.id DESC LIMIT :limit::int

-- name: trace(key)
SELECT * FROM (
  SELECT m.created_at, q.name, 'message', m.id, m.state::text, ''
  FROM fairturn.queue q JOIN fairturn.message m ON m.lane = q.lane AND m.key = :key::text
  UNION ALL
  SELECT f.at, q.name, 'error', f.message_id, CASE WHEN f.killed THEN 'x' ELSE 'r' END, f.error
  FROM fairturn.failure f JOIN fairturn.queue q ON q.id = f.queue_id WHERE f.key = :key::text) t
ORDER BY 1, 4

-- name: group_make(name, queue, on_dead, works, channels, bodies, json, ranks, dues, delays, keys, versions, types, headers, leases, max_attempts, now)
SELECT fairturn.group_make(:name::text, :queue::text, :on_dead::text, :works::text, :channels::text[], :bodies::bytea[],
  :json::text::int[], :ranks::text::int[], :dues::text::bigint[], :delays::text::bigint[], :keys::text[],
  :versions::text::int[], :types::text[], :headers::bytea[], :leases::text::bigint[], :max_attempts::text::int[],
  :now::bigint)

-- name: group_start(name, now)
SELECT fairturn.group_start(:name::text, :now::bigint)

-- name: group_cancel(name, now)
SELECT fairturn.group_cancel(:name::text, :now::bigint)

-- name: group_status(name, limit)
SELECT * FROM fairturn.group_status(:name::text, :limit::int)

-- name: settle(limit, now)
SELECT fairturn.settle(:limit::int, :now::bigint)

-- name: policies(queues, channels, clear, {policy})
-- Set or clear many policies, in the given order, so that two calls with the same channels never deadlock.
SELECT count(*) FROM (SELECT CASE WHEN x.clear <> 0 THEN fairturn.policy_clear(x.queue, x.channel)::text
    ELSE fairturn.policy_set(x.queue, x.channel, {each_policy_arguments})::text END
  FROM unnest(:queues::text[], :channels::text[], :clear::text::int[], {policy_arrays})
    x(queue, channel, clear, {policy}) OFFSET 0) y

-- fragment: schedule
name, revision, queue, spec, missed, overlap, owner, paused, next_at, look_at, last_at, error, created_at, updated_at,
json, body, options

-- name: schedule(name, now)
SELECT fairturn.now_us(:now::bigint), {schedule} FROM fairturn.schedule WHERE name = :name::text

-- name: schedule_lock(name, now)
SELECT fairturn.now_us(:now::bigint), {schedule} FROM fairturn.schedule WHERE name = :name::text FOR UPDATE

-- name: schedules()
SELECT {schedule} FROM fairturn.schedule ORDER BY name

-- name: schedules_due(after_at, after_name, limit, now)
-- At least one row: the clock, and when the next of the other schedules is to be checked.
SELECT n.now, (SELECT min(l.look_at) FROM fairturn.schedule l WHERE l.look_at > n.now), {schedule}
FROM (SELECT fairturn.now_us(:now::bigint) AS now OFFSET 0) n
LEFT JOIN LATERAL (SELECT * FROM fairturn.schedule d
  WHERE d.look_at <= n.now AND (d.look_at, d.name) > (:after_at::bigint, :after_name::text)
  ORDER BY d.look_at, d.name LIMIT :limit::int) s ON true
ORDER BY s.look_at, s.name

-- name: schedule_add({schedule})
INSERT INTO fairturn.schedule ({schedule})
VALUES (:name::text, :revision::bigint, :queue::text, :spec::text, :missed::text, :overlap::text, :owner::text,
  :paused::int, :next_at::bigint, :look_at::bigint, :last_at::bigint, :error::text, :created_at::bigint,
  :updated_at::bigint, :json::int, :body::bytea, :options::text)
ON CONFLICT (name) DO NOTHING RETURNING 1

-- name: schedule_change(name, queue, spec, missed, overlap, owner, paused, next_at, look_at, last_at, error, updated_at, json, body, options)
UPDATE fairturn.schedule SET revision = revision + 1, queue = :queue::text, spec = :spec::text, missed = :missed::text,
  overlap = :overlap::text, owner = :owner::text, paused = :paused::int, next_at = :next_at::bigint,
  look_at = :look_at::bigint, last_at = :last_at::bigint, error = :error::text, updated_at = :updated_at::bigint,
  json = :json::int, body = :body::bytea, options = :options::text
WHERE name = :name::text

-- name: schedule_remove(name)
DELETE FROM fairturn.schedule WHERE name = :name::text RETURNING 1

-- name: schedule_fire(name, revision, next_at, tick, queue, channels, bodies, json, ranks, dues, delays, keys, conflicts, versions, types, headers, leases, max_attempts, expires, max_waits, groups, now)
SELECT fairturn.schedule_fire(:name::text, :revision::bigint, :next_at::bigint, :tick::bigint, :queue::text,
  :channels::text[], :bodies::bytea[], :json::text::int[], :ranks::text::int[], :dues::text::bigint[],
  :delays::text::bigint[], :keys::text[], :conflicts::text, :versions::text::int[], :types::text[], :headers::bytea[],
  :leases::text::bigint[], :max_attempts::text::int[], :expires::text::bigint[], :max_waits::text::bigint[],
  :groups::text[], :now::bigint)

-- name: schedule_fail(name, revision, error, look_at)
UPDATE fairturn.schedule SET revision = revision + 1, error = :error::text, look_at = :look_at::bigint
WHERE name = :name::text AND revision = :revision::bigint AND paused = 0

-- name: remember(queue, name, value, keep, now)
SELECT 1 FROM (SELECT fairturn.remember_row(:queue::text, :name::text, :value::bytea, :keep::bigint, :now::bigint)) x

-- name: recall(queue, name, now)
-- (The expiry is not in WHERE: the planner might use its index instead.)
SELECT (SELECT CASE WHEN r.expires_at > fairturn.now_us(:now::bigint) THEN r.value END FROM fairturn.remembered r
  WHERE r.lane = q.lane AND r.kind = 'v' AND r.name = :name::text)
FROM fairturn.queue_row(:queue::text) q

-- name: outcomes(queue, ids, keys, now)
-- A message that died here and moved to the dead-letter queue is still reported as dead.
WITH a AS (SELECT q.id, q.lane, :ids::text::bigint[] AS ids, :keys::text[] AS keys, fairturn.now_us(:now::bigint) AS now
           FROM fairturn.queue_row(:queue::text) q)
SELECT m.id, m.key, CASE WHEN m.lane = a.lane THEN m.state::text ELSE 'x' END, m.json, m.result, m.error, m.progress, m.note
FROM a, fairturn.message m
WHERE m.id = ANY (a.ids) AND (m.lane = a.lane OR (m.origin = a.id AND EXISTS (
    SELECT 1 FROM fairturn.queue t WHERE t.lane = m.lane))) AND (m.expires_at IS NULL OR m.expires_at > a.now)
UNION ALL
SELECT m.id, m.key, m.state::text, m.json, m.result, m.error, m.progress, m.note
FROM a, fairturn.message m
WHERE m.lane = a.lane AND m.key = ANY (a.keys) AND m.id <> ALL (a.ids) AND (m.expires_at IS NULL OR m.expires_at > a.now)

-- name: events_now(queue)
SELECT coalesce(tx, '0')::text, coalesce(id, 0), at, since::text, timeline FROM fairturn.events_now(:queue::text)

-- name: events(tx, id, limit, queue, kinds, at, since, timeline)
SELECT tx::text, id, at, kind, queue, message_id, key, channel, delay_us, data
FROM fairturn.events(:tx::text::xid8, :id::bigint, :limit::int, :queue::text, :kinds::text[], :at::bigint,
  :since::text::pg_snapshot, :timeline::text)

-- name: sleep(queue, who, us)
SELECT 1 FROM (SELECT fairturn.sleep(:queue::text, :who::int, :us::bigint)) x

-- name: maintain(limit, now)
SELECT activated, recovered, killed, purged, more::int FROM fairturn.maintain(:limit::int, :now::bigint)
