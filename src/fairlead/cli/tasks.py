"""``fairlead task …``: the tasks of an application, and calls of them."""

from __future__ import annotations

import inspect
import json
import sys
from datetime import timedelta
from typing import Any

from cyclopts import App

from fairlead.cli import loading, show
from fairlead.cli.parsing import STDIN, Duration, Time
from fairlead.cli.session import Context, Refused, Session
from fairlead.cli.waiting import CODES, DONE, TIMED_OUT
from fairlead.errors import WaitTimeout
from fairlead.tasks.task import Task
from fairlead.tasks.verdicts import Retries, RetryPolicy
from fairlead.values import Backoff, Outcome

task = App(name="task", help="The tasks of an app: list them, call one.")
AnyTask = Task[..., Any]


@task.command(name="list")
def list_(app: loading.Name, /, *, session: Context) -> None:
    """The tasks of an app, by name. No database is asked.

    Example: fairlead task list shop:app
    """
    found = sorted(loading.load(session, app).tasks.values(), key=lambda one: one.name)
    if session.json:
        session.emit([_facts(one) for one in found])
        return
    if not found:
        session.note("the app has no tasks: decorate a function with @app.task")
        return
    rows = [
        [
            _call(one),
            one.queue,
            one.executor,
            _retry(one.retry),
            "" if one.timeout is None else show.span(one.timeout),
            _about(one),
        ]
        for one in found
    ]
    heads = ["task", "queue", "runs in", "retries", "timeout", "what it does"]
    keep = [i for i in range(len(heads)) if any(row[i] for row in rows)]
    session.table([heads[i] for i in keep], [[row[i] for i in keep] for row in rows])


@task.command
def send(
    app: loading.Name,
    name: str,
    arguments: str = "{}",
    /,
    *,
    delay: Duration | None = None,
    at: Time | None = None,
    key: str | None = None,
    channel: str | None = None,
    priority: int | None = None,
    wait: bool = False,
    timeout: Duration | None = None,
    session: Context,
) -> int:
    """Call a task: its arguments are checked, a worker runs it. With --wait it exits as wait does.

    Example: fairlead task send shop:app welcome '{"to": "ann@example.org"}' --wait

    Args:
        name: The task.
        arguments: Its arguments by name, as a JSON object; - reads it from stdin.
        delay: Run it this much later: 30s, 5m.
        at: Run it then: 2030-01-31T09:00, or +5m.
        key: Unique in the queue while unfinished; else as the task says.
        channel: Else as the task says.
        priority: Higher runs first within its channel; else as the task says.
        wait: Wait for the end, and print the result.
        timeout: But no longer than this.
    """
    one = _find(loading.load(session, app).tasks, name)
    if timeout is not None and not wait:
        raise Refused("--timeout bounds --wait: give both")
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
        code = DONE  # without a result an acked message leaves no trace
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
    near = show.near(name, tasks)
    if near:
        raise Refused(f"no task is called {name!r}. Did you mean {near!r}?")
    known = ", ".join(sorted(tasks)) or "none: decorate a function with @app.task"
    raise Refused(f"no task is called {name!r}; the app has {known}")


def _arguments(text: str) -> Any:
    if text == STDIN:
        text = sys.stdin.read()
    try:
        return json.loads(text)
    except ValueError as error:
        raise Refused(
            f"the arguments are not JSON ({error}). Write an object with each by its name, in "
            """single quotes: '{"to": "ann@example.org"}'"""
        ) from None


# --- as words and facts ---------------------------------------------------------------------------
def _signature(one: AnyTask) -> inspect.Signature:
    """As a sender sees it: without the context."""
    signature = inspect.signature(one.function, eval_str=True)
    kept = [p for name, p in signature.parameters.items() if name != one.context]
    return signature.replace(parameters=kept, return_annotation=inspect.Signature.empty)


def _call(one: AnyTask) -> str:
    return f"{one.name}{_signature(one)}"


def _about(one: AnyTask) -> str:
    return (inspect.getdoc(one.function) or "").partition("\n")[0]


def _backoff(backoff: Retries) -> str:
    if backoff is None:
        return "no"
    times = "" if backoff.max_attempts is None else f"{backoff.max_attempts} attempts, "
    return f"{times}{show.backoff(_plain(backoff))}"


def _plain(backoff: Backoff) -> Backoff:
    """With its durations as seconds."""

    def seconds(value: Any) -> float:
        return value.total_seconds() if isinstance(value, timedelta) else value

    return Backoff(seconds(backoff.initial), backoff.factor, seconds(backoff.maximum))


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
