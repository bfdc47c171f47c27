"""SQLite: the file, its journal, its disk."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from fairlead.doctor.patient import Finding, Patient, bad, ok, size, warn
from fairlead.errors import DatabaseError

WAL = 64 << 20  # bytes
DISK_WARN, DISK_BAD = 1 << 30, 100 << 20
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "glusterfs")
_SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


def examine(patient: Patient) -> Iterator[Finding]:
    [[version]] = patient.ask("version")
    if tuple(int(part) for part in version.split(".")) < (3, 35):
        yield bad(
            "version",
            f"SQLite {version} is too old",
            "Fairlead needs RETURNING, which came with 3.35",
            "use a Python that was built with a newer SQLite",
        )
    else:
        yield ok("version", f"SQLite {version}")
    path = _file(patient)
    yield from _durability(patient, path)
    if path is None:
        yield ok("file", "the database is in memory: it ends with this process")
        return
    yield from _permissions(path)
    yield from _wal(patient, path)
    yield from _disk(path)
    if patient.deep:
        yield from _integrity(patient, path)


def _file(patient: Patient) -> Path | None:
    for row in patient.ask("files"):
        if row[1] == "main" and row[2]:
            return Path(row[2])
    return None


def _durability(patient: Patient, path: Path | None) -> Iterator[Finding]:
    [[mode]] = patient.ask("journal_mode")
    if path is not None and mode.lower() != "wal":
        yield bad(
            "journal",
            f"journal_mode is {mode}",
            "without WAL readers and the writer block each other",
            f"sqlite3 {path} 'PRAGMA journal_mode=WAL'",
        )
    elif path is not None:
        yield ok("journal", "journal_mode is WAL")
    [[level]] = patient.ask("synchronous")
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
            f"everybody on this machine may write {path}",
            "whoever can write the file can send, read and remove any message",
            f"chmod o-rwx {path}",
        )
    elif not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        yield bad(
            "permissions",
            f"this user may not write {path} or its directory",
            "SQLite needs both: it puts its journal beside the file",
            f"chown {os.environ.get('USER', 'you')} {path.parent} {path}",
        )
    else:
        yield ok("permissions", f"{path} can be written ({stat.filemode(mode)})")
    kind = _filesystem(path)
    if kind in _REMOTE:
        yield bad(
            "filesystem",
            f"{path} lies on a network file system ({kind})",
            "WAL needs shared memory; two machines on one file destroy it",
            "move the file to a local disk, or use PostgreSQL or MySQL",
        )


def _filesystem(path: Path) -> str | None:
    """The type of the file system, where /proc tells it."""
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return None
    best = ("", None)
    target = str(path.resolve())
    for line in mounts:
        fields = line.split()
        point = fields[1].rstrip("/")
        if (target == point or target.startswith(point + "/")) and len(point) >= len(best[0]):
            best = (point, fields[2])
    return best[1]


def _wal(patient: Patient, path: Path) -> Iterator[Finding]:
    wal = Path(f"{path}-wal")
    bytes = wal.stat().st_size if wal.exists() else 0
    if bytes <= WAL:
        yield ok("wal", f"the write-ahead log has {size(bytes)}")
        return
    # PASSIVE copies what it can and waits for nobody; what it could not copy, a reader still needs.
    [[_, frames, copied]] = patient.ask("checkpoint")
    held = copied < frames
    holders = _open_by(path)
    names = ", ".join(holders) or "a process that this user cannot see"
    why = "every read has to look through it, and it fills the disk"
    if held:
        yield warn(
            "wal",
            f"the write-ahead log has {size(bytes)}: a long reader keeps it from being emptied; "
            f"the file is open in {names}",
            why,
            "end that reader's transaction (a report, a backup, a forgotten SELECT), then: "
            + patient.command("maintain"),
        )
    else:
        yield warn(
            "wal",
            f"the write-ahead log has {size(bytes)}, left by an earlier long reader",
            why,
            f"sqlite3 {path} 'PRAGMA wal_checkpoint(TRUNCATE)'",
        )


def _open_by(path: Path) -> list[str]:
    """Other processes that have the file open, where /proc tells it."""
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
        yield make("disk", text, "a full disk stops sends and acks alike", f"df -h {path.parent}")
    else:
        yield ok("disk", text)


def _integrity(patient: Patient, path: Path) -> Iterator[Finding]:
    try:
        problems = [row[0] for row in patient.ask("quick_check") if row[0] != "ok"]
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
