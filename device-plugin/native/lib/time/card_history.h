/* What ran on a card, as the pages of its containers say: by rows, and summed up. By the watcher only. */
#pragma once

#include "../activity/activity.h"
#include "settle.h"

enum {
    EGPU_RUNS_REMEMBERED = 512, /* of each page: of short units that are 10 ms and more */
    EGPU_RUNS_FEW = 128,
    EGPU_RUNS_OTHERS = 512,     /* of all pages together */
    EGPU_UNTOLD_NS = 1000,      /* said of a short one of which only the wait for its turn is known */
};

/* Takes over what is new on all pages, but for what this process wrote. */
void egpu_runs_remember(int card);

/* Runs of others that ended after that, the newest `rows` of each page, at most EGPU_RUNS_OTHERS. Returns how many. */
uint32_t egpu_runs_gather(int card, uint32_t rows, int64_t from_ns, struct egpu_run *runs);

/* It runs units that are over within a turn, all but a few: these say what it took of a longer unit's stay. */
bool egpu_runs_brief(const struct egpu_activity_card *page);

/* The device time that ended within that span of those who do: neighbours, and this container's other processes. */
uint64_t egpu_runs_ended_briefly(int card, int64_t begin_ns, int64_t end_ns);

/* Looks whether the neighbours' new runs were left for others' in their midst. */
void egpu_runs_watch_turns(int card, int64_t now_ns);
