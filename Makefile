# Targets that users call are listed by `make help`.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
PY := PYTHONPATH=e2e $(VENV)/bin/python
.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

.PHONY: venv
venv: $(VENV)/.done ## Python packages from the lock file into .venv
$(VENV)/.done: requirements-dev.lock pyproject.toml
	@echo "==> Python packages into $(VENV) (about 40 s)"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(VENV)/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: check
check: venv ## linters and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
