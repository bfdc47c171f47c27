"""One small file per kind of connection: how to send a statement and read an error on it."""
