"""The benchmarks can be imported. They run rarely, and a moved name would be noticed late."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RIVALS = {"bench.workers.pgqueuer_drain", "bench.workers.procrastinate_drain"}  # own environments
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in ROOT.glob("bench/**/*.py")
}


@pytest.mark.parametrize("name", sorted(MODULES - RIVALS))
def test_a_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(name)
