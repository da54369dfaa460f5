# A CUDA runtime for PyTorch on the fake driver. In a folder of its own: nothing else shall find it.
FAKE_RUNTIME := $(wildcard fake/runtime/*.c)

native: $(OUT)/runtime/libcudart.so.13

$(OUT)/runtime/libcudart.so.13: $(FAKE_RUNTIME) $(wildcard fake/runtime/*.h fake/runtime/*.map include/*) | $(COMPILER)
	@mkdir -p $(@D)
	$(CC) $(STRICT) $(CFLAGS) -Iinclude -shared -Wl,-soname,libcudart.so.13 -Wl,--version-script=fake/runtime/exports.map \
		-o $@.tmp $(FAKE_RUNTIME) -ldl -lpthread
	mv $@.tmp $@
