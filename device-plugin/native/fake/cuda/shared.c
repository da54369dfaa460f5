#define _GNU_SOURCE
#include "shared.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOKER_NS 2000000000ull

static int locks = -1; /* never closed: closing any descriptor of it would drop this process's lock */

uint64_t fc_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void fc_path(char *path, size_t room, const char *suffix) {
    const char *cuda = getenv("FAKE_CUDA_STATE"), *nvml = getenv("FAKE_NVML_STATE");
    if (cuda) snprintf(path, room, "%s%s", cuda, suffix);
    else if (nvml) snprintf(path, room, "%s.cuda%s", nvml, suffix);
    else snprintf(path, room, "/run/fake-gpu/cuda.state%s", suffix);
}

static int open_shared(const char *path, bool create) {
    int fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0666);
    if (fd >= 0 && create) (void)!fchmod(fd, 0666); /* whatever the umask: containers run as anybody */
    return fd;
}

static void fill(struct fc_shared *s, size_t bytes, size_t log_offset) {
    const char *mode = getenv("FAKE_CUDA_MODE"), *slice = getenv("FAKE_CUDA_SLICE_US");
    const char *scatter = getenv("FAKE_CUDA_SCATTER"), *connections = getenv("FAKE_CUDA_CONNECTIONS");
    s->slice_ns = slice && atoi(slice) > 0 ? (uint64_t)atoi(slice) * 1000 : FC_SLICE_NS;
    s->scatters = scatter && atoi(scatter) > 0;
    s->connections = connections && atoi(connections) > 0 ? (uint32_t)atoi(connections) : 0;
    s->version = FC_VERSION;
    s->bytes = bytes;
    s->log_offset = log_offset;
    s->log_count = FC_LOG;
    s->log_head_offset = offsetof(struct fc_shared, log_head);
    s->birth_offset = offsetof(struct fc_shared, birth);
    s->card_offset = offsetof(struct fc_shared, cards);
    s->card_bytes = sizeof(struct fc_card);
    s->next_seq = 1;
    s->next_handle = 1;
    for (uint32_t i = 0; i < FC_UNITS; i++) s->units[i].next = i + 1 < FC_UNITS ? i + 1 : FC_NONE;
    for (int i = 0; i < FC_CARDS; i++) {
        s->cards[i].current = s->cards[i].active = s->cards[i].heavy = FC_NONE;
        s->cards[i].mode = !mode ? FC_SLICES : strcmp(mode, "fifo") == 0 ? FC_FIFO
                                           : strcmp(mode, "overlap") == 0 ? FC_OVERLAP : FC_SLICES;
    }
    atomic_thread_fence(memory_order_release);
    s->magic = FC_MAGIC;
}

struct fc_shared *fc_open(bool create) {
    char path[4096];
    size_t log_offset = (sizeof(struct fc_shared) + 4095) & ~(size_t)4095;
    size_t bytes = log_offset + (size_t)FC_LOG * sizeof(struct fc_stretch);
    fc_path(path, sizeof path, ".locks");
    if (locks < 0) locks = open_shared(path, create);
    fc_path(path, sizeof path, "");
    int fd = open_shared(path, create);
    if (fd < 0 || locks < 0) {
        if (fd >= 0) close(fd);
        return NULL;
    }
    flock(fd, LOCK_EX);
    struct stat seen;
    struct fc_shared *s = MAP_FAILED;
    bool sized = fstat(fd, &seen) == 0 && (size_t)seen.st_size == bytes;
    /* A file of another size is of another build: nobody's to change. */
    if (!sized && create && seen.st_size == 0) sized = ftruncate(fd, (off_t)bytes) == 0;
    if (sized) s = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s != MAP_FAILED && s->magic != FC_MAGIC) {
        if (create) fill(s, bytes, log_offset);
        else munmap(s, bytes), s = MAP_FAILED;
    }
    flock(fd, LOCK_UN); /* the mapping would keep it */
    close(fd);
    return s == MAP_FAILED ? NULL : s;
}

/* In clock ticks since boot: with the pid it tells a process from any other, whatever its namespace. */
static uint64_t started(void) {
    static uint64_t ticks;
    char text[1024];
    int fd = ticks ? -1 : open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ticks;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    if (at) ticks = strtoull(at, NULL, 10);
    return ticks;
}

/* The library as a second copy in one process (libcuda and NVML) does not see its own lock. */
static bool is_self(const struct fc_process *process) {
    return process->pid == (uint32_t)getpid() && process->started == started();
}

static bool slot_lives(uint32_t slot, uint32_t *pid) {
    struct flock probe = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
    *pid = 0;
    if (fcntl(locks, F_GETLK, &probe) != 0) return true; /* not known: better too long than too short */
    if (probe.l_type == F_UNLCK) return false;
    if (probe.l_pid > 0) *pid = (uint32_t)probe.l_pid;
    return true;
}

uint32_t fc_pid(struct fc_shared *s, uint32_t slot, uint32_t self) {
    uint32_t pid;
    if (slot == self || is_self(&s->processes[slot])) return s->processes[slot].pid;
    return slot_lives(slot, &pid) ? pid : 0;
}

/* The lock of somebody who died with it, who may have left anything half done. */
static bool take_over(struct fc_shared *s, uint32_t dead, uint32_t mine) {
    uint32_t word = atomic_load(&s->lock);
    if ((word & ~(1u << 31)) != dead || !atomic_compare_exchange_strong(&s->lock, &word, mine | 1u << 31)) return false;
    fc_repair(s);
    return true;
}

void fc_lock(struct fc_shared *s, uint32_t slot) {
    uint32_t mine = slot == FC_NONE ? FC_PROCESSES + 1 : slot + 1, free_word = 0;
    if (atomic_compare_exchange_strong(&s->lock, &free_word, mine)) return;
    uint64_t since = fc_now(), looker_since = since;
    for (int spins = 0;; spins++) {
        uint32_t word = atomic_load(&s->lock);
        if ((word & ~(1u << 31)) <= FC_PROCESSES) looker_since = fc_now();
        if (word == 0) {
            /* Others may be waiting still: the mark stays, at the price of one needless wake-up. */
            if (atomic_compare_exchange_weak(&s->lock, &word, mine | 1u << 31)) return;
            continue;
        }
        if (spins < 200) {
            __asm__ volatile("" ::: "memory");
            continue;
        }
        if (!(word >> 31) && !atomic_compare_exchange_weak(&s->lock, &word, word | 1u << 31)) continue;
        struct timespec pause = {.tv_nsec = 20000000};
        syscall(SYS_futex, &s->lock, FUTEX_WAIT, word | 1u << 31, &pause, NULL, 0);
        if (fc_now() - since < 20000000ull) continue;
        since = fc_now();
        uint32_t owner = (word & ~(1u << 31)) - 1, pid;
        /* Who only looks has no slot that would tell: it is dead when nobody else had the lock for long. On a busy
         * machine one that lives may well stand still for some slices of time. */
        bool dead = owner >= FC_PROCESSES
            ? since - looker_since > LOOKER_NS
            : owner != slot && !is_self(&s->processes[owner]) && !slot_lives(owner, &pid);
        if (dead && take_over(s, owner + 1, mine)) return;
    }
}

void fc_unlock(struct fc_shared *s) {
    if (atomic_exchange(&s->lock, 0) >> 31) syscall(SYS_futex, &s->lock, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void fc_forget(struct fc_shared *s, uint32_t slot) {
    uint64_t now = fc_now();
    for (uint32_t i = 0; i < FC_CONTEXTS; i++) {
        if (s->contexts[i].owner == slot + 1) fc_context_cancel(s, i, now);
    }
    for (uint32_t i = 0; i < FC_EVENTS; i++) {
        if (s->events[i].owner == slot + 1) fc_event_release(s, i);
    }
    for (uint32_t i = 0; i < FC_HANDLES; i++) {
        struct fc_handle *handle = &s->handles[i];
        bool held = false;
        for (int h = 0; handle->used && h < FC_HOLDERS; h++) {
            if (handle->holders[h] == slot + 1) handle->holders[h] = handle->references[h] = 0;
            held = held || handle->references[h];
        }
        if (!held) handle->used = 0;
    }
    memset(&s->processes[slot], 0, sizeof s->processes[slot]);
}

void fc_reap(struct fc_shared *s, uint32_t self, bool at_once) {
    uint64_t now = fc_now();
    if (!at_once && now - s->reaped < 20000000ull) return;
    s->reaped = now;
    for (uint32_t i = 0; i < FC_PROCESSES; i++) {
        uint32_t pid;
        if (s->processes[i].taken && i != self && !is_self(&s->processes[i]) && !slot_lives(i, &pid)) fc_forget(s, i);
    }
}

uint32_t fc_attach(struct fc_shared *s, const char *label) {
    uint32_t found = FC_NONE;
    for (uint32_t slot = 0; slot < FC_PROCESSES && found == FC_NONE; slot++) {
        struct flock take = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
        if (fcntl(locks, F_SETLK, &take) == 0) found = slot;
    }
    if (found == FC_NONE) return FC_NONE;
    /* Whoever had this slot before is dead: if the lock says it is ours, it is its. */
    if (!take_over(s, found + 1, found + 1)) fc_lock(s, found);
    fc_advance(s, fc_now());
    fc_reap(s, found, true);
    fc_forget(s, found); /* also what a clearing that was cut off has left */
    struct fc_process *process = &s->processes[found];
    process->pid = (uint32_t)getpid();
    process->started = started();
    process->born = fc_now();
    process->serial = s->births++;
    s->groups[found] = fc_group_own();
    struct fc_birth *birth = &s->birth[process->serial % FC_BIRTHS];
    *birth = (struct fc_birth){.serial = process->serial, .pid = process->pid, .born = process->born};
    snprintf(birth->label, sizeof birth->label, "%s", label);
    process->taken = 1;
    fc_unlock(s);
    return found;
}

uint32_t fc_card(struct fc_shared *s, const char *uuid, uint64_t total_bytes) {
    for (uint32_t i = 0; i < s->card_count; i++) {
        if (strcmp(s->cards[i].uuid, uuid) != 0) continue;
        if (total_bytes) s->cards[i].total_bytes = total_bytes;
        return i;
    }
    if (!total_bytes || s->card_count == FC_CARDS || strlen(uuid) >= sizeof s->cards[0].uuid) return FC_NONE;
    struct fc_card *card = &s->cards[s->card_count];
    snprintf(card->uuid, sizeof card->uuid, "%s", uuid);
    card->total_bytes = total_bytes;
    return s->card_count++;
}

uint64_t fc_used_by(const struct fc_shared *s, uint32_t card, uint32_t slot) {
    uint64_t used = s->processes[slot].taken ? s->processes[slot].use[card].used : 0;
    used += s->processes[slot].taken ? s->processes[slot].use[card].managed_resident : 0;
    for (uint32_t i = 0; i < FC_HANDLES; i++) {
        const struct fc_handle *handle = &s->handles[i];
        if (!handle->used || handle->card != card) continue;
        for (int h = 0; h < FC_HOLDERS; h++) {
            if (!handle->references[h]) continue;
            if (handle->holders[h] == slot + 1) used += handle->bytes; /* the first holder counts for all */
            break;
        }
    }
    return used;
}

uint64_t fc_used_in(const struct fc_shared *s, uint32_t card, uint64_t group) {
    uint64_t used = 0;
    for (uint32_t i = 0; i < FC_PROCESSES; i++) {
        if (!s->processes[i].taken || s->groups[i] != group) continue;
        used += fc_used_by(s, card, i) - s->processes[i].use[card].managed_resident;
    }
    return used;
}

uint64_t fc_used(const struct fc_shared *s, uint32_t card) {
    uint64_t used = 0;
    for (uint32_t i = 0; i < FC_PROCESSES; i++) {
        if (!s->processes[i].taken) continue;
        used += s->processes[i].use[card].used + s->processes[i].use[card].managed_resident;
    }
    for (uint32_t i = 0; i < FC_HANDLES; i++) {
        if (s->handles[i].used && s->handles[i].card == card) used += s->handles[i].bytes;
    }
    return used;
}
