# Fake libraries of other vendors, and a program that prints the sizes of their structures.
native: $(OUT)/libdcmi.so $(OUT)/libhydmi.so $(OUT)/librocm_smi64.so $(OUT)/vendor-sizes

VENDOR_SCRIPT := fake/vendors/script.c
$(OUT)/libdcmi.so: fake/vendors/dcmi.c $(VENDOR_SCRIPT) $(wildcard fake/vendors/*.h) | $(COMPILER)
	$(CC) $(STRICT) $(CFLAGS) -shared -Wl,-soname,libdcmi.so -o $@.tmp $(filter %.c,$^) -lpthread
	mv $@.tmp $@
$(OUT)/libhydmi.so: fake/vendors/dmi.c $(VENDOR_SCRIPT) $(wildcard fake/vendors/*.h) | $(COMPILER)
	$(CC) $(STRICT) $(CFLAGS) -shared -Wl,-soname,libhydmi.so -o $@.tmp $(filter %.c,$^) -lpthread
	mv $@.tmp $@
$(OUT)/librocm_smi64.so: fake/vendors/rsmi.c $(VENDOR_SCRIPT) $(wildcard fake/vendors/*.h) | $(COMPILER)
	$(CC) $(STRICT) $(CFLAGS) -shared -Wl,-soname,librocm_smi64.so -o $@.tmp $(filter %.c,$^) -lpthread
	mv $@.tmp $@
$(OUT)/vendor-sizes: fake/vendors/sizes.c $(wildcard fake/vendors/*.h) | $(COMPILER)
	$(CC) $(STRICT) $(CFLAGS) -o $@.tmp $<
	mv $@.tmp $@
