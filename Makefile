# make help lists the targets. Tools are installed under .bin/, one folder per version, so that a changed pin installs anew.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GOLANGCI_LINT_VERSION      := v2.15.0
BUF_VERSION                := v1.75.0
PROTOC_GEN_GO_VERSION      := v1.36.12
PROTOC_GEN_GO_GRPC_VERSION := v1.6.2
BENCHSTAT_VERSION          := v0.0.0-20260908200009-22c9c6c9d4da

FUZZTIME    ?= 10s
BENCH       ?= .
BENCHCOUNT  ?= 6
BENCHOUT    ?= bench/results/root.txt
STRESSCOUNT ?= 3

# Every module of the repository, the root first.
MODULES := $(shell find . -name go.mod -not -path '*/.*/*' -not -path '*/testdata/*' -not -path '*/node_modules/*' \
	-exec dirname {} \; | sort)
# Modules with concurrent code of ours. The others drive programs from elsewhere, which would have to be built once more.
RACE_MODULES := $(filter-out ./bench% ./e2e%,$(MODULES))
RACE   = CGO_ENABLED=1 $(GOTEST) $$m -race
STRESS = -cpu 1,2,8 -count $(STRESSCOUNT) -timeout 60m
# A fifth less time to compile what others wrote; the tests compile the programs that they start in the same way.
QUICKLY = -gcflags all=-dwarf=false
# In $$m, the packages to run under the race detector: internal/devtools starts no goroutine.
RACE_PACKAGES = $$(go -C $$m list ./... | grep -v /internal/devtools/)

BIN                := $(CURDIR)/.bin
GOLANGCI_LINT      := $(BIN)/golangci-lint/$(GOLANGCI_LINT_VERSION)/golangci-lint
BUF                := $(BIN)/buf/$(BUF_VERSION)/buf
PROTOC_GEN_GO      := $(BIN)/protoc-gen-go/$(PROTOC_GEN_GO_VERSION)/protoc-gen-go
PROTOC_GEN_GO_GRPC := $(BIN)/protoc-gen-go-grpc/$(PROTOC_GEN_GO_GRPC_VERSION)/protoc-gen-go-grpc
BENCHSTAT          := $(BIN)/benchstat/$(BENCHSTAT_VERSION)/benchstat

GOTEST := go run ./internal/devtools/gotest
GOFUZZ := go run ./internal/devtools/gofuzz

# $(call each,NAME,MODULES,COMMAND) runs COMMAND with $$m set to each module, all of them, and fails if one failed.
each = @bad=0; for m in $(2); do echo "== $(1): $$m"; ( $(3) ) || bad=1; done; exit $$bad

# Folders with a buf.gen.yaml and .proto files.
PROTOS := $(shell find . -name buf.gen.yaml -not -path '*/.*/*' -exec dirname {} \; | sort | while read -r d; do \
	[ -z "$$(find "$$d" -name '*.proto' -print -quit)" ] || echo "$$d"; done)

.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-16s %s\n", $$1, $$2}'
	@echo "Modules: $(MODULES)"

.PHONY: all
all: test lint deps docs-check generate-check ## Everything that a change must pass.

.PHONY: test
test: vet unit race ## Vet and test every module, then test under the race detector.

.PHONY: vet
vet: ## Run go vet in every module.
	$(call each,go vet,$(MODULES),go -C $$m vet ./...)

.PHONY: unit
unit: ## Run the tests of every module.
	$(call each,go test,$(MODULES),$(GOTEST) $$m ./...)

.PHONY: race
race: ## Run the tests under the race detector, stress tests in their short form.
	@command -v "$$(go env CC)" >/dev/null || { \
		echo "race: skipped, the race detector needs a C compiler ($$(go env CC))"; [ "$${CI:-}" != true ]; }
	$(call each,go test -race,$(if $(shell command -v "$$(go env CC)"),$(RACE_MODULES)),$(RACE) $(RACE_PACKAGES))

.PHONY: stress
stress: ## Run the tests under the race detector for long: OTELPROTO_STRESS=1, several GOMAXPROCS, STRESSCOUNT times.
	$(call each,stress,$(RACE_MODULES),OTELPROTO_STRESS=1 $(RACE) $(STRESS) $(RACE_PACKAGES))

.PHONY: fuzz
fuzz: ## Run each fuzz target of every module for FUZZTIME.
	$(call each,fuzz,$(MODULES),$(GOFUZZ) $$m $(FUZZTIME))

.PHONY: bench
bench: ## Run the root module's benchmarks BENCHCOUNT times, as input for benchstat, into BENCHOUT.
	@mkdir -p "$(dir $(BENCHOUT))"
	@go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(BENCHCOUNT) -timeout 120m ./... | tee "$(BENCHOUT)"

.PHONY: bench-peers
bench-peers: ## Compare with peers in BENCHCOUNT rounds and print the ratios.
	@go run -C bench . -bench '$(BENCH)' -count $(BENCHCOUNT)

.PHONY: benchstat
benchstat: $(BENCHSTAT) ## Summarise BENCHOUT; with OLD=file, compare with it.
	@$(BENCHSTAT) $(OLD) "$(BENCHOUT)"

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run golangci-lint in every module.
	$(call each,lint,$(MODULES),cd $$m && $(GOLANGCI_LINT) run ./...)

.PHONY: format
format: $(GOLANGCI_LINT) ## Format the Go code of every module.
	$(call each,format,$(MODULES),cd $$m && $(GOLANGCI_LINT) fmt ./...)

.PHONY: generate
generate: $(BUF) $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC) ## Generate Go code in every folder with a buf.gen.yaml.
	@for d in $(PROTOS); do echo "== buf generate: $$d"; \
		(cd $$d && PATH="$(dir $(PROTOC_GEN_GO)):$(dir $(PROTOC_GEN_GO_GRPC)):$$PATH" $(BUF) generate); done

# What generated code looked like is remembered as checksums, so that the check also serves a tree with changes in it.
GENERATED := find . -name '*.pb.go' -not -path '*/.*/*' | sort | xargs -r cksum

.PHONY: generate-check
generate-check: $(BUF) $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC) ## Generate again and fail if that changes anything.
	@before=$$($(GENERATED)); $(MAKE) --no-print-directory generate; after=$$($(GENERATED)); \
	if ! diff <(echo "$$before") <(echo "$$after"); then echo "generated code was stale, and is renewed now"; exit 1; fi

.PHONY: deps
deps: ## Check the direction of dependencies and the list of requirements.
	@go test -count=1 -v -run 'TestDependencies|TestTheRoot|TestNested' ./internal/devtools/deps

.PHONY: tidy-check
tidy-check: ## Check that every go.mod and go.sum is tidy.
	$(call each,go mod tidy,$(MODULES),go -C $$m mod tidy -diff)

.PHONY: docs-check
docs-check: ## Check quoted code, links, metric names and the README's size.
	@go test -count=1 -v -run TestTheDocumentationIsTrue ./internal/devtools/docs

# A tool's folder is its version; the rest of these rules is the same for all.
install = @echo "installing $(notdir $@) $(1)"; GOBIN="$(@D)" GOFLAGS= go install $(2)@$(1)

$(GOLANGCI_LINT):
	$(call install,$(GOLANGCI_LINT_VERSION),github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
$(BUF):
	$(call install,$(BUF_VERSION),github.com/bufbuild/buf/cmd/buf)
$(PROTOC_GEN_GO):
	$(call install,$(PROTOC_GEN_GO_VERSION),google.golang.org/protobuf/cmd/protoc-gen-go)
$(PROTOC_GEN_GO_GRPC):
	$(call install,$(PROTOC_GEN_GO_GRPC_VERSION),google.golang.org/grpc/cmd/protoc-gen-go-grpc)
$(BENCHSTAT):
	$(call install,$(BENCHSTAT_VERSION),golang.org/x/perf/cmd/benchstat)

.PHONY: e2e
e2e: ## Run the tests against a real collector, a real backend, a browser, tshark, and services that others wrote.
	$(call each,e2e,$(filter ./e2e%,$(MODULES)),$(GOTEST) $$m -count 1 $(QUICKLY) ./...)

.PHONY: demo
demo: ## Bring up collector, backend with dashboards, and the compute example; print one URL; Ctrl-C ends all. ARGS are its flags.
	@mkdir -p $(BIN) && go build -C e2e -o $(BIN)/demo ./demo && cd e2e && exec $(BIN)/demo $(ARGS)
