# Every check runs from this file. CI runs "make check".

MODULES := . source/etcd source/etcd/etcdtest source/zookeeper prometheus envoy cmd/diana bench examples/extension
# FUZZTIME is a number of inputs. With a time limit, a fuzz run can fail without a finding, because
# its workers notice the end too late and report "context deadline exceeded".
FUZZTIME ?= 30000x

# package:target of every fuzz test
FUZZ := rule:FuzzParseWho internal/plan:FuzzPath internal/plan:FuzzForwardedFor internal/actors:FuzzCookie internal/actors:FuzzQuery internal/plan:FuzzField config:FuzzParse config:FuzzParts replay:FuzzParse cmd/diana/internal/accesslog:FuzzLine redisstore:FuzzUnpack client:FuzzFields internal/fields:FuzzRead envoy:FuzzMessage source/zookeeper:FuzzAnswers

# The tests that also run on Valkey: of the servers, and of the store's exactness, faults and scripts. The
# models need no server.
VALKEY ?= -short -skip Model ./internal/redistest ./redisstore

# The files and folders whose prose is checked.
PROSE ?= .

GOLANGCI := go tool -modfile=$(CURDIR)/tools/go.mod golangci-lint

.PHONY: test check compat deps lint prose tidy build386 outside clean-clone verify vulnerabilities fuzz bench bench-quick page
.DEFAULT_GOAL := test

## test: all tests of all modules under the race detector; without it the tests that it would distort or slow
## down, and the store's tests on Valkey. REDIS_SERVER=valkey-server make test: all tests on Valkey
test: deps
	@command -v consul >/dev/null || echo "consul is not on PATH: only the fake of it is tested"
	@set -e; for m in $(MODULES); do echo "== $$m"; (cd $$m && go test -race ./...); done
	go test -timeout 20m -run 'Alloc|BytesPerKey|Flood|Model' . ./limit ./memstore ./rate ./redisstore ./internal/plan
	go test -run 'AllSpellings|PlainPaths' ./internal/plan -length 6
	@if command -v valkey-server >/dev/null; then echo "== on Valkey"; REDIS_SERVER=valkey-server go test $(VALKEY); \
	else echo "valkey-server is not on PATH: only Redis is tested"; fi

## check: all that CI runs
check: deps lint tidy build386 test outside clean-clone verify vulnerabilities fuzz

## compat: every spelling of a path to nginx, express, Tomcat and others; all recipes of docs/gateways; random
## requests to the rate limit service and to envoyproxy/ratelimit; takes minutes
compat:
	@scripts/deps compat
	cd cmd/diana/compat/testdata/express && npm ci --no-audit --no-fund
	gateways=$$(scripts/gateways) && cd cmd/diana && PATH="$$PATH:$$gateways" go test ./compat -count=1 -timeout 60m -v -all -one-in 1
	cd envoy && go test ./compat -count=1 -timeout 60m -v -all

## deps: what the tests need besides Go, from Debian's packages
deps:
	@scripts/deps

## lint: formatting, vet, the linters in .golangci.yml, and prose
lint: prose
	@unformatted=$$(gofmt -l $(MODULES)); if [ -n "$$unformatted" ]; then echo "gofmt -w $$unformatted"; exit 1; fi
	@set -e; for m in $(MODULES) tools/vale; do echo "== $$m"; (cd $$m && { [ $$m != tools/vale ] || export GOWORK=off; } && go vet ./... && GOWORK=off $(GOLANGCI) run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...); done

## prose: documents and comments are plain English; PROSE='rule docs/replay.md' for other files
prose:
	@cd tools/vale && GOWORK=off go test . && GOWORK=off go run . -C $(CURDIR) $(PROSE)

## tidy: go.mod and go.sum list the dependencies in use and no others
tidy:
	@set -e; for m in $(MODULES) tools/vale; do (cd $$m && GOWORK=off go mod tidy -diff); done

## build386: no code relies on 64-bit integers
build386:
	GOARCH=386 CGO_ENABLED=0 go vet . ./limit ./rate ./rule ./internal/plan ./internal/actors ./memstore ./config ./replay ./client

## outside: the example builds and passes its tests outside the repository
outside: deps
	@scripts/outside

## clean-clone: building and go doc change nothing in a fresh clone of the commit
clean-clone:
	@scripts/clean $(MODULES)

## verify: the downloaded dependencies match go.sum; dependencies that are not downloaded are skipped
verify:
	@set -e; for m in $(MODULES) tools tools/vale; do echo "== $$m"; (cd $$m && GOWORK=off go mod verify); done

## vulnerabilities: the modules use no code with a known vulnerability; skipped without access to the database
vulnerabilities:
	@scripts/vulnerabilities $(MODULES)

## fuzz: every fuzz test for a moment; FUZZTIME=10m for longer
fuzz:
	@set -e; for f in $(FUZZ); do echo "== $$f"; go test -run '^$$' -fuzz "^$${f#*:}$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1000x ./$${f%%:*}; done

## bench: measure Diana, its rivals and floors, and write docs/performance.{json,md,svg} after each group;
## BENCH='-run global,gateway' measures these groups again and keeps the figures of the others
bench: deps
	cd bench && go run . $(BENCH)

## bench-quick: the same within a minute, to test the program; it changes no file in docs
bench-quick: deps
	cd bench && go run . -quick $(BENCH)

## page: make the tables and the picture of docs/performance.md from docs/performance.json
page:
	cd bench && go run . page
