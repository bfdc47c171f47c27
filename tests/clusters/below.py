"""``python below.py COMMAND …``: run a program, and end everything below it when we are told to.

Patroni starts PostgreSQL as a daemon, which would outlive it. Here orphans become our children
(PR_SET_CHILD_SUBREAPER), so a kill of "this process and all below it" finds them, and none is left.
Standard library only: it runs isolated, as the keeper does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LOOKS = 100  # of 50 ms: PostgreSQL may end by itself, and free its shared memory


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def children() -> list[int]:
    found: list[int] = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):
                state, parent = _stat(int(entry))[:2]
                if int(parent) == os.getpid() and state not in "ZX":
                    found.append(int(entry))
    return found


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end(main: int) -> None:
    """Patroni first, or it would start PostgreSQL again; then PostgreSQL, at once (SIGQUIT)."""
    _send([main], signal.SIGKILL)
    looks = 0
    while left := children():
        number = signal.SIGQUIT if looks < LOOKS else signal.SIGKILL
        _send([pid for pid in left if pid != main], number)
        time.sleep(0.05)
        looks += 1


def main() -> None:
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    told: list[object] = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    child = subprocess.Popen(sys.argv[1:])
    while not told and child.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.1)
        with contextlib.suppress(ChildProcessError):
            # Orphans that have ended are ours to bury; Popen finds its own child buried, too.
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    end(child.pid)


if __name__ == "__main__":
    main()
