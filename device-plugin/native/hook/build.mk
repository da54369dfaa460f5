# Hooks of the container runtime: one adds the library to an image's own preload file, one has the driver limit a
# container's memory. They are static, since they run on the bare host. Zig links static programs with musl only.
HOOKS := preload limits
native: $(HOOKS:%=$(OUT)/egpu-%)

$(HOOKS:%=$(OUT)/egpu-%): $(OUT)/egpu-%: hook/%.c hook/state.h hook/build.mk | $(COMPILER)
	@mkdir -p $(OUT)
	$(subst -linux-gnu.2.36,-linux-musl,$(CC)) $(STRICT) $(CFLAGS) -static -o $@.tmp $<
	mv $@.tmp $@

native-release: $(foreach machine,x86_64 aarch64,$(HOOKS:%=$(OUT)/release/$(machine)/egpu-%))

define HOOK_OF
$(OUT)/release/$(1)/egpu-$(2): hook/$(2).c hook/state.h hook/build.mk | $(OUT)/zig/.done
	@mkdir -p $$(@D)
	$$(ZIG) -target $(1)-linux-musl $$(STRICT) -O2 -s -static -o $$@.tmp $$<
	mv $$@.tmp $$@
endef
$(foreach machine,x86_64 aarch64,$(foreach hook,$(HOOKS),$(eval $(call HOOK_OF,$(machine),$(hook)))))
