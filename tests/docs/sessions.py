"""SQL sessions on a page, and the real clients that hold them.

A block ``sql psql`` or ``sql mariadb`` is a session: lines with the client's prompt are input, the
others are what the client answered.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from tests import servers
from tests.docs.pages import Block

_PROMPTS = {
    "psql": re.compile(r"^app[=\-'($][#>] ?"),
    "mariadb": re.compile(r"^(?:MariaDB \[app\]|    ['\-])> ?"),
}
_FIRST = {"psql": re.compile(r"^app=[#>] ?"), "mariadb": re.compile(r"^MariaDB \[app\]> ?")}
_MARK = "=== the next statement ==="


def steps(block: Block) -> list[tuple[str, str]]:
    """(statement, shown answer) in the order of the session."""
    client = block.tags[0]
    found: list[tuple[list[str], list[str]]] = []
    delimiter, complete = ";", True
    for line in block.text.splitlines():
        prompt = _PROMPTS[client].match(line)
        if prompt is None or (complete and not _FIRST[client].match(line)):
            if not (found and complete):
                raise ValueError(f"{block.place}: not a session: {line}")
            found[-1][1].append(line)
            continue
        if complete:
            found.append(([], []))
        given = found[-1][0]
        given.append(line[prompt.end() :])
        if new := re.fullmatch(r"DELIMITER (\S+)", given[0]):
            delimiter, complete = new[1], True
        else:
            complete = _complete(given, delimiter)
    return [("\n".join(given), "\n".join(shown)) for given, shown in found]


def _complete(lines: list[str], delimiter: str) -> bool:
    """Has the statement ended? A function's body has semicolons of its own."""
    if "\n".join(lines).count("$$") % 2:
        return False
    return lines[0].startswith("\\") or lines[-1].endswith((delimiter, "\\G", "\\gx"))


def command(client: str, url: str) -> list[str]:
    if client == "psql":
        return [servers.find_binary("psql", "postgresql-client"), "-X", url]
    parts = urlsplit(url)
    program = servers.find_binary("mariadb", "mariadb-client")
    return [
        program,
        "--no-defaults",
        f"--host={parts.hostname}",
        f"--port={parts.port}",
        f"--user={parts.username}",
        "--table",
        "--force",  # go on after an error, as a person would
        "--unbuffered",
        parts.path[1:],
    ]


def answers(client: str, url: str, statements: list[str], cwd: Path) -> list[str]:
    """What the client prints for each statement of one session."""
    mark = f"\\echo {_MARK}" if client == "psql" else f"\\! echo '{_MARK}'"
    script = "".join(f"{statement}\n{mark}\n" for statement in statements)
    done = subprocess.run(
        command(client, url),
        input=script,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PAGER": "cat"},
        check=False,
        timeout=60,
    )
    parts = done.stdout.split(f"{_MARK}\n")
    assert len(parts) == len(statements) + 1, f"the client ended early:\n{done.stdout}"
    return [_as_a_person_sees_it(client, part) for part in parts[:-1]]


def _as_a_person_sees_it(client: str, text: str) -> str:
    if client == "mariadb":
        # Fed from a file it repeats the statement that failed, and names its line.
        text = re.sub(r"^-{14}\n.*?^-{14}\n\n", "", text, flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"^(ERROR .*?) at line \d+: ", r"\1: ", text, flags=re.MULTILINE)
    return text


def normal(text: str) -> list[str]:
    """Without what differs from run to run: times, and the widths they give to columns."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?([+-]\d\d)?", "TIME", text)
    text = re.sub(r"\b1[6-9]\d{14}\b", "TIME", text)  # microseconds since the epoch
    text = re.sub(r"-{2,}", "--", text)
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    return [line for line in lines if line]
