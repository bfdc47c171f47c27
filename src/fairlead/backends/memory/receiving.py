"""Receiving: acks it carries, the sweep, the choice, the leases (§4, §2.2)."""

from __future__ import annotations

from collections import Counter

from fairlead import errors, limits
from fairlead.backends import base
from fairlead.backends.memory.choice import choose, retry_after
from fairlead.backends.memory.core import op
from fairlead.backends.memory.remembering import Remembering
from fairlead.backends.memory.state import Queue, Rate
from fairlead.backends.memory.verbs import Verbs

EXPIRED = "lease expired with no attempts left"


class Receiving(Verbs, Remembering):
    @op
    def receive(
        self, queue: str, args: base.Receive, memory: base.Memory, now: int | None
    ) -> base.Received:
        q, now = self._queue(queue), self._now(now)
        if args.permit is not None and not self._alive(args.permit, now):
            raise errors.PermitLost(args.permit)
        leased, lost = self._split(q, args.acks)
        self._ack(q, leased, now)
        self._sweep(q, limits.SWEEP, now)
        if self.closes_at_once:  # what a closing deletes is not given, what it sends may be
            self.judge(now)
        if q.columns["paused"]:
            return base.Received([], None, lost)
        chosen = choose(q, args, memory, now)
        if not chosen:
            return base.Received([], retry_after(q, args, now), lost)
        for channel, message in chosen:
            message.state = "l"
            message.attempts += 1
            message.deliveries += 1
            message.lease_until = now + q.lease_us(message, args.lease_us)
            message.permit = args.permit
            message.begun = 1 if q.policy(channel).ordered else message.begun
            message.progress = message.note = None
            message.first_at = now if message.first_at is None else message.first_at
            told = {"attempts": message.attempts, "deliveries": message.deliveries}
            self._tell(q, "leased", message, now, data=told)
        q.count(now, "delivered", len(chosen))
        for channel, given in Counter(channel for channel, _ in chosen).items():
            policy = q.policy(channel)
            rate = Rate.of(policy.rate_count, policy.rate_period_us, policy.burst)
            if rate:
                q.tats[channel] = rate.charged(q.tats.get(channel, 0), now, given)
        if q.limit_rate:
            q.tat = q.limit_rate.charged(q.tat, now, len(chosen))
        return base.Received([message.row for _, message in chosen], None, lost)

    def _sweep(self, q: Queue, limit: int, now: int) -> Counter[str]:
        """§2.2; what was done, and under ``expired`` and ``leases`` what was met."""
        expired = [m for m in q.messages.values() if m.past_expiry(now)]
        expired = sorted(expired, key=lambda m: (m.expires_at, m.id))[:limit]
        self._delete(q, expired, now)
        q.count(now, "expired", sum(m.deliveries == 0 for m in expired))

        leases = [m for m in q.select("l") if m.past_lease(now)]
        leases = sorted(leases, key=lambda m: (m.lease_until, m.id))[:limit]
        done = Counter(expired=len(expired), leases=len(leases))
        for message in leases:
            permit = self._alive(message.permit, now)
            if permit:
                message.lease_until = permit.expires_at
                continue
            self._state.permits.pop(message.permit or 0, None)
            if q.attempts_left(message):
                message.end_lease()
                message.state, message.recovered = "r", 1
                done["recovered"] += 1
            else:
                self._log(q, message, EXPIRED, None, None, True, now)
                self._die(q, message, EXPIRED, now)
                done["killed"] += 1
        q.count(now, "recovered", done["recovered"])

        due = [m for m in q.select("s") if m.due_at <= now]
        for message in sorted(due, key=lambda m: (m.due_at, m.id))[:limit]:
            message.state = "r"
            done["promoted"] += 1
        done["forgotten"] = self._forget(q, limit, now)
        return done
