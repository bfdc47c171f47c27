"""The ``fairturn`` command. It needs the ``cli`` extra, which the library itself does not."""

from __future__ import annotations

import sys

NEEDS = ("cyclopts>=5", "rich>=13")  # the `cli` extra of pyproject.toml


def main() -> None:
    """The entry point: run the command line, or say what to install for it."""
    try:
        from fairturn.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("cyclopts", "rich"):
            raise
        print(
            f"error: the command line needs {error.name}, which is not installed. "
            f"Install it: pip install {' '.join(repr(need) for need in NEEDS)}, "
            "or in a clone of Fairturn: pip install '.[cli]'",
            file=sys.stderr,
        )
        raise SystemExit(1) from None
    raise SystemExit(run(sys.argv[1:]))
