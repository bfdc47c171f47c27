-- Fairlead on MySQL 8 and MariaDB 10.6 or later: the tables.
--
-- One table holds the messages of all queues. Times are microseconds since the epoch, UTC. Names are
-- VARBINARY: they compare byte by byte (a collation would say that 'a' equals 'a ').
-- DDL commits by itself here, so every step can be run again.

CREATE TABLE IF NOT EXISTS fairlead_migration (
  version INT NOT NULL PRIMARY KEY,
  name VARBINARY(100) NOT NULL,
  applied_at BIGINT NOT NULL,
  oldest_client INT NOT NULL -- the oldest generation of clients that this schema still serves
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fairlead_queue (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  name VARBINARY(255) NOT NULL,
  lane INT NOT NULL, -- what its messages carry; purge gives it a new one
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

-- A lane is a queue's generation. This table only hands out the numbers.
CREATE TABLE IF NOT EXISTS fairlead_lane (
  id INT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  queue_id INT NULL
) ENGINE = InnoDB;

-- Lanes that purge and drop left behind: maintenance sweeps their rows, for a while also those of
-- sends that commit late.
CREATE TABLE IF NOT EXISTS fairlead_retired (
  lane INT NOT NULL PRIMARY KEY,
  retired_at BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fairlead_policy (
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

-- A gate is the lock of a channel with a limit, and its GCRA time. Receivers make it on first need;
-- senders never touch it.
CREATE TABLE IF NOT EXISTS fairlead_gate (
  queue_id INT NOT NULL,
  channel VARBINARY(255) NOT NULL,
  tat BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (queue_id, channel)
) ENGINE = InnoDB;

-- The same for the limit over all channels of a queue.
CREATE TABLE IF NOT EXISTS fairlead_limit (
  queue_id INT NOT NULL PRIMARY KEY,
  tat BIGINT NOT NULL DEFAULT 0
) ENGINE = InnoDB;

-- Where the round stands, for callers that remember nothing between two receives.
CREATE TABLE IF NOT EXISTS fairlead_cursor (
  queue_id INT NOT NULL PRIMARY KEY,
  channel VARBINARY(255) NULL,
  credit INT NOT NULL DEFAULT 0
) ENGINE = InnoDB;

-- There are no partial indexes, so the state is in the indexes and every change of state moves
-- entries. What a lease changes is NOT NULL and of fixed width: the row is then updated in place
-- (measured: half the time of an update that makes the row longer).
CREATE TABLE IF NOT EXISTS fairlead_message (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  lane INT NOT NULL,
  state BINARY(1) NOT NULL, -- h held, s scheduled, r ready, l leased, d done, x dead
  version INT NOT NULL DEFAULT 0,
  channel VARBINARY(255) NOT NULL,
  `rank` INT NOT NULL DEFAULT 0, -- the negated priority
  due_at BIGINT NOT NULL,
  wake_at BIGINT NOT NULL DEFAULT 0, -- s: due_at, l: the lease's end, d and x: when it finished,
    -- h: of a group's work the delay counted from the closing, -1 if it has a time of its own
  permit BIGINT NOT NULL DEFAULT 0,
  first_at BIGINT NOT NULL DEFAULT 0, -- when it was first leased; 0: never
  attempts INT NOT NULL DEFAULT 0,
  deliveries INT NOT NULL DEFAULT 0, -- leases ever given: the fencing token
  begun TINYINT NOT NULL DEFAULT 0, -- delivered under an ordered policy and not finished
  recovered TINYINT NOT NULL DEFAULT 0,
  json TINYINT NOT NULL DEFAULT 0, -- bits: 1 the body, 2 the memo, 4 the result
  created_at BIGINT NOT NULL,
  expires_at BIGINT NULL,
  lease_us BIGINT NULL,
  group_id BIGINT NULL, -- fairlead_member finds the members of a group
  died_in INT NULL, -- the queue whose dead-letter queue it was moved to
  progress INT NULL, -- millionths
  max_attempts INT NULL,
  `key` VARBINARY(255) NULL,
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
  UNIQUE KEY `key` (lane, `key`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS fairlead_permit (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  name VARBINARY(255) NOT NULL,
  created_at BIGINT NOT NULL,
  expires_at BIGINT NOT NULL
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS fairlead_failure (
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

-- What happened, at most one row per call and queue, so that no counter row is ever contended.
CREATE TABLE IF NOT EXISTS fairlead_tally (
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

-- The tallies, added up. Minute 0 holds everything older than the history's retention.
CREATE TABLE IF NOT EXISTS fairlead_history (
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

-- Rows that are only ever locked: whoever holds 'fold' adds up the tallies.
CREATE TABLE IF NOT EXISTS fairlead_lock (
  name VARBINARY(32) NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

INSERT IGNORE INTO fairlead_lock (name) VALUES ('fold');
