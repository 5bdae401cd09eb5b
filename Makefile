# "make demo" needs Go and make alone; "make test" installs what else it needs.

GO            ?= go
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
STATICCHECK   := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# How long "make fuzz-short" fuzzes each target.
FUZZ_TIME     ?= 10s
# How long "make chaos" goes on, and the seed of its choices; without one, a new one.
DURATION      ?= 10m
SEED          ?=
# What "make bench" measures, and the servers on which it does, one after the other.
BENCH         ?= all
SERVERS       ?= installed mysql
# How many failovers "make chaos-mysql" makes, at least 3.
FAILOVERS     ?= 20
# How many processes "make chaos-queue" and "make chaos-push" kill.
KILLS         ?= 1000

# The packages whose tests take longest begin first.
PACKAGES      := ./internal/endtoend ./cmd/activityd ./internal/history ./internal/oncehistory ./...

# What "make image" builds with.
BUILDER       ?= $(notdir $(firstword $(foreach p,buildah podman,$(shell command -v $(p)))))

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Ctrl-C on a terminal goes to make, too, which ends with an error then, however well
# the demo does. So the demo gets the terminal for itself ("set -m"), if make has it
# ("+"); it cannot be suspended then, and only Ctrl-C or its own end stops it.
.PHONY: demo
demo: ## show the whole thing on this machine (ARGS="--listen 127.0.0.1:8081")
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/demo ./cmd/demo
	@case "$$(ps -o stat= -p $$$$ 2>/dev/null)" in *+*) trap '' TSTP; set -m; bin/demo $(ARGS); exit $$?;; esac; exec bin/demo $(ARGS)

.PHONY: build
build: ## build bin/activityd
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/activityd ./cmd/activityd

.PHONY: dist
dist: ## build dist/: tar.gz and Debian packages for Linux and macOS, and SHA256SUMS (VERSION=1.2.3)
	@GO='$(GO)' scripts/dist $(PLATFORMS)

.PHONY: image
image: ## build the container image localhost/activityd:VERSION for this machine (BUILDER=podman)
	@test -n "$(BUILDER)" || { echo 'image: there is no buildah or podman' >&2; exit 1; }
	@GO='$(GO)' DIST=bin/image scripts/dist linux/$$($(GO) env GOARCH)
	@tar -xzf bin/image/activityd-*.tar.gz -C bin/image --strip-components=1
	version=$$(cd bin/image && echo activityd-*-linux-*.tar.gz) && version=$${version#activityd-} && version=$${version%-linux-*} && \
		$(BUILDER) build --timestamp "$$(stat -c %Y bin/image/activityd)" -t localhost/activityd -t "localhost/activityd:$$(echo "$$version" | tr + -)" \
		-f packaging/Containerfile bin/image

.PHONY: test-dist
test-dist: ## try what make dist makes: the same bytes twice, a Debian that boots, a container (PLATFORMS=all)
	@scripts/install-test-deps dist
	ACTIVITYD_TEST_DIST_PLATFORMS='$(PLATFORMS)' \
		$(GO) test -tags dist -count=1 -timeout 60m -v ./packaging

.PHONY: test
test: test-deps ## run all tests with the race detector, on real servers
	$(GO) run ./internal/tools/testsummary -race -vet=off -count=1 -timeout 30m $(PACKAGES)

.PHONY: test-mysql
test-mysql: test-deps ## run all tests on MySQL 9 and Valkey 9, which it unpacks into the user's cache
	@GO='$(GO)' scripts/test-matrix mysql

.PHONY: test-matrix
test-matrix: test-deps ## run all tests on the installed servers, on those of test-mysql, and on MariaDB 11.8 and Redis 8
	@GO='$(GO)' scripts/test-matrix

.PHONY: test-fast
test-fast: ## run all tests without the race detector, only what changed
	$(GO) test ./...

.PHONY: test-deps
test-deps: ## install what the tests need and the machine lacks
	@scripts/install-test-deps

.PHONY: lint
lint: ## lint, with a pinned version of golangci-lint
	@GO='$(GO)' scripts/lint $(GOLANGCI_LINT) $(STATICCHECK)

.PHONY: tidy-check
tidy-check: ## check that go.mod and go.sum are tidy
	$(GO) mod tidy -diff
	$(GO) mod verify

.PHONY: cover
cover: test-deps ## measure the coverage, and write coverage.out
	$(GO) test -coverpkg=./... -coverprofile=coverage.out ./...
	$(GO) tool cover -func=coverage.out | tail -n 1

.PHONY: fuzz-short
fuzz-short: ## fuzz every fuzz target for a short time
	@GO='$(GO)' scripts/fuzz-short $(FUZZ_TIME)

.PHONY: bench
bench: test-deps ## measure beside what one would use instead, on both pairs of servers (BENCH=queue SERVERS=installed ARGS=--quick)
	@for name in $(SERVERS); do \
		case $$name in \
		installed) set -- ;; \
		mysql) folder=$$(scripts/unpack-servers unstable mysql-server-core:usr/sbin/mysqld valkey-server:usr/bin/valkey-server) || exit 1; \
			set -- --mysqld "$$folder/mysqld" --redis-server "$$folder/valkey-server" ;; \
		*) echo "$@: SERVERS=$$name: want installed, mysql or both" >&2; exit 1 ;; \
		esac; \
		(cd bench && $(GO) run . $(BENCH) "$$@" $(ARGS)) || exit 1; \
	done

.PHONY: bench-test
bench-test: test-deps ## check that the benchmark works, and gate on counts: a minute
	cd bench && $(GO) vet ./... && $(GO) test -timeout 5m ./...

.PHONY: chaos
chaos: test-deps ## kill, stop, cut and delay everything for long (DURATION=10m SEED=1234)
	ACTIVITYD_CHAOS='$(DURATION)' ACTIVITYD_SEED='$(SEED)' \
		$(GO) test -race -count=1 -timeout 0 -v -run '^TestChaos$$' ./internal/endtoend

.PHONY: chaos-push
chaos-push: test-deps ## the same for push, until so many processes were killed (KILLS=1000 SEED=1234)
	ACTIVITYD_KILLS='$(KILLS)' ACTIVITYD_SEED='$(SEED)' \
		$(GO) test -race -count=1 -timeout 0 -v -run '^TestPushChaos$$' ./internal/endtoend

.PHONY: chaos-mysql
chaos-mysql: test-deps ## fail over from one MySQL to the next under load (FAILOVERS=20 SEED=1234)
	ACTIVITYD_FAILOVERS='$(FAILOVERS)' ACTIVITYD_SEED='$(SEED)' \
		$(GO) test -race -count=1 -timeout 0 -v -run '^TestMySQLFailsOver$$' ./internal/endtoend

.PHONY: chaos-queue
chaos-queue: test-deps ## kill and stop processes that work on tasks, so many times (KILLS=1000 SEED=1234)
	ACTIVITYD_KILLS='$(KILLS)' ACTIVITYD_SEED='$(SEED)' \
		$(GO) test -race -count=1 -timeout 0 -v -run '^TestKilledProcessesLoseNothing$$' ./queue

.PHONY: prove
prove: test-deps ## try a million histories and all orders of 7 events (RUNS=1000 DURATION=30m EVENTS=5, SEED=1234)
	GOGC=400 ACTIVITYD_PROVE=1 ACTIVITYD_SEED='$(SEED)' ACTIVITYD_RUNS='$(RUNS)' ACTIVITYD_EVENTS='$(EVENTS)' \
		ACTIVITYD_DURATION='$(if $(filter file,$(origin DURATION)),,$(DURATION))' \
		$(GO) test -count=1 -timeout 0 -v -run '^TestProve$$' ./internal/history

.PHONY: prove-once
prove-once: test-deps ## try 100,000 histories of package once on each store (RUNS=1000 DURATION=30m SEED=1234)
	GOGC=200 ACTIVITYD_PROVE=1 ACTIVITYD_SEED='$(SEED)' ACTIVITYD_RUNS='$(RUNS)' \
		ACTIVITYD_DURATION='$(if $(filter file,$(origin DURATION)),,$(DURATION))' \
		$(GO) test -p 1 -count=1 -timeout 0 -v -run '^TestProve$$' ./internal/oncehistory

.PHONY: model
model: ## search the models of the queue and of the guard, with SPIN
	@scripts/install-test-deps model
	$(GO) test -tags model -count=1 -timeout 20m ./model

.PHONY: pages
pages: ## write docs/settings.md, docs/commands.md and docs/metrics.md from the code
	$(GO) test -count=1 -run '^TestThePageOf(Settings|Commands|Metrics)$$' ./cmd/activityd ./internal/metrics -write

.PHONY: screenshot
screenshot: test-deps ## take the picture of the demo that the README shows
	ACTIVITYD_SCREENSHOT='$(CURDIR)/docs/demo.png' \
		$(GO) run ./internal/tools/testsummary -count=1 -run '^TestTheDemo$$' ./internal/browser

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist coverage.out
