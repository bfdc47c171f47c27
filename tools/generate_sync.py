"""Write the sync side of the API from the async side.

    python tools/generate_sync.py            write the files
    python tools/generate_sync.py --check    fail if a file differs from what would be written

`async` and `await` are left out, names are changed by the table below (in docstrings too), and ruff
sorts the imports and formats the rest. What only the sync side does is written in the async file as
a comment: `# sync only: events.begin()`.
"""

from __future__ import annotations

import io
import itertools
import re
import subprocess
import sys
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "fairturn"

SOURCES = (
    "aio/batch.py",
    "aio/database.py",
    "aio/events.py",
    "aio/group.py",
    "aio/leased.py",
    "aio/queue.py",
    "aio/schedule.py",
    "drivers/psycopg/driver_async.py",
    "drivers/run_async.py",
    "relay/sqs/waiter_async.py",
)

# Applied to the whole text, and to the path of the file.
NAMES = (
    (r"Async(?=[A-Z])", ""),  # AsyncQueue, AsyncIterator, StopAsyncIteration
    (r"_async\b", ""),  # connect_async
    (r"\baio\b", "sync"),  # fairturn.aio, fairturn.execution.aio
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\basyncio\b", "time"),  # only sleep() is used
    (r"\baiobotocore\b", "boto3"),
    (r"\bTasks may share\b", "Threads may share"),
    (r"# sync only: ", ""),
)


def renamed(text: str) -> str:
    for pattern, name in NAMES:
        text = re.sub(pattern, name, text)
    return text


def without_await(text: str) -> str:
    """The text without the keywords `async` and `await`, which strings and comments keep."""
    lines = text.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for token, following in reversed(list(itertools.pairwise(tokens))):
        if token.type == tokenize.NAME and token.string in ("async", "await"):
            row, column = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:column] + line[following.start[1] :]
    return "".join(lines)


def ruff(command: str, text: str, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command.split(), "--quiet", "--stdin-filename", path, "-"],
        input=text,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    return done.stdout


def generate(source: str) -> tuple[Path, str]:
    """The path of the sync file, and what belongs there."""
    path = PACKAGE / renamed(source)
    text = renamed(without_await((PACKAGE / source).read_text("utf-8")))
    text = f"# Generated from {source} by `make generate`: edit that file.\n{text}"
    return path, ruff("format", ruff("check --select I --fix", text, path), path)


def main() -> None:
    stale = {
        path: text
        for path, text in map(generate, SOURCES)
        if not path.exists() or path.read_text("utf-8") != text
    }
    if "--check" not in sys.argv:
        for path, text in stale.items():
            path.write_text(text, "utf-8")
    elif stale:
        names = "\n".join(str(path.relative_to(PACKAGE.parents[1])) for path in stale)
        sys.exit(f"These files differ from what `make generate` writes:\n{names}")


if __name__ == "__main__":
    main()
