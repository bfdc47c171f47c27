"""HTTP: turns bytes into requests to the service and results into bytes, within limits."""
