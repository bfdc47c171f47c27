"""Where a campaign takes place: one private database, on a small disk of its own if mounts are
allowed, with two proxies in front of it if it is a server. (Clusters: cluster_sites.py.)"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fairturn
from tests import servers
from tests.faults.proxy import Proxy
from tests.keeper import alive
from tests.server_process import wait_until

DISK_MIB = {"sqlite": 64, "postgresql": 400, "mysql": 500}
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000


class Disk:
    """A small disk in memory, with a ballast file that can fill it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ballast = directory / "ballast"

    def fill(self) -> None:
        with contextlib.suppress(OSError), open(self._ballast, "ab", buffering=0) as file:
            block = bytes(1 << 16)
            while True:
                file.write(block)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


def private_mounts() -> bool:
    """From now on what this process mounts is seen by it and its children only, and ends with
    them. False if that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        return False
    return libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0


def mount_disk(directory: Path, mib: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={mib}m,mode=777".encode()
    return libc.mount(b"tmpfs", os.fsencode(directory), b"tmpfs", 0, options) == 0


class Site:
    def __init__(self, kind: str, mounts: bool) -> None:
        self.kind = kind
        self.family = kind  # the kind of a single server
        self._mounts = mounts
        self.disk: Disk | None = None
        self.server: Any = None
        self.proxies: list[Proxy] = []
        self.url = ""  # the direct way, for the nemesis and the drain
        self.ways: list[str] = []  # those of the roles

    def urls(self) -> Iterator[str]:
        """The ways of the roles to the database, in turn."""
        while True:
            yield from self.ways

    def __enter__(self) -> Site:
        self._stack = contextlib.ExitStack()
        try:
            self._open(self._stack)
        except BaseException:
            self._stack.close()
            raise
        return self

    def _open(self, stack: contextlib.ExitStack) -> None:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fairturn-disk-")))
        os.chmod(place, 0o755)
        if self._mounts and mount_disk(place, DISK_MIB[self.kind]):
            self.disk = Disk(place)
            stack.callback(ctypes.CDLL(None).umount2, os.fsencode(place), 2)  # MNT_DETACH
        if self.kind == "sqlite":
            self.url = f"sqlite:///{place / 'campaign.db'}"
        else:
            self.server = servers.KINDS[self.kind](place=place)
            stack.callback(self.server.stop)
            self.server.start()
            self.url = self.server.create_database("campaign")
            for _ in range(2):
                self.proxies.append(stack.enter_context(Proxy(self.server.port)))
        self.ways = [proxy.url(self.url) for proxy in self.proxies] or [self.url]

    def back(self) -> None:
        """The server answers again; it is started if the fault has ended it."""
        if not alive(self.server.pid):
            self.server.kill9()
            self.server.start()
        wait_until(self.server.ready, f"{self.kind} answers again")

    def create_database(self, name: str) -> str:
        """A fresh database beside the campaign's; its URL."""
        if self.server is not None:
            return self.server.create_database(name)
        beside = Path(self.url.removeprefix("sqlite:///")).with_name(f"{name}.db")
        for path in beside.parent.glob(f"{beside.name}*"):
            path.unlink()
        return f"sqlite:///{beside}"

    def session(self, dice: random.Random) -> Any:
        """A new session of an administrator, past the proxies, with every statement a transaction
        of its own. In a cluster: on the leader, or on one of the nodes."""
        if self.family == "postgresql":
            import psycopg

            return psycopg.connect(self.url, autocommit=True, connect_timeout=5)
        return self.server.connect("campaign")

    def connect(self) -> fairturn.Database:
        return fairturn.connect(self.url)

    def __exit__(self, *_: object) -> None:
        self._stack.close()
