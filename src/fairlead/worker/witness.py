"""Sees a worker die, and settles what it held.

Beside the worker a small process sleeps until the pipe between them ends (``sleeper.py``). A worker
that leaves says goodbye first. One that does not was killed, or a handler took it down, and its
journal tells what it held then:

- what waited for a slot, or ran in a process of its own, had no part in it: it is given back, and
  its attempt does not count;
- what ran in the worker may have done it: its attempt counts, the failure log says why, and it runs
  in a process of its own the next time. Where several ran, one is guilty and nobody knows which; so
  none dies of this alone: one on the last of its attempts is given back, as a suspect;
- what was done is acked.

Only when the witness is killed, too, or cannot reach the database, do the leases have to expire.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairlead.errors import DatabaseError, QueueNotFound
from fairlead.retrying import absence
from fairlead.sync.database import Database, connect
from fairlead.sync.queue import Queue
from fairlead.worker import journal, logs, sleeper
from fairlead.worker.journal import Journal, Record

if TYPE_CHECKING:
    from fairlead.worker.runtime import Worker

log = logging.getLogger("fairlead.worker")
DIED = "WorkerDied"  # the failure log's word for it
SUSPECTED = "fairlead.suspected."  # remembered under this name and the message's id …
SUSPICION = 86_400.0  # … for so many seconds
PATIENCE = 60.0  # seconds for which a database that is away is tried


class Witness:
    """The worker's end."""

    def __init__(self, process: subprocess.Popen[bytes], journal: Journal) -> None:
        self._process = process
        self.journal = journal

    @classmethod
    def start(cls, worker: Worker) -> Witness | None:
        """None where there cannot be one."""
        will = {
            "worker": worker.name,
            "connection": worker.app.connection,
            "queues": list(worker.tasks),
            "path": sys.path,
            "logs": logs.settings(),
        }
        try:
            told = json.dumps(will).encode() + b"\n"
        except TypeError:  # options that are objects of the program
            return None
        if sys.platform == "win32":  # there a process gets no file from its parent
            return None
        with tempfile.TemporaryFile() as file:
            file.truncate(journal.SIZE)
            process = subprocess.Popen(
                [sys.executable, "-P", sleeper.__file__, str(file.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[file.fileno()],
                start_new_session=True,  # a terminal's Ctrl-C is not for it
            )
            assert process.stdin is not None
            process.stdin.write(told)
            process.stdin.flush()
            return cls(process, Journal(file.fileno(), list(worker.tasks)))

    def end(self) -> None:
        """We leave, and nothing is left to be settled."""
        try:
            self._process.communicate(sleeper.GOODBYE, timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self.journal.close()


# --- in its own process ---------------------------------------------------------------------------
def carry_out(will: dict[str, Any], file: int) -> None:
    """The worker is dead."""
    deadline = time.monotonic() + PATIENCE
    if will["logs"] is not None:
        logs.setup(*will["logs"])
    found = list(journal.records(file))
    url, options = will["connection"]
    attempt = 0
    while True:
        try:
            with connect(url, **options) as db:
                said = settle(db, will["queues"], found)
            log.error("worker %s has died: %s", will["worker"], said)
            return
        except DatabaseError as error:
            if time.monotonic() > deadline:
                text = "worker %s has died, and what it held has to expire: %s"
                log.error(text, will["worker"], error)
                return
            attempt += 1
            time.sleep(absence(attempt))


def settle(db: Database, queues: Sequence[str], found: Sequence[Record]) -> str:
    """Settle what a worker held; what was done, in words. Repeating it does no harm."""
    ran = [record for record in found if record.state == journal.RUNNING]
    failed = released = done = 0
    for number, name in enumerate(queues):
        mine = [record for record in found if record.queue == number]
        queue = db.queue(name)
        try:
            acked = [r for r in mine if r.state == journal.DONE]
            done += queue.ack([queue.lease(r.id, r.delivery) for r in acked]).acked
            innocent = [r for r in mine if r.state in (journal.HELD, journal.ALONE)]
            for record in ran:
                if record.queue != number:
                    continue
                if _is_spared(record, ran):
                    queue.remember(f"{SUSPECTED}{record.id}", True, keep=SUSPICION)
                    innocent.append(record)
                else:
                    failed += _fail(queue, record, len(ran))
            released += queue.release([queue.lease(r.id, r.delivery) for r in innocent]).acked
        except QueueNotFound:
            pass  # dropped, and the messages with it
    return f"{failed} that ran have failed, {released} were given back, {done} were done"


def _is_spared(record: Record, ran: Sequence[Record]) -> bool:
    """Would it die, and is perhaps not guilty? (With a single attempt it must not run twice.)"""
    return len(ran) > 1 and 1 < record.most <= record.attempts


def _fail(queue: Queue, record: Record, ran: int) -> int:
    beside = f", with {ran - 1} others" if ran > 1 else ""
    error = f"{DIED}: the process of its worker ended while it ran there{beside}"
    lease = [queue.lease(record.id, record.delivery)]
    if 0 < record.most <= record.attempts:
        return queue.kill(lease, error).acked
    return queue.fail(lease, error, delay=0).acked
