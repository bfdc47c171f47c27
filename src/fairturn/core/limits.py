"""Bounds. Sizes are bytes of UTF-8; times are microseconds.

The bounds and defaults of a setting or option are in its line (settings.py, sends.py).
"""

NAME_BYTES = 255  # queue, channel, key, type: every database can index this
HEADERS_BYTES = 3 * 1024 * 1024  # 1 MiB of attributes, as SQS allows, in the longest form of JSON
MEMO_BYTES = 1024 * 1024
RESULT_BYTES = 1024 * 1024
META_BYTES = 64 * 1024  # of a queue
REMEMBERED_BYTES = 64 * 1024  # of a value that a queue remembers
ERROR_CHARS = 10_000  # longer error texts are cut
NOTE_CHARS = 1_000  # of a progress note
PROGRESS = 1_000_000  # a progress of 1.0
RECEIVE_MAX = 10_000  # messages in one receive
PRIORITY_MAX = 2**31 - 2  # both signs; the negated value is stored
VERSION_MAX = 2**31 - 1
WEIGHT_MAX = 1_000
COUNT_MAX = 2**31 - 1  # max_attempts, max_concurrency, max_size, burst

SECOND = 1_000_000
DURATION_MAX = 100 * 366 * 86_400 * SECOND  # a hundred years
TIME_MAX = 253_402_300_799 * SECOND  # the end of year 9999: the last datetime

HISTORY_RETENTION = 86_400 * SECOND  # of the counters per minute; older ones go into the totals
EVENT_RETENTION = 86_400 * SECOND
GROUP_RETENTION = 86_400 * SECOND  # of closed groups
LANE_RETENTION = 7 * 86_400 * SECOND  # how long a retired lane is checked for late commits

SCHEDULE_BYTES = 230  # a schedule's name, which is part of its messages' keys
EVERY_MIN = SECOND  # the shortest interval of a schedule
TICK_GRACE = 60 * SECOND  # a due time counts as missed after this
BACKFILL = 1_000  # messages of missed due times in one transaction
SCHEDULE_RETRY = 10 * SECOND  # after a message that could not be sent

SWEEP = 1_000  # the most rows that the sweep of one receive promotes, recovers or expires
SCAN = 256  # the most closed channels that one receive passes
