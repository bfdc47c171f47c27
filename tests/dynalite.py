"""dynalite, a DynamoDB in Node, from the npm registry: real enough to keep its conditions.

It is installed once, beside the packages of the JavaScript clients; where that cannot be, the tests
that need it are skipped, and say why.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests import servers
from tests.clients import node_packages
from tests.server.serve_programs import wait_for

HERE = Path(__file__).resolve().parent / "relay" / "dynalite"


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Its URL. What it holds is in its memory."""
    node = node_packages.node()
    program = node_packages.modules(HERE) / "dynalite" / "cli.js"
    port = servers.free_port()
    url = f"http://127.0.0.1:{port}"
    command = [node, "--require", str(HERE / "keep.cjs"), str(program)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen([*command, "--createTableMs", "0", "--deleteTableMs", "0"])

    def up() -> bool:
        assert process.poll() is None, f"dynalite ended with {process.returncode}"
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(url).status_code == 200
        return False

    try:
        wait_for(up, lambda: f"no dynalite answers at {url}")
        yield url
    finally:
        process.kill()
        process.wait()
