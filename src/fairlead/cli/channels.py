"""``fairlead channel …``: the channels of a queue and what each may do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from cyclopts import App, Parameter

from fairlead.cli import show
from fairlead.cli.parsing import Rate
from fairlead.cli.session import Context, Refused, Session
from fairlead.values import Policy

channel = App(name="channel", help="The channels of a queue, and their policies.")
_ALL = 10_000_000  # one channel's policy can only be found among all of them


@channel.command(name="list")
def list_(queue: str, /, *, limit: int = 1000, session: Context) -> None:
    """Channels with unfinished messages or a policy of their own.

    Example: fairlead channel list emails

    Args:
        queue: The queue.
        limit: At most this many.
    """
    found = session.queue(queue).channels(limit)
    if session.json:
        session.emit([show.channel_facts(one) for one in found])
        return
    if not found:
        session.note("no channels: the queue is empty")
        return
    session.table(
        ["channel", ">ready", ">scheduled", ">leased", "policy of its own"],
        [
            [
                name_of(one.channel),
                show.count(one.ready, "ready"),
                show.count(one.scheduled, "scheduled"),
                show.count(one.leased, "leased"),
                show.policy(one.policy),
            ]
            for one in found
        ],
    )
    if len(found) == limit:
        session.note(f"the first {limit:,}; see more with --limit")


def name_of(channel: str) -> str:
    return channel or '""'


@Parameter(name="*")
@dataclass
class Options:
    """A policy as options."""

    max_concurrency: Annotated[int | None, Parameter(help="Leases at once.")] = None
    rate: Annotated[Rate | None, Parameter(help="Deliveries: 5/s, 100/min, 10/30s.")] = None
    burst: Annotated[int | None, Parameter(help="How many --rate lets through at once.")] = None
    weight: Annotated[int | None, Parameter(help="Messages per turn. Default 1.")] = None
    paused: Annotated[bool, Parameter(help="Give out nothing.")] = False
    ordered: Annotated[bool, Parameter(help="One message after the other.")] = False
    max_size: Annotated[int | None, Parameter(help="Unfinished messages it may hold.")] = None

    def policy(self) -> Policy | None:
        """The policy, or None when no option was given."""
        options = asdict(self).items()
        # By identity: 0 was typed, and Policy has its own opinion of it.
        given = {name: item for name, item in options if item is not None and item is not False}
        return Policy(**given) if given else None


@channel.command
def policy(
    queue: str,
    name: str | None = None,
    /,
    *,
    default: bool = False,
    clear: bool = False,
    options: Options | None = None,
    session: Context,
) -> None:
    """Show, set or clear what a channel may do. Set replaces the whole policy.

    Example: fairlead channel policy emails tenant-7 --max-concurrency 2 --rate 100/min

    Args:
        queue: The queue.
        name: The channel.
        default: The policy of every channel that has none of its own.
        clear: Take the policy away.
    """
    wanted = options.policy() if options else None
    if (name is None) == (not default):
        raise Refused("name the channel, or give --default for all without a policy of their own")
    if clear and wanted is not None:
        raise Refused("--clear takes the whole policy away: there is nothing to set")
    if clear or wanted is not None:
        _change(session, queue, name, wanted)
    else:
        _show(session, queue, name)


def _change(session: Session, queue: str, name: str | None, wanted: Policy | None) -> None:
    target = session.queue(queue)
    if name is None:
        target.set(policy=wanted or Policy())
        changed = True
    elif wanted is None:
        changed = target.channel(name).clear_policy()
    else:
        target.channel(name).set_policy(**asdict(wanted))
        changed = True
    who = f"channel {name_of(name)}" if name is not None else "every channel without its own"
    text = f"{who}: {show.policy(wanted)}" if wanted else f"{who}: policy cleared"
    if not changed:
        text = f"{who} had no policy of its own"
    facts: dict[str, Any] = {
        "queue": queue,
        "channel": name,
        "policy": asdict(wanted) if wanted else None,
        "changed": changed,
    }
    session.done(text, **facts)


def _show(session: Session, queue: str, name: str | None) -> None:
    target = session.queue(queue)
    default = target.settings().policy
    own = None
    if name is not None:
        own = next((c.policy for c in target.channels(_ALL) if c.channel == name), None)
    effective = own or default
    facts: dict[str, Any] = {
        "queue": queue,
        "channel": name,
        "policy": asdict(effective),
        "own": own is not None,
    }
    who = f"channel {name_of(name)}" if name is not None else "every channel without its own"
    whose = "" if own is not None or name is None else " (the queue's default)"
    session.done(f"{who}: {show.policy(effective)}{whose}", **facts)
