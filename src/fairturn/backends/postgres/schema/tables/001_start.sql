-- Fairturn on PostgreSQL: tables, sequences, types and views. Migrations change them.
--
-- All queues share one message table. Times are microseconds since the epoch. A *lane* is one generation of one
-- queue: purge and drop give the queue a new lane, so that the old rows are out of sight immediately; they are
-- deleted later. Policies belong to the queue's id, which stays. `rank` is the negative priority, so that
-- (rank, due_at, id) is compared as one ascending row.

CREATE SCHEMA IF NOT EXISTS fairturn;

-- The files of schema/tables that have been applied.
CREATE TABLE fairturn.migration (
  version int PRIMARY KEY,
  name text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The version that migrated last, in one row (docs/decisions/007-routines-and-upgrades.md). No row: no migration
-- has been completed.
CREATE TABLE fairturn.installed (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  generation int NOT NULL, -- of the Fairturn that migrated
  oldest_client int NOT NULL, -- the oldest generation of clients that it serves
  routines text NOT NULL -- the hash of the texts in schema/routines
);

-- The functions that migrate made.
CREATE TABLE fairturn.routine (
  name text PRIMARY KEY,
  signature text NOT NULL, -- arguments and result, as its file writes them
  retired boolean NOT NULL DEFAULT false, -- not in the files any more: the next replacement drops it
  grants text -- who may execute it; only set while it is replaced
);

CREATE SEQUENCE fairturn.lane AS int;
CREATE SEQUENCE fairturn.message_id;
-- One number per receive, drawn while the gates are locked: within a limited channel it only grows, even if the
-- clock goes back. So a consumer can count the leases of a channel from the oldest live one on.
CREATE SEQUENCE fairturn.lease_no;

-- The queues and their settings.
CREATE TABLE fairturn.queue (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 255),
  lane int NOT NULL UNIQUE DEFAULT nextval('fairturn.lane'),
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

-- The user's own data of a queue, a JSON object. It is not in the queue's row, because every operation reads that
-- whole row.
CREATE TABLE fairturn.queue_meta (
  queue_id int PRIMARY KEY REFERENCES fairturn.queue ON DELETE CASCADE,
  meta text NOT NULL
);

-- The policies of channels that have their own.
CREATE TABLE fairturn.policy (
  queue_id int NOT NULL REFERENCES fairturn.queue ON DELETE CASCADE,
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
CREATE INDEX policy_sized ON fairturn.policy (queue_id) WHERE max_size IS NOT NULL;

-- A gate is the row that is locked while a limited channel delivers. It also has the time of the channel's rate
-- (`tat`, GCRA). The first receive that needs it inserts it. Senders never touch it, so an open send blocks nobody.
CREATE TABLE fairturn.gate (
  queue_id int NOT NULL,
  channel text COLLATE "C" NOT NULL,
  tat bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (queue_id, channel)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The gates of queues, for their own limits. Receives wait for them and never skip them.
CREATE TABLE fairturn.queue_gate (
  queue_id int PRIMARY KEY,
  tat bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The place in the round for consumers without a consumer state (plain SQL).
CREATE TABLE fairturn.cursor (
  queue_id int PRIMARY KEY,
  channel text COLLATE "C",
  credit int NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_cost_delay = 0);

-- Permits: one row extends all leases of a worker.
CREATE TABLE fairturn.permit (
  id bigint PRIMARY KEY, -- random: a number of a sequence could come again after a failover
  name text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL
) WITH (fillfactor = 50);

-- The messages of all queues.
CREATE TABLE fairturn.message (
  id bigint PRIMARY KEY DEFAULT nextval('fairturn.message_id'),
  due_at bigint NOT NULL,
  created_at bigint NOT NULL,
  lease_until bigint,
  lease_no bigint,
  lease_us bigint,
  token bigint, -- of the latest lease: fences older ones
  permit_id bigint,
  expires_at bigint,
  finished_at bigint,
  group_id bigint,
  first_at bigint, -- when it was first leased
  lane int NOT NULL,
  rank int NOT NULL,
  version int NOT NULL,
  attempts int NOT NULL DEFAULT 0,
  deliveries int NOT NULL DEFAULT 0, -- how many leases there were
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

-- Each state has its own indexes, so that a million rows in one state cost the others nothing.
CREATE INDEX message_ready ON fairturn.message (lane, version, channel, rank, due_at, id) WHERE state = 'r';
CREATE INDEX message_scheduled ON fairturn.message (lane, due_at) WHERE state = 's';
CREATE INDEX message_later ON fairturn.message (lane, channel) WHERE state IN ('s', 'h');
CREATE INDEX message_leased ON fairturn.message (lane, lease_until) WHERE state = 'l';
CREATE INDEX message_busy ON fairturn.message (lane, channel, lease_no) WHERE state = 'l';
CREATE INDEX message_begun ON fairturn.message (lane, channel) WHERE begun;
CREATE INDEX message_done ON fairturn.message (lane, finished_at, id) WHERE state = 'd';
CREATE INDEX message_dead ON fairturn.message (lane, finished_at, id) WHERE state = 'x';
CREATE INDEX message_expires ON fairturn.message (lane, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX message_group ON fairturn.message (group_id, state, id) WHERE group_id IS NOT NULL AND state IN ('h', 's', 'r', 'l');
CREATE UNIQUE INDEX message_key ON fairturn.message (lane, key) WHERE key IS NOT NULL;

-- Lanes whose rows are to be deleted.
CREATE TABLE fairturn.retired (
  lane int PRIMARY KEY,
  retired_at bigint NOT NULL
);

-- The failure log: one row for each failure.
CREATE TABLE fairturn.failure (
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
CREATE INDEX failure_at ON fairturn.failure (queue_id, at);
CREATE INDEX failure_message ON fairturn.failure (message_id);
CREATE INDEX failure_key ON fairturn.failure (key) WHERE key IS NOT NULL;

-- Tallies: each call inserts at most one row of counters, so that an open transaction blocks nobody. They are
-- folded into the history.
CREATE TABLE fairturn.tally (
  id bigint GENERATED ALWAYS AS IDENTITY,
  queue_id int NOT NULL,
  at bigint NOT NULL,
  sent int, delivered int, acked int, completed int, deferred int, failed int, killed int,
  recovered int, released int, cancelled int, expired int, errors int,
  PRIMARY KEY (queue_id, id)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- The counters of a queue per minute. Minute 0 is the sum of all older minutes, and its row is locked while tallies
-- are folded.
CREATE TABLE fairturn.history (
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

-- Groups. A closed one is kept for a day; its name is free immediately. The end message and the abort message are
-- messages of its queue in state h. If they have a delay, it is in their lease_until until the group closes.
CREATE TABLE fairturn.group_ (
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
  -- for information only: whether a group is complete is read from the rows of its members
  sent bigint NOT NULL DEFAULT 0,
  done bigint NOT NULL DEFAULT 0,
  dead bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX group_open ON fairturn.group_ (name) WHERE closed_at IS NULL;
CREATE INDEX group_name ON fairturn.group_ (name, id);
CREATE INDEX group_closed ON fairturn.group_ (closed_at) WHERE closed_at IS NOT NULL;

-- A transaction that ends or adds a member inserts a mark, so that the group is checked after its commit. By `tx`,
-- a transaction recognizes its own marks.
CREATE TABLE fairturn.group_mark (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  group_id bigint NOT NULL,
  tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
  sent int, done int, dead int
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX group_mark_group ON fairturn.group_mark (group_id);

-- Events, in the order in which they are read: the events of a transaction are read when no older transaction is
-- open any more. So no event can appear before one that has been read.
CREATE TABLE fairturn.event (
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

-- One row: the server whose transaction numbers the events have (see events_adopt).
CREATE TABLE fairturn.event_server (system_identifier bigint PRIMARY KEY);
INSERT INTO fairturn.event_server SELECT c.system_identifier FROM pg_control_system() c;

-- Connections that wait for a NOTIFY of a queue ('': of any queue): others notify only if there is one. The table
-- is unlogged: it costs no WAL, and it is empty after a crash, when nobody listens.
CREATE UNLOGGED TABLE fairturn.listener (
  queue text COLLATE "C" NOT NULL,
  who int NOT NULL,
  until bigint NOT NULL,
  PRIMARY KEY (queue, who)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);

-- Schedules: the messages to send, and the due times (docs/semantics.md §18).
CREATE TABLE fairturn.schedule (
  name text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 230),
  revision bigint NOT NULL, -- grows with every change, so that each due time is handled once
  queue text COLLATE "C" NOT NULL, -- by name: the queue may be dropped and created again
  spec text NOT NULL, -- JSON: cron and timezone, every_us and anchor_us, or at_us
  missed text NOT NULL CHECK (missed IN ('s', 'o', 'b')), -- skip, once, backfill
  overlap text NOT NULL CHECK (overlap IN ('s', 'a')), -- skip, allow
  owner text COLLATE "C", -- the app that declared it in its code
  paused smallint NOT NULL,
  next_at bigint, -- the next due time; NULL: never again
  look_at bigint, -- when to check it; NULL: paused, or never again
  last_at bigint, -- the last due time whose message was sent
  error text, -- why the message of the next due time could not be sent
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  json smallint NOT NULL,
  body bytea NOT NULL,
  options text NOT NULL -- JSON: channel, headers and so on of its messages; text, because jsonb accepts no NUL
) WITH (fillfactor = 50, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX schedule_look ON fairturn.schedule (look_at, name) WHERE look_at IS NOT NULL;

-- What a queue remembers for a while (docs/semantics.md §19): once names, and the user's values. The rows belong
-- to the lane: purge and drop forget them immediately, and they are deleted later.
CREATE TABLE fairturn.remembered (
  lane int NOT NULL,
  kind "char" NOT NULL, -- o once, v value
  name text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 255),
  expires_at bigint NOT NULL,
  message_id bigint, -- of a once name: the message, which may be gone
  value bytea, -- JSON
  PRIMARY KEY (lane, kind, name)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX remembered_expiry ON fairturn.remembered (lane, expires_at);

-- What a receive returns besides the messages.
CREATE TYPE fairturn.receive_trailer AS (
  channel text, -- the place in the round: the channel served last,
  credit int, -- and how much of its turn is left
  retry_after_us bigint, -- if there was no message: when to try again
  now_us bigint,
  ids bigint[], -- the order of the messages; the rows are in no particular order
  entries_read int, -- of the index of ready messages; if many more than messages: dead entries are in the way
  swept boolean,
  recovered boolean, -- messages were recovered, which lie before the hints
  lost bigint[], -- the messages whose carried acks failed, because the leases were lost
  versions int[], -- the versions that have messages ready
  floors jsonb, -- the oldest live lease of each limited channel,
  server bigint, -- by the numbers of this server
  ordered text[] -- the channels that are ordered
);

-- A row of a receive: a leased message, or only the trailer, in the last row.
CREATE TYPE fairturn.receive_row AS (
  id bigint, channel text, body bytea, headers bytea, key text, version int, type text, priority int,
  due_at bigint, created_at bigint, attempts int, deliveries int, token bigint, memo bytea, lease_until bigint,
  json smallint, recovered int, group_name text, origin text, first_at bigint,
  trailer fairturn.receive_trailer);

-- Messages in a readable form.
CREATE VIEW fairturn.messages AS
  SELECT m.id, q.name AS queue, m.channel,
    CASE m.state WHEN 'h' THEN 'held' WHEN 's' THEN 'scheduled' WHEN 'r' THEN 'ready' WHEN 'l' THEN 'leased'
      WHEN 'd' THEN 'done' ELSE 'dead' END AS state,
    -m.rank AS priority, to_timestamp(m.due_at / 1000000.0) AS due_at, m.key, m.version, m.type, m.attempts,
    m.deliveries, to_timestamp(CASE WHEN m.state = 'l' THEN m.lease_until END / 1000000.0) AS lease_until,
    to_timestamp(m.created_at / 1000000.0) AS created_at, to_timestamp(m.finished_at / 1000000.0) AS finished_at,
    to_timestamp(m.expires_at / 1000000.0) AS expires_at, m.error, octet_length(m.body) AS body_bytes,
    (SELECT g.name FROM fairturn.group_ g WHERE g.id = m.group_id) AS group_name, m.progress / 1000000.0 AS progress, m.note,
    (SELECT o.name FROM fairturn.queue o WHERE o.id = m.origin) AS origin,
    to_timestamp(m.first_at / 1000000.0) AS first_delivered_at
  FROM fairturn.message m JOIN fairturn.queue q ON q.lane = m.lane;
