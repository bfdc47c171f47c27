"""receive, and the verbs that end or move a delivery. Every verb takes leases, never bare ids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from fairlead import limits
from fairlead.backends.base import Lease, Memory, Op, Receive, Received, Row
from fairlead.errors import InvalidArgument, UsageError
from fairlead.operations import check
from fairlead.operations.call import Call, Core
from fairlead.operations.handles import LeaseRow
from fairlead.values import Acked, Duration, Message, Moment


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
    ack: Sequence[Message],
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
        leases_of(ack) if ack else (),
    )


def receive(
    core: Core, queue: str, args: Receive, own: bool, members: bool | None
) -> Call[Received]:
    """``members``: it carries acks of members of groups."""
    kept = core.memory(queue)
    memory = kept if own else Memory(kept.channel, kept.credit, kept.extra, yours=True)

    def start() -> Op[Received]:
        received = yield from core.backend.receive(queue, args, memory, core.now())
        kept.channel, kept.credit, kept.extra = memory.channel, memory.credit, memory.extra
        return received

    # Without carried acks a receive may be repeated: what it leased and lost track of expires.
    # Under a permit it would not, as long as that lives: its holder has to know.
    after = None if members is False else core.settle(members is True)
    repeatable = not args.acks and args.permit is None
    return Call("receive", start, repeatable=repeatable, after=after)


def leases_of(messages: Sequence[Message]) -> list[Lease]:
    """The leases of received messages, each once; of two deliveries of one message only the later,
    since the earlier is lost for certain."""
    latest: dict[int, int] = {}
    try:
        for message in messages:
            if message.deliveries > latest.get(message.id, 0):
                latest[message.id] = message.deliveries
    except (AttributeError, TypeError):
        raise InvalidArgument(NOT_MESSAGES) from None
    return list(latest.items())


def row_of(message: Message) -> Row:
    """Its columns, for another object that stands for the same delivery."""
    return message._row  # pyright: ignore[reportPrivateUsage]


def lost_of(messages: Sequence[Message], lost: Collection[int]) -> list[Message]:
    """Which of the messages were lost, given the ids that a backend says it lost."""
    if not lost and len({message.id for message in messages}) == len(messages):
        return []
    latest = dict(leases_of(messages))
    return [m for m in messages if m.id in lost or m.deliveries != latest[m.id]]


Verb = Callable[[Sequence[Lease], bool], Op[list[int]]]
ENDING = {"ack", "complete", "fail", "kill"}  # the verbs after which a group may be complete


def one(core: Core, what: str, verb: Verb, message: Message) -> Call[None]:
    """A verb on one message: a lost lease raises LeaseLost."""
    lease = [(message.id, message.deliveries)]

    def start() -> Op[None]:
        yield from verb(lease, True)

    return Call(what, start, after=_after(core, what, [message]))


def many(core: Core, what: str, verb: Verb, messages: Sequence[Message]) -> Call[Acked]:
    """A verb on a batch: lost leases are reported."""
    try:
        messages = list(messages)
    except TypeError:
        raise InvalidArgument(NOT_MESSAGES) from None
    leases = leases_of(messages)

    def start() -> Op[Acked]:
        if not leases:
            return Acked(0, [])
        lost = set((yield from verb(leases, False)))
        return Acked(len(leases) - len(lost), lost_of(messages, lost))

    return Call(what, start, after=_after(core, what, messages))


def _after(core: Core, what: str, messages: Sequence[Message]) -> Call[Any] | None:
    members = grouped(messages) if what in ENDING else False
    return None if members is False else core.settle(members is True)


def grouped(messages: Sequence[Message]) -> bool | None:
    """Is any of them a member of a group? None: handles do not know."""
    try:
        return any(message.group is not None for message in messages)
    except UsageError:
        read = [m for m in messages if not isinstance(row_of(m), LeaseRow)]
        return any(message.group is not None for message in read) or None


def ack(core: Core, queue: str) -> Verb:
    return lambda leases, strict: core.backend.ack(queue, leases, strict, core.now())


def complete(core: Core, queue: str, result: Any) -> Verb:
    raw, is_json = (
        (None, 0)
        if result is None
        else check.bounded_payload(result, "the result", limits.RESULT_BYTES)
    )
    return lambda leases, strict: core.backend.complete(
        queue, leases, raw, is_json, strict, core.now()
    )


def defer(core: Core, queue: str, delay: Duration | None, at: Moment | None, memo: Any) -> Verb:
    due_us, delay_us = check.due(delay, at)
    keep = memo is KEEP
    raw, is_json = (
        (None, 0)
        if keep or memo is None
        else check.bounded_payload(memo, "the memo", limits.MEMO_BYTES)
    )
    return lambda leases, strict: core.backend.defer(
        queue, leases, due_us, delay_us, keep, raw, is_json, strict, core.now()
    )


def fail(
    core: Core, queue: str, error: Any, delay: Duration | None, details: Any, reference: str | None
) -> Verb:
    text = check.error_text(error)
    delay_us = check.optional_microseconds(delay, "delay")
    raw = _details(details)
    check.optional_name(reference, "reference")
    return lambda leases, strict: core.backend.fail(
        queue, leases, text, delay_us, raw, reference, strict, core.now()
    )


def kill(core: Core, queue: str, error: Any, details: Any, reference: str | None) -> Verb:
    text = check.error_text(error)
    raw = _details(details)
    check.optional_name(reference, "reference")
    return lambda leases, strict: core.backend.kill(
        queue, leases, text, raw, reference, strict, core.now()
    )


def _details(details: Any) -> bytes | None:
    if details is None:
        return None
    raw, is_json = check.bounded_payload(details, "details", limits.MEMO_BYTES)
    if not is_json:
        raise InvalidArgument("details must be JSON, not bytes")
    return raw


def progress(core: Core, queue: str, value: float | None, note: str | None) -> Verb:
    millionths = None if value is None else check.fraction(value, "progress")
    if note is not None:
        note = check.note(note)
    elif value is None:
        raise InvalidArgument("say how far it is, or what it is doing: progress(0.4, note=…)")
    return lambda leases, strict: core.backend.progress(
        queue, leases, millionths, note, strict, core.now()
    )


def release(core: Core, queue: str) -> Verb:
    def verb(leases: Sequence[Lease], strict: bool) -> Op[list[int]]:
        lost = yield from core.backend.release(queue, leases, strict, core.now())
        core.look_again(queue)
        return lost

    return verb


def _extend(
    core: Core, queue: str, lease: Duration | None, exact: bool
) -> Callable[[Sequence[Lease], bool], Op[tuple[list[int], int | None]]]:
    lease_us = check.optional_microseconds(lease, "lease")
    check.boolean(exact, "exact")

    def verb(leases: Sequence[Lease], strict: bool) -> Op[tuple[list[int], int | None]]:
        now = core.now()
        extended = yield from core.backend.extend(queue, leases, lease_us, exact, strict, now)
        if exact:  # it may come back soon, before what our consumer has read
            core.look_again(queue)
        return extended

    return verb


def extend_one(
    core: Core, queue: str, message: Message, lease: Duration | None, exact: bool
) -> Call[int]:
    """The new lease_until."""
    verb = _extend(core, queue, lease, exact)
    leases = [(message.id, message.deliveries)]

    def start() -> Op[int]:
        _, until = yield from verb(leases, True)
        assert until is not None
        return until

    # An exact one may have given the message away: to repeat it would find the lease lost.
    return Call("extend", start, repeatable=not exact)


def extend_many(
    core: Core, queue: str, messages: Sequence[Message], lease: Duration | None, exact: bool
) -> Call[Acked]:
    extend = _extend(core, queue, lease, exact)

    def verb(leases: Sequence[Lease], strict: bool) -> Op[list[int]]:
        return (yield from extend(leases, strict))[0]

    return many(core, "extend", verb, messages)
