"""The JavaScript SDK v3, and sqs-consumer on top of it, run by node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients import node_packages
from tests.clients.serving import Served
from tests.clients.test_boto3 import counts
from tests.server.serve_programs import SECONDS

Run = Callable[..., str]


@pytest.fixture
def run(served: Served, tmp_path: Path) -> Run:
    """Run a script of javascript/ beside its packages; what it printed."""
    node = node_packages.node()
    (tmp_path / "node_modules").symlink_to(node_packages.modules())

    def run(script: str, **environment: str) -> str:
        shutil.copy(node_packages.HERE / script, tmp_path)
        ran = subprocess.run(
            [node, "--trace-warnings", script],
            cwd=tmp_path,
            env={
                **os.environ,
                "AWS_ENDPOINT_URL_SQS": served.url,
                "AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED": "true",  # it is Node's age
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        # Warnings, also of deprecations, would be there.
        assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr[-5000:]
        return ran.stdout

    return run


def test_the_sdk(run: Run) -> None:
    assert run("sdk.mjs") == ""


def test_sqs_consumer(served: Served, sqs: Any, run: Run) -> None:
    dead = sqs.create_queue(QueueName="js-jobs-dead")["QueueUrl"]
    policy = {"deadLetterTargetArn": served.arn("js-jobs-dead"), "maxReceiveCount": 3}
    url = sqs.create_queue(QueueName="js-jobs", Attributes={"RedrivePolicy": json.dumps(policy)})[
        "QueueUrl"
    ]
    jobs = [{"job": str(n), "fails": 0, "ms": 0} for n in range(20)]
    jobs += [{"job": "moody", "fails": 2, "ms": 0}, {"job": "poison", "fails": 9, "ms": 0}]
    jobs += [{"job": "slow", "fails": 0, "ms": 2500}]
    for job in jobs:
        tenant = {"DataType": "String", "StringValue": f"t-{job['job']}"}
        sqs.send_message(
            QueueUrl=url, MessageBody=json.dumps(job), MessageAttributes={"tenant": tenant}
        )
    served.logged()
    told = json.loads(
        run(
            "consumer.mjs",
            CLIENTS_QUEUE_URL=url,
            CLIENTS_JOBS=str(len(jobs)),
            CLIENTS_ATTEMPTS="3",
        )
    )
    assert told["errors"] == []
    attempts = {"moody": 3, "poison": 3}
    assert told["seen"] == {
        name: [[n + 1, f"t-{name}"] for n in range(attempts.get(name, 1))]
        for name in (job["job"] for job in jobs)
    }
    # The poison has gone on its next receive, at the latest now.
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    assert (counts(sqs, url), counts(sqs, dead)) == ([0, 0, 0], [1, 0, 0])
    lines = [line for line in served.logged() if line.get("queue") == "js-jobs"]
    assert {line["status"] for line in lines} <= {200, 499}  # 499: its last poll, cut off
    beats = [line for line in lines if line["action"].startswith("ChangeMessageVisibility")]
    assert len(beats) > 5, "the failures are given back, and the slow one is prolonged"
