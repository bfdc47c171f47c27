"""A real, private, throwaway RabbitMQ for the tests, as tests/servers.py has databases.

    from tests import rabbit
    rabbit.url()                     # amqp://…, the session's broker, shared by all tests
    with rabbit.Rabbit() as broker:  # one of your own: it forgets nothing and may be killed
        broker.kill9(); broker.start()

Each takes about four seconds to start, so share. Queues of the shared one need names of their own.
There is no plugin, and no epmd: the node's distribution has a port of its own on 127.0.0.1, and
what RabbitMQ would start an epmd with is told not to.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
from pathlib import Path
from typing import ClassVar

from tests import server_process, servers

KIND = "rabbitmq"
USER, PASSWORD = "harbour", "not-for-logs"  # of the broker; tests look for the latter in texts
# Debian's /usr/sbin/rabbitmq-server insists on the system's own user and directory.
_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def program() -> str:
    found = str(_PROGRAM) if _PROGRAM.exists() else shutil.which("rabbitmq-server")
    if found is None:
        raise servers.MissingBinary("rabbitmq-server", "rabbitmq-server")
    return found


class Rabbit(servers.Server):
    """One broker. ``settings`` are lines of rabbitmq.conf, read at each start."""

    kind = KIND
    lazy: ClassVar[dict[str, str]] = {}  # in memory, if it need not be durable

    def prepare(self) -> None:
        program()
        (self.directory / "plugins").write_text("[].\n")
        os.chmod(self.directory / "plugins", 0o644)

    def command(self) -> list[str]:
        settings = {
            "listeners.tcp.1": f"127.0.0.1:{self.port}",
            "default_user": USER,
            "default_pass": PASSWORD,
            "log.console": "true",
            "log.console.level": "warning",
            "log.file": "false",
            "disk_free_limit.absolute": "1MB",
            "raft.wal_max_size_bytes": "1048576",
            **self.settings,
        }
        config = self.directory / "rabbitmq.conf"
        config.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
        os.chmod(config, 0o644)
        variables = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "HOME": str(self.directory),  # where Erlang keeps its cookie
            "ERL_FLAGS": "-start_epmd false",  # for the node, and for what it starts
            "RABBITMQ_NODENAME": "rabbit@localhost",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "data"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                f"-sname rabbit@localhost -erl_epmd_port {servers.free_port()}"
                " -kernel inet_dist_use_interface {127,0,0,1} +S 2:2"
            ),
            "detached": "true",  # the script then becomes the broker, instead of its parent
        }
        pairs = [f"{name}={value}" for name, value in variables.items()]
        return ["env", "-i", *pairs, program()]

    def ready(self) -> bool:
        """It answers AMQP: the first frame is of type 1, a method."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), 1) as asking,
        ):
            asking.settimeout(5)
            asking.sendall(b"AMQP\x00\x00\x09\x01")
            return asking.recv(1) == b"\x01"
        return False

    @property
    def url(self) -> str:
        return f"amqp://{USER}:{PASSWORD}@127.0.0.1:{self.port}/"

    def restart(self) -> None:
        """Stop it as its operator would, and start it on the same port and data."""
        os.kill(self.pid, signal.SIGTERM)
        self._reap()
        self.start()

    def freeze(self) -> None:
        """It neither reads nor answers, and its connections stay: a hung broker, or a network that
        swallows everything."""
        os.kill(self.pid, signal.SIGSTOP)
        server_process.wait_until(self._stopped, "the broker's threads stop")

    def _stopped(self) -> bool:
        stats = Path(f"/proc/{self.pid}/task").glob("*/stat")
        return all(stat.read_text().rsplit(")", 1)[1].split()[0] == "T" for stat in stats)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def url() -> str:
    """The session's broker, started if need be."""
    servers.KINDS.setdefault(KIND, Rabbit)
    handle = object.__new__(Rabbit)
    handle.port = servers.shared(KIND)["port"]
    return handle.url
