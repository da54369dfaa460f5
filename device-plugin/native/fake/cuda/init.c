#define _GNU_SOURCE
#include "driver.h"
#include "../state.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct driver driver;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

enum { MAX_FAULTS = 32 };
/* FAKE_CUDA_FAULTS=name:from:count:code,...: calls `from` to `from + count - 1` of that entry point fail. */
static struct { char name[64]; unsigned from, count; int code; _Atomic unsigned calls; } faults[MAX_FAULTS];
static int fault_count;

unsigned long long setting(const char *name, unsigned long long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void read_faults(void) {
    const char *text = getenv("FAKE_CUDA_FAULTS");
    char copy[2048], *rest = copy;
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    for (char *item; (item = strsep(&rest, ",")) && fault_count < MAX_FAULTS;) {
        if (sscanf(item, "%63[^:]:%u:%u:%d", faults[fault_count].name, &faults[fault_count].from,
                   &faults[fault_count].count, &faults[fault_count].code) == 4) {
            fault_count++;
        }
    }
    driver.faults = fault_count > 0;
}

CUresult fault(const char *name) {
    for (int i = 0; i < fault_count; i++) {
        if (strcmp(faults[i].name, name) != 0) continue;
        unsigned call = ++faults[i].calls;
        if (call >= faults[i].from && call < faults[i].from + faults[i].count) return (CUresult)faults[i].code;
    }
    return CUDA_SUCCESS;
}

static void wait_for_restore(void) {
    _Atomic uint32_t *word = &driver.s->processes[driver.slot].checkpoint;
    for (uint32_t now; (now = atomic_load(word)) != FC_LIVE;) {
        syscall(SYS_futex, word, FUTEX_WAIT, now, NULL, NULL, 0);
    }
}

/* A real driver's memory is gone once its own exit handler has run: threads that still call it mostly crash there. */
static void called_too_late(const char *name) {
    dprintf(STDERR_FILENO, "fake driver: %s is called after the driver's end\n", name);
    raise(SIGSEGV);
}

CUresult enter(const char *name) {
    if (driver.over) called_too_late(name);
    if (driver.rude) rude_call(name);
    if (!driver.ready || driver.forked) return CUDA_ERROR_NOT_INITIALIZED;
    if (atomic_load_explicit(&driver.s->processes[driver.slot].checkpoint, memory_order_relaxed)) wait_for_restore();
    if (atomic_load_explicit(&driver.dmabufs, memory_order_relaxed)) dmabufs_settle();
    return driver.faults ? fault(name) : CUDA_SUCCESS;
}

/* --- which cards ------------------------------------------------------------------------------- */
static bool add_card(const struct card *card) {
    if (driver.count == FC_CARDS || card->error) return false;
    for (int i = 0; i < driver.count; i++) {
        if (strcmp(driver.cards[i].uuid, card->uuid) == 0) return false;
    }
    struct visible_card *to = &driver.cards[driver.count++];
    snprintf(to->uuid, sizeof to->uuid, "%s", card->uuid);
    snprintf(to->name, sizeof to->name, "%s", card->name);
    snprintf(to->pci, sizeof to->pci, "%s", card->pci);
    to->cc_major = card->cc_major;
    to->cc_minor = card->cc_minor;
    to->cores = card->cores;
    to->mhz = card->max_sm_mhz;
    to->elsewhere = card->used_mib << 20;
    to->total = card->memory_bytes - (card->reserved_mib << 20);
    return true;
}

/* Adds those that the list names, by index into `cards` or by the start of their uuid; stops at the first unknown. */
static void choose(const struct card *const *cards, size_t count, const char *list) {
    char copy[2048], *rest = copy;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *item; (item = strsep(&rest, ",\n"));) {
        const struct card *found = NULL;
        char *end;
        unsigned long index = strtoul(item, &end, 10);
        if (*item && !*end && index < count) found = cards[index];
        for (size_t i = 0; !found && strncmp(item, "GPU-", 4) == 0 && i < count; i++) {
            if (strncmp(cards[i]->uuid, item, strlen(item)) == 0) found = cards[i];
        }
        if (!found) return;
        add_card(found);
    }
}

/* What stands for the device nodes of a container: FAKE_CUDA_VISIBLE, or a file of that content. */
static const char *device_nodes(char *text, size_t room) {
    const char *named = getenv("FAKE_CUDA_VISIBLE");
    if (named) return named;
    FILE *file = fopen("/run/fake-gpu/visible", "re");
    if (!file) return NULL;
    size_t length = fread(text, 1, room - 1, file);
    fclose(file);
    text[length] = '\0';
    while (length && text[length - 1] == '\n') text[--length] = '\0';
    return text;
}

static void find_cards(const struct state *state) {
    static const struct card *nodes[MAX_CARDS];
    static char text[2048];
    size_t count = 0;
    const char *list = device_nodes(text, sizeof text), *wanted = getenv("CUDA_VISIBLE_DEVICES");
    for (size_t i = 0; i < state->card_count; i++) nodes[i] = &state->cards[i];
    count = state->card_count;
    if (list) {
        choose(nodes, count, list);
        static struct card copies[FC_CARDS];
        int chosen = driver.count;
        for (int i = 0; i < chosen; i++) {
            copies[i] = *state_card(state, driver.cards[i].uuid);
            nodes[i] = &copies[i];
        }
        count = (size_t)chosen;
        driver.count = 0;
    }
    if (wanted) {
        choose(nodes, count, wanted);
    } else {
        for (size_t i = 0; i < count; i++) add_card(nodes[i]);
    }
}

static void child(void) {
    driver.forked = true;
}

static void finish(void);

/* The fabric manager has not registered the card: no program gets further than this. */
static bool fabric_down(const struct card *card) {
    enum { COMPLETED = 3 };
    return card && card->has_fabric && card->fabric_state && (card->fabric_state != COMPLETED || card->fabric_status);
}

static CUresult start(void) {
    const struct state *state = state_now();
    if (state->error == 9) return CUDA_ERROR_NO_DEVICE;
    if (state->error) return CUDA_ERROR_UNKNOWN;
    driver.version = (int)state->cuda;
    find_cards(state);
    if (driver.count == 0) return CUDA_ERROR_NO_DEVICE;
    for (int i = 0; i < driver.count; i++) {
        if (fabric_down(state_card(state, driver.cards[i].uuid))) return CUDA_ERROR_SYSTEM_NOT_READY;
    }
    if (!driver.s) driver.s = fc_open(true);
    if (!driver.s) return CUDA_ERROR_OPERATING_SYSTEM;
    const char *label = getenv("FAKE_CUDA_LABEL");
    driver.slot = fc_attach(driver.s, label ? label : program_invocation_short_name);
    if (driver.slot == FC_NONE) return CUDA_ERROR_OPERATING_SYSTEM;
    fc_lock(driver.s, driver.slot);
    for (int i = 0; i < driver.count; i++) {
        driver.cards[i].index = fc_card(driver.s, driver.cards[i].uuid, driver.cards[i].total);
        if (driver.cards[i].index == FC_NONE) driver.count = i;
    }
    fc_unlock(driver.s);
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&driver.lock, &recursive);
    driver.context_bytes = setting("FAKE_CUDA_CONTEXT_MIB", 416) << 20;
    driver.lazy_bytes = setting("FAKE_CUDA_LAZY_MIB", 16) << 20;
    driver.dead_kills = setting("FAKE_CUDA_DEAD_KILLS", 0) != 0;
    driver.end_us = (unsigned)setting("FAKE_CUDA_END_US", 0);
    driver.handles_again = setting("FAKE_CUDA_HANDLES_AGAIN", 0) != 0;
    driver.exit_us = (unsigned)setting("FAKE_CUDA_EXIT_US", 0);
    if (driver.exit_us) atexit(finish);
    driver.kernel_ns = setting("FAKE_CUDA_KERNEL_NS", 10000);
    driver.noise_percent = (unsigned)setting("FAKE_CUDA_NOISE_PERCENT", 20);
    driver.checkpointable = atoi(state->driver) >= 570;
    read_faults();
    rude_begin();
    pthread_atfork(NULL, NULL, child);
    driver.ready = true;
    return CUDA_SUCCESS;
}

API CUresult cuInit(unsigned flags) {
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    if (driver.forked) return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&starting);
    CUresult result = driver.ready ? CUDA_SUCCESS : start();
    pthread_mutex_unlock(&starting);
    return result == CUDA_SUCCESS && driver.faults ? fault("cuInit") : result;
}

/* An orderly end leaves nothing for others to clear away. */
__attribute__((destructor)) static void finish(void) {
    if (!driver.ready || driver.forked) return;
    rude_end();
    driver.over = driver.exit_us != 0;
    driver.ready = false;
    fc_lock(driver.s, driver.slot);
    fc_advance(driver.s, fc_now());
    fc_forget(driver.s, driver.slot);
    fc_unlock(driver.s);
    if (driver.exit_us) usleep(driver.exit_us);
}

API CUresult cuDriverGetVersion(int *version) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = driver.ready ? driver.version : (int)state_now()->cuda;
    return CUDA_SUCCESS;
}

CUresult card_of(CUdevice device, struct visible_card **card) {
    if (device < 0 || device >= driver.count) return CUDA_ERROR_INVALID_DEVICE;
    *card = &driver.cards[device];
    return CUDA_SUCCESS;
}
