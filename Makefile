# make demo   from nothing to the console on a live cluster of virtual nodes
# make test   every capability once, with real programs, about 10 minutes on two cores; `make thorough` the rest, `make fast` less
# make check  style, types and layers
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
EXTRA_PYTEST ?=
WHEELS ?=
# Slow tests and screens wait more than they compute: three processes a core, up to six.
CORES := $(shell getconf _NPROCESSORS_ONLN)
WORKERS ?= $(shell n=$$((3 * $(CORES))); echo $$((n < 6 ? n : 6)))
# Compiled modules are a third of what short commands and each worker cost.
unexport PYTHONDONTWRITEBYTECODE

# Runs the tests of a tier. A few that fail may have starved beside the others: they are run once more, each alone.
define tested
rm -rf $(FAILED)
$(PYTEST) -n $(WORKERS) -m "$(1)" -o cache_dir=$(FAILED) $(EXTRA_PYTEST) || { \
  [ $$? = 1 ] && [ "$$(grep -c : $(FAILED)/v/cache/lastfailed)" -le $(STARVED) ] || exit 1; \
  echo "make: what FAILED beside others, each alone:"; \
  $(PYTEST) --last-failed --last-failed-no-failures none -m "$(1)" -o cache_dir=$(FAILED) $(EXTRA_PYTEST); }
endef
FAILED := .pytest_cache/tier
# More than so many is no accident.
STARVED := 5

.PHONY: help setup dev demo test thorough rdma fast check bench house sbom update man pictures clean

help:
	@sed -n 's/^# //p' $(firstword $(MAKEFILE_LIST)); \
	echo "also: setup dev rdma bench house sbom update man pictures clean"

setup: $(VENV)/.setup
dev: $(VENV)/.dev

$(BIN)/python:
	@python=$$(tests/support/python.sh); \
	echo "making $(VENV) with $$python"; \
	"$$python" -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "make: this Python cannot make virtual environments; install its venv package (Debian: python3-venv)" >&2; exit 1; }

# Everything is installed from the lock (requirements/), without network if WHEELS names a folder that has it.
$(VENV)/.setup: pyproject.toml $(wildcard requirements/*.txt) | $(BIN)/python
	@echo "installing Rankdeck, what it needs and Open MPI into $(VENV) (some 100 MB; a minute or two) ..."
	@WHEELS="$(WHEELS)" $(BIN)/python tests/support/install.py default mpi .
	@touch $@

$(VENV)/.dev: $(VENV)/.setup
	@echo "installing what the tests need into $(VENV) ..."
	@WHEELS="$(WHEELS)" $(BIN)/python tests/support/install.py default mpi gnmi pkcs11 fido dev .
	@touch $@

demo: setup
	@echo "starting three virtual nodes; the same again: $(BIN)/rankdeck demo"
	@$(BIN)/rankdeck demo

# Real programs for the slow tests: where they cannot be had, those tests skip by name. The last lines say
# what was skipped and why, and which tests needed a second run (only those that run real programs get one).
test: dev
	tests/support/packages.sh
	tests/support/torch.sh $(BIN)/python
	$(call tested,not thorough)

# Other runtimes, launchers, faults and accidents: what tests mark as left out.
thorough: dev
	tests/support/packages.sh
	tests/support/torch.sh $(BIN)/python
	$(call tested,thorough)

# Real RDMA in two virtual machines, one test after the other: they need the cores. `make thorough` skips these.
rdma: export RANKDECK_RDMA_LAB := 1
rdma: dev
	tests/support/packages.sh
	$(PYTEST) -rs $(EXTRA_PYTEST) tests/integration/test_rdma_*.py tests/integration/test_two_kernels.py

# Two processes a core: some of these wait, and each process loads the same modules: none of what starts real programs.
fast: dev
	$(PYTEST) -n $$((2 * $(CORES))) -m "not slow and not long" $(EXTRA_PYTEST) tests/{unit,contracts,ui,hygiene}

check: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

bench: dev
	$(BIN)/python -m benchmarks

# Modules, lines, circles of imports, and how many functions and files a line, a sample and a cancel pass.
house: dev
	$(BIN)/python -m benchmarks house

# What an installation is made of (CycloneDX).
sbom: dev
	$(BIN)/python -m tests.support.sbom dist/sbom.json

# Renews the lock (requirements/): the newest versions of everything, then the checks with them.
update: dev
	$(BIN)/python -m tests.support.lock
	$(MAKE) check fast

# The screens that tests/ui/test_pictures.py compares, as they look now: see what `git diff` says before a commit.
pictures: dev
	RANKDECK_RENEW=1 $(PYTEST) -q -n $(CORES) tests/ui/test_pictures.py
	git diff --stat tests/ui/pictures

# The manual page, from the options.
man: dev
	$(BIN)/python -m tests.support.manual docs/rankdeck.1
	$(BIN)/python -m tests.support.alert_rules docs/prometheus/alerts.yaml

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
