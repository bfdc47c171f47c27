"""``fairturn relay dynamodb …`` as a call and as a program."""

from __future__ import annotations

from collections.abc import Sequence

from fairturn.cli.app import run
from tests.server.serve_programs import Program

WORDS = ("relay", "dynamodb")


def main(words: Sequence[str]) -> int:
    return run([*WORDS, *words])


def program(*words: str) -> Program:
    return Program(*WORDS, *words, "--log", "json")
