"""Is somebody importing an application, rather than running it?"""

from __future__ import annotations

from contextvars import ContextVar

# Set by the command line and by the processes of a worker: what is only run must not run then.
importing: ContextVar[bool] = ContextVar("fairlead_importing", default=False)
