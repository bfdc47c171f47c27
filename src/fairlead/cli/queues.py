"""``fairlead migrate`` and ``fairlead queue …``: the schema and the queues themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

import fairlead
from fairlead.cli import show
from fairlead.cli.insight import gauges_to_show, now_of
from fairlead.cli.parsing import (
    Attempts,
    Burst,
    ClearableBackoff,
    ClearableCount,
    ClearableDuration,
    ClearableName,
    ClearableRate,
    Lease,
    MaxBody,
    Retention,
    value,
)
from fairlead.cli.session import Context, Refused, Session
from fairlead.doctor.patient import all_settings
from fairlead.operations.queues import policy_row
from fairlead.relay import addresses
from fairlead.sync.queue import Queue

queue = App(name="queue", help="Create, show, change, pause, empty and drop queues.")


def migrate(
    *,
    sql: bool = False,
    dialect: Literal["sqlite", "postgresql", "mysql"] | None = None,
    session: Context,
) -> None:
    """Create the schema or bring it up to date; safe to repeat.

    Example: fairlead migrate --db postgresql://localhost/app

    Args:
        sql: Print the SQL for your own migration tool; no database is touched.
        dialect: Of the SQL; the one of --db otherwise.
    """
    session.creates = True
    if sql:
        chosen = dialect or session.db.target.backend.dialect
        scripts = fairlead.migrations(chosen, schema=session.schema)
        if session.json:
            session.emit([{"name": name, "sql": text} for name, text in scripts])
            return
        for name, text in scripts:
            print(f"-- {name}\n{text.rstrip()}\n")
        return
    if dialect is not None:
        raise Refused("--dialect belongs to --sql: a database knows its own dialect")
    # SQLite brings its schema up to date when it is opened; the file is new if there was no schema.
    applied = session.db.migrate()
    text = f"applied {', '.join(applied)}" if applied else "nothing to apply"
    session.done(f"{session.shown}: the schema is up to date ({text})", applied=applied)


@Parameter(name="*")
@dataclass
class Settings:
    """The settings of a queue as options."""

    lease: Annotated[
        Lease, Parameter(help="How long a worker has for one message. Default 30s.")
    ] = None
    max_attempts: Annotated[
        Attempts, Parameter(help="Deliveries before a message is dead; 0: no end. Default 5.")
    ] = None
    backoff: Annotated[
        ClearableBackoff,
        Parameter(help="Wait after a failure: 5s, or INITIAL:FACTOR:MAX such as 1s:2:1h."),
    ] = None
    retention: Annotated[
        Retention, Parameter(help="Keep finished messages this long. Default 0.")
    ] = None
    dead_retention: Annotated[
        ClearableDuration, Parameter(help="Keep dead messages this long. Default: for ever.")
    ] = None
    dead_letter: Annotated[ClearableName, Parameter(help="Move dead messages to this queue.")] = (
        None
    )
    max_body: Annotated[MaxBody, Parameter(help="Largest body. Default 16MiB.")] = None
    expires: Annotated[
        ClearableDuration, Parameter(help="Delete messages this long after their sending.")
    ] = None
    events: Annotated[
        bool | None,
        Parameter(negative="--no-events", help="Write an event for all that happens. Default: no."),
    ] = None
    max_concurrency: Annotated[
        ClearableCount, Parameter(help="Leases at once over all channels.")
    ] = None
    rate: Annotated[
        ClearableRate, Parameter(help="Deliveries over all channels: 5/s, 100/min.")
    ] = None
    burst: Annotated[Burst, Parameter(help="How many --rate lets through at once.")] = None

    def chosen(self) -> dict[str, Any]:
        """What create() and set() take."""
        given = {
            "lease": self.lease,
            "max_attempts": self.max_attempts,
            "backoff": self.backoff,
            "retention": self.retention,
            "dead_retention": self.dead_retention,
            "dead_letter": self.dead_letter,
            "max_body": self.max_body,
            "expires": self.expires,
            "events": self.events,
        }
        return {name: value(item) for name, item in given.items() if item is not None}

    def limits(self) -> bool:
        return any(item is not None for item in (self.max_concurrency, self.rate, self.burst))

    def check_limits(self) -> None:
        """Before anything is created: what is wrong with the limits."""
        burst = 1 if self.burst is None else self.burst
        policy_row(value(self.max_concurrency), value(self.rate), burst)

    def apply_limits(self, target: Queue) -> None:
        """set_limit() sets the whole limit: keep the part that was not named."""
        now = target.settings()
        concurrency = now.max_concurrency if self.max_concurrency is None else self.max_concurrency
        rate = now.rate if self.rate is None else self.rate
        target.set_limit(
            max_concurrency=value(concurrency),
            rate=value(rate),
            burst=now.burst if self.burst is None else self.burst,
        )


@queue.command
def create(name: str, /, *, settings: Settings | None = None, session: Context) -> None:
    """Create a queue; an existing one is left as it is.

    Example: fairlead queue create emails --lease 1m --max-attempts 8 --backoff 1s:2:1h

    Args:
        name: The queue.
    """
    session.creates = True
    settings = settings or Settings()
    settings.check_limits()
    target = session.queue(name)
    created = target.create(**{k: v for k, v in settings.chosen().items() if v is not None})
    if created and settings.limits():
        settings.apply_limits(target)
    text = f"queue {name!r} created" if created else f"queue {name!r} exists; nothing was changed"
    if not created and (settings.chosen() or settings.limits()):
        text += f". To change it: {session.command('queue', 'set', name)} …"
    session.done(text, queue=name, created=created)


@queue.command(name="set")
def set_(name: str, /, *, settings: Settings | None = None, session: Context) -> None:
    """Change settings of a queue: only those named; `none` takes one away.

    Example: fairlead queue set emails --dead-letter emails-dead --rate none

    Args:
        name: The queue.
    """
    settings = settings or Settings()
    chosen = settings.chosen()
    if not chosen and not settings.limits():
        raise Refused("nothing to set: name a setting, such as --lease 1m")
    settings.check_limits()
    target = session.queue(name)
    if chosen:
        target.set(**chosen)
    if settings.limits():
        settings.apply_limits(target)
    if session.json:
        session.emit(show.settings_facts(target.settings()))
    else:
        session.say(f"queue {name!r} changed")


@queue.command(name="list")
def list_(*, session: Context) -> None:
    """All queues with what is in them.

    Example: fairlead queue list
    """
    stats = session.db.stats()
    settings = {one.name: one for one in all_settings(session.db)}
    found = [(settings[name], one) for name, one in stats.queues.items() if name in settings]
    if session.json:
        facts = [
            {"queue": own.name, "paused": own.paused, **show.stats_facts(one)} for own, one in found
        ]
        session.emit(facts)
        return
    if not found:
        session.say(f"no queues yet. Create one: {session.command('queue', 'create', 'emails')}")
        return
    now, gauges = now_of(session), gauges_to_show(stats)
    rows: list[list[Any]] = [
        [
            own.name,
            *(show.count(getattr(one, gauge), gauge) for gauge in gauges),
            show.age(one.oldest_ready, now),
            ", ".join(part for part in ("paused" if own.paused else "", _limit(own)) if part),
        ]
        for own, one in found
    ]
    headings = [">" + gauge for gauge in gauges]
    session.table(["queue", *headings, "oldest", "limit"], rows)


def _limit(settings: fairlead.Settings) -> str:
    parts = [f"at most {settings.max_concurrency} at once"] if settings.max_concurrency else []
    return ", ".join(parts + ([settings.rate] if settings.rate else []))


@queue.command(name="show")
def show_(name: str, /, *, session: Context) -> None:
    """A queue's settings.

    Example: fairlead queue show emails

    Args:
        name: The queue.
    """
    settings = session.queue(name).settings()
    if session.json:
        session.emit(show.settings_facts(settings))
        return
    _print_settings(session, settings)


def _print_settings(session: Session, settings: fairlead.Settings) -> None:
    retention = show.span(settings.retention) if settings.retention else "not at all"
    where = addresses.address_of(settings.meta)
    session.table(
        [settings.name, "paused" if settings.paused else ""],
        [
            ("lease", show.span(settings.lease)),
            ("max attempts", settings.max_attempts or "no end"),
            ("backoff", show.backoff(settings.backoff)),
            ("keeps done messages", retention),
            ("keeps dead messages", show.span(settings.dead_retention)),
            ("keeps the failure log", show.span(settings.failure_retention)),
            ("dead-letter queue", settings.dead_letter or "none: they stay here"),
            *([("destination", addresses.shown(where))] if where else []),
            ("largest body", f"{settings.max_body:,} bytes"),
            ("messages expire", show.span(settings.expires, "never")),
            ("writes events", "yes" if settings.events else "no"),
            ("limit of the queue", _limit(settings) or "none"),
            ("policy of its channels", show.policy(settings.policy)),
            ("created", show.clock(settings.created_at)),
        ],
    )


@queue.command
def pause(name: str, /, *, session: Context) -> None:
    """Give out nothing more; leases already given go on.

    Example: fairlead queue pause emails

    Args:
        name: The queue.
    """
    session.queue(name).pause()
    session.done(
        f"queue {name!r} is paused. Go on with: {session.command('queue', 'resume', name)}",
        queue=name,
        paused=True,
    )


@queue.command
def resume(name: str, /, *, session: Context) -> None:
    """End a pause.

    Example: fairlead queue resume emails

    Args:
        name: The queue.
    """
    session.queue(name).resume()
    session.done(f"queue {name!r} gives out messages again", queue=name, paused=False)


Yes = Annotated[bool, Parameter(name=["--yes", "-y"], help="Do not ask.")]


@queue.command
def purge(name: str, /, *, reset: bool = False, yes: Yes = False, session: Context) -> None:
    """Remove every message of a queue at once, leased ones too.

    Example: fairlead queue purge emails --yes

    Args:
        name: The queue.
        reset: Also zero the totals and clear the failure log.
    """
    target = session.queue(name)
    total = target.stats().total
    if total or reset:
        also = ", its totals and its failure log" if reset else ""
        session.confirm(f"removing {show.many(total, 'message')} from queue {name!r}{also}", yes)
    elif not yes:  # without a yes, not even what was sent since the count
        session.done(f"queue {name!r} is empty: nothing to remove", queue=name, removed=0)
        return
    target.purge(reset=reset)
    session.done(
        f"queue {name!r} is empty: {show.many(total, 'message')} removed", queue=name, removed=total
    )


@queue.command
def drop(name: str, /, *, yes: Yes = False, session: Context) -> None:
    """Remove a queue with its messages, policies and totals.

    Example: fairlead queue drop emails --yes

    Args:
        name: The queue.
    """
    target = session.queue(name)
    total = target.stats().total
    session.confirm(f"dropping queue {name!r} with {show.many(total, 'message')}", yes)
    dropped = target.drop()
    session.done(f"queue {name!r} dropped", queue=name, dropped=dropped)
