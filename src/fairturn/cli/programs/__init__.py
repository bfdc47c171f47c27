"""Commands that keep running: worker, serve, relay, top, bench."""
