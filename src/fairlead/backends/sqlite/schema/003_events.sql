-- What happened, for those who follow it (docs/semantics.md §15). Only ever appended to, in the
-- transaction of what it tells. With one writer at a time a later id is a later commit, so readers
-- go by the id.
CREATE TABLE fairlead_event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- never reused: a cursor is the id it has come to
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    queue TEXT NOT NULL,                    -- by name: an event may outlive the queue
    message_id INTEGER,
    key TEXT,
    channel TEXT,
    delay_us INTEGER,
    data BLOB                               -- JSON
);
CREATE INDEX fairlead_event_at ON fairlead_event (at);
