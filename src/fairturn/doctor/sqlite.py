"""SQLite: the file, its journal, its disk."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from fairturn.core.errors import DatabaseError
from fairturn.doctor.examination import Examination, Finding, bad, ok, size, warn

WAL = 64 << 20  # bytes
DISK_WARN, DISK_BAD = 1 << 30, 100 << 20
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "glusterfs")
_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


def examine(examination: Examination) -> Iterator[Finding]:
    [[version]] = examination.ask("version")
    if tuple(int(part) for part in version.split(".")) < (3, 35):
        yield bad(
            "version",
            f"SQLite {version} is too old",
            "Fairturn needs RETURNING, which came with 3.35",
            "use a Python that was built with a newer SQLite",
        )
    else:
        yield ok("version", f"SQLite {version}")
    path = _file(examination)
    yield from _durability(examination, path)
    if path is None:
        yield ok("file", "the database is in memory: it ends with this process")
        return
    yield from _permissions(path)
    yield from _wal(examination, path)
    yield from _disk(path)
    if examination.deep:
        yield from _integrity(examination, path)


def _file(examination: Examination) -> Path | None:
    for _, name, path in examination.ask("files"):
        if name == "main" and path:
            return Path(path)
    return None


def _durability(examination: Examination, path: Path | None) -> Iterator[Finding]:
    [[mode]] = examination.ask("journal_mode")
    if path is not None and mode.lower() != "wal":
        yield bad(
            "journal",
            f"journal_mode is {mode}",
            "without WAL readers and the writer block each other",
            f"sqlite3 {path} 'PRAGMA journal_mode=WAL'",
        )
    elif path is not None:
        yield ok("journal", "journal_mode is WAL")
    [[level]] = examination.ask("synchronous")
    word = _SYNCHRONOUS.get(level, str(level))
    if level < 1:
        yield bad(
            "synchronous",
            "synchronous is OFF",
            "a power cut can destroy the file",
            "connect without changing PRAGMA synchronous",
        )
    elif level < 2:
        yield warn(
            "synchronous",
            f"synchronous is {word}",
            "a power cut can lose the last commits",
            "connect with synchronous='FULL', the default",
        )
    else:
        yield ok("synchronous", f"synchronous is {word}: what was sent survives a power cut")


def _permissions(path: Path) -> Iterator[Finding]:
    mode = path.stat().st_mode
    if mode & stat.S_IWOTH:
        yield bad(
            "permissions",
            f"every user of this machine can write {path}",
            "each of them can send, read and remove any message",
            f"chmod o-rwx {path}",
        )
    elif not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        yield bad(
            "permissions",
            f"this user cannot write {path} or its directory",
            "SQLite needs both: its journal is next to the file",
            f"chown {os.environ.get('USER', 'you')} {path.parent} {path}",
        )
    else:
        yield ok("permissions", f"{path} can be written ({stat.filemode(mode)})")
    kind = _filesystem(path)
    if kind in _REMOTE:
        yield bad(
            "filesystem",
            f"{path} is on a network file system ({kind})",
            "WAL needs shared memory; two machines that use one file destroy it",
            "move the file to a local disk, or use PostgreSQL or MySQL",
        )


def _filesystem(path: Path) -> str | None:
    """Return the type of the file system; None without /proc."""
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return None
    longest, found = "", None
    target = str(path.resolve())
    for line in mounts:
        _, point, kind, *_ = line.split()
        point = point.rstrip("/")
        if (target == point or target.startswith(point + "/")) and len(point) >= len(longest):
            longest, found = point, kind
    return found


def _wal(examination: Examination, path: Path) -> Iterator[Finding]:
    wal = Path(f"{path}-wal")
    bytes = wal.stat().st_size if wal.exists() else 0
    if bytes <= WAL:
        yield ok("wal", f"the write-ahead log has {size(bytes)}")
        return
    # PASSIVE copies all it can without waiting; a reader still needs what it could not copy.
    [[_, frames, copied]] = examination.ask("checkpoint")
    held = copied < frames
    holders = _open_by(path)
    names = ", ".join(holders) or "a process that this user cannot see"
    why = "every read has to search it, and it fills the disk"
    if held:
        yield warn(
            "wal",
            f"the write-ahead log has {size(bytes)}: a long reader prevents its truncation; "
            f"the file is open in {names}",
            why,
            "end that reader's transaction (a report, a backup, a forgotten SELECT), then: "
            + examination.command("maintain"),
        )
    else:
        yield warn(
            "wal",
            f"the write-ahead log has {size(bytes)}, left by an earlier long reader",
            why,
            f"sqlite3 {path} 'PRAGMA wal_checkpoint(TRUNCATE)'",
        )


def _open_by(path: Path) -> list[str]:
    """Return other processes that have the file open; none without /proc."""
    target = str(path.resolve())
    found: list[str] = []
    try:
        processes = [entry for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError:
        return found
    for pid in processes:
        if int(pid) == os.getpid():
            continue
        try:
            links = (os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))
            if target in links:
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                found.append(f"process {pid} ({name})")
        except OSError:
            continue
    return found


def _disk(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path.parent).free
    text = f"{size(free)} free on the disk; the file has {size(path.stat().st_size)}"
    if free < DISK_WARN:
        make = bad if free < DISK_BAD else warn
        yield make("disk", text, "a full disk stops sends and acks", f"df -h {path.parent}")
    else:
        yield ok("disk", text)


def _integrity(examination: Examination, path: Path) -> Iterator[Finding]:
    try:
        problems = [text for (text,) in examination.ask("quick_check") if text != "ok"]
    except DatabaseError as error:
        problems = [str(error)]
    if problems:
        yield bad(
            "integrity",
            f"the file is damaged: {problems[0]}",
            "messages may be lost or unreadable",
            f"sqlite3 {path} .recover | sqlite3 recovered.db",
        )
    else:
        yield ok("integrity", "quick_check found no damage")
