"""What docs/sqs.md says beside its snippets: services, CI, limits."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path

import pytest

from fairturn.cli.programs.serve import Flags
from fairturn.server.http.bounds import Bounds
from fairturn.server.sqs.traffic.inflight_limit import Caps
from fairturn.sqs import limits
from tests import servers
from tests.docs.pages import ROOT, Block, blocks

PAGE = ROOT / "docs" / "sqs.md"
TEXT = PAGE.read_text("utf-8")
SECONDS = 100


def block(language: str) -> Block:
    [found] = [one for one in blocks(PAGE) if one.language == language]
    return found


def test_every_flag_of_serve_exists() -> None:
    known = {one.name.replace("_", "-") for one in fields(Flags)} | {"config", "db"}
    lines = re.findall(r"fairturn serve ([^\n`>]*)", TEXT)
    named = {flag.removeprefix("no-") for line in lines for flag in re.findall(r"--([\w-]+)", line)}
    assert {"config", "db", "extended", "grace"} <= named <= known


def test_the_service_leaves_time_for_the_grace() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string(block("ini").text)
    grace = re.search(r"--grace (\d+)s", unit["Service"]["ExecStart"])
    assert grace
    assert int(unit["Service"]["TimeoutStopSec"]) >= int(grace[1]) + 15
    assert int(unit["Service"]["LimitNOFILE"]) > Bounds().connections


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_step_of_ci_starts_a_server(tmp_path: Path) -> None:
    step = re.search(r"- name: SQS\n +run: \|\n((?: {10}.*\n)+)", block("yaml").text)
    assert step
    script = textwrap.dedent(step[1])
    port = str(servers.free_port())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"{script.replace('9324', port)}\nasked=$?\nkill $!\nwait $! && exit $asked",
        ],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "FAIRTURN_SERVE_PORT": port},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    log = (tmp_path / "sqs.log").read_text("utf-8")
    assert done.returncode == 0, f"{done.stderr}\n{log}"
    assert done.stdout == '{"healthy": true}\n'
    assert f"serving SQS on http://127.0.0.1:{port}" in log


def test_the_limits_are_those_of_the_code() -> None:
    bounds, caps = Bounds(), Caps()
    connections = f"{bounds.connections:,} in each process, then 503"
    idle = f"an idle one is closed after {bounds.keep_alive:g} s"
    headers = f"{bounds.header_bytes // 1024} KiB of headers within {bounds.header_seconds:g} s"
    body = f"{bounds.body_bytes // 1024**2} MiB of body within {bounds.body_seconds:g} s"
    message = f"| {limits.MESSAGE_BYTES // 1024**2} MiB, as at AWS; "
    in_flight = f"{caps.standard:,} (standard), {caps.fifo:,} (FIFO), as at AWS"
    for said in (connections, idle, headers, body, message, in_flight):
        assert said in TEXT
