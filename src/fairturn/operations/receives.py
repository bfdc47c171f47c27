"""receive, and the verbs that end or move a delivery. Every verb takes leases, never bare ids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import Any

from fairturn.backends.base import ConsumerState, Receive, Received
from fairturn.backends.steps import Op
from fairturn.backends.verbs import (
    Ack,
    Applied,
    Complete,
    Defer,
    Extend,
    Fail,
    Kill,
    Lease,
    Progress,
    Release,
    Verb,
    lease_of,
)
from fairturn.core import check, limits
from fairturn.core.errors import InvalidArgument, UsageError
from fairturn.core.message import Message
from fairturn.core.rows import AnyMessageRow, LeaseRow
from fairturn.core.values import Acked, Duration, Moment
from fairturn.operations.call import Call, Core


class _Keep:
    """The default of ``memo=``: leave it as it is. (None clears it.)"""

    def __repr__(self) -> str:
        return "KEEP"


KEEP: Any = _Keep()
NOT_MESSAGES = "this takes a list of received messages, as receive() gives them"


def receive_args(
    n: int,
    lease: Duration | None,
    version: int | None,
    types: Sequence[str] | None,
    min_priority: int | None,
    max_bytes: int | None,
    permit: int | None,
    leases: Sequence[Lease],
) -> Receive:
    """Check the arguments of a receive."""
    if isinstance(types, str):
        raise InvalidArgument("types must be a list of strings, not one string")
    return Receive(
        check.integer(n, "n", 1, limits.RECEIVE_MAX),
        None if lease is None else check.microseconds(lease, "lease"),
        check.optional_integer(version, "version", 0, limits.VERSION_MAX),
        None if types is None else [check.name(item, "type") for item in types],
        check.optional_integer(
            min_priority, "min_priority", -limits.PRIORITY_MAX, limits.PRIORITY_MAX
        ),
        check.optional_integer(max_bytes, "max_bytes", 1, 2**62),
        permit,
        leases,
    )


def receive(
    core: Core, queue: str, args: Receive, own: bool, members: bool | None
) -> Call[Received]:
    """``members``: it carries acks of members of groups."""
    kept = core.consumer(queue)
    consumer = kept if own else ConsumerState(kept.channel, kept.credit, kept.extra, yours=True)

    def start() -> Op[Received]:
        received = yield from core.backend.receive(queue, args, consumer, core.now())
        kept.channel, kept.credit, kept.extra = consumer.channel, consumer.credit, consumer.extra
        return received

    # A receive without acks may be repeated: if the first try leased messages and its answer was
    # lost, those leases expire. Leases under a permit do not expire while the permit lives, so its
    # holder must know: it gets OutcomeUnknown.
    after = None if members is False else core.settle(members is True)
    repeatable = not args.acks and args.permit is None
    return Call("receive", start, repeatable=repeatable, after=after)


def leases_of(messages: Sequence[Message]) -> list[list[Lease]]:
    """Return the lease of each message, once. A message that occurs with two leases (one of them is
    lost) is in two lists: a backend gets each message once in a call."""
    try:
        tokens = {row.id: row.token for row in map(row_of, messages)}
        if len(tokens) == len(messages):
            return [[*map(lease_of, tokens.items())]] if tokens else []
        leases = dict.fromkeys(Lease(row.id, row.token) for row in map(row_of, messages))
    except (AttributeError, TypeError):
        raise InvalidArgument(NOT_MESSAGES) from None
    rounds: list[dict[int, Lease]] = []
    for lease in leases:
        free = (one for one in rounds if lease.id not in one)
        first = next(free, None)
        if first is None:
            rounds.append(first := {})
        first[lease.id] = lease
    return [list(one.values()) for one in rounds]


# Returns the row of a message: to make another object for the same delivery, and to read many
# messages fast.
row_of: Callable[[Message], AnyMessageRow] = attrgetter("_row")


def lost_of(messages: Sequence[Message], lost: Collection[int]) -> list[Message]:
    """Which of the messages were lost, given the ids that a backend says it lost."""
    return [message for message in messages if message.id in lost] if lost else []


ENDING = (Ack, Complete, Fail, Kill)  # the verbs after which a group may be complete


def _apply(
    core: Core, queue: str, verb: Verb, leases: Sequence[Lease], strict: bool
) -> Op[Applied]:
    operation = core.backend.apply_verb(queue, verb, leases, strict, core.now())
    if isinstance(verb, Release) or (isinstance(verb, Extend) and verb.exact):
        return _then_look_again(core, queue, operation)
    return operation


def _then_look_again(core: Core, queue: str, operation: Op[Applied]) -> Op[Applied]:
    """The message may become ready again at a place that our consumer has already passed."""
    applied = yield from operation
    core.look_again(queue)
    return applied


def one(core: Core, verb: Verb, message: Message) -> Call[Applied]:
    """A verb on one message: a lost lease raises LeaseLost."""
    queue, row = message.queue, row_of(message)
    leases = [Lease(row.id, row.token)]
    return Call(
        verb.name,
        lambda: _apply(core, queue, verb, leases, True),
        # An exact extend can end the lease. If it were repeated, it would raise LeaseLost although
        # the first try succeeded.
        repeatable=isinstance(verb, Extend) and not verb.exact,
        after=_after(core, verb, [message]),
    )


def many(core: Core, queue: str, verb: Verb, messages: Sequence[Message]) -> Call[Acked]:
    """A verb on a batch: lost leases are reported."""
    try:
        messages = list(messages)
    except TypeError:
        raise InvalidArgument(NOT_MESSAGES) from None
    rounds = leases_of(messages)

    def start() -> Op[Acked]:
        lost: set[Lease] = set()
        for leases in rounds:
            applied = yield from _apply(core, queue, verb, leases, False)
            if applied.lost:
                lost.update(lease for lease in leases if lease.id in applied.lost)
        number = sum(map(len, rounds)) - len(lost)
        return Acked(number, [m for m in messages if (m.id, m.token) in lost] if lost else [])

    return Call(verb.name, start, after=_after(core, verb, messages))


def _after(core: Core, verb: Verb, messages: Sequence[Message]) -> Call[Any] | None:
    members = grouped(messages) if isinstance(verb, ENDING) else False
    return None if members is False else core.settle(members is True)


def grouped(messages: Sequence[Message]) -> bool | None:
    """Return whether any message is a member of a group. None: unknown, because one is a lease
    handle."""
    try:
        return any(row.group is not None for row in map(row_of, messages))
    except UsageError:
        read = [row for row in map(row_of, messages) if not isinstance(row, LeaseRow)]
        return any(row.group is not None for row in read) or None


# --- the verbs from their arguments --------------------------------------------------------------
def complete(result: Any) -> Complete:
    if result is None:
        return Complete()
    return Complete(*check.bounded_payload(result, "the result", limits.RESULT_BYTES))


def defer(delay: Duration | None, at: Moment | None, memo: Any) -> Defer:
    due_us, delay_us = check.due(delay, at)
    if memo is KEEP or memo is None:
        return Defer(due_us, delay_us, int(memo is KEEP))
    return Defer(due_us, delay_us, 0, *check.bounded_payload(memo, "the memo", limits.MEMO_BYTES))


def fail(error: Any, delay: Duration | None, details: Any, reference: str | None) -> Fail:
    text = check.error_text(error)
    delay_us = check.optional_microseconds(delay, "delay")
    return Fail(text, delay_us, _details(details), check.optional_name(reference, "reference"))


def kill(error: Any, details: Any, reference: str | None) -> Kill:
    text = check.error_text(error)
    return Kill(text, _details(details), check.optional_name(reference, "reference"))


def _details(details: Any) -> bytes | None:
    if details is None:
        return None
    raw, is_json = check.bounded_payload(details, "details", limits.MEMO_BYTES)
    if not is_json:
        raise InvalidArgument("details must be JSON, not bytes")
    return raw


def progress(value: float | None, note: str | None) -> Progress:
    if value is None and note is None:
        raise InvalidArgument("say how far it is, or what it is doing: progress(0.4, note=…)")
    return Progress(
        None if value is None else check.fraction(value, "progress"),
        None if note is None else check.note(note),
    )


def extend(lease: Duration | None, exact: bool) -> Extend:
    lease_us = check.optional_microseconds(lease, "lease")
    return Extend(lease_us, int(check.boolean(exact, "exact")))
