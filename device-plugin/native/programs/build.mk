# Test programs. All look the driver up at run time; train-direct is linked to it.
PROGRAMS := train serve meet gang allocate measure

native: $(PROGRAMS:%=$(OUT)/programs/%) $(OUT)/programs/train-direct

$(OUT)/programs/%: programs/%.c programs/program.c programs/program.h programs/kernels.ptx $(wildcard include/*) | $(COMPILER)
	@mkdir -p $(OUT)/programs
	$(CC) $(filter-out -fPIC,$(STRICT)) $(CFLAGS) -Iinclude -o $@ programs/$*.c programs/program.c -ldl -lm

$(OUT)/programs/train-direct: programs/train.c programs/program.c programs/program.h $(OUT)/libcuda.so.1
	@mkdir -p $(OUT)/programs
	$(CC) $(filter-out -fPIC,$(STRICT)) $(CFLAGS) -DDIRECT -Iinclude -o $@ programs/train.c programs/program.c \
		-L$(OUT) -l:libcuda.so.1 -lm

# One that no preload reaches: static, of another C library (musl), the fake driver in it.
$(OUT)/programs/train-static: programs/train.c programs/program.c programs/program.h programs/kernels.ptx $(FAKE_CUDA) \
		fake/state.c fake/state.h $(wildcard fake/cuda/*.h include/*) $(OUT)/zig/.done
	@mkdir -p $(OUT)/programs
	$(OUT)/zig/bin/python -m ziglang cc -target $(shell uname -m)-linux-musl -static -std=c17 -O1 -DDIRECT -Iinclude \
		-o $@ programs/train.c programs/program.c $(FAKE_CUDA) fake/state.c -lpthread -lm
