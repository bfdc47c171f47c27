"""``fairturn migrate`` and ``fairturn queue …``: the schema and the queues themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from cyclopts import App

import fairturn
from fairturn.cli import show
from fairturn.cli.arguments import Context, QueueName, Yes
from fairturn.cli.commands.insight import gauges_to_show
from fairturn.cli.errors import CommandError
from fairturn.cli.options import FORMS, given, with_options
from fairturn.core.kinds import Flag
from fairturn.core.settings import QUEUE_SETTINGS, columns
from fairturn.core.values import Stats
from fairturn.doctor.examination import all_settings
from fairturn.relay import addresses
from fairturn.sync.queue import Queue

queue = App(name="queue", help="Create, show, change, pause, empty and drop queues.")


def migrate(
    *,
    sql: bool = False,
    dialect: Literal["sqlite", "postgresql", "mysql"] | None = None,
    session: Context,
) -> None:
    """Create the schema, or bring it up to date.

    It is safe to repeat this command.

    Example: fairturn migrate --db postgresql://localhost/app

    Args:
        sql: Print the SQL for your own migration tool, and change no database.
        dialect: The dialect of the SQL. Default the one of --db.
    """
    session.creates = True
    if sql:
        chosen = dialect or session.db.target.backend.dialect
        scripts = fairturn.migrations(chosen, schema=session.schema)
        if session.json:
            session.emit([{"name": name, "sql": text} for name, text in scripts])
            return
        for name, text in scripts:
            print(f"-- {name}\n{text.rstrip()}\n")
        return
    if dialect is not None:
        raise CommandError("--dialect is only for --sql: a database has its own dialect")
    # SQLite applies migrations when the file is opened, so there may be nothing left to apply.
    applied = session.db.migrate()
    text = f"applied {', '.join(applied)}" if applied else "nothing to apply"
    session.done(f"{session.shown}: the schema is up to date ({text})", applied=applied)


# The settings that are options: a policy has a command of its own, and meta is for programs.
TYPED = [
    line
    for line in QUEUE_SETTINGS.values()
    if line.by != "pause" and (type(line.kind) in FORMS or isinstance(line.kind, Flag))
]


@with_options(TYPED)
class Settings:
    """The settings of a queue as options."""


def _split(settings: Settings | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of create() and set(), and those of set_limit()."""
    chosen = given(settings or Settings())
    limited = [name for name in chosen if QUEUE_SETTINGS[name].by == "set_limit"]
    limit = {name: chosen.pop(name) for name in limited}
    columns(limit, "set_limit")  # checks them before a queue is created
    return chosen, limit


def _set_limit(target: Queue, limit: dict[str, Any]) -> None:
    """Change only the named parts of the limit: set_limit() sets all of it."""
    now = target.settings()
    names = [line.name for line in TYPED if line.by == "set_limit"]
    target.set_limit(**{name: limit.get(name, getattr(now, name)) for name in names})


@queue.command
def create(name: QueueName, /, *, settings: Settings | None = None, session: Context) -> None:
    """Create a queue; an existing queue is not changed.

    Example: fairturn queue create emails --lease 1m --max-attempts 8 --backoff 1s:2:1h
    """
    session.creates = True
    chosen, limit = _split(settings)
    target = session.queue(name)
    created = target.create(**chosen)
    if created and limit:
        _set_limit(target, limit)
    text = f"queue {name!r} created" if created else f"queue {name!r} exists; nothing was changed"
    if not created and (chosen or limit):
        text += f". To change it: {session.command('queue', 'set', name)} …"
    session.done(text, queue=name, created=created)


@queue.command(name="set")
def set_(name: QueueName, /, *, settings: Settings | None = None, session: Context) -> None:
    """Change the named settings of a queue; `none` removes a setting.

    Example: fairturn queue set emails --dead-letter emails-dead --rate none
    """
    chosen, limit = _split(settings)
    if not chosen and not limit:
        raise CommandError("nothing to set: name a setting, such as --lease 1m")
    target = session.queue(name)
    if chosen:
        target.set(**chosen)
    if limit:
        _set_limit(target, limit)
    if session.json:
        session.emit(show.settings_facts(target.settings()))
    else:
        session.say(f"queue {name!r} changed")


class _Listed(NamedTuple):
    settings: fairturn.Settings
    stats: Stats


@queue.command(name="list")
def list_(*, session: Context) -> None:
    """List all queues with their counts and limits.

    Example: fairturn queue list
    """
    stats, now = session.db.stats(), session.now()
    settings = {one.name: one for one in all_settings(session.db)}
    found = [_Listed(settings[name], one) for name, one in stats.queues.items() if name in settings]

    def facts(line: _Listed) -> dict[str, Any]:
        own = line.settings
        return {"queue": own.name, "paused": own.paused, **show.stats_facts(line.stats)}

    columns: dict[str, Callable[[_Listed], Any]] = {"queue": lambda line: line.settings.name}
    for gauge in gauges_to_show(stats):
        columns[f">{gauge}"] = lambda line, name=gauge: show.count(getattr(line.stats, name), name)
    columns["oldest"] = lambda line: show.age(line.stats.oldest_ready, now)
    columns["limit"] = lambda line: _limit(line.settings, paused=line.settings.paused)
    create = session.command("queue", "create", "emails")
    session.listing(found, facts, columns, empty=f"no queues yet. Create one: {create}")


def _limit(settings: fairturn.Settings, paused: bool = False) -> str:
    most = settings.max_concurrency
    parts = ("paused" if paused else "", f"at most {most} at once" if most else "", settings.rate)
    return ", ".join(part for part in parts if part)


@queue.command(name="show")
def show_(name: QueueName, /, *, session: Context) -> None:
    """Print the settings of a queue.

    Example: fairturn queue show emails
    """
    settings = session.queue(name).settings()
    *shown, policy = [
        (line.label, show.setting(line, getattr(settings, name)))
        for name, line in QUEUE_SETTINGS.items()
        if line.label
    ]
    where = addresses.address_of(settings.meta)
    session.sheet(
        show.settings_facts(settings),
        [settings.name, "paused" if settings.paused else ""],
        [
            *shown,
            *([("destination", addresses.shown(where))] if where else []),
            ("limit of the queue", _limit(settings) or "none"),
            policy,
            ("created", show.clock(settings.created_at)),
        ],
    )


@queue.command
def pause(name: QueueName, /, *, session: Context) -> None:
    """Deliver no more messages of a queue; existing leases go on.

    Example: fairturn queue pause emails
    """
    session.queue(name).pause()
    resume = session.command("queue", "resume", name)
    session.done(f"queue {name!r} is paused. Resume it: {resume}", queue=name, paused=True)


@queue.command
def resume(name: QueueName, /, *, session: Context) -> None:
    """End the pause of a queue.

    Example: fairturn queue resume emails
    """
    session.queue(name).resume()
    session.done(f"queue {name!r} delivers messages again", queue=name, paused=False)


@queue.command
def purge(name: QueueName, /, *, reset: bool = False, yes: Yes = False, session: Context) -> None:
    """Remove all messages of a queue, leased ones too.

    Example: fairturn queue purge emails --yes

    Args:
        reset: Also set the totals to zero and clear the failure log.
    """
    target = session.queue(name)
    total = target.stats().total
    if total or reset:
        also = ", its totals and its failure log" if reset else ""
        session.confirm(f"removing {show.many(total, 'message')} from queue {name!r}{also}", yes)
    elif not yes:  # unconfirmed, a message that was sent after the count must stay
        session.done(f"queue {name!r} is empty: nothing to remove", queue=name, removed=0)
        return
    target.purge(reset=reset)
    session.done(
        f"queue {name!r} is empty: {show.many(total, 'message')} removed", queue=name, removed=total
    )


@queue.command
def drop(name: QueueName, /, *, yes: Yes = False, session: Context) -> None:
    """Remove a queue with its messages, policies and totals.

    Example: fairturn queue drop emails --yes
    """
    target = session.queue(name)
    total = target.stats().total
    session.confirm(f"dropping queue {name!r} with {show.many(total, 'message')}", yes)
    dropped = target.drop()
    session.done(f"queue {name!r} dropped", queue=name, dropped=dropped)
