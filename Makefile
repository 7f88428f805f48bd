# Everything is run from here. `make check` is all that CI runs.

MODULES := . source/etcd source/etcd/etcdtest prometheus cmd/diana bench examples/extension
# A number of inputs and not a time: a fuzz run that a time ends can fail with "context
# deadline exceeded" and no finding, when its workers are late to hear of it.
FUZZTIME ?= 30000x

# package:target of every fuzz test
FUZZ := rule:FuzzParseWho internal/plan:FuzzPath internal/plan:FuzzForwardedFor internal/actors:FuzzCookie internal/actors:FuzzQuery internal/plan:FuzzField config:FuzzParse replay:FuzzParse cmd/diana/internal/accesslog:FuzzLine redisstore:FuzzUnpack client:FuzzFields internal/fields:FuzzRead

GOLANGCI := go tool -modfile=$(CURDIR)/tools/go.mod golangci-lint

.PHONY: test check compat deps lint tidy build386 outside clean-clone verify vulnerabilities fuzz bench bench-quick page
.DEFAULT_GOAL := test

## test: all tests of all modules, under the race detector, and without it what it cannot count or would slow down
test: deps
	@command -v consul >/dev/null || echo "There is no consul on PATH: only the fake of it is tested"
	@set -e; for m in $(MODULES); do echo "== $$m"; (cd $$m && go test -race ./...); done
	go test -timeout 20m -run 'Alloc|BytesPerKey|Flood|Model' . ./limit ./memstore ./rate ./redisstore ./internal/plan
	go test -run 'AllSpellings|PlainPaths' ./internal/plan -length 6

## check: all that CI runs
check: deps lint tidy build386 test outside clean-clone verify vulnerabilities fuzz

## compat: every spelling of a path, through the gateway to nginx, express, Flask, Tomcat and others; takes minutes
compat:
	@scripts/deps compat
	cd cmd/diana/compat/testdata/express && npm ci --no-audit --no-fund
	cd cmd/diana && go test ./compat -count=1 -timeout 60m -v -all -one-in 1

## deps: what the tests need besides Go, from Debian's packages
deps:
	@scripts/deps

## lint: formatting, vet and the list of linters in .golangci.yml
lint:
	@unformatted=$$(gofmt -l $(MODULES)); if [ -n "$$unformatted" ]; then echo "gofmt -w $$unformatted"; exit 1; fi
	@set -e; for m in $(MODULES); do echo "== $$m"; (cd $$m && go vet ./... && GOWORK=off $(GOLANGCI) run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...); done

## tidy: go.mod and go.sum say what is used, no more
tidy:
	@set -e; for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy -diff); done

## build386: no place relies on 64-bit integers
build386:
	GOARCH=386 CGO_ENABLED=0 go vet . ./limit ./rate ./rule ./internal/plan ./internal/actors ./memstore ./config ./replay ./client

## outside: the example builds and passes its tests outside the repository
outside: deps
	@scripts/outside

## clean-clone: building and go doc change nothing in a fresh clone of what is committed
clean-clone:
	@scripts/clean $(MODULES)

## verify: the downloaded dependencies are what go.sum says; what is not downloaded is not looked at
verify:
	@set -e; for m in $(MODULES) tools; do echo "== $$m"; (cd $$m && GOWORK=off go mod verify); done

## vulnerabilities: none is known of what the modules use, where the database can be reached
vulnerabilities:
	@scripts/vulnerabilities $(MODULES)

## fuzz: every fuzz test for a moment; FUZZTIME=10m for longer
fuzz:
	@set -e; for f in $(FUZZ); do echo "== $$f"; go test -run '^$$' -fuzz "^$${f#*:}$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1000x ./$${f%%:*}; done

## bench: measure Diana, its rivals and floors, and write docs/performance.{json,md,svg}; BENCH='-run global' measures a part and only prints it
bench: deps
	cd bench && go run . $(BENCH)

## bench-quick: the same within a minute, to test the program; it writes no page
bench-quick: deps
	cd bench && go run . -quick $(BENCH)

## page: make the tables and the picture of docs/performance.md from docs/performance.json
page:
	cd bench && go run . page
