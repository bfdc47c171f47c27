"""The same journey through the command line on the servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fairturn.cli.app import run
from tests import servers

URLS = {"postgresql": servers.postgres_url, "mysql": servers.mysql_url}


@pytest.fixture(params=list(URLS))
def ask(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command with --json on a server and give its answer."""
    url = URLS[request.param]("cli")

    def call(*words: str | int, code: int = 0, lines: bool = False) -> Any:
        ended = run([*(str(word) for word in words), "--db", url, "--json"])
        out, err = capsys.readouterr()
        assert ended == code, f"{err}\n{out}"
        return [json.loads(line) for line in out.splitlines()] if lines else json.loads(out)

    call("migrate")
    return call


def test_journey(ask: Callable[..., Any]) -> None:
    assert ask("migrate") == {"applied": []}
    assert ask("queue", "create", "journey", "--max-body", "1MiB")["created"] is True
    try:
        sent = ask("send", "journey", '{"a": 1}', "--channel", "t7", "--key", "k")
        again = ask("send", "journey", "2", "--key", "k", "--on-conflict", "ignore")
        assert (again["id"], again["outcome"]) == (sent["id"], "duplicate")
        ask("channel", "policy", "journey", "t7", "--max-concurrency", "2", "--rate", "100/s")
        assert ask("channel", "list", "journey")[0]["policy"]["rate"] == "100/s"
        [peeked] = ask("peek", "journey")
        assert peeked["body"] == {"a": 1}
        message = ask("receive", "journey", "--wait", "5")
        assert message["id"] == sent["id"]
        assert ask("explain", "journey", "--key", "k")["state"] == "leased"
        ask("lease", "extend", "journey", message["id"], message["token"], "5m")
        ask("lease", "kill", "journey", message["id"], message["token"], "no such user")
        assert ask("dead", "list", "journey")[0]["error"] == "no such user"
        assert ask("failures", "journey")[0]["error"] == "no such user"
        assert len(ask("trace", "k")) == 2
        assert ask("dead", "redrive", "journey")["redriven"] == 1
        message = ask("receive", "journey", "--wait", "5")
        ask("ack", "journey", message["id"], message["token"])
        stats = ask("stats", "journey")
        assert (stats["sent"], stats["acked"], stats["killed"]) == (1, 1, 1)
        ask("queue", "pause", "journey")
        assert next(q for q in ask("queue", "list") if q["queue"] == "journey")["paused"] is True
        assert ask("queue", "set", "journey", "--rate", "5/s")["rate"] == "5/s"
        assert "journey" in ask("top", "--once", "--every", "0.1")["queues"]
        assert set(ask("maintain")) == {"activated", "recovered", "killed", "purged"}
        found = ask("doctor")
        assert found["bad"] == 0
        assert [f["check"] for f in found["findings"] if f["level"] == "warn"] == ["paused"]
    finally:
        assert ask("queue", "drop", "journey", "--yes")["dropped"] is True


def test_coordination(ask: Callable[..., Any]) -> None:
    """Groups, progress, waiting and events."""
    ask("queue", "create", "together", "--max-body", "1MiB", "--events")
    try:
        sent = ask("group", "send", "g", "1", "--queue", "together", "--end", '"over"')["id"]
        assert [one["held"] for one in ask("group", "list") if one["group"] == "g"] == [1]
        assert ask("group", "start", "g")["started"] is True
        assert ask("wait", "together", sent, "--timeout", 0, code=4)["state"] == "ready"
        message = ask("receive", "together", "--wait", "5")
        assert (message["id"], message["group"]) == (sent, "g")
        lease = (sent, message["token"])
        ask("lease", "progress", "together", *lease, "40%", "--note", "page 7")
        [shown] = ask("top", "--once", "--every", "0.1")["progress"]
        assert (shown["id"], shown["progress"], shown["note"]) == (sent, 0.4, "page 7")
        assert ask("group", "wait", "g", "--timeout", 0, code=4)["leased"] == 1
        ask("lease", "complete", "together", *lease, '{"rows": 3}')
        assert ask("wait", "together", sent)["result"] == {"rows": 3}
        assert ask("wait", "together", 10**9, code=3)["state"] == "gone"
        found = ask("group", "wait", "g", "--timeout", "10")
        assert (found["state"], found["sent"], found["done"]) == ("ended", 1, 1)
        assert ask("receive", "together", "--wait", "5")["body"] == "over"
        told = ask("events", "--queue", "together", "--no-follow", lines=True)
        kinds = ["created", "leased", "progress", "done", "created", "closed", "leased"]
        assert [event["kind"] for event in told] == kinds
        after = ("events", "--queue", "together", "--no-follow", "--after", told[-2]["cursor"])
        assert [event["kind"] for event in ask(*after, lines=True)] == ["leased"]
        ask("group", "send", "h", "2", "--queue", "together")
        assert ask("group", "cancel", "h", "--yes")["cancelled"] is True
        assert ask("group", "wait", "h", code=1)["state"] == "cancelled"
    finally:
        ask("queue", "drop", "together", "--yes")


def test_bench(ask: Callable[..., Any]) -> None:
    assert len(ask("bench", "--seconds", "0.05")["results"]) == 9
    assert not [q for q in ask("queue", "list") if q["queue"].startswith("fairturn-bench")]


def test_demo(ask: Callable[..., Any]) -> None:
    found = ask("demo", "--seconds", "4")
    assert all(check["ok"] for check in found["checks"])
    ask("queue", "drop", "demo", "--yes")


def test_another_schema(ask: Callable[..., Any]) -> None:
    ask("migrate", "--schema", "elsewhere")
    ask("queue", "create", "there", "--max-body", "1k", "--schema", "elsewhere")
    assert "there" not in ask("stats")["queues"]
    assert "there" in ask("stats", "--schema", "elsewhere")["queues"]
    assert ask("doctor", "--schema", "elsewhere")["bad"] == 0
