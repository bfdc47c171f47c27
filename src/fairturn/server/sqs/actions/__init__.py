"""The 23 SQS actions, one function each, by subject."""
