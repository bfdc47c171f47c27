-- Groups (docs/semantics.md §12). A message points at its group by id; ids are never reused, so a
-- message that outlives its group belongs to nobody else's.
CREATE TABLE fairlead_group (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    queue TEXT NOT NULL,                    -- by name: the group may outlive the queue
    on_dead TEXT NOT NULL,                  -- i ignore, a abort
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    closed_at INTEGER,
    outcome TEXT,                           -- e ended, c cancelled, a aborted; NULL while it is open
    -- The works are held messages without a group. Their delays count from the closing; NULL where
    -- a time was given, which is then the message's due_at.
    end_id INTEGER,
    end_delay_us INTEGER,
    abort_id INTEGER,
    abort_delay_us INTEGER,
    -- For information: whether a group is complete is read from the messages.
    sent INTEGER NOT NULL DEFAULT 0,
    done INTEGER NOT NULL DEFAULT 0,
    dead INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX fairlead_group_open ON fairlead_group (name) WHERE closed_at IS NULL;
CREATE INDEX fairlead_group_closed ON fairlead_group (name, closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX fairlead_group_kept ON fairlead_group (closed_at) WHERE closed_at IS NOT NULL;

-- The unfinished members: one probe tells whether a group has any left, and how many of each state
-- is counted from the index alone.
CREATE INDEX fairlead_member ON fairlead_message (group_id, state)
    WHERE group_id IS NOT NULL AND state <> 'd' AND state <> 'x';
