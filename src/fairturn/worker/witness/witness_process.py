"""The program of a worker's witness process: sleeps until the pipe from the worker is closed.

It is started by path and imports nothing of Fairturn, to need little memory. ``witness.py`` is
imported only if the worker ended without a goodbye.
"""

import json
import signal
import sys

GOODBYE = b"goodbye\n"


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # it must end after its worker
    instructions = json.loads(sys.stdin.buffer.readline() or "null")
    if instructions is None or sys.stdin.buffer.read() == GOODBYE:
        return
    sys.path[:] = instructions["path"]
    from fairturn.worker.witness.witness import settle_dead_worker

    settle_dead_worker(instructions, int(sys.argv[1]))


if __name__ == "__main__":
    main()
