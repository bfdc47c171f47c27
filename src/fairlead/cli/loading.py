"""Find an application by its name, ``module:attribute``, and say plainly why it cannot be."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from cyclopts import Parameter

import fairlead
from fairlead.app import App
from fairlead.cli import show
from fairlead.cli.session import Failed, Refused, Session, shown
from fairlead.tasks.importing import importing

DEFAULT = "app"
# How a command asks for the application.
Name = Annotated[str, Parameter(metavar="APP", help="The app: MODULE:ATTRIBUTE, such as shop:app.")]


def load(session: Session, name: str) -> App:
    """The application of that name. From then on the session is about its database."""
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
        raise Refused(f"{module!r} is a file; name the module: {dotted}:{attribute}")
    words = [*module.split("."), *attribute.split(".")]
    if not all(word.isidentifier() for word in words):
        raise Refused(f"{name!r} is not the name of an app: write MODULE:ATTRIBUTE, as in shop:app")
    return module, attribute


def _import(module: str) -> ModuleType:
    token = importing.set(True)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module == missing or module.startswith(f"{missing}."):
            raise Refused(_unknown(missing)) from None
        why, hint = f"it imports {missing!r}, which is not installed here", "Install it"
        raise Failed(_broken(module, error, why, hint)) from None
    except SyntaxError as error:
        line = (error.text or "").strip()
        place = f"{_short(error.filename or module)}, line {error.lineno}"
        text = f"{module!r} cannot be imported: {place}: {error.msg}"
        raise Failed(f"{text}\n    {line}" if line else text) from None
    except SystemExit as error:
        why = f"it ended the program (SystemExit: {error.code})"
        hint = 'Put what is run, not imported, under `if __name__ == "__main__":`'
        raise Failed(_broken(module, error, why, hint)) from None
    except Exception as error:
        text = str(error)
        why = f"{type(error).__name__}: {text}" if text else type(error).__name__
        raise Failed(_broken(module, error, why, "Correct it")) from None
    finally:
        importing.reset(token)


def _unknown(missing: str) -> str:
    here = os.getcwd()
    text = f"no module is called {missing!r}, neither here, in {here}, nor among those installed."
    near = show.near(missing, _modules(Path(here)))
    if near:
        return f"{text} Did you mean {near!r}?"
    return f"{text} Change to the directory that has it, or install it"


def _modules(directory: Path) -> list[str]:
    """What could be imported from a directory."""
    found = [path.stem for path in directory.glob("*.py")]
    return found + [path.parent.name for path in directory.glob("*/__init__.py")]


def _broken(module: str, error: BaseException, why: str, hint: str) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not f.filename.startswith("<") and f.filename != __file__]
    theirs = [f for f in theirs if Path(f.filename).parent.name != "importlib"]
    # The place to look at is theirs, not where we noticed.
    ours = str(Path(fairlead.__file__).parent)
    theirs = [f for f in theirs if not f.filename.startswith(ours)] or theirs
    text = f"{module!r} cannot be imported: {why}"
    if theirs:
        last = theirs[-1]
        text = f"{text}\n    {_short(last.filename)}, line {last.lineno}: {last.line}"
    return f"{text}\n{hint}; the whole story: {_python()} -c 'import {module}'"


def _python() -> str:
    return os.path.basename(sys.executable) or "python"


def _short(file: str) -> str:
    """Relative where that is shorter."""
    try:
        return min(os.path.relpath(file), file, key=len)
    except ValueError:  # another drive
        return file


def _find(module: ModuleType, name: str, attribute: str) -> App:
    found: Any = module
    for word in attribute.split("."):
        if not hasattr(found, word):
            raise Refused(f"{name!r} has no {attribute!r}. {_candidates(module, name)}")
        found = getattr(found, word)
    if not isinstance(found, App):
        kind = type(found).__name__
        what = "a function" if kind == "function" else f"of type {kind}"
        hint = _candidates(module, name)
        raise Refused(f"{name}:{attribute} is {what}, not a fairlead.App. {hint}")
    return found


def _candidates(module: ModuleType, name: str) -> str:
    apps = [key for key, value in vars(module).items() if isinstance(value, App)]
    if not apps:
        return "It has no App at all: make one with app = fairlead.App(url)"
    if len(apps) == 1:
        return f"Its App is {name}:{apps[0]}"
    return f"Its Apps are {', '.join(f'{name}:{one}' for one in apps)}"
