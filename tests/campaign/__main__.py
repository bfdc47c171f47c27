"""``python -m tests.campaign``: faults on real processes, and a check of all that they did.

CAMPAIGN_MINUTES (10), CAMPAIGN_BACKENDS ("sqlite postgresql mysql", also patroni and galera),
CAMPAIGN_SEED (drawn), CAMPAIGN_RESTORE (1: a backup is taken and put back, not on clusters).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.campaign import drain, history, report, world
from tests.campaign.cast import Cast
from tests.campaign.checks.checker import check
from tests.campaign.cluster_sites import open_site
from tests.campaign.faults.nemesis import RESTORE_WANTED, Nemesis
from tests.campaign.site import private_mounts
from tests.server_process import MissingBinary

STAY = ("watcher-1", "worker-1", "relay-1")
ROLES = [
    *("producer", "ordered", "transactional", "consumer", "async"),
    *("groups", "asker", "ticker", "watcher"),
]


def raise_cast(cast: Cast, restores: bool) -> None:
    for role in ROLES:
        cast.add_role(role, f"{role}-1")
    cast.add_role("consumer", "consumer-2")
    if restores:
        cast.add_role("hoarder", "hoarder-1")
    cast.add_worker("worker-1")
    cast.add_relay("relay-1")
    cast.add_role("sqs", "sqs-1", port=cast.add_server("server-1"))


def campaign(kind: str, seconds: float, seed: int, mounts: bool, directory: Path) -> bool:
    """One campaign on one kind of database. True if the history has no violation."""
    writer = history.Writer(directory, "campaign")
    began = time.monotonic()
    with open_site(kind, mounts) as site, site.connect() as db:
        centre = f"sqlite:///{directory / 'centre.db'}"
        world.make(db, centre)
        cast = Cast(site, directory, seed)
        with cast.running():
            nemesis = Nemesis(site, cast, writer, seed)
            raise_cast(cast, nemesis.restores)
            cast.wait_ready()
            nemesis.run(seconds)
            # Watcher, worker and relay stay: they have to see the end of everything.
            hung = cast.stop([a for name, a in cast.actors.items() if name not in STAY])
            drain.surely(lambda: db.schedule(world.SCHEDULE).pause())
            left = drain.until_empty(db, cast, writer)
            drain.until_read(db, cast, writer)
            hung += cast.stop(list(cast.actors.values()))
        drain.surely(lambda: drain.ask(db, writer))
        drain.ask_centre(centre, writer)
    verdict = check(history.read(directory))
    report.show(kind, seed, verdict, nemesis, cast, hung, left, time.monotonic() - began)
    return not verdict.violations and not left and not cast.crashes


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is cleaned up
    seed = int(os.environ.get("CAMPAIGN_SEED") or random.SystemRandom().randrange(2**32))
    minutes = float(os.environ.get("CAMPAIGN_MINUTES") or 10)
    kinds = (os.environ.get("CAMPAIGN_BACKENDS") or "sqlite postgresql mysql").split()
    mounts = private_mounts()
    good = True
    for kind in kinds:
        directory = Path(tempfile.mkdtemp(prefix=f"fairturn-campaign-{kind}-"))
        print(f"--- {kind}: {minutes:g} minutes, CAMPAIGN_SEED={seed}", flush=True)
        try:
            fine = campaign(kind, minutes * 60, seed, mounts, directory)
        except MissingBinary as error:
            print(f"SKIPPED {kind}: {error}", flush=True)
            fine = True
        except Exception:
            # A fault that could not be healed, a database that does not come back: no verdict.
            traceback.print_exc()
            fine = False
        if fine:
            shutil.rmtree(directory)
        else:
            good = False
            print(f"The history is in {directory}")
            print(
                f"To repeat: make campaign CAMPAIGN_SEED={seed} CAMPAIGN_MINUTES={minutes:g} "
                f'CAMPAIGN_BACKENDS="{kind}" CAMPAIGN_RESTORE={os.environ.get(RESTORE_WANTED, "")}',
                flush=True,
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
