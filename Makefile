PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PICTURES := lineage owner_decisions launchpad report jobs_200 lineage_200

.PHONY: setup lock check lint unit test bench chaos soak demo ui docs images clean

setup: $(INSTALLED)

# Installs what the lock names and nothing else, and the project itself in place.
$(INSTALLED): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=… to one")'
	@echo 'Installing the packages of requirements.lock into $(VENV): a minute or two'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --only-binary :all: --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

# Renews the lock; needs uv. No package host is written into it.
lock:
	uv pip compile --universal --generate-hashes --no-emit-index-url --python-version 3.11 \
	  --all-extras --group dev --upgrade pyproject.toml --output-file requirements.lock

PYTEST := $(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

# What one runs before each commit, under a minute: no search engine, no browser, no run in a process of its own.
check: lint unit

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/ty check
	$(BIN)/lint-imports

unit: setup
	$(PYTEST) -m "not slow"

# Everything; the last lines say what was skipped, and why.
test: lint
	$(PYTEST)

# Tries much more at random than `make test`: most of an hour.
chaos: setup
	$(BIN)/pytest tests/chaos tests/ownership --chaos 100 --hypothesis-profile thorough --timeout 7200
	INSTANCES=20 $(BIN)/pytest tests/end_to_end/test_workers.py

# Lets a company live through 60 days in one home: under ten minutes on two cores.
soak: setup
	$(BIN)/pytest tests/chaos/test_soak.py --soak-days 60 --timeout 3600

# Measures and writes bench/results.md: under five minutes; LONG=1 at full sizes, an hour and a half.
bench: setup
	$(BIN)/python -m bench $(if $(LONG),--long) $(ONLY)

demo: setup
	$(BIN)/asset-owners sandbox demo

ui: setup
	$(BIN)/asset-owners sandbox ui

# Writes the pages that are generated from the code; a test tells when they are stale.
docs: setup
	$(BIN)/python -c 'from resources.store.dictionary import data_dictionary as page; print(page(), end="")' \
	  > docs/data_dictionary.md
	$(BIN)/python -c 'from resources.settings.schema import instance_schema_text as page; print(page(), end="")' \
	  > docs/instance.schema.json
	$(BIN)/python -c 'from sandbox.cookbook import refresh; refresh()'

# Takes the pictures of the documents anew, among all that the browser tests take (in var/screenshots, to look at).
images: setup
	SCREENSHOTS=var/screenshots $(BIN)/pytest tests/end_to_end/test_dagster_ui.py
	SCREENSHOTS=var/screenshots INSTANCES=200 $(BIN)/pytest tests/end_to_end/test_many_instances.py
	mkdir -p docs/images
	cp $(PICTURES:%=var/screenshots/%.png) docs/images

clean:
	rm -rf $(VENV) var
