"""``fairturn serve`` as people start and stop it."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests import servers
from tests.server.serve_programs import SECONDS, Program, program, sdk, serve, sqlite, wait_for

HEAD = (
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-amz-json-1.0\r\n"
    b"X-Amz-Target: AmazonSQS.ListQueues\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
)


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    return socket.create_connection((parts.hostname, parts.port), SECONDS)


@contextmanager
def slow_request(url: str) -> Iterator[socket.socket]:
    """A request that the server has begun to read, and whose body does not come."""
    with connect(url) as slow:
        slow.sendall(HEAD)
        assert slow.recv(100).startswith(b"HTTP/1.1 100 ")
        yield slow


def test_the_snippet_works_as_it_is(tmp_path: Path) -> None:
    with serve(sqlite(tmp_path), "--log", "text") as server:
        wait_for(lambda: "Ctrl-C" in server.out)
        assert server.url in server.out
        snippet = server.out[server.out.index("import boto3") : server.out.index("Ctrl-C")]
        tried = subprocess.run(
            [sys.executable, "-c", snippet], capture_output=True, text=True, check=False
        )
        assert (tried.stdout, tried.stderr) == ("ahoy\n", "")
        server.signal()
        assert server.end() == 0


def test_on_each_database(url: str) -> None:
    with serve(url) as server, sdk(server.url) as sqs:
        queue = sqs.create_queue(QueueName="served")["QueueUrl"]
        assert queue == f"{server.url}/000000000000/served"
        sqs.send_message(QueueUrl=queue, MessageBody="ahoy")
        (message,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=5)["Messages"]
        assert message["Body"] == "ahoy"
        sqs.delete_queue(QueueUrl=queue)
        assert httpx.get(f"{server.url}/health").status_code == 200
        server.signal()
        assert server.end() == 0


def test_piped_it_logs_json_and_says_that_nobody_is_verified(tmp_path: Path) -> None:
    with serve(sqlite(tmp_path)) as server:
        with sdk(server.url) as sqs:
            sqs.list_queues()
        server.signal(signal.SIGINT)
        assert server.end() == 0
    texts = [line["message"] for line in server.logged()]
    assert any("no access keys are configured" in text for text in texts)
    (access,) = (line for line in server.logged() if line["logger"] == "fairturn.access")
    assert (access["action"], access["status"]) == ("ListQueues", 200)
    assert texts[-1] == "stopped"
    assert server.out == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_answers_the_open_polls(tmp_path: Path, number: signal.Signals) -> None:
    with serve(sqlite(tmp_path)) as server, sdk(server.url) as sqs:
        queue = sqs.create_queue(QueueName="orders")["QueueUrl"]
        answers: list[Any] = []

        def poll() -> None:
            answers.append(sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20))

        polling = threading.Thread(target=poll)
        polling.start()
        wait_for(lambda: "open_polls 1\n" in httpx.get(f"{server.url}/metrics").text)
        server.signal(number)
        polling.join(SECONDS)
        assert server.end() == 0
        assert "Messages" not in answers[0]
        assert answers[0]["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_a_second_signal_leaves_at_once(tmp_path: Path) -> None:
    words = ("--grace", "1h", "--body-seconds", "1h")
    with serve(sqlite(tmp_path), *words) as server, slow_request(server.url):
        server.signal()
        server.until("a second signal stops immediately")
        assert server.process.poll() is None
        server.signal()
        assert server.end() == 1


def test_what_is_not_finished_in_the_grace_time(tmp_path: Path) -> None:
    words = ("--grace", "100ms", "--body-seconds", "1h")
    with serve(sqlite(tmp_path), *words) as server, slow_request(server.url) as slow:
        server.signal()
        assert slow.recv(100).startswith(b"HTTP/1.1 503 ")
        assert server.end() == 1


# --- configuration --------------------------------------------------------------------------------
def refused(*words: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    with program("serve", *words, environment=environment) as server:
        code = server.end()
        return code, server.err


def test_without_keys_only_this_machine_is_served(tmp_path: Path) -> None:
    database = sqlite(tmp_path)
    code, text = refused("--db", database, "--listen", "0.0.0.0", "--port", "0", "--log", "text")
    assert code == 2
    assert "no access keys are configured" in text
    assert "FAIRTURN_KEY_MINE_ID" in text
    assert "Traceback" not in text
    assert not (tmp_path / "served.db").exists()


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, text = refused("--db", sqlite(tmp_path), "--port", port)
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in json.loads(text)["message"]


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        (["--prot", "1"], {}, "--prot"),
        ([], {"FAIRTURN_SERVE_PROT": "1"}, "did you mean FAIRTURN_SERVE_PORT?"),
        (["--config", "/nowhere.toml"], {}, "/nowhere.toml cannot be read"),
        (["--port", "70000"], {}, "--port must be a whole number from 0 to 65535"),
        (["--tls-cert", "/nowhere.pem"], {}, "tls_cert is given without tls_key"),
        (["--tls-cert", "/no.pem", "--tls-key", "/no.key", "--port", "0"], {}, "cannot be used"),
    ],
)
def test_mistakes(tmp_path: Path, words: list[str], environment: dict[str, str], said: str) -> None:
    code, text = refused("--db", sqlite(tmp_path), *words, environment=environment)
    assert code == 2
    assert said in text
    assert "Traceback" not in text


@pytest.mark.server
def test_a_database_that_is_not_migrated() -> None:
    code, text = refused("--db", servers.postgres_url("empty"), "--port", "0", "--schema", "nobody")
    assert code == 1
    assert "fairturn migrate" in text


def test_a_database_that_is_not_there() -> None:
    database = "postgresql://someone:hush@127.0.0.1:1/nothing"
    code, text = refused("--db", database, "--port", "0")
    assert code == 1
    assert "Traceback" not in text
    assert "hush" not in text


CONFIG = """
[server]
processes = 1

[keys.AKIDALL]
secret = "all of it"
account = "123456789012"

[keys.AKIDSOME]
secret = "some of it"
queues = ["orders"]

[queues.orders]
tags = {{ team = "billing" }}

[queues.orders.attributes]
VisibilityTimeout = {visibility}
RedrivePolicy.deadLetterTargetArn = "arn:aws:sqs:us-east-1:000000000000:dead"
RedrivePolicy.maxReceiveCount = 3

[queues.dead]

[queues."sorted.fifo"]
attributes = {{ ContentBasedDeduplication = true }}
"""


def test_keys_and_queues_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "fairturn.toml"
    file.write_text(CONFIG.format(visibility=60))
    with serve(sqlite(tmp_path), "--config", str(file), "--listen", "0.0.0.0") as server:
        assert "created queue sorted.fifo" in server.err
        assert "no access keys" not in server.err
        with sdk(server.url, "AKIDALL", "all of it") as sqs:
            urls = sqs.list_queues()["QueueUrls"]
            assert urls == [f"{server.url}/123456789012/{n}" for n in names(urls)]
            assert names(urls) == ["dead", "orders", "sorted.fifo"]
            queue = sqs.get_queue_url(QueueName="orders")["QueueUrl"]
            seen = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
            assert seen["VisibilityTimeout"] == "60"
            assert json.loads(seen["RedrivePolicy"])["maxReceiveCount"] == 3
            assert sqs.list_queue_tags(QueueUrl=queue)["Tags"] == {"team": "billing"}
            # Somebody else's change, of something that the file does not name.
            sqs.set_queue_attributes(QueueUrl=queue, Attributes={"DelaySeconds": "7"})
        with sdk(server.url, "AKIDSOME", "some of it") as sqs:
            assert names(sqs.list_queues()["QueueUrls"]) == ["orders"]
            with pytest.raises(sqs.exceptions.ClientError, match="AccessDenied"):
                sqs.get_queue_url(QueueName="dead")
        with sdk(server.url) as sqs, pytest.raises(sqs.exceptions.ClientError, match="security"):
            sqs.list_queues()
        server.signal()
        assert server.end() == 0
        assert "all of it" not in server.err
    file.write_text(CONFIG.format(visibility=90))
    with serve(sqlite(tmp_path), "--config", str(file)) as server:
        assert "queue orders: set VisibilityTimeout" in server.err
        with sdk(server.url, "AKIDALL", "all of it") as sqs:
            queue = sqs.get_queue_url(QueueName="orders")["QueueUrl"]
            seen = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
        assert (seen["VisibilityTimeout"], seen["DelaySeconds"]) == ("90", "7")


def names(urls: list[str]) -> list[str]:
    return sorted(url.rpartition("/")[2] for url in urls)


def test_a_declared_queue_that_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "fairturn.toml"
    file.write_text("[queues.orders]\nattributes = { VisibilityTimeout = 99999999 }")
    code, text = refused("--db", sqlite(tmp_path), "--port", "0", "--config", str(file))
    assert code == 2
    assert "queue orders of the configuration: " in text
    assert "Traceback" not in text


# --- TLS ------------------------------------------------------------------------------------------
@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


def test_tls(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    words = ("--tls-cert", str(cert), "--tls-key", str(key), "--header-seconds", "200ms")
    with serve(sqlite(tmp_path), *words) as server:
        assert server.url.startswith("https://127.0.0.1:")
        with sdk(server.url, verify=str(cert)) as sqs:
            queue = sqs.create_queue(QueueName="orders")["QueueUrl"]
            assert queue == f"{server.url}/000000000000/orders"
        with connect(server.url) as silent:
            assert silent.recv(10) == b""  # a handshake has its time, too
        server.signal()
        assert server.end() == 0


# --- several processes ----------------------------------------------------------------------------
def pids(server: Program) -> list[int]:
    return [int(pid) for pid in re.findall(r"process \d \(pid (\d+)\) is ready", server.err)]


def total(url: str) -> int:
    text = httpx.get(f"{url}/metrics").text
    found = re.findall(r'^fairturn_sqs_requests_total\{action="ListQueues".*\} (\d+)$', text, re.M)
    return sum(int(count) for count in found)


def serving(url: str) -> int:
    """How many processes the one that answers knows of."""
    [count] = re.findall(r"^fairturn_sqs_processes (\d+)$", httpx.get(f"{url}/metrics").text, re.M)
    return int(count)


def test_several_processes(tmp_path: Path) -> None:
    with serve(sqlite(tmp_path), "--processes", "2", "--log-level", "info") as server:
        wait_for(lambda: len(pids(server)) == 2)
        for _ in range(20):
            with sdk(server.url) as sqs:
                sqs.list_queues()
        wait_for(lambda: total(server.url) == 20)  # whoever answers knows of them all …
        wait_for(lambda: serving(server.url) == 2)  # … soon: one of them may have answered all
        victim = pids(server)[0]
        subprocess.run(["kill", "-9", str(victim)], check=True)
        server.until(rf"\(pid {victim}\) was killed by SIGKILL")
        with sdk(server.url) as sqs:
            sqs.create_queue(QueueName="meanwhile")  # the other one goes on
        wait_for(lambda: len(pids(server)) == 3)
        wait_for(lambda: serving(server.url) == 2)
        assert total(server.url) <= 20  # what the dead one had told is not forgotten, or doubled
        server.signal()
        assert server.end() == 0
        assert len(re.findall("no access keys are configured", server.err)) == 1


def test_several_processes_answer_their_polls(tmp_path: Path) -> None:
    with serve(sqlite(tmp_path), "--processes", "2") as server, sdk(server.url) as sqs:
        wait_for(lambda: len(pids(server)) == 2)
        queue = sqs.create_queue(QueueName="orders")["QueueUrl"]
        answers: list[Any] = []

        def poll() -> None:
            with sdk(server.url) as own:
                answers.append(own.receive_message(QueueUrl=queue, WaitTimeSeconds=20))

        polling = [threading.Thread(target=poll) for _ in range(8)]
        for one in polling:
            one.start()
        wait_for(lambda: "open_polls 8\n" in httpx.get(f"{server.url}/metrics").text)
        server.signal()
        for one in polling:
            one.join(SECONDS)
        assert server.end() == 0
        assert [answer["ResponseMetadata"]["HTTPStatusCode"] for answer in answers] == [200] * 8


def test_a_declared_queue_is_set_by_the_first_process_only(tmp_path: Path) -> None:
    """Not whenever a process is replaced: somebody may have changed it meanwhile."""
    file = tmp_path / "fairturn.toml"
    file.write_text("[queues.orders]\nattributes = { VisibilityTimeout = 60 }")
    words = ("--config", str(file), "--processes", "2")
    with serve(sqlite(tmp_path), *words) as server, sdk(server.url) as sqs:
        wait_for(lambda: len(pids(server)) == 2)
        queue = sqs.get_queue_url(QueueName="orders")["QueueUrl"]
        sqs.set_queue_attributes(QueueUrl=queue, Attributes={"VisibilityTimeout": "61"})
        subprocess.run(["kill", "-9", str(pids(server)[0])], check=True)
        wait_for(lambda: len(pids(server)) == 3)
        seen = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["VisibilityTimeout"])
        assert seen["Attributes"] == {"VisibilityTimeout": "61"}


def test_what_is_wrong_is_said_once_by_several_processes(tmp_path: Path) -> None:
    file = tmp_path / "fairturn.toml"
    file.write_text("[queues.orders]\nattributes = { VisibilityTimeout = 99999999 }")
    words = ("--config", str(file), "--processes", "3", "--port", "0")
    code, text = refused("--db", sqlite(tmp_path), *words)
    assert code == 2
    assert text.count("queue orders of the configuration: ") == 1


def test_the_memory_of_one_process_is_not_shared() -> None:
    code, text = refused("--db", "sqlite://", "--port", "0", "--processes", "2")
    assert code == 2
    assert "sqlite:// is in the memory of one process: use a file" in text
