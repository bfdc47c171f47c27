"""Ctrl-C at the very moment when a thread of ours is to start."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import fairturn


def interrupted(self: threading.Thread) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("what", ["receive", "wait"])
def test_closing_is_not_in_the_way(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = fairturn.connect(f"sqlite:///{tmp_path}/jobs.db")
    queue = db.queue("emails")
    queue.create()
    id = queue.send("later", delay=3600)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.receive(wait=60) if what == "receive" else queue.wait(id=id, timeout=60)
    db.close()
