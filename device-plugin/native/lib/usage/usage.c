/* What is in use over all processes of the container, and whether more fits under the cap. */
#define _GNU_SOURCE
#include "page.h"

struct sums {
    uint64_t device, managed;
};

/* What the driver has shown the agent of that process beyond our own count. */
static uint64_t beyond(const struct egpu_control *control, int card, uint64_t owner)
{
    enum { CARD_MASK = 0xf, BYTES_MASK_BITS = 0xfff };
    uint64_t sum = 0;
    for (uint32_t i = 0; i < control->beyond_count; i++)
        if (control->beyond[i].owner == owner && (int)(control->beyond[i].bytes_card & CARD_MASK) == card)
            sum = egpu_add(sum, control->beyond[i].bytes_card & ~(uint64_t)BYTES_MASK_BITS);
    return sum;
}

static struct sums sum_on(const struct egpu_control *control, int card)
{
    const struct egpu_usage *page = egpu_usage.page;
    struct sums sums = {egpu_add(egpu_shared_on(card), control->beyond_bytes[card]), 0};
    const uint32_t slots = egpu_hint(&page->slots_used, EGPU_USAGE_SLOTS);
    for (uint32_t i = 0; i < slots; i++) {
        if (!egpu_load(&page->slots[i].owner) || (int)i == egpu_usage.slot)
            continue;
        sums.device = egpu_add(sums.device, egpu_load(&page->slots[i].cards[card].device));
        sums.managed = egpu_add(sums.managed, egpu_load(&page->slots[i].cards[card].managed));
        sums.device = egpu_add(sums.device, beyond(control, card, egpu_load(&page->slots[i].owner)));
    }
    sums.device = egpu_add(sums.device, beyond(control, card, egpu_self_id()));
    sums.device = egpu_add(sums.device, egpu_usage.own[card].device);
    sums.managed = egpu_add(sums.managed, egpu_usage.own[card].managed);
    return sums;
}

/* Bytes of the host's memory that what spilled may take beyond what it takes now. */
static uint64_t host_left(const struct egpu_control *control)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i < control->card_count; i++)
        if (control->cards[i].flags & EGPU_CARD_SPILL)
            used = egpu_add(used, sum_on(control, (int)i).managed);
    return egpu_sub((uint64_t)control->host_memory_mib << 20, used);
}

/* After the charge: does everything that it added to still fit? */
static bool fits(const struct egpu_control *control, int card, bool device, bool managed)
{
    const struct egpu_control_card *limits = &control->cards[card];
    const struct sums sums = sum_on(control, card);
    const uint64_t all = egpu_add(sums.device, sums.managed);
    if (all > limits->memory_bytes || (device && sums.device > limits->physical_bytes))
        return false;
    if (!managed || !(limits->flags & EGPU_CARD_SPILL))
        return true;
    uint64_t host = 0;
    for (uint32_t i = 0; i < control->card_count; i++)
        if (control->cards[i].flags & EGPU_CARD_SPILL)
            host = egpu_add(host, sum_on(control, (int)i).managed);
    return host <= (uint64_t)control->host_memory_mib << 20;
}

static void add_own(int card, uint64_t device, uint64_t managed)
{
    egpu_usage.own[card].device = egpu_add(egpu_usage.own[card].device, device);
    egpu_usage.own[card].managed = egpu_add(egpu_usage.own[card].managed, managed);
    egpu_usage_publish(card);
}

static void take_own(int card, uint64_t device, uint64_t managed)
{
    egpu_usage.own[card].device = egpu_sub(egpu_usage.own[card].device, device);
    egpu_usage.own[card].managed = egpu_sub(egpu_usage.own[card].managed, managed);
    egpu_usage_publish(card);
}

/* First written, then summed: even without the page's lock two processes never both see room for one. */
static bool try_charge(int card, uint64_t device, uint64_t managed)
{
    const struct egpu_control *control = egpu_control_now();
    egpu_usage_enter();
    /* What fits under no cap is not even written: a sum that it saturates would be less once it is taken off again. */
    bool good = control && card < (int)control->card_count && egpu_usage.page && egpu_usage.slot >= 0 &&
                device <= control->cards[card].memory_bytes && managed <= control->cards[card].memory_bytes;
    if (good) {
        add_own(card, device, managed);
        good = fits(control, card, device, managed);
        if (!good) {
            egpu_usage_reap();
            good = fits(control, card, device, managed);
        }
        if (!good)
            take_own(card, device, managed);
    }
    egpu_usage_leave();
    return good;
}

bool egpu_try_charge(int card, uint64_t device, uint64_t managed)
{
    if (try_charge(card, device, managed))
        return true;
    egpu_usage_reap_programs();
    return try_charge(card, device, managed);
}

void egpu_charge_anyway(int card, uint64_t device, uint64_t managed)
{
    if (card < 0 || card >= EGPU_MAX_CARDS || (!device && !managed))
        return;
    egpu_usage_enter();
    if (egpu_usage.page)
        add_own(card, device, managed);
    egpu_usage_leave();
}

void egpu_discharge(int card, uint64_t device, uint64_t managed)
{
    if (card < 0 || card >= EGPU_MAX_CARDS || (!device && !managed))
        return;
    egpu_usage_enter();
    if (egpu_usage.page)
        take_own(card, device, managed);
    egpu_usage_leave();
}

struct egpu_room egpu_room_under(const struct egpu_control *control, int card)
{
    const struct egpu_control_card *limits = &control->cards[card];
    struct egpu_room room = {.total = limits->memory_bytes};
    egpu_usage_enter();
    if (egpu_usage.page && egpu_usage.slot >= 0) {
        egpu_usage_reap();
        const struct sums sums = sum_on(control, card);
        room.device = sums.device;
        room.managed = sums.managed;
        uint64_t physical = egpu_sub(limits->physical_bytes, sums.device);
        uint64_t spill = limits->flags & EGPU_CARD_SPILL ? host_left(control) : 0;
        uint64_t all = egpu_sub(room.total, egpu_add(sums.device, sums.managed));
        uint64_t best = physical > spill ? physical : spill; /* one allocation goes to one place */
        room.largest_free = (all < best ? all : best) & ~(EGPU_GRANULE - 1);
    }
    egpu_usage_leave();
    return room;
}

void egpu_mark_context(int card, bool has)
{
    if (card < 0 || card >= EGPU_MAX_CARDS)
        return;
    egpu_usage_enter();
    const uint64_t bit = 1ull << card;
    egpu_usage.contexts = has ? egpu_usage.contexts | bit : egpu_usage.contexts & ~bit;
    if (egpu_usage.page && egpu_usage.slot >= 0)
        egpu_store(&egpu_usage.page->slots[egpu_usage.slot].contexts, egpu_usage.contexts);
    egpu_usage_leave();
}

bool egpu_has_context(int card)
{
    egpu_usage_enter();
    bool has = card >= 0 && card < EGPU_MAX_CARDS && egpu_usage.contexts >> card & 1;
    egpu_usage_leave();
    return has;
}

size_t egpu_processes_on(int card, uint32_t *pids, uint64_t *bytes, size_t size)
{
    const struct egpu_control *control = egpu_control_now();
    size_t count = 0;
    egpu_usage_enter();
    if (egpu_usage.page && card >= 0 && card < EGPU_MAX_CARDS) {
        egpu_usage_reap();
        const struct egpu_usage *page = egpu_usage.page;
        const uint32_t slots = egpu_hint(&page->slots_used, EGPU_USAGE_SLOTS);
        for (uint32_t i = 0; i < slots; i++) {
            const struct egpu_usage_slot *slot = &page->slots[i];
            uint64_t owner = egpu_load(&slot->owner), device = egpu_load(&slot->cards[card].device);
            if (!owner || (uint32_t)owner & EGPU_USAGE_EMPTYING || (!device && !(egpu_load(&slot->contexts) >> card & 1)))
                continue;
            if (count < size) {
                pids[count] = (uint32_t)owner;
                bytes[count] = egpu_add(egpu_add(device, egpu_shared_shown(i, card)), control ? beyond(control, card, owner) : 0);
            }
            count++;
        }
    }
    egpu_usage_leave();
    return count;
}
