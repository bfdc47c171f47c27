"""``python -m tests.campaign.faults.migrating URL``: install Fairturn. To be killed on the way."""

from __future__ import annotations

import sys

import fairturn


def main(url: str) -> None:
    with fairturn.connect(url) as db:
        db.migrate()


def works(url: str) -> None:
    """Migrate to the end, and use it."""
    with fairturn.connect(url) as db:
        db.migrate()
        queue = db.queue("proof")
        queue.create()
        queue.send("it works")
        [message] = queue.receive()
        assert message.body == "it works", message.body
        message.ack()


if __name__ == "__main__":
    main(sys.argv[1])
