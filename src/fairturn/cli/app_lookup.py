"""Find an app by its name, ``module:attribute``, or explain why it cannot be imported."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import fairturn
from fairturn.app import App
from fairturn.cli.errors import CommandError, CommandFailed, did_you_mean
from fairturn.cli.session import Session, shown
from fairturn.tasks.import_guard import importing

DEFAULT = "app"  # the attribute if only a module is named


def load(session: Session, name: str) -> App:
    """Return the app of that name, and make its database the one of the session."""
    module, attribute = _parts(name)
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    app = _find(_import(module), module, attribute)
    options: dict[str, Any] = app._options  # pyright: ignore[reportPrivateUsage]
    if session.given not in (None, app.url) and not session.from_environment:
        session.note(f"--db is not used: the app {name} has its own database, {shown(app.url)}")
    session.use(app.url)
    session.schema = options.get("schema", session.schema)
    session.pooler = not options.get("prepare", True)
    return app


def _parts(name: str) -> tuple[str, str]:
    module, _, attribute = name.partition(":")
    attribute = attribute or DEFAULT
    if module.endswith(".py") or "/" in module or "\\" in module:
        dotted = ".".join(Path(module).with_suffix("").parts).lstrip(".")
        raise CommandError(f"{module!r} is a file; name the module: {dotted}:{attribute}")
    words = [*module.split("."), *attribute.split(".")]
    if not all(word.isidentifier() for word in words):
        raise CommandError(
            f"{name!r} is not the name of an app: write MODULE:ATTRIBUTE, as in shop:app"
        )
    return module, attribute


def _import(module: str) -> ModuleType:
    token = importing.set(True)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module == missing or module.startswith(f"{missing}."):
            raise _unknown(missing) from None
        why, hint = f"it imports {missing!r}, which is not installed here", "Install it"
        raise _broken(module, error, why, hint) from None
    except SyntaxError as error:
        line = (error.text or "").strip()
        place = f"{_short(error.filename or module)}, line {error.lineno}"
        text = f"{module!r} cannot be imported: {place}: {error.msg}"
        raise CommandFailed(f"{text}\n    {line}" if line else text) from None
    except SystemExit as error:
        why = f"it ended the program (SystemExit: {error.code})"
        hint = 'Put code that an import must not run under `if __name__ == "__main__":`'
        raise _broken(module, error, why, hint) from None
    except Exception as error:
        text = str(error)
        why = f"{type(error).__name__}: {text}" if text else type(error).__name__
        raise _broken(module, error, why, "Correct it") from None
    finally:
        importing.reset(token)


def _unknown(missing: str) -> CommandError:
    here = Path.cwd()
    importable = [path.stem for path in here.glob("*.py")]
    importable += [path.parent.name for path in here.glob("*/__init__.py")]
    return CommandError(
        f"no module is called {missing!r}, neither in {here} nor among the installed ones",
        did_you_mean(missing, importable, "Change to the directory that has it, or install it"),
    )


def _broken(module: str, error: BaseException, why: str, hint: str) -> CommandFailed:
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith("<") and f.filename != __file__]
    theirs = [f for f in theirs if Path(f.filename).parent.name != "importlib"]
    # Show the line of the user's code, not the line in Fairturn that raised the error.
    ours = str(Path(fairturn.__file__).parent)
    theirs = [f for f in theirs if not f.filename.startswith(ours)] or theirs
    text = f"{module!r} cannot be imported: {why}"
    if theirs:
        last = theirs[-1]
        text = f"{text}\n    {_short(last.filename)}, line {last.lineno}: {last.line}"
    python = os.path.basename(sys.executable) or "python"
    return CommandFailed(f"{text}\n{hint}; the whole traceback: {python} -c 'import {module}'")


def _short(file: str) -> str:
    """Return the relative path if it is shorter."""
    try:
        return min(os.path.relpath(file), file, key=len)
    except ValueError:  # another drive
        return file


def _find(module: ModuleType, name: str, attribute: str) -> App:
    found: Any = module
    for word in attribute.split("."):
        if not hasattr(found, word):
            raise CommandError(f"{name!r} has no {attribute!r}", _candidates(module, name))
        found = getattr(found, word)
    if not isinstance(found, App):
        kind = type(found).__name__
        what = "a function" if kind == "function" else f"of type {kind}"
        problem = f"{name}:{attribute} is {what}, not a fairturn.App"
        raise CommandError(problem, _candidates(module, name))
    return found


def _candidates(module: ModuleType, name: str) -> str:
    apps = [key for key, value in vars(module).items() if isinstance(value, App)]
    if not apps:
        return "It has no App: make one with app = fairturn.App(url)"
    if len(apps) == 1:
        return f"Its App is {name}:{apps[0]}"
    return f"Its Apps are {', '.join(f'{name}:{one}' for one in apps)}"
