"""A flag that an application's module is being imported, and not run as a program."""

from __future__ import annotations

from contextvars import ContextVar

# Set by the command line and by a worker's child processes: app.run() must not run then.
importing: ContextVar[bool] = ContextVar("fairturn_importing", default=False)
