"""The configuration of `fairturn serve`: a file, variables, flags."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from fairturn.cli.programs.serve import Flags
from fairturn.core.errors import InvalidArgument
from fairturn.server import config
from fairturn.server.config import READERS, Declared, Settings, load
from fairturn.server.http.bounds import Bounds

WHOLE = """
[server]
listen = "0.0.0.0"
port = 9000
grace = 2.5
extended = true

[keys.AKIDMINE]
secret = "hush"
queues = ["billing-"]

[queues.dead]

[queues.orders]
tags = { team = "billing" }

[queues.orders.attributes]
VisibilityTimeout = 60
SqsManagedSseEnabled = false
Policy = ""
RedrivePolicy.deadLetterTargetArn = "arn:aws:sqs:us-east-1:000000000000:dead"
RedrivePolicy.maxReceiveCount = 5

[queues."sorted.fifo"]
"""


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "fairturn.toml"
    file.write_text(text, "utf-8")
    return str(file)


def refusal(tmp_path: Path, text: str) -> str:
    file = written(tmp_path, text)
    with pytest.raises(InvalidArgument) as refused:
        load(file, {}, {})
    return str(refused.value).replace(file, "FILE")


def test_nothing_at_all() -> None:
    settings = load(None, {"PATH": "/bin", "FAIRTURN_URL": "sqlite://"}, {})
    assert (settings.listen, settings.port, settings.processes) == ("127.0.0.1", 9324, 1)
    assert settings.bounds == Bounds()
    assert not len(settings.keys)
    assert not settings.queues


def test_a_file(tmp_path: Path) -> None:
    settings = load(written(tmp_path, WHOLE), {}, {})
    assert (settings.listen, settings.port, settings.grace) == ("0.0.0.0", 9000, 2.5)
    assert settings.options.extended
    assert [(key.id, key.secret, key.queues) for key in settings.keys] == [
        ("AKIDMINE", "hush", ("billing-",))
    ]
    assert settings.queues["dead"] == Declared({}, {})
    assert settings.queues["orders"].tags == {"team": "billing"}
    assert settings.queues["orders"].attributes == {
        "VisibilityTimeout": "60",
        "SqsManagedSseEnabled": "false",
        "Policy": "",
        "RedrivePolicy": '{"deadLetterTargetArn": "arn:aws:sqs:us-east-1:000000000000:dead", '
        '"maxReceiveCount": 5}',
    }
    assert settings.queues["sorted.fifo"].attributes == {"FifoQueue": "true"}
    assert "hush" not in repr(settings)


def test_variables_win_over_the_file_and_flags_over_both(tmp_path: Path) -> None:
    environment = {
        "FAIRTURN_SERVE_CONFIG": written(tmp_path, WHOLE),
        "FAIRTURN_SERVE_PORT": "9001",
        "FAIRTURN_SERVE_GRACE": "0.5",
        "FAIRTURN_SERVE_EXTENDED": "no",
        "FAIRTURN_SERVE_METRICS_OPEN": "1",
        "FAIRTURN_KEY_OTHER_ID": "AKIDOTHER",
        "FAIRTURN_KEY_OTHER_SECRET": "psst",
    }
    settings = load(None, environment, {"port": 9002, "listen": None})
    assert (settings.listen, settings.port, settings.grace) == ("0.0.0.0", 9002, 0.5)
    assert not settings.extended
    assert settings.metrics_open
    assert [key.id for key in settings.keys] == ["AKIDMINE", "AKIDOTHER"]


def test_an_empty_variable_for_the_file_is_none() -> None:
    assert load(None, {"FAIRTURN_SERVE_CONFIG": ""}, {}).port == 9324


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[sever]", "FILE: sever is not known: did you mean server?"),
        ("[server]\nprot = 1", "FILE: [server] prot is not known: did you mean port?"),
        ("[server]\nxyzzy = 1", "FILE: [server] xyzzy is not known: the names are listen, port,"),
        ("[server]\nport = 70000", "FILE: [server] port must be a whole number from 0 to 65535"),
        ("[server]\nport = true", "FILE: [server] port must be a whole number from 0 to 65535"),
        (
            "[server]\nprocesses = 0",
            "FILE: [server] processes must be a whole number from 1 to 1000",
        ),
        ('[server]\ngrace = "1m"', "FILE: [server] grace must be a number of seconds"),
        (
            "[server]\nkeep_alive = 0",
            "FILE: [server] keep_alive must be a number of seconds from 0.1 to",
        ),
        (
            "[server]\nbody_bytes = 9999999",
            "FILE: [server] body_bytes must be a whole number from 1024",
        ),
        ("[server]\nextended = 1", "FILE: [server] extended must be true or false"),
        ('[server]\nlisten = ""', "FILE: [server] listen must be a string"),
        ("[server]\naccount = 123", "FILE: [server] account must be twelve digits, in quotes"),
        ('[server]\nurl = "http://a/b"', "FILE: [server] url must be a URL without a path"),
        ('[server]\nlog = "xml"', "FILE: [server] log must be text or json"),
        ('[server]\ntls_cert = "a"', "tls_cert is given without tls_key: give both"),
        ('[server]\ntls_key = "a"', "tls_key is given without tls_cert: give both"),
        ("server = 1", "FILE: server must be a table, [server]"),
        ("[keys.A]\nsecret = 5", "keys.A: secret must be a string, in quotes"),
        ('[keys.A]\nsecret = "a"\nactions = ["Send"]', "keys.A: there is no action 'Send'"),
        ("[queues]\na = 1", "FILE: [queues.a] must be a table"),
        ("[queues.a]\ntag = {}", "FILE: [queues.a] tag is not known: did you mean tags?"),
        ("[queues.a]\ntags = { b = 1 }", "FILE: [queues.a]: tag b must be a string, in quotes"),
        ("[queues.a.fifo]", 'FILE: [queues.a]: a name with a dot is quoted: [queues."a.fifo"]'),
        (
            "[queues.a.attributes]\nDelaySeconds = 1.5",
            "[queues.a] DelaySeconds must be a string, a whole number, true, false or a table",
        ),
        (
            "[queues.a.attributes]\nPolicy = { at = 2026-01-01 }",
            "FILE: [queues.a] Policy must be a string, a whole number, true, false or a table",
        ),
        ("[server", "FILE is not TOML: "),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (
            {"FAIRTURN_SERVE_PROT": "1"},
            "FAIRTURN_SERVE_PROT is not known: did you mean FAIRTURN_SERVE_PORT?",
        ),
        (
            {"FAIRTURN_SERVE_PORT": "-1"},
            "FAIRTURN_SERVE_PORT must be a whole number from 0 to 65535",
        ),
        ({"FAIRTURN_SERVE_EXTENDED": "maybe"}, "FAIRTURN_SERVE_EXTENDED must be true or false"),
        ({"FAIRTURN_KEY_A_ID": "A"}, "FAIRTURN_KEY_A: the secret is missing"),
        ({"FAIRTURN_SERVE_CONFIG": "/nowhere/f.toml"}, "/nowhere/f.toml cannot be read: No such"),
    ],
)
def test_mistakes_in_variables(environment: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(said)):
        load(None, environment, {})


def test_mistakes_in_flags() -> None:
    with pytest.raises(InvalidArgument, match=r"--header-bytes must be a whole number from 4096"):
        load(None, {}, {"header_bytes": 1})


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidArgument, match="is not UTF-8 text"):
        load(str(file), {}, {})


def test_a_key_in_both_places(tmp_path: Path) -> None:
    environment = {"FAIRTURN_KEY_A_ID": "AKIDMINE", "FAIRTURN_KEY_A_SECRET": "other"}
    with pytest.raises(InvalidArgument, match="AKIDMINE is configured twice"):
        load(written(tmp_path, WHOLE), environment, {})


def test_every_setting_is_a_name_in_the_file_and_a_flag() -> None:
    settings = {one.name for one in fields(Settings)} - {"keys", "queues"}
    assert set(READERS) == settings
    assert {one.name for one in fields(Flags)} == settings


@pytest.mark.parametrize("name", [one.name for one in fields(Flags)])
def test_a_process_is_told_every_flag(name: str) -> None:
    """By a variable, which must be read as the flag was."""
    samples: dict[str, Any] = {
        "extended": True,
        "metrics_open": True,
        "access_log": False,
        "account": "123456789012",
        "url": "https://sqs.example.com",
        "log": "json",
        "log_level": "debug",
    }
    other = "tls_key" if name == "tls_cert" else "tls_cert" if name == "tls_key" else None
    flags = Flags(**{name: samples.get(name, _sample(name))})
    if other:
        setattr(flags, other, "b")
    told = load(None, flags.as_environment(), {})
    assert getattr(told, name) == getattr(load(None, {}, flags.given()), name)
    assert getattr(told, name) != getattr(config.Settings(), name)


def _sample(name: str) -> Any:
    usual = getattr(Settings(), name)
    if usual is None or isinstance(usual, str):
        return "a"
    whole = name in ("port", "processes", "connections", "header_bytes", "body_bytes")
    return (7 if name == "processes" else 5000) if whole else 0.25
