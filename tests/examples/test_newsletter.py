"""examples/newsletter, as its README says: a web server and a worker, real processes both."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import fairturn
from tests import servers

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "newsletter"
MOODY = "u2@example.org"  # the example's mail server refuses its first mail


def eventually(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within 30 s: {what}")


class Site:
    """The example in a directory of its own."""

    def __init__(self, directory: Path, url: str | None) -> None:
        for file in EXAMPLE.glob("*.*"):
            shutil.copy(file, directory)
        self.directory = directory
        self.url = url or f"sqlite:///{directory / 'newsletter.db'}"
        self.environment = {k: v for k, v in os.environ.items() if k != "DATABASE_URL"}
        if url is not None:
            self.environment["DATABASE_URL"] = url
        self.web = f"http://127.0.0.1:{servers.free_port()}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def run(self, *command: str) -> None:
        subprocess.run(
            [sys.executable, *command],
            cwd=self.directory,
            env=self.environment,
            check=True,
            timeout=60,
        )

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=self.directory, env=self.environment
        )
        self.processes.append(process)
        return process

    def answers(self) -> bool:
        try:
            return httpx.get(self.web).status_code == 200
        except httpx.TransportError:
            return False

    def mails(self, subject: str) -> dict[str, int]:
        """Which attempt the mails with this subject arrived with."""
        file = self.directory / "mails.jsonl"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        found = [mail for mail in map(json.loads, lines) if mail["subject"] == subject]
        assert len({mail["to"] for mail in found}) == len(found), "a mail was sent twice"
        return {mail["to"]: mail["attempt"] for mail in found}

    def put(self, path: str) -> httpx.Response:
        return httpx.put(f"{self.web}/lists/gardening/{path}")

    def report(self) -> dict[str, Any]:
        """Start a report and poll it to its end, as the page does."""
        number = httpx.post(f"{self.web}/lists/gardening/reports").json()["report"]

        def finished() -> dict[str, Any] | None:
            told = httpx.get(f"{self.web}/reports/{number}").json()
            return told if told["state"] in ("done", "dead") else None

        return eventually(finished, "the report is done")


@pytest.fixture(params=["sqlite", "postgresql"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    url = servers.postgres_url("newsletter") if request.param == "postgresql" else None
    site = Site(tmp_path, url)
    try:
        yield site
    finally:
        for process in site.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def test_the_newsletter(site: Site) -> None:
    site.run("newsletter.py", "setup")
    site.run("newsletter.py", "setup")  # with each deploy: harmless
    web = site.start("-m", "uvicorn", "newsletter:web", "--port", site.web.rpartition(":")[2])
    worker = site.start("newsletter.py", "worker")
    eventually(site.answers, "the web server answers")

    # A subscriber and their welcome, in one transaction; a second one has neither.
    people = [f"u{n}@example.org" for n in range(1, 10)]
    assert [site.put(f"subscribers/{email}").status_code for email in people] == [201] * 9
    assert site.put("subscribers/u1@example.org").status_code == 409
    welcome = "Welcome to gardening"
    eventually(lambda: len(site.mails(welcome)) == 9, "everybody is welcomed")
    assert site.mails(welcome)[MOODY] == 2  # it was refused once, and tried again

    # One issue becomes a mail to each.
    assert site.put("issues/Tomatoes").status_code == 202
    eventually(lambda: len(site.mails("Tomatoes")) == 9, "everybody has the issue")

    told = site.report()
    assert (told["state"], told["result"]) == ("done", {"example.org": 9})
    assert told["note"] == "0 of 9 subscribers"
    assert httpx.get(f"{site.web}/reports/999999").status_code == 404

    with fairturn.connect(site.url) as db:
        # The worker has stored the schedule that the code declares.
        digest = db.schedule("digest")
        assert eventually(digest.get, "the digest is scheduled").spec == "0 8 * * * (Europe/Rome)"
        digest.trigger()
        eventually(lambda: site.mails("9 new subscribers"), "the customer has the digest")

        # A mail that cannot be sent is dead at once, with its reason.
        site.put("subscribers/nobody")
        [dead] = eventually(lambda: db.queue("mail").peek(state="dead"), "one mail is dead")
        assert (dead.channel, dead.attempts) == ("gardening", 1)
        assert dead.error == "Refused: 550 no such mailbox: nobody"

        for process in (worker, web):
            process.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
        assert web.wait(30) in (0, -signal.SIGTERM)  # uvicorn ends by the signal it was sent
        stats = db.stats()
        assert (stats.leased, stats.ready, stats.scheduled) == (0, 0, 0)
