"""``fairlead send``: one message, a file, or a line of stdin each."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, cast

from cyclopts import Parameter
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from fairlead.cli import parsing
from fairlead.cli.parsing import STDIN, Duration, Time
from fairlead.cli.session import Context, Refused, Session
from fairlead.values import OnConflict, Send, Sent

CHUNK = 1 << 20  # bytes read at once
BATCH = 1000  # lines per call
BATCH_BYTES = 4 * 1024 * 1024  # and at most this much body in one


@Parameter(name="*")
@dataclass
class Options:
    """What goes with a body."""

    channel: Annotated[str, Parameter(help="Usually a tenant; channels take turns.")] = ""
    priority: Annotated[int, Parameter(help="Higher runs first within its channel.")] = 0
    delay: Annotated[Duration | None, Parameter(help="Run it this much later: 30s, 5m.")] = None
    at: Annotated[Time | None, Parameter(help="Run it then: 2030-01-31T09:00, or +5m.")] = None
    key: Annotated[str | None, Parameter(help="Unique in the queue while unfinished.")] = None
    on_conflict: Annotated[OnConflict, Parameter(help="If the key is taken.")] = "error"
    version: Annotated[int, Parameter(help="For workers that take only one version.")] = 0
    type: Annotated[str | None, Parameter(help="For workers that take only some types.")] = None
    header: Annotated[
        list[str] | None,
        Parameter(name=["--header", "-H"], metavar="NAME=VALUE", help="Repeat for several."),
    ] = None
    lease: Annotated[Duration | None, Parameter(help="This message's own lease.")] = None
    max_attempts: Annotated[int | None, Parameter(help="This message's own.")] = None
    expires: Annotated[Duration | None, Parameter(help="Delete it after this, run or not.")] = None
    debounce: Annotated[
        Duration | None, Parameter(help="With --key: each send pushes it on by this.")
    ] = None
    max_wait: Annotated[
        Duration | None, Parameter(help="But no further than this after the first.")
    ] = None

    def message(self, body: Any, group: str | None = None) -> Send:
        headers = dict(parsing.header(item) for item in self.header or ())
        if self.debounce is None and self.max_wait is not None:
            raise ValueError("--max-wait bounds --debounce: give both")
        if self.debounce is not None and (self.key is None or self.on_conflict != "replace"):
            raise ValueError(
                "--debounce goes with --key and --on-conflict replace: each send under that key "
                "replaces the message and pushes it on"
            )
        return Send(
            body,
            self.channel,
            self.priority,
            self.delay,
            self.at,
            self.key,
            self.on_conflict,
            self.version,
            self.type,
            headers or None,
            self.lease,
            self.max_attempts,
            self.expires,
            group,
            self.debounce,
            self.max_wait,
        )


@dataclass
class Body:
    """Where the body comes from."""

    text: str | None
    file: Path | None
    bytes: bool
    lines: bool


def send(
    queue: str,
    body: str | None = None,
    /,
    *,
    file: Path | None = None,
    bytes: bool = False,
    lines: bool = False,
    group: str | None = None,
    options: Options | None = None,
    session: Context,
) -> None:
    """Send a message: JSON if the body parses as JSON, else a string.

    Example: fairlead send emails '{"to": "ann@example.org"}' --channel tenant-7 --delay 5m

    Args:
        queue: The queue.
        body: The body, or - to read it from stdin.
        file: Read the body from this file.
        bytes: Send the body's bytes as they are, not as JSON.
        lines: Send one message per line of stdin (or --file), in batches.
        group: The group it belongs to; held until that is started.
    """
    source = Body(body, file, bytes, lines)
    ship(session, queue, session.queue(queue).send_many, source, options or Options(), group)
    if group is not None and not session.json:
        found = session.db.group(group).status()
        if found is not None and found.state == "open":
            session.note(f"held until: {session.command('group', 'start', group)}")


def ship(
    session: Session,
    queue: str,
    send_many: Callable[[list[Send]], list[Sent]],
    source: Body,
    options: Options,
    group: str | None = None,
) -> None:
    """Send what there is, one message or many, and tell."""
    try:
        template = options.message(None, group)
    except ValueError as error:
        raise Refused(str(error)) from None
    one_source(source)
    if source.lines:
        _send_lines(session, queue, send_many, source, template)
        return
    template.body = read_body(source)
    [sent] = send_many([template])
    _report(session, queue, template, sent)


def one_source(source: Body) -> None:
    if source.text is not None and source.file is not None:
        raise Refused("give the body, - or --file: exactly one of them")


def read_body(source: Body) -> Any:
    """The body that was typed, piped or named."""
    return _decode(_read(source.text, source.file), source.bytes)


def _read(body: str | None, file: Path | None) -> bytes:
    if file is not None:
        try:
            return file.read_bytes()
        except OSError as error:
            raise Refused(f"cannot read {file}: {error.strerror}") from None
    if body is None or body == STDIN:
        if body is None and sys.stdin.isatty():
            raise Refused("the body is missing: give it, or - to type it and end with Ctrl-D")
        found = sys.stdin.buffer.read()
        if body is None and not found:
            raise Refused(
                "the body is missing, and stdin is empty: give it, or '' for an empty one"
            )
        return found
    return body.encode("utf-8", "surrogateescape")


def _decode(raw: bytes, as_bytes: bool) -> Any:
    if as_bytes:
        return raw
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise Refused("the body is not UTF-8 text: send it with --bytes") from None
    # A shell's or an editor's last line feed is no part of a text.
    return parsing.body(text.removesuffix("\n"))


def _report(session: Session, queue: str, message: Send, sent: Sent) -> None:
    facts: dict[str, Any] = {"id": sent.id, "queue": queue, "outcome": sent.outcome}
    if session.json:
        session.emit(facts)
    elif sent.created:
        session.say(f"sent {sent.id}")
    elif sent.outcome == "duplicate":
        session.say(f"{sent.id} has the key {message.key!r} already; nothing was sent")
    elif sent.outcome == "replaced":
        session.say(f"replaced {sent.id}")
    else:
        session.say(f"{sent.id} has the key {message.key!r} and is leased; nothing was changed")


# --- lines --------------------------------------------------------------------------------------
def _chunks(file: Path | None) -> Iterator[bytes]:
    """What is there to read, as it comes: a slow stream is sent without waiting for its end."""
    if file is None:
        pipe = cast(BufferedReader, sys.stdin.buffer)
        while chunk := pipe.read1(CHUNK):
            yield chunk
        return
    try:
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                yield chunk
    except OSError as error:
        raise Refused(f"cannot read {file}: {error.strerror}") from None


def _batches(
    chunks: Iterator[bytes], as_bytes: bool, template: Send
) -> Iterator[tuple[list[Send], int]]:
    """Messages to send in one call, and how many bytes of input they took."""
    batch: list[Send] = []
    size = 0
    rest = b""
    for chunk in chain(chunks, [b"\n"]):  # the last line need not have an end
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            size += len(line) + 1
            raw = line.removesuffix(b"\r")
            if raw:  # an empty line is no message
                batch.append(replace(template, body=_decode(raw, as_bytes)))
            if len(batch) >= BATCH or size >= BATCH_BYTES:
                yield batch, size
                batch, size = [], 0
        if batch:
            yield batch, size
            batch, size = [], 0


def _send_lines(
    session: Session,
    queue: str,
    send_many: Callable[[list[Send]], list[Sent]],
    source: Body,
    template: Send,
) -> None:
    file = source.file
    if source.text not in (None, STDIN):
        raise Refused("--lines reads stdin or --file: there is no body to give")
    if template.key is not None:
        raise Refused("--lines cannot give every line the same --key")
    session.queue(queue).settings()  # an unknown queue is told before anything is read
    total = file.stat().st_size if file is not None and file.is_file() else None
    sent = 0
    started = time.monotonic()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.fields[sent]:,} messages"),
        BarColumn(),
        TextColumn("{task.fields[rate]:,.0f}/s"),
    )
    shown = session.err.is_terminal
    with Progress(*columns, console=session.err, transient=True, disable=not shown) as progress:
        task = progress.add_task("", total=total, sent=0, rate=0.0)
        for batch, size in _batches(_chunks(file), source.bytes, template):
            sent += len(send_many(batch))
            rate = sent / (time.monotonic() - started)
            progress.update(task, advance=size, sent=sent, rate=rate)
    elapsed = time.monotonic() - started
    session.done(
        f"sent {sent:,} messages in {elapsed:.1f} s ({sent / max(elapsed, 1e-6):,.0f}/s)",
        queue=queue,
        sent=sent,
        seconds=round(elapsed, 3),
    )
