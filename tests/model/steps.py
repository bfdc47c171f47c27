"""What may happen to a queue, how often, and with which arguments.

A step is a tuple: the name of a method of the machine and its arguments. It is thrown with dice
from two numbers, a seed and how wild the arguments may be (0: all of them the plainest), rather
than drawn choice by choice: Hypothesis cuts long examples short and repeats itself inside them, so
that a history drawn that way is mostly empty. Dropping steps and taming the ones that are left is
all the shrinking a history needs.

Names and durations are few, so that keys collide, leases end exactly on a boundary and channels
compete. Leases and messages are "the k-th newest", which finds stale ones as easily as live ones.
"""

from __future__ import annotations

import random
from typing import Any

from fairturn.core.rows import SendRow
from fairturn.core.settings import DEFAULT_POLICY, QUEUE_DEFAULTS, PolicyRow

SECOND = 1_000_000
MINUTE, DAY = 60 * SECOND, 86_400 * SECOND
KEYS = ("k", "k", "m")
GROUPS = ("g", "h")
NAMES = ("x", "y")
NOTES = ("half", "")
METAS = (None, '{"a":1}', '{"é \\u0000":"\\"😀\\\\","b":[{}]}')
WILD = 9  # the wildest; at 0 and 1 arguments are plainer than usual
RATES = ((1, SECOND), (2, 3 * SECOND), (3, SECOND), (2, 5))


class Dice:
    def __init__(self, seed: int, wildness: int) -> None:
        self._random = random.Random(seed)
        self._plain = max(1 - wildness / 2, 0)  # how often the plainest is taken instead

    def of(self, *options: Any) -> Any:
        """One of these; the first is the plainest."""
        chosen = self._random.choice(options)
        return options[0] if self._random.random() < self._plain else chosen

    def one_in(self, n: int, *options: Any, otherwise: Any = None) -> Any:
        """Usually the plain value, one in n times another."""
        return self.of(*options) if self.happens(n) else otherwise

    def happens(self, one_in: int) -> bool:
        return self.of(*[False] * (one_in - 1), True)

    # --- arguments ---------------------------------------------------------------------------
    def queue(self) -> str:
        return self.of(*["a"] * 40, *["b"] * 12, "nowhere")

    def channel(self) -> str:
        """Mostly the same few; sometimes one of many, for turns that span several rounds."""
        return self.one_in(10, *"pqrstuvw", otherwise=self.of("", "x", "y"))

    def newest(self) -> int:
        return self.of(0, 0, 0, 1, 1, 2, 3, 4, 6, 9)

    def picks(self) -> list[int]:
        return [self.newest() for _ in range(self.of(1, 1, 2, 3))]

    def duration(self) -> int:
        return self.of(0, SECOND, SECOND, 5 * SECOND)

    def some_duration(self) -> int | None:
        return self.of(None, 0, SECOND, 5 * SECOND)

    def flag(self) -> int:
        return self.of(0, 1)

    def rank(self) -> int:
        return self.of(0, 0, 0, -1, 1)

    def key(self) -> str:
        return self.of(*KEYS)

    def policy(self) -> PolicyRow:
        count, period = self.one_in(3, *RATES, otherwise=(None, None))
        return PolicyRow(
            self.one_in(3, 1, 1, 2),
            count,
            period,
            self.of(1, 1, 2, 3),
            self.of(1, 1, 2, 3),
            self.one_in(12, 1, otherwise=0),
            self.one_in(3, 1, otherwise=0),
            self.one_in(5, 3, 1),
        )

    def columns(self) -> dict[str, Any]:
        """Some of a queue's settings; most are left alone."""
        options: list[tuple[int, str, tuple[Any, ...]]] = [
            (2, "max_attempts", (2, 0, 1, 3)),
            (3, "lease_us", (SECOND, 5 * SECOND)),
            (3, "retention_us", (5 * SECOND, 0)),
            (4, "result_retention_us", (DAY, 5 * SECOND, 0)),
            (4, "dead_retention_us", (None, 5 * SECOND, 0)),
            (4, "failure_retention_us", (DAY, 5 * SECOND)),
            (2, "dead_letter", (None, "b", "b", "b", "a", "nowhere")),
            (16, "max_body", (1000, 2)),
            (8, "expires_us", (None, 5 * SECOND)),
            (8, "limit_concurrency", (None, 1, 3)),
            (2, "events", (1, 1, 1, 0)),
            (3, "meta", METAS),
        ]
        columns = {name: self.of(*values) for n, name, values in options if self.happens(n)}
        if self.happens(3):
            columns["backoff_initial_us"] = self.of(SECOND, SECOND, 0)
            columns["backoff_factor"] = self.of(2, 3, 1)
            columns["backoff_max_us"] = self.of(5 * SECOND, MINUTE)
        if self.happens(8):
            count, period = self.one_in(2, *RATES, otherwise=(None, None))
            columns |= {"limit_rate_count": count, "limit_rate_period_us": period}
            columns["limit_burst"] = self.of(1, 2, 3)
        if self.happens(3):
            columns |= dict(zip(DEFAULT_POLICY, self.policy(), strict=True))
        return columns

    def send_row(self) -> SendRow:
        """As it is, but for the due time: it is from now, and the machine adds it."""
        row = self.any_row()
        bounded = row.key is not None and row.on_conflict == "r"  # §14
        bound = row.max_wait_us if bounded else None
        once = self.one_in(4, *NAMES) if row.key is None else None  # §19
        kept = None if once is None else self.of(5 * SECOND, SECOND, MINUTE)
        return row._replace(max_wait_us=bound, once=once, once_us=kept)

    def any_row(self) -> SendRow:
        return SendRow(
            self.channel(),
            self.of(b"1", b"22", b"333", b""),
            self.flag(),
            self.rank(),
            self.one_in(6, -SECOND, SECOND),
            self.of(0, 0, 0, 0, SECOND, 5 * SECOND),
            self.one_in(2, *KEYS),
            self.of("r", "i", "e"),
            self.of(0, 0, 0, 1),
            self.of(None, "t", "u"),
            self.one_in(4, b'{"h":1}'),
            self.one_in(5, SECOND, 0),
            self.one_in(3, 1, 1, 2, 0),
            self.one_in(8, 5 * SECOND, SECOND, MINUTE, MINUTE),
            self.one_in(5, 2 * SECOND, SECOND, 0),
            self.one_in(4, *GROUPS),
        )

    def work(self) -> SendRow | None:
        """A group's work: it has no expiry, no bound, no group and no name."""
        row = self.send_row()
        row = row._replace(on_conflict="e", expires_us=None, max_wait_us=None)
        return self.of(row._replace(group=None, once=None, once_us=None), None)

    def group(self) -> str:
        return self.of(*GROUPS)

    def message(self) -> tuple[str, int]:
        return self.of("live", "live", "live", "any"), self.newest()

    def leases(self) -> tuple[str, list[int], bool]:
        """Which leases a verb gets: live ones, members' or any, the newest, strictly or not."""
        fate = self.of("live", "live", "member", "member", "any")
        return fate, self.picks(), self.of(False, False, True)


# --- the steps ------------------------------------------------------------------------------------


def queue_create(d: Dice) -> tuple[Any, ...]:
    return d.of("a", "b"), d.columns()


def queue_set(d: Dice) -> tuple[Any, ...]:
    kind = d.of("some", "some", "some", "resume", "resume", "pause", "defaults")
    plain = {"resume": {"paused": 0}, "pause": {"paused": 1}, "defaults": QUEUE_DEFAULTS}
    return d.queue(), d.columns() if kind == "some" else plain[kind]


def queue_end(d: Dice) -> tuple[Any, ...]:
    return d.queue(), d.of("purge", "purge", "reset", "drop")


def policy_set(d: Dice) -> tuple[Any, ...]:
    return d.queue(), d.channel(), d.policy()


def policy_clear(d: Dice) -> tuple[Any, ...]:
    return d.queue(), d.channel()


def send(d: Dice) -> tuple[Any, ...]:
    return d.queue(), [d.send_row() for _ in range(d.of(1, 1, 1, 2, 3, 4))]


def plain(row: SendRow) -> SendRow:
    """The same, due at once, without a key or a name."""
    row = row._replace(due_us=None, delay_us=0, key=None, on_conflict="e")
    return row._replace(once=None, once_us=None)


def send_alike(d: Dice) -> tuple[Any, ...]:
    """Several alike, due at once, without a key: what a busy queue is made of."""
    row = d.send_row()
    return d.queue(), [plain(row)] * d.of(1, 2, 3, 4, 9)


def send_wide(d: Dice) -> tuple[Any, ...]:
    """To many channels at once."""
    rows = [d.send_row() for _ in range(d.of(4, 8, 12))]
    return d.queue(), [row._replace(channel=d.of(*"pqrstuvw"), key=None) for row in rows]


def receive(d: Dice) -> tuple[Any, ...]:
    return (
        d.queue(),
        d.flag(),
        d.of(10, 1, 2, 3),
        d.one_in(2, 0, SECOND, 5 * SECOND),
        d.one_in(4, 0, 1),
        d.one_in(5, ["t"], ["t", "u"], []),
        d.one_in(5, 0, 1),
        d.one_in(4, 3, 0, 5),
        d.one_in(2, 0, 0, 0, 0, 1, 9),
        d.picks() if d.happens(3) else [],
    )


def receive_all(d: Dice) -> tuple[Any, ...]:
    return d.queue(), d.flag(), d.of(10, 1, 1, 2, 3)


def leases(d: Dice) -> tuple[Any, ...]:
    return d.leases()


def complete(d: Dice) -> tuple[Any, ...]:
    return *d.leases(), d.of((b"9", 1), (b"raw", 0), (None, 0))


def defer(d: Dice) -> tuple[Any, ...]:
    memo = d.of("keep", (b"1", 1), (b"raw", 0), (None, 0))
    return *d.leases(), d.one_in(4, -SECOND, SECOND), d.duration(), memo


def fail(d: Dice) -> tuple[Any, ...]:
    return *d.leases(), d.of("boom", "bang"), d.some_duration(), d.of(False, True)


def kill(d: Dice) -> tuple[Any, ...]:
    return *d.leases(), d.of("boom", "bang")


def extend(d: Dice) -> tuple[Any, ...]:
    return *d.leases(), d.some_duration(), d.of(False, False, True)


def progress(d: Dice) -> tuple[Any, ...]:
    return *d.leases(), *d.of((500_000, None), (None, "half"), (1_000_000, ""), (0, "none"))


def group_open(d: Dice) -> tuple[Any, ...]:
    return d.group(), d.queue(), d.of("i", "a"), d.work(), d.work()


def group_life(d: Dice) -> tuple[Any, ...]:
    """A group with works, members in one or two queues, started: the usual way to use one."""
    members = [send_members(d) for _ in range(d.of(1, 1, 2))]
    return group_open(d), members, d.of(True, True, True, False)


def group_name(d: Dice) -> tuple[Any, ...]:
    return (d.group(),)


def send_members(d: Dice) -> tuple[Any, ...]:
    """Several members of one group, due at once: what a group is made of."""
    row = d.send_row()
    members = [plain(row)._replace(group=d.group())]
    return d.queue(), members * d.of(1, 2, 3)


def send_often(d: Dice) -> tuple[Any, ...]:
    """Debounce: a key, again and again."""
    row = d.send_row()
    delay, wait = d.of(SECOND, 5 * SECOND), d.of(None, SECOND, 2 * SECOND, 5 * SECOND)
    row = plain(row)._replace(key=d.key(), on_conflict="r")
    return d.queue(), [row._replace(delay_us=delay, max_wait_us=wait)]


def send_once(d: Dice) -> tuple[Any, ...]:
    """Under few names, again and again."""
    thrown = [d.send_row() for _ in range(d.of(1, 1, 2, 4))]
    rows = [row._replace(key=None, max_wait_us=None) for row in thrown]  # no key, so no bound
    named = [(d.of(*NAMES), d.of(5 * SECOND, SECOND, MINUTE)) for _ in rows]
    return d.queue(), [
        row._replace(once=name, once_us=kept) for row, (name, kept) in zip(rows, named, strict=True)
    ]


def remember(d: Dice) -> tuple[Any, ...]:
    return d.queue(), d.of(*NAMES), d.of(b"1", b"{}"), d.of(5 * SECOND, SECOND, 0, MINUTE)


def batch(d: Dice) -> tuple[Any, ...]:
    channels = sorted({(d.queue(), d.channel()) for _ in range(d.of(0, 1, 2))})
    policies = [(queue, channel, d.policy()) for queue, channel in channels[:1]]
    queues = sorted({d.queue() for _ in range(d.of(1, 2, 2))})
    sends = [(queue, [d.send_row() for _ in range(d.of(1, 2))]) for queue in queues]
    return policies, channels[1:], sends


def wrong_lease(d: Dice) -> tuple[Any, ...]:
    return d.queue(), d.newest(), d.of(0, -1, 1)


def cancel(d: Dice) -> tuple[Any, ...]:
    return d.queue(), d.message(), d.one_in(3, *KEYS), d.of(False, True)


def reschedule(d: Dice) -> tuple[Any, ...]:
    times = d.of((None, None), (None, 0), (None, SECOND), (-SECOND, None), (SECOND, None))
    return d.queue(), d.message(), d.one_in(3, *KEYS), *times, d.one_in(2, 0, -1, 1)


def promote(d: Dice) -> tuple[Any, ...]:
    return d.queue(), d.of(SECOND, 0, 5 * SECOND, MINUTE), d.of(9, 1, 2)


def redrive(d: Dice) -> tuple[Any, ...]:
    return d.queue(), d.one_in(3, d.queue()), d.of(1, 2, 9), d.duration()


def move(d: Dice) -> tuple[Any, ...]:
    return d.queue(), d.one_in(2, d.queue()), d.of(9, 1, 2)


def discard(d: Dice) -> tuple[Any, ...]:
    return d.queue(), d.of("x", "d"), d.of(1, 2, 9)


def permit_create(d: Dice) -> tuple[Any, ...]:
    return (d.of(5 * SECOND, SECOND, MINUTE),)


def permit_extend(d: Dice) -> tuple[Any, ...]:
    # As long as the longest: whether an extension may shorten a permit is not settled.
    return d.newest(), MINUTE


def permit_close(d: Dice) -> tuple[Any, ...]:
    return (d.newest(),)


def permit_life(d: Dice) -> tuple[Any, ...]:
    """A permit, leases under it, and one of them cut short: a lease can end before its permit."""
    return d.of(MINUTE, 5 * SECOND), d.queue(), d.of(3, 1), d.of(SECOND, None, 0, 5 * SECOND)


def tick(d: Dice) -> tuple[Any, ...]:
    often = [SECOND] * 12 + [5 * SECOND] * 6
    return (d.of(*often, 1, MINUTE, MINUTE, SECOND // 2, DAY, 8 * DAY),)


def tick_to_next(d: Dice) -> tuple[Any, ...]:
    return d.of(0, 0, 0, 1, 2), d.of(0, 0, 0, 1)


def maintain(d: Dice) -> tuple[Any, ...]:
    return (d.of(1000, 1000, 1, 2),)


def transaction(d: Dice) -> tuple[Any, ...]:
    return (d.of("rollback", "commit"),)


def nothing(d: Dice) -> tuple[Any, ...]:
    return ()


WEIGHTS: list[tuple[int, str, Any]] = [
    (9, "send", send),
    (6, "send_alike", send_alike),
    (1, "send_wide", send_wide),
    (3, "send_members", send_members),
    (3, "send_often", send_often),
    (3, "send_once", send_once),
    (1, "remember", remember),
    (2, "batch", batch),
    (5, "group_life", group_life),
    (2, "group_open", group_open),
    (4, "group_start", group_name),
    (1, "group_cancel", group_name),
    (3, "progress", progress),
    (9, "receive_all", receive_all),
    (8, "receive", receive),
    (9, "tick_to_next", tick_to_next),
    (7, "tick", tick),
    (3, "ack", leases),
    (2, "complete", complete),
    (5, "defer", defer),
    (5, "fail", fail),
    (2, "kill", kill),
    (2, "extend", extend),
    (3, "release", leases),
    (1, "wrong_lease", wrong_lease),
    (2, "cancel", cancel),
    (3, "reschedule", reschedule),
    (3, "promote", promote),
    (2, "redrive", redrive),
    (3, "move", move),
    (1, "discard", discard),
    (2, "permit_create", permit_create),
    (1, "permit_extend", permit_extend),
    (1, "permit_close", permit_close),
    (2, "permit_life", permit_life),
    (4, "policy_set", policy_set),
    (1, "policy_clear", policy_clear),
    (1, "queue_create", queue_create),
    (4, "queue_set", queue_set),
    (1, "queue_end", queue_end),
    (3, "maintain", maintain),
    (1, "crash", nothing),
    (2, "transaction", transaction),
    (2, "look_closely", nothing),
]
KINDS = [(name, arguments) for weight, name, arguments in WEIGHTS for _ in range(weight)]


def step(kind: int, wildness: int, seed: int) -> tuple[Any, ...]:
    name, arguments = KINDS[kind]
    return (name, *arguments(Dice(seed, wildness)))
