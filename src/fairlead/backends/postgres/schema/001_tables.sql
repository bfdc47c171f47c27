-- Fairlead on PostgreSQL: the tables.
--
-- One message table for all queues; a message's payload is written once. Times are microseconds
-- since the epoch. A *lane* is one generation of one queue: purge and drop give the queue a new
-- lane, so the old rows are out of sight at once and swept later, while policies hang on the
-- queue's stable id. `rank` is the negated priority, so that (rank, due_at, id) is one ascending
-- row comparison.
CREATE SCHEMA IF NOT EXISTS fairlead;

CREATE TABLE IF NOT EXISTS fairlead.migration (
  version int PRIMARY KEY,
  name text NOT NULL,
  oldest_client int NOT NULL, -- the oldest generation of clients this schema still serves
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE SEQUENCE fairlead.lane AS int;
CREATE SEQUENCE fairlead.message_id;
-- One number per receive, drawn while the gates are held: inside a limited channel it only grows,
-- whatever the clocks do, which lets a consumer count its leases from the oldest live one.
CREATE SEQUENCE fairlead.lease_no;

CREATE TABLE fairlead.queue (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 255),
  lane int NOT NULL UNIQUE DEFAULT nextval('fairlead.lane'),
  created_at bigint NOT NULL,
  lease_us bigint NOT NULL DEFAULT 30000000 CHECK (lease_us >= 0),
  max_attempts int NOT NULL DEFAULT 5 CHECK (max_attempts >= 0), -- 0: unlimited
  backoff_initial_us bigint NOT NULL DEFAULT 0,
  backoff_factor int NOT NULL DEFAULT 2 CHECK (backoff_factor >= 1),
  backoff_max_us bigint NOT NULL DEFAULT 0,
  retention_us bigint NOT NULL DEFAULT 0,
  dead_retention_us bigint, -- NULL: for ever
  failure_retention_us bigint NOT NULL DEFAULT 604800000000,
  dead_letter text COLLATE "C",
  max_body bigint NOT NULL DEFAULT 16777216,
  expires_us bigint,
  paused smallint NOT NULL DEFAULT 0,
  events smallint NOT NULL DEFAULT 0,
  -- the limit over all channels
  limit_concurrency int CHECK (limit_concurrency >= 0),
  limit_rate_count bigint,
  limit_rate_period_us bigint,
  limit_burst int NOT NULL DEFAULT 1,
  -- the default policy of channels without one of their own
  max_concurrency int CHECK (max_concurrency >= 0),
  rate_count bigint,
  rate_period_us bigint,
  burst int NOT NULL DEFAULT 1,
  weight int NOT NULL DEFAULT 1 CHECK (weight >= 1),
  channel_paused smallint NOT NULL DEFAULT 0,
  ordered smallint NOT NULL DEFAULT 0,
  max_size int CHECK (max_size >= 0)
);

-- The user's own data of a queue: a JSON object. Apart from the queue's row, which every operation reads
-- whole.
CREATE TABLE fairlead.queue_meta (
  queue_id int PRIMARY KEY REFERENCES fairlead.queue ON DELETE CASCADE,
  meta text NOT NULL
);

CREATE TABLE fairlead.policy (
  queue_id int NOT NULL REFERENCES fairlead.queue ON DELETE CASCADE,
  channel text COLLATE "C" NOT NULL CHECK (octet_length(channel) <= 255),
  max_concurrency int CHECK (max_concurrency >= 0),
  rate_count bigint CHECK (rate_count >= 1),
  rate_period_us bigint CHECK (rate_period_us >= 1),
  burst int NOT NULL DEFAULT 1 CHECK (burst >= 1),
  weight int NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 1000),
  paused smallint NOT NULL DEFAULT 0,
  ordered smallint NOT NULL DEFAULT 0,
  max_size int CHECK (max_size >= 0),
  PRIMARY KEY (queue_id, channel)
);

CREATE INDEX policy_sized ON fairlead.policy (queue_id) WHERE max_size IS NOT NULL;

-- A gate is the lock under which a limited channel's slots are given, and its GCRA time. Made by
-- the first receiver that needs it. Senders never touch it, so an open send blocks nobody.
CREATE TABLE fairlead.gate (
  queue_id int NOT NULL,
  channel text COLLATE "C" NOT NULL,
  tat bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (queue_id, channel)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The queue-wide limit's gate: waited for, never skipped.
CREATE TABLE fairlead.queue_gate (
  queue_id int PRIMARY KEY,
  tat bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Where a consumer without memory (plain SQL) goes on with its round.
CREATE TABLE fairlead.cursor (
  queue_id int PRIMARY KEY,
  channel text COLLATE "C",
  credit int NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE fairlead.permit (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE fairlead.message (
  id bigint PRIMARY KEY DEFAULT nextval('fairlead.message_id'),
  due_at bigint NOT NULL,
  created_at bigint NOT NULL,
  lease_until bigint,
  lease_no bigint,
  lease_us bigint,
  permit_id bigint,
  expires_at bigint,
  finished_at bigint,
  group_id bigint,
  first_at bigint, -- when it was first leased
  lane int NOT NULL,
  rank int NOT NULL,
  version int NOT NULL,
  attempts int NOT NULL DEFAULT 0,
  deliveries int NOT NULL DEFAULT 0, -- the fencing token
  max_attempts int,
  progress int, -- millionths
  origin int, -- the queue in which a dead-lettered message died
  json smallint NOT NULL, -- which payloads are JSON: 1 body, 2 memo, 4 result
  state "char" NOT NULL, -- h held, s scheduled, r ready, l leased, d done, x dead
  begun boolean NOT NULL DEFAULT false, -- delivered in an ordered channel, not finished
  recovered boolean NOT NULL DEFAULT false,
  channel text COLLATE "C" NOT NULL,
  key text COLLATE "C",
  type text COLLATE "C",
  error text,
  note text,
  body bytea NOT NULL,
  headers bytea,
  memo bytea,
  result bytea
) WITH (
  fillfactor = 85,
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0
);
-- Each state has its own small index, so a million rows in one state cost the others nothing.
CREATE INDEX message_ready ON fairlead.message (lane, version, channel, rank, due_at, id) WHERE state = 'r';
CREATE INDEX message_scheduled ON fairlead.message (lane, due_at) WHERE state = 's';
CREATE INDEX message_later ON fairlead.message (lane, channel) WHERE state IN ('s', 'h');
CREATE INDEX message_leased ON fairlead.message (lane, lease_until) WHERE state = 'l';
CREATE INDEX message_busy ON fairlead.message (lane, channel, lease_no) WHERE state = 'l';
CREATE INDEX message_begun ON fairlead.message (lane, channel) WHERE begun;
CREATE INDEX message_done ON fairlead.message (lane, finished_at, id) WHERE state = 'd';
CREATE INDEX message_dead ON fairlead.message (lane, finished_at, id) WHERE state = 'x';
CREATE INDEX message_expires ON fairlead.message (lane, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX message_group ON fairlead.message (group_id, state, id) WHERE group_id IS NOT NULL AND state IN ('h', 's', 'r', 'l');
CREATE UNIQUE INDEX message_key ON fairlead.message (lane, key) WHERE key IS NOT NULL;

-- Lanes whose rows are to be swept.
CREATE TABLE fairlead.retired (
  lane int PRIMARY KEY,
  retired_at bigint NOT NULL
);

CREATE TABLE fairlead.failure (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue_id int NOT NULL,
  message_id bigint NOT NULL,
  key text COLLATE "C",
  attempt int NOT NULL,
  at bigint NOT NULL,
  killed boolean NOT NULL,
  error text NOT NULL,
  details bytea,
  reference text COLLATE "C"
);
CREATE INDEX failure_at ON fairlead.failure (queue_id, at);
CREATE INDEX failure_message ON fairlead.failure (message_id);
CREATE INDEX failure_key ON fairlead.failure (key) WHERE key IS NOT NULL;

-- Counters are insert-only, at most one row per call, so an open transaction blocks nobody; they
-- are folded into one row per queue and minute. Minute 0 is the sum of all older minutes, and its
-- row the lock of the one who folds.
CREATE TABLE fairlead.tally (
  id bigint GENERATED ALWAYS AS IDENTITY,
  queue_id int NOT NULL,
  at bigint NOT NULL,
  sent int, delivered int, acked int, completed int, deferred int, failed int, killed int,
  recovered int, released int, cancelled int, expired int, errors int,
  PRIMARY KEY (queue_id, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE fairlead.history (
  queue_id int NOT NULL,
  minute bigint NOT NULL,
  sent bigint NOT NULL DEFAULT 0, delivered bigint NOT NULL DEFAULT 0,
  acked bigint NOT NULL DEFAULT 0, completed bigint NOT NULL DEFAULT 0,
  deferred bigint NOT NULL DEFAULT 0, failed bigint NOT NULL DEFAULT 0,
  killed bigint NOT NULL DEFAULT 0, recovered bigint NOT NULL DEFAULT 0,
  released bigint NOT NULL DEFAULT 0, cancelled bigint NOT NULL DEFAULT 0,
  expired bigint NOT NULL DEFAULT 0, errors bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (queue_id, minute)
) WITH (fillfactor = 50);

-- Groups. A closed one is kept for a day; its name is free at once. The works are messages of its
-- queue in state h; a delay of theirs stands in lease_until until the group closes.
CREATE TABLE fairlead.group_ (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL,
  queue text COLLATE "C" NOT NULL,
  on_dead "char" NOT NULL, -- i ignore, a abort
  created_at bigint NOT NULL,
  started_at bigint,
  closed_at bigint,
  outcome "char", -- e ended, c cancelled, a aborted
  end_id bigint,
  abort_id bigint,
  -- for information; completion is derived from the members' rows
  sent bigint NOT NULL DEFAULT 0,
  done bigint NOT NULL DEFAULT 0,
  dead bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX group_open ON fairlead.group_ (name) WHERE closed_at IS NULL;
CREATE INDEX group_name ON fairlead.group_ (name, id);
CREATE INDEX group_closed ON fairlead.group_ (closed_at) WHERE closed_at IS NOT NULL;

-- Whatever ends or adds a member leaves a mark in its own transaction: the group is looked at after
-- that has committed. `tx` tells a transaction its own marks.
CREATE TABLE fairlead.group_mark (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  group_id bigint NOT NULL,
  tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
  sent int, done int, dead int
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX group_mark_group ON fairlead.group_mark (group_id);

-- Events in the order in which they may be read: a transaction's events are read when no older
-- transaction is open any more, so none can appear before one that was already given.
CREATE TABLE fairlead.event (
  tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
  id bigint GENERATED ALWAYS AS IDENTITY,
  at bigint NOT NULL,
  kind text NOT NULL,
  queue text COLLATE "C" NOT NULL,
  message_id bigint,
  key text COLLATE "C",
  channel text COLLATE "C",
  delay_us bigint,
  data bytea,
  PRIMARY KEY (tx, id)
) WITH (autovacuum_vacuum_cost_delay = 0);

-- Who sleeps until something happens in a queue ('' in any): senders notify only then. It costs no
-- log, and is empty after a crash, when nobody sleeps.
CREATE UNLOGGED TABLE fairlead.sleeper (
  queue text COLLATE "C" NOT NULL,
  who int NOT NULL,
  until bigint NOT NULL,
  PRIMARY KEY (queue, who)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
