"""Every bound in one place. Widths are bytes of UTF-8; times are microseconds."""

NAME_BYTES = 255  # queue, channel, key, type: what every backend can index
BODY_BYTES = 16 * 1024 * 1024  # default max_body; MySQL needs max_allowed_packet above twice a body
HEADERS_BYTES = 3 * 1024 * 1024  # 1 MiB of attributes, as SQS allows, in JSON at its longest
MEMO_BYTES = 1024 * 1024
RESULT_BYTES = 1024 * 1024
META_BYTES = 64 * 1024  # of a queue
REMEMBERED_BYTES = 64 * 1024  # of a value that a queue remembers
ERROR_CHARS = 10_000  # longer error texts are cut, and say so
NOTE_CHARS = 1_000  # of a progress note
PROGRESS = 1_000_000  # all of it
RECEIVE_MAX = 10_000  # messages in one receive
PRIORITY_MAX = 2**31 - 2  # both signs; the negated value is stored
VERSION_MAX = 2**31 - 1
WEIGHT_MAX = 1_000
COUNT_MAX = 2**31 - 1  # max_attempts, max_concurrency, max_size, burst

SECOND = 1_000_000
DURATION_MAX = 100 * 366 * 86_400 * SECOND  # a hundred years
TIME_MAX = 253_402_300_799 * SECOND  # the end of year 9999: the last a datetime can show

LEASE = 30 * SECOND
ONCE_FOR = 300 * SECOND  # how long the name of a send is remembered
MAX_ATTEMPTS = 5
RESULT_RETENTION = 86_400 * SECOND  # how long complete() keeps a message where retention is 0
FAILURE_RETENTION = 7 * 86_400 * SECOND
HISTORY_RETENTION = 86_400 * SECOND  # per-minute counters; older minutes fold into the totals
EVENT_RETENTION = 86_400 * SECOND
GROUP_RETENTION = 86_400 * SECOND  # of closed ones
LANE_RETENTION = 7 * 86_400 * SECOND  # how long a purged lane is swept for late commits

SCHEDULE_BYTES = 230  # a schedule's name, which is part of its messages' keys
EVERY_MIN = SECOND  # the shortest interval of a schedule
TICK_GRACE = 60 * SECOND  # how late a tick may be before it counts as missed
BACKFILL = 1_000  # missed ticks that one transaction sends
SCHEDULE_RETRY = 10 * SECOND  # after a tick that could not be sent

SWEEP = 1_000  # rows one receive promotes, recovers or expires on its way
SCAN = 256  # closed channels one receive walks past before it answers
