"""What a campaign prints: what was done, what happened, and what must not have happened."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tests.campaign.checks.checker import Verdict
from tests.campaign.checks.deliveries import Story
from tests.campaign.faults.blows import DATABASE

if TYPE_CHECKING:
    from tests.campaign.cast import Cast
    from tests.campaign.faults.nemesis import Nemesis

SHOWN = 20  # violations of one check


def show(
    kind: str,
    seed: int,
    verdict: Verdict,
    nemesis: Nemesis,
    cast: Cast,
    hung: list[str],
    left: dict[str, int],
    seconds: float,
) -> None:
    story = verdict.whole
    print(
        f"{kind}, seed {seed}: {len(story.ops)} calls, {len(story.ids)} values delivered, "
        f"{len(story.deliveries)} deliveries, {seconds:.0f} s in all"
    )
    print(table(verdict, nemesis.planned))
    print(kills(nemesis.kills))
    print("second deliveries:", _counts(verdict.reasons))
    print("it happened:", _counts(verdict.sometimes))
    errors = Counter(op.error.split(":")[0] for op in story.ops if op.error)
    print("errors that calls raised:", _counts(errors))
    slow = max(
        (op for op in story.ops if op.ended_at and op.kind in ("send", "receive", "verb")),
        key=lambda op: (op.ended_at or 0) - op.asked_at,
    )
    assert slow.ended_at is not None
    print(f"longest call: {slow.kind} of {slow.process}, {slow.ended_at - slow.asked_at:.1f} s")
    never = [name for name, times in verdict.sometimes.items() if not times]
    never += [f"fault {name!r}" for name in nemesis.planned if not nemesis.times[name]]
    if never:
        print("NEVER HAPPENED:", ", ".join(never))
    for name, why in nemesis.left_out.items():
        print(f"LEFT OUT: {name}: {why}")
    if cast.crashes:
        crashes = _counts(Counter(cast.crashes))
        print("VIOLATION: processes that ended by themselves (see their logs):", crashes)
    if cast.early_ends:
        starts = _counts(Counter(cast.early_ends))
        print("programs that found no database at their start, and ended:", starts)
    if hung:
        print("processes that did not end their last call in time:", ", ".join(hung))
    if left:
        print("VIOLATION: not drained:", _counts(left))
    shown: Counter[str] = Counter()
    for violation in verdict.violations:
        shown[violation.check] += 1
        if shown[violation.check] <= SHOWN:
            fault = fault_at(story, violation.at)
            print(f"VIOLATION: {violation.check}: {violation.text} (during: {fault})")
    print(f"{kind}: {len(verdict.violations)} violations", dict(shown) or "", flush=True)


def kills(counts: Counter[str]) -> str:
    """Two numbers to be summed over campaigns, and their parts."""
    databases = counts[DATABASE]
    processes = counts.total() - databases
    parts = Counter({name: times for name, times in counts.items() if name != DATABASE})
    return f"kill -9: {processes} processes ({_counts(parts)}); {databases} database servers"


def _counts(counts: dict[str, int] | Counter[str]) -> str:
    return ", ".join(f"{name} {times}" for name, times in sorted(counts.items())) or "none"


def _faults(story: Story) -> list[tuple[float, str]]:
    return [(op.asked_at, op.about["fault"]) for op in story.ops if op.kind == "fault"]


def fault_at(story: Story, at: float) -> str:
    faults = _faults(story)
    place = bisect.bisect([begin for begin, _ in faults], at)
    return faults[place - 1][1] if place else "no fault yet"


def table(verdict: Verdict, planned: Sequence[str]) -> str:
    """A line for each fault: how often, what was lost, repeated and held up from its beginning to
    that of the next one."""
    story = verdict.whole
    faults = _faults(story)
    times = Counter(name for _, name in faults)
    begins = [begin for begin, _ in faults]

    def during(at: float) -> str:
        place = bisect.bisect(begins, at)
        return faults[place - 1][1] if place else ""

    lost = Counter(during(one.at) for one in verdict.violations if one.check == "lost")
    again = Counter(during(one.got_at) for one in story.deliveries if one.number > 1)
    pauses = {kind: _pauses(story, kind, begins, during) for kind in ("send", "receive")}
    head = ("fault", "times", "lost", "again", "longest pause: sends", "receives")
    lines = ["{:<28}{:>6}{:>6}{:>7}{:>22}{:>10}".format(*head)]
    for name in sorted(set(planned) | set(times)):
        lines.append(
            f"{name:<28}{times[name]:>6}{lost[name]:>6}{again[name]:>7}"
            f"{pauses['send'].get(name, 0):>20.1f} s{pauses['receive'].get(name, 0):>8.1f} s"
        )
    return "\n".join(lines)


def _pauses(
    story: Story, kind: str, begins: list[float], during: Callable[[float], str]
) -> dict[str, float]:
    """The longest time without any success, by the fault in which it ended."""
    last = begins[-1] if begins else 0.0
    ends = sorted(op.ended_at for op in story.ops if op.kind == kind and op.ok and op.ended_at)
    found: dict[str, float] = {}
    for one, two in itertools.pairwise(ends):
        # The fault in which the pause began or ended, whichever lasted through it.
        name = during(two)
        if one < last + 60:
            found[name] = max(found.get(name, 0.0), two - one)
    return found
