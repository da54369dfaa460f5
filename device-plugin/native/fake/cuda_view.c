#include "cuda_view.h"
#include "cuda/shared.h"

static void add_process(struct card *card, unsigned pid, uint64_t bytes, unsigned percent) {
    for (size_t i = 0; i < card->process_count; i++) {
        if (card->processes[i].pid != pid) continue;
        card->processes[i].used_mib += bytes >> 20;
        card->processes[i].sm_percent += percent;
        return;
    }
    if (card->process_count == MAX_PROCESSES) return;
    card->processes[card->process_count++] =
        (struct process){.pid = pid, .used_mib = bytes >> 20, .sm_percent = percent};
}

static struct fc_shared *s;

const struct card *card_with_cuda(const struct card *card) {
    static struct card merged;
    if (!card) return NULL;
    if (!s) s = fc_open(false);
    if (!s) return card;
    uint64_t now = fc_now();
    fc_lock(s, FC_NONE);
    uint32_t index = fc_card(s, card->uuid, 0);
    if (index == FC_NONE) {
        fc_unlock(s);
        return card;
    }
    merged = *card;
    fc_flush(s, now);
    fc_reap(s, FC_NONE, false);
    uint64_t used = fc_used(s, index);
    for (uint32_t i = 0; i < FC_PROCESSES; i++) {
        uint64_t bytes = fc_used_by(s, index, i);
        uint32_t pid = s->processes[i].taken && bytes ? fc_pid(s, i, FC_NONE) : 0;
        if (pid) add_process(&merged, pid, bytes, fc_percent(s->processes[i].use[index].buckets, now));
    }
    unsigned busy = fc_percent(s->cards[index].buckets, now);
    fc_unlock(s);
    merged.used_mib += used >> 20;
    if (busy > merged.util) merged.util = busy;
    return &merged;
}

uint64_t used_in_group(const char *uuid, uint64_t group) {
    if (!s) s = fc_open(false);
    if (!s) return 0;
    fc_lock(s, FC_NONE);
    fc_reap(s, FC_NONE, false);
    uint32_t index = fc_card(s, uuid, 0);
    uint64_t used = index == FC_NONE ? 0 : fc_used_in(s, index, group);
    fc_unlock(s);
    return used;
}
