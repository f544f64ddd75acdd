# `make run` and `make test` work on a fresh machine that has python3, python3-venv and make.
# Each environment carries the hash of what it was made from, so that a second run installs nothing.

PYTHON ?= python3
VENV := .venv
PIP = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-input
COMPILE = $(VENV)/bin/uv pip compile --quiet --no-header --no-annotate --generate-hashes --python-version 3.11
LINUX := --python-platform x86_64-manylinux_2_28
hash = $(shell cat $(1) | sha256sum | cut -c1-16)

RUNTIME := $(VENV)/.runtime-$(call hash,pyproject.toml requirements.lock)
TESTING := $(VENV)/.testing-$(call hash,pyproject.toml requirements.lock requirements-test.lock)

AXE := build/axe-core/axe.min.js

.PHONY: run test redis promtool chromium check bench llama-index node-clients lock audit clean

run: $(RUNTIME)
	@exec $(VENV)/bin/sluice up

# Where the engine cannot run (status 3), all tests but its own still do.
test: $(TESTING)
	@command -v redis-server >/dev/null || $(MAKE) --no-print-directory redis
	@command -v promtool >/dev/null || $(MAKE) --no-print-directory promtool
	@command -v chromium >/dev/null && [ -f $(AXE) ] || $(MAKE) --no-print-directory chromium
	@$(VENV)/bin/python -m backend.install; status=$$?; \
	if [ $$status -eq 0 ]; then exec $(VENV)/bin/python -m pytest; fi; \
	if [ $$status -ne 3 ]; then exit $$status; fi; \
	echo "The engine's own tests are left out."; exec $(VENV)/bin/python -m pytest -m "not engine"

# The tests of shared limits start a redis-server of their own.
redis:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing redis-server, which the tests start ..."; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends redis-server >/dev/null; \
	else \
	  echo "redis-server is missing; install it with: sudo apt-get install redis-server" >&2; exit 1; \
	fi

# Prometheus and its promtool try the alert rules and every query of the dashboards. Where they cannot be had, these
# tests are skipped.
promtool:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing prometheus, which the tests start ..."; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >/dev/null; \
	else \
	  echo "promtool is missing, and the tests of dashboards and alerts are skipped; install it with: sudo apt-get install prometheus" >&2; \
	fi

# A real browser opens the admin port's page, and axe-core looks whether everybody can use it. Where these cannot be had,
# these tests are skipped.
chromium:
	@if command -v chromium >/dev/null; then :; elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing chromium, which the tests of the page start ..."; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-noto-cjk >/dev/null \
	    || echo "chromium could not be installed; the tests of the page in a browser are skipped." >&2; \
	else \
	  echo "chromium is missing, and the tests of the page in a browser are skipped; install it with: sudo apt-get install chromium" >&2; \
	fi
	@if [ ! -f $(AXE) ] && command -v npm >/dev/null; then \
	  mkdir -p build/axe-core && npm pack --silent --pack-destination build/axe-core axe-core@4.14.1 >/dev/null && \
	  tar -xzf build/axe-core/axe-core-4.14.1.tgz -C build/axe-core --strip-components 1 package/axe.min.js; \
	fi || true

check: $(TESTING)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

bench: $(TESTING)
	$(VENV)/bin/python -m benchmarks

# LlamaIndex fits only an older OpenAI SDK than the one that is tested here, so it has an environment of its own (0.3 GB).
# Where that is missing, the tests of its example are skipped.
llama-index: $(VENV)/bin/python
	@$(PYTHON) -m venv .venv-llama-index
	@.venv-llama-index/bin/pip install --quiet --disable-pip-version-check --require-hashes -r examples/llama_index.txt

# Codex, Claude Code and the SDKs for Node, which the tests run through the gateway (0.8 GB). Where they are missing, those
# tests are skipped.
node-clients:
	@command -v npm >/dev/null || { echo "npm is missing; install Node.js 20 or newer" >&2; exit 1; }
	@mkdir -p .node-clients && npm install --prefix .node-clients --silent --no-audit --no-fund --no-package-lock \
	  @openai/codex@0.171.0 @anthropic-ai/claude-code@2.1.197 openai@6.49.0 ai@6.0.326 @ai-sdk/openai@3.0.141 zod@4.6.7

# Keeps the versions that are pinned and still fit; `make lock UPGRADE=--upgrade` takes the newest.
lock: $(TESTING)
	$(PIP) uv
	$(COMPILE) $(UPGRADE) --universal pyproject.toml -o requirements.lock
	$(COMPILE) $(UPGRADE) deploy/build.in -o deploy/build.txt
	$(COMPILE) $(UPGRADE) deploy/audit.in -o deploy/audit.txt
	$(COMPILE) $(UPGRADE) --universal --extra test -c requirements.lock pyproject.toml -o requirements-test.lock
	$(COMPILE) $(UPGRADE) --universal --extra otlp -c requirements-test.lock pyproject.toml -o deploy/image.txt
	$(COMPILE) $(UPGRADE) examples/llama_index.in -o examples/llama_index.txt
	$(COMPILE) $(UPGRADE) $(LINUX) --excludes backend/engine-excludes.txt --excludes backend/engine-cpu-excludes.txt \
	  backend/engine-cpu.in -o backend/engine-cpu.txt
	$(COMPILE) $(UPGRADE) $(LINUX) --excludes backend/engine-excludes.txt backend/engine-cuda.in -o backend/engine-cuda.txt

# Known weaknesses of the image's locked versions, and the list of what is in it (CycloneDX), into build/. It asks a public
# database, so it is no part of the checks; what that does not know is named as not audited.
audit: $(VENV)/bin/python
	@$(PYTHON) -m venv build/audit
	@build/audit/bin/pip install --quiet --disable-pip-version-check --require-hashes -r deploy/audit.txt
	build/audit/bin/cyclonedx-py requirements deploy/image.txt --output-reproducible -o build/sbom.json
	build/audit/bin/pip-audit --disable-pip --require-hashes -r deploy/image.txt

clean:
	rm -rf $(VENV) .venv-engine .venv-llama-index .node-clients build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing; install it with: apt-get install python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(RUNTIME): | $(VENV)/bin/python
	@echo "Installing the gateway into $(VENV) ..."
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps -e .
	@rm -f $(VENV)/.runtime-*; touch $@

$(TESTING): $(RUNTIME)
	@echo "Installing what the tests need into $(VENV) ..."
	@$(PIP) --require-hashes -r requirements-test.lock
	@rm -f $(VENV)/.testing-*; touch $@
