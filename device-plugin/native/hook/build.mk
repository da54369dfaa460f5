# The runtime's hook that adds the library to an image's own preload file: static, since it runs on the bare host.
# Zig links static programs with musl only.
native: $(OUT)/egpu-preload

$(OUT)/egpu-preload: hook/preload.c hook/build.mk | $(COMPILER)
	@mkdir -p $(OUT)
	$(subst -linux-gnu.2.36,-linux-musl,$(CC)) $(STRICT) $(CFLAGS) -static -o $@.tmp $<
	mv $@.tmp $@

native-release: $(OUT)/release/x86_64/egpu-preload $(OUT)/release/aarch64/egpu-preload

$(OUT)/release/%/egpu-preload: hook/preload.c hook/build.mk | $(OUT)/zig/.done
	@mkdir -p $(@D)
	$(ZIG) -target $*-linux-musl $(STRICT) -O2 -s -static -o $@.tmp $<
	mv $@.tmp $@
