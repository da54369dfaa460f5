/* many_tracks COUNT: so many allocations of each of two contexts, one of which ends. Prints how many ns of a processor
 * that took for each of them. */
#include "../lib/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* What tracks.c has of the others. */
void egpu_lock(struct egpu_lock *lock) { lock->holder = 1; }
void egpu_unlock(struct egpu_lock *lock) { lock->holder = 0; }
void egpu_share_drop(int entry) { (void)entry; }
void egpu_discharge(int card, uint64_t device, uint64_t managed) { (void)card, (void)device, (void)managed; }

static bool of_first(const struct egpu_track *track, void *data) {
    (void)data;
    return track->context == 1;
}

static bool left(const struct egpu_track *track, void *data) {
    ++*(size_t *)data;
    return track->context == 1;
}

int main(int arguments, char **values) {
    const uint64_t count = arguments > 1 ? strtoull(values[1], NULL, 10) : 0;
    struct timespec begin, end;
    struct egpu_track track;
    size_t ended = 0, others = 0;
    for (uint64_t i = 0; i < 2 * count; i++)
        egpu_put(&(struct egpu_track){.key = 0x7f0000000000 + i * 512, .kind = EGPU_LINEAR, .context = 1 + i % 2, .shared = -1});
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    while (egpu_take_any(of_first, NULL, &track))
        ended++;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    if (egpu_each(left, &others) || ended != count || others != count)
        return 1;
    printf("%.0f\n", ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) / (double)count);
    return 0;
}
