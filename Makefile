# Every check runs from this file. CI runs "make check".

# The folders of all modules. Those of tools are not in go.work, because their dependencies would change those of
# the library. Neither are those of SLOW: they depend on many packages, so only "make compat" tests them.
FOLDERS := $(patsubst %/go.mod,%,$(patsubst go.mod,.,$(shell git ls-files go.mod '*/go.mod')))
SLOW := adapters/caddy tools/clients
MODULES := $(filter-out tools tools/% $(SLOW),$(FOLDERS))
PACKAGES := $(patsubst %,./%/...,$(MODULES))
# The modules that "make platforms" vets, and the systems. The adapters are left out: they have no code of a
# system, and their frameworks take longer to compile than all the rest.
PORTABLE := $(filter-out %test bench examples/% adapters/%,$(MODULES))
PLATFORMS ?= linux/arm64 darwin/arm64 windows/amd64
# FUZZTIME is a number of inputs. With a time limit, a fuzz run can fail without a finding, because
# its workers notice the end too late and report "context deadline exceeded". All are new inputs, because nothing is
# minimized: "go test -fuzz" alone does that with a finding.
FUZZTIME ?= 15000x

# Packages that compare the program with others. Only programs run at once there, not code of Diana in the test's
# process, so the race detector would find nothing and delay the test's clients.
COMPAT := ./cmd/diana/compat ./envoy/compat

# The folders of all fuzz tests
FUZZ := $(sort $(patsubst %/,%,$(dir $(shell git grep -lE '^func Fuzz' -- '*_test.go'))))

# The tests that also run on Valkey: of the servers, and of the store's exactness, faults and scripts. The
# models need no server.
VALKEY ?= -short -skip Model ./internal/redistest ./redisstore

# The files and folders whose prose is checked.
PROSE ?= .

# The path of the linter, which "go tool" builds: in go.work, "go tool" accepts no -modfile.
GOLANGCI = $$(GOWORK=off go tool -modfile=$(CURDIR)/tools/lint/go.mod -n golangci-lint)

.PHONY: help quick vet test programs valkey check compat console deps tools lint prose workflows tools-test tidy api build386 platforms monitoring outside clean-clone verify vulnerabilities fuzz bench bench-quick page release release-test
.DEFAULT_GOAL := test

## help: what each target does
help:
	@sed -nE -e 's/^## ([a-z0-9-]+: )/\1/p' -e t -e 's/^## /  /p' $(firstword $(MAKEFILE_LIST))

## quick: formatting, vet, and all tests with -short and without the race detector; minutes. It is what to run
## while one works
quick: deps vet
	go test -short $(PACKAGES)

## test: all tests of all modules under the race detector. The tests that it would distort or slow down run again
## without it, one package at a time. Those that compare programs run only without it. The store's tests also run on
## Valkey. REDIS_SERVER=valkey-server make test: all tests on Valkey
test: deps
	@command -v consul >/dev/null || echo "consul is not on PATH: only the fake of it is tested"
	@list=$$(go list $(PACKAGES)) && set -x && go test -race -parallel 4 -timeout 20m $$(echo "$$list" | grep -v '/compat$$')
	@list=$$(scripts/unraced) && set -x && \
	go test -p 1 -timeout 20m -run "$$(echo "$$list" | cut -d' ' -f2- | paste -sd'|' -)" $$(echo "$$list" | cut -d' ' -f1)
	@$(MAKE) -j2 programs valkey

## programs: the tests that compare the program with others
programs:
	go test -timeout 20m $(COMPAT)

## valkey: the tests of the store on Valkey, if it is installed
valkey:
	@if command -v valkey-server >/dev/null; then set -x; REDIS_SERVER=valkey-server go test -parallel 4 $(VALKEY); \
	else echo "valkey-server is not on PATH: only Redis is tested"; fi

## check: all that CI runs
check: deps lint tools-test tidy api build386 platforms test vulnerabilities fuzz
	@$(MAKE) -j3 outside clean-clone verify

## compat: every spelling of a path to nginx, express, Tomcat and others; all recipes of docs/gateways; random
## requests to the rate limit service and to envoyproxy/ratelimit; takes minutes. Also 10,000 requests of the
## SDKs of OpenAI and Anthropic, refusals of client libraries, the adapter for Caddy, and losses of memory of Redis,
## Valkey, Sentinels and Clusters
compat:
	@scripts/deps compat
	cd cmd/diana/compat/testdata/express && npm ci --no-audit --no-fund
	cd cmd/diana/compat/testdata/clients && npm ci --no-audit --no-fund
	gateways=$$(scripts/gateways) && cd cmd/diana && PATH="$$PATH:$$gateways" go test ./compat -count=1 -timeout 60m -v -all -one-in 1
	cd envoy && go test ./compat -count=1 -timeout 60m -v -all
	go test ./cmd/diana -run TestLoss -count=1 -timeout 60m -v -losses 5
	@set -e; for m in $(SLOW); do echo "== $$m"; scripts/alone $$m vet ./...; scripts/alone $$m test -count=1 ./...; done

## console: an operator and an attacker use the console of two gateways in Chromium. STEP='roll back' runs only the
## steps with such names. PICTURES=../../../docs/console TRAFFIC=63m takes the pictures of docs/console.md again, after
## an hour of traffic
console: TRAFFIC ?= 0
console:
	@scripts/deps console
	cd cmd/diana/consoletest && npm ci --no-audit --no-fund && go test . -count=1 -timeout 90m -v -browser "$$(command -v chromium)" -pictures "$(PICTURES)" -traffic "$(TRAFFIC)" -step "$(STEP)"

## deps: what the tests need besides Go, from Debian's packages
deps:
	@scripts/deps

## tools: all that a newcomer needs: the packages of "make deps", and the linters, which take minutes to build once
tools: deps
	@set -e; export GOWORK=off; for t in golangci-lint govulncheck vale actionlint; do go tool -modfile=tools/lint/go.mod -n $$t; done
	@echo 'ready: "make test" runs the tests, and CONTRIBUTING.md lists the other commands'

## vet: formatting and vet
vet:
	@unformatted=$$(gofmt -l $(MODULES)); if [ -n "$$unformatted" ]; then echo "gofmt -w $$unformatted"; exit 1; fi
	go vet $(PACKAGES)

## lint: formatting, vet, the linters in .golangci.yml, and prose
lint: prose vet
	@set -e; linter=$(GOLANGCI); $$linter run --allow-parallel-runners --config .golangci.yml $(PACKAGES); \
	cd tools && export GOWORK=off && go vet ./... && $$linter run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...

## prose: documents and comments are plain English; PROSE='rule docs/replay.md' for other files
prose:
	@cd tools/vale && GOWORK=off go run . -C $(CURDIR) $(PROSE)

## workflows: actionlint finds no mistake in the workflows, they call targets of this file, and Dependabot knows all modules
workflows:
	@cd tools/workflows && GOWORK=off go test -count=1 .

## tools-test: the tests of the tools, of the alerts and the dashboard, and of the workflows of GitHub
tools-test:
	@cd tools && GOWORK=off go test -count=1 ./...

## tidy: the modules agree about their versions; go.mod and go.sum list the dependencies in use and no others.
## A test of nfpm, which tools/release depends on, imports modules that not every module proxy has. So -e continues
## without them, and go.sum may lack their sums
tidy:
	@scripts/modules check && scripts/modules tidy
	@cd tools && GOWORK=off go mod tidy -e -diff 2>&1 | \
	awk '/^diff current\/go.mod/ || /^-[^-]/ { bad = 1 } { text = text $$0 "\n" } END { if (bad) { printf "%s", text; exit 1 } }'

## api: the published modules are compatible with the last release, but for what the changelog names
api:
	@scripts/modules api

## build386: no code relies on 64-bit integers
build386:
	GOARCH=386 CGO_ENABLED=0 go vet . ./limit ./rate ./rule ./internal/plan ./internal/actors ./memstore ./config ./replay ./client

## platforms: the library and the program compile on other systems, and so do their tests
platforms:
	@set -e; for p in $(PLATFORMS); do echo "== $$p"; GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 go vet $(patsubst %,./%/...,$(PORTABLE)); done

## monitoring: the alerts fire and stay quiet as promised, and a gateway exposes what they and the dashboard query
monitoring: deps
	cd tools/monitoring && GOWORK=off go test -count=1 ./...

## outside: "go get", "go install" and the example work outside the repository, by a module proxy of the tree
outside: deps
	@scripts/outside

## clean-clone: building and go doc change nothing in a fresh clone of the commit
clean-clone:
	@scripts/clean $(MODULES)

## verify: the downloaded dependencies match go.sum; dependencies that are not downloaded are skipped
verify:
	@go mod verify
	@set -e; for m in tools/lint tools; do echo "== $$m"; (cd $$m && GOWORK=off go mod verify); done

## vulnerabilities: the modules use no code with a known vulnerability; skipped without access to the database
vulnerabilities:
	@scripts/vulnerabilities $(MODULES)

## fuzz: every fuzz test for a moment; FUZZTIME=10m for longer
fuzz:
	@printf '%s\n' $(FUZZ) | xargs -P 2 -n 1 scripts/fuzz $(FUZZTIME)

## bench: measure Diana, its rivals and floors, and write docs/performance.{json,md} after each group;
## BENCH='-run global,gateway' measures these groups again and keeps the figures of the others
bench: deps
	cd bench && go run . $(BENCH)

## bench-quick: the same, each thing for a moment, to test the program; it changes no file in docs
bench-quick: deps
	cd bench && go run . -quick $(BENCH)

## page: make the tables of docs/performance.md from docs/performance.json
page:
	cd bench && go run . page

## release: make release VERSION=v1.2.3 checks a release, commits the versions, tags each module and writes the
## artefacts to dist; it pushes nothing. With DRY=1 it makes no commit and no tag
release:
	@scripts/release $(if $(DRY),-dry) "$(VERSION)"

## release-test: two releases in different folders have the same bytes, the Debian package installs, runs and
## purges, the image runs, and the manifests are valid; takes minutes, and needs root
release-test:
	@scripts/release-test
