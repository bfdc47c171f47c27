"""What must be true of every history: nothing lost, nothing unexpected, every lease fenced, every
duplicate explained. Pure: from a story to its violations."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.campaign.checks.deliveries import CLOCKS, Delivery, Story
from tests.campaign.history import Op

# Queues whose deliveries the history does not know completely: a worker and the SQS server receive
# for somebody who may never see the message.
PARTLY_KNOWN = {"tasks", "sqs"}
UNFENCED = {"sqs"}  # in SQS an old receipt deletes the message or changes its visibility


@dataclass(frozen=True)
class Violation:
    check: str
    text: str
    at: float = 0.0  # the fault that was active then is named in the report


def lost(story: Story) -> Iterator[Violation]:
    """Every acknowledged value is finished, or an ack of it has an unknown outcome."""
    for value, op in acknowledged(story).items():
        if op.about["queue"] == "relayed":
            continue  # finished by the relay, which has a check of its own
        if value not in story.finish_asked:
            got = "delivered" if value in story.ids else "never delivered"
            yield Violation("lost", f"{value} of {op.about['queue']}: {got}", op.asked_at)


def acknowledged(story: Story) -> dict[str, Op]:
    """The values whose send was confirmed; not those that were duplicates of another message."""
    found: dict[str, Op] = {}
    for op in story.sends:
        if op.kind == "send" and op.ok:
            for value, outcome in zip(op.about["values"], op.result["outcomes"], strict=True):
                if outcome == "sent":
                    found[value] = op
    return found


def unexpected(story: Story) -> Iterator[Violation]:
    """Nothing is delivered that was never sent, was rolled back, or was refused."""
    outcomes = {value: op for op in story.sends for value in op.about["values"]}
    announced = {note["value"] for note in story.notes("announce")}
    for delivery in story.deliveries:
        if delivery.value.startswith("tick ") or delivery.value in announced:
            continue
        op = outcomes.get(delivery.value)
        if op is None:
            yield Violation("unexpected", f"{delivery.value} was never sent", delivery.got_at)
        elif op.outcome == "fail":
            why = "rolled back" if op.kind == "rollback" else f"refused ({op.error})"
            yield Violation("unexpected", f"{delivery.value} was {why}", delivery.got_at)


def recovered(story: Story) -> int:
    """Values whose send has an unknown outcome, and which were delivered."""
    unknown = {v for op in story.sends if op.outcome == "info" for v in op.about["values"]}
    return len(unknown & story.ids.keys())


def two_leases(story: Story) -> Iterator[Violation]:
    """A delivery is given to one consumer, and the next one only when that lease is over."""
    for id, deliveries in story.by_id.items():
        for first, second in itertools.pairwise(deliveries):
            what = f"message {id} ({first.value}), deliveries {first.number} and {second.number}"
            if first.number == second.number:
                yield Violation("two leases", f"{what}: one number twice", second.got_at)
            elif second.got_at < first.held[1] and not by_old_receipt(story, first, second):
                early = first.held[1] - second.got_at
                text = f"{what}: {early:.3f} s before the first lease ended"
                yield Violation("two leases", text, second.got_at)


def by_old_receipt(story: Story, first: Delivery, second: Delivery) -> bool:
    """In SQS an old receipt also makes a message visible that somebody else has by now. Was the
    first delivery ended so before the second one?"""
    if first.queue not in UNFENCED:
        return False
    return any(
        verb.lease[1] < first.number
        and verb.maybe
        and verb.op.asked_at < second.got_at
        and (verb.op.ended_at is None or verb.op.ended_at > first.op.asked_at)
        for verb in story.verbs_of.get(first.id, [])
    )


def stale_verbs(story: Story) -> Iterator[Violation]:
    """A verb by an older lease than the newest one is refused. What was finished by one lease has
    no later delivery at all: given before, it would have fenced that lease off."""
    for verb in story.verbs:
        if verb.outcome != "ok" or verb.queue in UNFENCED:
            continue
        for delivery in story.by_id.get(verb.lease[0], []):
            before = verb.finishes or delivery.got_at < verb.op.asked_at
            if delivery.number > verb.lease[1] and before:
                text = f"{verb.verb} of {verb.lease} accepted after delivery {delivery.number}"
                yield Violation("stale verb", text, verb.op.asked_at)


def finished_once(story: Story) -> Iterator[Violation]:
    """A message is finished once, and it is not delivered after that."""
    for id, verbs in story.finishes.items():
        sure = [verb for verb in verbs if verb.outcome == "ok"]
        if len(sure) > 1 and sure[0].queue not in UNFENCED:
            leases = [verb.lease for verb in sure]
            yield Violation("finished twice", f"message {id} by {leases}", sure[1].op.asked_at)
        for verb, delivery in itertools.product(sure, story.by_id.get(id, [])):
            ended = verb.op.ended_at
            if ended is not None and delivery.op.asked_at > ended:
                text = f"message {id} ({delivery.value}) came after its {verb.verb}"
                yield Violation("delivered after its end", text, delivery.got_at)


def one_message_per_value(story: Story) -> Iterator[Violation]:
    """A send makes one message. (Under a key the library repeats a send whose connection broke: if
    the first message is finished by then, there is a second one.)"""
    for value, ids in story.ids.items():
        if len(ids) > 1 and not any(one.key for id in ids for one in story.by_id[id]):
            yield Violation("enqueued twice", f"{value}: messages {sorted(map(str, ids))}")


def unseen(story: Story, op: Op) -> bool:
    """May this receive have leased messages that nobody saw? Its outcome is unknown; or its
    connection broke, and the library has asked again (which the history does not show)."""
    if op.outcome == "info" or op.ended_at is None:
        return True
    return op.ok and any(begin <= op.ended_at and op.asked_at <= end for begin, end in story.breaks)


def explain(story: Story) -> tuple[Counter[str], list[Violation]]:
    """Why there was a second delivery, for each one; and those for which there is no reason."""
    reasons: Counter[str] = Counter()
    violations: list[Violation] = []
    first_unknown: dict[str, float] = {}
    for op in story.receives:  # in the order in which they were asked
        if unseen(story, op):
            queue = op.about["queue"]
            first_unknown.setdefault(queue, op.asked_at)
            dead_letter = story.rules(queue).dead_letter
            if dead_letter is not None:  # where the number of the delivery goes on
                first_unknown.setdefault(dead_letter, op.asked_at)
    for deliveries in story.by_id.values():
        known = {one.number: one for one in deliveries}
        for one in deliveries:
            if one.number == 1:
                continue
            before = known.get(one.number - 1)
            reason = _reason(one, before, first_unknown.get(one.queue, float("inf")))
            if reason is None:
                text = f"{one.value}: delivery {one.number} of {one.queue} has no reason"
                violations.append(Violation("unexplained duplicate", text, one.got_at))
            else:
                reasons[reason] += 1
    return reasons, violations


def _reason(one: Delivery, before: Delivery | None, first_unknown: float) -> str | None:
    if before is None:
        # Somebody received it and never saw it: killed, or the answer was lost.
        seen = one.queue in PARTLY_KNOWN or first_unknown < one.got_at
        return "unknown receive" if seen else None
    verbs = [v for v in before.verbs if v.maybe and v.verb != "extend"]
    asked = [verb for verb in verbs if verb.op.asked_at < one.got_at]
    if asked:
        first = asked[0]
        if first.outcome == "ok" and first.finishes:  # else `stale_verbs` has something to say
            return "delete by an old receipt"
        return first.verb if first.outcome == "ok" else f"unknown {first.verb}"
    if before.until - CLOCKS <= one.got_at or one.queue in PARTLY_KNOWN:
        return "lease expired"
    return None


def unexplained(story: Story) -> Iterator[Violation]:
    yield from explain(story)[1]


def limits(story: Story) -> Iterator[Violation]:
    """At no instant are more messages surely leased than the limit allows."""
    for (queue, channel), (most, bound, at) in fullest(story).items():
        if most > bound:
            where = f"{queue}, channel {channel!r}" if channel is not None else queue
            yield Violation("limit", f"{where}: {most} leases at once, the limit is {bound}", at)


def fullest(story: Story) -> dict[tuple[str, str | None], tuple[int, int, float]]:
    """Of each limit: the most leases at once, the bound, and when."""
    from tests.campaign.world import NARROW

    steps: dict[tuple[str, str | None], list[tuple[float, int]]] = defaultdict(list)
    for one in story.deliveries:
        begin, end = one.held
        rules = story.rules(one.queue)
        if begin >= end:
            continue
        if rules.most is not None:
            steps[one.queue, None] += [(begin, 1), (end, -1)]
        if rules.narrow is not None and one.channel == NARROW:
            steps[one.queue, NARROW] += [(begin, 1), (end, -1)]
    found: dict[tuple[str, str | None], tuple[int, int, float]] = {}
    for (queue, channel), moves in steps.items():
        rules = story.rules(queue)
        bound = rules.most if channel is None else rules.narrow
        assert bound is not None
        now, most, when = 0, 0, 0.0
        for at, move in sorted(moves):  # an end before a begin of the same instant
            now += move
            if now > most:
                most, when = now, at
        found[queue, channel] = (most, bound, when)
    return found


def order(story: Story) -> Iterator[Violation]:
    """In an ordered channel a message is delivered when all that were acknowledged before it was
    sent are finished, or directly after them in one answer."""
    sent: dict[tuple[str, str], list[tuple[Op, str]]] = defaultdict(list)
    for value, op in acknowledged(story).items():
        if story.rules(op.about["queue"]).ordered:
            sent[op.about["queue"], op.about["channel"]].append((op, value))
    ops = {value: op for op in story.sends for value in op.about["values"]}
    for one in sorted(story.deliveries, key=lambda one: one.got_at):
        own = ops.get(one.value)
        if own is None or (one.queue, one.channel) not in sent:
            continue
        together = {other["value"] for other in one.op.result.get("deliveries", [])[: one.place]}
        rest = sent[one.queue, one.channel]
        # What is finished by now is out of the way for all later deliveries, too.
        while rest and story.finish_asked.get(rest[0][1], float("inf")) < one.got_at:
            rest.pop(0)
        for op, value in rest:
            if op.ended_at is None or op.ended_at >= own.asked_at:
                break
            finished = story.finish_asked.get(value, float("inf")) < one.got_at
            if not finished and value not in together:
                text = f"{one.value} was delivered before {value} was finished"
                yield Violation("order", text, one.got_at)


def keys(story: Story) -> Iterator[Violation]:
    """Two messages under one key are never alive at once."""
    begins: dict[tuple[str, str], dict[object, float]] = defaultdict(dict)
    for op in story.sends:
        key = op.about.get("key")
        if key and op.ok and op.ended_at is not None and op.result["outcomes"] == ["sent"]:
            begins[op.about["queue"], key][op.result["ids"][0]] = op.ended_at
    for one in story.deliveries:
        if one.key and one.queue == "keyed":
            known = begins[one.queue, one.key]
            known[one.id] = min(known.get(one.id, one.got_at), one.got_at)
    for (_queue, key), messages in begins.items():
        lives = sorted(
            (begin, min((v.op.asked_at for v in story.finishes.get(id, [])), default=1e18), str(id))
            for id, begin in messages.items()
        )
        for first, second in itertools.pairwise(lives):
            if second[0] < first[1]:
                text = f"{key}: messages {first[2]} and {second[2]} at once"
                yield Violation("key", text, second[0])
