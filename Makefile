# Headwater: `make` lists what there is to do. Everything needed beyond Python 3.11, a JDK 17, Maven and git is set up by
# the targets themselves, in this folder.
.DEFAULT_GOAL := help
.PHONY: help setup assets demo test unit lint synth check cost diff baselines deploy destroy \
	reference requests bench soak drills lock clean

BIN := .venv/bin
ENV := dev
# No CDK notices, no version check: synthesis works without a network.
CDK := PATH="$(CURDIR)/$(BIN):$$PATH" node_modules/.bin/cdk --no-notices --context env=$(ENV)
# dev asks before it widens a right or opens a port, the others before any change.
APPROVAL := $(if $(filter dev,$(ENV)),broadening,any-change)

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Set up .venv and node_modules
	@tools/setup

assets: setup ## Make what goes to S3: jars, plugins, the PySpark package, the contracts (under build/)
	@$(BIN)/headwater assets

demo: setup ## Run the pipeline on this machine and prove it (DATA=DIR SCALE=1 SECONDS=N KEEP=1)
	@$(BIN)/headwater demo $(if $(DATA),--data "$(DATA)") $(if $(SCALE),--scale $(SCALE)) \
		$(if $(SECONDS),--seconds $(SECONDS)) $(if $(KEEP),--keep)

test: lint assets ## Check everything: lint, the connectors' tests, then all of tests/
	@echo "Testing connect/ (Maven)"
	@mvn -B -ntp -q -f connect/pom.xml test
	@$(BIN)/pytest tests/unit tests/synth tests/lake tests/local

unit: setup ## Run the tests that need no services, in under a minute
	@$(BIN)/pytest tests/unit

lint: setup ## Check style, types and who imports whom
	@echo "Checking style, types and imports"
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache

synth: assets ## Synthesize the stacks of ENV=dev into cdk.out/, without credentials
	@$(CDK) synth --quiet

check: assets ## Hold the templates of ENV=dev to the network flows and rights that the pipeline needs
	@$(CDK) synth --quiet
	@$(BIN)/headwater check $(ENV)

cost: assets ## Estimate what ENV=dev costs a month (AGAINST=FILE shows what differs from an earlier --json)
	@$(CDK) synth --quiet
	@$(BIN)/headwater cost $(ENV) $(if $(AGAINST),--against "$(AGAINST)")

diff: assets ## Compare the stacks of ENV=dev with what is deployed, or without credentials with their baselines
	@$(CDK) synth --quiet
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/headwater review synthesized $(ENV)

baselines: setup ## Write the templates into reviewed/baselines/, to be reviewed, and the pages made from them
	@$(BIN)/pytest --quiet tests/synth/test_baselines.py -k as_their_baselines --update-baselines
	@$(BIN)/headwater reference

deploy: assets ## Deploy the stacks of ENV=dev
	@$(CDK) deploy --all --require-approval $(APPROVAL)

destroy: assets ## Delete the stacks of ENV=dev, and their data where both settings of the environment say so
	@$(CDK) destroy --all

reference: setup ## Write docs/reference/flows.md and permissions.md anew from the baselines
	@$(BIN)/headwater reference

requests: assets ## Record anew which rights the local run asks for (reviewed/rights/)
	@HEADWATER_RECORD_REQUESTS=1 $(BIN)/pytest tests/local/test_requests.py

bench: assets ## Measure drain rate, freshness, memory and the decoder's speed
	@$(BIN)/headwater bench

soak: setup ## Run the demo under its load for half an hour (SECONDS=N)
	@$(BIN)/headwater demo --seconds $(or $(SECONDS),1800)

drills: assets ## Kill each part of a running pipeline three times and see that nothing is lost
	@HEADWATER_KILLS=3 $(BIN)/pytest tests/local/test_kills.py

lock: ## Lock requirements.in, package.json and the jars anew
	@tools/setup
	@test -x build/lock/bin/uv || { $(BIN)/python -m venv build/lock && build/lock/bin/pip install --quiet uv; }
	@build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --custom-compile-command "make lock" requirements.in -o requirements.txt
	@PATH="$(CURDIR)/$(BIN):$$PATH" npm install --package-lock-only --no-audit --no-fund
	@$(BIN)/headwater jars lock

clean: ## Remove what was built here, but neither .venv nor node_modules
	rm -rf build cdk.out connect/target
