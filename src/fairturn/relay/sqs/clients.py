"""Addresses of SQS queues, and boto3 clients for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from fairturn.relay.destination import DestinationError

SCHEME = "sqs:"
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 5, 10, 2  # together, a call ends within 30 s
_NO_REGION = "us-east-1"  # for servers that have no regions: boto3 needs one
_AWS = re.compile(r"(?:.+\.)?(?:amazonaws\.com(?:\.cn)?|api\.aws|amazonwebservices\.com\.cn)")
_REGION = r"([a-z]{2,}(?:-[a-z]+)+-\d+)"
_IN_HOST = re.compile(rf"(?:^|\.)(?:sqs(?:-fips)?\.{_REGION}|{_REGION}\.queue)\.")
_TRUE = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_EXAMPLE = "sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/orders"


@dataclass(frozen=True, slots=True)
class Address:
    """``sqs:`` and the queue's URL, with ``region`` and ``groups`` as its query."""

    queue_url: str
    region: str | None = None
    groups: bool = False

    @classmethod
    def of(cls, text: str) -> Address:
        try:
            parts = urlsplit(text.removeprefix(SCHEME))
            host, _ = parts.hostname, parts.port  # .port raises if it is no number
            query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
        except ValueError as error:
            raise DestinationError(f"this is no address of an SQS queue: {error}") from error
        if not text.startswith(SCHEME) or parts.scheme not in ("http", "https") or not host:
            raise DestinationError(f"the address of an SQS queue looks like {_EXAMPLE}")
        if "@" in parts.netloc:
            raise DestinationError(
                "an address of SQS must not contain keys: boto3 finds them in the environment "
                "(AWS_ACCESS_KEY_ID …), in a profile, or in the role of the machine"
            )
        if not parts.path.strip("/") or parts.fragment:
            raise DestinationError(f"the address names no queue: it should look like {_EXAMPLE}")
        region, groups = query.pop("region", None), query.pop("groups", "0").lower()
        if query or groups not in _TRUE:
            raise DestinationError(
                "an address of SQS may have ?region=… and &groups=1 after the queue's URL, "
                f"not {parts.query!r}"
            )
        url = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
        return cls(url, region, _TRUE[groups])

    def __str__(self) -> str:
        query = [f"region={self.region}"] if self.region else []
        query += ["groups=1"] if self.groups else []
        return f"{SCHEME}{self.queue_url}{'?' if query else ''}{'&'.join(query)}"


def is_aws(queue_url: str) -> bool:
    return _AWS.fullmatch(urlsplit(queue_url).hostname or "") is not None


def region_of(queue_url: str) -> str | None:
    """The region that is part of an AWS host name."""
    host = urlsplit(queue_url).hostname or ""
    if not is_aws(queue_url):
        return None
    match = _IN_HOST.search(host)
    if match is not None:
        return match[1] or match[2]
    return _NO_REGION if host == "queue.amazonaws.com" else None  # an old name of that region


def endpoint_of(queue_url: str) -> str | None:
    """The endpoint for boto3, if the region does not determine it: for servers that are not AWS,
    and for private endpoints in a VPC."""
    parts = urlsplit(queue_url)
    if is_aws(queue_url) and ".vpce." not in (parts.hostname or ""):
        return None
    return f"{parts.scheme}://{parts.netloc}"


def client_for(queue_url: str, region: str | None = None) -> Any:
    """A boto3 client for a queue. Its calls end within about 30 seconds."""
    try:
        from boto3.session import Session  # pyright: ignore[reportMissingTypeStubs]
        from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise DestinationError(
            "SQS as a destination needs boto3, which is not installed: pip install boto3"
        ) from error
    session: Any = Session()
    region = region_of(queue_url) or region or session.region_name
    if region is None and not is_aws(queue_url):
        region = _NO_REGION
    if region is None:
        raise DestinationError(
            f"the region of {queue_url} is not known: add ?region=… to the address, or set "
            "AWS_DEFAULT_REGION where the relay runs"
        )
    config: Any = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
    )
    return session.client(
        "sqs", region_name=region, endpoint_url=endpoint_of(queue_url), config=config
    )
