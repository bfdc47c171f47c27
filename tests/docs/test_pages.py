"""Every snippet of README.md and docs/*.md runs, and what it is said to print it prints."""

from __future__ import annotations

import codeop
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import fairturn
from tests import rabbit, servers
from tests.docs.pages import PAGES, ROOT, anchors, blocks, links

_RUN = {"python", "console"}
SNIPPETS = [page for page in PAGES if any(block.language in _RUN for block in blocks(page))]

CODE = sorted((ROOT / "src").rglob("*.py"))


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _substitutes(url: str) -> list[tuple[str, str]]:
    """For one server: in URLs, in keyword arguments of drivers, in Django's settings."""
    parts = urlsplit(url)
    host, port, user, name = parts.hostname, parts.port, parts.username, parts.path[1:]
    keywords = f'host="{host}", port={port}, user="{user}", database="{name}"'
    django = f'"HOST": "{host}", "PORT": {port}, "USER": "{user}", "NAME": "{name}"'
    return [
        (rf"({parts.scheme}(?:\+\w+)?)://app@localhost/app", rf"\1://{url.split('://')[1]}"),
        (r'host="localhost", user="app", database="app"', keywords),
        (r'"HOST": "localhost",\s*"USER": "app",\s*"NAME": "app"', django),
    ]


def substitutes(page: Path) -> list[tuple[str, str]]:
    """What stands on a page for the reader's server -> a fresh database of ours."""
    text = page.read_text("utf-8")
    found: list[tuple[str, str]] = []
    name = f"docs_{page.stem.lower()}"
    if "postgresql://app@localhost" in text:
        # Keyword arguments on the pages are PyMySQL's and asyncmy's, Django's server PostgreSQL.
        url, _, django = _substitutes(servers.postgres_url(name))
        found += [url, django]
    if "postgresql://app@localhost:6432" in text:
        bouncer = servers.pgbouncer_url(name)
        found.append((r"postgresql://app@localhost:6432/app", bouncer))
    if "mysql://app@localhost" in text:
        found += _substitutes(servers.mysql_url(name))[:2]
    if "amqp://app:secret@localhost" in text:
        found += _broker()
    return found


def _broker() -> list[tuple[str, str]]:
    """For RabbitMQ: in a URL, in one with variables, and what these are."""
    url = rabbit.url()
    variables = f'RABBIT_USER="{rabbit.USER}", RABBIT_PASSWORD="{rabbit.PASSWORD}"'
    return [
        (r"amqp://app:secret@localhost/", url),
        (r"\}@localhost/", f"}}@{url.rpartition('@')[2]}"),
        (r'RABBIT_USER="app", RABBIT_PASSWORD="secret"', variables),
    ]


def served(page: Path) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """The port of the page's server -> one that is free; and that server's environment."""
    if "127.0.0.1:9324" not in page.read_text("utf-8"):
        return [], {}
    port = str(servers.free_port())
    return [(r"127\.0\.0\.1:9324", f"127.0.0.1:{port}")], {"FAIRTURN_SERVE_PORT": port}


def run(page: Path, found: list[tuple[str, str]], cwd: Path, seconds: float = 100) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "FAIRTURN_URL"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    port, serving = served(page)
    environment |= {"FAIRTURN_DOCS": json.dumps([*found, *port]), **serving}
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-m", "tests.docs.runner", str(page)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def _marked(page: Path) -> Any:
    """A page with a server's address on it needs that server."""
    needs = re.search(r"(postgresql|mysql|amqp)://app", page.read_text("utf-8"))
    return pytest.param(page, id=_name(page), marks=pytest.mark.server if needs else ())


@pytest.mark.parametrize("page", [_marked(page) for page in SNIPPETS])
def test_the_snippets_run(page: Path, tmp_path: Path) -> None:
    run(page, substitutes(page), tmp_path, 200)


@pytest.mark.deep
@pytest.mark.server
@pytest.mark.parametrize("name", ["tutorial", "groups", "waiting", "events", "schedules"])
@pytest.mark.parametrize("url", [servers.postgres_url, servers.mysql_url])
def test_a_page_is_the_same_on_servers(
    url: Callable[[str], str], name: str, tmp_path: Path
) -> None:
    database = url(f"docs_{name}")
    with fairturn.connect(database) as db:
        db.migrate()
    run(ROOT / "docs" / f"{name}.md", [(f"sqlite:///{name}.db", database)], tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue  # another site's
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page.name}: {link} leads nowhere"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_nothing_private_is_on_the_page(page: Path) -> None:
    text = page.read_text("utf-8")
    assert not re.search(r"/(work|root|home|tmp/[a-z]+)/", text)


@pytest.mark.parametrize("page", [*PAGES, *CODE], ids=_name)
def test_no_text_installs_from_pypi(page: Path) -> None:
    """Fairturn is not released yet: PyPI has no package of that name, or a stranger's."""
    text = page.read_text("utf-8")
    assert not re.search(r"pip install[^\n#;&|]*\bfairturn\b", text), page


def test_the_index_names_every_page() -> None:
    named = {link.partition("#")[0] for link in links(ROOT / "docs" / "README.md")}
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages <= named


@pytest.mark.parametrize("page", SNIPPETS, ids=_name)
def test_a_block_in_a_snippet_ends_with_an_empty_line(page: Path) -> None:
    """So that it can be pasted into the interpreter, which reads line by line."""
    for block in blocks(page):
        if block.language != "python" or block.tags:
            continue
        text = re.sub(r"\n(\n+)(?=[ \t])", "\n", block.text)  # the empty lines inside a block
        pending: list[str] = []
        for line in [*text.splitlines(), ""]:
            pending.append(line)
            try:
                complete = codeop.compile_command("\n".join(pending), symbol="single")
            except SyntaxError:
                pytest.fail(f"{block.place}: an empty line is missing before {line!r}")
            if complete is not None:
                pending.clear()
