# libvgpu-egpu.so. `make native` builds the one that tests use: the machine's compiler, and files looked for under
# EGPU_TEST_ROOT. `make native-release` builds what is shipped: no such variable, no symbol newer than glibc 2.17.
LIB_ROOMS := base usage memory nvml activity time
LIB_SOURCES := $(foreach room,$(LIB_ROOMS),$(wildcard lib/$(room)/*.c))
LIB_HEADERS := $(foreach room,$(LIB_ROOMS),$(wildcard lib/$(room)/*.h lib/$(room)/*.def)) $(wildcard include/*.h include/*.def abi/*.h)
# A preload has its thread-local words in the first block: no call for them.
LIB_FLAGS := -ftls-model=initial-exec
LIB_LINK := -shared -Wl,-soname,libvgpu-egpu.so -Wl,-Bsymbolic -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,--build-id=sha1

native: $(OUT)/libvgpu-egpu.so

$(OUT)/libvgpu-egpu.so: $(LIB_SOURCES) $(LIB_HEADERS) lib/build.mk | $(COMPILER)
	@mkdir -p $(OUT)
	$(CC) $(STRICT) $(CFLAGS) -g -DEGPU_TEST_ROOT $(LIB_FLAGS) $(LIB_LINK) -o $@.tmp $(LIB_SOURCES)
	mv $@.tmp $@

RELEASE := $(foreach machine,x86_64 aarch64,$(addprefix $(OUT)/release/$(machine)/,libvgpu-egpu.so libvgpu-egpu-32.so))
ZIG = $(OUT)/zig/bin/python -m ziglang cc

.PHONY: native-release
native-release: $(RELEASE)

$(OUT)/release/%/libvgpu-egpu.so: $(LIB_SOURCES) $(LIB_HEADERS) lib/build.mk | $(OUT)/zig/.done
	@mkdir -p $(@D)
	$(ZIG) -target $*-linux-gnu.2.17 $(STRICT) -O2 -s $(LIB_FLAGS) $(LIB_LINK) -o $@.tmp $(LIB_SOURCES)
	mv $@.tmp $@

$(OUT)/release/x86_64/libvgpu-egpu-32.so: NARROW := x86-linux-gnu.2.17
$(OUT)/release/aarch64/libvgpu-egpu-32.so: NARROW := arm-linux-gnueabihf.2.17
$(OUT)/release/%/libvgpu-egpu-32.so: lib/stub/nothing.c lib/build.mk | $(OUT)/zig/.done
	@mkdir -p $(@D)
	$(ZIG) -target $(NARROW) $(STRICT) -O2 -s -nostdlib -shared -Wl,-soname,libvgpu-egpu.so -o $@.tmp $<
	mv $@.tmp $@

# Programs of the memory side's tests.
native: $(OUT)/memory-actor $(OUT)/memory-actor-direct

ACTOR := tests/memory_actor.c tests/memory_images.h tests/memory_threads.h
$(OUT)/memory-actor: $(ACTOR) $(LIB_HEADERS) | $(COMPILER)
	@mkdir -p $(OUT)
	$(CC) -std=c17 -Wall -Wextra -Werror $(CFLAGS) -o $@.tmp tests/memory_actor.c -ldl -lpthread
	mv $@.tmp $@

$(OUT)/memory-actor-direct: $(ACTOR) $(LIB_HEADERS) $(OUT)/libcuda.so.1 | $(COMPILER)
	$(CC) -std=c17 -Wall -Wextra -Werror $(CFLAGS) -DDIRECT -o $@.tmp tests/memory_actor.c $(OUT)/libcuda.so.1 -ldl -lpthread
	mv $@.tmp $@

# The library and the program of its tests as one, with sanitizers: those do not bear being preloaded around.
.PHONY: native-asan native-tsan
native-asan: $(OUT)/memory-actor-asan
native-tsan: $(OUT)/memory-actor-tsan

$(OUT)/memory-actor-asan: SANITIZE := address,undefined
$(OUT)/memory-actor-tsan: SANITIZE := thread
$(OUT)/memory-actor-asan $(OUT)/memory-actor-tsan: $(LIB_SOURCES) $(LIB_HEADERS) $(ACTOR) lib/build.mk $(OUT)/libcuda.so.1
	$(CC) $(STRICT) -O1 -g -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer -DEGPU_TEST_ROOT \
		-DEGPU_NO_LOOKUP -DDIRECT -rdynamic -o $@.tmp $(LIB_SOURCES) tests/memory_actor.c $(OUT)/libcuda.so.1 -ldl -lpthread
	mv $@.tmp $@
