# make demo    an agent answers in the deployed app, offline: make demo Q="..." [MODEL=any-litellm-name] [KILL=1: its worker is killed three times]
# make dev     the deployed app on this machine, until Ctrl-C: make dev [MODEL=any-litellm-name]
# make run     an example agent in this process alone: make run Q="..." [MODEL=any-litellm-name]
# make test    lint, types, import rules, tests: what must be green before a commit
# make slow    the tests that take long; CI runs both
# make torture the long random walks, of which CI takes the first seeds: some four hours
# make direct  the suites of the deployed app on stages without Kinesis: half an hour
# make setup   .venv with all that the others need; does nothing when it is up to date
# make coverage  the share of lines and branches that make test runs; fails below the floor
# make dist    the wheel, in dist
# make release VERSION=1.2.3: a commit and a tag, to be pushed
# make format  let ruff format the code and fix what it can
# make docs    the site of the documentation, in build/site
# make mutants  plant faults in a copy of the code, and show which tests catch each: MUTANTS=--rooms-only takes minutes
# make bench   the measurements of bench/, one after the other; bench/README.md says what each is

Q ?=
MODEL ?=
KILL ?=
MUTANTS ?=
DIRECT ?=
VERSION ?=
# Percent of lines and branches.
FLOOR := 87
# A worker that crashes ends the run: pytest-xdist hangs where it replaces one under loadgroup (its issue 1323).
# Reordering by xdist would start the largest groups last: it counts tests, not seconds.
PYTEST ?= -q -n auto --dist loadgroup --no-loadscope-reorder --max-worker-restart=0
AGENT := examples/docs_agent/agent.py:librarian

# The first of these that is 3.11 or later; `make PYTHON=... setup` chooses another.
PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,\
  $(shell $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
BIN := .venv/bin
STAMP := .venv/.up-to-date
# uv installs them in seconds. It does not read pip's configuration, so it is given pip's index. If uv fails, pip does it in
# minutes.
LOCKED := --constraint requirements.lock --editable '.[dev]'
INDEX = $${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}}

export QUESTION := $(value Q)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without its bytecode each of the thousands of processes that tests start compiles the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo dev run test bytecode slow coverage dist release torture direct mutants check types style format docs bench clean
.DEFAULT_GOAL := setup

setup: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	@test -n "$(PYTHON)" || { echo "Helix needs Python 3.11 or newer: install it, or name it with PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || { echo "making .venv with $(PYTHON)"; $(PYTHON) -m venv .venv; }
	@echo "installing the locked requirements into .venv (1.4 GB)"
	@$(BIN)/python -m pip install --quiet --quiet --constraint requirements.lock uv
	@UV_DEFAULT_INDEX="$(INDEX)" VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet $(LOCKED) || $(BIN)/python -m pip install --quiet --quiet $(LOCKED)
	@touch $(STAMP)

demo: setup
	@$(BIN)/helix demo "$$QUESTION" $(if $(MODEL),--model $(MODEL)) $(if $(KILL),--kill)
	@$(if $(KILL),:,echo && echo "See the same run survive three killed workers: make demo KILL=1 (helix demo --kill)")

dev: setup
	@$(BIN)/helix dev $(if $(MODEL),--model $(MODEL))

run: setup
	@$(BIN)/helix run $(AGENT) "$${QUESTION:-What happens to a run whose process dies?}" $(if $(MODEL),--model $(MODEL))

test: setup
	@$(MAKE) --no-print-directory --output-sync --jobs 3 types style bytecode
	$(BIN)/python -m pytest $(PYTEST) -m "not slow"

check: setup
	@$(MAKE) --no-print-directory --output-sync --jobs 2 types style

types:
	$(BIN)/mypy

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

# In a fresh clone each worker would compile every module and rewrite its assertions. This does it once, beside mypy.
bytecode:
	@test -d tests/unit/__pycache__ || { mkdir -p build && \
	  $(BIN)/python -m pytest -q --collect-only >build/collected.txt 2>&1 || { tail -n 40 build/collected.txt; exit 1; }; }

slow: setup
	$(BIN)/python -m pytest $(PYTEST) -m slow

coverage: setup
	$(BIN)/python -m pytest $(PYTEST) -m "not slow" --cov --cov-report=term --cov-report=html:build/coverage --cov-fail-under=$(FLOOR)

dist: setup
	rm -rf dist
	UV_DEFAULT_INDEX="$(INDEX)" $(BIN)/uv build --quiet --wheel --out-dir dist

release:
	$(PYTHON) .ci/release.py $(VERSION)

torture: setup
	$(BIN)/python -m tests.torture

direct: setup
	$(BIN)/python -m tests.direct $(DIRECT)

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

bench: setup
	@failed=; for file in bench/*.py; do begun=$$(date +%s); echo "== $$file"; \
	  $(BIN)/python "$$file" || failed="$$failed $$file"; echo "== $$file: $$(($$(date +%s) - begun)) s"; done; \
	  test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

mutants: setup
	$(BIN)/python -m tests.mutants $(MUTANTS)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build cdk.out node_modules
