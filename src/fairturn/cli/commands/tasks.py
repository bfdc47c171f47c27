"""``fairturn task …``: list the tasks of an app, and call one."""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any

from cyclopts import App

from fairturn.cli import app_lookup, show
from fairturn.cli.arguments import AppName, At, Context, Delay, Timeout
from fairturn.cli.commands.wait import CODES, DONE, TIMED_OUT
from fairturn.cli.errors import CommandError, did_you_mean
from fairturn.cli.parsing import STDIN
from fairturn.cli.session import Session
from fairturn.core.errors import WaitTimeout
from fairturn.core.values import Outcome
from fairturn.tasks.task import Task
from fairturn.tasks.verdicts import Retries, RetryPolicy

task = App(name="task", help="List the tasks of an app, or call one.")
AnyTask = Task[..., Any]


@task.command(name="list")
def list_(app: AppName, /, *, session: Context) -> None:
    """List the tasks of an app by name, without a connection to its database.

    Example: fairturn task list shop:app
    """
    session.listing(
        sorted(app_lookup.load(session, app).tasks.values(), key=lambda one: one.name),
        _facts,
        {
            "task": lambda one: f"{one.name}{_signature(one)}",
            "queue": lambda one: one.queue,
            "runs in": lambda one: one.executor,
            "retries": lambda one: _retry(one.retry),
            "timeout": lambda one: show.span(one.timeout),
            "what it does": _about,
        },
        empty="the app has no tasks: decorate a function with @app.task",
        drop_empty=True,
    )


@task.command
def send(
    app: AppName,
    name: str,
    arguments: str = "{}",
    /,
    *,
    delay: Delay = None,
    at: At = None,
    key: str | None = None,
    channel: str | None = None,
    priority: int | None = None,
    wait: bool = False,
    timeout: Timeout = None,
    session: Context,
) -> int:
    """Call a task: check its arguments and send the message that runs it.

    The task's own options count where none is given here. With --wait the exit code is that of
    `fairturn wait`.

    Example: fairturn task send shop:app welcome '{"to": "ann@example.org"}' --wait

    Args:
        name: The name of the task.
        arguments: Its arguments by name, as a JSON object, or - to read it from stdin.
        key: The key of the message, unique in the queue while the message exists.
        channel: The channel of the message.
        priority: The priority of the message: the higher, the earlier in its channel.
        wait: Wait until it is finished, and print the result.
    """
    one = _find(app_lookup.load(session, app).tasks, name)
    if timeout is not None and not wait:
        raise CommandError("--timeout limits --wait: give both")
    given = {"delay": delay, "at": at, "key": key, "channel": channel, "priority": priority}
    sending = one.with_options(**{k: v for k, v in given.items() if v is not None})
    args, kwargs = one.payload.read(_arguments(arguments))
    sent = sending.send(*args, **kwargs)
    facts = {"id": sent.id, "task": one.name, "queue": sending.queue, "outcome": sent.outcome}
    if not wait:
        what = "sent" if sent.created else sent.outcome
        session.done(f"{what} {sent.id}", **facts)
        return DONE
    if not session.json:
        session.note(f"sent {sent.id}; waiting")
    try:
        outcome = one.wait(sent, timeout)
    except WaitTimeout:
        if session.json:
            session.emit({**facts, "timed_out": True})
        session.error(f"message {sent.id} is not finished yet: is a worker running?")
        return TIMED_OUT
    return _ended(session, one, facts, outcome)


def _ended(session: Session, one: AnyTask, facts: dict[str, Any], outcome: Outcome) -> int:
    code = CODES[outcome.state]
    if outcome.state == "gone" and one.returns is None:
        code = DONE  # a task without a result is deleted when it is done
    if session.json:
        session.emit({**facts, **show.outcome_facts(outcome)})
    elif outcome.state == "done" and one.returns is not None:
        session.say(show.full(outcome.result))
    elif outcome.state == "dead":
        session.error(f"{one.name} is dead: {outcome.error or 'no error was given'}")
        session.note(f"why: {session.command('failures', one.queue, '--id', facts['id'])}")
    elif code == DONE:
        session.say(f"{one.name} is done; to see its result give the task result=True")
    else:
        session.error(f"message {facts['id']} is gone: cancelled or expired")
    return code


def _find(tasks: dict[str, AnyTask], name: str) -> AnyTask:
    if name in tasks:
        return tasks[name]
    known = ", ".join(sorted(tasks)) or "none: decorate a function with @app.task"
    raise CommandError(
        f"no task is called {name!r}", did_you_mean(name, tasks, f"The app has {known}")
    )


def _arguments(text: str) -> Any:
    if text == STDIN:
        text = sys.stdin.read()
    try:
        return json.loads(text)
    except ValueError as error:
        raise CommandError(
            f"the arguments are not JSON ({error})",
            """Write an object with each by its name, in single quotes: """
            """'{"to": "ann@example.org"}'""",
        ) from None


# --- as text and facts ----------------------------------------------------------------------------
def _signature(one: AnyTask) -> inspect.Signature:
    """Return the signature without the context, as a sender sees it."""
    signature = inspect.signature(one.function, eval_str=True)
    kept = [p for name, p in signature.parameters.items() if name != one.context]
    return signature.replace(parameters=kept, return_annotation=inspect.Signature.empty)


def _about(one: AnyTask) -> str:
    return (inspect.getdoc(one.function) or "").partition("\n")[0]


def _backoff(backoff: Retries) -> str:
    if backoff is None:
        return "no"
    times = "" if backoff.max_attempts is None else f"{backoff.max_attempts} attempts, "
    return f"{times}{show.backoff(backoff)}"


def _retry(policy: RetryPolicy) -> str:
    default = "" if policy.default is True else _backoff(policy.default)
    rules = [f"{kind.__name__}: {_backoff(backoff)}" for kind, backoff in policy.rules]
    if not rules:
        return default or "as the queue"
    return "; ".join([*rules, f"else {default or 'as the queue'}"])


def _facts(one: AnyTask) -> dict[str, Any]:
    return {
        "task": one.name,
        "queue": one.queue,
        "executor": one.executor,
        "retry": _retry(one.retry),
        "timeout": one.timeout,
        "result": one.returns is not None,
        "signature": f"{_signature(one)}",
        "about": _about(one),
    }
