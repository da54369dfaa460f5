/* A process's device memory goes to the host and comes back. As with the real driver: lock, checkpoint, restore,
 * unlock, each only from the state before it; no managed memory, no memory shared with other processes. */
#define _GNU_SOURCE
#include "driver.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The slot of the process; its pid is as this process sees it. Under the lock. */
static CUresult slot_of(int pid, struct fc_process **to) {
    struct fc_shared *s = driver.s;
    for (uint32_t i = 0; i < FC_PROCESSES; i++) {
        if (!s->processes[i].taken || fc_pid(s, i, driver.slot) != (uint32_t)pid) continue;
        *to = &s->processes[i];
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* Under the lock afterwards, unless it fails. */
static CUresult find_again(int pid, struct fc_process **process) {
    fc_lock(driver.s, driver.slot);
    fc_reap(driver.s, driver.slot, true);
    CUresult result = slot_of(pid, process);
    if (result != CUDA_SUCCESS) fc_unlock(driver.s);
    return result;
}

static CUresult find(const char *name, int pid, struct fc_process **process) {
    if (!driver.ready || driver.forked) return CUDA_ERROR_NOT_INITIALIZED;
    if (driver.faults) TRY(fault(name));
    return driver.checkpointable ? find_again(pid, process) : CUDA_ERROR_NOT_SUPPORTED;
}

static void set_state(struct fc_process *process, enum fc_checkpoint state) {
    atomic_store(&process->checkpoint, state);
    syscall(SYS_futex, &process->checkpoint, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool busy(uint32_t slot) {
    const struct fc_shared *s = driver.s;
    for (uint32_t i = 0; i < FC_STREAMS; i++) {
        if (s->streams[i].owner == slot + 1 && s->streams[i].count) return true;
    }
    return false;
}

API CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state) {
    struct fc_process *process;
    if (!state) return CUDA_ERROR_INVALID_VALUE;
    TRY(find(__func__, pid, &process));
    *state = (CUprocessState)process->checkpoint;
    fc_unlock(driver.s);
    return CUDA_SUCCESS;
}

API CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *thread) {
    struct fc_process *process;
    if (!thread) return CUDA_ERROR_INVALID_VALUE;
    TRY(find(__func__, pid, &process));
    *thread = pid;
    fc_unlock(driver.s);
    return CUDA_SUCCESS;
}

/* With FAKE_CUDA_CHECKPOINT_PEERS=1: another process is locked or away. Under the lock. */
static bool held_by_peer(const struct fc_process *process) {
    const struct fc_shared *s = driver.s;
    if (!setting("FAKE_CUDA_CHECKPOINT_PEERS", 0)) return false;
    for (uint32_t i = 0; i < FC_PROCESSES; i++)
        if (s->processes[i].taken && &s->processes[i] != process && s->processes[i].checkpoint != FC_LIVE) return true;
    return false;
}

API CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args) {
    struct fc_process *process;
    uint64_t limit = args && args->timeoutMs ? fc_now() + args->timeoutMs * 1000000ull : FC_NEVER;
    TRY(find(__func__, pid, &process));
    while (held_by_peer(process)) { /* whatever the limit, as drivers before 610 do with processes that share memory */
        fc_unlock(driver.s);
        sleep_until_change(fc_now() + 500000);
        TRY(find_again(pid, &process));
    }
    CUresult result = process->checkpoint == FC_LIVE ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
    uint32_t slot = (uint32_t)(process - driver.s->processes), serial = process->serial;
    if (result == CUDA_SUCCESS) set_state(process, FC_LOCKED);
    bool waiting = result == CUDA_SUCCESS;
    fc_unlock(driver.s);
    /* What it has launched must end first. */
    while (waiting) {
        fc_lock(driver.s, driver.slot);
        fc_advance(driver.s, fc_now());
        fc_reap(driver.s, driver.slot, false);
        bool gone = !process->taken || process->serial != serial;
        waiting = !gone && busy(slot);
        if (gone) result = CUDA_ERROR_INVALID_VALUE;
        if (waiting && fc_now() > limit) {
            set_state(process, FC_LIVE);
            waiting = false;
            result = CUDA_ERROR_NOT_READY;
        }
        fc_unlock(driver.s);
        if (waiting) sleep_until_change(fc_now() + 500000);
    }
    return result;
}

static void transfer(uint64_t bytes) {
    uint64_t ns = (bytes >> 20) * 1000000000ull / setting("FAKE_CUDA_CHECKPOINT_MIBPS", 20480);
    struct timespec pause = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    nanosleep(&pause, NULL);
}

API CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args) {
    struct fc_process *process;
    uint64_t bytes = 0;
    (void)args;
    TRY(find(__func__, pid, &process));
    CUresult result = process->checkpoint != FC_LOCKED ? CUDA_ERROR_ILLEGAL_STATE
                      : process->cannot_checkpoint ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    for (uint32_t c = 0; result == CUDA_SUCCESS && c < driver.s->card_count; c++) bytes += process->use[c].used;
    fc_unlock(driver.s);
    if (result != CUDA_SUCCESS) return result;
    transfer(bytes);
    TRY(find_again(pid, &process)); /* it may have died meanwhile */
    if (process->checkpoint != FC_LOCKED) result = CUDA_ERROR_ILLEGAL_STATE;
    for (uint32_t c = 0; result == CUDA_SUCCESS && c < driver.s->card_count; c++) {
        process->use[c].saved = process->use[c].used;
        process->use[c].used = 0;
    }
    if (result == CUDA_SUCCESS) set_state(process, FC_CHECKPOINTED);
    fc_unlock(driver.s);
    return result;
}

static CUresult same_cards(const CUcheckpointRestoreArgs *args) {
    if (!args || !args->gpuPairsCount) return CUDA_SUCCESS;
    if (!args->gpuPairs) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < args->gpuPairsCount; i++) {
        if (memcmp(&args->gpuPairs[i].oldUuid, &args->gpuPairs[i].newUuid, sizeof(CUuuid)) != 0) {
            return CUDA_ERROR_NOT_SUPPORTED; /* the fake restores onto the same cards only */
        }
    }
    return CUDA_SUCCESS;
}

API CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args) {
    struct fc_process *process;
    uint64_t bytes = 0;
    TRY(same_cards(args));
    TRY(find(__func__, pid, &process));
    struct fc_shared *s = driver.s;
    CUresult result = process->checkpoint == FC_CHECKPOINTED ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
    for (uint32_t c = 0; result == CUDA_SUCCESS && c < s->card_count; c++) {
        if (fc_used(s, c) + process->use[c].saved > s->cards[c].total_bytes) result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (uint32_t c = 0; result == CUDA_SUCCESS && c < s->card_count; c++) {
        process->use[c].used += process->use[c].saved;
        bytes += process->use[c].saved;
        process->use[c].saved = 0;
    }
    fc_unlock(s);
    if (result != CUDA_SUCCESS) return result;
    transfer(bytes);
    TRY(find_again(pid, &process));
    set_state(process, FC_LOCKED);
    fc_unlock(s);
    return CUDA_SUCCESS;
}

API CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args) {
    struct fc_process *process;
    (void)args;
    TRY(find(__func__, pid, &process));
    CUresult result = process->checkpoint == FC_LOCKED ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
    if (result == CUDA_SUCCESS) set_state(process, FC_LIVE);
    fc_unlock(driver.s);
    return result;
}
