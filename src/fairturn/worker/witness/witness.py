"""Detects the death of a worker, and settles the messages that it held.

The witness process (``witness_process.py``) sleeps until the pipe from its worker is closed. A
worker that stops normally writes a goodbye first. Without it the worker was killed, or crashed in a
handler, and the witness settles the messages that the journal lists:

- a message that waited for a slot, or ran in a process of its own, cannot be the cause: it is
  released, and the attempt does not count;
- a message that ran in the worker's process may be the cause: it has failed, the attempt counts,
  the failure log has the reason, and the next run is in a process of its own. If several ran, the
  cause is unknown. Then no message becomes dead only because of this: a message on its last attempt
  is released and remembered as a suspect;
- a message whose handler had succeeded is acked.

Only if the witness is killed, too, or cannot reach the database, the leases have to expire.
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

from fairturn.core.errors import DatabaseError, QueueNotFound
from fairturn.execution.retries import absence
from fairturn.observe import logs
from fairturn.sync.database import Database, connect
from fairturn.sync.queue import Queue
from fairturn.worker.witness import journal, witness_process
from fairturn.worker.witness.journal import Journal, Record

if TYPE_CHECKING:
    from fairturn.worker.runtime import Worker

log = logging.getLogger("fairturn.worker")
DIED = "WorkerDied"  # the error's name in the failure log
SUSPECTED = "fairturn.suspected."  # + the message's id: the name under which it is remembered …
SUSPICION = 86_400.0  # … for so many seconds
PATIENCE = 60.0  # seconds for which to try an unreachable database


class Witness:
    """The worker's side: starts and ends the witness process."""

    def __init__(self, process: subprocess.Popen[bytes], journal: Journal) -> None:
        self._process = process
        self.journal = journal

    @classmethod
    def start(cls, worker: Worker) -> Witness | None:
        """Start the process. None if that is impossible here."""
        instructions = {
            "worker": worker.name,
            "connection": worker.app.connection,
            "queues": list(worker.tasks),
            "path": sys.path,
            "logs": logs.settings(),
        }
        try:
            line = json.dumps(instructions).encode() + b"\n"
        except TypeError:  # a connection option is a Python object
            return None
        if sys.platform == "win32":  # a process cannot inherit a file there
            return None
        with tempfile.TemporaryFile() as file:
            file.truncate(journal.SIZE)
            process = subprocess.Popen(
                [sys.executable, "-P", witness_process.__file__, str(file.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[file.fileno()],
                start_new_session=True,  # Ctrl-C in the terminal must not end it
            )
            assert process.stdin is not None
            process.stdin.write(line)
            process.stdin.flush()
            return cls(process, Journal(file.fileno(), list(worker.tasks)))

    def end(self) -> None:
        """End the process: the worker stops normally, and there is nothing to settle."""
        try:
            self._process.communicate(witness_process.GOODBYE, timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self.journal.close()


# --- in the witness process -----------------------------------------------------------------------
def settle_dead_worker(instructions: dict[str, Any], file: int) -> None:
    """Settle the messages of a worker that has died."""
    deadline = time.monotonic() + PATIENCE
    if instructions["logs"] is not None:
        logs.setup(*instructions["logs"])
    found = list(journal.records(file))
    url, options = instructions["connection"]
    attempt = 0
    while True:
        try:
            with connect(url, **options) as db:
                summary = settle(db, instructions["queues"], found)
            log.error("worker %s has died: %s", instructions["worker"], summary)
            return
        except DatabaseError as error:
            if time.monotonic() > deadline:
                text = "worker %s has died, and its leases have to expire: %s"
                log.error(text, instructions["worker"], error)
                return
            attempt += 1
            time.sleep(absence(attempt))


def settle(db: Database, queues: Sequence[str], found: Sequence[Record]) -> str:
    """Settle a dead worker's messages; return a summary as text. Can be repeated."""
    ran = [record for record in found if record.state == journal.RUNNING]
    failed = released = done = 0
    for number, name in enumerate(queues):
        mine = [record for record in found if record.queue == number]
        queue = db.queue(name)
        try:
            acked = [r for r in mine if r.state == journal.DONE]
            done += queue.ack([queue.lease(r.id, r.token) for r in acked]).acked
            to_release = [r for r in mine if r.state in (journal.HELD, journal.OWN_PROCESS)]
            for record in ran:
                if record.queue != number:
                    continue
                if _is_suspect(record, ran):
                    queue.remember(f"{SUSPECTED}{record.id}", True, keep=SUSPICION)
                    to_release.append(record)
                else:
                    failed += _fail(queue, record, len(ran))
            released += queue.release([queue.lease(r.id, r.token) for r in to_release]).acked
        except QueueNotFound:
            pass  # the queue was dropped with its messages
    return f"{failed} running messages failed, {released} were released, {done} were acked"


def _is_suspect(record: Record, ran: Sequence[Record]) -> bool:
    """Return whether a failure would make this message dead, although another one may have killed
    the worker. (A message with a
    single attempt must not run twice.)"""
    return len(ran) > 1 and 1 < record.max_attempts <= record.attempts


def _fail(queue: Queue, record: Record, ran: int) -> int:
    others = f", with {ran - 1} others" if ran > 1 else ""
    error = f"{DIED}: the worker's process ended while the message ran there{others}"
    lease = [queue.lease(record.id, record.token)]
    if 0 < record.max_attempts <= record.attempts:
        return queue.kill(lease, error).acked
    return queue.fail(lease, error, delay=0).acked
