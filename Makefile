# Two commands matter: `make run` and `make test`. Both set up everything they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEV := $(VENV)/.installed
CLI := $(VENV)/.installed-cli
# More workers than two cores: many tests wait for something.
PYTEST := $(BIN)/python -m pytest -n 4 --dist worksteal
# Hundreds of processes import the same modules: compile each once, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run demo test test-deep check static conformance generate bench bench-compare mutants faults matrix failovers campaign fuzz model \
	schema-dump servers clean

run: $(CLI)              ## an SQS on 127.0.0.1:9324, on embedded SQLite; prints how to try it
	@$(BIN)/fairturn serve --log text --db sqlite:///fairturn.db

demo: $(CLI)             ## the product in 20 seconds, on embedded SQLite
	@$(BIN)/fairturn demo

test: $(DEV) servers static  ## every behaviour on every backend; servers are started privately
	$(PYTEST) -m "not deep"

test-deep: $(DEV) servers  ## the rest: all variants, longer models, races, faults, mutants
	$(PYTEST) -m deep
	$(BIN)/python -m tests.model.mutants
	$(BIN)/python -m tests.postgres_versions 14 18 -- -m "not deep"

check: $(DEV) static     ## a minute, without servers: static checks, unit tests, SQLite
	$(PYTEST) -q -m "not deep and not server and not programs" tests/unit tests/conformance tests/model

static: $(DEV)           ## generated files, format, lint, types, layers
	$(BIN)/python tools/generate_sync.py --check
	$(BIN)/python -m tools.generate_tables --check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

conformance: $(DEV) servers  ## the conformance suite in every variant: for another version of a database
	$(PYTEST) tests/conformance

generate: $(DEV)         ## the sync side of the API from the async side; the tables of settings
	$(BIN)/python tools/generate_sync.py
	$(BIN)/python -m tools.generate_tables

bench: $(DEV) servers    ## one table per backend, next to the raw floor of the same run
	$(BIN)/python -m bench

bench-compare: $(DEV) servers  ## this tree beside an older commit, in turns: OLD=REF
	$(BIN)/python -m bench.compare $(OLD)

mutants: $(DEV)          ## deliberate bugs, each of which the model test must catch
	$(BIN)/python -m tests.model.mutants

faults: $(DEV) servers   ## kill -9 and contention, a thousand rounds each: FAIRTURN_FAULTS=1000
	FAIRTURN_FAULTS=$${FAIRTURN_FAULTS:-1000} $(BIN)/python -m pytest tests/faults -s

matrix: $(DEV) servers   ## the conformance suite and the plans on PostgreSQL 14 to 18 (from npm)
	$(BIN)/python -m tests.postgres_versions

failovers: $(DEV) servers ## a Patroni cluster changes its leader 20 times, twice: FAIRTURN_FAILOVERS=20
	FAIRTURN_FAILOVERS=$${FAIRTURN_FAILOVERS:-20} $(BIN)/python -m pytest tests/clusters/test_patroni.py -s

# CAMPAIGN_BACKENDS: any of sqlite postgresql mysql (all three without it), patroni, galera.
# CAMPAIGN_RESTORE=1: a backup is taken and put back under the clients (not on clusters).
campaign: $(DEV) servers ## faults of every kind on real processes: CAMPAIGN_MINUTES=10 CAMPAIGN_SEED=… CAMPAIGN_BACKENDS="patroni …"
	@CAMPAIGN_MINUTES="$(CAMPAIGN_MINUTES)" CAMPAIGN_SEED="$(CAMPAIGN_SEED)" CAMPAIGN_BACKENDS="$(CAMPAIGN_BACKENDS)" \
		CAMPAIGN_RESTORE="$(CAMPAIGN_RESTORE)" \
		$(BIN)/python -m tests.campaign

fuzz: $(DEV) servers     ## the SQS server's wire, ten minutes: FAIRTURN_FUZZ=600 seconds
	FAIRTURN_FUZZ=$${FAIRTURN_FUZZ:-600} $(BIN)/python -m pytest tests/server/test_wire_fuzz.py -s

model: $(DEV) servers    ## the model test, longer: FAIRTURN_MODEL_EXAMPLES=2000 make model
	FAIRTURN_MODEL_EXAMPLES=$${FAIRTURN_MODEL_EXAMPLES:-500} $(BIN)/python -m pytest tests/model -m "not deep"

schema-dump: $(DEV) servers ## tests/schema/*.txt anew, after a change of tables or routines
	$(BIN)/python -m tests.schema.dump

servers:
	@sh tests/install-servers.sh

# One environment, two sizes: running the product needs five packages, testing it some forty.
$(CLI): pyproject.toml | $(BIN)/pip
	@echo "Installing Fairturn, its command line and its server into $(VENV) …"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[cli,server]'
	@touch $(CLI)

$(DEV): pyproject.toml | $(BIN)/pip
	@echo "Installing Fairturn, its drivers and the tools of its tests into $(VENV); takes a minute …"
	@$(BIN)/python -m pip install -q --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install -q --group dev -e .
	@touch $(DEV) $(CLI)

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Fairturn needs Python 3.11 or later; $(PYTHON) is " \
		+ sys.version.split()[0] + ". Name another one: make $(MAKECMDGOALS) PYTHON=python3.12")'
	@echo "Making the virtual environment $(VENV) with $(PYTHON) …"
	@$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist
