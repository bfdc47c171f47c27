"""The pages (README.md, CONTRIBUTING.md, docs/*.md …) as fenced blocks and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
# Whose shown output is held against the real one; elsewhere a command only has to succeed.
EXACT = {
    "tutorial.md",
    "transactions.md",
    "groups.md",
    "events.md",
    "schedules.md",
    "sqs.md",
    "waiting.md",
    "sql.md",
    "operations.md",
    "promises.md",
}

_FENCE = re.compile(r"^```(.*)$")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$")


@dataclass(frozen=True)
class Block:
    """One fenced block. ``line`` is the number of its first line of text."""

    page: Path
    line: int
    language: str
    tags: tuple[str, ...]
    text: str
    follows: bool  # nothing but blank lines since the block before it

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    lines = page.read_text("utf-8").splitlines()
    i, prose = 0, True
    while i < len(lines):
        fence = _FENCE.match(lines[i])
        if fence is None:
            prose = prose or bool(lines[i].strip())
            i += 1
            continue
        end = next((j for j in range(i + 1, len(lines)) if lines[j] == "```"), None)
        assert end is not None, f"{page}:{i + 1}: the fence is never closed"
        language, *tags = fence[1].split() or [""]
        text = "\n".join(lines[i + 1 : end]) + "\n"
        found.append(Block(page, i + 2, language, tuple(tags), text, not prose))
        i, prose = end + 1, False
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings."""
    found = set()
    for line in prose(page).splitlines():
        if heading := _HEADING.match(line):
            text = re.sub(r"[^\w\- ]", "", heading[1].lower())
            found.add(text.replace(" ", "-"))
    return found


def matches(expected: str, real: str) -> bool:
    """Is this the output that the page shows? … stands for anything within a line, a line of … for
    any number of lines; trailing blanks do not count."""
    pattern = ""
    for line in expected.rstrip().splitlines():
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += re.escape(line.rstrip()).replace("…", r"[^\n]*") + "\n"
    text = "".join(f"{line.rstrip()}\n" for line in real.rstrip().splitlines())
    return re.fullmatch(pattern, text) is not None
