-- Fairlead on SQLite, first generation. Times are integer microseconds since the epoch, UTC.
-- Columns are ordered small first, payloads last: a row whose body spills over into overflow pages
-- is then judged from its first page alone.

-- A lane is one generation of one queue. Messages carry the lane, not the queue, so that purge and
-- drop only hand out a new number: whatever bears the old one is gone at once and swept in chunks.
CREATE TABLE fairlead_lane (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    retired_at INTEGER                      -- NULL: in use; else waiting to be swept
);

CREATE TABLE fairlead_queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- stable: policies, gates and totals hang on it
    name TEXT NOT NULL UNIQUE,
    lane INTEGER NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    tat INTEGER NOT NULL DEFAULT 0,         -- GCRA time of the limit over all channels
    lease_us INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    backoff_initial_us INTEGER NOT NULL,
    backoff_factor INTEGER NOT NULL,
    backoff_max_us INTEGER NOT NULL,
    retention_us INTEGER NOT NULL,
    dead_retention_us INTEGER,
    failure_retention_us INTEGER,
    dead_letter TEXT,
    max_body INTEGER NOT NULL,
    expires_us INTEGER,
    paused INTEGER NOT NULL,
    events INTEGER NOT NULL,                -- 1: what happens here is also written to fairlead_event
    limit_concurrency INTEGER,
    limit_rate_count INTEGER,
    limit_rate_period_us INTEGER,
    limit_burst INTEGER NOT NULL,
    max_concurrency INTEGER,
    rate_count INTEGER,
    rate_period_us INTEGER,
    burst INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    channel_paused INTEGER NOT NULL,
    ordered INTEGER NOT NULL,
    max_size INTEGER
);

-- The user's own data of a queue. Apart from it, since the queue's row is read by every operation and
-- written by every receive under a rate.
CREATE TABLE fairlead_meta (
    queue_id INTEGER PRIMARY KEY,
    meta TEXT NOT NULL                      -- a JSON object
);

CREATE TABLE fairlead_message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- never reused: a stale lease must not meet a new message
    lane INTEGER NOT NULL,
    state TEXT NOT NULL,                    -- h s r l d x (docs/semantics.md §2)
    version INTEGER NOT NULL,
    channel TEXT NOT NULL,
    rank INTEGER NOT NULL,                  -- the negated priority, so that one order serves all
    due_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    deliveries INTEGER NOT NULL DEFAULT 0,  -- the fencing token
    max_attempts INTEGER,                   -- NULL: the queue's, at that moment
    lease_us INTEGER,
    lease_until INTEGER,
    permit_id INTEGER,
    begun INTEGER NOT NULL DEFAULT 0,       -- delivered under an ordered policy and not finished
    recovered INTEGER NOT NULL DEFAULT 0,
    json INTEGER NOT NULL DEFAULT 0,        -- bits: which payloads are JSON
    created_at INTEGER NOT NULL,
    finished_at INTEGER,
    expires_at INTEGER,
    first_at INTEGER,                       -- when it was first leased
    origin INTEGER,                         -- the queue where a dead-lettered message died
    group_id INTEGER,
    progress INTEGER,                       -- in millionths
    key TEXT,
    type TEXT,
    error TEXT,
    note TEXT,                              -- beside the progress
    headers BLOB,
    memo BLOB,
    result BLOB,
    body BLOB NOT NULL
);

-- Every index ends in the row's id without naming it, so the first one is in the order of §4.6.
-- All are partial: a message lies only in the indexes of its state, and future rows never slow
-- down a receive. The state is in the keys although it is always the same there: SQLite would read
-- each row just to check it, and counting a million messages would read a million rows.
CREATE INDEX fairlead_ready ON fairlead_message (lane, state, version, channel, rank, due_at)
    WHERE state = 'r';
CREATE INDEX fairlead_scheduled ON fairlead_message (lane, state, due_at) WHERE state = 's';
CREATE INDEX fairlead_leased ON fairlead_message (lane, state, lease_until) WHERE state = 'l';
-- Written as ORs, not IN: SQLite sees that state = 'l' implies such an index, not an IN list.
CREATE INDEX fairlead_busy ON fairlead_message (lane, channel, state, version)
    WHERE state = 'l' OR state = 's' OR state = 'h';
CREATE INDEX fairlead_finished ON fairlead_message (lane, state, finished_at)
    WHERE state = 'd' OR state = 'x';
CREATE INDEX fairlead_expiry ON fairlead_message (lane, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX fairlead_begun ON fairlead_message (lane, channel, state) WHERE begun = 1;
CREATE UNIQUE INDEX fairlead_key ON fairlead_message (lane, key) WHERE key IS NOT NULL;

CREATE TABLE fairlead_policy (
    queue_id INTEGER NOT NULL,
    channel TEXT NOT NULL,
    max_concurrency INTEGER,
    rate_count INTEGER,
    rate_period_us INTEGER,
    burst INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    paused INTEGER NOT NULL,
    ordered INTEGER NOT NULL,
    max_size INTEGER,
    PRIMARY KEY (queue_id, channel)
) WITHOUT ROWID;
-- Lets a send see in one probe that no channel of the queue has a max_size.
CREATE INDEX fairlead_policy_sized ON fairlead_policy (queue_id) WHERE max_size IS NOT NULL;

-- The rate's memory of a channel. One whose tat has passed is worth as much as none.
CREATE TABLE fairlead_gate (
    queue_id INTEGER NOT NULL,
    channel TEXT NOT NULL,
    tat INTEGER NOT NULL,
    PRIMARY KEY (queue_id, channel)
) WITHOUT ROWID;

CREATE TABLE fairlead_permit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
);

CREATE TABLE fairlead_failure (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id INTEGER NOT NULL,
    message_id INTEGER NOT NULL,
    key TEXT,
    attempt INTEGER NOT NULL,
    at INTEGER NOT NULL,
    fatal INTEGER NOT NULL,                 -- 1: this failure killed the message
    reference TEXT,
    error TEXT NOT NULL,
    details BLOB
);
CREATE INDEX fairlead_failure_at ON fairlead_failure (queue_id, at);
CREATE INDEX fairlead_failure_message ON fairlead_failure (message_id);
CREATE INDEX fairlead_failure_key ON fairlead_failure (key) WHERE key IS NOT NULL;

-- What happened, per queue and minute; minute -1 holds everything older. Written in the transaction
-- of what it counts: with one writer there is no hot row to wait for.
CREATE TABLE fairlead_history (
    queue_id INTEGER NOT NULL,
    minute INTEGER NOT NULL,
    sent INTEGER NOT NULL,
    delivered INTEGER NOT NULL,
    acked INTEGER NOT NULL,
    completed INTEGER NOT NULL,
    deferred INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    killed INTEGER NOT NULL,
    recovered INTEGER NOT NULL,
    released INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    expired INTEGER NOT NULL,
    errors INTEGER NOT NULL,
    PRIMARY KEY (queue_id, minute)
) WITHOUT ROWID;
