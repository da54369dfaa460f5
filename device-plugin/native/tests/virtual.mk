# The compute side of the library in virtual time: deterministic, and hours of it in seconds. Not part of `native`:
# its tests build it.
VIRTUAL := tests/virtual
VIRTUAL_LIB := $(filter-out $(addprefix lib/base/,elf.c loader.c lookup.c) lib/nvml/%,$(LIB_SOURCES))
VIRTUAL_WORLD := $(addprefix $(VIRTUAL)/,main.c tasks.c card.c)

.PHONY: virtual
virtual: $(OUT)/virtual-time $(OUT)/virtual-process.so

$(OUT)/virtual-time: $(VIRTUAL_WORLD) $(VIRTUAL)/world.h $(wildcard include/*) | $(COMPILER)
	@mkdir -p $(OUT)
	$(CC) -std=c17 -D_GNU_SOURCE -Wall -Wextra -Werror $(CFLAGS) -g -rdynamic -o $@.tmp $(VIRTUAL_WORLD) -ldl -lm
	mv $@.tmp $@

$(OUT)/virtual-process.so: $(VIRTUAL)/process.c $(VIRTUAL)/shim.h $(VIRTUAL)/world.h $(LIB_SOURCES) $(LIB_HEADERS) tests/virtual.mk | $(COMPILER)
	@mkdir -p $(OUT)
	$(CC) $(STRICT) $(CFLAGS) -g -DEGPU_TEST_ROOT $(LIB_FLAGS) -include $(VIRTUAL)/shim.h -shared -Wl,-Bsymbolic \
		-o $@.tmp $(VIRTUAL)/process.c $(VIRTUAL_LIB)
	mv $@.tmp $@
