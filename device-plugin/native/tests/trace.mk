# Driver and library that tell who called whom: for the test that calls every entry point.
.PHONY: trace
trace: $(OUT)/trace/libcuda.so.1 $(OUT)/trace/libvgpu-egpu.so $(OUT)/trace/libdirect.so

$(OUT)/trace/libcuda.so.1: $(FAKE_CUDA) fake/state.c fake/state.h tests/trace.c tests/trace.mk $(wildcard fake/cuda/*.h include/*) | $(COMPILER)
	@mkdir -p $(@D)
	$(CC) $(STRICT) -O1 -finstrument-functions -Iinclude -shared -Wl,-Bsymbolic -Wl,-soname,libcuda.so.1 -o $@.tmp \
		$(FAKE_CUDA) fake/state.c tests/trace.c -lpthread -ldl
	mv $@.tmp $@

# A call at the end of a function stays a call: otherwise it is the program's.
$(OUT)/trace/libvgpu-egpu.so: $(LIB_SOURCES) $(LIB_HEADERS) lib/build.mk tests/trace.mk | $(COMPILER)
	@mkdir -p $(@D)
	$(CC) $(STRICT) -O1 -fno-optimize-sibling-calls -DEGPU_TEST_ROOT $(LIB_FLAGS) $(LIB_LINK) -o $@.tmp $(LIB_SOURCES)
	mv $@.tmp $@

$(OUT)/trace/libdirect.so: tests/direct.c $(OUT)/trace/libcuda.so.1
	$(CC) $(STRICT) -O1 -shared -o $@.tmp tests/direct.c $(OUT)/trace/libcuda.so.1
	mv $@.tmp $@
