"""Deliberate bugs in SQLite's backend: substitutions that the machine must notice (mutants.py)."""

from __future__ import annotations

from dataclasses import dataclass

# The files of statements.
CARE = "statements/maintenance.sql"
EVENTS = "statements/events.sql"
GROUPS = "statements/groups.sql"
INSIGHT = "statements/insight.sql"
MESSAGES = "statements/messages.sql"
POLICIES = "statements/policies.sql"
QUEUES = "statements/queues.sql"
RECEIVING = "statements/receive.sql"
SENDING = "statements/sends.sql"
VERBS = "statements/verbs.sql"


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str  # in backends/sqlite
    old: str
    new: str
    times: int = 1  # how often the text must occur; all are changed


MUTANTS = [
    # --- fencing -----------------------------------------------------------------------------
    Mutant(
        "ack-ignores-the-token",
        VERBS,
        """DELETE FROM fairturn_message
WHERE id IN (SELECT value FROM json_each(:ids))
  AND token = :token AND""",
        """DELETE FROM fairturn_message
WHERE id IN (SELECT value FROM json_each(:ids))
  AND :token > 0 AND""",
    ),
    Mutant(
        "verbs-ignore-the-token",
        VERBS,
        """SELECT id, attempts, coalesce(max_attempts, :queue_attempts), group_id
FROM fairturn_message
WHERE id IN (SELECT value FROM json_each(:ids))
  AND token = :token AND""",
        """SELECT id, attempts, coalesce(max_attempts, :queue_attempts), group_id
FROM fairturn_message
WHERE id IN (SELECT value FROM json_each(:ids))
  AND :token > 0 AND""",
    ),
    Mutant(
        "ack-takes-other-queues-leases",
        VERBS,
        """DELETE FROM fairturn_message
WHERE id IN (SELECT value FROM json_each(:ids))
  AND token = :token AND +lane = :lane AND""",
        """DELETE FROM fairturn_message
WHERE id IN (SELECT value FROM json_each(:ids))
  AND token = :token AND :lane > 0 AND""",
    ),
    Mutant(
        "pairs-ignore-the-token",
        VERBS,
        "WHERE (id, token) IN (",
        "WHERE (id, 0) IN (SELECT json_extract(value, '$[0]'), 0 FROM json_each(:leases) UNION ",
    ),
    Mutant(
        "token-of-the-first-lease", RECEIVING, "token = :token,", "token = coalesce(token, :token),"
    ),
    Mutant(
        "delivery-not-counted",
        RECEIVING,
        "deliveries = deliveries + 1,",
        "deliveries = max(deliveries, 1),",
    ),
    Mutant("cancel-without-force", "messages.py", 'state not in "hsr"', 'state not in "hsrl"'),
    # --- instants ----------------------------------------------------------------------------
    Mutant(
        "due-is-exclusive",
        CARE,
        "AND state = 's' AND due_at <= :now\n    ORDER BY due_at, id",
        "AND state = 's' AND due_at < :now\n    ORDER BY due_at, id",
    ),
    Mutant("born-ready-is-exclusive", "sends.py", "if due <= queue.now", "if due < queue.now"),
    Mutant(
        "lease-end-is-exclusive",
        CARE,
        "AND m.state = 'l' AND m.lease_until <= :now\nORDER BY",
        "AND m.state = 'l' AND m.lease_until < :now\nORDER BY",
    ),
    Mutant(
        "expiry-is-exclusive",
        CARE,
        "WHERE lane = :lane AND expires_at <= :now\nORDER BY",
        "WHERE lane = :lane AND expires_at < :now\nORDER BY",
    ),
    Mutant(
        "retention-is-exclusive",
        CARE,
        "AND state = 'd' AND finished_at <= :before",
        "AND state = 'd' AND finished_at < :before",
    ),
    # --- attempts and death ------------------------------------------------------------------
    Mutant(
        "attempts-not-counted", RECEIVING, "state = 'l', attempts = attempts + 1,", "state = 'l',"
    ),
    Mutant(
        "one-attempt-too-many",
        "verbs.py",
        "held.attempts >= held.max_attempts",
        "held.attempts > held.max_attempts",
    ),
    Mutant(
        "lapse-ignores-attempts",
        "maintenance.py",
        "if max_attempts == 0 or attempts < max_attempts:",
        "if max_attempts == 0 or attempts <= max_attempts:",
    ),
    Mutant("release-keeps-the-attempt", VERBS, "attempts = max(attempts - 1, 0),", ""),
    Mutant(
        "defer-keeps-attempts",
        VERBS,
        "due_at = :due_at, attempts = 0, recovered = 0,",
        "due_at = :due_at, recovered = 0,",
    ),
    Mutant(
        "redrive-keeps-attempts",
        MESSAGES,
        " attempts = 0, begun = 0,\n    finished_at = NULL, first_at = NULL\nWHERE",
        " begun = 0,\n    finished_at = NULL, first_at = NULL\nWHERE",
    ),
    Mutant("backoff-off-by-one", "verbs.py", "range(attempts - 1)", "range(attempts)"),
    Mutant(
        "dead-letter-keeps-key",
        VERBS,
        "due_at = :now, attempts = 0, key = NULL,",
        "due_at = :now, attempts = 0,",
    ),
    Mutant(
        "dead-letter-keeps-expiry",
        VERBS,
        "expires_at = :expires_at, error = :error,",
        "expires_at = coalesce(:expires_at, expires_at), error = :error,",
    ),
    Mutant("dead-letter-to-itself", "maintenance.py", "and queue.dead_letter != queue.name:", ":"),
    Mutant("recovered-flag-lost", CARE, "SET state = 'r', recovered = 1,", "SET state = 'r',"),
    Mutant(
        "redrive-newest-first",
        MESSAGES,
        "state = 'x'\nORDER BY finished_at, id LIMIT",
        "state = 'x'\nORDER BY finished_at DESC, id LIMIT",
    ),
    # --- exact leases and moves ---------------------------------------------------------------
    Mutant(
        "exact-extend-stays-on-its-permit", VERBS, "SET permit_id = NULL,\n    lease", "SET lease"
    ),
    Mutant(
        "exact-extend-never-shortens",
        VERBS,
        "lease_until = :now + coalesce(:lease_us, lease_us, :queue_lease_us)\n",
        "lease_until = max(lease_until, :now + coalesce(:lease_us, lease_us, :queue_lease_us))\n",
    ),
    Mutant("move-newest-first", MESSAGES, "ORDER BY id LIMIT -1", "ORDER BY id DESC LIMIT -1"),
    Mutant("move-keeps-the-due-time", MESSAGES, "rank, :now,\n", "rank, min(due_at, :now),\n"),
    Mutant(
        "move-keeps-the-expiry",
        MESSAGES,
        "json & 1, :expires_at,",
        "json & 1, coalesce(:expires_at, expires_at),",
    ),
    Mutant("move-does-not-promote", "messages.py", "yield SQL.promote,", "_ = SQL.promote,"),
    Mutant("move-leaves-groups-waiting", "messages.py", "ended.left(group for", "list(group for"),
    Mutant(
        "move-tells-no-deletion",
        "messages.py",
        'ids = [id for id, _ in moved]\n        yield from tell(found, "deleted", ids)\n',
        "ids = [id for id, _ in moved]\n",
    ),
    Mutant("move-is-not-counted", "messages.py", "count_one(target, SENT, len(rows))", "()"),
    Mutant("promote-misses-the-last-instant", CARE, "due_at <= :due", "due_at < :due"),
    Mutant(
        "promote-ends-pauses",
        CARE,
        "AND first_at IS NULL AND (expires_at",
        "AND (expires_at",
    ),
    Mutant(
        "promote-takes-the-latest",
        CARE,
        "expires_at > :now)\n    ORDER BY due_at, id",
        "expires_at > :now)\n    ORDER BY due_at DESC, id",
    ),
    Mutant(
        "promote-takes-the-expired",
        CARE,
        "AND (expires_at IS NULL OR expires_at > :now)\n    ORDER BY due_at",
        "AND :now > 0\n    ORDER BY due_at",
    ),
    # --- what is kept ------------------------------------------------------------------------
    Mutant("memo-erased-when-omitted", "verbs.py", "if not verb.keep_memo:", "if True:"),
    Mutant("ack-ignores-retention", "verbs.py", "if queue.retention_us > 0:", "if False:"),
    Mutant(
        "done-kept-for-ever",
        CARE,
        "AND state = 'd' AND finished_at <= :before",
        "AND state = 'd' AND finished_at <= :before AND false",
    ),
    Mutant(
        "complete-keeps-error",
        VERBS,
        "attempts = 0,\n    error = NULL, begun",
        "attempts = 0, begun",
    ),
    Mutant("extend-shortens", VERBS, "max(lease_until, :now + coalesce", "max(0, :now + coalesce"),
    # --- keys --------------------------------------------------------------------------------
    Mutant(
        "dead-keep-their-keys", SENDING, "SET key = NULL WHERE id IN", "SET key = key WHERE id IN"
    ),
    Mutant(
        "purge-leaves-keys",
        SENDING,
        "ON m.lane = :lane AND m.key = k.value",
        "ON m.lane <= :lane AND m.key = k.value",
    ),
    Mutant(
        "replace-of-leased",
        "../keys.py",
        "else holder.state]",
        "else holder.state.replace('l', 'r')]",
    ),
    Mutant(
        "replace-keeps-memo",
        SENDING,
        "    memo = NULL, error = NULL, result",
        "    error = NULL, result",
    ),
    Mutant(
        "conflict-sends-the-rest",
        "sends.py",
        "if plan.conflicts:",
        "if False:",
    ),
    # --- limits and fairness -----------------------------------------------------------------
    Mutant(
        "max-size-counts-only-ready",
        POLICIES,
        """WHERE lane = :lane AND channel = :channel AND (state = 'l' OR state = 's' OR state = 'h')
    UNION""",
        """WHERE lane = :lane AND channel = :channel AND (state = 'h')
    UNION""",
    ),
    Mutant(
        "permitted-leases-bypass-the-limit",
        RECEIVING,
        "m.channel = c.value AND m.state = 'l'),\n    coalesce",
        "m.channel = c.value AND m.state = 'l' AND m.permit_id IS NULL),\n    coalesce",
    ),
    Mutant(
        "queue-limit-ignored",
        "receive/receives.py",
        "call.left = max(0, min(call.left, free, gate.allowed))",
        "call.left = max(0, min(call.left, gate.allowed))",
    ),
    Mutant(
        "weight-ignored", "receive/gates.py", "Channel(name, policy.weight,", "Channel(name, 1,", 2
    ),
    Mutant(
        "a-turn-never-ends",
        "receive/fairness.py",
        "return self.credit - 1 - (given - 1) % self.credit",
        "return self.credit",
    ),
    Mutant(
        "rate-not-charged", RECEIVING, "DO UPDATE SET tat = excluded.tat", "DO UPDATE SET tat = tat"
    ),
    Mutant(
        "rate-charged-once-per-call",
        "receive/receives.py",
        "c.base + k * c.interval",
        "c.base + c.interval",
    ),
    Mutant("burst-off-by-one", "receive/gates.py", "// interval + 1", "// interval + 2"),
    Mutant(
        "queue-rate-not-charged",
        QUEUES,
        "SET tat = :tat WHERE id",
        "SET tat = min(tat, :tat) WHERE id",
    ),
    Mutant("paused-queue-gives", "receive/receives.py", "if not found.paused:", "if True:"),
    Mutant(
        "ordered-overtakes-a-retry",
        RECEIVING,
        "AND m.begun = 1 AND m.state = 's')",
        "AND m.begun = 2 AND m.state = 's')",
    ),
    Mutant("ordered-overtakes-a-lease", "receive/gates.py", "(leased or blocked)", "blocked"),
    Mutant("begun-forgotten", RECEIVING, "SET begun = 1 WHERE id IN", "SET begun = 0 WHERE id IN"),
    Mutant(
        "priority-ignored-in-merge",
        RECEIVING,
        """ LIMIT :limit)
ORDER BY m.channel, m.rank, m.due_at, m.id""",
        """ LIMIT :limit)
ORDER BY m.channel, m.due_at, m.id""",
        2,
    ),
    Mutant(
        "max-bytes-cuts-late", "receive/receives.py", "total > max_bytes", "total > max_bytes + 1"
    ),
    # --- permits -----------------------------------------------------------------------------
    Mutant(
        "expired-permit-revived",
        VERBS,
        "WHERE id = :id AND expires_at > :now RETURNING 1",
        "WHERE id = :id AND :now > 0 RETURNING 1",
    ),
    Mutant(
        "live-permit-ignored", "maintenance.py", "live.append(id)\n            continue", "pass"
    ),
    # --- counters ----------------------------------------------------------------------------
    Mutant("recovered-not-counted", "maintenance.py", "counted[RECOVERED] += len(ready)", "pass"),
    Mutant(
        "errors-not-counted",
        "verbs.py",
        "counted[ERRORS] += len(valid)",
        "pass",
    ),
    Mutant("expired-counts-the-delivered", CARE, "RETURNING deliveries = 0", "RETURNING 1"),
    Mutant(
        "dead-letter-not-counted",
        "maintenance.py",
        "count_one(target, SENT, len(ids))",
        "count_one(target, SENT, 0)",
    ),
    Mutant(
        "stats-forget-lapsed-leases",
        INSIGHT,
        "WHERE m.lane = :lane AND m.state = 'l' AND m.lease_until <= :now AND p.id IS NULL\n\n",
        "WHERE m.lane = :lane AND m.state = 'l' AND m.lease_until < :now AND p.id IS NULL\n\n",
    ),
    # --- groups ------------------------------------------------------------------------------
    Mutant(
        "group-closes-over-leases",
        GROUPS,
        "fairturn_group.id AND m.state <> 'd' AND m.state <> 'x')",
        "fairturn_group.id AND m.state <> 'd' AND m.state <> 'x' AND m.state <> 'l')",
    ),
    Mutant("unstarted-group-closes", GROUPS, "started_at IS NOT NULL AND NOT EXISTS", "NOT EXISTS"),
    Mutant(
        "deaths-abort-nothing",
        "groups/closing.py",
        'if group.on_dead == "a" and ended[group.id].died:',
        "if False:",
    ),
    Mutant(
        "every-death-aborts",
        "groups/closing.py",
        'if group.on_dead == "a" and ended[group.id].died:',
        "if ended[group.id].died:",
    ),
    Mutant(
        "cancel-spares-leases",
        GROUPS,
        "DELETE FROM fairturn_message\nWHERE {unfinished_member} AND",
        "DELETE FROM fairturn_message\nWHERE {unfinished_member} AND state <> 'l' AND",
    ),
    Mutant(
        "members-are-not-held",
        "sends.py",
        '("h" if started_at is None else state, *others, group)',
        "(state, *others, group)",
    ),
    Mutant(
        "start-ignores-due-times",
        GROUPS,
        "SET state = CASE WHEN due_at <= :now THEN 'r' ELSE 's' END\nWHERE {unfinished",
        "SET state = CASE WHEN :now > 0 THEN 'r' ELSE 's' END\nWHERE {unfinished",
    ),
    Mutant(
        "work-delay-counts-from-the-opening",
        "groups/groups.py",
        "work.delay_us if work.due_us is None else None",
        "None",
    ),
    Mutant("always-the-end-work", "groups/closing.py", "if outcome == ENDED else (abort, end)", ""),
    Mutant(
        "dead-letter-stays-in-the-group",
        VERBS,
        "origin = :origin, group_id = NULL",
        "origin = :origin",
    ),
    Mutant(
        "replaced-stays-in-its-group",
        SENDING,
        "group_id = :group_id, type",
        "group_id = coalesce(:group_id, group_id), type",
    ),
    Mutant(
        "expired-members-hold-the-group",
        "maintenance.py",
        "ended.left(group for _, group in rows)",
        "ended.left(())",
    ),
    Mutant(
        "purged-members-hold-the-group",
        "maintenance.py",
        "ended.left(group for (group,) in rows)",
        "ended.left(())",
    ),
    Mutant(
        "cancelled-members-not-counted",
        "groups/closing.py",
        "counted[CANCELLED_COUNTER] = number",
        "counted[CANCELLED_COUNTER] = 0",
    ),
    Mutant(
        "completed-members-not-done",
        "verbs.py",
        "counted[COMPLETED] += len(valid)\n    ended.done(",
        "counted[COMPLETED] += len(valid)\n    ended.left(",
    ),
    Mutant(
        "closed-groups-kept-too-long",
        "maintenance.py",
        "now - limits.GROUP_RETENTION",
        "now - 20 * limits.GROUP_RETENTION",
    ),
    # --- progress, outcomes, debounce, batches -----------------------------------------------
    Mutant(
        "progress-survives-a-lease",
        RECEIVING,
        "permit_id = :permit,\n    progress = NULL, note = NULL",
        "permit_id = :permit",
    ),
    Mutant("note-cleared-when-omitted", VERBS, "note = coalesce(:note, note)", "note = :note"),
    Mutant(
        "dead-lettered-are-gone", INSIGHT, "OR (m.origin = :queue_id", "OR (m.origin = -:queue_id"
    ),
    Mutant(
        "debounce-bounded-from-now",
        "sends.py",
        "min(due, created_at + max_wait_us)",
        "min(due, queue.now + item.max_wait_us)",
    ),
    Mutant(
        "batch-clears-nothing",
        "sends.py",
        "yield SQL.clear_policy, (ids[queue], channel)",
        "pass",
    ),
    # --- origin, the first delivery, meta -----------------------------------------------------
    Mutant(
        "every-delivery-is-the-first",
        RECEIVING,
        "first_at = coalesce(first_at, :now)",
        "first_at = :now",
    ),
    Mutant(
        "redriven-remembers-its-first-delivery",
        MESSAGES,
        "finished_at = NULL, first_at = NULL\nWHERE",
        "finished_at = NULL\nWHERE",
    ),
    Mutant(
        "replaced-remembers-its-first-delivery",
        SENDING,
        "note = NULL, first_at = NULL",
        "note = NULL",
    ),
    Mutant("meta-is-not-cleared", "queues.py", 'elif "meta" in columns:', "elif False:"),
    # --- events ------------------------------------------------------------------------------
    Mutant("closings-not-told", "groups/closing.py", "    if queue.events:", "    if False:"),
    Mutant("delays-below-zero", EVENTS, "max(m.due_at - :now, 0)", "m.due_at - :now"),
    Mutant("expiry-not-told", "maintenance.py", "(id for (id,) in doomed)", "()"),
]
