"""The sync side of the API is what tools/generate_sync.py writes from the async side."""

from __future__ import annotations

import shutil
import sys

import pytest

from tools import generate_sync


@pytest.mark.parametrize("source", generate_sync.SOURCES)
def test_it_is_what_make_generate_writes(source):
    path, text = generate_sync.generate(source)
    assert path.read_text("utf-8") == text


def test_a_file_says_that_it_is_generated_only_if_it_is():
    files = generate_sync.PACKAGE.rglob("*.py")
    marked = {path for path in files if path.read_text("utf-8").startswith("# Generated from ")}
    sources = generate_sync.SOURCES
    assert marked == {generate_sync.PACKAGE / generate_sync.renamed(path) for path in sources}


def test_keywords_are_left_out_but_not_words():
    text = '''\
async def f():
    """await it: async"""
    async with g() as é, h(await i(await j())):
        return [k async for k in l]  # await async
'''
    assert (
        generate_sync.without_await(text)
        == '''\
def f():
    """await it: async"""
    with g() as é, h(i(j())):
        return [k for k in l]  # await async
'''
    )


def test_check_names_what_was_edited_and_generate_mends_it(monkeypatch, tmp_path):
    package = tmp_path / "src" / "fairturn"
    for side in ("aio", "sync"):
        (package / side).mkdir(parents=True)
    shutil.copy(generate_sync.PACKAGE / "aio" / "batch.py", package / "aio")
    monkeypatch.setattr(generate_sync, "PACKAGE", package)
    monkeypatch.setattr(generate_sync, "SOURCES", ("aio/batch.py",))
    generated = package / "sync" / "batch.py"

    def run(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["generate_sync.py", *arguments])
        generate_sync.main()

    with pytest.raises(SystemExit, match=r"src/fairturn/sync/batch\.py"):
        run("--check")
    assert not generated.exists()
    run()
    run("--check")
    generated.write_text(generated.read_text("utf-8") + "\n# edited\n", "utf-8")
    with pytest.raises(SystemExit, match=r"src/fairturn/sync/batch\.py"):
        run("--check")
    run()
    run("--check")
    assert "class Batch:" in generated.read_text("utf-8")
