# Everything a person runs. Each target does its own set-up; `make help` lists them.
SHELL := /bin/sh
PORT ?= 9092
DATA_DIR ?= data
BASE ?= python:3.11-slim-bookworm
IMAGE ?= kafscale-spark
ROLES := frontdoor produce fetch coordinator admin upkeep
BIN := .venv/bin
MEMBERS := $(wildcard libs/*/src) $(wildcard services/*/src) console/src cli/src spark/lake/src spark/upkeep/src
PYTEST := $(BIN)/pytest -q
UNITS := $(patsubst %/tests,unit-of-%,$(wildcard libs/*/tests services/*/tests console/tests cli/tests spark/lake/tests spark/upkeep/tests)) unit-of-e2e/checkers unit-of-bench/tests
JOBS ?= $(shell echo $$(($$(nproc) + 1)))
E2E_PROCESSES ?= 3
ROUNDS ?= 3
SECONDS ?= 600
INSTANCES ?= 2
TWO_TRIES := tools/two_tries.sh

.PHONY: $(UNITS) help up test check fmt lint types contracts unit spark-test spark-types spark-unit images compose-test k8s-test compose-footprint spark-image spark-image-test gen gen-check e2e e2e-long chaos upgrade-test ecosystem release release-test drill quotas tutorial fuzz bench bench-goals thin-pipe scale model model-small simulate mutants mutation deep lock vendor setup setup-dev clean login-timing security-page clients-secured access-outage

help: ## what each target does
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 18

setup:
	@tools/setup.sh run
setup-dev:
	@tools/setup.sh dev

up: setup ## start KafScale on this machine (PORT=9092, DATA_DIR=data)
	@$(BIN)/kafscale up --port "$(PORT)" --data-dir "$(DATA_DIR)"

test: check spark-test e2e ## the gate: check, then the tests under Spark, then end to end

check: setup-dev ## format, lint, types, import contracts, unit and property tests
	@$(MAKE) --no-print-directory -j$(JOBS) --output-sync=target gen-check fmt-check lint types contracts model-small unit

fmt: setup-dev ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix -q .
fmt-check:
	$(BIN)/ruff format --check -q .
lint:
	$(BIN)/ruff check -q .
	@test -z "$$(find libs services cli spark -path '*/src/kafscale/__init__.py')" || { echo 'a src/kafscale/__init__.py breaks the namespace of all members'; exit 1; }
	@$(BIN)/python tools/module_sizes.py
	@$(BIN)/python tools/one_clock.py
	@$(BIN)/python tools/mutants.py --fit
	@$(BIN)/python -m tools.vendor --check
types:
	$(BIN)/mypy $(MEMBERS) tools e2e bench docs/tutorial/produce.py
contracts:
	$(BIN)/lint-imports --no-cache > .contracts.log || { cat .contracts.log; exit 1; }
	@rm -f .contracts.log
	@$(BIN)/python -m tools.import_circles
model-small:
	$(BIN)/python -m tools.bundle_model
	$(BIN)/python -m tools.transaction_model
unit: $(UNITS) # each member in a process of its own: none may lean on what another has set up
$(UNITS): unit-of-%:
	@echo "unit tests of $*"; $(TWO_TRIES) $* -m 'not deep'

spark-test: ## the data source for Spark, on a Spark of this machine (needs Java 17; makes spark/engine/.venv)
	@tools/setup.sh spark-dev
	@$(MAKE) --no-print-directory -j$(JOBS) --output-sync=target spark-types spark-unit
spark-types:
	cd spark/engine && .venv/bin/mypy src tests ../../bench/lake_spark.py
spark-unit:
	cd spark/engine && ../../$(TWO_TRIES) tests

images: ## the images of the services, by the Docker engine that runs (BASE=…, BUILD_FLAGS='--network host')
	for service in $(ROLES) console; do docker build $(BUILD_FLAGS) --build-arg BASE=$(BASE) --build-arg SERVICE=$$service -t kafscale-$$service . || exit 1; done
compose-test: setup-dev ## the images and compose.yaml for real, on an engine of its own where none runs (as root; ten minutes)
	e2e/containers/run.sh $(PYTEST) e2e/scenarios/test_compose.py e2e/scenarios/test_secure_compose.py -m compose
k8s-test: setup-dev ## the manifests for real, in a Kubernetes of one node that is built here (as root, in namespaces of its own; a quarter of an hour, and once twenty minutes to build)
	e2e/kubernetes/run.sh $(PYTEST) --log-cli-level info e2e/scenarios/kubernetes -m k8s
compose-footprint: setup-dev ## what each service's container costs before anybody asks it for anything (as root; eight minutes)
	e2e/containers/run.sh .venv/bin/python -m bench.footprint_images
spark-image: ## the image of Spark's jobs, by the Docker engine that runs (BASE=…, IMAGE=…, BUILD_FLAGS='--network host')
	docker build $(BUILD_FLAGS) --build-arg BASE=$(BASE) -f spark/Dockerfile -t $(IMAGE) .
spark-image-test: setup-dev spark-image ## and jobs in its containers, against a KafScale on this machine
	IMAGE=$(IMAGE) $(PYTEST) e2e -m image

gen: setup-dev ## remake generated code: proto, wire schema, docs tables, rendered manifests
	$(BIN)/python -m tools.gen_rpc
	$(BIN)/python -m tools.gen_wire
	$(BIN)/python -m tools.gen_docs
	$(BIN)/python -m tools.gen_k8s_rendered
	$(BIN)/python -m bench.page
gen-check:
	$(BIN)/python -m tools.gen_rpc --check
	$(BIN)/python -m tools.gen_wire --check
	$(BIN)/python -m tools.gen_docs --check
	$(BIN)/python -m bench.page --check

e2e: setup-dev ## real clients against real processes (needs Java, Go, Node for their part; E2E_PROCESSES=3)
	$(TWO_TRIES) e2e/scenarios -n $(E2E_PROCESSES) --dist loadfile --no-loadscope-reorder -m 'not chaos and not image and not compose and not secured and not ecosystem and not release and not k8s'
clients-secured: setup-dev ## each client by each mechanism at each kind of listener, across three lifetimes of its session (minutes)
	$(PYTEST) e2e/scenarios/test_secured_clients.py
ecosystem: setup-dev ## MirrorMaker 2, Connect, Streams, Flink, Spring, libraries for streams in Python, and a schema registry, with kill -9 (needs Java; minutes)
	$(PYTEST) e2e/scenarios/ecosystem
chaos: setup-dev ## faults of every kind over real processes, and what clients were told; writes a page (SECONDS=600 SEED=… INSTANCES=2)
	$(BIN)/python -m e2e.chaos --seconds $(SECONDS) --instances $(INSTANCES) $(if $(SEED),--seed $(SEED))
e2e-long: setup-dev ## the scenarios that take long, each under the faults of one kind (CYCLES=50)
	$(PYTEST) e2e -m chaos
upgrade-test: setup-dev ## an upgrade from an older version and the way back (FROM=a commit), and one to internal TLS, under load
	$(PYTEST) --log-cli-level info e2e/scenarios/test_upgrade.py e2e/scenarios/test_internal_tls_rollout.py -m chaos
release: setup-dev ## wheels, images with their ids, and bills of materials of this version, in out/release (needs docker and syft; BASE=…, BUILD_FLAGS='--network host'; PARTS=--no-images without docker)
	$(BIN)/python -m tools.release --base $(BASE) --build-flags='$(BUILD_FLAGS)' $(PARTS)
release-test: setup-dev ## the wheels in an empty environment: the command, and a KafScale with a record (three minutes)
	$(PYTEST) e2e/scenarios/test_release.py
drill: setup-dev ## etcd is wiped under load, and comes back from a snapshot and the bucket, or from the bucket; then it is emptied, restored and replaced while all runs, on a directory and on S3 (ten minutes; ROUNDS=3)
	ROUNDS=$(ROUNDS) $(PYTEST) --log-cli-level info e2e/scenarios/test_restore_drill.py e2e/scenarios/test_lost_etcd.py -m chaos
quotas: setup-dev ## quotas over a minute with Kafka's window of 11 s, and shared by workers and by front doors (quiet machine; six minutes)
	$(PYTEST) e2e/scenarios/test_quotas.py -m chaos
access-outage: setup-dev ## etcd away for ten seconds and for ten minutes, with SASL_SSL and ACLs (eleven minutes)
	ACCESS_OUTAGE=1 $(PYTEST) e2e/scenarios/test_secured_faults.py -k away
tutorial: setup-dev ## docs/tutorial.md's commands with its ten million records, each count beside an oracle's
	$(PYTEST) --log-cli-level info e2e/scenarios/test_tutorial.py -m chaos
security-page: setup-dev ## docs/security.md's commands from a fresh clone, as they are, on port 9094
	$(PYTEST) e2e/scenarios/test_security_page.py -m 'chaos or not chaos'
fuzz: setup-dev ## mutated frames of every API against a running KafScale (FRAMES=10000 of each)
	$(PYTEST) -s e2e/scenarios/bad_input/test_fuzz.py -m chaos
deep: setup-dev ## property tests at length
	$(PYTEST) libs services -m 'deep or not deep' --timeout 3600
login-timing: setup-dev ## 10,000 refused logins: known and unknown users take the same time (two minutes, on a quiet machine)
	$(PYTEST) --log-cli-level info services/frontdoor/tests/test_login_timing.py -m deep
model: setup-dev ## every state of the protocols of bundles and of transactions, in their large configurations (some minutes)
	$(BIN)/python -m tools.bundle_model --all
	$(BIN)/python -m tools.transaction_model --all
simulate: setup-dev ## a cluster in simulated time, with faults by a seed (SEED=1 SECONDS=600); the same seed prints the same lines
	$(BIN)/python -m tools.simulator --seed $(or $(SEED),1) --seconds $(or $(SECONDS),600)
mutants: setup-dev ## plant the known bugs one at a time and see each caught (half an hour; SINCE=a commit: those that a change touches)
	$(BIN)/python tools/mutants.py $(if $(SINCE),--since $(SINCE))
mutation: setup-dev ## generate mutants of the cores that differ from main, and see what no test catches (SINCE=a commit; CORES=kafscale.access; EVERY=5: a fifth)
	$(BIN)/python -m tools.mutation --every $(or $(EVERY),1) $(if $(CORES),$(CORES),--since $(or $(SINCE),main))
bench: setup-dev ## a run for docs/performance.md, with Apache Kafka beside, into bench/results (quiet machine; hours; ROUNDS=3)
	$(BIN)/python -m bench --rounds $(ROUNDS)
bench-goals: setup-dev ## the goals of docs/performance-history.md, and which are met, into bench/results/goals (quiet machine; 25 minutes; ROUNDS=3)
	$(BIN)/python -m bench --goals --rounds $(ROUNDS)
thin-pipe: setup-dev ## what arrives at the store through a thin pipe, for 1 to 64 partitions (seven minutes)
	$(BIN)/python -m bench.thin_pipe
scale: setup-dev ## upkeep over five million segments that were built: peak memory and time (some minutes)
	$(BIN)/python -m bench.upkeep_scale

vendor: setup-dev ## fetch the files of other authors in the console's page again (npm)
	$(BIN)/python -m tools.vendor
lock: setup-dev ## renew the lock files from the members' pyproject.toml
	tools/lock.sh
clean: ## remove what builds and tests leave behind
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis out
