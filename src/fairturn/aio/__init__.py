"""The async doors. fairturn.sync is generated from them: run `make generate` after a change."""
