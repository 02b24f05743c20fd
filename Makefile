# Headwater: `make` lists what there is to do. Everything needed beyond Python 3.11, a JDK 17, Maven and git is set up by
# the targets themselves, in this folder.
.DEFAULT_GOAL := help
.PHONY: help setup assets demo test unit lint synth diff deploy bench drills lock clean

BIN := .venv/bin
ENV := dev
# No CDK notices, no version check: synthesis works without a network.
CDK := PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/npx --no-install cdk --no-notices --context env=$(ENV)

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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

lint: setup ## Check style and types
	@echo "Checking style and types"
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

synth: assets ## Synthesize the stacks of ENV=dev into cdk.out/, without credentials
	@$(CDK) synth --quiet

diff: assets ## Compare the stacks of ENV=dev with what is deployed
	@$(CDK) diff

deploy: assets ## Deploy the stacks of ENV=dev
	@$(CDK) deploy --all

bench: assets ## Measure how many changes a second the writer drains
	@$(BIN)/headwater bench

drills: assets ## Kill the parts of a running pipeline and see that nothing is lost
	@$(BIN)/pytest tests/local/test_kills.py

lock: ## Lock requirements.in, package.json and the jars anew
	@tools/setup
	@test -x build/lock/bin/uv || { $(BIN)/python -m venv build/lock && build/lock/bin/pip install --quiet uv; }
	@build/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-annotate --custom-compile-command "make lock" requirements.in -o requirements.txt
	@PATH="$(CURDIR)/$(BIN):$$PATH" npm install --package-lock-only --no-audit --no-fund
	@$(BIN)/headwater jars lock

clean: ## Remove what was built here, but neither .venv nor node_modules
	rm -rf build cdk.out connect/target
