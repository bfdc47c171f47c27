"""A worker of the fault tests, in a process of its own that may be killed at any moment.

Reads one command per line from stdin and answers with one line: ``lease S`` receives one
member for S seconds, ``ack`` acks what it has, ``batches N`` runs N batches over the queues and
channels it was given.
"""

from __future__ import annotations

import random
import sys

import fairturn


def main(url: str, name: str, seed: str) -> None:
    db = fairturn.connect(url)
    queue = db.queue(name)
    held: list[fairturn.LeasedMessage] = []
    chance = random.Random(seed)
    print("ready", flush=True)
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "lease":
            held = list(queue.receive(1, types=["member"], lease=float(rest[0]), wait=10))
            print(len(held), flush=True)
        elif command == "ack":
            for message in held:
                message.ack()
            print("acked", flush=True)
        elif command == "batches":
            run_batches(db, name, int(rest[0]), chance)
            print("done", flush=True)


def run_batches(db: fairturn.Database, name: str, n: int, chance: random.Random) -> None:
    """Over the same queues, channels and keys as everybody else, each time in another order."""
    for i in range(n):
        places = [(queue, channel) for queue in ("a", "b", "c") for channel in ("x", "y")]
        chance.shuffle(places)
        with db.batch() as batch:
            for queue, channel in places:
                where = batch.queue(f"{name}-{queue}").channel(channel)
                where.send({"i": i}, key=f"{channel}{i % 7}", on_conflict="replace")
                if chance.random() < 0.5:
                    where.set_policy(max_concurrency=1 + i % 5)
                else:
                    where.clear_policy()


if __name__ == "__main__":
    main(*sys.argv[1:])
