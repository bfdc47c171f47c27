"""What must be true of groups, schedules, results, events, the user's tables and the totals."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime

from tests.campaign.checks.deliveries import Story
from tests.campaign.checks.messages import Violation, acknowledged, unseen
from tests.campaign.checks.set_back import RESTORE
from tests.campaign.roles.consumers import answer
from tests.campaign.world import TICK

ENDS = {"done", "dead", "deleted"}
COUNTED = {
    "acked": "ack",
    "completed": "complete",
    "deferred": "defer",
    "failed": "fail",
    "released": "release",
}
SENT_BY_HAND = {"plain", "limited", "ordered", "asks", "watched"}  # every send makes a message
OTHERS = {"sqs", "tasks", "relayed"}  # their acks are made by programs without a history


def groups(story: Story) -> Iterator[Violation]:
    """A started group sends its end message once, and not before its members are finished."""
    members: dict[str, list[str]] = defaultdict(list)
    for value, op in acknowledged(story).items():
        if "group" in op.about:
            members[op.about["group"]].append(value)
    first: dict[str, float] = {}
    for one in story.deliveries:
        if one.value.startswith("end "):
            name = one.value.removeprefix("end ")
            first[name] = min(first.get(name, one.got_at), one.got_at)
    for name, at in first.items():
        ids = story.ids[f"end {name}"]
        if len(ids) > 1:
            yield Violation("group", f"{name} ended {len(ids)} times", at)
        for value in members[name]:
            if story.finish_asked.get(value, float("inf")) > at:
                yield Violation("group", f"{name} ended before its member {value}", at)
    for op in story.ops:
        if op.kind == "start" and op.ok and op.about["group"] not in first:
            yield Violation("group", f"{op.about['group']} never ended", op.asked_at)


def ticks(story: Story) -> Iterator[Violation]:
    """Each due time of the schedule sent one message, and none is missing."""
    found = sorted(value for value in story.ids if value.startswith("tick "))
    for value in found:
        if len(story.ids[value]) > 1:
            yield Violation("schedule", f"{value} was sent {len(story.ids[value])} times")
    times = [datetime.fromisoformat(value.removeprefix("tick ")) for value in found]
    last = [note["last_at"] for note in story.notes("schedule")]
    if last and last[-1] is not None:
        times.append(datetime.fromisoformat(last[-1]))
    times = sorted(set(times))
    for one, two in itertools.pairwise(times):
        if round((two - one).total_seconds() / TICK) != 1:
            yield Violation("schedule", f"no message between {one} and {two}")


def results(story: Story) -> Iterator[Violation]:
    """Who waits for a message gets the result that its consumer stored."""
    for op in story.ops:
        if op.kind == "wait" and op.ok:
            value, got = op.about["value"], (op.result["state"], op.result["result"])
            if got != ("done", answer(value)):
                yield Violation("result", f"{value}: {got}", op.asked_at)


def events(story: Story) -> Iterator[Violation]:
    """Each message of the watched queue: created, leased as often as it was delivered and in that
    order, ended. Each event once."""
    notes, said = story.notes("event"), story.notes("all events")
    if not said:
        return
    lost = [op.asked_at for op in story.ops if op.kind == "cursor lost"]
    restores = sum(op.kind == "fault" and op.about["fault"] == RESTORE for op in story.ops)
    if len(lost) > restores:
        yield Violation("events", f"the cursor was lost {len(lost)} times", lost[-1])
    if lost:  # the reader has begun again at the beginning
        read = [op for op in story.ops if op.kind == "event" and op.asked_at > lost[-1]]
        notes = [op.about for op in read]
    if len(notes) != said[-1]["count"]:
        yield Violation("events", f"{len(notes)} events were read of {said[-1]['count']}")
    cursors = Counter(note["cursor"] for note in notes)
    for cursor, times in cursors.items():
        if times > 1:
            yield Violation("events", f"the event {cursor} was read {times} times")
    by_id: dict[int, list[dict[str, object]]] = defaultdict(list)
    for note in notes:
        by_id[note["id"]].append(note)
    for id, mine in by_id.items():
        kinds = [note["what"] for note in mine]
        numbers = [note["number"] for note in mine if note["what"] == "leased"]
        if kinds[0] != "created" or kinds.count("created") > 1:
            yield Violation("events", f"message {id}: {kinds}")
        elif numbers != list(range(1, len(numbers) + 1)):
            yield Violation("events", f"message {id}: leased in the order {numbers}")
        elif kinds[-1] not in ENDS or sum(kind in ENDS for kind in kinds) != 1:
            yield Violation("events", f"message {id} has no end, or several: {kinds}")
        known = {one.number for one in story.by_id.get(id, [])} - set(numbers)
        if known:
            yield Violation("events", f"message {id}: no event of the deliveries {known}")
    for op in acknowledged(story).values():
        if op.about["queue"] == "watched" and op.result["ids"][0] not in by_id:
            yield Violation("events", f"message {op.result['ids'][0]}: no event at all")


def transactions(story: Story) -> Iterator[Violation]:
    """A row of the user exists if and only if the message of its transaction does."""
    ledgers = story.notes("ledger")
    ledger = Counter(value for note in ledgers for value in note["values"])
    for op in story.sends if ledgers else []:
        for value in op.about["values"] if op.about.get("tx") else []:
            rows, sent = ledger[value], value in story.ids
            if rows > 1 or (rows == 1) != sent or (op.outcome == "fail" and rows):
                text = f"{value} ({op.outcome}): {rows} rows, sent: {sent}"
                yield Violation("transaction", text, op.asked_at)
    effects = story.notes("effects")
    effect = Counter(value for note in effects for value in note["values"])
    for value, rows in effect.items():
        if rows > 1:
            yield Violation("transaction", f"{value} took effect {rows} times")
    for verb in story.verbs if effects else []:
        value = verb.op.about.get("effect") or (verb.op.kind == "task" and verb.op.about["value"])
        if value and verb.outcome == "ok" and effect[value] != 1:
            text = f"{value} was acked with {effect[value]} effects"
            yield Violation("transaction", text, verb.op.asked_at)


def relayed(story: Story) -> Iterator[Violation]:
    """What was sent to the queue with a destination arrived there once."""
    notes = story.notes("handed over")
    arrived = Counter(value for note in notes for value in note["values"])
    for op in story.sends if notes else []:
        for value in op.about["values"] if op.about["queue"] == "relayed" else []:
            least = 1 if op.ok else 0
            most = 0 if op.outcome == "fail" else 1
            if not least <= arrived.pop(value, 0) <= most:
                yield Violation("relay", f"{value} ({op.outcome}) is not there once", op.asked_at)
    for value in arrived:
        yield Violation("relay", f"{value} arrived and was never sent")


def empty(story: Story) -> Iterator[Violation]:
    """After the drain the database says that nothing is left."""
    for note in story.notes("stats"):
        if note["unfinished"]:
            yield Violation("not empty", f"{note['queue']}: {note['unfinished']} unfinished")


def tallies(story: Story) -> Iterator[Violation]:
    """In a drained queue: what was sent has ended, what was delivered has come back, and the totals
    lie between what surely happened and what may have happened."""
    for note in story.notes("stats"):
        queue, total = note["queue"], note["totals"]
        ended = sum(total[name] for name in ("acked", "completed", "killed", "cancelled"))
        if total["sent"] != ended + total["expired"]:
            yield Violation("totals", f"{queue}: sent {total['sent']}, ended {ended}")
        back = ("acked", "completed", "deferred", "released", "recovered", "errors")
        returned = sum(total[name] for name in back)
        if queue != "sqs" and total["delivered"] != returned:
            yield Violation("totals", f"{queue}: delivered {total['delivered']}, back {returned}")
        if queue in OTHERS:
            continue
        for name, sure, unsure in _known(story, queue):
            if not sure <= total[name] <= sure + unsure:
                text = f"{queue}: {name} {total[name]}, known {sure}, unknown {unsure}"
                yield Violation("totals", text)


def _known(story: Story, queue: str) -> Iterator[tuple[str, int, int]]:
    """By counter: how often it surely happened in this queue, and how often it may have besides."""
    for name, verb in COUNTED.items():
        mine = [one.outcome for one in story.verbs if one.queue == queue and one.verb == verb]
        yield name, mine.count("ok"), mine.count("info")
    delivered = sum(one.queue == queue for one in story.deliveries)
    # A receive whose connection breaks is asked three times at most.
    mine = [op for op in story.receives if op.about["queue"] == queue and unseen(story, op)]
    yield "delivered", delivered, sum(3 * op.about["n"] for op in mine)
    if queue in SENT_BY_HAND:
        sends = [op for op in story.sends if op.about["queue"] == queue]
        counts = {
            outcome: sum(len(op.about["values"]) for op in sends if op.outcome == outcome)
            for outcome in ("ok", "info")
        }
        yield "sent", counts["ok"], counts["info"]


def raw_errors(story: Story) -> Iterator[Violation]:
    """A call of the library raises errors of the library only."""
    import fairturn

    for op in story.ops:
        yours = op.about.get("tx") or op.about.get("effect") or op.kind in ("task", "sqs")
        name = op.error.split(":")[0]
        if (
            op.error
            and not yours
            and not hasattr(fairturn, name)
            and op.about.get("queue") != "sqs"
        ):
            yield Violation("raw error", f"{op.kind}: {op.error[:300]}", op.asked_at)


CHECKS: list[Callable[[Story], Iterator[Violation]]] = [
    *(groups, ticks, results, events, transactions, relayed, empty, tallies)
]
