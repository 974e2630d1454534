# `make` says what there is. What a target needs is set up on the way: see xtask/host.sh.

# rustup's place, for shells that were started before Rust was installed.
export PATH := $(PATH):$(HOME)/.cargo/bin

CARGO ?= cargo
# The committed versions, so that a fresh clone builds what was tested.
CARGO_FLAGS ?= --locked
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
TWINPATH := $(TARGET_DIR)/release/twinpath
TWINPATH_LAB := $(TARGET_DIR)/release/twinpath-lab

# `make test FULL=1`
FULL ?=
# `make lab LAB=quick ARGS="--repeat 3"`
LAB ?= quick
# The labs of this run: `make lab LAB=all` measures what all of them have targets for, and keeps the ledger.
LABS = $(if $(filter all,$(LAB)),quick kni three-rtts wakeup fallback rpc nfs rds switch openflow stall sockets reflex adopt tcp,$(LAB))
ARGS ?=
# `make instructions BESIDE="twinpath-cli twinpath-lab"`: the counted program is built in one go with these packages, so that both use
# what either has been built from.
BESIDE ?=

.DEFAULT_GOAL := help
# `make install PREFIX=/usr DESTDIR=/tmp/package`
PREFIX ?= /usr/local
DESTDIR ?=
# `make image IMAGE=registry.example/twinpath:1`
IMAGE ?= twinpath:latest

.PHONY: run build build-quick install uninstall deb image release release-check aarch64 test-aarch64 test test-guest example lint lint-code dependencies documents lab lab-build lab-test instructions mutants conformance clean help setup

run: ## build, then measure twinpath against the kernel's own sockets in namespaces of its own (root or sudo, under 60 s)
	@xtask/host.sh may-be-root "twinpath-lab quick builds network namespaces, which"
	@$(MAKE) --no-print-directory build-quick
	@xtask/host.sh as-root "measuring in network namespaces of its own" $(TWINPATH_LAB) quick $(if $(findstring --repeat,$(ARGS)),,--repeat 4) \
	    $(if $(or $(findstring --only,$(ARGS)),$(findstring --check,$(ARGS))),,--summary) $(ARGS)

build: setup ## build target/release/twinpath and what `twinpath run` needs
	$(CARGO) build $(CARGO_FLAGS) --release -p twinpath-cli -p twinpath-preload

lab-build: setup ## build the same, and target/release/twinpath-lab with all labs, which measure it
	$(CARGO) build $(CARGO_FLAGS) --release -p twinpath-cli -p twinpath-preload -p twinpath-lab

# What `make run` runs and no more: `serve`, `bench` and what looks after them, and of the labs the one. What only control and
# the lab run is built faster than it is released.
build-quick: setup
	$(CARGO) build $(CARGO_FLAGS) --release -p twinpath-cli -p twinpath-lab --no-default-features \
	    --config .cargo/quick.toml

install: setup ## install the program, the C library, header, pkg-config file, manual, completions and units below DESTDIR and PREFIX (/usr/local)
	@xtask/host.sh may-write "$(DESTDIR)$(PREFIX)" "make install PREFIX=$(PREFIX)"
	$(CARGO) build $(CARGO_FLAGS) --release -p twinpath-cli -p twinpath-capi -p twinpath-preload
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" packaging/install.sh $(TARGET_DIR)/release

uninstall: ## remove what `make install` has installed below PREFIX (/usr/local)
	@PREFIX="$(PREFIX)" packaging/uninstall.sh

test: setup ## run every test; say how many ran and why any was skipped (device tests need root); FULL=1: what tests repeat, in full
	@if [ "$$(id -u)" = 0 ]; then xtask/host.sh need $(TEST_PACKAGES); fi
	@xtask/host.sh unpack $(TARGET_DIR)/test-peers $(TEST_UNPACKED)
	@$(if $(filter 1,$(FULL)),TWINPATH_TESTS_IN_FULL=1) $(CARGO) run -q $(CARGO_FLAGS) -p xtask -- test-summary $(ARGS)

test-guest: ## test the paths on the network cards of guests, for each of GUEST_KERNELS and GUEST_NICS (no root; skips say why)
	@xtask/host.sh need $(GUEST_PACKAGES) ethtool=ethtool
	@$(MAKE) --no-print-directory lab-build
	@mkdir -p $(TARGET_DIR)/test-guest
	@failed=; skipped=; measured=0; for kernel in $(GUEST_KERNELS); do for nic in $(GUEST_NICS); do \
	    echo "make test-guest: kernel $$kernel, card $$nic"; \
	    code=0; html=$(TARGET_DIR)/test-guest/$$(echo $$kernel-$$nic | tr / -).html; rm -f $$html; \
	    timeout --kill-after=60 $(GUEST_DEADLINE_S) \
	        $(TWINPATH_LAB) devices --check --guest=$$kernel --nic $$nic --keep $(TARGET_DIR)/test-guest/fetched \
	        --html $$html $(ARGS) || code=$$?; \
	    [ $$code != 124 ] || echo "make test-guest: $$kernel, $$nic: ended after $(GUEST_DEADLINE_S) s"; \
	    [ $$code = 0 ] || [ $$code = 3 ] || failed="$$failed $$kernel:$$nic"; \
	    if [ -s $$html ]; then measured=$$((measured + 1)); else skipped="$$skipped $$kernel:$$nic"; fi; \
	done; done; \
	echo "make test-guest: $$measured measured; without a report:$${skipped:- none}; failed:$${failed:- none}"; \
	[ -z "$$failed" ] && [ $$measured -gt 0 ]

example: setup ## build and test a project outside of this workspace that depends on the library (docs/examples/service; no root)
	@# The versions of this workspace: nothing is fetched that is not here already. --locked would refuse the copy, which has more.
	@cp Cargo.lock docs/examples/service/Cargo.lock
	@n=$$($(CARGO) tree --manifest-path docs/examples/service/Cargo.toml -e normal,build --prefix none | sed 's/ (.*//' | sort -u | wc -l) && \
	    echo "docs/examples/service is built from $$n crates, of $(LIBRARY_CRATES_MAX) at most" && [ "$$n" -gt 0 ] && [ "$$n" -le $(LIBRARY_CRATES_MAX) ] || \
	    { echo "put what not every program needs behind a feature of api/twinpath, or raise LIBRARY_CRATES_MAX and say why"; exit 1; }
	@# Other projects' crates are built as in this workspace: what tests have been built with serves.
	CARGO_PROFILE_DEV_DEBUG=false \
	    $(CARGO) test -q --manifest-path docs/examples/service/Cargo.toml --target-dir $(abspath $(TARGET_DIR))

lint: lint-code dependencies ## formatting, clippy, the house rules, dependencies, and the committed BPF object against its source

lint-code: setup ## the same without the dependencies, whose checker takes minutes to build
	@xtask/host.sh component rustfmt
	@xtask/host.sh component clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(CARGO_FLAGS) --all-targets $(ARGS) -- -D warnings
	$(CARGO) run -q $(CARGO_FLAGS) -p xtask -- check
	@if [ "$$(id -u)" = 0 ]; then xtask/host.sh need $(BPF_PACKAGES) || exit 1; fi; \
	if xtask/host.sh has $(BPF_PACKAGES); then \
	    $(CARGO) run -q $(CARGO_FLAGS) -p xtask -- bpf --check; \
	else \
	    echo "SKIPPED: xtask bpf --check: needs the packages above, which make lint installs as root only"; \
	fi

dependencies: setup ## licences, sources and known vulnerabilities of what is depended on
	@xtask/host.sh deny $(DENY_VERSION)

documents: setup ## write what is made from the definitions of keys, options and counters: parts of docs/config.md and docs/metrics.md, the examples, the manual, the completions, the tables of labs
	WRITE_DOCUMENTS=1 $(CARGO) test -q $(CARGO_FLAGS) -p twinpath-config --test documents
	WRITE_DOCUMENTS=1 $(CARGO) test -q $(CARGO_FLAGS) -p twinpath-observe --lib the_document_lists
	WRITE_DOCUMENTS=1 $(CARGO) test -q $(CARGO_FLAGS) -p twinpath-cli --bins documents
	WRITE_DOCUMENTS=1 $(CARGO) test -q $(CARGO_FLAGS) -p twinpath-lab --bins documents

deb: ## build Debian packages into target/deb: the program, the C library, and what programs in C are built with
	@xtask/host.sh need dpkg-dev=dpkg-shlibdeps
	@packaging/deb.sh $(TARGET_DIR)/deb

release: setup ## build a release of the present commit into target/release-files: archive, Debian packages, list of crates (CycloneDX), checksums
	@xtask/host.sh need dpkg-dev=dpkg-shlibdeps binutils=strings
	@packaging/release.sh $(TARGET_DIR)/release-files

release-check: setup ## build the release twice, at different places and with different homes, and compare the bytes
	@xtask/host.sh need dpkg-dev=dpkg-shlibdeps binutils=strings
	@packaging/release.sh --check $(TARGET_DIR)/release-check

aarch64: setup ## build the program and the libraries for aarch64, on any machine (debug build)
	@xtask/host.sh target $(AARCH64)
	@xtask/host.sh need $(AARCH64_PACKAGES)
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CARGO_PROFILE_DEV_DEBUG=false \
	    $(CARGO) build $(CARGO_FLAGS) --target $(AARCH64) -p twinpath-cli -p twinpath-preload -p twinpath-capi

test-aarch64: setup ## run the tests that need no device and no rights as aarch64, under emulation (qemu-user; ten minutes)
	@xtask/host.sh target $(AARCH64)
	@xtask/host.sh need $(AARCH64_PACKAGES) qemu-user-static=qemu-aarch64-static
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -L /usr/aarch64-linux-gnu" \
	    $(CARGO) test $(CARGO_FLAGS) --no-fail-fast --target $(AARCH64) \
	    $(foreach manifest,$(shell grep -lE '^tier = "(pure|memory|engine)"' */*/Cargo.toml),--package $(firstword $(shell sed -n 's/^name = "\(.*\)"$$/\1/p' $(manifest)))) $(ARGS)

image: ## build an OCI image by podman or docker: make image IMAGE=twinpath:latest
	@packaging/image.sh $(TARGET_DIR)/image "$(IMAGE)"

lab-test: setup ## clippy and the tests of the labs, which run the product's program
	@xtask/host.sh component clippy
	$(CARGO) clippy $(CARGO_FLAGS) -p twinpath-lab --all-targets -- -D warnings
	$(CARGO) build $(CARGO_FLAGS) -p twinpath-cli
	@$(MAKE) --no-print-directory test ARGS="-p twinpath-lab"

lab: ## run one lab: make lab LAB=quick ARGS="--check --json out.json" (root or sudo); in a virtual machine: --guest
	@xtask/host.sh may-be-root "twinpath-lab $(LAB) builds network namespaces, which"
	@xtask/host.sh need $(if $(filter --guest --guest=%,$(ARGS)),$(GUEST_PACKAGES)) $(foreach lab,$(LABS),$(LAB_PACKAGES_$(lab)))
	@$(foreach lab,$(LABS),$(if $(LAB_UNPACKED_$(lab)), \
	    xtask/host.sh unpack $(TARGET_DIR)/$(or $(LAB_PEERS_$(lab)),lab-peers) $(LAB_UNPACKED_$(lab)) &&)) true
	@$(MAKE) --no-print-directory lab-build
	@$(foreach lab,$(LABS),$(if $(LAB_EXAMPLES_$(lab)), \
	    $(CARGO) build $(CARGO_FLAGS) --release -p twinpath $(LAB_EXAMPLES_$(lab)) &&)) true
	@xtask/host.sh as-root "measuring in network namespaces of its own" $(TWINPATH_LAB) $(LAB) $(ARGS) \
	    $(if $(filter all,$(LAB)),--commit "$$(git describe --always --dirty)")

instructions: setup ## count the instructions of a call of RPC and of a frame in the switch (valgrind); fail if more than what is committed
	@xtask/host.sh need valgrind=valgrind
	$(CARGO) run -q $(CARGO_FLAGS) -p xtask -- instructions --check $(foreach package,$(BESIDE),--beside $(package))

mutants: setup ## make small changes to a crate's code, and count those its tests notice: make mutants CRATE=core/wire SHARD=0/4
	@xtask/host.sh mutants $(MUTANTS_VERSION) "$(CRATE)" "$(SHARD)" $(ARGS)

conformance: ## run another project's suite against us: make conformance SUITE=ksf DIR=path/to/its/checkout (root or sudo)
	@if [ ! -x "$(SUITE_SCRIPT)" ] || [ ! -d "$(SUITE_CHECKOUT)" ]; then \
	    echo "make conformance needs SUITE=NAME, one of: $(SUITES) (here: '$(SUITE)'), and DIR=PATH, a checkout of it (here: '$(DIR)';" \
	        "none for: $(SUITES_OF_PACKAGES))" >&2; \
	    exit 2; \
	fi
	@xtask/host.sh may-be-root "make conformance builds network namespaces, which"
	@xtask/host.sh need $(SUITE_PACKAGES_$(SUITE))
	@$(if $(SUITE_UNPACKED_$(SUITE)),xtask/host.sh unpack $(TARGET_DIR)/conformance/$(SUITE)/packages $(SUITE_UNPACKED_$(SUITE)))
	@$(MAKE) --no-print-directory build
	@"$(SUITE_SCRIPT)" build "$(SUITE_CHECKOUT)" $(TARGET_DIR)/conformance/$(SUITE)
	@xtask/host.sh as-root "running $(SUITE) in network namespaces of its own" \
	    "$(SUITE_SCRIPT)" run $(TARGET_DIR)/conformance/$(SUITE) $(TWINPATH)

clean: ## remove what was built
	$(CARGO) clean

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s  %s\n", $$1, $$2 }' Makefile

# The NFS server of `lab kni`, `lab rpc` and `lab nfs`.
LAB_PACKAGES_kni := nfs-ganesha=ganesha.nfsd nfs-ganesha-vfs=/etc/ganesha/vfs.conf
LAB_PACKAGES_rpc := $(LAB_PACKAGES_kni)
LAB_PACKAGES_nfs := $(LAB_PACKAGES_kni)

# The switches of `lab switch`: Open vSwitch, DPDK's testpmd with the drivers and the libraries that it is linked with, and what both
# need. They are unpacked, not installed, so that no service of theirs starts here.
OVS_UNPACKED := openvswitch-switch openvswitch-common \
	libbpf1 libcap-ng0 libelf1 libevent-2.1-7 libgmp10 libhogweed6 libnettle8 libnuma1 libssl3 libunbound8 libxdp1
LAB_UNPACKED_switch := $(OVS_UNPACKED) \
	dpdk-dev ibverbs-providers libbsd0 libdbus-1-3 libfdt1 libibverbs1 libjansson4 libmd0 libnl-3-200 libnl-route-3-200 \
	libpcap0.8 librte-common-mlx5-23 librte-net-i40e23 $(addprefix librte-,$(addsuffix 23,bitratestats bpf bus-auxiliary \
	bus-dpaa bus-pci bus-vdev cmdline common-dpaax common-iavf crypto-scheduler cryptodev eal ethdev eventdev gro gso hash \
	ip-frag kvargs latencystats mbuf mempool mempool-dpaa mempool-ring meter metrics net net-af-packet net-af-xdp net-bnxt \
	net-bond net-dpaa net-ice net-ixgbe net-memif net-mlx5- pcapng pci pdump rcu reorder ring sched security telemetry timer))

# The same directory serves this lab, so it holds the same packages.
LAB_UNPACKED_openflow := $(LAB_UNPACKED_switch)

# What runs a lab in a virtual machine. Its kernel is fetched by the lab and not installed.
GUEST_PACKAGES := qemu-system-x86=qemu-system-x86_64

# Debian's own kernel and its newest, with the drivers that a cloud kernel lacks; and the cards they drive.
GUEST_KERNELS ?= linux-image-amd64 linux-image-amd64/backports
GUEST_NICS ?= virtio-net igb igb-vf e1000e

# What a guest may take, s. Emulated, each of them takes two to four minutes of a CPU.
GUEST_DEADLINE_S ?= 900

# What building for aarch64 needs on another machine.
AARCH64 := aarch64-unknown-linux-gnu
AARCH64_PACKAGES := gcc-aarch64-linux-gnu=aarch64-linux-gnu-gcc \
	libc6-dev-arm64-cross=/usr/aarch64-linux-gnu/include/stdio.h

# Only to prove that the committed object is what its source gives; the product needs no compiler for it.
BPF_PACKAGES := clang-14=clang-14 llvm-14=llvm-strip-14

# The checker of dependencies; deny.toml says what it holds them to.
DENY_VERSION := 0.20.2

# What makes the changes of `make mutants`; .cargo/mutants.toml says which are left out.
MUTANTS_VERSION := 27.1.0

# What tests call: device tests to change their namespaces, others to compare with. Who is not root does without: such a test
# says that it was skipped.
TEST_PACKAGES := iproute2=ip rpcbind=rpcinfo ethtool=ethtool xdp-tools=xdp-filter util-linux=nsenter \
	tcpdump=tcpdump bind9-dnsutils=dig openvswitch-common=ovs-ofctl gcc=cc pkg-config=pkg-config binutils=objdump \
	iputils-ping=ping mininet=mnexec python3-os-ken=/usr/lib/python3/dist-packages/os_ken/cmd/manager.py $(LAB_PACKAGES_kni)

# Programs that the library's examples are compared with, and the C library musl. Unpacked, so that no service of theirs starts here.
TEST_UNPACKED := memcached libmemcached-tools libmemcached11 libmemcachedutil2 libhashkit2 libevent-2.1-7 libsasl2-2 \
	libsasl2-modules-db dnsperf libldns3 libnghttp2-14 libssl3 nsd libfstrm0 libprotobuf-c1 musl musl-dev \
	$(filter-out libssl3 libevent-2.1-7,$(OVS_UNPACKED))

# The suites that `make conformance` knows, and what building and running them takes.
SUITES := $(basename $(notdir $(wildcard test/conformance/*.sh)))
SUITE_SCRIPT = test/conformance/$(filter $(SUITES),$(SUITE)).sh
SUITE_PACKAGES_ksf := libtirpc-dev=/usr/include/tirpc/rpc/rpc.h iproute2=ip util-linux=unshare
SUITE_PACKAGES_os-ken := python3=python3 python3-venv=/usr/share/doc/python3-venv/copyright iproute2=ip \
	util-linux=unshare
SUITE_UNPACKED_os-ken := $(OVS_UNPACKED)
SUITE_PACKAGES_packetdrill := gcc=cc make=make flex=flex bison=bison python3=python3 util-linux=unshare
SUITE_PACKAGES_tcp-testsuite := $(SUITE_PACKAGES_packetdrill)
SUITE_PACKAGES_linux-packetdrill := $(SUITE_PACKAGES_packetdrill)
SUITE_PACKAGES_nfs := cmake=cmake gcc=cc make=make rpcbind=rpcinfo iproute2=ip util-linux=unshare
SUITE_PACKAGES_pjdfstest := gcc=cc libc6-dev=/usr/include/stdio.h qemu-system-x86=qemu-system-x86_64
SUITE_UNPACKED_pjdfstest := busybox-static cpio
SUITE_PACKAGES_rds := $(SUITE_PACKAGES_pjdfstest) iproute2=ip util-linux=unshare xz-utils=xz
SUITE_UNPACKED_rds := $(SUITE_UNPACKED_pjdfstest)

# What the suite of programs runs comes from Debian: there is no checkout. Unpacked, so that no service of theirs starts here, with the
# libraries that a small installation lacks.
SUITES_OF_PACKAGES := programs
SUITE_CHECKOUT = $(if $(filter $(SUITES_OF_PACKAGES),$(SUITE)),.,$(DIR))
SUITE_PACKAGES_programs := python3=python3 iproute2=ip util-linux=unshare curl=curl golang-go=go gcc=cc openssl=openssl
SUITE_UNPACKED_programs := memcached nsd unbound dnsperf bind9-dnsutils bind9-libs chrony iperf3 sockperf socat rsyslog \
	redis-server redis-tools nginx ngtcp2-client ngtcp2-server \
	bind9 dnsmasq-base haproxy iperf netcat-openbsd openbsd-inetd python3-uvloop musl musl-dev libc6-i386 libc6-dev-i386 \
	python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libpython3.11-testsuite \
	libbsd0 libedit2 libestr0 libev4 libevent-2.1-7 libexpat1 libfastjson4 libfstrm0 libicu72 libiperf0 libjemalloc2 libjson-c5 \
	libldns3 liblmdb0 liblognorm5 liblzf1 libmaxminddb0 libmd0 libnghttp2-14 libnghttp3-3 libngtcp2-9 \
	libngtcp2-crypto-gnutls2 libprotobuf-c1 libpython3.11 libsasl2-2 libsasl2-modules-db libsctp1 libuv1 libwrap0 libxml2 \
	liblua5.3-0 libmnl0 libnetfilter-conntrack3 libnfnetlink0 libnftables1 libnftnl11 libopentracing1 libopentracing-c-wrapper0

# The programs of `lab sockets` are of that suite.
LAB_PEERS_sockets := conformance/programs/packages
LAB_UNPACKED_sockets = $(SUITE_UNPACKED_programs)
LAB_PEERS_reflex := $(LAB_PEERS_sockets)
LAB_UNPACKED_reflex = $(LAB_UNPACKED_sockets)
LAB_PEERS_adopt := $(LAB_PEERS_sockets)
LAB_UNPACKED_adopt = $(LAB_UNPACKED_sockets)

# Crates that a program with the library and none of its features is built from, itself included. The TCP engine is one of ours,
# and hashes by siphasher, as its peers may not find out the places of its tables. The idle policy has its mathematics from libm.
LIBRARY_CRATES_MAX := 72
# The examples of the library that it measures.
LAB_EXAMPLES_reflex := --example dns --example memcached
LAB_EXAMPLES_adopt := --example memcached

# What building needs beside Rust: a linker and the C library's start files.
setup:
	@xtask/host.sh toolchain
	@xtask/host.sh need gcc=cc libc6-dev=/usr/include/stdio.h
