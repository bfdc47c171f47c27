"""A history in which a backup was put back. It is two stories that begin alike:

- the first one goes on to the restore. Nobody drained it, so only what must hold at every moment is
  checked;
- the second one goes on from the backup with what was done after the restore. What was done in
  between is not a part of it. It ends as every campaign does, and everything is checked.

A call during the backup or the restore may belong to both: in the second story its outcome is
unknown. No verb by a lease of the time in between may be accepted after the restore."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tests.campaign.checks.messages import UNFENCED, Violation
from tests.campaign.history import Op

BACKUP, RESTORE = "take a backup", "restore the database"
CALLS = {"send", "rollback", "receive", "verb", "task", "start", "wait"}


@dataclass(frozen=True)
class SetBack:
    """When it was: the backup is of a moment between two times, the restore too."""

    ops: list[Op]
    began: float
    taken: float
    closed: float
    opened: float
    there: dict[Any, int]  # the messages of the backup, with their delivery numbers

    @staticmethod
    def of(ops: list[Op]) -> SetBack | None:
        faults = {op.about["fault"]: op for op in ops if op.kind == "fault"}
        if RESTORE not in faults or not faults[RESTORE].ok:
            return None
        backup, result = faults[BACKUP], faults[RESTORE].result
        times = (
            backup.asked_at,
            backup.result["taken_at"],
            result["closed_at"],
            result["opened_at"],
        )
        return SetBack(ops, *times, dict(result["messages"]))

    # --- the first story --------------------------------------------------------------------------
    def before(self) -> Iterator[Op]:
        for op in self.ops:
            if op.asked_at < self.closed and op.kind in CALLS | {"fault", "announce"}:
                late = _end(op) > self.opened  # perhaps carried out by the restored database
                yield replace(op, outcome="info", result={}) if late and op.maybe else op

    # --- the second one ---------------------------------------------------------------------------
    def after(self) -> Iterator[Op]:
        for op in self.ops:
            if op.kind not in CALLS:
                yield op
            elif op.kind == "receive":
                yield from self._receive(op)
            elif op.kind == "task":
                yield from self._task(op)
            elif op.kind == "verb":
                yield from self._verb(op)
            elif op.kind == "wait":
                # The id of a message that is gone may be that of another one.
                if self._sure(op) and self._sent_surely(op.about["value"]):
                    yield op
            elif self._sure(op):
                yield op
            elif not self._gone(op):
                # It is not known on which side its row of the user is, either.
                yield replace(_unknown(op), about=op.about | {"tx": False})
            elif op.about["queue"] == "relayed":
                yield _unknown(op)  # the other database was not set back

    def _sure(self, op: Op) -> bool:
        return _end(op) < self.began or op.asked_at > self.closed

    def _gone(self, op: Op) -> bool:
        return op.asked_at > self.taken and _end(op) < self.opened

    def _receive(self, op: Op) -> Iterator[Op]:
        if self._sure(op):
            yield op
        elif not self._gone(op):
            kept = [one for one in op.result.get("deliveries", []) if self._kept(op, one)]
            yield replace(_unknown(op), result={"deliveries": kept})

    def _kept(self, op: Op, delivery: dict[str, Any]) -> bool:
        """Does a delivery of a call that is not sure belong to the second story?"""
        return _end(op) > self.opened or self._in_backup(delivery)

    def _in_backup(self, delivery: dict[str, Any]) -> bool:
        """Of a delivery during the backup: was it before the moment of the backup?"""
        id, value = delivery["id"], delivery["value"]
        if id in self.there:
            return self.there[id] >= delivery["number"]
        # It was finished before that moment, or the message was sent after it, and is gone.
        if id not in self._ended:
            return False
        return self._sent_surely(value) or (id not in self._later and value not in self._later)

    @cached_property
    def _ended(self) -> set[Any]:
        """The ids that may have been finished when the backup was taken."""
        asked = [op for op in self.ops if op.asked_at < self.taken and op.maybe]
        by_verbs = {lease[0] for op in asked if op.kind == "verb" for lease in op.about["leases"]}
        return by_verbs | {op.about["id"] for op in asked if op.kind == "task"}

    def _task(self, op: Op) -> Iterator[Op]:
        """The history does not know when its worker received it."""
        if _end(op) < self.began or (op.ok and _end(op) > self.opened):
            yield op
        elif op.asked_at > self.opened:
            if op.maybe:  # else it may be a lease of the time in between, and was refused
                yield op
        elif not self._gone(op) and op.maybe:
            late = _end(op) > self.opened
            here = self.there.get(op.about["id"], 0) >= op.about["number"]
            if here if late else self._in_backup(op.about):
                yield _unknown(op)

    def _verb(self, op: Op) -> Iterator[Op]:
        if self._gone(op):
            return
        leases: list[list[Any]] = []
        for lease in op.about["leases"]:
            value = self.foreign.get((lease[0], lease[2]))
            if value is None:
                leases.append(lease)
            elif op.about["queue"] in UNFENCED and self._sent_surely(value):
                leases.append([lease[0], 0, lease[2]])  # an old receipt of a message that is there
        if leases or not op.about["leases"]:
            about = op.about | {"leases": leases}
            yield replace(op if self._sure(op) else _unknown(op), about=about)

    @cached_property
    def foreign(self) -> dict[tuple[Any, Any], str]:
        """The leases that the restored database does not know, and their values."""
        found: dict[tuple[Any, Any], str] = {}
        for op in self.ops:
            if op.kind == "receive" and not self._sure(op):
                for one in op.result.get("deliveries", []):
                    if self._gone(op) or not self._kept(op, one):
                        found[one["id"], one["token"]] = one["value"]
        return found

    @cached_property
    def _later(self) -> set[Any]:
        """The ids and values that were delivered by the restored database."""
        found: set[Any] = set()
        for op in self.ops:
            if op.kind == "receive" and _end(op) > self.opened:
                for one in op.result.get("deliveries", []):
                    found |= {one["id"], one["value"]}
            if op.kind == "task" and op.asked_at > self.opened:
                found |= {op.about["id"], op.about["value"]}
        return found

    def _sent_surely(self, value: str) -> bool:
        return value in self._surely

    @cached_property
    def _surely(self) -> set[str]:
        sends = [op for op in self.ops if op.kind == "send" and op.ok and self._sure(op)]
        return {value for op in sends for value in op.about["values"]}

    # --- the promise ------------------------------------------------------------------------------
    def old_leases(self) -> Iterator[Violation]:
        """A lease of the time in between is unknown to the restored database, which may have given
        the same message to somebody else, or the same id to another message."""
        for op, lease in self._tries():
            lost = [one[2] for one in op.result.get("lost", []) if one[0] == lease[0]]
            if op.ok and lease[2] not in lost:
                text = f"{op.about['verb']} of {lease} accepted after the restore"
                yield Violation("old lease", text, op.asked_at)

    def _tries(self) -> Iterable[tuple[Op, list[Any]]]:
        for op in self.ops:
            if op.kind == "verb" and op.asked_at > self.closed:
                for lease in op.about["leases"] if op.about["queue"] not in UNFENCED else []:
                    if (lease[0], lease[2]) in self.foreign:
                        yield op, lease

    def counts(self) -> dict[str, int]:
        """What the set-back did: a good campaign has all of it."""
        gone = [op for op in self.ops if op.kind == "send" and op.ok and self._gone(op)]
        values = {value for op in gone for value in op.about["values"]}
        window = [op for op in self.ops if op.kind == "receive" and self._gone(op)]
        ids = {one["id"] for op in window for one in op.result.get("deliveries", [])}
        later = {one for one in self._later if not isinstance(one, str)}
        return {
            "confirmed send that the restore took away": len(values),
            "id delivered on both sides of the restore": len(ids & later),
            "old lease tried after the restore": sum(1 for _ in self._tries()),
            "old lease refused after the restore": sum(
                op.outcome == "fail" or lease in op.result.get("lost", [])
                for op, lease in self._tries()
            ),
        }


def _end(op: Op) -> float:
    return float("inf") if op.ended_at is None else op.ended_at


def _unknown(op: Op) -> Op:
    return replace(op, outcome="info") if op.ok else op
