"""Newsletters for many customers: a web application, its tasks and their worker, in one file.

    python newsletter.py setup             once: tables, queues, limits
    uvicorn newsletter:web                 the web application
    python newsletter.py worker            the worker, in another terminal

Everything is in newsletter.db, or where DATABASE_URL says: DATABASE_URL=postgresql://…
"""

from __future__ import annotations

import json
import logging
import os
import sys
import zlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import IntegrityError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

import fairturn
from fairturn import Backoff, Context

URL = os.environ.get("DATABASE_URL", "sqlite:///newsletter.db")
MAILS = Path(os.environ.get("MAILS", "mails.jsonl"))  # stands for a mail server

app = fairturn.App(URL, name="newsletter")


# --- tasks --------------------------------------------------------------------------------------
class Refused(Exception):
    """The mail server will never take this mail."""


def by_list(newsletter: str, **_: Any) -> str:
    """A channel for each customer: one who mails a million does not keep the others waiting."""
    return newsletter


# A mail server that is away is tried again for some two days; a refused mail is not.
RETRY = {OSError: Backoff(initial=1, maximum=6 * 3600, max_attempts=20), Refused: None}


@app.task(queue="mail", channel=by_list, retry=RETRY, timeout=30)
def deliver(ctx: Context, newsletter: str, to: str, subject: str) -> None:
    """One mail. A crash between the server's yes and our ack sends it twice: that is mail."""
    if "@" not in to:
        raise Refused(f"550 no such mailbox: {to}")
    if ctx.attempt == 1 and zlib.crc32(to.encode()) % 3 == 0:
        raise ConnectionError("421 try again later")  # every third mailbox is moody at first
    mail = {"list": newsletter, "to": to, "subject": subject, "attempt": ctx.attempt}
    with MAILS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(mail) + "\n")


@app.task(
    queue="publishing", key=lambda newsletter, subject: f"{newsletter}: {subject}", timeout=300
)
def publish(ctx: Context, newsletter: str, subject: str) -> None:
    """One issue becomes a mail to each subscriber: all of them, once, whenever this crashes."""
    with engine.begin() as connection:
        found = text("SELECT email FROM subscriber WHERE newsletter = :newsletter ORDER BY email")
        emails = connection.scalars(found, {"newsletter": newsletter}).all()
    with ctx.transaction() as connection:  # the mails and the ack of this message are one commit
        deliver.using(connection).send_many(
            {"newsletter": newsletter, "to": email, "subject": subject} for email in emails
        )


@app.task(queue="publishing")
def digest(ctx: Context) -> None:
    """Tell each customer how many signed up since yesterday."""
    with engine.begin() as connection:
        found = text("SELECT newsletter, count(*) FROM subscriber WHERE at >= :at GROUP BY 1")
        yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
        rows = connection.execute(found, {"at": yesterday}).all()
    with ctx.transaction() as connection:
        deliver.using(connection).send_many(
            {"newsletter": name, "to": f"{name}@example.org", "subject": f"{count} new subscribers"}
            for name, count in rows
        )


app.cron("0 8 * * *", digest, timezone="Europe/Rome")


@app.task(queue="reports", result=True, timeout=60)
def report(ctx: Context, newsletter: str) -> dict[str, int]:
    """Where the subscribers have their mailboxes."""
    with engine.begin() as connection:
        found = text("SELECT email FROM subscriber WHERE newsletter = :newsletter")
        emails = connection.scalars(found, {"newsletter": newsletter}).all()
    domains: Counter[str] = Counter()
    for number, email in enumerate(emails):
        if number % 1000 == 0:
            ctx.progress(number / len(emails), note=f"{number} of {len(emails)} subscribers")
        domains[email.rpartition("@")[2]] += 1
    return dict(domains.most_common(10))


# --- the web ------------------------------------------------------------------------------------
def sign_up(request: Request) -> Response:
    """The subscriber and the mail to them exist together or not at all."""
    newsletter, email = request.path_params["newsletter"], request.path_params["email"]
    subject = f"Welcome to {newsletter}"
    row = {"newsletter": newsletter, "email": email, "at": datetime.now(UTC).isoformat()}
    try:
        with engine.begin() as connection:
            insert = text("INSERT INTO subscriber VALUES (:newsletter, :email, :at)")
            connection.execute(insert, row)
            deliver.using(connection).send(newsletter, email, subject)
    except IntegrityError:
        return JSONResponse({"error": f"{email} has subscribed already"}, 409)
    return JSONResponse({"subscribed": email}, 201)


async def publish_issue(request: Request) -> Response:
    newsletter, subject = request.path_params["newsletter"], request.path_params["subject"]
    # A second click while the first is at work changes nothing.
    sent = await publish.with_options(on_conflict="ignore").send_async(newsletter, subject)
    return JSONResponse({"issue": sent, "outcome": sent.outcome}, 202)


async def start_report(request: Request) -> Response:
    sent = await report.send_async(request.path_params["newsletter"])
    return JSONResponse({"report": sent}, 202)


async def show_report(request: Request) -> Response:
    message = await app.async_db.queue("reports").get(id=request.path_params["id"])
    if message is None:
        return JSONResponse({"error": "no such report"}, 404)
    told = {"state": message.state, "progress": message.progressed, "note": message.note}
    return JSONResponse({**told, "result": message.result, "error": message.error})


async def home(request: Request) -> Response:
    return HTMLResponse(Path(__file__).with_name("page.html").read_text("utf-8"))


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    yield
    await app.close_async()
    engine.dispose()


web = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/", home),
        Route("/lists/{newsletter}/subscribers/{email}", sign_up, methods=["PUT"]),
        Route("/lists/{newsletter}/issues/{subject}", publish_issue, methods=["PUT"]),
        Route("/lists/{newsletter}/reports", start_report, methods=["POST"]),
        Route("/reports/{id:int}", show_report),
    ],
)


# --- the database -------------------------------------------------------------------------------
def connect(url: str) -> Engine:
    made = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    if made.dialect.name == "sqlite":
        # A transaction that will write has to say so when it begins.
        event.listen(made, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
        event.listen(made, "begin", lambda opened: opened.exec_driver_sql("BEGIN IMMEDIATE"))
    return made


engine = connect(URL)


def setup() -> None:
    """To be run with each deploy; it changes only what is not there yet."""
    app.db.migrate()
    for name in ("publishing", "reports"):
        app.db.queue(name).create()
    # No customer may keep more than two connections to the mail server busy.
    app.db.queue("mail").create(policy=fairturn.Policy(max_concurrency=2))
    columns = "newsletter TEXT, email TEXT, at TEXT, PRIMARY KEY (newsletter, email)"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE TABLE IF NOT EXISTS subscriber ({columns})"))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    match sys.argv[1:]:
        case ["setup"]:
            setup()
        case ["worker"]:
            app.run(concurrency=10)
        case _:
            sys.exit("usage: python newsletter.py setup | worker")
