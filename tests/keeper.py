"""The keeper of one test server: a program that starts it and ends it, whatever happens.

``python keeper.py '{"command": […], "watch": pid, …}'`` prints the server's process id and stays.
It stops the server when it is told to (SIGTERM), or when the watched process is gone; and if the
keeper itself is killed, the kernel kills the server (PR_SET_PDEATHSIG). Standard library only: it
runs isolated, without the test environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def run_as(user: str | None) -> dict[str, Any]:
    if user is None:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def state(pid: int) -> str:
    """R, S, T (stopped), Z …; X if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def alive(pid: int) -> bool:
    return state(pid) not in "ZX"


def _die_with_parent(number: int) -> Callable[[], None]:
    libc = ctypes.CDLL(None, use_errno=True)

    def in_child() -> None:
        libc.prctl(1, number)  # PR_SET_PDEATHSIG; after setuid, which would clear it

    return in_child


def keep(order: dict[str, Any]) -> None:
    """Run one server until told to stop or until the watched process is gone."""

    told: list[object] = []

    def stop(*_: object) -> None:
        told.append(1)  # raised in the middle of a wait, an error would leave its lock taken

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o077)
    with open(order["log"], "ab") as log:
        child = subprocess.Popen(
            order["command"],
            cwd=order["directory"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
            preexec_fn=_die_with_parent(order["death_signal"]),
            **run_as(order["user"]),
        )
    print(child.pid, flush=True)
    os.close(1)
    remove = False
    while child.poll() is None:
        remove = bool(told) or not alive(order["watch"])
        if remove:
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.2)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if child.poll() is None:
        child.send_signal(order["stop_signal"])
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    if remove:
        shutil.rmtree(order["directory"], ignore_errors=True)
        for directory in Path(tempfile.gettempdir()).glob(
            f"fairturn-session-{os.getuid()}-{order['watch']}-*"
        ):
            if not alive(order["watch"]):
                shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    keep(json.loads(sys.argv[1]))
