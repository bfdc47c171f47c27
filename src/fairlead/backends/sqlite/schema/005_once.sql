-- What a queue remembers for a while (docs/semantics.md §19): the names of sends, and values under
-- names of yours. It hangs on the lane: purge and drop forget it at once, and it is swept later.
CREATE TABLE fairlead_remembered (
    id INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    kind TEXT NOT NULL,                     -- o once, v value
    name TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    message_id INTEGER,                     -- of a send: the message, which may be gone
    value BLOB                              -- JSON
);
CREATE UNIQUE INDEX fairlead_remembered_name ON fairlead_remembered (lane, kind, name);
CREATE INDEX fairlead_remembered_expiry ON fairlead_remembered (lane, expires_at);
