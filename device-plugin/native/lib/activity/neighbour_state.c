/* What the neighbours' pages say, as copies; and who listens to the words of the higher classes. */
#define _GNU_SOURCE
#include "activity.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
enum {
    LINE = 64,           /* of a card's page: word, beat and progress, all that says whether it holds */
    COPIED = 128,        /* and the line that says what it used */
    LISTENED = 64,       /* of the 128 that the kernel takes: 1.5 KiB of stack; beside more, launches look themselves */
    WORD_OF_32_BITS = 2, /* FUTEX_32 */
};
static const int64_t STALE_NS = 20000; /* what low launches meanwhile is in the way of high that has just begun: 4 % of
                                          what it may have in flight */
static const int64_t SPARE_NS = 6000000; /* by so much who listens may come late to say so again: a slice or two of the
                                            host's scheduler; what low launches until then on an old word is bounded */

EGPU_LINE static _Atomic int64_t words_at_ns;
static _Atomic int64_t words_good_ns;    /* until then somebody listens to them: launches need not look */
static _Atomic int64_t words_changed_ns; /* when one was last seen to */
static _Atomic int64_t copied_ns;        /* when all of all was copied */

void egpu_near_copy_card(const struct egpu_near *near, size_t bytes) {
    typedef uint64_t __attribute__((may_alias)) word;
    struct iovec to = {near->card, bytes}, from = {(void *)(uintptr_t)near->there, bytes};
    const int kept_errno = errno;
    long copied = syscall(SYS_process_vm_readv, (long)getpid(), &to, 1l, &from, 1l, 0l);
    bool forbidden = copied < 0 && (errno == EPERM || errno == ENOSYS);
    errno = kept_errno;
    if (copied == (long)bytes)
        return;
    for (size_t i = 0; i < bytes / sizeof(word); i++) /* in a sandbox that forbids the call: as it lies there */
        __atomic_store_n((word *)near->card + i,
                         forbidden ? __atomic_load_n((const word *)near->there + i, __ATOMIC_RELAXED) : 0, __ATOMIC_RELAXED);
}

static void words_changed(int64_t now_ns) {
    atomic_store(&words_changed_ns, now_ns);
    atomic_store(&words_good_ns, 0);
}

static void copy_above(const struct egpu_near_all *all, size_t bytes, int64_t now_ns) {
    for (uint32_t i = 0; i < all->above; i++) {
        uint32_t before = all->near[i].card->word;
        egpu_near_copy_card(&all->near[i], bytes);
        if (all->near[i].card->word != before)
            words_changed(now_ns);
    }
    atomic_store_explicit(&words_at_ns, now_ns, memory_order_relaxed);
}

void egpu_near_words(const struct egpu_near_all *all, int64_t now_ns) { copy_above(all, LINE, now_ns); }

void egpu_near_copy(const struct egpu_near_all *all, int64_t now_ns) {
    copy_above(all, COPIED, now_ns);
    for (uint32_t i = all->above; i < all->count; i++)
        egpu_near_copy_card(&all->near[i], COPIED);
    atomic_store_explicit(&copied_ns, now_ns, memory_order_relaxed);
}

int64_t egpu_near_copied_ns(void) { return atomic_load_explicit(&copied_ns, memory_order_relaxed); }

static const struct egpu_near *holder(const struct egpu_near_all *all, const struct egpu_control *control, int64_t now_ns) {
    for (uint32_t i = 0; i < all->above; i++) {
        const struct egpu_activity_card *card = all->near[i].card;
        uint32_t word = atomic_load_explicit(&card->word, memory_order_acquire);
        if ((word & EGPU_WORD_ACTIVE) == 0)
            continue;
        struct egpu_claim claim = {word, card->beat_ns, card->progress_ns};
        if (egpu_claim_holds(&claim, now_ns, control->lease_ms * 1000000ull, control->hang_ms * 1000000ull))
            return &all->near[i];
    }
    return NULL;
}

const struct egpu_near *egpu_holder(const struct egpu_near_all *all, const struct egpu_control *control,
                                    int64_t now_ns) {
    if (all->above == 0)
        return NULL;
    if (now_ns > atomic_load_explicit(&words_good_ns, memory_order_relaxed) &&
        now_ns - atomic_load_explicit(&words_at_ns, memory_order_relaxed) > STALE_NS)
        egpu_near_words(all, now_ns);
    return holder(all, control, now_ns);
}

/* Waits until one of the higher classes' words is another than its copy. 0: one may be; else what went wrong. */
static int wait_for_words(const struct egpu_near_all *all, int64_t now_ns, int64_t wait_ns) {
    struct { uint64_t seen, word; uint32_t flags, reserved; } words[LISTENED] = {0}; /* struct futex_waitv */
    struct timespec time = {wait_ns / 1000000000, wait_ns % 1000000000};
    long result;
    if (all->above == 1) {
        result = syscall(SYS_futex, &all->near[0].there->word, FUTEX_WAIT, all->near[0].card->word, &time, NULL, 0);
    } else {
        for (uint32_t i = 0; i < all->above; i++) {
            words[i].seen = all->near[i].card->word;
            words[i].word = (uintptr_t)&all->near[i].there->word;
            words[i].flags = WORD_OF_32_BITS;
        }
        time = (struct timespec){(now_ns + wait_ns) / 1000000000, (now_ns + wait_ns) % 1000000000};
        result = syscall(SYS_futex_waitv, words, (unsigned long)all->above, 0ul, &time, (long)CLOCK_MONOTONIC);
    }
    return result >= 0 || errno == EAGAIN || errno == EINTR ? 0 : errno;
}

bool egpu_near_listen(const struct egpu_near_all *all, const struct egpu_control *control, int64_t now_ns, int64_t wait_ns) {
    static bool cannot; /* an old kernel, or a sandbox */
    if (all->above == 0 || all->above > LISTENED || (cannot && all->above > 1) || holder(all, control, now_ns) != NULL)
        return false;
    atomic_store(&words_good_ns, now_ns + wait_ns + SPARE_NS);
    if (now_ns - atomic_load(&words_changed_ns) < EGPU_WORDS_QUIET_NS) { /* asked last: a launch may just have seen it change */
        atomic_store(&words_good_ns, 0);
        return false;
    }
    int wrong = wait_for_words(all, now_ns, wait_ns);
    if (wrong == ETIMEDOUT)
        return true;
    now_ns = egpu_now_ns();
    words_changed(now_ns);
    egpu_near_words(all, now_ns);
    cannot |= wrong == ENOSYS || wrong == EPERM;
    return wrong == 0; /* else one was cut short: nothing to wait on */
}

bool egpu_word_wait(const struct egpu_near *near, uint32_t seen, int64_t wait_ns) {
    struct timespec time = {wait_ns / 1000000000, wait_ns % 1000000000};
    const long result = syscall(SYS_futex, &near->there->word, FUTEX_WAIT, seen, &time, NULL, 0);
    const bool signalled = result != 0 && errno == EINTR;
    atomic_store_explicit(&words_at_ns, 0, memory_order_relaxed); /* look again */
    return signalled;
}
