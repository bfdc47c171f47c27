# Two commands matter: `make run` and `make test`. Both set up everything they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test check bench mutants model servers clean

run: $(STAMP)            ## the product in 20 seconds, on embedded SQLite
	@$(BIN)/fairlead demo

test: $(STAMP) servers   ## everything: PostgreSQL and MariaDB servers are started privately
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2

check: $(STAMP)          ## under a minute: format, lint, types, layers, unit tests, SQLite
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 -q tests/unit tests/conformance tests/model -k "not postgresql and not mysql"

bench: $(STAMP) servers  ## one table per backend, next to the raw floor of the same run
	$(BIN)/python -m bench

mutants: $(STAMP)        ## deliberate bugs, each of which the model test must catch
	$(BIN)/python -m tests.model.mutants

model: $(STAMP) servers  ## the model test, longer: FAIRLEAD_MODEL_EXAMPLES=2000 make model
	FAIRLEAD_MODEL_EXAMPLES=$${FAIRLEAD_MODEL_EXAMPLES:-500} $(BIN)/python -m pytest tests/model

servers:
	@sh tests/install-servers.sh

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade "pip>=25.1"
	$(BIN)/python -m pip install -q --group dev -e .
	@touch $(STAMP)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist
