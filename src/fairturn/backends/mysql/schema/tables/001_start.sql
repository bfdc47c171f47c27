-- Fairturn on MySQL 8 and MariaDB 10.6 or later: the tables.
--
-- One table holds the messages of all queues. Times are microseconds since the epoch, UTC. Names are
-- VARBINARY: they are compared byte by byte (with a collation 'a' would equal 'a ').
-- DDL commits, so every step of a migration must be able to run again.

-- The files of schema/tables that have been applied.
CREATE TABLE IF NOT EXISTS fairturn_migration (
  version INT NOT NULL PRIMARY KEY,
  name VARBINARY(100) NOT NULL,
  applied_at BIGINT NOT NULL
) ENGINE = InnoDB;

-- One row about the last migration (docs/decisions/007-routines-and-upgrades.md). Without it no migration
-- has come to its end.
CREATE TABLE IF NOT EXISTS fairturn_installed (
  one TINYINT NOT NULL DEFAULT 1 PRIMARY KEY,
  generation INT NOT NULL, -- of the Fairturn that migrated
  oldest_client INT NOT NULL, -- the oldest generation of clients that it serves
  routines VARBINARY(64) NOT NULL -- the hash of the texts in schema/routines
) ENGINE = InnoDB;

-- The procedures that a migration has made.
CREATE TABLE IF NOT EXISTS fairturn_routine (
  name VARBINARY(64) NOT NULL PRIMARY KEY,
  hash VARBINARY(64) NOT NULL, -- of its text
  retired TINYINT NOT NULL DEFAULT 0 -- no longer in the files: the next replacement drops it
) ENGINE = InnoDB;

-- The queues and their settings.
CREATE TABLE IF NOT EXISTS fairturn_queue (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  name VARBINARY(255) NOT NULL,
  lane INT NOT NULL, -- of its messages; purge gives the queue a new one
  created_at BIGINT NOT NULL,
  lease_us BIGINT NOT NULL DEFAULT 30000000,
  max_attempts INT NOT NULL DEFAULT 5,
  backoff_initial_us BIGINT NOT NULL DEFAULT 0,
  backoff_factor INT NOT NULL DEFAULT 2,
  backoff_max_us BIGINT NOT NULL DEFAULT 0,
  retention_us BIGINT NOT NULL DEFAULT 0,
  dead_retention_us BIGINT NULL,
  failure_retention_us BIGINT NULL DEFAULT 604800000000,
  dead_letter VARBINARY(255) NULL,
  max_body BIGINT NOT NULL DEFAULT 16777216,
  expires_us BIGINT NULL,
  paused TINYINT NOT NULL DEFAULT 0,
  events TINYINT NOT NULL DEFAULT 0,
  limit_concurrency INT NULL,
  limit_rate_count INT NULL,
  limit_rate_period_us BIGINT NULL,
  limit_burst INT NOT NULL DEFAULT 1,
  max_concurrency INT NULL,
  rate_count INT NULL,
  rate_period_us BIGINT NULL,
  burst INT NOT NULL DEFAULT 1,
  weight INT NOT NULL DEFAULT 1,
  channel_paused TINYINT NOT NULL DEFAULT 0,
  ordered TINYINT NOT NULL DEFAULT 0,
  max_size INT NULL,
  meta MEDIUMBLOB NULL, -- the user's own: a JSON object
  UNIQUE KEY name (name)
) ENGINE = InnoDB;

-- A lane is one generation of a queue. This table only gives the numbers.
CREATE TABLE IF NOT EXISTS fairturn_lane (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  queue_id INT NULL
) ENGINE = InnoDB;

-- Lanes of purged and dropped queues. Maintenance deletes their rows, for a week also those of sends that
-- commit late.
CREATE TABLE IF NOT EXISTS fairturn_retired (
  lane INT NOT NULL PRIMARY KEY,
  retired_at BIGINT NOT NULL
) ENGINE = InnoDB;

-- The policies of channels. A channel without one has the policy in its queue's row.
CREATE TABLE IF NOT EXISTS fairturn_policy (
  queue_id INT NOT NULL,
  channel VARBINARY(255) NOT NULL,
  max_concurrency INT NULL,
  rate_count INT NULL,
  rate_period_us BIGINT NULL,
  burst INT NOT NULL DEFAULT 1,
  weight INT NOT NULL DEFAULT 1,
  paused TINYINT NOT NULL DEFAULT 0,
  ordered TINYINT NOT NULL DEFAULT 0,
  max_size INT NULL,
  PRIMARY KEY (queue_id, channel)
) ENGINE = InnoDB;

-- A gate is the lock of a limited channel, with the time of its rate (GCRA). The first receive that needs it
-- makes it; senders never touch it.
CREATE TABLE IF NOT EXISTS fairturn_gate (
  queue_id INT NOT NULL,
  channel VARBINARY(255) NOT NULL,
  tat BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (queue_id, channel)
) ENGINE = InnoDB;

-- The same for the limit of a queue over all its channels.
CREATE TABLE IF NOT EXISTS fairturn_limit (
  queue_id INT NOT NULL PRIMARY KEY,
  tat BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB;

-- The position in the round, for plain SQL, which has no consumer state.
CREATE TABLE IF NOT EXISTS fairturn_cursor (
  queue_id INT NOT NULL PRIMARY KEY,
  channel VARBINARY(255) NULL,
  credit INT NOT NULL DEFAULT 0
) ENGINE = InnoDB;

-- MySQL has no partial indexes. So the state is a column of the indexes, and every change of the state moves
-- their entries. The columns that a lease changes are NOT NULL and of fixed width, so that the row is updated
-- in place (measured: half the time of an update that makes the row longer).
CREATE TABLE IF NOT EXISTS fairturn_message (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  lane INT NOT NULL,
  state BINARY(1) NOT NULL, -- h held, s scheduled, r ready, l leased, d done, x dead
  version INT NOT NULL DEFAULT 0,
  channel VARBINARY(255) NOT NULL,
  `rank` INT NOT NULL DEFAULT 0, -- the negated priority
  due_at BIGINT NOT NULL,
  wake_at BIGINT NOT NULL DEFAULT 0, -- s: due_at, l: the lease's end, d and x: when it finished, h: the
    -- delay of an end or abort message after its group closes, -1 if it has a due time
  permit BIGINT NOT NULL DEFAULT 0,
  token BIGINT NOT NULL DEFAULT 0, -- of the latest lease: fences older ones
  first_at BIGINT NOT NULL DEFAULT 0, -- when it was first leased; 0: never
  attempts INT NOT NULL DEFAULT 0,
  deliveries INT NOT NULL DEFAULT 0, -- how many leases there were
  begun TINYINT NOT NULL DEFAULT 0, -- delivered under an ordered policy and not finished
  recovered TINYINT NOT NULL DEFAULT 0,
  json TINYINT NOT NULL DEFAULT 0, -- bits: 1 the body, 2 the memo, 4 the result
  created_at BIGINT NOT NULL,
  expires_at BIGINT NULL,
  lease_us BIGINT NULL,
  group_id BIGINT NULL, -- fairturn_member finds the members of a group
  died_in INT NULL, -- the queue whose dead-letter queue it was moved to
  progress INT NULL, -- millionths
  max_attempts INT NULL,
  `key` VARBINARY(255) NULL,
  -- The lane of a message with a key, so that the unique index has nothing in common for messages without one. A
  -- Galera cluster compares the entries of unique indexes, unless all their columns are NULL: with (lane, NULL)
  -- every send and ack of a queue met those of all other nodes.
  key_lane INT GENERATED ALWAYS AS (IF(`key` IS NULL, NULL, lane)) STORED,
  type VARBINARY(255) NULL,
  headers MEDIUMBLOB NULL,
  memo LONGBLOB NULL,
  result LONGBLOB NULL,
  error MEDIUMBLOB NULL,
  note MEDIUMBLOB NULL,
  body LONGBLOB NOT NULL,
  KEY ready (lane, state, version, channel, `rank`, due_at, id),
  KEY wake (lane, state, wake_at),
  KEY channel (lane, channel, state, begun),
  KEY expiry (lane, expires_at),
  UNIQUE KEY `key` (key_lane, `key`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Permits: one row extends many leases.
CREATE TABLE IF NOT EXISTS fairturn_permit (
  id BIGINT NOT NULL PRIMARY KEY, -- random: a number of a sequence could come again after a failover
  name VARBINARY(255) NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
) ENGINE = InnoDB;

-- The failure log, one row for each failure.
CREATE TABLE IF NOT EXISTS fairturn_failure (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  queue_id INT NOT NULL,
  message_id BIGINT NOT NULL,
  `key` VARBINARY(255) NULL,
  attempt INT NOT NULL,
  at BIGINT NOT NULL,
  fatal TINYINT NOT NULL, -- this failure killed the message
  error MEDIUMBLOB NOT NULL,
  details MEDIUMBLOB NULL,
  reference MEDIUMBLOB NULL,
  KEY queue (queue_id, at),
  KEY message (message_id),
  KEY `key` (`key`)
) ENGINE = InnoDB;

-- Counters that calls append, so that no two calls update the same row.
CREATE TABLE IF NOT EXISTS fairturn_tally (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  queue_id INT NOT NULL,
  minute BIGINT NOT NULL, -- its start, in microseconds
  sent INT NULL,
  delivered INT NULL,
  acked INT NULL,
  completed INT NULL,
  deferred INT NULL,
  failed INT NULL,
  killed INT NULL,
  recovered INT NULL,
  released INT NULL,
  cancelled INT NULL,
  expired INT NULL,
  errors INT NULL
) ENGINE = InnoDB;

-- The sums of the tallies. Minute 0 has everything that is older than the history's retention.
CREATE TABLE IF NOT EXISTS fairturn_history (
  queue_id INT NOT NULL,
  minute BIGINT NOT NULL,
  sent BIGINT NOT NULL DEFAULT 0,
  delivered BIGINT NOT NULL DEFAULT 0,
  acked BIGINT NOT NULL DEFAULT 0,
  completed BIGINT NOT NULL DEFAULT 0,
  deferred BIGINT NOT NULL DEFAULT 0,
  failed BIGINT NOT NULL DEFAULT 0,
  killed BIGINT NOT NULL DEFAULT 0,
  recovered BIGINT NOT NULL DEFAULT 0,
  released BIGINT NOT NULL DEFAULT 0,
  cancelled BIGINT NOT NULL DEFAULT 0,
  expired BIGINT NOT NULL DEFAULT 0,
  errors BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (queue_id, minute)
) ENGINE = InnoDB;

-- Rows that are only locked. 'fold': by the session that adds up the tallies. 'event': by the writers of events
-- (routines/events.sql).
CREATE TABLE IF NOT EXISTS fairturn_lock (
  name VARBINARY(32) NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

INSERT IGNORE INTO fairturn_lock (name) VALUES ('fold'), ('event'), ('place');

-- Groups (docs/semantics.md, 12). The end and abort messages are held messages of the group's queue.
CREATE TABLE IF NOT EXISTS fairturn_group (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  name VARBINARY(255) NOT NULL,
  open_name VARBINARY(255) NULL, -- its name while it is open; unique
  queue VARBINARY(255) NOT NULL,
  state BINARY(1) NOT NULL DEFAULT 'o', -- o open, r running, e ended, c cancelled, a aborted
  on_dead BINARY(1) NOT NULL DEFAULT 'i', -- i ignore, a abort
  end_id BIGINT NULL,
  abort_id BIGINT NULL,
  created_at BIGINT NOT NULL,
  started_at BIGINT NULL,
  closed_at BIGINT NULL,
  sent BIGINT NOT NULL DEFAULT 0,
  done BIGINT NOT NULL DEFAULT 0,
  dead BIGINT NOT NULL DEFAULT 0,
  joins BIGINT NOT NULL DEFAULT 0, -- written in a Galera cluster, where a lock is not enough (routines/cluster.sql)
  UNIQUE KEY open_name (open_name),
  KEY name (name, closed_at),
  KEY closed (closed_at)
) ENGINE = InnoDB;

-- The unfinished members: a group without a row here is complete. (An index of the messages by group would
-- also have an entry for each message without a group. Measured: 8 % of a bulk send and 5 % of a receive.)
CREATE TABLE IF NOT EXISTS fairturn_member (
  group_id BIGINT NOT NULL,
  message_id BIGINT NOT NULL,
  PRIMARY KEY (group_id, message_id)
) ENGINE = InnoDB;

-- The marks: what a call did to a group's members, at most one row for each call and group.
CREATE TABLE IF NOT EXISTS fairturn_group_mark (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  group_id BIGINT NOT NULL,
  sent INT NOT NULL DEFAULT 0,
  done INT NOT NULL DEFAULT 0,
  dead INT NOT NULL DEFAULT 0,
  KEY member_of (group_id)
) ENGINE = InnoDB;

-- Events, append-only (docs/semantics.md, 15).
CREATE TABLE IF NOT EXISTS fairturn_event (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  at BIGINT NOT NULL,
  written TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), -- by the server's clock; `at` may be given
  kind VARBINARY(8) NOT NULL,
  queue VARBINARY(255) NOT NULL,
  message_id BIGINT NULL,
  `key` VARBINARY(255) NULL,
  channel VARBINARY(255) NULL,
  delay_us BIGINT NULL,
  data MEDIUMBLOB NULL
) ENGINE = InnoDB;

-- Events without a place yet. A Galera cluster writes its events here; a reader moves those that are committed to
-- fairturn_event, where their ids are their order (routines/cluster.sql).
CREATE TABLE IF NOT EXISTS fairturn_event_new LIKE fairturn_event;

-- One row: the last event that maintenance has deleted. Missing ids up to it are not gaps.
CREATE TABLE IF NOT EXISTS fairturn_event_floor (
  name VARBINARY(8) NOT NULL PRIMARY KEY,
  id BIGINT NOT NULL
) ENGINE = InnoDB;

INSERT IGNORE INTO fairturn_event_floor (name, id) VALUES ('floor', 0);

-- Schedules, each with its next due time (docs/semantics.md, 18).
CREATE TABLE IF NOT EXISTS fairturn_schedule (
  name VARBINARY(230) NOT NULL PRIMARY KEY,
  revision BIGINT NOT NULL, -- every change raises it, so that each due time is handled once
  queue VARBINARY(255) NOT NULL, -- the name: the queue may be dropped and made again
  spec BLOB NOT NULL, -- JSON: cron and timezone, every_us and anchor_us, or at_us
  missed BINARY(1) NOT NULL, -- s skip, o once, b backfill
  overlap BINARY(1) NOT NULL, -- s skip, a allow
  owner VARBINARY(255) NULL, -- the app that declared it in its code
  paused TINYINT NOT NULL,
  next_at BIGINT NULL, -- the next due time; NULL: never again
  look_at BIGINT NULL, -- when to handle it; NULL: paused, or never again
  last_at BIGINT NULL, -- the last due time for which a message was sent
  error MEDIUMBLOB NULL, -- why the message for next_at could not be sent
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  json TINYINT NOT NULL,
  body LONGBLOB NOT NULL,
  options MEDIUMBLOB NOT NULL, -- JSON: the channel, headers and other options of its messages
  KEY look (look_at, name)
) ENGINE = InnoDB;

-- The once names of sends, and the user's own values (docs/semantics.md, 19). They belong to the lane: after
-- purge and drop they are not found, and maintenance deletes them later.
CREATE TABLE IF NOT EXISTS fairturn_remembered (
  lane INT NOT NULL,
  kind BINARY(1) NOT NULL, -- o once, v value
  name VARBINARY(255) NOT NULL,
  expires_at BIGINT NOT NULL,
  message_id BIGINT NOT NULL DEFAULT 0, -- of a once name: the message, which may be gone
  value MEDIUMBLOB NULL, -- JSON
  PRIMARY KEY (lane, kind, name),
  KEY expiry (lane, expires_at)
) ENGINE = InnoDB;
