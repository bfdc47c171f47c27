"""Node and its packages, pinned by a lock file, in a folder outside the project.

It is $XDG_CACHE_HOME/fairturn-clients (~/.cache/fairturn-clients), and used again by the next run.
A change of the lock file makes a new folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from tests.server_process import Missing

HERE = Path(__file__).resolve().with_name("javascript")
OLDEST = 20  # the SDK's and sqs-consumer's
NODE = f"node {OLDEST} or later with npm"
PACKAGES = "the packages of npm (is its registry reachable?)"
SECONDS = 60
AGAIN = 600  # seconds


def node() -> str:
    """The program."""
    found = shutil.which("node")
    if found is None:
        raise Missing("node is not installed", NODE)
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
    major = re.match(r"v(\d+)", version.stdout)
    if major is None or int(major[1]) < OLDEST:
        raise Missing(f"node {version.stdout.strip()} is too old", NODE)
    return found


def modules(here: Path = HERE) -> Path:
    """The folder node_modules; Missing if it cannot be had, say without a registry."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairturn-clients"
    lock = (here / "package-lock.json").read_bytes()
    folder = base / f"node-{hashlib.sha256(lock).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "complete"
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the workers of ``pytest -n`` share it
        if not done.exists():
            _install(here, folder)
            done.touch()
    return folder / "node_modules"


def _install(here: Path, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Missing("npm is not installed", NODE)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(here / name, folder)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"]
    refused = folder / "refused"  # the tests after the first do not try for as long again
    if refused.exists() and time.time() - refused.stat().st_mtime < AGAIN:
        raise Missing(refused.read_text(), PACKAGES)
    try:
        ran = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        said = "" if ran.returncode == 0 else f"npm ci failed: {ran.stderr[-500:]}"
    except subprocess.TimeoutExpired:
        said = f"npm ci was not done within {SECONDS} s"
    if said:
        refused.write_text(said)
        raise Missing(said, PACKAGES)
