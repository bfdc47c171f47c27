"""Install the rivals outside the project: in a venv and an npm folder.

They are in $XDG_CACHE_HOME/fairturn-bench (~/.cache/fairturn-bench), and the next run uses them
again. If the list of packages changes, a new folder is made.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PYTHON_PACKAGES = (
    "pgqueuer==1.6.0",
    "procrastinate==3.10.0",
    "asyncpg",
    "uvloop",
    "psycopg[binary,pool]",
)
NODE_PACKAGES = ("graphile-worker@0.18.0", "pg-boss@12.35.0", "pg@8")
OLDEST_NODE = (22, 18)  # graphile-worker's; pg-boss asks for 22.12
NODE_PACKAGE = "node-{system}-{machine}@24"  # npm's build of Node, where the installed one is older


class Missing(Exception):
    """A rival cannot run here; the text says why."""


@dataclass(frozen=True)
class Installed:
    """The interpreter of a rival, and the folder in which its script must be (npm)."""

    interpreter: str
    folder: Path | None
    versions: dict[str, str]


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fairturn-bench"


def python_rivals() -> Installed:
    folder = _made("python", PYTHON_PACKAGES, _make_venv)
    interpreter = folder / "bin" / "python"
    listing = _run([str(interpreter), "-m", "pip", "list", "--format=json"])
    versions = {entry["name"].lower(): entry["version"] for entry in json.loads(listing)}
    return Installed(str(interpreter), None, versions)


def node_rivals() -> Installed:
    if shutil.which("npm") is None:
        raise Missing("npm is not installed")
    node = _system_node()
    packages = NODE_PACKAGES if node else (*NODE_PACKAGES, _node_package())
    folder = _made("node", packages, _make_node)
    if node is None:
        node = str(folder / "node_modules" / _node_package().split("@")[0] / "bin" / "node")
    versions = {"node": _run([node, "--version"]).strip().removeprefix("v")}
    for name in ("graphile-worker", "pg-boss"):
        manifest = folder / "node_modules" / name / "package.json"
        versions[name] = json.loads(manifest.read_text())["version"]
    return Installed(node, folder, versions)


def _made(
    kind: str, packages: tuple[str, ...], make: Callable[[Path, tuple[str, ...]], None]
) -> Path:
    """The folder with these packages; a half-made one of an interrupted run is made anew."""
    mark = hashlib.sha256(f"{sys.version} {packages}".encode()).hexdigest()[:12]
    folder = cache() / f"{kind}-{mark}"
    done = folder / "complete"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"installing {', '.join(packages)} into {folder}", file=sys.stderr, flush=True)
        make(folder, packages)
        done.touch()
    return folder


def _make_venv(folder: Path, packages: tuple[str, ...]) -> None:
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages])


def _make_node(folder: Path, packages: tuple[str, ...]) -> None:
    (folder / "package.json").write_text('{"private": true}\n')
    _run(["npm", "install", "--no-audit", "--no-fund", *packages], folder)


def _system_node() -> str | None:
    node = shutil.which("node")
    if node is None:
        return None
    found = re.match(r"v(\d+)\.(\d+)", _run([node, "--version"]))
    return node if found and tuple(map(int, found.groups())) >= OLDEST_NODE else None


def _node_package() -> str:
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return NODE_PACKAGE.format(system=platform.system().lower(), machine=machine)


def _run(command: list[str], folder: Path | None = None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = f"{done.stderr}\n{done.stdout}".splitlines()
        errors = [line.strip() for line in said if "error" in line.lower() and "log" not in line]
        why = errors[0] if errors else f"exit code {done.returncode}"
        what = "pip install" if "pip" in command else Path(command[0]).name
        raise Missing(f"{what} failed: {why[:160]}")
    return done.stdout
