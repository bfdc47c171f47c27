"""Write what follows from the tables of settings, policies and send options into pages and SQL.

    make generate

The tables in docs/ and the lists of columns in MySQL's routines stand between a line
``made from: NAME`` and a line ``end``, both comments, and are made from the lines of
core/settings.py and core/sends.py. With --check nothing is written, and a difference is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from fairturn.cli.commands.queues import TYPED
from fairturn.cli.options import help_of
from fairturn.core.kinds import Bytes, Flag, Kind, Line, Name, Seconds
from fairturn.core.sends import SEND_OPTIONS
from fairturn.core.settings import (
    POLICY_FIELDS,
    QUEUE_DEFAULTS,
    QUEUE_SETTINGS,
    PolicyKind,
    Setting,
)

ROOT = Path(__file__).parents[1]
FILES = (
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "src" / "fairturn" / "backends").rglob("schema/routines/*.sql")),
)
_TABLE = re.compile(
    r"^( *)((?:<!--|--) made from: (\w+).*?\n).*?(?=^ *(?:<!--|--) end)", re.MULTILINE | re.DOTALL
)


# --- pages --------------------------------------------------------------------------------------
def _default(line: Line) -> str:
    """A default as Python has it, with its meaning, and the other values that have one."""
    value = line.default
    text = f"`{value:g}`" if isinstance(value, float) else f"`{value!r}`".replace("'", '"')
    if isinstance(line.kind, Bytes):
        text = f"{value // 1024**2} MiB"
    elif isinstance(line.kind, PolicyKind):
        text = "`Policy()`"
    elif isinstance(line.kind, Seconds) and value and value % 86_400 == 0:
        text = "1 day" if value == 86_400 else f"{value // 86_400:g} days"
    means = dict(line.means)
    usual = means.pop(value, "").removeprefix("none: ")
    text += f": {usual}" if usual else ""
    return text + "".join(f"; `{other}`: {word}" for other, word in means.items())


def _fields(name: str, lines: Iterable[Line]) -> list[str]:
    """A table for the Python API."""
    rows = [f"| {name} | default | |", "|---|---|---|"]
    for line in lines:
        by = f"; by `{line.by}()`" if isinstance(line, Setting) and line.by != "create" else ""
        rows.append(f"| `{line.name}` | {_default(line)} | {line.help}{by} |")
    return rows


def _options(lines: Iterable[Line]) -> list[str]:
    """A table for the command line, with the texts of its --help."""
    rows = ["| option | |", "|---|---|"]
    for line in lines:
        name = line.name.replace("_", "-")
        off = f", `--no-{name}`" if isinstance(line.kind, Flag) else ""
        rows.append(f"| `--{name}`{off} | {help_of(line)} |")
    return rows


# --- MySQL's routines -----------------------------------------------------------------------------
def _kinds() -> dict[str, Kind]:
    """The kind of each column of a queue; the default policy has those of its fields."""
    found: dict[str, Kind] = {}
    for line in QUEUE_SETTINGS.values():
        fields = POLICY_FIELDS.values() if isinstance(line.kind, PolicyKind) else [line]
        kinds = [field.kind for field in fields for _ in field.columns]
        found.update(zip(line.columns, kinds, strict=True))
    del found["meta"]  # written by hand: it is an object, or one as text
    return found


def _durations() -> list[str]:
    """What may be given in seconds, under the name without _us."""
    return [column.removesuffix("_us") for column in QUEUE_DEFAULTS if column.endswith("_us")]


def _text(names: Iterable[str]) -> list[str]:
    """Names as one SQL text, in several lines."""
    lines = [""]
    for name in names:
        if len(lines[-1]) + len(name) > 90:
            lines.append("")
        lines[-1] += f"{name},"
    lines[-1] = lines[-1].removesuffix(",")
    quoted = [f"'{line}'" for line in lines]
    return [f"CONCAT({quoted[0]},", *(f"  {line}," for line in quoted[1:-1]), f"  {quoted[-1]})"]


def _assignments() -> list[str]:
    """A column keeps its value unless the options name it."""
    rows: list[str] = []
    for column, kind in _kinds().items():
        value = f"JSON_VALUE(v, '$.{column}')"
        if isinstance(kind, Flag):
            value += " IN ('1', 'true')"
        elif isinstance(kind, Name):
            value = f"CAST({value} AS BINARY)"
        rows.append(
            f"{column} = IF(JSON_CONTAINS_PATH(v, 'one', '$.{column}'), {value}, {column}),"
        )
    return rows


def _pairs() -> list[str]:
    """The arguments of JSON_OBJECT; a name is stored as bytes."""
    rows = [
        f"'{column}', {f'CONVERT({column} USING utf8mb4)' if isinstance(kind, Name) else column}"
        for column, kind in _kinds().items()
    ]
    return [*(f"{row}," for row in rows[:-1]), rows[-1]]


TABLES: dict[str, Callable[[], list[str]]] = {
    "settings": lambda: _fields("setting", QUEUE_SETTINGS.values()),
    "policy": lambda: _fields("field", POLICY_FIELDS.values()),
    "send": lambda: _fields("field", SEND_OPTIONS.values()),
    "queue_options": lambda: _options(TYPED),
    "mysql_durations": lambda: _text(_durations()),
    "mysql_names": lambda: _text([*QUEUE_DEFAULTS, *_durations(), "now"]),
    "mysql_assignments": _assignments,
    "mysql_pairs": _pairs,
}


def made(text: str) -> str:
    """The text of a file with its tables made anew, indented as the line above them."""

    def table(found: re.Match[str]) -> str:
        rows = "".join(f"{found[1]}{row}\n" for row in TABLES[found[3]]())
        return found[1] + found[2] + rows

    return _TABLE.sub(table, text)


def files() -> list[tuple[Path, str, str]]:
    """Every file that has such tables: its path, its text, and what its text should be."""
    texts = [(path, path.read_text("utf-8")) for path in FILES]
    return [(path, text, made(text)) for path, text in texts if _TABLE.search(text)]


def main(check: bool) -> None:
    behind = [(path, wanted) for path, text, wanted in files() if text != wanted]
    for path, wanted in behind:
        if not check:
            path.write_text(wanted, "utf-8")
        print(f"{path.relative_to(ROOT)}: {'is behind; run make generate' if check else 'written'}")
    if check and behind:
        raise SystemExit(1)


if __name__ == "__main__":
    main("--check" in sys.argv[1:])
