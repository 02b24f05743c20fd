# `make` lists the targets. They set up what they need inside this folder; Python 3.11 or 3.12, a JDK 17, Maven and git
# must be there.
.DEFAULT_GOAL := help
.PHONY: help setup assets sbom demo test test-full rest unit lint synth check cost diff baselines deploy destroy \
	reference site requests bench soak drills busy mutants promises lock clean

# Where that is set, every program compiles what it imports anew, which is half of a synthesis: uv compiles nothing.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
ENV := dev
ENVIRONMENTS := $(sort $(notdir $(basename $(wildcard config/*.yaml))))
# Refused here, before anything is set up: that takes minutes.
ifneq ($(filter synth check cost diff deploy destroy,$(MAKECMDGOALS)),)
ifneq ($(words $(ENV)) $(ENV),1 $(filter $(ENV),$(ENVIRONMENTS)))
$(error ENV: found "$(ENV)", expected one of: $(ENVIRONMENTS) (a file in config/, without .yaml). \
	Name one, such as: make $(firstword $(MAKECMDGOALS)) ENV=dev)
endif
endif
# Two processes, each with whole files, in an order whose seed is printed: SEED=N repeats it. Drills are left out. The
# results of $(1) go to build/junit/$(1).xml.
pytest = $(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder -m "not drill" --durations 25 \
	--junitxml build/junit/$(1).xml $(if $(SEED),--randomly-seed $(SEED))
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --custom-compile-command "make lock"

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Set up .venv and node_modules (takes minutes once, then a moment)
	@tools/setup

assets: setup ## Make what goes to S3: jars, plugins, the PySpark package, the contracts (under build/)
	@$(BIN)/headwater dev assets

sbom: assets ## List all that ships, with versions, hashes and licences, in build/sbom.cdx.json (CycloneDX)
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

test-full: ## Check everything but the drills: `make test`, then `make rest` (SEED=N: in the order of an earlier run)
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

check: setup ## See that ENV=dev has the flows and rights that the pipeline needs, and uploads nothing of unknown origin
	@$(BIN)/headwater check --env $(ENV)

cost: setup ## Estimate what ENV=dev costs per month (AGAINST=FILE: compare with an earlier --json)
	@$(BIN)/headwater cost --env $(ENV) $(if $(AGAINST),--against "$(AGAINST)")

diff: setup ## Show what a deploy of ENV=dev would change; without credentials, what differs from the baselines
	@$(BIN)/headwater diff --env $(ENV)

baselines: setup ## Write reviewed/ from the stacks and contracts, for review, and the pages made from them
	@$(BIN)/headwater baselines
	@$(BIN)/pytest --quiet tests/synth/test_baselines.py -k optional_stacks --update-baselines
	@$(BIN)/headwater dev reference

deploy: setup ## Deploy the stacks of ENV=dev; where data is kept, protect them once they are complete
	@$(BIN)/headwater deploy --env $(ENV)

destroy: setup ## Delete the stacks of ENV=dev, and their data where two settings of the environment allow it
	@$(BIN)/headwater destroy --env $(ENV)

reference: setup ## Write the pages of docs/reference that are made from the baselines and from the code
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

requests: assets ## Record in reviewed/rights/ which rights the local run asks for
	@HEADWATER_RECORD_REQUESTS=1 $(BIN)/pytest tests/local/test_rights.py

bench: assets ## Measure commits beside others', drain, decoding and freshness (QUICK=1: commits and decoding)
	@$(BIN)/headwater dev bench $(if $(QUICK),--quick)

soak: assets ## Draw ten thousand histories of keys, then run the demo under load for half an hour (SECONDS=N)
	@$(BIN)/pytest -v --numprocesses 2 --dist loadgroup tests/lake/test_histories.py --key-histories 10000 --turns 4 \
		--seed $$(date +%s)
	@$(BIN)/headwater demo --seconds $(or $(SECONDS),1800)

drills: assets ## Run what `make test-full` leaves out: each part killed KILLS=3 times, a faulty store, source changes, …
	@$(BIN)/pytest -m drill --durations 25 --junitxml build/junit/drills.xml $(if $(KILLS),--kills $(KILLS)) tests/lake tests/local

busy: assets ## Run the demo and `make test` beside eight loops that take every core (LOOPS=N)
	@tools/busy $(or $(LOOPS),8) -- $(MAKE) --no-print-directory demo
	@tools/busy $(or $(LOOPS),8) -- $(MAKE) --no-print-directory test

mutants: setup ## Change what orders and positions changes in every small way, and see that a test fails (MODULES="lease …")
	@$(BIN)/python tools/mutants.py $(MODULES)

promises: assets ## Break each promise by one line and see that its test fails (NAMES="truncate …" SUITE=unit)
	@$(BIN)/python tools/promises.py $(if $(SUITE),--suite $(SUITE)) $(NAMES)

# Both lists are resolved together, then written apart: a package that is in both has one version.
lock: ## Upgrade the locked Python packages, the locks of Node's packages and the jars' lock
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

clean: ## Remove what was built here; .venv and node_modules stay
	rm -rf build cdk.out connect/target mutants
