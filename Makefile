# Copyright 2026 The envd-go Authors
# SPDX-License-Identifier: Apache-2.0

# Everything runs with Go alone: buf and staticcheck are built from source, at
# the versions of tools/go.mod, by the go command.
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

GO    ?= go
TOOL  := $(GO) tool -modfile=tools/go.mod
BUF   := $(TOOL) buf
TMP   := .tmp
PKGS  ?= ./...
FUZZTIME ?= 10s

# The race detector needs a C compiler. Without one the tests run all the same,
# and say so.
RACE := $(shell if [ "$$($(GO) env CGO_ENABLED)" = 1 ] && command -v "$$($(GO) env CC)" >/dev/null 2>&1; then echo -race; fi)

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: test
test: ## Run all tests, with the race detector where a C compiler is found
	$(if $(RACE),,@echo "make: no C compiler, so the tests run without the race detector")
	$(GO) test $(RACE) $(PKGS)

.PHONY: live
live: ## Run the client's tests on the envd that ENVD_URL names
	@test -n "$$ENVD_URL" || { echo "make: set ENVD_URL to the envd to test" >&2; exit 1; }
	$(GO) test $(RACE) -count=1 ./client

.PHONY: conformance
conformance: ## Judge the embedded envd in every version and dialect, and ENVD_URL if set
	$(GO) test $(RACE) ./conformance
	@if [ -n "$$ENVD_URL" ]; then $(GO) run ./cmd/envdctl conformance; fi

.PHONY: acceptance
acceptance: ## Try the official JavaScript SDK, and a browser, if npm and chromium are there
	ACCEPTANCE=1 $(GO) test -count=1 -v ./acceptance
	@if command -v npm >/dev/null && command -v chromium >/dev/null; then \
		cd examples/webterminal && npm ci --no-audit --no-fund --ignore-scripts && $(GO) test -count=1 -v .; \
	else echo "npm or chromium is missing: the terminal in the browser is not tried"; fi

.PHONY: check
check: check-fmt check-tidy vet check-cross lint check-generated breaking test bench-once conformance acceptance examples ## Run everything that CI runs

.PHONY: fmt
fmt: ## Format Go and proto files
	gofmt -l -w $(GOFILES)
	$(BUF) format -w

GOFILES = $(shell git ls-files '*.go' ':!gen/')

.PHONY: check-fmt
check-fmt: ## Fail when a file is not formatted
	@files="$$(gofmt -l $(GOFILES))"; test -z "$$files" || { echo "not formatted (make fmt):"; echo "$$files"; exit 1; }
	$(BUF) format -d --exit-code

.PHONY: vet
vet: ## Run go vet
	$(GO) vet $(PKGS)

.PHONY: lint
lint: ## Run staticcheck and buf lint
	$(TOOL) staticcheck $$($(GO) list $(PKGS) | grep -v /gen/)
	$(BUF) lint

.PHONY: generate
generate: ## Generate gen/ from proto/
	$(BUF) generate

.PHONY: check-generated
check-generated: ## Fail when gen/ is not what proto/ generates
	@rm -rf $(TMP)/generated && mkdir -p $(TMP)/generated
	$(BUF) generate -o $(TMP)/generated
	@diff -r gen $(TMP)/generated/gen || { echo "gen/ is stale: run make generate"; exit 1; }
	@rm -rf $(TMP)/generated

.PHONY: protocol-diff
protocol-diff: ## Compare the contract with another version: FROM=folder, image or git revision; FORMAT=json
	@$(GO) build -o $(TMP)/protocoldiff ./internal/cmd/protocoldiff
	@$(TMP)/protocoldiff -from "$(FROM)" -against "$(or $(AGAINST),proto)" -format "$(or $(FORMAT),text)"

.PHONY: breaking
breaking: ## Fail when the contract breaks a supported envd or the last release
	@$(GO) build -o $(TMP)/protocoldiff ./internal/cmd/protocoldiff
	$(TMP)/protocoldiff -mode breaking

.PHONY: baselines
baselines: ## Write the images of supported versions that are missing
	$(GO) run ./internal/cmd/protocoldiff -mode baselines

.PHONY: tidy
tidy: ## Tidy the module files
	$(GO) mod tidy
	cd tools && $(GO) mod tidy

.PHONY: check-tidy
check-tidy: ## Fail when go.mod or go.sum is not tidy
	$(GO) mod tidy -diff
	cd tools && $(GO) mod tidy -diff

# The packages that a user links must build everywhere.
.PHONY: check-cross
check-cross: ## Vet for the other operating systems
	GOOS=darwin $(GO) vet $(PKGS)
	GOOS=windows $(GO) vet $(PKGS)

.PHONY: api
api: ## Write the public surface down in api/, after a change that is meant
	$(GO) test ./internal/repocheck -run TestAPI -update-api

# Each release is a tag; the go command stamps it into what it builds.
PLATFORMS = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
DIST = dist

.PHONY: release
release: ## Build envdctl for all platforms into dist/, with checksums
	@rm -rf $(DIST) && mkdir -p $(DIST)
	@version="$$(git describe --tags --always --dirty)"; for platform in $(PLATFORMS); do \
		os="$${platform%/*}"; arch="$${platform#*/}"; ext=; test "$$os" != windows || ext=.exe; \
		out="$(DIST)/envdctl_$${version}_$${os}_$$arch$$ext"; echo "$$out"; \
		CGO_ENABLED=0 GOOS="$$os" GOARCH="$$arch" $(GO) build -trimpath -buildvcs=true -ldflags '-s -w' -o "$$out" ./cmd/envdctl || exit 1; \
	done
	@cd $(DIST) && sha256sum envdctl_* > SHA256SUMS

# Examples that need more than the library does are modules of their own.
.PHONY: examples
examples: ## Run the programs of examples/ on an embedded envd
	@for dir in $$($(GO) list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' ./examples/...); do echo "run $$dir"; $(GO) run $$dir || exit 1; done
	cd examples/telemetry && $(GO) vet . && $(GO) run .
	cd examples/webterminal && $(GO) vet . && $(GO) test .

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME (10s)
	@for pkg in $$($(GO) list $(PKGS)); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done

.PHONY: faults
faults: ## Try every call of the client with every fault, and print the matrix
	FAULTS=all $(GO) test -count=1 -v -timeout 30m -run '^TestFaultMatrix$$' ./client

SOAK ?= 30s

.PHONY: soak
soak: ## Put the client under load, mixed with faults for SOAK (30s)
	SOAK=$(SOAK) $(GO) test -count=1 -v -timeout 0 -run '^TestSoak' ./client

.PHONY: bench
bench: ## Measure the client against the bare stub; with ENVD_URL on that envd
	$(GO) test -run '^$$' -bench . -benchmem -timeout 0 ./client

.PHONY: bench-once
bench-once: ## Run each benchmark once, to see that it works
	$(GO) test -short -run '^$$' -bench . -benchtime 1x ./client >/dev/null
	cd tools && $(GO) test ./...

BENCH       ?= .
BENCH_COUNT ?= 5
BENCH_OUT   ?= docs/bench/embedded.txt

.PHONY: bench-report
bench-report: ## Measure BENCH_COUNT times, keep that in BENCH_OUT and print the ratios
	@mkdir -p $(dir $(BENCH_OUT))
	@{ echo "daemon: $${ENVD_URL:+envd }$${ENVD_VERSION:-embedded}"; echo "date: $$(date -u +%F)"; \
		echo "cores: $$(getconf _NPROCESSORS_ONLN)"; echo "go: $$($(GO) env GOVERSION)"; } > $(BENCH_OUT)
	@for i in $$(seq $(BENCH_COUNT)); do \
		$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 0 ./client >> $(BENCH_OUT) || exit 1; \
	done
	@cd tools && $(GO) run ./benchreport $(abspath $(BENCH_OUT))

.PHONY: performance
performance: ## Make the tables of docs/performance.md from docs/bench
	cd tools && $(GO) run ./benchreport -w ../docs/performance.md $(addprefix ../,$(wildcard docs/bench/*.txt))
