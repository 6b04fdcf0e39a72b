# hearth: one Makefile, not recursive except for the sanitizer builds, output in build/. `make help` lists the targets.
#
# Every file is found by its place: a new .c in a folder is built, a new tests/unit/FOLDER/test_X.c is run.

.DEFAULT_GOAL := all
BUILD   ?= build
ifeq ($(origin CC),default)
CC       = gcc
endif
PREFIX  ?= /usr/local
BINDIR   = $(PREFIX)/bin
LIBDIR  ?= $(PREFIX)/lib
VERSION  = 0.1.0
SOVERSION = 0

# SAN: address,undefined or thread; set by the asan and tsan targets. gcc warns that its thread sanitizer does
# not model fences: every fence here orders atomics (ipc/ring.h, kernels/base/pool.h), which it does model.
SAN     ?=
# WERROR=: warnings are none, for compilers that were not tried.
WERROR   ?= -Werror
WARN     = -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla $(WERROR)
# Canonical numerics: no contraction the code did not write (kernels/NUMERICS.md).
CFLAGS  ?= -O2 -g
# FAULTS=1: the daemon takes --fault (daemon/policy/fault.h).
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
# CARRIED=1: programs of a release look for libraries in these folders first; else in the system's.
carried  = $(if $(CARRIED),-Wl$(comma)--disable-new-dtags$(comma)-rpath$(comma)$(1))
comma    = ,

# make V=1 shows whole commands.
Q        = $(if $(V),,@)
# Targets that take minutes use all cores, unless -j says otherwise.
JOBS     = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
submake  = +@$(MAKE) --no-print-directory $(JOBS)
# $(call changed,FILE,WORDS): FORCE where FILE does not hold WORDS. It is a prerequisite of FILE, whose recipe writes them.
changed  = $(if $(subst x$(strip $(2)),,x$(file <$(1))),FORCE)
.PHONY: FORCE
say      = $(if $(V),@:,@printf '  %-5s %s\n')

ARCH    := $(shell uname -m)

IPC      = $(wildcard ipc/*.c)
# Bodies in kernels/cpu/simd and kernels/cuda/device that are compiled several times: BODY.c with VARIANTS_BODY.c is an
# object BODY_VARIANT.o for each. A variant is an instruction set, or the ROW_TILES (of matmul_row, the rows) of a kernel.
VARIANTS_attend.c = avx2 avx512
VARIANTS_delta.c = avx2 avx512
VARIANTS_matmul.c = avx2 avxvnni avx512
VARIANTS_ops.c = avx2 avx512
VARIANTS_pack.c = any avx2 avx512
VARIANTS_matmul_expert.cu = 1 4
VARIANTS_matmul_kernel.cu = 1 2 4 8
VARIANTS_matmul_large.cu = 4 8
VARIANTS_matmul_row.cu = 1 2 4
%/pack_any.o:    BODY = -DLANES_ROWS=4 -DPACK_GROUP=pack_group_any
%/pack_avx2.o:   BODY = -DLANES_ROWS=8 -DPACK_GROUP=pack_group_avx2
%/pack_avx512.o: BODY = -DLANES_ROWS=16 -DPACK_GROUP=pack_group_avx512
$(foreach v,1 2 4 8,$(eval %_$v.cu.o: BODY = -DROW_TILES=$v))
# Files, a body as its variants, BODY_VARIANT.c.
variants = $(foreach f,$(1),$(or $(patsubst %,$(basename $f)_%$(suffix $f),$(VARIANTS_$(notdir $f))),$f))
# $(call variant_rules,FOLDER,SUFFIX,VARIANTS,OBJECTS,RECIPE): the rules of a folder's bodies, objects in OBJECTS.
variant_rules = $(foreach v,$(3),$(eval $(4)/$(1)/%_$v$(2:.c=).o: $(1)/%$(2) Makefile ; $$($(5))))
simd_rules = $(call variant_rules,kernels/cpu/simd,.c,any avx2 avxvnni avx512,$(1),$(2))
cuda_rules = $(call variant_rules,kernels/cuda/device,.cu,1 2 4 8,$(1),$(2))
# Files of one instruction set, on x86 alone.
SIMD_FILES = %_avx2.c %_avxvnni.c %_avx512.c
KERNELS  = $(filter-out $(if $(filter x86_64,$(ARCH)),,$(SIMD_FILES)),\
             $(wildcard kernels/*.c $(foreach d,base gguf model quant sample cpu,kernels/$d/*.c)) \
             $(call variants,$(wildcard kernels/cpu/simd/*.c)))
DEVICE   = $(call variants,$(wildcard kernels/cuda/device/*.cu))
DAEMON   = $(filter-out daemon/main.c,$(wildcard daemon/*.c daemon/*/*.c))
CLI      = $(wildcard client/cli/*.c)
# Models on this disk: of the command and of the gateway, not of the library.
MODELS   = $(wildcard client/models/*.c)
CLIENT   = $(wildcard $(foreach d,base lib prompt events schema tokenizer jinja,client/$d/*.c))
# The gateway: an ordinary client, which carries the library's objects.
HTTP     = $(filter-out client/http/main.c,$(wildcard client/http/*.c))
# Programs that need kernels only: kernels/tools/hearth_X.c is build/bin/hearth-X.
TOOL_MAIN = $(wildcard kernels/tools/hearth_*.c)
TOOL_PART = $(filter-out $(TOOL_MAIN),$(wildcard kernels/tools/*.c))

obj      = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
LIB_OBJ  = $(call obj,$(CLIENT) $(IPC))

# CUDA=auto builds the plugin where nvcc and a GPU are, for that GPU; CUDA=1 always, for all architectures; CUDA=0 never.
# CUDA_ARCHS='80 90' (compute capabilities) is CUDA=1 for these alone.
CUDA     ?= $(if $(CUDA_ARCHS),1,auto)
NVCC     ?= $(or $(shell command -v nvcc 2>/dev/null),/usr/local/cuda/bin/nvcc)
CUDA_HOME = $(patsubst %/bin/nvcc,%,$(NVCC))
HAVE_NVCC = $(if $(filter 0,$(CUDA)),,$(wildcard $(NVCC)))
HAVE_GPU  = $(wildcard /dev/nvidia0)
GPU_ARCH := $(if $(HAVE_GPU),$(sort $(subst .,,$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader))))
BUILD_ARCHS = $(or $(CUDA_ARCHS),$(if $(filter 1,$(CUDA)),80 86 89 90 100 120,$(or $(GPU_ARCH),90)))
PLUGIN   = $(BUILD)/lib/hearth/hearth-cuda.so
PLUGINS  = $(if $(filter 1,$(CUDA))$(and $(HAVE_NVCC),$(HAVE_GPU)),$(PLUGIN))

PROGRAMS = $(if $(wildcard daemon/main.c),$(BUILD)/bin/hearthd) $(if $(wildcard client/cli/main.c),$(BUILD)/bin/hearth) \
           $(BUILD)/bin/hearth-http
TOOLS    = $(patsubst kernels/tools/hearth_%.c,$(BUILD)/bin/hearth-%,$(TOOL_MAIN))
LIBRARY  = $(if $(wildcard client/lib/hearth.c),$(BUILD)/lib/libhearth.so.$(SOVERSION))

# Manual pages that are made of what they describe: the library's header, the daemon's --help.
MANUALS  = $(BUILD)/man/libhearth.3 $(BUILD)/man/hearthd.conf.5

.PHONY: all programs help
all: $(PROGRAMS) $(TOOLS) $(LIBRARY) $(PLUGINS) $(MANUALS) ## programs, tools, library, manual pages; the CUDA plugin where a GPU is
programs: $(PROGRAMS) ## hearthd, hearth and hearth-http alone
help: ## this list
	@awk -F ':.*## ' '/^[a-z][a-z_.-]*( [a-z]+)*:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' Makefile

# Files of one instruction set have exactly that, also where CFLAGS say -march=native.
SIMD_AVX2    = -march=x86-64 -mavx2 -mfma -mf16c
SIMD_AVXVNNI = $(SIMD_AVX2) -mavxvnni
SIMD_AVX512  = $(SIMD_AVX2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
$(BUILD)/obj/%_avx2.o:    SIMD = $(SIMD_AVX2)
$(BUILD)/obj/%_avxvnni.o: SIMD = $(SIMD_AVXVNNI)
$(BUILD)/obj/%_avx512.o:  SIMD = $(SIMD_AVX512)

define compile
@mkdir -p $(@D)
$(say) CC $<
$(Q)$(CC) $(CPPFLAGS) $(ALLCFLAGS) $(SIMD) $(BODY) -MMD -MP -c $< -o $@
endef
$(BUILD)/obj/%.o: %.c Makefile
	$(compile)
$(call simd_rules,$(BUILD)/obj,compile)

# An archive for each folder, of which a test takes the objects that it needs; made anew when its list of objects changes.
OBJECTS_ipc     = $(call obj,$(IPC))
OBJECTS_kernels = $(call obj,$(KERNELS))
OBJECTS_tools   = $(call obj,$(TOOL_PART))
OBJECTS_daemon  = $(call obj,$(DAEMON))
OBJECTS_client  = $(call obj,$(CLIENT) $(MODELS))
OBJECTS_http    = $(call obj,$(HTTP))
OBJECTS_rig     = $(call obj,$(wildcard tests/rig/*.c))
OBJECTS_e2e     = $(call obj,$(filter-out tests/e2e/test_%,$(wildcard tests/e2e/*.c)))
OBJECTS_hostile = $(call obj,$(filter-out tests/hostile/test_%,$(wildcard tests/hostile/*.c)))
OBJECTS_bench   = $(call obj,$(filter-out tests/bench/bench_%,$(wildcard tests/bench/*.c)))
archive  = $(foreach a,$(1),$(BUILD)/obj/$(a).a)
ARCHIVES = $(call archive,http client daemon tools kernels ipc)
define archive_rules # NAME
$(BUILD)/obj/$(1).a: $(OBJECTS_$(1)) $(BUILD)/obj/$(1).list
	@rm -f $$@
	$$(Q)ar rcs --thin $$@ $$(filter %.o,$$^)
$(BUILD)/obj/$(1).list: $(call changed,$(BUILD)/obj/$(1).list,$(OBJECTS_$(1)))
	@mkdir -p $$(@D)
	@echo $(strip $(OBJECTS_$(1))) >$$@
endef
$(foreach a,ipc kernels tools daemon client http rig e2e hostile bench,$(eval $(call archive_rules,$(a))))

$(BUILD)/bin/hearthd: $(call obj,daemon/main.c $(DAEMON) $(KERNELS) $(IPC))
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) $^ -o $@ $(URING) -lm

# The CLI carries the library's objects (start-up time), and the reader of GGUF files for --model.
$(BUILD)/bin/hearth: $(call obj,$(CLI) $(MODELS) $(wildcard kernels/gguf/*.c) kernels/quant/quant_types.c) $(LIB_OBJ)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) $^ -o $@ $(JANSSON_STATIC)

# What page.c takes in.
$(BUILD)/obj/client/http/page.o: $(wildcard client/http/page/*)

$(BUILD)/bin/hearth-http: $(call obj,client/http/main.c $(HTTP) $(MODELS)) $(LIB_OBJ)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) $(call carried,'$$ORIGIN/../lib/hearth') $^ -o $@ $(MHD) $(JANSSON)

$(TOOLS): $(BUILD)/bin/hearth-%: $(BUILD)/obj/kernels/tools/hearth_%.o $(call obj,$(TOOL_PART) $(KERNELS) ipc/options.c)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) $^ -o $@ -lm

$(BUILD)/lib/libhearth.so.$(SOVERSION): $(LIB_OBJ)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) -shared -Wl,-soname,libhearth.so.$(SOVERSION) -Wl,-z,defs $(call carried,'$$ORIGIN/hearth:$$ORIGIN') $^ -o $@ $(JANSSON)
	ln -sf libhearth.so.$(SOVERSION) $(BUILD)/lib/libhearth.so

FUNCTIONS = awk -v want=names -f client/man/functions.awk client/hearth.h
$(BUILD)/man/libhearth.3: client/man/libhearth.3.in client/man/functions.awk client/hearth.h Makefile
	@mkdir -p $(@D)
	$(say) MAN $@
	$(Q)awk -v want=functions -f client/man/functions.awk client/hearth.h >$@.part
	$(Q)sed -e 's|@VERSION@|$(VERSION)|' -e "s|@NAMES@|libhearth, $$($(FUNCTIONS))|" \
	    -e '/^@FUNCTIONS@$$/{' -e 'r $@.part' -e 'd' -e '}' $< >$@ && rm $@.part

$(BUILD)/man/hearthd.conf.5: daemon/hearthd.conf.5.in client/man/options.awk $(BUILD)/bin/hearthd
	@mkdir -p $(@D)
	$(say) MAN $@
	$(Q)$(BUILD)/bin/hearthd --help | awk -f client/man/options.awk >$@.part
	$(Q)sed -e 's|@VERSION@|$(VERSION)|' -e '/^@OPTIONS@$$/{' -e 'r $@.part' -e 'd' -e '}' $< >$@ && rm $@.part

# ---- the CUDA plugin ---------------------------------------------------------------------------

# Canonical numerics on the device too: nothing contracted, denormals kept, IEEE divide and root.
NVCCFLAGS = -std=c++17 -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true \
            $(if $(WERROR),--Werror all-warnings) -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra \
            $(if $(word 2,$(BUILD_ARCHS)),--threads 0) \
            $(foreach a,$(BUILD_ARCHS:90=90a),-gencode arch=compute_$(a),code=sm_$(a)) \
            -gencode arch=compute_$(lastword $(BUILD_ARCHS)),code=compute_$(lastword $(BUILD_ARCHS))
CUDA_OBJ  = $(call obj,$(wildcard kernels/cuda/*.c)) $(DEVICE:%=$(BUILD)/obj/%.o)

$(BUILD)/obj/kernels/cuda/%.o: CPPFLAGS += -isystem $(CUDA_HOME)/include

# What nvcc says of registers stays beside the object, for tests/tools/check_registers.sh.
define compile_device
@mkdir -p $(@D)
$(say) NVCC $<
$(Q)$(NVCC) -I. $(NVCCFLAGS) $(BODY) -Xptxas -v -MMD -MP -MF $(@:.o=.d) -c $< -o $@ 2>$(@:.o=.log); code=$$?; \
    grep -v '^ptxas info\|bytes stack frame' $(@:.o=.log) >&2; exit $$code
endef
$(BUILD)/obj/%.cu.o: %.cu Makefile
	$(compile_device)
$(call cuda_rules,$(BUILD)/obj,compile_device)
$(DEVICE:%=$(BUILD)/obj/%.o): $(BUILD)/obj/kernels/cuda/archs
$(BUILD)/obj/kernels/cuda/archs: $(call changed,$(BUILD)/obj/kernels/cuda/archs,$(BUILD_ARCHS))
	@mkdir -p $(@D)
	@echo $(BUILD_ARCHS) >$@

$(PLUGIN): $(CUDA_OBJ) $(call archive,kernels)
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
# What the plugin opens as cuBLAS: found beside it, before NVIDIA's.
SIM_CUBLAS = $(SIM)/libcublas.so.13
SIM_CUBLAS_OBJ = $(call sim_obj,tests/cudasim/cublas/cublas.c)
SIMULATED = $(if $(SIM_CXX),$(SIM_TESTS) $(SIM_PLUGIN) $(SIM_CUBLAS))

# Nor the simulator: a sanitizer does not follow it from stack to stack. It takes most of the time of its tests.
$(SIM_OBJ) $(SIM_CUBLAS_OBJ): SAN =
$(SIM_OBJ): override CFLAGS += -O3

$(SIM)/obj/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(say) CC $<
	$(Q)$(CC) $(CPPFLAGS) $(SIM_FLAGS) $(ALLCFLAGS) -MMD -MP -c $< -o $@

define compile_simulated
@mkdir -p $(@D)
$(say) SIM $<
$(Q)$(CXX) -I. $(SIM_FLAGS) $(SIM_CXXFLAGS) $(BODY) -MMD -MP -MF $(@:.o=.d) -MT $@ -c $< -o $@.raw
$(Q)objcopy --redefine-syms=tests/cudasim/hooks.syms $@.raw $@ && rm $@.raw
endef
$(SIM)/obj/%.cu.o: %.cu Makefile tests/cudasim/hooks.syms
	$(compile_simulated)
$(call cuda_rules,$(SIM)/obj,compile_simulated)

$(SIM_PLUGIN): $(call sim_obj,$(wildcard kernels/cuda/*.c) $(DEVICE)) $(SIM_OBJ) $(call archive,kernels)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CXX) $(ALLLDFLAGS) -shared -Wl,-z,defs -Wl,--exclude-libs,ALL -Wl,-soname,$(@F) \
	    -Wl,--disable-new-dtags,-rpath,'$$ORIGIN' $^ -o $@ -ldl -lm

$(SIM_CUBLAS): $(SIM_CUBLAS_OBJ) $(SIM_PLUGIN)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) -shared -Wl,-z,defs -Wl,-soname,$(@F) -Wl,-rpath,'$$ORIGIN' $^ -o $@

$(SIM)/test_%: $(SIM)/obj/tests/cudasim/test_%.o $(call sim_obj,$(SIM_HELP)) $(SIM_OBJ) $(call archive,kernels)
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CXX) $(ALLLDFLAGS) $^ -o $@ $(CHECK_LIBS) -ldl -lm

# ---- tests -------------------------------------------------------------------------------------

CHECK_LIBS = $(shell pkg-config --libs check 2>/dev/null || echo -lcheck -lsubunit -lrt -lm)
UNIT     = $(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/*/test_*.c))
E2E      = $(patsubst %.c,$(BUILD)/%,$(wildcard tests/e2e/test_*.c))
HOSTILE  = $(patsubst %.c,$(BUILD)/%,$(wildcard tests/hostile/test_*.c))
STRESS   = $(patsubst %.c,$(BUILD)/%,$(wildcard tests/stress/stress_*.c))
BENCH    = $(patsubst %.c,$(BUILD)/%,$(wildcard tests/bench/bench_*.c))

# A test is linked with the archives, and TEST.took names the objects that it took: when one of them changes or its source is
# gone, the test is linked again and tests/run.sh quick runs it.
KNOWN   := $(foreach a,ipc kernels tools daemon client http rig e2e hostile bench,$(OBJECTS_$a))
took     = $(filter $(KNOWN),$(1)) $(if $(filter-out $(KNOWN),$(1)),FORCE)
define link_test
@mkdir -p $(@D)
$(say) LINK $@
$(Q)$(CC) $(ALLLDFLAGS) -Wl,--trace $< -Wl,--start-group $(filter %.a,$|) -Wl,--end-group -o $@ \
    $(CHECK_LIBS) $(URING) $(MHD) $(JANSSON) -lm >$@.trace
@echo '$@: $$(call took,'$$(grep -x '$(BUILD)/.*\.o' $@.trace | grep -vxF '$<')')' >$@.took && rm $@.trace
endef
$(UNIT):   $(BUILD)/%: $(BUILD)/obj/%.o Makefile | $(call archive,rig) $(ARCHIVES)
	$(link_test)
$(E2E):    $(BUILD)/%: $(BUILD)/obj/%.o Makefile | $(call archive,e2e rig) $(ARCHIVES)
	$(link_test)
$(HOSTILE): $(BUILD)/%: $(BUILD)/obj/%.o Makefile | $(call archive,hostile e2e rig) $(ARCHIVES)
	$(link_test)
# Preloaded into programs that these tests start, which may not be sanitized then.
CLOCK    = $(BUILD)/tests/hostile/clock.so
NAMES    = $(BUILD)/tests/e2e/names.so
$(CLOCK:%/clock.so=%/test_chaos): | $(CLOCK)
$(NAMES:%/names.so=%/test_http_upstream): | $(NAMES)
$(BUILD)/obj/tests/hostile/clock/%.o $(BUILD)/obj/tests/e2e/names/%.o: SAN =
$(CLOCK): $(BUILD)/obj/tests/hostile/clock/clock.o
$(NAMES): $(BUILD)/obj/tests/e2e/names/names.o
$(CLOCK) $(NAMES):
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) -shared $^ -o $@
$(STRESS): $(BUILD)/%: $(BUILD)/obj/%.o Makefile | $(ARCHIVES)
	$(link_test)
$(BENCH):  $(BUILD)/%: $(BUILD)/obj/%.o Makefile | $(call archive,bench) $(ARCHIVES)
	$(link_test)

# The pass contract on the CUDA backend: kernels and a tiny model, no test library. HEARTH_PLUGINS says which plugin.
CONTRACT = $(BUILD)/tests/gpu/contract
$(CONTRACT): $(call obj,$(wildcard tests/gpu/*.c) tests/rig/tiny_model.c tests/rig/state_walk.c $(KERNELS))
	@mkdir -p $(@D)
	$(say) LINK $@
	$(Q)$(CC) $(ALLLDFLAGS) $^ -o $@ -lm

.PHONY: tests tests-sim
tests: all $(UNIT) $(E2E) $(HOSTILE) $(STRESS)
tests-sim: all $(BUILD)/tests/e2e/test_cuda $(CONTRACT) $(SIMULATED) $(if $(HAVE_NVCC),$(PLUGIN))

.PHONY: check check-sim quick unit
check: deps-check deps-lint ## what a change must pass, but for check-sim
	@rm -f $(BUILD)/tests/verdicts-check
	$(submake) tests style
	@BUILD=$(BUILD) tests/run.sh check
check-sim: deps-check ## the CUDA backend on a simulated GPU (minutes); where nvcc is, registers of its kernels
	@rm -f $(BUILD)/tests/verdicts-sim
	$(submake) tests-sim
	@BUILD=$(BUILD) tests/run.sh sim

quick: ## after a change: build and run what it can break, within a minute
	$(submake) CUDA=0 tests
	@BUILD=$(BUILD) tests/run.sh quick
NAMED    = $(patsubst %.c,$(BUILD)/%,$(wildcard $(foreach t,$(T),tests/unit/*/test_$t.c tests/e2e/test_$t.c tests/hostile/test_$t.c tests/stress/stress_$t.c)))
unit: ## one suite: make unit T=plan; some: make unit T='cpu_*'
	@[ -n "$(NAMED)" ] || { echo "make unit T=NAME: there is no tests/unit/*/test_$(T).c"; exit 64; }
	$(submake) CUDA=0 $(NAMED) $(if $(findstring /e2e/,$(NAMED))$(findstring /hostile/,$(NAMED)),all)
	@for t in $(NAMED); do BUILD=$(BUILD) $$t || exit; done

.PHONY: asan tsan
asan: deps-check ## the tests under the address and undefined-behaviour sanitizers
	$(submake) BUILD=build/asan SAN=address,undefined CFLAGS='-O1 -g' tests tests-sim
	@BUILD=build/asan tests/run.sh check sim
tsan: deps-check ## the tests under the thread sanitizer
	$(submake) BUILD=build/tsan SAN=thread CFLAGS='-O1 -g' tests tests-sim
	@BUILD=build/tsan TSAN_OPTIONS='halt_on_error=1 second_deadlock_stack=1' tests/run.sh check sim

# The determinism suite at length, on a build with fault injection: each request is run N times in each of some
# configurations (see the file), on Q8_0, an eighth of them a thousand times, then fewer times on every other type, on a
# model of gemma3, two with experts, two recurrent ones and with q8_0 KV; and the thread that looks for tokens which are taken back.
DETERMINISM_ROUNDS ?= 16
DETERMINISM_OFTEN ?= 100
DETERMINISM_TYPE_ROUNDS ?= 2
.PHONY: determinism
determinism: deps-check ## the determinism suite at length
	$(submake) BUILD=build/faults FAULTS=1 all \
	         build/faults/tests/e2e/test_determinism build/faults/tests/e2e/test_observer
	@BUILD=build/faults build/faults/tests/e2e/test_observer
	@BUILD=build/faults HEARTH_DETERMINISM=$(DETERMINISM_ROUNDS) build/faults/tests/e2e/test_determinism
	@BUILD=build/faults HEARTH_DETERMINISM=$(DETERMINISM_OFTEN) HEARTH_DETERMINISM_EVERY=8 \
	    build/faults/tests/e2e/test_determinism
	@for type in F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K MXFP4 IQ4_NL IQ4_XS IQ3_XXS IQ3_S; do \
	    BUILD=build/faults HEARTH_DETERMINISM_TYPE=$$type HEARTH_DETERMINISM=$(DETERMINISM_TYPE_ROUNDS) \
	    build/faults/tests/e2e/test_determinism || exit 1; done
	@for arch in gemma3 gemma4 gemma4-experts gemma4-inputs qwen3moe gpt-oss qwen35 qwen35moe qwen3next lfm2 granitehybrid; do \
	    BUILD=build/faults HEARTH_DETERMINISM_ARCH=$$arch HEARTH_DETERMINISM=$(DETERMINISM_TYPE_ROUNDS) \
	    build/faults/tests/e2e/test_determinism || exit 1; done
	@BUILD=build/faults HEARTH_DETERMINISM_KV=q8_0 HEARTH_DETERMINISM=$(DETERMINISM_TYPE_ROUNDS) \
	    build/faults/tests/e2e/test_determinism

# T=claude: those whose names begin so. Packages from PyPI go to build/clients.
.PHONY: clients
clients: ## real agents and packages from PyPI complete tasks on hearthd (minutes, some GB)
	$(submake) CUDA=0 programs
	@BUILD=$(BUILD) tests/clients/run.py $(T)

# What a recurrent model's turns compute after a trunk of 30,000 tokens, and 10,000 steps of edits with restarts.
.PHONY: states
states: deps-check ## the suite of recurrent models at length
	$(submake) all $(BUILD)/tests/e2e/test_states
	@HEARTH_STATES_TRUNK=30000 HEARTH_STATES_STEPS=10000 $(BUILD)/tests/e2e/test_states

.PHONY: bench
bench: deps-bench ## JSON lines, tables, plots in build/bench
	$(submake) all $(BENCH)
	@BUILD=$(BUILD) tests/bench/run.sh

.PHONY: demo
demo: deps-build ## a private daemon on the bundled model answers
	$(submake) programs
	@BUILD=$(BUILD) tests/tools/demo.sh

# ---- fuzzing -----------------------------------------------------------------------------------

FUZZ_SECONDS ?= 60

.PHONY: fuzz
fuzz: ## libFuzzer targets, FUZZ_SECONDS each
	@tests/fuzz/run.sh $(FUZZ_SECONDS)

# Built with clang and libFuzzer; each target links every folder's objects under the same sanitizers. Not the
# vector files: no target runs them, and clang takes many minutes to instrument them.
FUZZ_CFLAGS = -std=gnu11 -O1 -g -ffp-contract=off -pthread -fsanitize=fuzzer-no-link,address,undefined \
              -fno-sanitize-recover=all $(FUZZ_COVERAGE)
FUZZ_PLAIN = -fno-sanitize=all -fno-profile-instr-generate -fno-coverage-mapping
$(BUILD)/fuzz/obj/%_avx2.o:    SIMD = $(SIMD_AVX2) $(FUZZ_PLAIN)
$(BUILD)/fuzz/obj/%_avxvnni.o: SIMD = $(SIMD_AVXVNNI) $(FUZZ_PLAIN)
$(BUILD)/fuzz/obj/%_avx512.o:  SIMD = $(SIMD_AVX512) $(FUZZ_PLAIN)
define compile_fuzzed
@mkdir -p $(@D)
$(say) CC $<
$(Q)clang $(CPPFLAGS) $(FUZZ_CFLAGS) $(SIMD) $(FAMILY) $(BODY) -MMD -MP -c $< -o $@
endef
$(BUILD)/fuzz/obj/%.o: %.c Makefile
	$(compile_fuzzed)
# A target for each family of calls: fuzz_chat_hermes, fuzz_tools_hermes, ...
define family_rule
$$(BUILD)/fuzz/obj/tests/fuzz/$(1)_%.o: FAMILY = -DFAMILY='"$$*"'
$$(BUILD)/fuzz/obj/tests/fuzz/$(1)_%.o: tests/fuzz/$(1).c Makefile
	$$(compile_fuzzed)
endef
$(foreach target,fuzz_chat fuzz_tools,$(eval $(call family_rule,$(target))))
$(call simd_rules,$(BUILD)/fuzz/obj,compile_fuzzed)
$(BUILD)/fuzz/fuzz_%: $(BUILD)/fuzz/obj/tests/fuzz/fuzz_%.o \
                      $(patsubst %.c,$(BUILD)/fuzz/obj/%.o,$(IPC) $(KERNELS) $(DAEMON) $(CLIENT) $(MODELS) $(HTTP))
	$(say) LINK $@
	$(Q)clang -fsanitize=fuzzer,address,undefined $(FUZZ_COVERAGE) -pthread $^ -o $@ $(URING) $(MHD) $(JANSSON) -lm

# ---- style -------------------------------------------------------------------------------------

# The tree is formatted with clang-format 14; other versions differ. Not checked by clang-tidy: tests made of Check's macros.
CLANG_FORMAT = $(firstword $(foreach f,clang-format-14 clang-format,\
                 $(if $(findstring version 14,$(shell $f --version 2>/dev/null)),$f)))
CLANG_TIDY = $(shell command -v clang-tidy 2>/dev/null)
SOURCES  = $(wildcard $(foreach d,ipc kernels daemon client tests,$d/*.[ch] $d/*/*.[ch] $d/*/*/*.[ch]))
TIDIED   = $(filter-out tests/unit/% tests/e2e/test_% tests/hostile/test_% tests/cudasim/test_%,$(filter %.c,$(SOURCES)))
LINT     = $(BUILD)/lint

.PHONY: style lint format
style: $(if $(CLANG_FORMAT),$(LINT)/format.ok) $(if $(CLANG_TIDY),$(TIDIED:%.c=$(LINT)/%.ok))
	$(if $(CLANG_FORMAT),,@echo "skip: clang-format 14 is not installed: formatting is not checked")
	$(if $(CLANG_TIDY),,@echo "skip: clang-tidy is not installed: sizes of functions and more are not checked")
lint: deps-lint ## style as in check, then clang's static analyzer (minutes at first)
	$(submake) -k style $(TIDIED:%.c=$(LINT)/%.analyzed)
format: ## clang-format over the files that git says are changed
	@files=$$(git ls-files -mo --exclude-standard '*.c' '*.h'); \
	    [ -z "$$files" ] || $(or $(CLANG_FORMAT),clang-format-14) -i $$files

# A stamp for each file: what did not change is not checked again.
$(LINT)/format.ok: $(SOURCES) .clang-format
	@mkdir -p $(@D)
	$(say) LINT formatting
	@bad=$$($(CLANG_FORMAT) --dry-run $(if $(filter .clang-format,$?),$(SOURCES),$?) 2>&1 | \
	    sed -n 's/:[0-9:]* warning: code should be clang-formatted.*//p' | sort -u); \
	    [ -z "$$bad" ] || { echo "not as clang-format writes it:" $$bad; exit 1; }
	@touch $@
$(LINT)/%_avx2.ok    $(LINT)/%_avx2.analyzed:    SIMD = $(SIMD_AVX2)
$(LINT)/%_avxvnni.ok $(LINT)/%_avxvnni.analyzed: SIMD = $(SIMD_AVXVNNI)
$(LINT)/%_avx512.ok  $(LINT)/%_avx512.analyzed:  SIMD = $(SIMD_AVX512)
$(foreach b,attend delta matmul ops,$(LINT)/kernels/cpu/simd/$b.%): SIMD = $(SIMD_AVX2)
$(LINT)/kernels/cpu/simd/pack.%: SIMD = -DLANES_ROWS=4 -DPACK_GROUP=pack_group_any
$(LINT)/kernels/cuda/% $(LINT)/tests/cudasim/%: SIMD = $(SIM_FLAGS)
define tidy # OPTIONS
@mkdir -p $(@D)
$(say) LINT $<
$(Q)out=$$($(CLANG_TIDY) --quiet $(1) --warnings-as-errors='*' $< -- -std=gnu11 $(CPPFLAGS) $(SIMD) 2>/dev/null) || \
    { echo "$$out"; exit 1; }
@$(CC) -MM -MP -MT $@ -MF $@.d $(CPPFLAGS) $(SIMD) $<
@touch $@
endef
$(LINT)/%.ok: %.c .clang-tidy
	$(call tidy)
$(LINT)/%.analyzed: %.c .clang-tidy
	$(call tidy,--checks='$(ANALYZER)')
ANALYZER = -*,clang-analyzer-*,-clang-analyzer-optin.performance.Padding,-clang-analyzer-optin.portability.UnixAPI,$\
           -clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling

compile_commands.json: FORCE ## how each file is compiled, for clangd
	@$(MAKE) -nB --no-print-directory V=1 CUDA=0 CC=gcc CXX=g++ tests tests-sim $(BENCH) | \
	    awk -v folder='$(CURDIR)' -f tests/tools/compile_commands.awk >$@

# ---- packages ----------------------------------------------------------------------------------

.PHONY: deps-build deps-check deps-lint deps-deb deps-bench deps-fuzz
deps-build:
	@tests/tools/deps.sh gcc libc6-dev pkg-config liburing-dev libxxhash-dev libjansson-dev libmicrohttpd-dev libcurl4-openssl-dev
deps-check:
	@tests/tools/deps.sh gcc libc6-dev pkg-config liburing-dev libxxhash-dev check libjansson-dev libmicrohttpd-dev libcurl4-openssl-dev
deps-deb: deps-build
	@tests/tools/deps.sh dpkg-dev debhelper fakeroot $(if $(wildcard client/python),dh-python python3)
deps-bench: deps-check
	@tests/tools/deps.sh gnuplot-nox
# Without them `make check` leaves out what they check, and says so.
deps-lint:
	@tests/tools/deps.sh clang-format clang-tidy || true
deps-fuzz:
	@tests/tools/deps.sh clang libclang-rt-dev liburing-dev libxxhash-dev libjansson-dev

# The daemon's programs and its determinism suite with their libraries inside, in build/portable: for tests/gpu/run.sh on
# a machine that has neither those nor their headers; where nvcc is, all else that it runs as well (CUDA_ARCHS=90 is
# quicker). Without the gateway's objects, whose library has no static form that stands alone.
PORTABLE = build/portable
.PHONY: portable
portable: deps-check ## programs with their libraries inside, in build/portable
	$(submake) BUILD=$(PORTABLE) $(if $(HAVE_NVCC),CUDA=1) CFLAGS='-O2' URING=-l:liburing.a JANSSON=-l:libjansson.a HTTP= \
	         CHECK_LIBS='-l:libcheck.a -l:libsubunit.a -lrt -lm' $(PORTABLE)/bin/hearthd $(PORTABLE)/bin/hearth \
	         $(PORTABLE)/tests/e2e/test_determinism $(if $(HAVE_NVCC),$(PORTABLE)/lib/hearth/hearth-cuda.so \
	         $(PORTABLE)/tests/gpu/contract $(PORTABLE)/bin/hearth-bench $(PORTABLE)/bin/hearth-mkmodel)
	@tests/gpu/sources.sh >$(PORTABLE)/sources

# ---- install -----------------------------------------------------------------------------------

# What goes where, a line a class of files: KIND FOLDER FILE...
#   755, 644   copied with this mode; FILE:NAME gives it another name
#   fill       copied with 644, @PREFIX@, @BINDIR@, @LIBDIR@, @SYSCONFDIR@ and @VERSION@ filled in; a last `.in` of the name is taken off
#   conf       as fill, but a file that is there stays, and one that was changed is not removed
#   tree       a folder: every file below it, with 644
#   link       NAME:TARGET, a symbolic link NAME to TARGET
# Install, uninstall and the Debian packages are made of these lines (systemd/install.sh); without files a line is nothing.
# The plugin stands where hearthd looks for it, ../lib/hearth beside its own folder; units where systemd does.
SHARE    = $(PREFIX)/share
MANDIR   = $(SHARE)/man
UNITDIR  = $(PREFIX)/lib/systemd
# A machine's own configuration; one that is there already is the administrator's.
SYSCONFDIR = $(if $(filter /usr /usr/local,$(PREFIX)),/etc,$(PREFIX)/etc)
NVIMDIR  = $(SHARE)/nvim/site/pack/dist/start/hearth
# Where each shell looks below a prefix: zsh of a distribution in vendor-completions. One file knows all programs.
ZSHDIR   = $(SHARE)/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
COMPLETED = $(filter-out hearth,$(notdir $(PROGRAMS) $(TOOLS)))
define INSTALLED
755  $(BINDIR)              $(PROGRAMS) $(TOOLS)
644  $(LIBDIR)              $(LIBRARY):libhearth.so.$(VERSION)
link $(LIBDIR)              libhearth.so.$(SOVERSION):libhearth.so.$(VERSION) libhearth.so:libhearth.so.$(SOVERSION)
644  $(PREFIX)/lib/hearth   $(PLUGINS)
644  $(PREFIX)/include      client/hearth.h
fill $(LIBDIR)/pkgconfig    client/hearth.pc.in
644  $(MANDIR)/man1         $(wildcard client/man/*.1 kernels/tools/*.1)
644  $(MANDIR)/man3         $(BUILD)/man/libhearth.3
link $(MANDIR)/man3         $(patsubst %,%.3:libhearth.3,$(subst $(comma),,$(shell $(FUNCTIONS))))
fill $(MANDIR)/man5         $(BUILD)/man/hearthd.conf.5
fill $(MANDIR)/man8         $(wildcard daemon/*.8 client/http/*.8)
tree $(NVIMDIR)             client/nvim
fill $(SHARE)/hearth        systemd/upstream.conf
644  $(SHARE)/hearth        daemon/models/hearth-code-5m-f16.gguf $(wildcard client/shell/hearth-widget.*)
644  $(SHARE)/bash-completion/completions client/shell/hearth.bash:hearth
link $(SHARE)/bash-completion/completions $(COMPLETED:%=%:hearth)
644  $(ZSHDIR)              client/shell/_hearth
644  $(SHARE)/fish/vendor_completions.d client/shell/hearth.fish $(COMPLETED:%=client/shell/hearth.fish:%.fish)
fill $(UNITDIR)/system      $(wildcard systemd/system/*)
fill $(UNITDIR)/user        $(wildcard systemd/user/*)
644  $(UNITDIR)/system/hearthd.service.d $(if $(PLUGINS),systemd/cuda.conf)
644  $(UNITDIR)/system/hearth@.service.d $(if $(PLUGINS),systemd/cuda.conf)
644  $(PREFIX)/lib/sysusers.d systemd/sysusers.conf:hearth.conf
644  $(PREFIX)/lib/tmpfiles.d systemd/tmpfiles.conf:hearth.conf
conf $(SYSCONFDIR)/hearth   systemd/hearthd.conf
endef

$(if $(word 2,x$(PREFIX)$(LIBDIR)),$(error PREFIX and LIBDIR must not hold a blank))
install_sh = DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' BINDIR='$(BINDIR)' LIBDIR='$(LIBDIR)' \
             SYSCONFDIR='$(SYSCONFDIR)' VERSION='$(VERSION)' systemd/install.sh

.PHONY: install uninstall
install uninstall: export TABLE = $(INSTALLED)
install: all ## DESTDIR, PREFIX and LIBDIR are honoured
	$(Q)$(install_sh) install
	@# A new library in the system's own folders is found only after this.
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || true

# The plugin goes, whatever this build has.
uninstall: override CUDA = 1
uninstall: ## removes exactly what install put
	$(Q)$(install_sh) uninstall
	@[ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || true

# ---- Debian packages ----------------------------------------------------------------------------

# In build/deb: a copy of the tree with systemd/debian/ at its top, packages beside it. Objects have Debian's flags, so
# they are others than those of `make`, and stay for the next time. hearth-cuda where the plugin is built.
DEB      = build/deb
DEB_TREE = $(DEB)/hearth-$(VERSION)
DEB_PROFILES = $(if $(HAVE_NVCC),pkg.hearth.cuda) $(if $(wildcard client/python),pkg.hearth.python)
.PHONY: deb
deb: deps-deb ## Debian packages, in build/deb
	@rm -rf $(DEB_TREE) $(DEB)/*.deb $(DEB)/*.changes $(DEB)/*.buildinfo
	@mkdir -p $(DEB_TREE)
	@cp -a LICENSE Makefile README.md CONTRIBUTING.md SECURITY.md daemon client kernels ipc tests systemd $(DEB_TREE)/
	@mv $(DEB_TREE)/systemd/debian $(DEB_TREE)/
	@find $(DEB_TREE) -name __pycache__ -prune -exec rm -rf {} +
	cd $(DEB_TREE) && CC='$(CC)' HEARTH_BUILD=$(CURDIR)/$(DEB)/objects HEARTH_CUDA=$(if $(HAVE_NVCC),1,0) \
	    dpkg-buildpackage -b -us -uc -P$(subst $() ,$(comma),$(strip $(DEB_PROFILES))) >../build.log 2>&1 || \
	    { tail -n 40 ../build.log; exit 1; }
	@ls $(DEB)/*.deb

# ---- a release ------------------------------------------------------------------------------------

# In build/release: a tarball with install.sh, Debian packages, a wheel; the same bytes from any folder at any time. Folders
# of the table are placeholders, which install.sh fills in.
RELEASE  = build/release
PLACES   = PREFIX=@PREFIX@ LIBDIR=@PREFIX@/lib SYSCONFDIR=@SYSCONFDIR@ UNITDIR=@UNITDIR@ ZSHDIR=@ZSHDIR@
.PHONY: release release-files
release: deps-build ## a tarball, Debian packages and a wheel, in build/release
	@rm -rf $(RELEASE)/*.tar.gz $(RELEASE)/*.whl $(RELEASE)/*.deb && mkdir -p $(RELEASE)
	$(submake) BUILD=$(RELEASE)/objects CUDA=0 CARRIED=1 CFLAGS='-O2 -ffile-prefix-map=$(CURDIR)=.' URING=-l:liburing.a \
	         $(PLACES) release-files
	+@$(MAKE) --no-print-directory CUDA=0 deb >/dev/null
	@cp $(DEB)/*.deb $(RELEASE)/
	@cd $(RELEASE) && sha256sum *.tar.gz *.whl *.deb
release-files: export TABLE = $(INSTALLED)
release-files: all
	@VERSION='$(VERSION)' BUILD='$(BUILD)' sh systemd/release/pack.sh $(RELEASE)
	@cd client/python && python3 make_wheel.py $(CURDIR)/$(BUILD)/carried $(CURDIR)/$(RELEASE)

.PHONY: clean
clean: ## removes build/
	rm -rf build

-include $(shell find $(BUILD)/obj $(BUILD)/tests/cudasim $(BUILD)/fuzz/obj $(LINT) -name '*.d' 2>/dev/null) \
         $(shell find $(BUILD)/tests -name '*.took' 2>/dev/null)
.SECONDARY:
