"""The verbs on leased messages as values (docs/semantics.md §5, §13.1).

operations/receives.py makes them from checked arguments; ``Backend.apply_verb`` carries them out.
The fields stand in the order of the parameters in SQL. Flags are 0 or 1. Tell verbs apart by their
type: those without fields are equal as tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from random import SystemRandom
from typing import Any, NamedTuple

TOKEN_BITS = 53  # so that every reader of JSON keeps a token exactly
_random = SystemRandom()  # not seeded by anybody, and not the same after a fork


class Lease(NamedTuple):
    """The right to work on one delivery of a message. Read it by name.

    After a failover or a restore, ids and delivery numbers can come again for another message. A
    token does not: each receive draws its own.
    """

    id: int  # of the message
    token: int  # of the receive that leased it


def new_token() -> int:
    """A number that nobody has had before: for a lease, or as the id of a permit."""
    return _random.getrandbits(TOKEN_BITS) or 1  # 0: no lease


# Without the check of the length: leases come by the thousand.
_new: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
lease_of: Callable[[Iterable[Any]], Lease] = partial(_new, Lease)


class Ack(NamedTuple):
    name = "ack"


class Complete(NamedTuple):
    result: bytes | None = None
    result_json: int = 0
    name = "complete"


class Defer(NamedTuple):
    due_us: int | None
    delay_us: int  # from now, if due_us is None
    keep_memo: int
    memo: bytes | None = None
    memo_json: int = 0
    name = "defer"


class Fail(NamedTuple):
    error: str
    delay_us: int | None = None  # None: the queue's backoff
    details: bytes | None = None
    reference: str | None = None
    name = "fail"


class Kill(NamedTuple):
    error: str
    details: bytes | None = None
    reference: str | None = None
    name = "kill"


class Extend(NamedTuple):
    lease_us: int | None  # None: the message's own, else the queue's
    exact: int
    name = "extend"


class Release(NamedTuple):
    name = "release"


class Progress(NamedTuple):
    millionths: int | None
    note: str | None
    name = "progress"


Verb = Ack | Complete | Defer | Fail | Kill | Extend | Release | Progress
ACK, RELEASE = Ack(), Release()


class Applied(NamedTuple):
    """The result of a verb."""

    lost: list[int]  # the ids of the leases that were lost
    lease_until: int | None = None  # of extend: the latest new end
