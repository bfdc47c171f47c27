"""One queue under a race, what was done to it, and what must be true of it afterwards."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from fairlead.backends.base import COUNTERS_OFFSET, PEEK_ROW
from fairlead.values import COUNTERS
from tests.races.session import Event, Session, item

NOW = 1_800_000_000_000_000
HOUR = 3_600_000_000
SECOND = 1_000_000
_numbers = itertools.count(1)
