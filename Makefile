PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PICTURES := lineage owner_decisions plan launchpad report machine jobs_200 lineage_200

# Where it is set, each of pytest's workers would compile every module, and rewrite every test, again each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup lock check lint ruff types imports unit lowest test bench chaos demo ui docs site images clean

# What plain `make` does, so that nothing is installed unasked.
help: ## print these lines
	@sed -nE 's/^([a-z]+):.*## (.*)/make \1	\2/p' Makefile | expand -t 16

# A service with another user, or a read-only root, writes no bytecode: without any, each process would spend 5 s on what
# it imports. So it is written here; of the project itself after each update.
setup: $(INSTALLED) .env ## install the program and its packages into .venv
	@$(BIN)/python -m compileall -q asset_owners.py assets_defs ownership pipelines reports resources sandbox

# Installs what the lock names and nothing else, and the project itself in place. pip brings uv, which takes seconds
# for the rest where pip takes a minute; but pip does it where uv fails, which does not know pip's settings of a mirror.
# uv trusts its own authorities unless it is told to ask the system, which knows those of a company.
LOCKED := pip install --quiet --no-deps --require-hashes --only-binary :all: --requirement
$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=… to one")'
	@echo 'Downloading Python packages into $(VENV): 500 MB, 1.5 GB on disk, a minute'
	@$(PYTHON) -m venv $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock | $(BIN)/python -m $(LOCKED) /dev/stdin
	@VIRTUAL_ENV=$(VENV) UV_SYSTEM_CERTS=1 $(BIN)/uv $(LOCKED) requirements.lock || $(BIN)/python -m $(LOCKED) requirements.lock
	@echo 'Installing asset-owners itself in place, and compiling'
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib
	@touch $@

# Where Dagster's own programs, such as `dg dev`, find the home, unless DAGSTER_HOME says so already.
.env: | $(INSTALLED)
	@ASSET_OWNERS_HOME= DAGSTER_HOME= $(BIN)/asset-owners prepare
	@echo 'DAGSTER_HOME="$${DAGSTER_HOME:-$(CURDIR)/var/dagster}"' > $@

# Renews both locks, of a checkout and of an image. No package host is written into them.
COMPILE := $(BIN)/uv pip compile pyproject.toml --universal --generate-hashes --no-emit-index-url --no-annotate --python-version 3.11
DEPLOYED := --extra postgres --extra s3 --extra celery --extra kubernetes --group build
lock: setup ## renew both locks of packages
	@echo 'Resolving the newest versions that pyproject.toml allows, and their hashes'
	$(COMPILE) --all-extras --group dev --group dg --upgrade --output-file requirements.lock
	$(COMPILE) $(DEPLOYED) --constraint requirements.lock --output-file deploy/requirements.lock

# Three workers keep two cores busy where tests wait for processes and pages.
WORKERS := --numprocesses 3 --dist loadfile --no-loadscope-reorder
PYTEST := $(BIN)/pytest $(WORKERS)

# What one runs before each commit, under a minute: no service, no job, no command on what a job stored.
check: lint unit ## lint, types and the tests that need no service: a minute

# What uses one core goes beside what uses the other.
lint: setup ## style, types, import contracts and the site
	@$(MAKE) --jobs 2 --output-sync --no-print-directory ruff imports types site

ruff:
	@echo 'Style and faults (ruff)'
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types:
	@echo 'Types (ty)'
	@$(BIN)/ty check

imports:
	@echo 'Which package may import which (import-linter)'
	@$(BIN)/lint-imports

unit: setup ## the tests that need no service
	@echo 'Tests that need no service and execute no job: under a minute'
	@$(PYTEST) -m "not slow and not jobs" --hypothesis-profile quick

# Everything but what is nightly (`make chaos`); the last lines say what was skipped, and why.
test: lint ## all tests but the nightly ones: eight minutes
	@echo 'All tests but the nightly ones: about eight minutes on two cores'
	@$(PYTEST)

# The tests that need no service, with the lowest versions that pyproject.toml allows.
LOWEST := .venv-lowest
IN_LOWEST := VIRTUAL_ENV=$(LOWEST) $(BIN)/uv pip
lowest: setup ## the unit tests with the lowest versions
	@echo 'The tests that need no service, with the lowest versions, in .venv-lowest'
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip compile --quiet pyproject.toml --all-extras --resolution lowest-direct --output-file $(LOWEST)/lowest.txt
	$(IN_LOWEST) install --quiet --requirement $(LOWEST)/lowest.txt --editable .
	$(IN_LOWEST) install --quiet --constraint $(LOWEST)/lowest.txt --group dev
	$(LOWEST)/bin/pytest $(WORKERS) -m "not slow" --hypothesis-profile quick

NEWEST ?= python3.13

# What takes too long for `make test`, and much more at random: a night on two cores. Then the tests that need no
# service on the newest Python that the packages support, where the machine has it.
chaos: setup ## the nightly tests
	@echo 'Nightly tests: a night on two cores'
	$(PYTEST) -m nightly --ignore tests/chaos
	$(BIN)/pytest -m "nightly or not nightly" tests/chaos tests/ownership --chaos 100 --hypothesis-profile thorough --timeout 7200
	! command -v $(NEWEST) || $(MAKE) unit PYTHON=$(NEWEST) VENV=.venv-newest

# Measures and writes bench/results.md: under five minutes; LONG=1 at full sizes, an hour.
bench: setup ## measure, into bench/results.md
	@echo 'Measuring, into bench/results.md'
	$(BIN)/python -m bench $(if $(LONG),--long) $(ONLY)

demo: setup ## see it: a made-up company, a plan and its writing
	@echo 'A search engine (100 MB, 0.2 GB on disk, downloaded once), an inventory and a made-up company'
	@$(BIN)/asset-owners sandbox demo

ui: setup ## the Dagster UI on that company
	@echo 'The Dagster UI on a made-up company, until Ctrl-C'
	@$(BIN)/asset-owners sandbox ui

# Writes the pages that are generated from the code; a test tells when they are stale.
docs: setup ## write the generated pages
	@echo 'Writing the pages that are generated from the code'
	@for page in settings_page examples promises_page cookbook; do \
	  $(BIN)/python -c "from docs.make.$$page import refresh; refresh()" || exit; done

# Builds the pages of docs/ as a site, in var/site; a link that leads nowhere is an error.
site: setup ## build docs/ as a site in var/site
	@echo 'Building the pages of docs/ into var/site'
	@$(BIN)/mkdocs build --strict --quiet

# Takes the pictures of the documents anew, among all that the browser tests take (in var/screenshots, to look at).
images: setup ## take the pictures of the documents anew
	@echo 'Taking the pictures of the documents with a browser: some minutes'
	SCREENSHOTS=var/screenshots INSTANCES=200 $(BIN)/pytest -m "slow or nightly" tests/end_to_end/test_dagster_ui.py
	mkdir -p docs/images
	cp $(PICTURES:%=var/screenshots/%.png) docs/images

clean: ## delete .venv, var and .env
	rm -rf $(VENV) var .env
