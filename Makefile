# `make` lists the targets. They install their tools inside this folder. The machine needs Python 3.11 or 3.12, a JDK
# 17, Maven and git.
.DEFAULT_GOAL := help
.PHONY: help setup assets sbom demo test test-full rest unit lint synth check cost diff baselines deploy destroy \
	reference site requests bench soak drills busy mutants promises lock clean

# With that variable, every program compiles its imports again, because uv compiles nothing. A synthesis takes twice as
# long.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
ENV := dev
ENVIRONMENTS := $(sort $(notdir $(basename $(wildcard config/*.yaml))))
# A wrong ENV is refused here, before the set-up, which takes minutes.
ifneq ($(filter synth check cost diff deploy destroy,$(MAKECMDGOALS)),)
ifneq ($(words $(ENV)) $(ENV),1 $(filter $(ENV),$(ENVIRONMENTS)))
$(error ENV: found "$(ENV)", expected one of: $(ENVIRONMENTS) (a file in config/, without .yaml). \
	Name one, such as: make $(firstword $(MAKECMDGOALS)) ENV=dev)
endif
endif
# Two processes run whole test files, without drills, in a random order. pytest prints its seed, and SEED=N repeats it.
# The results go to build/junit/$(1).xml.
pytest = $(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder -m "not drill" --durations 25 \
	--junitxml build/junit/$(1).xml $(if $(SEED),--randomly-seed $(SEED))
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --custom-compile-command "make lock"

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Set up .venv and node_modules (minutes the first time, then a moment)
	@tools/setup

assets: setup ## Build the files that go to S3 under build/: jars, plugins, Python packages
	@$(BIN)/headwater dev assets

sbom: assets ## List all shipped packages, with versions, hashes and licences, in build/sbom.cdx.json (CycloneDX)
	@$(BIN)/headwater sbom

demo: setup ## Run the pipeline here, compare lake and sources (DATA=DIR SCALE=1 SECONDS=N RATE=N KEEP=1 DEPLOYED=1)
	@$(BIN)/headwater demo $(if $(DATA),--data "$(DATA)") $(if $(SCALE),--scale $(SCALE)) \
		$(if $(SECONDS),--seconds $(SECONDS)) $(if $(RATE),--rate $(RATE)) $(if $(KEEP),--keep) \
		$(if $(DEPLOYED),--deployed)

test: assets ## Run lint, the site, the connectors' tests, all quick tests, and one test per promise
	@echo "Testing connect/ (Maven) beside lint"
	@mvn -q -f connect/pom.xml test & java=$$!; \
		$(MAKE) --no-print-directory lint; lint=$$?; wait $$java && exit $$lint
	@$(MAKE) --no-print-directory site
	@$(call pytest,quick) --most-starts quick tests/synth tests/unit
	@$(call pytest,promised-lake) --promised only --most-starts promised-lake tests/lake
	@$(call pytest,promised-local) --promised only --most-starts promised-local tests/local

test-full: ## Check everything but the drills: `make test`, then `make rest` (SEED=N repeats an earlier order)
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory rest

rest: assets ## Run the tests that `make test` leaves out, without the drills
	@$(call pytest,rest-lake) --promised without tests/lake
	@$(call pytest,rest-local) --promised without tests/local

unit: setup ## Run the tests that need no services, in under a minute
	@$(call pytest,unit) tests/unit

lint: setup ## Check style, types, who imports whom, and prose
	@echo "Checking style, types, imports and prose"
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/python -m tools.prose

synth: setup ## Synthesize the stacks of ENV=dev into cdk.out/, without credentials
	@$(BIN)/headwater synth --env $(ENV)

check: setup ## Check the flows and rights of ENV=dev, and the origin of every uploaded file
	@$(BIN)/headwater check --env $(ENV)

cost: setup ## Estimate what ENV=dev costs per month (AGAINST=FILE: compare with an earlier --json)
	@$(BIN)/headwater cost --env $(ENV) $(if $(AGAINST),--against "$(AGAINST)")

diff: setup ## Show what a deploy of ENV=dev would change; without credentials, compare with the baselines
	@$(BIN)/headwater diff --env $(ENV)

baselines: setup ## Write reviewed/ from the stacks and contracts, and the pages that depend on it
	@$(BIN)/headwater baselines
	@$(BIN)/pytest --quiet tests/synth/test_baselines.py -k optional_stacks --update-baselines
	@$(BIN)/headwater dev reference

deploy: setup ## Deploy the stacks of ENV=dev; if data is kept, protect them once they are complete
	@$(BIN)/headwater deploy --env $(ENV)

destroy: setup ## Delete the stacks of ENV=dev, and their data if two settings of the environment allow it
	@$(BIN)/headwater destroy --env $(ENV)

reference: setup ## Write the pages of docs/reference that are generated from baselines and code
	@$(BIN)/headwater dev reference

# Not --quiet: it would keep --strict from counting warnings.
site: build/site-tools/stamp ## Build the documentation's site in build/site, and check its links and its search
	@echo "Building the site of the documentation"
	@NO_MKDOCS_2_WARNING=1 build/site-tools/bin/mkdocs build --strict
	@$(BIN)/node tools/ask_site.mjs

build/site-tools/stamp: requirements-docs.txt | setup
	@echo "Setting up MkDocs in build/site-tools"
	@$(BIN)/python -m venv --clear build/site-tools
	@build/site-tools/bin/python -m pip install --disable-pip-version-check --quiet \
		--require-hashes -r requirements-docs.txt
	@touch $@

requests: assets ## Record in reviewed/rights/ which rights the local run requests
	@HEADWATER_RECORD_REQUESTS=1 $(BIN)/pytest tests/local/test_rights.py

bench: assets ## Measure commits, drain, decoding and freshness (QUICK=1: commits and decoding)
	@$(BIN)/headwater dev bench $(if $(QUICK),--quick)

soak: assets ## Test ten thousand random histories of keys, then run the demo for half an hour (SECONDS=N)
	@$(BIN)/pytest -v --numprocesses 2 --dist loadgroup tests/lake/test_histories.py --key-histories 10000 --turns 4 \
		--seed $$(date +%s)
	@$(BIN)/headwater demo --seconds $(or $(SECONDS),1800)

drills: assets ## Run the drills: each part killed KILLS=3 times, a faulty store, source changes, …
	@$(BIN)/pytest -m drill --durations 25 --junitxml build/junit/drills.xml $(if $(KILLS),--kills $(KILLS)) tests/lake tests/local

busy: assets ## Run the demo and `make test` beside eight endless loops on the same cores (LOOPS=N)
	@tools/busy $(or $(LOOPS),8) -- $(MAKE) --no-print-directory demo
	@tools/busy $(or $(LOOPS),8) -- $(MAKE) --no-print-directory test

mutants: setup ## Mutate the code of orders and positions, and check that a test fails each time (MODULES="lease …")
	@$(BIN)/python tools/mutants.py $(MODULES)

promises: assets ## Break each promise by one line, and check that its test fails (NAMES="truncate …" SUITE=unit)
	@$(BIN)/python tools/promises.py $(if $(SUITE),--suite $(SUITE)) $(NAMES)

# Both lists are resolved together and then written separately, so a package in both lists has the same version.
lock: ## Upgrade the locked Python packages, Node packages and jars
	@tools/setup
	@mkdir -p build/lock
	@$(COMPILE) --upgrade requirements.in requirements-dev.in -o build/lock/all.txt
	@$(COMPILE) requirements.in -c build/lock/all.txt -o requirements.txt
	@$(COMPILE) requirements-dev.in -c build/lock/all.txt -o requirements-dev.txt
	@$(COMPILE) --upgrade requirements-docs.in -o requirements-docs.txt
	@$(COMPILE) --upgrade rig/emulator/requirements.in -o rig/emulator/requirements.txt
	@PATH="$(CURDIR)/$(BIN):$$PATH" npm install --package-lock-only --no-audit --no-fund
	@PATH="$(CURDIR)/$(BIN):$$PATH" npm --prefix rig/emulator install --package-lock-only --no-audit --no-fund
	@$(BIN)/headwater dev jars lock

clean: ## Remove all built files; .venv and node_modules stay
	rm -rf build cdk.out connect/target mutants
