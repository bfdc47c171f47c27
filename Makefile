# Two commands matter: `make run` and `make test`. Both set up everything they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEV := $(VENV)/.installed
CLI := $(VENV)/.installed-cli

.PHONY: run demo test check bench mutants faults fuzz ways model servers clean

run: $(CLI)              ## an SQS on 127.0.0.1:9324, on embedded SQLite; prints how to try it
	@$(BIN)/fairlead serve --log text --db sqlite:///fairlead.db

demo: $(CLI)             ## the product in 20 seconds, on embedded SQLite
	@$(BIN)/fairlead demo

test: $(DEV) servers     ## everything: PostgreSQL and MariaDB servers are started privately
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 4 --dist worksteal

check: $(DEV)            ## a minute: format, lint, types, layers, unit tests, SQLite
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	FAIRLEAD_WAYS=embedded FAIRLEAD_MODEL_EXAMPLES=30 $(BIN)/python -m pytest -n 2 -q tests/unit tests/conformance tests/model \
		-m "not programs" -k "not postgres and not mysql"

bench: $(DEV) servers    ## one table per backend, next to the raw floor of the same run
	$(BIN)/python -m bench

mutants: $(DEV)          ## deliberate bugs, each of which the model test must catch
	$(BIN)/python -m tests.model.mutants

faults: $(DEV) servers   ## kill -9 and contention, a thousand rounds each: FAIRLEAD_FAULTS=1000
	FAIRLEAD_FAULTS=$${FAIRLEAD_FAULTS:-1000} $(BIN)/python -m pytest tests/faults -s

fuzz: $(DEV) servers     ## the SQS server's wire, ten minutes: FAIRLEAD_FUZZ=600 seconds
	FAIRLEAD_FUZZ=$${FAIRLEAD_FUZZ:-600} $(BIN)/python -m pytest tests/server/test_wire_fuzz.py -s

ways: $(DEV) servers     ## the conformance suite by every way in; `make test` thins out the rarest
	FAIRLEAD_WAYS=all $(BIN)/python -m pytest -n 2 tests/conformance

model: $(DEV) servers    ## the model test, longer: FAIRLEAD_MODEL_EXAMPLES=2000 make model
	FAIRLEAD_MODEL_EXAMPLES=$${FAIRLEAD_MODEL_EXAMPLES:-500} $(BIN)/python -m pytest tests/model

servers:
	@sh tests/install-servers.sh

# One environment, two sizes: running the product needs five packages, testing it some forty.
$(CLI): pyproject.toml | $(BIN)/pip
	@echo "Installing Fairlead, its command line and its server into $(VENV) …"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[cli,server]'
	@touch $(CLI)

$(DEV): pyproject.toml | $(BIN)/pip
	@echo "Installing Fairlead, its drivers and the tools of its tests into $(VENV); takes a minute …"
	@$(BIN)/python -m pip install -q --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install -q --group dev -e .
	@touch $(DEV) $(CLI)

$(BIN)/pip:
	@echo "Making the virtual environment $(VENV) with $(PYTHON) …"
	@$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist
