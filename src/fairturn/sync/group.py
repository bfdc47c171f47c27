# Generated from aio/group.py by `make generate`: edit that file.
"""The handle of a group."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from fairturn.core import check
from fairturn.core.errors import WaitTimeout
from fairturn.core.sends import Send, Sent
from fairturn.core.values import Duration, GroupStatus
from fairturn.execution.polling import Deadline, Pace, rest
from fairturn.execution.sync.runner import Runner
from fairturn.execution.sync.waker import ALL
from fairturn.operations import groups, sends
from fairturn.operations.call import Core
from fairturn.operations.groups import Opening
from fairturn.operations.insight.waits import refuse_yours


class Group:
    """Messages that belong together. They are held until ``start()``; when all are finished, the
    end message is sent. Making a handle does no I/O: the first send or start creates the group."""

    def __init__(self, core: Core, runner: Runner, opening: Opening) -> None:
        self._core = core
        self._runner = runner
        self.opening = opening
        self.name = opening.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def send(self, body: Any, **options: Any) -> Sent:
        """Send a member to the group's queue; the options are those of Queue.send()."""
        [sent] = self.send_many([Send(body, **options)])
        return sent

    def send_many(self, messages: Iterable[Any]) -> list[Sent]:
        """Send many members at once (``Send`` objects, or bodies)."""
        rows = sends.encode_many(messages)
        return self._runner.run(groups.send_many(self._core, self.opening, rows))

    def start(self) -> bool:
        """Let the members run; False if they run already, or the group has closed. Send the members
        first: a group without members is complete immediately."""
        return self._runner.run(groups.start(self._core, self.opening))

    def cancel(self) -> bool:
        """Delete the members, leased ones too (their leases are lost), and send the abort message;
        False if there is no such group."""
        return self._runner.run(groups.cancel(self._core, self.name))

    def status(self) -> GroupStatus | None:
        """Return the state of the group and its counts; None if there is no such group."""
        return self._runner.run(groups.status(self._core, self.name))

    def wait(self, timeout: Duration | None = None) -> GroupStatus | None:
        """Wait until the group has closed and return its status; None if there is no such group.
        Raise WaitTimeout after ``timeout`` seconds."""
        refuse_yours(self._runner.own)
        deadline, pace = Deadline(check.optional_microseconds(timeout, "timeout")), Pace()
        ticket = self._core.waker.ticket(self.opening.queue or ALL)
        try:
            while True:
                began = time.monotonic()
                self._runner.run(groups.settle(self._core))
                status = self.status()
                if status is None or status.closed:
                    return status
                if deadline.over():
                    raise WaitTimeout(groups.unfinished(status))
                # A check counts the members, which may be a million.
                time.sleep(deadline.within(rest(time.monotonic() - began)))
                ticket.wait(deadline.within(pace.next(ticket.live)))
        finally:
            ticket.leave()

    def using(self, connection: Any) -> Group:
        """Return the same group on your connection, in your transaction."""
        return Group(self._core, self._runner.using(connection), self.opening)
