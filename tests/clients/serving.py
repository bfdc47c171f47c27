"""One server for each database, the key its clients sign with, and what it says about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import httpx
from botocore.config import Config

import fairturn
from tests import servers
from tests.server.serve_programs import SECONDS, Program

BACKENDS = ("sqlite", "postgresql", "mysql")
REGION = "eu-west-3"
ACCOUNT = "123456789012"
KEY_ID = "AKIDCLIENTS"
SECRET = "between/us+two="  # with characters that must be escaped in a URL
KEY = {
    "FAIRTURN_KEY_CLIENTS_ID": KEY_ID,
    "FAIRTURN_KEY_CLIENTS_SECRET": SECRET,
    "FAIRTURN_KEY_CLIENTS_ACCOUNT": ACCOUNT,
}
# What every AWS SDK finds by itself; nothing of the user's own configuration is looked at.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": KEY_ID,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Served:
    """A server that knows one key and lets nobody else in."""

    def __init__(self, backend: str, database: str, *words: str) -> None:
        self.backend = backend
        self.database = database
        command = ("serve", "--db", database, "--port", "0", *words)
        self.program = Program(*command, environment=KEY)
        try:
            self.url = self.program.url
        except BaseException:
            self.program.kill()
            raise
        self._read = 0  # characters of its log

    def arn(self, queue: str) -> str:
        return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}"

    def queue_url(self, queue: str) -> str:
        return f"{self.url}/{ACCOUNT}/{queue}"

    def connection(self) -> dict[str, Any]:
        """What boto3 and aiobotocore must be told, since they are not at AWS."""
        return {
            "endpoint_url": self.url,
            "region_name": REGION,
            "aws_access_key_id": KEY_ID,
            "aws_secret_access_key": SECRET,
        }

    def client(self, **config: Any) -> Any:
        told: dict[str, Any] = {"read_timeout": SECONDS, **config}
        return boto3.client("sqs", config=Config(**told), **self.connection())

    def resource(self) -> Any:
        return boto3.resource("sqs", config=Config(read_timeout=SECONDS), **self.connection())

    def logged(self) -> list[dict[str, Any]]:
        """The lines it has logged since it was asked last."""
        # The access log is written in lumps: once this request is in it, all before are, too.
        sign = '"action": "/health"'
        before = self.program.err.count(sign)
        assert httpx.get(f"{self.url}/health").status_code == 200
        self.program.until(sign, before + 1)
        text = self.program.err
        end = text.rindex("\n") + 1
        lines, self._read = text[self._read : end].splitlines(), end
        found = [json.loads(line) for line in lines]
        return [line for line in found if line.get("action") != "/health"]

    def close(self) -> None:
        self.program.signal()
        code = self.program.end()
        assert code == 0, f"the server ended with {code}:\n{self.program.err[-5000:]}"


class Harbour:
    """The servers of a session, one for each database, started when first asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: dict[str, Served] = {}

    def database(self, backend: str) -> str:
        if backend == "sqlite":
            return f"sqlite:///{self._directory}/clients.db"
        return (servers.postgres_url if backend == "postgresql" else servers.mysql_url)("clients")

    def served(self, backend: str) -> Served:
        if backend not in self._open:
            url = self.database(backend)
            with fairturn.connect(url) as db:
                db.migrate()
            self._open[backend] = Served(backend, url)
        return self._open[backend]

    def close(self) -> None:
        for served in self._open.values():
            served.close()
