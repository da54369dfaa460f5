/* Memory that several processes hold, counted once: entries of the usage page with a bit per holding slot. */
#include "page.h"

enum { CARD_MASK = 0xf, BYTES_MASK_BITS = 0xfff };

static uint64_t *holder_word(struct egpu_usage_shared *entry, uint32_t slot)
{
    return &entry->holders[slot / 64];
}

static bool has_holder(const struct egpu_usage_shared *entry)
{
    for (int i = 0; i < EGPU_USAGE_HOLDER_WORDS; i++)
        if (egpu_load(&entry->holders[i]))
            return true;
    return false;
}

static void set_holder(struct egpu_usage_shared *entry, uint32_t slot, bool holds)
{
    const uint64_t bit = 1ull << slot % 64;
    if (holds)
        __atomic_fetch_or(holder_word(entry, slot), bit, __ATOMIC_SEQ_CST);
    else
        __atomic_fetch_and(holder_word(entry, slot), ~bit, __ATOMIC_SEQ_CST);
}

static void free_if_unheld(struct egpu_usage_shared *entry)
{
    if (!egpu_load(&entry->key) || has_holder(entry))
        return;
    egpu_store(&entry->bytes_card, 0);
    egpu_store(&entry->key, 0);
}

static uint64_t bytes_of(const struct egpu_usage_shared *entry)
{
    return egpu_load(&entry->bytes_card) & ~(uint64_t)BYTES_MASK_BITS;
}

/* Of what we hold we know ourselves. Where its place is another's by now, as after the page was damaged, both count. */
uint64_t egpu_shared_on(int card)
{
    const struct egpu_usage *page = egpu_usage.page;
    const uint32_t hint = egpu_hint(&page->shared_used, EGPU_USAGE_SHARED);
    const uint32_t entries = hint > egpu_usage.held_used ? hint : egpu_usage.held_used;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < entries; i++) {
        const struct egpu_usage_shared *entry = &page->shared[i];
        const uint64_t key = egpu_load(&entry->key), kept = egpu_usage.kept[i].bytes_card;
        if (egpu_usage.held[i] && (int)(kept & CARD_MASK) == card)
            sum = egpu_add(sum, kept & ~(uint64_t)BYTES_MASK_BITS);
        if (egpu_usage.held[i] && key == egpu_usage.kept[i].key)
            continue;
        if (key && (int)(egpu_load(&entry->bytes_card) & CARD_MASK) == card && has_holder(entry))
            sum = egpu_add(sum, bytes_of(entry));
    }
    return sum;
}

static bool is_first_holder(const struct egpu_usage_shared *entry, uint32_t slot)
{
    for (uint32_t i = 0; i < slot / 64; i++)
        if (egpu_load(&entry->holders[i]))
            return false;
    const uint64_t holders = egpu_load(&entry->holders[slot / 64]);
    return holders && (uint32_t)__builtin_ctzll(holders) == slot % 64;
}

uint64_t egpu_shared_shown(uint32_t slot, int card)
{
    const struct egpu_usage *page = egpu_usage.page;
    const uint32_t entries = egpu_hint(&page->shared_used, EGPU_USAGE_SHARED);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < entries; i++) {
        const struct egpu_usage_shared *entry = &page->shared[i];
        if (egpu_load(&entry->key) && (int)(egpu_load(&entry->bytes_card) & CARD_MASK) == card &&
            is_first_holder(entry, slot))
            sum = egpu_add(sum, bytes_of(entry));
    }
    return sum;
}

void egpu_shared_forget(uint32_t slot)
{
    struct egpu_usage *page = egpu_usage.page;
    const uint32_t entries = egpu_hint(&page->shared_used, EGPU_USAGE_SHARED);
    for (uint32_t i = 0; i < entries; i++)
        if (egpu_load(holder_word(&page->shared[i], slot)) >> slot % 64 & 1) {
            set_holder(&page->shared[i], slot, false);
            free_if_unheld(&page->shared[i]);
        }
}

static void publish(uint32_t index)
{
    struct egpu_usage_shared *entry = &egpu_usage.page->shared[index];
    const uint64_t key = egpu_usage.kept[index].key, bytes_card = egpu_usage.kept[index].bytes_card;
    egpu_swap(&entry->key, 0, key); /* of a fresh page: whoever holds it writes the same into the same place */
    if (egpu_load(&entry->key) != key)
        return;
    if (!bytes_card)
        egpu_usage.kept[index].bytes_card = egpu_load(&entry->bytes_card); /* its maker had not come so far */
    else if (egpu_load(&entry->bytes_card) != bytes_card)
        egpu_store(&entry->bytes_card, bytes_card);
    if (!(egpu_load(holder_word(entry, (uint32_t)egpu_usage.slot)) >> egpu_usage.slot % 64 & 1))
        set_holder(entry, (uint32_t)egpu_usage.slot, true);
}

void egpu_shared_publish(void)
{
    if (egpu_usage.slot < 0)
        return;
    egpu_raise_hint(&egpu_usage.page->shared_used, egpu_usage.held_used);
    for (uint32_t i = 0; i < egpu_usage.held_used; i++)
        if (egpu_usage.held[i])
            publish(i);
}

static int hold(uint32_t index, uint64_t key, uint64_t bytes_card)
{
    if (!egpu_usage.held[index]) {
        egpu_usage.kept[index].key = key;
        egpu_usage.kept[index].bytes_card = bytes_card;
        egpu_usage.held_used = egpu_usage.held_used > index ? egpu_usage.held_used : index + 1;
    }
    set_holder(&egpu_usage.page->shared[index], (uint32_t)egpu_usage.slot, true);
    egpu_usage.held[index]++;
    egpu_usage_publish(0); /* the slot's count of changes */
    return (int)index;
}

/* An entry of that key (0: of any), and of that card and size where `bytes` is not 0. One that we do not hold yet is best. */
static int find(uint64_t key, int card, uint64_t bytes)
{
    struct egpu_usage *page = egpu_usage.page;
    const uint32_t entries = egpu_hint(&page->shared_used, EGPU_USAGE_SHARED);
    int found = -1;
    for (uint32_t i = 0; i < entries; i++) {
        const struct egpu_usage_shared *entry = &page->shared[i];
        const uint64_t known = egpu_load(&entry->key);
        if (!known || (key && known != key) || !has_holder(entry) ||
            (egpu_usage.held[i] && known != egpu_usage.kept[i].key) ||
            (bytes && egpu_load(&entry->bytes_card) != (bytes | (unsigned)card)))
            continue;
        if (!egpu_usage.held[i])
            return (int)i;
        found = (int)i;
    }
    return found;
}

int egpu_share(uint64_t key, int card, uint64_t bytes)
{
    int index = -1;
    if (card < 0 || card >= EGPU_MAX_CARDS || bytes & BYTES_MASK_BITS || !key)
        return -1;
    egpu_usage_enter();
    struct egpu_usage *page = egpu_usage.page;
    for (uint32_t i = 0; page && egpu_usage.slot >= 0 && i < EGPU_USAGE_SHARED && index < 0; i++) {
        struct egpu_usage_shared *entry = &page->shared[i];
        free_if_unheld(entry); /* its maker may have died half-way */
        egpu_raise_hint(&page->shared_used, i + 1);
        if (egpu_usage.held[i] || !egpu_swap(&entry->key, 0, key))
            continue;
        index = hold(i, key, bytes | (unsigned)card);
        egpu_store(&entry->bytes_card, bytes | (unsigned)card);
        egpu_usage.own[card].device = egpu_sub(egpu_usage.own[card].device, bytes);
        egpu_usage_publish(card);
    }
    egpu_usage_leave();
    return index;
}

int egpu_share_hold(uint64_t key)
{
    return egpu_share_hold_like(key, 0, 0);
}

int egpu_share_hold_like(uint64_t key, int card, uint64_t bytes)
{
    egpu_usage_enter();
    int index = egpu_usage.page && egpu_usage.slot >= 0 ? find(key, card, bytes) : -1;
    if (index >= 0) {
        const struct egpu_usage_shared *entry = &egpu_usage.page->shared[index];
        hold((uint32_t)index, egpu_load(&entry->key), egpu_load(&entry->bytes_card));
    }
    egpu_usage_leave();
    return index;
}

void egpu_share_drop(int entry)
{
    if (entry < 0 || entry >= EGPU_USAGE_SHARED)
        return;
    egpu_usage_enter();
    if (egpu_usage.page && egpu_usage.held[entry] && --egpu_usage.held[entry] == 0 && egpu_usage.slot >= 0) {
        if (egpu_load(&egpu_usage.page->shared[entry].key) == egpu_usage.kept[entry].key) {
            set_holder(&egpu_usage.page->shared[entry], (uint32_t)egpu_usage.slot, false);
            free_if_unheld(&egpu_usage.page->shared[entry]);
        }
        egpu_usage_publish(0);
    }
    egpu_usage_leave();
}
