"""The program of a worker's witness: sleeps until the pipe from the worker ends.

Started by path, and without anything of Fairlead: it should be small and cost nothing. What it has
to do, if the worker did not say goodbye, is in ``witness.py``.
"""

import json
import signal
import sys

GOODBYE = b"goodbye\n"


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # it ends after its worker, never before
    will = json.loads(sys.stdin.buffer.readline() or "null")
    if will is None or sys.stdin.buffer.read() == GOODBYE:
        return
    sys.path[:] = will["path"]
    from fairlead.worker.witness import carry_out

    carry_out(will, int(sys.argv[1]))


if __name__ == "__main__":
    main()
