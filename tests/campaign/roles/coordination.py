"""Processes that coordinate: groups with an end message, results to wait for, the schedule."""

from __future__ import annotations

import fairturn
from tests.campaign.roles.role import Stage


class Groups:
    """Makes a group, sends its members, starts it. What has an unknown outcome is done again: the
    members have names (``once``), and to start twice changes nothing."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def step(self) -> None:
        name = self._stage.value()
        group = self._stage.db.group(name, "grouped", end={"v": f"end {name}"})
        # The end message is not sent by anybody: it is announced, so that it is expected.
        history = self._stage.history
        history.note("announce", group=name, value=f"end {name}")
        values = [self._stage.value() for _ in range(self._stage.dice.randint(1, 5))]
        if self._again("send", group, values) and self._again("start", group, values):
            self._stage.pause(0.1, 0.4)

    def _again(self, kind: str, group: fairturn.Group, values: list[str]) -> bool:
        history = self._stage.history
        about = {"queue": "grouped", "group": group.name, "channel": ""}
        while not self._stage.stopped():
            if kind == "send":
                with history.call("send", values=values, **about) as call:
                    items = [fairturn.Send({"v": value}, once=value) for value in values]
                    sent = group.send_many(items)
                    # A repeated send finds its own messages.
                    call.ok(ids=[one.id for one in sent], outcomes=["sent"] * len(sent))
                    return True
            else:
                with history.call("start", **about):
                    group.start()
                    return True
            self._stage.pause(0.1, 0.3)
        return False


class Asker:
    """Sends a question and waits for its answer."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def step(self) -> None:
        history, queue = self._stage.history, self._stage.db.queue("asks")
        value, sent = self._stage.value(), None
        with history.call("send", queue="asks", values=[value], channel="") as call:
            sent = queue.send({"v": value})
            call.ok(ids=[sent.id], outcomes=[sent.outcome])
        while sent is not None and not self._stage.stopped():
            with history.call("wait", queue="asks", value=value) as call:
                outcome = queue.wait(id=sent.id, timeout=5)
                call.ok(state=outcome.state, result=outcome.result)
                break
        self._stage.pause(0.05, 0.2)


class Ticker:
    """Sends what is due by the schedule, and does the maintenance."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def step(self) -> None:
        with self._stage.history.call("run_schedules") as call:
            ticked = self._stage.db.run_schedules()
            call.ok(sent=ticked.sent, errors=ticked.errors)
        if self._stage.dice.random() < 0.2:
            with self._stage.history.call("maintain") as call:
                self._stage.db.maintain()
        self._stage.pause(0.1, 0.4)


ROLES = {"groups": Groups, "asker": Asker, "ticker": Ticker}
