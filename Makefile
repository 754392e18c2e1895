# The commands people run are the commands CI runs. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory
# Tests start a few hundred processes: without bytecode each compiles every source again.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= python3
VENV := .venv
TRAIN_VENV := .venv-train
DOCS_VENV := .venv-docs
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
TRAIN_STAMP := $(TRAIN_VENV)/.setup-done
DOCS_STAMP := $(DOCS_VENV)/.setup-done
LOCK := requirements/lock.txt
TRAIN_LOCK := requirements/train.txt
DOCS_LOCK := requirements/docs.txt
RELEASED := protos/released
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/spotline/__init__.py)

# Every static check, in the order of what is quickest to mend. `make check` runs them all and
# names the ones that failed; each is a target of its own.
CHECKS := format lint types imports protos-check buf-lint buf-breaking docker-lint

.PHONY: help
help: ## list the commands
	@sed -n 's/^\([a-z][a-z-]*\):.*## /\1\t/p' Makefile | while IFS=$$'\t' read -r name what; do \
	    printf '  make %-16s %s\n' "$$name" "$$what"; done

# --- set up -------------------------------------------------------------------------------------

.PHONY: setup
setup: $(STAMP) ## create .venv from the hash-checked lock, with spotline in it
	@:

$(STAMP): $(LOCK) pyproject.toml tools/setup.sh
	@PYTHON="$(PYTHON)" tools/setup.sh "$(VENV)" "$(LOCK)"
	@touch $@

.PHONY: setup-train
setup-train: $(TRAIN_STAMP) ## create .venv-train: spotline[train] and torch, about 1 GB (TORCH=... for another build)
	@:

$(TRAIN_STAMP): $(TRAIN_LOCK) pyproject.toml tools/setup.sh tools/setup_train.sh
	@PYTHON="$(PYTHON)" TORCH="$(TORCH)" tools/setup_train.sh "$(TRAIN_VENV)" "$(TRAIN_LOCK)"
	@touch $@

.PHONY: setup-docs
setup-docs: $(DOCS_STAMP) ## create .venv-docs: what builds the documents as a site, about 100 MB
	@:

$(DOCS_STAMP): $(DOCS_LOCK) tools/setup_docs.sh
	@PYTHON="$(PYTHON)" tools/setup_docs.sh "$(DOCS_VENV)" "$(DOCS_LOCK)"
	@touch $@

.PHONY: lock
lock: ## resolve pyproject.toml into requirements/ (make lock UPGRADE=1 moves the pins)
	PYTHON="$(PYTHON)" tools/lock.sh $(if $(UPGRADE),--upgrade)

# --- use ----------------------------------------------------------------------------------------

.PHONY: demo
demo: setup ## run the main job end to end, and show what it saved
	@$(BIN)/spotline demo

.PHONY: kernels
kernels: setup ## compile the planners now: a minute that the first start would take
	@$(BIN)/python -c "from spotline.bootstrap.planners import compile_planners; compile_planners()"

.PHONY: kernels-of-tests
kernels-of-tests: kernels ## compile what tests alone call, too: they find it compiled
	PYTHONPATH=src:. $(BIN)/python -m tests.fakes.shared_kernels

.PHONY: train-demo
train-demo: setup-train ## train four small models for real, interrupted and resumed: ten minutes (ARGS=...)
	@$(TRAIN_VENV)/bin/spotline train-demo $(ARGS)

.PHONY: docs
docs: setup setup-docs ## build the documents into site/, links, anchors and commands checked (open site/index.html)
	$(BIN)/python -m pytest -n0 -q tests/architecture/test_documents.py tests/architecture/test_documented_commands.py
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/python -m mkdocs build --strict --clean
	$(DOCS_VENV)/bin/python -m tools.documents.built site

.PHONY: test
test: setup ## the whole suite but the slow and e2e tests (ARGS=... for pytest; PLANTS=1: and a planted bug of each family)
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder \
		$(if $(PLANTS),-m "not e2e and not slow and not train and not web") $(ARGS)

.PHONY: test-slow
test-slow: setup ## the tests that take minutes, and the laws with other examples
	$(BIN)/python -m pytest -m "slow or e2e" --timeout 1200 $(ARGS)
	SPOTLINE_DEEP=1 $(BIN)/python -m pytest --timeout 1200 $$(grep -rlE --include="test_*.py" "(tests.depth|hypothesis) import" tests) $(ARGS)

.PHONY: test-plants
test-plants: setup ## every planted bug of the fault machine is caught (ARGS=... for pytest)
	$(BIN)/python -m pytest -n auto -m plants tests/unit/bench/faults $(ARGS)

# Families of faults on real processes and a real nats-server, one file or more for each.
FAULTS = killed_services bad_weather fallback rough_cloud poisoned_system log_losses store_losses \
	up_after_a_loss doubted_market flood system_health health_monitor training_killed \
	faust_killed_server stores_of_v0_1_0 store_of_another_market
.PHONY: test-faults
test-faults: setup ## faults on real processes and a real server, in minutes (ARGS=... for pytest)
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not e2e and not train" --timeout 1200 \
		$(FAULTS:%=tests/integration/test_%.py) $(ARGS)

.PHONY: test-train
test-train: setup-train ## spotline.trainer with torch, Hugging Face, Lightning and Accelerate themselves
	$(TRAIN_VENV)/bin/python -m pytest --confcutdir tests/train -m train -n0 --timeout 600 tests/train $(ARGS)

.PHONY: test-web
test-web: setup ## every page in Chromium, which it says how to get (SHORT=1: the main pages; ARGS=... for pytest)
	@tools/web_ready.sh
	$(if $(SHORT),SPOTLINE_WEB_SHORT=1) $(BIN)/python -m pytest -n0 -m web tests/web $(ARGS)

.PHONY: test-images
test-images: setup ## build the images, use them with Docker or Podman, take all down (deploy/README.md)
	PYTHONPATH=src $(BIN)/python -m tools.images $(ARGS)

# --- check --------------------------------------------------------------------------------------

.PHONY: check
check: setup ## every static check; says which failed and how to run it again
	@tools/run_checks.sh $(CHECKS)

.PHONY: fmt
fmt: setup ## format and apply the safe lint fixes
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	$(BIN)/buf format -w

.PHONY: format
format: setup ## check the format of Python and protobuf files
	$(BIN)/ruff format --check .
	$(BIN)/buf format --diff --exit-code

.PHONY: lint
lint: setup ## ruff
	$(BIN)/ruff check .

.PHONY: types
types: setup ## mypy --strict
	$(BIN)/mypy

.PHONY: imports
imports: setup ## the import contracts of pyproject.toml
	$(BIN)/lint-imports --no-logo

.PHONY: protos
protos: setup ## generate src/spotline/api/v1 and docs/api from protos/
	$(BIN)/python tools/generate_protos.py src
	$(BIN)/python -m tools.document_protos

.PHONY: protos-check
protos-check: setup ## is the committed generated code what protos/ gives?
	$(BIN)/python tools/generate_protos.py --check src

.PHONY: buf-lint
buf-lint: setup ## buf's STANDARD rules
	$(BIN)/buf lint

.PHONY: buf-breaking
buf-breaking: setup ## against the last released contract
	@last=$$(printf '%s\n' $(wildcard $(RELEASED)/v*.binpb) | sort -V | tail -n 1); \
	if [ -z "$$last" ]; then \
	    echo "nothing released yet: make release-protos writes $(RELEASED)/v$(VERSION).binpb"; \
	else \
	    echo "$(BIN)/buf breaking --against $$last"; \
	    $(BIN)/buf breaking --against "$$last"; \
	fi

.PHONY: release-protos
release-protos: buf-lint buf-breaking ## keep today's contract as that of the current version
	@mkdir -p $(RELEASED); image=$(RELEASED)/v$(VERSION).binpb; \
	if [ -e "$$image" ] && [ -z "$(FORCE)" ]; then \
	    echo "$$image exists: raise __version__ first (FORCE=1 for a version not yet published)" >&2; exit 1; \
	fi; \
	$(BIN)/buf build --exclude-source-info -o "$$image"; echo "wrote $$image"

.PHONY: docker-lint
docker-lint: setup ## hadolint on every Dockerfile; the structure of the compose files; images by digest
	$(BIN)/python -m tools.supply.pin --check
	$(BIN)/hadolint $$(find deploy services -name Dockerfile -o -name '*.Dockerfile' | sort)
	$(BIN)/python tools/check_compose.py docker-compose.yml deploy/compose/*.yml
	$(BIN)/python -m pytest -n0 -q tests/integration/test_deployed_broker.py

.PHONY: house
house: setup ## count code lines, long files and functions, wide signatures, names that mean two things
	@$(BIN)/python tools/house_metrics.py .

.PHONY: pin-images
pin-images: setup ## ask registries what the tags of base images stand for now, and name them by digest
	PYTHONPATH=src $(BIN)/python -m tools.supply.pin

.PHONY: sbom
sbom: setup ## write the bills of materials (CycloneDX) of what is deployed to dist/sbom
	PYTHONPATH=src $(BIN)/python -m tools.supply.sbom

.PHONY: wheel
wheel: setup ## build the wheel, install it in a clean environment, call it
	@PYTHON="$(PYTHON)" tools/check_wheel.sh "$(CURDIR)/$(BIN)/python"

.PHONY: goldens-check
goldens-check: setup ## do the public commands still answer what tests/data/golden/runs holds?
	$(BIN)/python tools/goldens.py --check $(CASES)

.PHONY: goldens
goldens: setup ## make these goldens again: only where decisions are meant to change
	$(BIN)/python tools/goldens.py --write $(CASES)

# --- tidy ---------------------------------------------------------------------------------------

.PHONY: clean
clean: ## remove what was built; keep .venv and its like
	rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
	find src services tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## remove .venv, .venv-train and .venv-docs too
	rm -rf $(VENV) $(TRAIN_VENV) $(DOCS_VENV)
