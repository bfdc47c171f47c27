-- Fairlead on PostgreSQL: what the library sends. The operations themselves are functions (schema/);
-- these statements call them, or only read. Lists of numbers cross as text: '{1,2,3}' is dumped and
-- parsed several times faster than a driver's array, and looks the same to every driver.

-- fragment: row
m.id, m.channel, m.body, m.headers, m.key, m.version, m.type, -m.rank, m.due_at, m.created_at, m.attempts,
m.deliveries, m.memo, CASE WHEN m.state <> 'h' THEN m.lease_until END, (m.json | (m.begun::int << 3))::smallint, m.recovered::int,
(SELECT g.name FROM fairlead.group_ g WHERE g.id = m.group_id),
(SELECT o.name FROM fairlead.queue o WHERE o.id = m.origin), m.first_at, m.state::text, m.result, m.error,
m.finished_at, m.expires_at, m.max_attempts, m.progress, m.note

-- fragment: policy
p.max_concurrency, p.rate_count, p.rate_period_us, p.burst, p.weight, p.paused, p.ordered, p.max_size

-- name: clock()
-- The database's clock.
SELECT fairlead.now_us()

-- name: schema_exists(schema)
SELECT to_regclass(:schema::text || '.migration') IS NOT NULL

-- name: applied()
-- Which migrations are there, and the oldest client the newest of them serves.
SELECT version, oldest_client FROM fairlead.migration ORDER BY version

-- name: lock_migrations(schema)
-- Two processes that migrate at once: one waits for the other.
SELECT 1 FROM (SELECT pg_advisory_xact_lock(hashtextextended('fairlead.migrate.' || :schema::text, 0))) x

-- name: queue_create(queue, settings, now)
SELECT fairlead.queue_create(:queue::text, :settings::text::jsonb, :now::bigint)

-- name: queue_set(queue, settings, now)
SELECT 1 FROM (SELECT fairlead.queue_set(:queue::text, :settings::text::jsonb, :now::bigint)) x

-- name: queues(queue)
SELECT to_jsonb(q)::text, (SELECT x.meta FROM fairlead.queue_meta x WHERE x.queue_id = q.id)
FROM fairlead.queue q WHERE :queue::text IS NULL OR q.name = :queue::text ORDER BY q.name

-- name: queue_purge(queue, reset, now)
SELECT 1 FROM (SELECT fairlead.queue_purge(:queue::text, :reset::int <> 0, :now::bigint)) x

-- name: queue_drop(queue, now)
SELECT fairlead.queue_drop(:queue::text, :now::bigint)

-- name: policy_set(queue, channel, max_concurrency, rate_count, rate_period_us, burst, weight, paused, ordered, max_size)
SELECT 1 FROM (SELECT fairlead.policy_set(:queue::text, :channel::text, :max_concurrency::int, :rate_count::bigint,
  :rate_period_us::bigint, :burst::int, :weight::int, :paused::int <> 0, :ordered::int <> 0, :max_size::int)) x

-- name: policy_clear(queue, channel)
SELECT fairlead.policy_clear(:queue::text, :channel::text)

-- name: channels(queue, limit)
-- Channels with unfinished messages or a policy of their own.
SELECT coalesce(c.channel, p.channel), coalesce(c.ready, 0), coalesce(c.scheduled, 0), coalesce(c.leased, 0), {policy}
FROM (SELECT m.channel, count(*) FILTER (WHERE m.state = 'r') AS ready,
        count(*) FILTER (WHERE m.state = 's') AS scheduled, count(*) FILTER (WHERE m.state = 'l') AS leased
      FROM fairlead.message m
      WHERE m.lane = (SELECT lane FROM fairlead.queue WHERE name = :queue::text) AND m.state IN ('r', 's', 'l', 'h')
      GROUP BY m.channel) c
FULL JOIN (SELECT * FROM fairlead.policy WHERE queue_id = (SELECT id FROM fairlead.queue WHERE name = :queue::text)) p
  ON p.channel = c.channel
ORDER BY coalesce(c.channel, p.channel) COLLATE "C" LIMIT :limit::int

-- name: send_plain(queue, channel, body, json, rank, due, delay, version, type, headers, lease, max_attempts, expires, now)
-- One message without a key into a queue that counts no sizes: one statement. No row back means that
-- send_one has to say why not. (Each parameter is named once, for drivers that count placeholders.)
WITH a AS (
  SELECT :queue::text AS queue, :channel::text AS channel, :body::bytea AS body, :json::int AS json, :rank::int AS rank,
    :due::bigint AS due, :delay::bigint AS delay, :version::int AS version, :type::text AS type, :headers::bytea AS headers,
    :lease::bigint AS lease, :max_attempts::int AS max_attempts, :expires::bigint AS expires,
    fairlead.now_us(:now::bigint) AS now OFFSET 0
), q AS (
  SELECT o.id, o.lane, o.expires_us, statement_timestamp() > transaction_timestamp() + interval '5 ms' OR EXISTS (
    SELECT 1 FROM fairlead.sleeper s WHERE s.queue IN (a.queue, '') AND s.until > a.now) AS wanted
  FROM fairlead.queue o, a
  WHERE o.name = a.queue AND o.max_size IS NULL AND o.events = 0 AND octet_length(a.body) <= o.max_body
    AND NOT EXISTS (SELECT 1 FROM fairlead.policy p WHERE p.queue_id = o.id AND p.max_size IS NOT NULL)
), m AS (
  INSERT INTO fairlead.message (due_at, created_at, lease_us, expires_at, lane, rank, version, max_attempts, json,
      state, channel, type, body, headers)
  SELECT coalesce(a.due, a.now + a.delay), a.now, a.lease, a.now + coalesce(a.expires, q.expires_us), q.lane, a.rank,
    a.version, a.max_attempts, a.json,
    CASE WHEN coalesce(a.due, a.now + a.delay) <= a.now THEN 'r'::"char" ELSE 's'::"char" END, a.channel, a.type, a.body,
    a.headers
  FROM q, a RETURNING id
), t AS (
  INSERT INTO fairlead.tally (queue_id, at, sent) SELECT q.id, a.now, 1 FROM q, a)
SELECT m.id, CASE WHEN q.wanted THEN 's' || pg_notify('fairlead', a.queue)::text ELSE 's' END FROM m, q, a

-- name: send_once(queue, channel, body, json, rank, due, delay, version, type, headers, lease, max_attempts, expires, once, once_us, now)
-- The same with a name (docs/semantics.md §19): a duplicate is answered from a look, without a lock. No row
-- back: send_rows has to say why not; perhaps somebody else came first while this waited.
WITH a AS (
  SELECT :queue::text AS queue, :channel::text AS channel, :body::bytea AS body, :json::int AS json, :rank::int AS rank,
    :due::bigint AS due, :delay::bigint AS delay, :version::int AS version, :type::text AS type, :headers::bytea AS headers,
    :lease::bigint AS lease, :max_attempts::int AS max_attempts, :expires::bigint AS expires, :once::text AS once,
    :once_us::bigint AS once_us, fairlead.now_us(:now::bigint) AS now OFFSET 0
), q AS (
  SELECT o.id, o.lane, o.expires_us, statement_timestamp() > transaction_timestamp() + interval '5 ms' OR EXISTS (
      SELECT 1 FROM fairlead.sleeper s WHERE s.queue IN (a.queue, '') AND s.until > a.now) AS wanted,
    (SELECT CASE WHEN r.expires_at > a.now THEN r.message_id END FROM fairlead.remembered r
      WHERE r.lane = o.lane AND r.kind = 'o' AND r.name = a.once) AS held
  FROM fairlead.queue o, a
  WHERE o.name = a.queue AND o.max_size IS NULL AND o.events = 0 AND octet_length(a.body) <= o.max_body
    AND NOT EXISTS (SELECT 1 FROM fairlead.policy p WHERE p.queue_id = o.id AND p.max_size IS NOT NULL)
), n AS (
  INSERT INTO fairlead.remembered AS r (lane, kind, name, message_id, expires_at)
  SELECT q.lane, 'o', a.once, nextval('fairlead.message_id'), a.now + a.once_us FROM q, a WHERE q.held IS NULL
  ON CONFLICT (lane, kind, name) DO UPDATE SET message_id = excluded.message_id, expires_at = excluded.expires_at
    WHERE r.expires_at <= (SELECT a.now FROM a)
  RETURNING r.message_id
), m AS (
  INSERT INTO fairlead.message (id, due_at, created_at, lease_us, expires_at, lane, rank, version, max_attempts, json,
      state, channel, type, body, headers)
  SELECT n.message_id, coalesce(a.due, a.now + a.delay), a.now, a.lease, a.now + coalesce(a.expires, q.expires_us), q.lane,
    a.rank, a.version, a.max_attempts, a.json,
    CASE WHEN coalesce(a.due, a.now + a.delay) <= a.now THEN 'r'::"char" ELSE 's'::"char" END, a.channel, a.type, a.body,
    a.headers
  FROM n, q, a RETURNING id
), t AS (
  INSERT INTO fairlead.tally (queue_id, at, sent) SELECT q.id, a.now, 1 FROM m, q, a)
SELECT m.id, CASE WHEN q.wanted OR clock_timestamp() > statement_timestamp() + interval '5 ms' -- it has waited
  THEN 's' || pg_notify('fairlead', a.queue)::text ELSE 's' END FROM m, q, a
UNION ALL SELECT q.held, 'd' FROM q WHERE q.held IS NOT NULL

-- name: send_one(queue, channel, body, json, rank, due, delay, version, type, headers, lease, max_attempts, expires, group, now)
SELECT * FROM fairlead.send_one(:queue::text, :channel::text, :body::bytea, :json::int, :rank::int, :due::bigint,
  :delay::bigint, :version::int, :type::text, :headers::bytea, :lease::bigint, :max_attempts::int,
  :expires::bigint, :group::text, :now::bigint)

-- name: send_rows(queue, channels, bodies, json, ranks, dues, delays, keys, conflicts, versions, types, headers, leases, max_attempts, expires, max_waits, groups, onces, once_us, now)
SELECT * FROM fairlead.send_rows(:queue::text, :channels::text[], :bodies::bytea[], :json::text::int[],
  :ranks::text::int[], :dues::text::bigint[], :delays::text::bigint[], :keys::text[], :conflicts::text,
  :versions::text::int[], :types::text[], :headers::bytea[], :leases::text::bigint[],
  :max_attempts::text::int[], :expires::text::bigint[], :max_waits::text::bigint[], :groups::text[],
  :onces::text[], :once_us::text::bigint[], :now::bigint)

-- name: send_open(queue, n, now)
SELECT lane, now, max_body, expires_us, bulk::int, ids[1], ids[array_upper(ids, 1)], array_to_string(
  CASE WHEN ids[array_upper(ids, 1)] - ids[1] + 1 <> :n::int THEN ids END, ',')
FROM fairlead.send_open(:queue::text, :n::int, :now::bigint)

-- name: receive(queue, n, lease, version, types, min_priority, max_bytes, permit, ack_ids, ack_deliveries, channel, credit, versions, hint_channels, hint_ranks, hint_dues, hint_ids, floors, sweep, lease_floor, due_floor, own, now)
SELECT * FROM fairlead.receive_rows(:queue::text, :n::int, :lease::bigint, :version::int, :types::text[],
  :min_priority::int, :max_bytes::bigint, :permit::bigint, :ack_ids::text::bigint[], :ack_deliveries::text::int[],
  :channel::text, :credit::int, :versions::text::int[], :hint_channels::text::text[], :hint_ranks::text::int[],
  :hint_dues::text::bigint[], :hint_ids::text::bigint[], :floors::text::jsonb, :sweep::int <> 0,
  :lease_floor::bigint, :due_floor::bigint, :own::int <> 0, :now::bigint)

-- name: receive_next(queue, lease, permit, after, version, ack_ids, ack_deliveries)
SELECT (r.given).*, r.lost, r.read FROM fairlead.receive_next(:queue::text, :lease::bigint, :permit::bigint,
  :after::text, :version::int, :ack_ids::text::bigint[], :ack_deliveries::text::int[]) r

-- name: receive_lone(queue, n, lease, permit, channel, version, rank, due, id, floor, ack_ids, ack_deliveries)
SELECT * FROM fairlead.receive_lone(:queue::text, :n::int, :lease::bigint, :permit::bigint, :channel::text,
  :version::int, :rank::int, :due::bigint, :id::bigint, :floor::bigint, :ack_ids::text::bigint[],
  :ack_deliveries::text::int[])

-- name: ack(queue, ids, deliveries, strict, now)
SELECT unnest(fairlead.ack_rows(:queue::text, :ids::text::bigint[], :deliveries::text::int[], :strict::int <> 0, :now::bigint))

-- name: complete(queue, ids, deliveries, result, result_json, strict, now)
SELECT unnest(fairlead.complete_rows(:queue::text, :ids::text::bigint[], :deliveries::text::int[], :result::bytea,
  :result_json::int, :strict::int <> 0, :now::bigint))

-- name: defer(queue, ids, deliveries, due, delay, keep_memo, memo, memo_json, strict, now)
SELECT unnest(fairlead.defer_rows(:queue::text, :ids::text::bigint[], :deliveries::text::int[], :due::bigint,
  :delay::bigint, :keep_memo::int <> 0, :memo::bytea, :memo_json::int, :strict::int <> 0, :now::bigint))

-- name: fail(queue, ids, deliveries, error, delay, details, reference, kill, strict, now)
SELECT unnest(fairlead.fail_rows(:queue::text, :ids::text::bigint[], :deliveries::text::int[], :error::text,
  :delay::bigint, :details::bytea, :reference::text, :kill::int <> 0, :strict::int <> 0, :now::bigint))

-- name: extend(queue, ids, deliveries, lease, exact, strict, now)
SELECT array_to_string(lost, ','), lease_until FROM fairlead.extend_rows(:queue::text, :ids::text::bigint[],
  :deliveries::text::int[], :lease::bigint, :exact::int <> 0, :strict::int <> 0, :now::bigint)

-- name: release(queue, ids, deliveries, strict, now)
SELECT unnest(fairlead.release_rows(:queue::text, :ids::text::bigint[], :deliveries::text::int[], :strict::int <> 0, :now::bigint))

-- name: progress(queue, ids, deliveries, progress, note, strict, now)
SELECT unnest(fairlead.progress_rows(:queue::text, :ids::text::bigint[], :deliveries::text::int[], :progress::int,
  :note::text, :strict::int <> 0, :now::bigint))

-- name: cancel(queue, id, key, force, now)
SELECT fairlead.cancel_row(:queue::text, :id::bigint, :key::text, :force::int <> 0, :now::bigint)

-- name: reschedule(queue, id, key, due, delay, rank, now)
SELECT fairlead.reschedule_row(:queue::text, :id::bigint, :key::text, :due::bigint, :delay::bigint, :rank::int, :now::bigint)

-- name: promote(queue, within, limit, now)
SELECT fairlead.promote(:queue::text, :within::bigint, :limit::int, :now::bigint)

-- name: move(queue, to, limit, now)
SELECT fairlead.move(:queue::text, :to::text, :limit::int, :now::bigint)

-- name: redrive(queue, to, limit, delay, now)
SELECT fairlead.redrive(:queue::text, :to::text, :limit::int, :delay::bigint, :now::bigint)

-- name: discard(queue, state, limit, now)
SELECT fairlead.discard(:queue::text, :state::text, :limit::int, :now::bigint)

-- name: permit_create(name, ttl, now)
SELECT fairlead.permit_create(:name::text, :ttl::bigint, :now::bigint)

-- name: permit_extend(permit, ttl, now)
SELECT fairlead.permit_extend(:permit::bigint, :ttl::bigint, :now::bigint)

-- name: permit_close(permit)
DELETE FROM fairlead.permit WHERE id = :permit::bigint

-- name: permits(now)
SELECT p.id, p.name, p.created_at, p.expires_at,
  (SELECT count(*) FROM fairlead.queue q JOIN fairlead.message m ON m.lane = q.lane
    WHERE m.state = 'l' AND m.permit_id = p.id)
FROM fairlead.permit p WHERE p.expires_at > fairlead.now_us(:now::bigint) ORDER BY p.id

-- name: get(queue, id, key, now)
-- By id or by key: each branch has its own index.
SELECT {row} FROM fairlead.message m
WHERE m.lane = (SELECT lane FROM fairlead.queue WHERE name = :queue::text) AND m.id = :id::bigint
  AND (m.expires_at IS NULL OR m.expires_at > fairlead.now_us(:now::bigint))
UNION ALL
SELECT {row} FROM fairlead.message m
WHERE m.lane = (SELECT lane FROM fairlead.queue WHERE name = :queue::text) AND m.key = :key::text
  AND (m.expires_at IS NULL OR m.expires_at > fairlead.now_us(:now::bigint))

-- name: peek(queue, after, state, channel, now, limit)
SELECT {row} FROM fairlead.message m
WHERE m.lane = (SELECT lane FROM fairlead.queue WHERE name = :queue::text) AND m.id > :after::bigint
  AND (:state::text IS NULL OR m.state = :state::text::"char")
  AND (:channel::text IS NULL OR m.channel = :channel::text)
  AND (m.expires_at IS NULL OR m.expires_at > fairlead.now_us(:now::bigint))
ORDER BY m.id LIMIT :limit::int

-- name: stats(queue, now)
SELECT * FROM fairlead.stats(:queue::text, :now::bigint)

-- name: history(queue, since)
SELECT t.minute, sum(t.sent)::bigint, sum(t.delivered)::bigint, sum(t.acked)::bigint, sum(t.completed)::bigint,
  sum(t.deferred)::bigint, sum(t.failed)::bigint, sum(t.killed)::bigint, sum(t.recovered)::bigint,
  sum(t.released)::bigint, sum(t.cancelled)::bigint, sum(t.expired)::bigint, sum(t.errors)::bigint
FROM (
  SELECT minute, sent, delivered, acked, completed, deferred, failed, killed, recovered, released, cancelled,
    expired, errors FROM fairlead.history h WHERE h.queue_id = (SELECT id FROM fairlead.queue WHERE name = :queue::text) AND minute > 0
  UNION ALL
  SELECT at / 60000000 * 60000000, coalesce(sent, 0), coalesce(delivered, 0), coalesce(acked, 0),
    coalesce(completed, 0), coalesce(deferred, 0), coalesce(failed, 0), coalesce(killed, 0),
    coalesce(recovered, 0), coalesce(released, 0), coalesce(cancelled, 0), coalesce(expired, 0), coalesce(errors, 0)
  FROM fairlead.tally y WHERE y.queue_id = (SELECT id FROM fairlead.queue WHERE name = :queue::text)) t
WHERE t.minute >= :since::bigint
GROUP BY t.minute ORDER BY t.minute

-- name: facts(queue, id, key, now)
-- Everything explain needs, from one snapshot.
SELECT {row}, n.now, to_jsonb(q)::text,
  CASE WHEN p.queue_id IS NULL THEN q.max_concurrency ELSE p.max_concurrency END,
  CASE WHEN p.queue_id IS NULL THEN q.rate_count ELSE p.rate_count END,
  CASE WHEN p.queue_id IS NULL THEN q.rate_period_us ELSE p.rate_period_us END,
  coalesce(p.burst, q.burst), coalesce(p.weight, q.weight), coalesce(p.paused, q.channel_paused),
  coalesce(p.ordered, q.ordered), CASE WHEN p.queue_id IS NULL THEN q.max_size ELSE p.max_size END,
  (SELECT count(*) FROM fairlead.message a WHERE a.lane = m.lane AND a.state = 'r' AND a.channel = m.channel
    AND (a.rank, a.due_at, a.id) < (m.rank, m.due_at, m.id)),
  (SELECT count(*) FROM fairlead.message l WHERE l.lane = m.lane AND l.state = 'l' AND l.channel = m.channel),
  (SELECT count(*) FROM fairlead.message l WHERE l.lane = m.lane AND l.state = 'l'),
  (SELECT min(l.lease_until) FROM fairlead.message l WHERE l.lane = m.lane AND l.state = 'l' AND l.channel = m.channel),
  coalesce((SELECT g.tat FROM fairlead.gate g WHERE g.queue_id = q.id AND g.channel = m.channel), 0),
  coalesce((SELECT g.tat FROM fairlead.queue_gate g WHERE g.queue_id = q.id), 0),
  CASE WHEN coalesce(p.ordered, q.ordered) <> 0 THEN coalesce(
    (SELECT min(b.id) FROM fairlead.message b WHERE b.lane = m.lane AND b.channel = m.channel AND b.id <> m.id
      AND b.state = 'l'),
    (SELECT min(b.id) FROM fairlead.message b WHERE b.lane = m.lane AND b.channel = m.channel AND b.id <> m.id
      AND b.begun AND b.state = 's'),
    (SELECT min(b.id) FROM fairlead.message b WHERE b.lane = m.lane AND b.channel = m.channel AND b.id <> m.id
      AND b.begun AND b.state = 'r' AND NOT m.begun)) END
FROM fairlead.queue_row(:queue::text) q
CROSS JOIN (SELECT fairlead.now_us(:now::bigint) AS now) n
JOIN fairlead.message m ON m.lane = q.lane AND (m.id = :id::bigint OR m.key = :key::text)
LEFT JOIN fairlead.policy p ON p.queue_id = q.id AND p.channel = m.channel
WHERE m.expires_at IS NULL OR m.expires_at > n.now

-- name: failures(queue, id, key, limit)
SELECT q.name, f.message_id, f.key, f.attempt, f.at, f.error, f.details, f.reference
FROM fairlead.queue_row(:queue::text) q JOIN fairlead.failure f ON f.queue_id = q.id
WHERE (:id::bigint IS NULL OR f.message_id = :id::bigint) AND (:key::text IS NULL OR f.key = :key::text)
ORDER BY f.id DESC LIMIT :limit::int

-- name: trace(key)
SELECT * FROM (
  SELECT m.created_at, q.name, 'message', m.id, m.state::text, ''
  FROM fairlead.queue q JOIN fairlead.message m ON m.lane = q.lane AND m.key = :key::text
  UNION ALL
  SELECT f.at, q.name, 'error', f.message_id, CASE WHEN f.killed THEN 'x' ELSE 'r' END, f.error
  FROM fairlead.failure f JOIN fairlead.queue q ON q.id = f.queue_id WHERE f.key = :key::text) t
ORDER BY 1, 4

-- name: group_make(name, queue, on_dead, works, channels, bodies, json, ranks, dues, delays, keys, versions, types, headers, leases, max_attempts, now)
SELECT fairlead.group_make(:name::text, :queue::text, :on_dead::text, :works::text, :channels::text[], :bodies::bytea[],
  :json::text::int[], :ranks::text::int[], :dues::text::bigint[], :delays::text::bigint[], :keys::text[],
  :versions::text::int[], :types::text[], :headers::bytea[], :leases::text::bigint[], :max_attempts::text::int[],
  :now::bigint)

-- name: group_start(name, now)
SELECT fairlead.group_start(:name::text, :now::bigint)

-- name: group_cancel(name, now)
SELECT fairlead.group_cancel(:name::text, :now::bigint)

-- name: group_status(name, limit)
SELECT * FROM fairlead.group_status(:name::text, :limit::int)

-- name: settle(limit, now)
SELECT fairlead.settle(:limit::int, :now::bigint)

-- name: policies(queues, channels, clear, max_concurrency, rate_count, rate_period_us, burst, weight, paused, ordered, max_size)
-- Set or clear many, in the order given: whoever changes the same channels waits, and not in a circle.
SELECT count(*) FROM (SELECT CASE WHEN x.clear <> 0 THEN fairlead.policy_clear(x.queue, x.channel)::text
    ELSE fairlead.policy_set(x.queue, x.channel, x.most, x.count, x.period, x.burst, x.weight, x.paused <> 0,
      x.ordered <> 0, x.size)::text END
  FROM unnest(:queues::text[], :channels::text[], :clear::text::int[], :max_concurrency::text::int[],
    :rate_count::text::bigint[], :rate_period_us::text::bigint[], :burst::text::int[], :weight::text::int[],
    :paused::text::int[], :ordered::text::int[], :max_size::text::int[])
    x(queue, channel, clear, most, count, period, burst, weight, paused, ordered, size) OFFSET 0) y

-- fragment: schedule
s.name, s.revision, s.queue, s.spec, s.missed, s.overlap, s.owner, s.paused, s.next_at, s.look_at, s.last_at, s.error,
s.created_at, s.updated_at, s.json, s.body, s.options

-- name: schedule(name, now)
SELECT fairlead.now_us(:now::bigint), {schedule} FROM fairlead.schedule s WHERE s.name = :name::text

-- name: schedule_lock(name, now)
SELECT fairlead.now_us(:now::bigint), {schedule} FROM fairlead.schedule s WHERE s.name = :name::text FOR UPDATE

-- name: schedules()
SELECT {schedule} FROM fairlead.schedule s ORDER BY s.name

-- name: schedules_due(after_at, after_name, limit, now)
-- One row at least: the clock, and when the next of the others is to be looked at.
SELECT n.now, (SELECT min(l.look_at) FROM fairlead.schedule l WHERE l.look_at > n.now), {schedule}
FROM (SELECT fairlead.now_us(:now::bigint) AS now OFFSET 0) n
LEFT JOIN LATERAL (SELECT * FROM fairlead.schedule d
  WHERE d.look_at <= n.now AND (d.look_at, d.name) > (:after_at::bigint, :after_name::text)
  ORDER BY d.look_at, d.name LIMIT :limit::int) s ON true
ORDER BY s.look_at, s.name

-- name: schedule_add(name, revision, queue, spec, missed, overlap, owner, paused, next_at, look_at, last_at, error, created_at, updated_at, json, body, options)
INSERT INTO fairlead.schedule (name, revision, queue, spec, missed, overlap, owner, paused, next_at, look_at, last_at,
    error, created_at, updated_at, json, body, options)
VALUES (:name::text, :revision::bigint, :queue::text, :spec::text, :missed::text, :overlap::text, :owner::text,
  :paused::int, :next_at::bigint, :look_at::bigint, :last_at::bigint, :error::text, :created_at::bigint,
  :updated_at::bigint, :json::int, :body::bytea, :options::text)
ON CONFLICT (name) DO NOTHING RETURNING 1

-- name: schedule_change(name, queue, spec, missed, overlap, owner, paused, next_at, look_at, last_at, error, updated_at, json, body, options)
UPDATE fairlead.schedule SET revision = revision + 1, queue = :queue::text, spec = :spec::text, missed = :missed::text,
  overlap = :overlap::text, owner = :owner::text, paused = :paused::int, next_at = :next_at::bigint,
  look_at = :look_at::bigint, last_at = :last_at::bigint, error = :error::text, updated_at = :updated_at::bigint,
  json = :json::int, body = :body::bytea, options = :options::text
WHERE name = :name::text

-- name: schedule_remove(name)
DELETE FROM fairlead.schedule WHERE name = :name::text RETURNING 1

-- name: schedule_fire(name, revision, next_at, tick, queue, channels, bodies, json, ranks, dues, delays, keys, conflicts, versions, types, headers, leases, max_attempts, expires, max_waits, groups, now)
SELECT fairlead.schedule_fire(:name::text, :revision::bigint, :next_at::bigint, :tick::bigint, :queue::text,
  :channels::text[], :bodies::bytea[], :json::text::int[], :ranks::text::int[], :dues::text::bigint[],
  :delays::text::bigint[], :keys::text[], :conflicts::text, :versions::text::int[], :types::text[], :headers::bytea[],
  :leases::text::bigint[], :max_attempts::text::int[], :expires::text::bigint[], :max_waits::text::bigint[],
  :groups::text[], :now::bigint)

-- name: schedule_fail(name, revision, error, look_at)
UPDATE fairlead.schedule SET revision = revision + 1, error = :error::text, look_at = :look_at::bigint
WHERE name = :name::text AND revision = :revision::bigint AND paused = 0

-- name: remember(queue, name, value, keep, now)
SELECT 1 FROM (SELECT fairlead.remember_row(:queue::text, :name::text, :value::bytea, :keep::bigint, :now::bigint)) x

-- name: recall(queue, name, now)
-- (The time is no condition, or the planner may walk the index of times.)
SELECT (SELECT CASE WHEN r.expires_at > fairlead.now_us(:now::bigint) THEN r.value END FROM fairlead.remembered r
  WHERE r.lane = q.lane AND r.kind = 'v' AND r.name = :name::text)
FROM fairlead.queue_row(:queue::text) q

-- name: outcomes(queue, ids, keys, now)
-- A message that died here and went to the dead-letter queue still counts as dead here.
WITH a AS (SELECT q.id, q.lane, :ids::text::bigint[] AS ids, :keys::text[] AS keys, fairlead.now_us(:now::bigint) AS now
           FROM fairlead.queue_row(:queue::text) q)
SELECT m.id, m.key, CASE WHEN m.lane = a.lane THEN m.state::text ELSE 'x' END, m.json, m.result, m.error, m.progress, m.note
FROM a, fairlead.message m
WHERE m.id = ANY (a.ids) AND (m.lane = a.lane OR (m.origin = a.id AND EXISTS (
    SELECT 1 FROM fairlead.queue t WHERE t.lane = m.lane))) AND (m.expires_at IS NULL OR m.expires_at > a.now)
UNION ALL
SELECT m.id, m.key, m.state::text, m.json, m.result, m.error, m.progress, m.note
FROM a, fairlead.message m
WHERE m.lane = a.lane AND m.key = ANY (a.keys) AND m.id <> ALL (a.ids) AND (m.expires_at IS NULL OR m.expires_at > a.now)

-- name: events_now(queue)
SELECT open::text, seen::text FROM fairlead.events_now(:queue::text)

-- name: events(tx, id, limit, queue, kinds, since)
SELECT tx::text, id, at, kind, queue, message_id, key, channel, delay_us, data
FROM fairlead.events(:tx::text::xid8, :id::bigint, :limit::int, :queue::text, :kinds::text[], :since::text::pg_snapshot)

-- name: sleep(queue, who, us)
SELECT 1 FROM (SELECT fairlead.sleep(:queue::text, :who::int, :us::bigint)) x

-- name: maintain(limit, now)
SELECT activated, recovered, killed, purged, more::int FROM fairlead.maintain(:limit::int, :now::bigint)
