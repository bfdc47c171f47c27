"""All limits of the SQS door. Sizes are bytes, times are seconds."""

# Limits on a request before it is parsed, against hostile clients. A message of 1 MiB is up to
# 3 MiB on the wire (percent-encoded, or non-ASCII text as \uXXXX), so a full batch still fits.
REQUEST_BYTES = 4 * 1024 * 1024
QUERY_BYTES = REQUEST_BYTES  # of a GET's query string; HTTP servers allow far less
DEPTH = 32  # of JSON; the deepest request of the table has 7
VALUES = 20_000  # strings, brackets and commas of a JSON text; a full batch has some 2,000
FIELDS = 10_000  # parameters of a Query request; a full batch has some 500
KEY_PARTS = 8  # SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringListValue.1 has 7
INDEX_DIGITS = 6

MESSAGE_BYTES = 1024 * 1024  # the default and the maximum, also of a whole batch
MESSAGE_BYTES_LEAST = 1024
BATCH = 10
BATCH_ID_CHARS = 80
QUEUE_NAME_CHARS = 80
DELAY = 900
VISIBILITY = 43_200
WAIT = 20
RECEIVE = 10
MAX_RESULTS = 1_000
MOVE_RESULTS = 10
MOVE_RATE = 500
RETENTION_LEAST = 60
RETENTION = 1_209_600
KMS_REUSE_LEAST = 60
KMS_REUSE = 86_400
YEARS = 100 * 365 * 86_400  # the limit of delay, visibility and retention with --extended
MESSAGE_ATTRIBUTES = 10
ATTRIBUTE_NAME_CHARS = 256
DATA_TYPE_CHARS = 256
NUMBER_DIGITS = 38
GROUP_ID_CHARS = 128
TAGS = 50
TAG_KEY_CHARS = 128
TAG_VALUE_CHARS = 256
ACTIONS_PER_PERMISSION = 7
