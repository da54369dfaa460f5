# `make help` lists the targets that matter, `make help-all` all of them by section.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
VENV := .venv
PY := PYTHONPATH=e2e $(VENV)/bin/python
PYTEST := $(PY) -m pytest
# Unit tests are spread over the cores, and one more since some wait. Of the quick stories those of two clusters run
# at the same time: they wait more than they work.
WORKERS ?= $(shell expr $$(nproc) + 1)
CLUSTERS ?= 2
# The stories of the main job, and a sample of the controller's crashes. Restarts, outages, all crash points,
# installation and the Job controller's own stories take longer than `make test` may: `make test-long` runs everything.
E2E_QUICK := e2e/test_main_job.py e2e/test_examples.py e2e/test_cli.py e2e/test_bad_input.py \
	e2e/test_identity.py e2e/test_webhook.py e2e/test_policies.py e2e/test_policies_pods.py e2e/test_policies_nodes.py \
	e2e/test_crash.py

# Go and others look for their caches there. Services and some runners of CI have it not set.
ifeq ($(HOME),)
export HOME := $(shell unset HOME; cd ~ && pwd)
endif

# What the user has set for other Python projects is not for this one.
export PIP_USER := 0
unexport PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX

# Where a clone was moved or copied, or the machine's Python is another now, its programs are another's.
MADE_OF = { pwd -P; readlink -f $(VENV)/bin/python; }
ifneq ($(wildcard $(VENV)/.done),)
$(shell [ ! -s $(VENV)/.done ] || { [ -x $(VENV)/bin/python ] && [ "$$(cat $(VENV)/.done)" = "$$($(MADE_OF))" ]; } \
	|| rm -f $(VENV)/.done $(VENV)/bin/python)
endif

# --- help ------------------------------------------------------------------------------------
.PHONY: help help-all
MATTER := demo test check up down clean
SHOW := {sub(/:.*/, "", $$1); printf "  make %-18s %s\n", $$1, $$2}
help: ## the few targets that matter
	@for target in $(MATTER); do \
		grep -hE "^$$target:.*## " $(MAKEFILE_LIST) | awk -F ':.*## ' '$(SHOW)'; \
	done
	@echo "  make help-all           all targets, by section"

help-all: ## all targets, by section
	@awk -F ':.*## ' '/^# --- / {gsub(/^# -+ | -+$$/, ""); printf "\n%s\n", $$0} /^[a-z0-9-]+:.*## / $(SHOW)' \
		$(firstword $(MAKEFILE_LIST))

# --- set-up ----------------------------------------------------------------------------------
.PHONY: venv toolchain native native-release image
venv: $(VENV)/.done ## install the Python packages of the lock file into .venv
# Two that begin at once in one clone wait for each other: this file is read once more with the lock held.
ifndef VENV_LOCK_HELD
$(VENV)/.done: requirements-dev.lock pyproject.toml
	@flock $(VENV).lock $(MAKE) -s VENV_LOCK_HELD=yes $@
else
$(VENV)/.done: requirements-dev.lock pyproject.toml
	@echo "==> Python packages into $(VENV) (about 25 s)"
	@e2e/venv.sh $(PYTHON) $(VENV)
	@# Each module is compiled when it is first imported: half of them never are.
	@$(VENV)/bin/python -m pip install -q --disable-pip-version-check --no-compile --require-hashes -r requirements-dev.lock
	@$(VENV)/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e . 2>&1 | grep -v -e Warning -e '^ *$$' || true
	@$(VENV)/bin/python -c 'import vc_egpu, vc_egpu_node'
	@$(MADE_OF) > $@
endif

toolchain: venv ## build Kubernetes, etcd, containerd and others, once, into your cache folder
	@$(PY) -m localcluster build

.PHONY: metrics-page
metrics-page: venv ## write docs/metrics.md from the table of metrics
	@$(PY) -m vc_egpu.metrics.page > docs/metrics.md
.PHONY: boards
boards: venv ## write the Grafana boards of manifests/monitoring from their code
	@$(PY) -m boards manifests/monitoring/boards
.PHONY: board-previews
board-previews: root toolchain-long native image ## draw the boards of a cluster on which the alerts' faults were made (some 20 minutes)
	VC_EGPU_PREVIEWS=$(or $(FOLDER),docs/images) $(PYTEST) e2e/test_alerts.py

native: venv ## build the isolation library for this machine, and the fake drivers for tests
	@$(MAKE) -s -j $(shell nproc) -C device-plugin/native PYTHON=../../$(VENV)/bin/python

native-release: venv ## build the isolation library as it is shipped: glibc 2.17, x86-64 and arm64
	@$(MAKE) -s -C device-plugin/native PYTHON=../../$(VENV)/bin/python native-release

image: toolchain ## build our image as an OCI archive, without Docker
	@$(PY) -m image.build

# --- the local cluster -----------------------------------------------------------------------
.PHONY: root up down status
# First of all that starts nodes: not after ten minutes of building.
root:
	@test "$$(id -u)" = 0 || { echo "error: real nodes need root (without: make check test-unit, or the local cluster with --rootless)" >&2; exit 1; }
up: root toolchain ## start a Kubernetes of two real nodes on this machine (NAME=local)
	@$(PY) -m localcluster up --name $(or $(NAME),local)
down: venv ## stop a local cluster and remove its data (NAME=local)
	@$(PY) -m localcluster down --name $(or $(NAME),local)
status: venv ## list the local clusters that run, with their kubeconfig
	@$(PY) -m localcluster status

# --- the two commands ------------------------------------------------------------------------
.PHONY: demo test
demo: root toolchain native image ## tell the main job step by step on a real cluster (KEEP=1 leaves the cluster up)
	@$(PY) -m demo $(if $(KEEP),--keep)

# The toolchain first: unit tests of the manifests are skipped without its kubectl.
test: root check toolchain test-unit test-e2e test-slice ## run everything that CI runs: linters, unit tests, stories on a real cluster

# --- tests -----------------------------------------------------------------------------------
.PHONY: check test-unit test-e2e test-long e2e-volcano
check: venv ## run the linters, and check types, language and the order of rooms
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy vc-egpu device-plugin e2e
	$(VENV)/bin/mypy tests  # by itself: both have a conftest.py
	$(PYTEST) -q tests/unit/test_language.py tests/unit/test_house.py tests/unit/test_pure_core.py

.PHONY: house
house: venv ## show the structure of the code: rooms, imports, lines, private names that tests touch
	@PYTHONPATH=tests $(VENV)/bin/python -m house

test-unit: venv native ## run the tests that need no cluster
	$(PYTEST) tests -n $(WORKERS) -m "not long and not calm"
	@# These judge how soon the machine wakes programs: nothing else may run. What happens outside a virtual machine
	@# disturbs them all the same, so such a test has failed when it failed three times.
	$(PYTEST) tests/unit/native -m "calm and not long" --reruns 2

test-e2e: root toolchain native image ## run the quick stories on a real cluster
	@# Workers that are interrupted have no time to end their clusters.
	trap '$(PY) -m localcluster gc >/dev/null' EXIT; \
	$(PYTEST) $(E2E_QUICK) -v -m "not long and not volcano" --durations 15 -n $(CLUSTERS) --dist loadscope

# The other stories, a tenth for each commit: ten commits in a row run all that fits. SLICE=n runs slice n again.
# How long stories take stands in e2e/slices/durations.json, which `make test-long` writes.
.PHONY: test-slice
test-slice: root toolchain native image ## run a tenth of the longer stories, chosen by the number of commits (SLICE=n: slice n)
	trap '$(PY) -m localcluster gc >/dev/null' EXIT; \
	$(PYTEST) e2e $(E2E_QUICK:%=--ignore=%) --slice $(or $(SLICE),commit) -v -m "not volcano" --durations 15 -n $(CLUSTERS) --dist loadscope

.PHONY: toolchain-long
toolchain-long: venv ## build what `make toolchain` builds, and Prometheus, Alertmanager, Helm and Telegraf for some tests
	@$(PY) -m localcluster build --with prometheus --with alertmanager --with helm --with telegraf

.PHONY: stream-parts
stream-parts: venv ## fetch Kafka and Flink for tests of the stream, into your cache folder (1 GB; Java and Maven)
	@PYTHON=$(VENV)/bin/python tests/stream/parts/fetch.sh "$${VC_EGPU_CACHE:-$$HOME/.cache/vc-egpu}/stream"

# Operators whose Jobs are gangs. They are large, so `make test-long` leaves out the stories of those that are not built.
OPERATORS := training-operator kuberay jobset trainer kueue
.PHONY: toolchain-operators
toolchain-operators: venv ## build operators of others, for `make test-operators` and `make test-long`: docs/local-cluster.md
	@$(PY) -m localcluster build $(OPERATORS:%=--with %)

.PHONY: test-operators
test-operators: root toolchain toolchain-operators native image ## run the stories of Jobs of other operators, which are built first
	VC_EGPU_LONG=1 $(PYTEST) e2e/test_operators.py -v -rs --durations 15

test-long: root toolchain-long stream-parts native image ## run all tests: also all crash points, 10,000 oracle cases, 20 identity rounds
	VC_EGPU_LONG=1 $(PYTEST) tests -n $(WORKERS) -m "not calm"
	VC_EGPU_LONG=1 $(PYTEST) tests/unit/native -m calm --reruns 2
	VC_EGPU_DURATIONS=e2e/slices/durations.json VC_EGPU_LONG=1 $(PYTEST) e2e -m "not volcano" --timeout 1800 -rs

# What another version may take otherwise: manifests, policies, the kubelet's side. VC_EGPU_KUBERNETES names another
# version to any target, VC_EGPU_KUBELET one for the nodes alone, VC_EGPU_CONTAINERD theirs: docs/local-cluster.md.
E2E_OLDEST := e2e/test_policies.py e2e/test_policies_pods.py e2e/test_policies_nodes.py e2e/test_webhook.py e2e/test_bad_input.py \
	e2e/test_main_job.py e2e/test_cli.py \
	e2e/test_examples.py e2e/test_identity.py e2e/test_node_agent.py e2e/test_jobs_ours.py e2e/test_install.py e2e/test_isolation.py \
	e2e/test_other_plugins.py e2e/test_older_containerd.py
.PHONY: e2e-oldest
e2e-oldest: export VC_EGPU_KUBERNETES ?= 1.30
e2e-oldest: root toolchain native image ## run the stories that a version may break, on the oldest Kubernetes that we support
	$(PYTEST) $(E2E_OLDEST) -v -m "not long and not volcano" --durations 15

e2e-volcano: root toolchain native image ## run the stories on unmodified Volcano (VOLCANO_BIN_DIR, VOLCANO_CRD_DIR)
	@test -n "$${VOLCANO_BIN_DIR:-}" -a -n "$${VOLCANO_CRD_DIR:-}" || { echo "set VOLCANO_BIN_DIR (vc-scheduler, vc-controller-manager) and VOLCANO_CRD_DIR"; exit 2; }
	$(PYTEST) e2e -m volcano

.PHONY: soak
soak: root toolchain native image ## let random users and faults loose on a real cluster (MINUTES=10 SEED=1 ISOLATED=1 VOLCANO=own KEEP=1)
	@$(PY) -m soak --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) $(if $(ISOLATED),--isolated) $(if $(VOLCANO),--volcano $(VOLCANO)) $(if $(KEEP),--keep)

.PHONY: test-gpu
test-gpu: venv native ## run the tests for a real NVIDIA GPU that nothing else uses (VC_EGPU_GPU_ON_FAKE=1: on the fake driver)
	@VC_EGPU_GPU=1 $(PYTEST) tests/gpu/test_first_minutes.py -v -x -n 0 || exit 1; \
	failed=0; \
	$(if $(VC_EGPU_GPU_ON_FAKE),,VC_EGPU_REAL_CUDA=1) $(PYTEST) tests/contract/cuda -n 1 --timeout 60 --timeout-method thread || failed=1; \
	VC_EGPU_GPU=1 $(PYTEST) tests/gpu --ignore tests/gpu/test_first_minutes.py -v --durations 10 || failed=1; \
	exit $$failed

# --- benchmarks: each prints one JSON object as its last line --------------------------------
.PHONY: bench-admission bench-agent bench-webhook bench-decide bench-takeover bench-jobs
bench-admission: toolchain ## measure submit to bind of 5,000 pods on 1,000 simulated nodes
	@$(PY) e2e/bench_admission.py
.PHONY: bench-endurance
bench-endurance: toolchain ## measure hours of load on a full cluster (NODES=5000 PODS=20000 MINUTES=120 GANGS=60, by the minute)
	@$(PY) e2e/bench_endurance.py $(if $(NODES),--nodes $(NODES)) $(if $(PODS),--pods $(PODS)) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(GANGS),--gangs-per-minute $(GANGS))
bench-agent: root toolchain native image ## measure the agent: PreStartContainer, memory and CPU
	@$(PY) e2e/bench_agent.py
bench-webhook: venv ## measure the webhook: reviews per second
	@$(PY) e2e/bench_webhook.py
bench-decide: venv ## measure the decision on 5,000 nodes (BINPACK=ours)
	@$(PY) e2e/bench_decide.py $(if $(BINPACK),--binpack $(BINPACK))
.PHONY: soak-sim
soak-sim: venv ## let the decision live through a million events of a busy cluster on a virtual clock
	@$(PY) e2e/soak_sim.py
.PHONY: bench-metrics
bench-metrics: venv ## measure the scrapes of a leader of 5,000 nodes, and what they cost its decisions
	@$(PY) e2e/bench_metrics.py
.PHONY: bench-view
bench-view: venv ## measure one answer of /v1/view on 5,000 nodes, for one that sees all and for one namespace
	@$(PY) e2e/bench_view.py
bench-takeover: venv ## measure a new leader on 5,000 nodes with 140,000 pods: seconds and memory
	@$(PY) e2e/bench_takeover.py
bench-jobs: venv ## measure large Jobs: memory of the Job controller, and what others wait for
	@$(PY) e2e/bench_jobs.py
.PHONY: bench-jobs-api
bench-jobs-api: venv ## measure Jobs over HTTP on one core: requests per second, and times at 200 per second
	@PYTHONPATH=tests:e2e $(VENV)/bin/python tests/bench_jobs_api.py
.PHONY: bench-openb bench-churn
bench-openb: venv ## measure placement on the openb traces in OPENB_DIR (TRACES, SEEDS, POLICIES, VARIANT=memory|gangs)
	@$(PY) e2e/bench_openb.py
bench-churn: venv ## measure placement on the openb traces with departures (OPENB_DIR, also LOADS, PART, HOURS)
	@$(PY) e2e/bench_churn.py
.PHONY: bench-day
bench-day: venv ## play a day of inference and training in the simulator, with and without sharing (SEEDS, NODES, HOURS, OPENB_DIR)
	@$(PY) e2e/bench_day.py
.PHONY: bench-reports
bench-reports: venv ## measure the report of 2,000 services over 90 days, from Parquet (DAYS, SERVICES, ROUNDS)
	@$(PY) e2e/bench_reports.py
.PHONY: bench-reading
bench-reading: venv ## measure the reading of 200 services over 30 days from a Prometheus, killed half-way (DAYS, SERVICES)
	@$(PY) e2e/bench_reading.py
.PHONY: bench-defrag
bench-defrag: venv ## measure moves on the full openb cluster (OPENB_DIR, also TRACES, SEEDS, POLICIES, RULES, PART)
	@$(PY) e2e/bench_defrag.py
.PHONY: bench-isolation
bench-isolation: venv native ## measure shares, classes and overhead of the isolation library, on the fake card
	@$(PY) tests/bench_isolation.py
.PHONY: bench-page
bench-page: venv ## measure the page at 8,000 and 40,000 cards in a Chromium: opening, updates, memory
	@PYTHONPATH=tests:e2e $(VENV)/bin/python tests/bench_page.py
.PHONY: bench-sites
bench-sites: venv ## measure the page of 20 clusters of 500 nodes in a Chromium: opening, memory
	@PYTHONPATH=tests:e2e $(VENV)/bin/python tests/bench_sites.py
.PHONY: bench-gpu
bench-gpu: venv native ## measure the isolation library on a real NVIDIA GPU, against the driver's own time-slicing
	@$(PY) tests/bench_gpu.py

# --- what is shipped -------------------------------------------------------------------------
.PHONY: sbom image-all sign krew
image-all: venv ## build the image for x86-64 and arm64 as one OCI index: build/vc-egpu.tar
	@$(PY) -m image.build --machine all --output build/vc-egpu.tar
sbom: venv ## write build/sbom.json: all Debian and Python packages of the image, and check their licences
	@$(PY) -m supply --image --output build/sbom.json
sign: image-all ## sign build/vc-egpu.tar (KEY=file, PEM, ECDSA P-256) into build/vc-egpu.sig.tar
	@test -n "$(KEY)" || { echo "set KEY=file of the private key" >&2; exit 2; }
	@$(PY) -m supply.sign build/vc-egpu.tar --key "$(KEY)" --output build/vc-egpu.sig.tar
krew: venv ## write archives and manifest of kubectl egpu for krew into build/krew (URI=https://...)
	@test -n "$(URI)" || { echo "set URI=https://... to where the archives will be" >&2; exit 2; }
	@$(PY) -m supply.krew --output build/krew --uri "$(URI)"

# --- generated files -------------------------------------------------------------------------
.PHONY: page-tools
page-tools: ## fetch what only tests of the page need, into your cache folder (npm): axe-core, typescript
	@npm install --no-audit --no-fund --prefix "$${XDG_CACHE_HOME:-$$HOME/.cache}/vc-egpu/npm" axe-core@4.14.1 typescript@7.0.2
.PHONY: lock clean driver-symbols page-pictures
page-pictures: venv ## make the pictures of docs/page.md again, of a made-up cluster, in a Chromium
	@PYTHONPATH=tests:e2e $(VENV)/bin/python -m unit.page.pictures
.PHONY: chart tenants security
chart: toolchain ## write the Helm chart from the kustomize manifests
	@$(PY) -m chart
tenants: venv ## render the tenants of queues/tenants for GitOps
	@$(VENV)/bin/kubectl-egpu tenant render -f queues/tenants --models manifests/base/config/models.yaml --into queues/rendered
security: venv ## write the table of attempts into docs/security.md
	@$(PY) -m attacks.page
driver-symbols: venv ## write the table of all entry points of the CUDA driver, from the newest headers
	PYTHONPATH=tests $(VENV)/bin/python -m symbols.headers
	PYTHONPATH=tests $(VENV)/bin/python -m symbols.table
LOCK_FLAGS := -q --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-annotate --no-header --strip-extras --allow-unsafe
lock: venv ## write the lock files from pyproject.toml
	@$(VENV)/bin/python -m pip install -q pip-tools
	$(VENV)/bin/pip-compile $(LOCK_FLAGS) --extra dev -o requirements-dev.lock pyproject.toml
	$(VENV)/bin/pip-compile $(LOCK_FLAGS) -c requirements-dev.lock -o requirements.lock pyproject.toml

clean: ## remove what was built in this folder (your cache folder stays)
	rm -rf $(VENV) $(VENV).lock build .mypy_cache .ruff_cache .pytest_cache .hypothesis device-plugin/native/build
