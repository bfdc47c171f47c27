"""``fairturn send``: send one message, or each line of stdin or a file as one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any, cast

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from fairturn.cli import parsing
from fairturn.cli.arguments import AsBytes, AsLines, BodyFile, BodyText, Context, QueueName
from fairturn.cli.errors import CommandError
from fairturn.cli.options import given, with_options
from fairturn.cli.parsing import STDIN
from fairturn.cli.session import Session
from fairturn.core.sends import SEND_OPTIONS, Send, Sent

CHUNK = 1 << 20  # bytes per read
BATCH = 1000  # lines per call
BATCH_BYTES = 4 * 1024 * 1024  # bytes per call


@with_options(line for line in SEND_OPTIONS.values() if line.cli)
class Options:
    """The options of a message."""

    def message(self, body: Any, group: str | None = None) -> Send:
        message = Send(body, group=group, **given(self))
        if message.debounce is None and message.max_wait is not None:
            raise CommandError("--max-wait limits --debounce: give both")
        if message.debounce is not None and (
            message.key is None or message.on_conflict != "replace"
        ):
            raise CommandError(
                "--debounce needs --key and --on-conflict replace: each send under that key "
                "replaces the message and puts it off again"
            )
        return message


@dataclass
class Body:
    """The source of the body."""

    text: str | None
    file: Path | None
    bytes: bool
    lines: bool = False

    def __post_init__(self) -> None:
        if self.text is not None and self.file is not None:
            raise CommandError("give the body, - or --file: exactly one of them")


def send(
    queue: QueueName,
    body: BodyText = None,
    /,
    *,
    file: BodyFile = None,
    bytes: AsBytes = False,
    lines: AsLines = False,
    group: str | None = None,
    options: Options | None = None,
    session: Context,
) -> None:
    """Send a message.

    The body is sent as JSON if it parses as JSON, else as a string.

    Example: fairturn send emails '{"to": "ann@example.org"}' --channel tenant-7 --delay 5m

    Args:
        group: Its group; it is held until that is started.
    """
    source = Body(body, file, bytes, lines)
    ship(session, queue, session.queue(queue).send_many, source, options or Options(), group)
    if group is not None and not session.json:
        note_held(session, group)


def note_held(session: Session, group: str) -> None:
    """Say how to start a group that is not started yet."""
    found = session.db.group(group).status()
    if found is not None and found.state == "open":
        start = session.command("group", "start", group)
        session.note(f"held until the group is started: {start}")


def ship(
    session: Session,
    queue: str,
    send_many: Callable[[list[Send]], list[Sent]],
    source: Body,
    options: Options,
    group: str | None = None,
) -> None:
    """Send one message or many, and print the outcome."""
    template = options.message(None, group)
    if source.lines:
        _send_lines(session, queue, send_many, source, template)
        return
    template.body = read_body(source)
    [sent] = send_many([template])
    _report(session, queue, template, sent)


def read_body(source: Body) -> Any:
    """Return the body that was typed, piped or named."""
    return _decode(_read(source.text, source.file), source.bytes)


def _read(body: str | None, file: Path | None) -> bytes:
    if file is not None:
        try:
            return file.read_bytes()
        except OSError as error:
            raise CommandError(f"cannot read {file}: {error.strerror}") from None
    if body is None or body == STDIN:
        if body is None and sys.stdin.isatty():
            raise CommandError("the body is missing: give it, or - to type it and end with Ctrl-D")
        found = sys.stdin.buffer.read()
        if body is None and not found:
            raise CommandError(
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
        raise CommandError("the body is not UTF-8 text: send it with --bytes") from None
    # The line feed that a shell or an editor adds at the end is not a part of the body.
    return parsing.body(text.removesuffix("\n"))


def _report(session: Session, queue: str, message: Send, sent: Sent) -> None:
    text = f"{sent.outcome} {sent.id}"
    if sent.outcome == "duplicate":
        text = f"{sent.id} has the key {message.key!r} already; nothing was sent"
    elif sent.outcome == "refused":
        text = f"{sent.id} has the key {message.key!r} and is leased; nothing was changed"
    session.done(text, id=sent.id, queue=queue, outcome=sent.outcome)


# --- lines --------------------------------------------------------------------------------------
def _chunks(file: Path | None) -> Iterator[bytes]:
    """Yield the input as it arrives: a slow stream is sent without waiting for its end."""
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
        raise CommandError(f"cannot read {file}: {error.strerror}") from None


def _batches(
    chunks: Iterator[bytes], as_bytes: bool, template: Send
) -> Iterator[tuple[list[Send], int]]:
    """Yield the messages of one call, and the number of bytes of input that they took."""
    batch: list[Send] = []
    size = 0
    rest = b""
    for chunk in chain(chunks, [b"\n"]):  # the last line may have no line feed
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
        raise CommandError("--lines reads stdin or --file: give no body with it")
    if template.key is not None:
        raise CommandError("--lines cannot give every line the same --key")
    session.queue(queue).settings()  # raises QueueNotFound before anything is read
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
