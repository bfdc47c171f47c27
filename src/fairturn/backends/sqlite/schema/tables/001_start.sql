-- Fairturn on SQLite. Times are integer microseconds since the epoch, UTC.
-- Small columns come first, payloads last: if a body needs overflow pages, the other columns can still be
-- read from the row's first page.

-- The files of schema/tables that have been applied.
CREATE TABLE fairturn_migration (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at INTEGER NOT NULL
);

-- The version that migrated last, in one row (docs/decisions/007-routines-and-upgrades.md).
CREATE TABLE fairturn_installed (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    generation INTEGER NOT NULL,            -- of the Fairturn that migrated
    oldest_client INTEGER NOT NULL          -- the oldest generation of clients that it serves
);

-- A lane is one generation of one queue. Messages have the lane, not the queue: purge and drop only give
-- the queue a new lane. The rows of the old one are out of sight immediately; they are deleted later, in
-- chunks.
CREATE TABLE fairturn_lane (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    retired_at INTEGER                      -- NULL: in use; else its rows are to be deleted
);

-- The queues and their settings.
CREATE TABLE fairturn_queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- never changes: policies, gates and counters refer to it
    name TEXT NOT NULL UNIQUE,
    lane INTEGER NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    tat INTEGER NOT NULL DEFAULT 0,         -- the time of the queue's own rate (GCRA)
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
    events INTEGER NOT NULL,                -- 1: events are written
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

-- The user's own data of a queue. It is not in the queue's row, because every operation reads that row,
-- and every receive under a rate writes it.
CREATE TABLE fairturn_meta (
    queue_id INTEGER PRIMARY KEY,
    meta TEXT NOT NULL                      -- a JSON object
);

-- The messages of all queues.
CREATE TABLE fairturn_message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- never reused, unless a backup is restored
    lane INTEGER NOT NULL,
    state TEXT NOT NULL,                    -- h s r l d x (docs/semantics.md §2)
    version INTEGER NOT NULL,
    channel TEXT NOT NULL,
    rank INTEGER NOT NULL,                  -- the negative priority, so that all columns ascend
    due_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    deliveries INTEGER NOT NULL DEFAULT 0,  -- how many leases there were
    token INTEGER,                          -- of the latest lease: fences older ones
    max_attempts INTEGER,                   -- NULL: the present setting of the queue
    lease_us INTEGER,
    lease_until INTEGER,
    permit_id INTEGER,
    begun INTEGER NOT NULL DEFAULT 0,       -- delivered in an ordered channel, not finished
    recovered INTEGER NOT NULL DEFAULT 0,
    json INTEGER NOT NULL DEFAULT 0,        -- which payloads are JSON: 1 body, 2 memo, 4 result
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

-- The row's id is always the last column of an index, so the first one has the order of §4.6. All are
-- partial: a message is only in the indexes of its state, and scheduled rows never slow down a receive. The
-- state is a column of the index although it is always the same: without it, SQLite would read each row to
-- check it, and counting a million messages would read a million rows.
CREATE INDEX fairturn_ready ON fairturn_message (lane, state, version, channel, rank, due_at)
    WHERE state = 'r';
CREATE INDEX fairturn_scheduled ON fairturn_message (lane, state, due_at) WHERE state = 's';
CREATE INDEX fairturn_leased ON fairturn_message (lane, state, lease_until) WHERE state = 'l';
-- Written with OR: SQLite sees that state = 'l' implies this condition, but not that it implies an IN.
CREATE INDEX fairturn_busy ON fairturn_message (lane, channel, state, version)
    WHERE state = 'l' OR state = 's' OR state = 'h';
CREATE INDEX fairturn_finished ON fairturn_message (lane, state, finished_at)
    WHERE state = 'd' OR state = 'x';
CREATE INDEX fairturn_expiry ON fairturn_message (lane, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX fairturn_begun ON fairturn_message (lane, channel, state) WHERE begun = 1;
CREATE UNIQUE INDEX fairturn_key ON fairturn_message (lane, key) WHERE key IS NOT NULL;

-- The policies of channels that have their own.
CREATE TABLE fairturn_policy (
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
-- With it, a send sees in one probe that no channel of the queue has a max_size.
CREATE INDEX fairturn_policy_sized ON fairturn_policy (queue_id) WHERE max_size IS NOT NULL;

-- The time of a channel's rate (GCRA). A row whose tat has passed means the same as no row.
CREATE TABLE fairturn_gate (
    queue_id INTEGER NOT NULL,
    channel TEXT NOT NULL,
    tat INTEGER NOT NULL,
    PRIMARY KEY (queue_id, channel)
) WITHOUT ROWID;

-- Permits: one row extends all leases of a worker.
CREATE TABLE fairturn_permit (
    id INTEGER PRIMARY KEY,                 -- random: a sequence could begin again after a restore
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
);

-- The failure log: one row for each failure.
CREATE TABLE fairturn_failure (
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
CREATE INDEX fairturn_failure_at ON fairturn_failure (queue_id, at);
CREATE INDEX fairturn_failure_message ON fairturn_failure (message_id);
CREATE INDEX fairturn_failure_key ON fairturn_failure (key) WHERE key IS NOT NULL;

-- The counters of a queue per minute; minute -1 has the sum of all older ones. They are written in the
-- transaction of what they count: with one writer, nobody waits for such a row.
CREATE TABLE fairturn_history (
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

-- Groups (docs/semantics.md §12). A message refers to its group by id. Ids are never reused, so a message
-- that outlives its group never belongs to another one.
CREATE TABLE fairturn_group (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    queue TEXT NOT NULL,                    -- by name: the group may outlive the queue
    on_dead TEXT NOT NULL,                  -- i ignore, a abort
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    closed_at INTEGER,
    outcome TEXT,                           -- e ended, c cancelled, a aborted; NULL while it is open
    -- The end and abort messages are held messages without a group. Their delays count from the end of
    -- the group. NULL: a time was given, which is the message's due_at.
    end_id INTEGER,
    end_delay_us INTEGER,
    abort_id INTEGER,
    abort_delay_us INTEGER,
    -- For information only: whether a group is complete is read from the messages.
    sent INTEGER NOT NULL DEFAULT 0,
    done INTEGER NOT NULL DEFAULT 0,
    dead INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX fairturn_group_open ON fairturn_group (name) WHERE closed_at IS NULL;
CREATE INDEX fairturn_group_closed ON fairturn_group (name, closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX fairturn_group_kept ON fairturn_group (closed_at) WHERE closed_at IS NOT NULL;

-- The unfinished members: one probe tells whether a group has any. The members in each state are counted
-- from the index alone.
CREATE INDEX fairturn_member ON fairturn_message (group_id, state)
    WHERE group_id IS NOT NULL AND state <> 'd' AND state <> 'x';

-- Events (docs/semantics.md §15). An event is written in the transaction of what it records, and never
-- changed. With one writer at a time, a later id is a later commit, so readers read by id.
CREATE TABLE fairturn_event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- never reused: a cursor is the id read last
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    queue TEXT NOT NULL,                    -- by name: an event may outlive the queue
    message_id INTEGER,
    key TEXT,
    channel TEXT,
    delay_us INTEGER,
    data BLOB                               -- JSON
);
CREATE INDEX fairturn_event_at ON fairturn_event (at);

-- Schedules: the messages to send, and the due times (docs/semantics.md §18).
CREATE TABLE fairturn_schedule (
    name TEXT NOT NULL PRIMARY KEY,
    revision INTEGER NOT NULL,              -- grows with every change, so that each due time is handled once
    queue TEXT NOT NULL,                    -- by name: the queue may be dropped and created again
    spec TEXT NOT NULL,                     -- JSON: cron and timezone, every_us and anchor_us, or at_us
    missed TEXT NOT NULL,                   -- s skip, o once, b backfill
    overlap TEXT NOT NULL,                  -- s skip, a allow
    owner TEXT,                             -- the app that declared it in its code
    paused INTEGER NOT NULL,
    next_at INTEGER,                        -- the next due time; NULL: never again
    look_at INTEGER,                        -- when to check it; NULL: paused, or never again
    last_at INTEGER,                        -- the last due time whose message was sent
    error TEXT,                             -- why the message of the next due time could not be sent
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    json INTEGER NOT NULL,
    body BLOB NOT NULL,
    options TEXT NOT NULL                   -- JSON: channel, headers and so on of its messages
);
CREATE INDEX fairturn_schedule_look ON fairturn_schedule (look_at, name) WHERE look_at IS NOT NULL;

-- What a queue remembers for a while (docs/semantics.md §19): once names, and the user's values. The rows
-- belong to the lane: purge and drop forget them immediately, and they are deleted later.
CREATE TABLE fairturn_remembered (
    id INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    kind TEXT NOT NULL,                     -- o once, v value
    name TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    message_id INTEGER,                     -- of a once name: the message, which may be gone
    value BLOB                              -- JSON
);
CREATE UNIQUE INDEX fairturn_remembered_name ON fairturn_remembered (lane, kind, name);
CREATE INDEX fairturn_remembered_expiry ON fairturn_remembered (lane, expires_at);
