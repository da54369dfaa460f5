/* When this process had work on a card, over all of its streams: pure.
 *
 * Units are told in the order of their ends, and each has the time since the last end before it. That is all of it
 * where a card runs one after the other. Where streams run side by side a short unit may begin and end while a long
 * one runs: what that ran by itself before is counted when it ends, where one knows when it began. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { EGPU_STRETCHES = 512 };

struct egpu_stretch { int64_t launched_ns, from_ns, end_ns; };

/* In the order of time, apart from each other. Zeros at first. Where there are too many the oldest two become one. */
struct egpu_stretches {
    struct egpu_stretch ring[EGPU_STRETCHES];
    uint32_t first, count;
};

/* One unit more. `began_ns`: when it did; 0: nobody knows, it was launched then. Returns how much of the time before
 * the last end is its own and was not counted yet. `overtaken`: one that was launched after it ended before. */
uint64_t egpu_stretches_add(struct egpu_stretches *all, int64_t launched_ns, int64_t began_ns, int64_t end_ns, bool *overtaken);
