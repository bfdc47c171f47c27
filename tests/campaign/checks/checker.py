"""All checks over a history, and the counts of what happened in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.campaign.checks import coordination, messages
from tests.campaign.checks.deliveries import Story
from tests.campaign.checks.messages import Violation
from tests.campaign.checks.set_back import SetBack
from tests.campaign.history import Op

ALWAYS = [  # also before the end
    *(messages.unexpected, messages.two_leases, messages.stale_verbs),
    *(messages.finished_once, messages.one_message_per_value, messages.unexplained),
    *(messages.limits, messages.order, messages.keys, coordination.raw_errors),
]
CHECKS = [messages.lost, *ALWAYS, *coordination.CHECKS]


@dataclass(frozen=True)
class Verdict:
    story: Story
    whole: Story  # with what a restore has taken away
    violations: list[Violation]
    reasons: Counter[str]  # of second deliveries
    sometimes: dict[str, int]  # rare events that a good campaign has reached


def check(ops: list[Op]) -> Verdict:
    back = SetBack.of(ops)
    story = Story(ops if back is None else back.after())
    violations = [found for one in CHECKS for found in one(story)]
    happened = sometimes(story)
    if back is not None:
        first = Story(back.before())
        violations += [found for one in ALWAYS for found in one(first)]
        violations += back.old_leases()
        happened |= back.counts()
    reasons = messages.explain(story)[0]
    whole = story if back is None else Story(ops)
    return Verdict(story, whole, list(dict.fromkeys(violations)), reasons, happened)


def sometimes(story: Story) -> dict[str, int]:
    """How often each rare event occurred."""
    full = messages.fullest(story).values()
    ended = {one.value for one in story.deliveries if one.value.startswith("end ")}
    return {
        "stale verb refused": sum(verb.outcome == "fail" for verb in story.verbs),
        "stale verb against a live lease": against_live_leases(story),
        "dead letter": len({d.id for d in story.deliveries if d.queue == "plain-dead"}),
        "limit reached": sum(most == bound for most, bound, _ in full),
        "unknown send": sum(op.outcome == "info" for op in story.sends),
        "unknown send that happened": messages.recovered(story),
        "unknown receive": sum(op.outcome == "info" for op in story.receives),
        "unknown ack": sum(v.outcome == "info" for v in story.verbs),
        "redelivery": sum(one.number > 1 for one in story.deliveries),
        "key in use": sum(op.result.get("outcomes") == ["duplicate"] for op in story.sends),
        "rollback": sum(op.kind == "rollback" for op in story.ops),
        "group ended": len(ended),
        "tick": len({d.value for d in story.deliveries if d.value.startswith("tick ")}),
        "result waited for": sum(op.kind == "wait" and op.ok for op in story.ops),
        "event read": sum(op.kind == "event" for op in story.ops),
        "handed over": sum(len(note["values"]) for note in story.notes("handed over")),
        "task done": sum(op.kind == "task" and op.ok for op in story.ops),
    }


def against_live_leases(story: Story) -> int:
    """Refused verbs whose message was surely leased by somebody else at that time."""
    return sum(
        any(
            one.number > verb.lease[1] and one.held[0] < verb.op.asked_at < one.held[1]
            for one in story.by_id.get(verb.lease[0], [])
        )
        for verb in story.verbs
        if verb.outcome == "fail"
    )
