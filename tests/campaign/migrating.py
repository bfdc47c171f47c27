"""``python -m tests.campaign.migrating URL SCHEMA``: install Fairturn. To be killed on the way."""

from __future__ import annotations

import sys

import fairturn


def main(url: str, schema: str) -> None:
    with fairturn.connect(url, schema=schema) as db:
        db.migrate()


def works(url: str, schema: str) -> None:
    """Migrate to the end, and use it."""
    with fairturn.connect(url, schema=schema) as db:
        db.migrate()
        queue = db.queue("proof")
        queue.create()
        queue.send({"v": schema})
        [message] = queue.receive()
        assert message.body == {"v": schema}, message.body
        message.ack()


if __name__ == "__main__":
    main(*sys.argv[1:])
