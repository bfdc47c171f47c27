"""``fairturn channel …``: the channels of a queue and their policies."""

from __future__ import annotations

from dataclasses import asdict

from cyclopts import App

from fairturn.cli import show
from fairturn.cli.arguments import Context, ListLimit, QueueName
from fairturn.cli.errors import CommandError
from fairturn.cli.options import given, with_options
from fairturn.cli.session import Session
from fairturn.core.settings import POLICY_FIELDS, Policy

channel = App(name="channel", help="List the channels of a queue, and set their policies.")
_ALL = 10_000_000  # there is no call for the policy of one channel


@channel.command(name="list")
def list_(queue: QueueName, /, *, limit: ListLimit = 1000, session: Context) -> None:
    """List the channels that have unfinished messages or a policy of their own.

    Example: fairturn channel list emails
    """
    found = session.queue(queue).channels(limit)
    session.listing(
        found,
        show.facts,
        {
            "channel": lambda one: name_of(one.channel),
            ">ready": lambda one: show.count(one.ready, "ready"),
            ">scheduled": lambda one: show.count(one.scheduled, "scheduled"),
            ">leased": lambda one: show.count(one.leased, "leased"),
            "policy of its own": lambda one: show.policy(one.policy),
        },
        empty="no channels: the queue is empty",
        more=f"the first {limit:,}; see more with --limit" if len(found) == limit else "",
    )


def name_of(channel: str) -> str:
    return channel or '""'


@with_options(POLICY_FIELDS.values())
class Options:
    """The limits of a policy as options."""

    def policy(self) -> Policy | None:
        """Return the policy, or None if no option was given."""
        options = given(self)
        return Policy(**options) if options else None


@channel.command
def policy(
    queue: QueueName,
    name: str | None = None,
    /,
    *,
    default: bool = False,
    clear: bool = False,
    options: Options | None = None,
    session: Context,
) -> None:
    """Show, set or clear the policy of a channel.

    The options of a policy replace the whole policy. Without any, the policy is shown.

    Example: fairturn channel policy emails tenant-7 --max-concurrency 2 --rate 100/min

    Args:
        name: The name of the channel.
        default: Use the policy of all channels that have none of their own.
        clear: Remove the policy.
    """
    wanted = options.policy() if options else None
    if (name is None) == (not default):
        raise CommandError(
            "name the channel, or give --default for all channels without a policy of their own"
        )
    if clear and wanted is not None:
        raise CommandError("--clear removes the whole policy: give no other option with it")
    if clear or wanted is not None:
        _change(session, queue, name, wanted)
    else:
        _show(session, queue, name)


def _change(session: Session, queue: str, name: str | None, wanted: Policy | None) -> None:
    target = session.queue(queue)
    changed = True
    if name is None:
        target.set(policy=wanted or Policy())
    elif wanted is None:
        changed = target.channel(name).clear_policy()
    else:
        target.channel(name).set_policy(**asdict(wanted))
    what = show.policy(wanted) if wanted else "policy cleared"
    text = f"{_who(name)}: {what}" if changed else f"{_who(name)} had no policy of its own"
    policy = asdict(wanted) if wanted else None
    session.done(text, queue=queue, channel=name, policy=policy, changed=changed)


def _show(session: Session, queue: str, name: str | None) -> None:
    target = session.queue(queue)
    default = target.settings().policy
    own = None
    if name is not None:
        own = next((c.policy for c in target.channels(_ALL) if c.channel == name), None)
    effective = own or default
    whose = "" if own is not None or name is None else " (the queue's default)"
    session.done(
        f"{_who(name)}: {show.policy(effective)}{whose}",
        queue=queue,
        channel=name,
        policy=asdict(effective),
        own=own is not None,
    )


def _who(name: str | None) -> str:
    return (
        "every channel without a policy of its own" if name is None else f"channel {name_of(name)}"
    )
