"""The command line as a worker: receive, and the verbs of a lease."""

from __future__ import annotations

import json
import re

import pytest

from tests.unit.conftest import Fairturn, received


def test_receive_prints_the_lease_and_how_to_ack(emails: Fairturn) -> None:
    emails("send", "emails", '{"a": 1}', "--channel", "t7")
    ran = emails("receive", "emails")
    printed = re.search(r"message 1 token (\d+)", ran.out)
    assert printed
    assert "channel t7" in ran.out
    assert '{"a": 1}' in ran.out
    assert f"fairturn lease ack emails 1 {printed[1]}" in ran.err
    assert emails("lease", "ack", "emails", "1", printed[1]).code == 0
    assert emails("stats", "emails", "--json").json["acked"] == 1


def test_receive_json_is_a_stream_of_lines(emails: Fairturn) -> None:
    emails("send", "emails", "--lines", stdin=b"1\n2\n3\n")
    lines = emails("receive", "emails", "-n", "2", "--ack", "--json").out.splitlines()
    assert [json.loads(line)["body"] for line in lines] == [1, 2]
    assert emails("stats", "emails", "--json").json["acked"] == 2


def test_receive_filters(emails: Fairturn) -> None:
    emails("send", "emails", "1", "--type", "a", "--version", "1")
    emails("send", "emails", "2", "--type", "b", "--priority", "9")
    assert emails("receive", "emails", "--types", "c").out == ""
    assert emails("receive", "emails", "--min-priority", "9", "--json").json["body"] == 2
    assert (
        emails("receive", "emails", "--version", "1", "--types", "a", "b", "--json").json["body"]
        == 1
    )


def test_receive_nothing(emails: Fairturn) -> None:
    emails("send", "emails", "1", "--delay", "1h")
    ran = emails("receive", "emails", "--wait", "0.1")
    assert ran.code == 0
    assert ran.out == ""
    assert "something may be ready in" in ran.err


def leased(cli: Fairturn) -> tuple[int, int]:
    cli("send", "emails", "1")
    message = cli("receive", "emails", "--json").json
    return message["id"], message["token"]


@pytest.mark.parametrize(
    ("command", "state", "counter"),
    [
        (("complete", '{"ok": true}'), "done", "completed"),
        (("fail", "oops", "--delay", "1h"), "scheduled", "failed"),
        (("kill", "never"), "dead", "killed"),
        (("defer", "--delay", "1h", "--memo", '{"page": 7}'), "scheduled", "deferred"),
        (("extend", "5m"), "leased", "delivered"),
        (("release",), "ready", "released"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_verbs(command: tuple[str, ...], state: str, counter: str, emails: Fairturn) -> None:
    id, token = leased(emails)
    verb, *rest = command
    ran = emails("lease", verb, "emails", id, token, *rest)
    assert ran.code == 0, ran.err
    [message] = emails("peek", "emails", "--json").json
    assert message["state"] == state
    assert emails("stats", "emails", "--json").json[counter] == 1
    if verb == "complete":
        assert message["result"] == {"ok": True}
    if verb == "defer":
        assert message["memo"] == {"page": 7}
    if verb in ("fail", "kill"):
        assert message["error"] == rest[0]


def test_a_stale_lease_is_lost(emails: Fairturn) -> None:
    id, token = leased(emails)
    for command in ("ack", "release", "fail", "kill", "complete"):
        ran = emails("lease", command, "emails", id, token + 1)
        assert ran.code == 1
        assert "lost" in ran.err
    assert emails("ack", "emails", id, token).code == 0


def test_fail_says_what_becomes_of_it(cli: Fairturn) -> None:
    cli("queue", "create", "emails", "--max-attempts", "3", "--backoff", "1h")
    id, token = leased(cli)
    ran = cli("lease", "fail", "emails", id, token, "oops")
    assert re.search(r"message 1: failed; it is retried in (60|59) min.*, at 20", ran.out)
    cli("reschedule", "emails", id, "--delay", "0")
    ran = cli("lease", "fail", "emails", *received(cli), "oops", "--delay", "0", "--json")
    assert (ran.json["done"], ran.json["state"]) == ("failed", "ready")
    assert ran.json["retry_at"].endswith("Z")
    ran = cli("lease", "fail", "emails", *received(cli), "oops")
    assert "failed; no attempts are left: it is dead. See: fairturn dead list emails" in ran.out


def test_fail_says_to_which_queue_it_was_moved(cli: Fairturn) -> None:
    cli("queue", "create", "graves")
    cli("queue", "create", "emails", "--max-attempts", "1", "--dead-letter", "graves")
    ran = cli("lease", "fail", "emails", *leased(cli), "oops")
    assert "it is dead and was moved to queue 'graves'" in ran.out
