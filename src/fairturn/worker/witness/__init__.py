"""The witness: a second process that settles a worker's messages when the worker dies."""
