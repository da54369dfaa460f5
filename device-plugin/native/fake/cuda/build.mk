# The fake driver: libcuda.so.1.
FAKE_CUDA := $(wildcard fake/cuda/*.c)

native: $(OUT)/libcuda.so.1

$(OUT)/libcuda.so.1: $(FAKE_CUDA) fake/state.c fake/state.h $(wildcard fake/cuda/*.h include/*) | $(COMPILER)
	@mkdir -p $(OUT)
	$(CC) $(STRICT) $(CFLAGS) -Iinclude -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 -o $@.tmp $(FAKE_CUDA) fake/state.c -lpthread
	mv $@.tmp $@
