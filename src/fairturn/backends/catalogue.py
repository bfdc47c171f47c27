"""Read SQL files: the closed catalogues of named statements, and migrations.

A catalogue is a file of blocks. Comments in it are for people and never reach the database::

    -- name: promote(lane, now, limit)
    -- Scheduled messages whose time has come are ready.
    UPDATE message SET state = 'r' WHERE lane = :lane ...

The names in brackets are the statement's parameters in the order in which they are passed; the text
calls them ``:lane`` and is rendered once, at load, with the dialect's placeholders. A block headed
``-- fragment: row`` is no statement: its text replaces ``{row}`` in the blocks after it, also among
the names of their parameters. A backend may bring fragments of its own, such as lists of columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

# First what is copied as it is (comments, strings), then what is looked for. A backslash does not
# escape a quote (as in the SQL standard): write '' in MySQL files too.
_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
      | (?P<quoted>'(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*`
                 | (?P<tag>\$(?:[A-Za-z_]\w*)?\$).*?(?P=tag))
      | (?P<cast>::)
      | :(?P<param>[a-z_]\w*)
      | (?P<word>[A-Za-z_][\w$]*)
      | (?P<end>;)""",
    re.VERBOSE | re.DOTALL,
)
_HEADER = re.compile(r"^--\s*(name|fragment):\s*(\w+)\s*(?:\(([^)]*)\))?\s*$", re.MULTILINE)
_LEADING = re.compile(r"\A(?:\s+|--[^\n]*(?:\n|\Z)|/\*.*?\*/)+", re.DOTALL)
_BLANK = re.compile(r"\s+")
_FRAGMENT = re.compile(r"\{(\w+)\}")
# END IF and the like close a block that was not counted, since IF is also a function's name.
_NOT_A_BLOCK = frozenset({"IF", "LOOP", "WHILE", "REPEAT"})


def split_statements(text: str) -> list[str]:
    """The statements of a script, without the comments before them and without their semicolons.

    Strings, quoted names, comments and dollar quotes are left alone. In a CREATE statement (a
    trigger, a procedure) everything from BEGIN to its END is one piece, with CASE … END and nested
    blocks inside.
    """
    statements: list[str] = []
    words: list[str] = []  # of the statement so far
    depth = start = 0
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "word":
            word = token["word"].upper()
            depth = max(0, depth + _step(words, word))
            words.append(word)
        elif kind == "end" and depth == 0:
            statements.append(_LEADING.sub("", text[start : token.start()]).rstrip())
            start = token.end()
            words = []
    statements.append(_LEADING.sub("", text[start:]).rstrip())
    return [statement for statement in statements if statement]


def _step(words: list[str], word: str) -> int:
    """By how much a word changes the depth of BEGIN … END blocks, after the words before it."""
    if not words or words[0] != "CREATE":
        return 0  # elsewhere BEGIN opens a transaction
    before = words[-1]
    if word == "BEGIN" or (word == "CASE" and before != "END"):
        return 1
    if word == "END":
        return -1
    if before == "END" and word in _NOT_A_BLOCK:
        return 1  # its END was counted, and should not have been
    return 0


def without_comments(text: str) -> str:
    """One statement on one line, since the database reads its text at every call."""
    pieces: list[str] = []
    position = 0
    for token in _TOKEN.finditer(text):
        pieces.append(_BLANK.sub(" ", text[position : token.start()]))
        if token["comment"] is None:
            pieces.append(token.group())
        elif pieces[-1].endswith(" "):
            pieces[-1] = pieces[-1].removesuffix(" ")  # there is a blank behind the comment, too
        position = token.end()
    pieces.append(_BLANK.sub(" ", text[position:]))
    return "".join(pieces).strip()


def render(text: str, params: list[str], placeholder: str) -> str:
    """``:name`` as the dialect's placeholder; ``{}`` in it becomes the number, counted from 1."""
    unused = set(params)

    def replace(token: re.Match[str]) -> str:
        name = token["param"]
        if name is None:
            return token.group()
        if name not in params:
            raise ValueError(f":{name} is not among the parameters {params}")
        unused.discard(name)
        return placeholder.format(params.index(name) + 1)

    rendered = _TOKEN.sub(replace, text)
    if unused:
        raise ValueError(f"parameters that are never used: {sorted(unused)}")
    return rendered


def listed(columns: Iterable[str], form: str = "{}") -> str:
    """Names of columns as a list, each in some form: ``:{}`` for parameters."""
    return ", ".join(form.format(column) for column in columns)


def parse(
    text: str, placeholder: str = "?{}", own: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The named statements of a catalogue's text, ready to be sent. ``own``: more fragments."""
    statements: dict[str, str] = {}
    fragments = dict(own or {})

    def filled(text: str) -> str:
        return _FRAGMENT.sub(lambda match: fragments[match[1]], text)

    for kind, name, params, block in _blocks(text):
        body = filled(without_comments(block)).removesuffix(";").rstrip()
        if kind == "fragment":
            fragments[name] = body
        elif name in statements:
            raise ValueError(f"two statements are called {name}")
        else:
            names = [param.strip() for param in filled(params).split(",") if param.strip()]
            try:
                statements[name] = render(body, names, placeholder)
            except ValueError as error:
                raise ValueError(f"statement {name}: {error}") from None
    return statements


def _blocks(text: str) -> Iterator[tuple[str, str, str, str]]:
    headers = list(_HEADER.finditer(text))
    for i, match in enumerate(headers):
        end = headers[i + 1].start() if i + 1 < len(headers) else len(text)
        yield match[1], match[2], match[3] or "", text[match.end() : end]


class Catalogue:
    """The statements of one backend, by attribute: ``sql.promote``."""

    def __init__(self, statements: Mapping[str, str]) -> None:
        self.statements = dict(statements)

    def __getattr__(self, name: str) -> str:
        try:
            text = self.__dict__["statements"][name]
        except KeyError:
            raise AttributeError(f"no statement is called {name!r}") from None
        self.__dict__[name] = text  # from now on it is found without this method
        return text


def load(
    path: Path | Sequence[Path], placeholder: str = "?{}", own: Mapping[str, str] | None = None
) -> Catalogue:
    """The catalogue in a file, or in several that are read as one, in their order."""
    paths = [path] if isinstance(path, Path) else path
    text = "\n".join(file.read_text(encoding="utf-8") for file in paths)
    return Catalogue(parse(text, placeholder, own))


def many_rows(text: str, rows: int, shared: int) -> str:
    """An INSERT of one row of VALUES with numbered placeholders, as one of many rows.

    The first ``shared`` placeholders stay the same for every row; the others are counted on.
    """
    head, values, tail = re.split(r"(VALUES\s*\([^)]*\))", text, maxsplit=1)
    row = values[values.index("(") :]
    width = max(int(number) for number in re.findall(r"\?(\d+)", row)) - shared

    def numbered(index: int) -> str:
        def shift(match: re.Match[str]) -> str:
            number = int(match[1])
            return f"?{number if number <= shared else number + index * width}"

        return re.sub(r"\?(\d+)", shift, row)

    return f"{head}VALUES {', '.join(numbered(index) for index in range(rows))}{tail}"
