/* many_tracks COUNT: so many allocations of each of three contexts. Those of one are taken one by one, those of another all
 * at once. Prints how many ns of a processor that took for each. */
#include "../lib/usage/usage.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* What tracks.c has of the others. */
void egpu_lock(struct egpu_lock *lock) { lock->holder = 1; }
void egpu_unlock(struct egpu_lock *lock) { lock->holder = 0; }
void egpu_share_drop(int entry) { (void)entry; }
void egpu_discharge(int card, uint64_t device, uint64_t managed) { (void)card, (void)device, (void)managed; }

static bool of_context(const struct egpu_track *track, void *context) {
    return track->context == *(const uint64_t *)context;
}

static bool count_third(const struct egpu_track *track, void *data) {
    ++*(size_t *)data;
    return track->context != 3;
}

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int arguments, char **values) {
    const uint64_t count = arguments > 1 ? strtoull(values[1], NULL, 10) : 0;
    struct egpu_track track;
    size_t single = 0, together, left = 0;
    for (uint64_t i = 0; i < 3 * count; i++)
        egpu_put(&(struct egpu_track){.key = 0x7f0000000000 + i * 512, .kind = EGPU_LINEAR, .context = 1 + i % 3, .shared = -1});
    const double begin = now_ns();
    while (egpu_take_any(of_context, &(uint64_t){1}, &track))
        single += track.context == 1;
    struct egpu_track *taken = egpu_take_all(of_context, &(uint64_t){2}, &together);
    const double each = (now_ns() - begin) / (2.0 * (double)count);
    for (size_t i = 0; i < together; i++)
        if (taken[i].context != 2)
            return 1;
    free(taken);
    if (single != count || together != count || egpu_each(count_third, &left) || left != count)
        return 1;
    printf("%.0f\n", each);
    return 0;
}
