# Programs of the compute side's tests: what wants a card's time, and what reads the cards' timeline.
native: $(OUT)/time-actor $(OUT)/ways-actor $(OUT)/plain-actor $(OUT)/rude-actor $(OUT)/time-judge

$(OUT)/time-actor: tests/time_actor.c tests/actor.h $(wildcard include/*) $(OUT)/libcuda.so.1 | $(COMPILER)
	$(CC) -std=c17 -Wall -Wextra -Werror $(CFLAGS) -o $@.tmp tests/time_actor.c $(OUT)/libcuda.so.1 -ldl -lm -lpthread
	mv $@.tmp $@

$(OUT)/ways-actor: tests/ways_actor.c tests/actor.h $(wildcard include/*) $(OUT)/libcuda.so.1 | $(COMPILER)
	$(CC) -std=c17 -Wall -Wextra -Werror $(CFLAGS) -o $@.tmp tests/ways_actor.c $(OUT)/libcuda.so.1
	mv $@.tmp $@

$(OUT)/plain-actor: tests/plain_actor.c tests/actor.h $(wildcard include/*) $(OUT)/libcuda.so.1 | $(COMPILER)
	$(CC) -std=c17 -Wall -Wextra -Werror $(CFLAGS) -o $@.tmp tests/plain_actor.c $(OUT)/libcuda.so.1 -lpthread
	mv $@.tmp $@

$(OUT)/rude-actor: tests/rude_actor.c tests/actor.h programs/kernels.ptx $(wildcard include/*) $(OUT)/libcuda.so.1 | $(COMPILER)
	$(CC) -std=c17 -Wall -Wextra -Werror $(CFLAGS) -o $@.tmp tests/rude_actor.c $(OUT)/libcuda.so.1 -lpthread
	mv $@.tmp $@

$(OUT)/time-judge: tests/time_judge.c fake/cuda/shared.h | $(COMPILER)
	@mkdir -p $(OUT)
	$(CC) -std=c17 -D_GNU_SOURCE -Wall -Wextra -Werror $(CFLAGS) -o $@.tmp tests/time_judge.c
	mv $@.tmp $@

# The library and the program as one.
$(OUT)/time-actor-tsan: $(LIB_SOURCES) $(LIB_HEADERS) tests/time_actor.c tests/actor.h $(OUT)/libcuda.so.1
	$(CC) $(STRICT) -O1 -g -fsanitize=thread -fno-sanitize-recover=all -DEGPU_TEST_ROOT -DEGPU_NO_LOOKUP \
		-DDIRECT -rdynamic -o $@.tmp $(LIB_SOURCES) tests/time_actor.c $(OUT)/libcuda.so.1 -ldl -lpthread -lm
	mv $@.tmp $@

include tests/trace.mk
