"""Running an operation: connections, retries, the long poll, waiting for changes."""
