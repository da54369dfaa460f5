# What takes processes' GPU memory to the host and back. It loads the driver's library at run time, so it is linked
# dynamically; the shipped one needs no glibc newer than 2.17.
native: $(OUT)/egpu-checkpoint

CHECKPOINT := checkpoint/checkpoint.c checkpoint/signals.c
CHECKPOINT_SOURCES := $(CHECKPOINT) checkpoint/signals.h $(wildcard include/*) checkpoint/build.mk

$(OUT)/egpu-checkpoint: $(CHECKPOINT_SOURCES) | $(COMPILER)
	@mkdir -p $(OUT)
	$(CC) $(STRICT) $(CFLAGS) -o $@.tmp $(CHECKPOINT) -ldl -lpthread
	mv $@.tmp $@

native-release: $(OUT)/release/x86_64/egpu-checkpoint $(OUT)/release/aarch64/egpu-checkpoint

$(OUT)/release/%/egpu-checkpoint: $(CHECKPOINT_SOURCES) | $(OUT)/zig/.done
	@mkdir -p $(@D)
	$(ZIG) -target $*-linux-gnu.2.17 $(STRICT) -O2 -s -o $@.tmp $(CHECKPOINT) -ldl -lpthread
	mv $@.tmp $@
