/* Built into a fake driver of its own with -finstrument-functions: which entry points were entered, and by whom. For
 * the test that calls each of them. */
#define _GNU_SOURCE
#include "../fake/cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define QUIET __attribute__((no_instrument_function))
#define TOLD __attribute__((visibility("default"), no_instrument_function))

enum { MOST = 512 };
static _Thread_local bool armed;
static _Thread_local size_t count;
static _Thread_local struct { void *function, *site; } entered[MOST];

TOLD void __cyg_profile_func_enter(void *function, void *site);
TOLD void __cyg_profile_func_exit(void *function, void *site);
TOLD void trace_begin(void);
TOLD size_t trace_end(char *text, size_t size);
TOLD uint64_t trace_used(int device);
TOLD uint64_t trace_busy(int device);

void __cyg_profile_func_enter(void *function, void *site) {
    if (!armed || count == MOST) return;
    entered[count].function = function;
    entered[count++].site = site;
}

void __cyg_profile_func_exit(void *function, void *site) {
    (void)function, (void)site;
}

/* From here on what this thread enters is kept. */
void trace_begin(void) {
    count = 0;
    armed = true;
}

/* Ends that. Writes a line for each entry point that was entered from outside the driver: its name, and "library" or
 * "program". Two names of one function are both named. */
size_t trace_end(char *text, size_t size) {
    size_t length = 0;
    armed = false;
    for (size_t i = 0; i < count; i++) {
        Dl_info self, callee, caller;
        if (!dladdr((void *)trace_end, &self) || !dladdr(entered[i].function, &callee) || !callee.dli_sname ||
            callee.dli_saddr != entered[i].function || strncmp(callee.dli_sname, "cu", 2) != 0)
            continue;
        bool known = dladdr(entered[i].site, &caller) && caller.dli_fname;
        if (known && caller.dli_fbase == self.dli_fbase) continue;
        bool library = known && strstr(caller.dli_fname, "libvgpu-egpu");
        int more = snprintf(text + length, size - length, "%s %s\n", callee.dli_sname, library ? "library" : "program");
        if (more < 0 || length + (size_t)more >= size) break;
        length += (size_t)more;
    }
    return length;
}

static QUIET uint32_t index_of(int device) {
    return driver.cards[device].index;
}

/* Bytes in use on the card, by all. */
uint64_t trace_used(int device) {
    fc_lock(driver.s, driver.slot);
    uint64_t used = fc_used(driver.s, index_of(device));
    fc_unlock(driver.s);
    return used;
}

/* ns that the card itself has worked so far; copies over the bus are none of its work. */
uint64_t trace_busy(int device) {
    fc_lock(driver.s, driver.slot);
    fc_advance(driver.s, fc_now());
    fc_flush(driver.s, fc_now());
    uint64_t busy = driver.s->cards[index_of(device)].busy;
    fc_unlock(driver.s);
    return busy;
}
