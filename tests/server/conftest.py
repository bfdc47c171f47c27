"""Fixtures of the servers' tests."""

from __future__ import annotations

import pytest

from fairlead.server.sigv4 import SignedRequest
from tests.server.signing import FORMS


@pytest.fixture(params=FORMS)
def signed(request: pytest.FixtureRequest) -> SignedRequest:
    return FORMS[request.param]()
