# hearth: one Makefile, not recursive except for the sanitizer builds, output in build/.
#
#   make            build programs, library            make check   everything a change must pass
#   make demo       see a model answer                 make bench   JSON lines, tables, plots
#   make asan/tsan  the tests under a sanitizer        make fuzz    libFuzzer targets, FUZZ_SECONDS each
#   make install    DESTDIR and PREFIX are honoured    make lint    clang-format, clang-tidy
#
# Every file is found by its place: a new .c in a folder is built, a new tests/unit/test_X.c is run.

BUILD   ?= build
ifeq ($(origin CC),default)
CC       = gcc
endif
PREFIX  ?= /usr/local
BINDIR   = $(PREFIX)/bin
LIBDIR   = $(PREFIX)/lib
VERSION  = 0.1.0
SOVERSION = 0

# SAN: address,undefined or thread; set by the asan and tsan targets. gcc warns that its thread sanitizer does
# not model fences: every fence here orders atomics (ipc/ring.h, kernels/cpu/pool.h), which it does model.
SAN     ?=
WARN     = -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
# Canonical numerics: no contraction the code did not write (kernels/NUMERICS.md).
CFLAGS  ?= -O2 -g
# FAULTS=1: the daemon takes --fault (daemon/fault.h).
CPPFLAGS += $(if $(FAULTS),-DHEARTH_FAULTS) -I. -D_GNU_SOURCE -DHEARTH_VERSION='"$(VERSION)"'
ALLCFLAGS = -std=gnu11 $(WARN) -ffp-contract=off -fno-math-errno -fPIC -fvisibility=hidden -pthread $(CFLAGS) \
            $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all) \
            $(if $(findstring thread,$(SAN)),-Wno-tsan)
ALLLDFLAGS = -pthread -Wl,--as-needed $(LDFLAGS) $(if $(SAN),-fsanitize=$(SAN))
URING    = -luring
# JSON in the library: schemas, messages of a chat. The command carries it, for its start-up time.
JANSSON  = -ljansson
JANSSON_STATIC = -l:libjansson.a
MHD      = -lmicrohttpd

# make V=1 shows whole commands.
Q        = $(if $(V),,@)
say      = $(if $(V),@:,@printf '  %-5s %s\n')

ARCH    := $(shell uname -m)

IPC      = $(wildcard ipc/*.c)
KERNELS  = $(filter-out $(if $(filter x86_64,$(ARCH)),,%_avx2.c %_avx512.c),$(wildcard kernels/*.c kernels/cpu/*.c))
DAEMON   = $(filter-out daemon/main.c,$(wildcard daemon/*.c))
CLI      = $(wildcard client/cli*.c)
CLIENT   = $(filter-out $(CLI),$(wildcard client/*.c)) $(wildcard client/tokenizer/*.c client/jinja/*.c)
# The gateway: an ordinary client, which carries the library's objects.
HTTP     = $(filter-out client/http/main.c,$(wildcard client/http/*.c))
# Programs that need kernels only: kernels/tools/hearth_X.c is build/bin/hearth-X.
TOOL_MAIN = $(wildcard kernels/tools/hearth_*.c)
TOOL_PART = $(filter-out $(TOOL_MAIN),$(wildcard kernels/tools/*.c))

obj      = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
LIB_OBJ  = $(call obj,$(CLIENT) $(IPC))
ALL_OBJ  = $(call obj,$(IPC) $(KERNELS) $(TOOL_PART) $(DAEMON) $(CLIENT) $(HTTP))

# CUDA=auto builds the plugin where nvcc is, CUDA=1 always, CUDA=0 never. CUDA_ARCHS: compute capabilities; one is
# quicker to build: make CUDA_ARCHS=90.
CUDA     ?= auto
NVCC     ?= $(or $(shell command -v nvcc 2>/dev/null),/usr/local/cuda/bin/nvcc)
CUDA_HOME = $(patsubst %/bin/nvcc,%,$(NVCC))
CUDA_ARCHS ?= 80 86 89 90 100 120
PLUGINS  = $(if $(filter 0,$(CUDA)),,$(if $(filter 1,$(CUDA))$(wildcard $(NVCC)),$(BUILD)/lib/hearth/hearth-cuda.so))

PROGRAMS = $(if $(wildcard daemon/main.c),$(BUILD)/bin/hearthd) $(if $(wildcard client/cli.c),$(BUILD)/bin/hearth) \
           $(BUILD)/bin/hearth-http
TOOLS    = $(patsubst kernels/tools/hearth_%.c,$(BUILD)/bin/hearth-%,$(TOOL_MAIN))
LIBRARY  = $(if $(wildcard client/hearth.c),$(BUILD)/lib/libhearth.so.$(SOVERSION))

.PHONY: all
all: $(PROGRAMS) $(TOOLS) $(LIBRARY) $(PLUGINS)

$(BUILD)/obj/%_avx2.o:   SIMD = -mavx2 -mfma -mf16c
$(BUILD)/obj/%_avx512.o: SIMD = -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c

$(BUILD)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(CPPFLAGS) $(ALLCFLAGS) $(SIMD) -MMD -MP -c $< -o $@

$(BUILD)/bin/hearthd: $(call obj,daemon/main.c $(DAEMON) $(KERNELS) $(IPC))
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) $^ -o $@ $(URING) $(MHD) $(JANSSON) -lm

# The CLI carries the library's objects (start-up time), and two leaf files of kernels for --model.
$(BUILD)/bin/hearth: $(call obj,$(CLI) kernels/gguf.c kernels/gguf_vocab.c kernels/quant_types.c) $(LIB_OBJ)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) $^ -o $@ $(JANSSON_STATIC)

$(BUILD)/bin/hearth-http: $(call obj,client/http/main.c $(HTTP)) $(LIB_OBJ)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) $^ -o $@ $(MHD) $(JANSSON)

$(TOOLS): $(BUILD)/bin/hearth-%: $(BUILD)/obj/kernels/tools/hearth_%.o $(call obj,$(TOOL_PART) $(KERNELS))
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) $^ -o $@ -lm

$(BUILD)/lib/libhearth.so.$(SOVERSION): $(LIB_OBJ)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) -shared -Wl,-soname,libhearth.so.$(SOVERSION) -Wl,-z,defs $^ -o $@ $(JANSSON)
	ln -sf libhearth.so.$(SOVERSION) $(BUILD)/lib/libhearth.so

# ---- the CUDA plugin ---------------------------------------------------------------------------

# Canonical numerics on the device too: nothing contracted, denormals kept, IEEE divide and root.
NVCCFLAGS = -std=c++17 -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true --Werror all-warnings \
            -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra,-Werror \
            $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
            -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))
CUDA_OBJ  = $(call obj,$(wildcard kernels/cuda/*.c)) $(patsubst %.cu,$(BUILD)/obj/%.cu.o,$(wildcard kernels/cuda/*.cu))

$(BUILD)/obj/kernels/cuda/%.o: CPPFLAGS += -isystem $(CUDA_HOME)/include

$(BUILD)/obj/%.cu.o: %.cu Makefile
	@mkdir -p $(@D)
	$(say) NVCC $<
	$(Q)$(NVCC) -I. $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

# The kernels that the plugin shares with the programs come from the same objects.
$(BUILD)/obj/kernels.a: $(call obj,$(KERNELS))
	@rm -f $@
	@ar rcs $@ $^

$(BUILD)/lib/hearth/hearth-cuda.so: $(CUDA_OBJ) $(BUILD)/obj/kernels.a
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CXX) $(ALLLDFLAGS) -static-libstdc++ -shared -Wl,-z,defs -Wl,--exclude-libs,ALL $^ -o $@ \
	    -L$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt -lm

# ---- cudasim: the CUDA backend on this processor (tests/cudasim/README.md) -----------------------

# Device code is instrumented as for a thread sanitizer, and its calls go to the simulator: so without SAN,
# whatever the rest is built with. -O2 as for the device: what is not written is not there to be checked.
SIM       = $(BUILD)/tests/cudasim
SIM_CXX  := $(shell command -v $(CXX) 2>/dev/null)
SIM_FLAGS = -DHEARTH_CUDASIM -isystem tests/cudasim/include
SIM_CXXFLAGS = -x c++ -std=gnu++17 -O2 -g -fPIC -fvisibility=hidden -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti \
            -Wall -Wno-unknown-pragmas -Werror -fsanitize=thread,alignment --param tsan-distinguish-volatile=1 \
            --param tsan-instrument-func-entry-exit=0
sim_obj   = $(patsubst %.c,$(SIM)/obj/%.o,$(filter %.c,$(1))) $(patsubst %.cu,$(SIM)/obj/%.cu.o,$(filter %.cu,$(1)))
SIM_HELP  = tests/cudasim/help.c tests/cudasim/toys.cu
SIM_OBJ   = $(call sim_obj,$(filter-out tests/cudasim/test_% $(SIM_HELP),$(wildcard tests/cudasim/*.c)))
SIM_TESTS = $(patsubst tests/cudasim/%.c,$(SIM)/%,$(wildcard tests/cudasim/test_*.c))
SIM_PLUGIN = $(SIM)/hearth-cuda.so
SIMULATED = $(if $(SIM_CXX),$(SIM_TESTS) $(SIM_PLUGIN))

# Nor the simulator: a sanitizer does not follow it from stack to stack.
$(SIM_OBJ): SAN =

$(SIM)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(CPPFLAGS) $(SIM_FLAGS) $(ALLCFLAGS) -MMD -MP -c $< -o $@

$(SIM)/obj/%.cu.o: %.cu Makefile tests/cudasim/hooks.syms
	@mkdir -p $(@D)
	$(say) SIM $<
	$(Q)$(CXX) -I. $(SIM_FLAGS) $(SIM_CXXFLAGS) -MMD -MP -MF $(@:.o=.d) -MT $@ -c $< -o $@.raw
	$(Q)objcopy --redefine-syms=tests/cudasim/hooks.syms $@.raw $@ && rm $@.raw

$(SIM_PLUGIN): $(call sim_obj,$(wildcard kernels/cuda/*.c kernels/cuda/*.cu)) $(SIM_OBJ) $(BUILD)/obj/kernels.a
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CXX) $(ALLLDFLAGS) -shared -Wl,-z,defs -Wl,--exclude-libs,ALL $^ -o $@ -ldl -lm

$(SIM)/test_%: $(SIM)/obj/tests/cudasim/test_%.o $(call sim_obj,$(SIM_HELP)) $(SIM_OBJ) $(BUILD)/obj/kernels.a
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CXX) $(ALLLDFLAGS) $^ -o $@ $(CHECK_LIBS) -ldl -lm

# ---- tests -------------------------------------------------------------------------------------

CHECK_LIBS = $(shell pkg-config --libs check 2>/dev/null || echo -lcheck -lsubunit -lrt -lm)
UNIT     = $(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/test_*.c))
E2E      = $(patsubst %.c,$(BUILD)/%,$(wildcard tests/e2e/test_*.c))
STRESS   = $(patsubst %.c,$(BUILD)/%,$(wildcard tests/stress/stress_*.c))
BENCH    = $(patsubst %.c,$(BUILD)/%,$(wildcard tests/bench/bench_*.c))
UNIT_HELP  = $(call obj,$(filter-out tests/unit/test_%,$(wildcard tests/unit/*.c)))
E2E_HELP   = $(call obj,$(filter-out tests/e2e/test_%,$(wildcard tests/e2e/*.c)))
BENCH_HELP = $(call obj,$(filter-out tests/bench/bench_%,$(wildcard tests/bench/*.c)))

$(BUILD)/tests/unit/%: $(BUILD)/obj/tests/unit/%.o $(UNIT_HELP) $(ALL_OBJ)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) $^ -o $@ $(CHECK_LIBS) $(URING) $(MHD) $(JANSSON) -lm

$(BUILD)/tests/e2e/%: $(BUILD)/obj/tests/e2e/%.o $(E2E_HELP) $(UNIT_HELP) $(ALL_OBJ)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) $^ -o $@ $(CHECK_LIBS) $(URING) $(MHD) $(JANSSON) -lm

$(BUILD)/tests/stress/%: $(BUILD)/obj/tests/stress/%.o $(ALL_OBJ)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) $^ -o $@ $(URING) $(MHD) $(JANSSON) -lm

$(BUILD)/tests/bench/%: $(BUILD)/obj/tests/bench/%.o $(BENCH_HELP) $(ALL_OBJ)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) $^ -o $@ $(URING) $(MHD) $(JANSSON) -lm

# The pass contract on the CUDA backend: kernels and a tiny model, no test library. HEARTH_PLUGINS says which plugin.
CONTRACT = $(BUILD)/tests/gpu/contract
$(CONTRACT): $(call obj,tests/gpu/contract.c tests/gpu/subject.c tests/unit/tiny_model.c $(KERNELS))
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) $^ -o $@ -lm

.PHONY: tests
tests: all $(UNIT) $(E2E) $(STRESS) $(CONTRACT) $(SIMULATED)

.PHONY: check
check: deps-check
	@$(MAKE) --no-print-directory tests
	@BUILD=$(BUILD) tests/run.sh

.PHONY: asan tsan
asan: deps-check
	@$(MAKE) --no-print-directory BUILD=build/asan SAN=address,undefined CFLAGS='-O1 -g' tests
	@BUILD=build/asan tests/run.sh
tsan: deps-check
	@$(MAKE) --no-print-directory BUILD=build/tsan SAN=thread CFLAGS='-O1 -g' tests
	@BUILD=build/tsan TSAN_OPTIONS='halt_on_error=1 second_deadlock_stack=1' tests/run.sh

# The determinism suite at length, on a build with fault injection: each request is run N times in each of
# thirteen configurations (see the file), on Q8_0, then fewer times on every other type and with q8_0 KV; and the thread that
# looks for tokens which are taken back.
DETERMINISM_ROUNDS ?= 16
DETERMINISM_TYPE_ROUNDS ?= 2
.PHONY: determinism
determinism: deps-check
	@$(MAKE) --no-print-directory BUILD=build/faults FAULTS=1 all \
	         build/faults/tests/e2e/test_determinism build/faults/tests/e2e/test_observer
	@BUILD=build/faults build/faults/tests/e2e/test_observer
	@BUILD=build/faults HEARTH_DETERMINISM=$(DETERMINISM_ROUNDS) build/faults/tests/e2e/test_determinism
	@for type in F32 F16 BF16 Q4_0 Q5_0 Q5_1 Q4_K Q5_K Q6_K; do \
	    BUILD=build/faults HEARTH_DETERMINISM_TYPE=$$type HEARTH_DETERMINISM=$(DETERMINISM_TYPE_ROUNDS) \
	    build/faults/tests/e2e/test_determinism || exit 1; done
	@BUILD=build/faults HEARTH_DETERMINISM_KV=q8_0 HEARTH_DETERMINISM=$(DETERMINISM_TYPE_ROUNDS) \
	    build/faults/tests/e2e/test_determinism

.PHONY: bench
bench: deps-bench
	@$(MAKE) --no-print-directory all $(BENCH)
	@BUILD=$(BUILD) tests/bench/run.sh

.PHONY: demo
demo: deps-build
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) tests/tools/demo.sh

# ---- fuzzing -----------------------------------------------------------------------------------

FUZZ_SECONDS ?= 60
FUZZERS  = $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))

.PHONY: fuzz
fuzz:
	@tests/fuzz/run.sh $(FUZZ_SECONDS) $(FUZZERS)

# Built with clang and libFuzzer; each target links every folder's objects under the same sanitizers. Not the
# vector files: no target runs them, and clang takes many minutes to instrument them.
FUZZ_CFLAGS = -std=gnu11 -O1 -g -ffp-contract=off -pthread -fsanitize=fuzzer-no-link,address,undefined \
              -fno-sanitize-recover=all
$(BUILD)/fuzz/obj/%_avx2.o:   SIMD = -mavx2 -mfma -mf16c -fno-sanitize=all
$(BUILD)/fuzz/obj/%_avx512.o: SIMD = -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c -fno-sanitize=all
$(BUILD)/fuzz/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)clang $(CPPFLAGS) $(FUZZ_CFLAGS) $(SIMD) -MMD -MP -c $< -o $@
$(BUILD)/fuzz/fuzz_%: $(BUILD)/fuzz/obj/tests/fuzz/fuzz_%.o \
                      $(patsubst %.c,$(BUILD)/fuzz/obj/%.o,$(IPC) $(KERNELS) $(DAEMON) $(CLIENT) $(HTTP))
	$(say) LINK $@
	$(Q)clang -fsanitize=fuzzer,address,undefined -pthread $^ -o $@ $(URING) $(MHD) $(JANSSON) -lm

# ---- packages ----------------------------------------------------------------------------------

.PHONY: deps-build deps-check deps-bench deps-fuzz
deps-build:
	@tests/tools/deps.sh gcc libc6-dev pkg-config liburing-dev libjansson-dev libmicrohttpd-dev
deps-check:
	@tests/tools/deps.sh gcc libc6-dev pkg-config liburing-dev check libjansson-dev libmicrohttpd-dev
deps-bench: deps-check
	@tests/tools/deps.sh gnuplot-nox
deps-fuzz:
	@tests/tools/deps.sh clang libclang-rt-dev liburing-dev libjansson-dev libmicrohttpd-dev

# ---- install -----------------------------------------------------------------------------------

.PHONY: install
install: all
	install -d "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(LIBDIR)/pkgconfig" "$(DESTDIR)$(PREFIX)/include" \
	           "$(DESTDIR)$(PREFIX)/share/man/man1" "$(DESTDIR)$(PREFIX)/share/man/man8" \
	           "$(DESTDIR)$(LIBDIR)/systemd/system" "$(DESTDIR)$(LIBDIR)/systemd/user" \
	           "$(DESTDIR)$(PREFIX)/share/hearth"
	install -m 755 $(BUILD)/bin/hearthd $(BUILD)/bin/hearth $(TOOLS) "$(DESTDIR)$(BINDIR)"
	install -m 755 $(BUILD)/lib/libhearth.so.$(SOVERSION) "$(DESTDIR)$(LIBDIR)/libhearth.so.$(VERSION)"
	$(if $(PLUGINS),install -d "$(DESTDIR)$(LIBDIR)/hearth")
	$(if $(PLUGINS),install -m 755 $(PLUGINS) "$(DESTDIR)$(LIBDIR)/hearth")
	ln -sf libhearth.so.$(VERSION) "$(DESTDIR)$(LIBDIR)/libhearth.so.$(SOVERSION)"
	ln -sf libhearth.so.$(SOVERSION) "$(DESTDIR)$(LIBDIR)/libhearth.so"
	install -m 644 client/hearth.h "$(DESTDIR)$(PREFIX)/include/hearth.h"
	sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@VERSION@|$(VERSION)|g' client/hearth.pc.in \
	    > "$(DESTDIR)$(LIBDIR)/pkgconfig/hearth.pc"
	install -m 644 client/hearth.1 $(wildcard kernels/tools/*.1) "$(DESTDIR)$(PREFIX)/share/man/man1"
	install -m 644 daemon/hearthd.8 "$(DESTDIR)$(PREFIX)/share/man/man8/hearthd.8"
	install -m 644 daemon/models/hearth-code-5m-f16.gguf "$(DESTDIR)$(PREFIX)/share/hearth/"
	for scope in system user; do for unit in systemd/$$scope/*; do \
	    sed -e 's|@BINDIR@|$(BINDIR)|g' -e 's|@PREFIX@|$(PREFIX)|g' $$unit \
	        > "$(DESTDIR)$(LIBDIR)/systemd/$$scope/$$(basename $$unit)"; done; done
	@# A new library in the system's own folders is found only after this.
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || true

.PHONY: clean
clean:
	rm -rf build

.PHONY: lint
lint:
	tests/tools/lint.sh

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
.SECONDARY:
