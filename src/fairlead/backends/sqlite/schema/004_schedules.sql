-- Schedules (docs/semantics.md §18): what to send, when, and the tick each of them waits for. One of
-- them is written at every tick of its own, by whoever wins it.
CREATE TABLE fairlead_schedule (
    name TEXT NOT NULL PRIMARY KEY,
    revision INTEGER NOT NULL,              -- grows with every change: the token of who fires it
    queue TEXT NOT NULL,                    -- by name: it may be dropped and made again
    spec TEXT NOT NULL,                     -- JSON: cron and timezone, every_us and anchor_us, or at_us
    missed TEXT NOT NULL,                   -- s skip, o once, b backfill
    overlap TEXT NOT NULL,                  -- s skip, a allow
    owner TEXT,                             -- the app that declared it in its code
    paused INTEGER NOT NULL,
    next_at INTEGER,                        -- the tick it waits for; NULL: never again
    look_at INTEGER,                        -- when to look at it; NULL: paused, or never again
    last_at INTEGER,                        -- the last tick that was sent
    error TEXT,                             -- why the tick it waits for could not be sent
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    json INTEGER NOT NULL,
    body BLOB NOT NULL,
    options TEXT NOT NULL                   -- JSON: channel, headers and the like of its messages
);
CREATE INDEX fairlead_schedule_look ON fairlead_schedule (look_at, name) WHERE look_at IS NOT NULL;
