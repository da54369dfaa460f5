/* What this process holds: one hash table of (kind, key). */
#include "usage.h"

#include <stdlib.h>
#include <string.h>

static struct egpu_lock lock;
static struct egpu_track *places; /* linear probing; kind 0 is a free place */
static size_t capacity, count;    /* capacity: a power of two */

static size_t home(enum egpu_kind kind, uint64_t key)
{
    uint64_t hash = (key ^ (uint64_t)kind << 56) * 0x9e3779b97f4a7c15ull;
    return (size_t)(hash >> 32) & (capacity - 1);
}

static struct egpu_track *find(enum egpu_kind kind, uint64_t key)
{
    for (size_t i = capacity ? home(kind, key) : 0; capacity && places[i].kind; i = (i + 1) & (capacity - 1))
        if (places[i].kind == kind && places[i].key == key)
            return &places[i];
    return NULL;
}

static void insert(const struct egpu_track *track)
{
    size_t i = home(track->kind, track->key);
    while (places[i].kind)
        i = (i + 1) & (capacity - 1);
    places[i] = *track;
    count++;
}

static bool grow(void)
{
    struct egpu_track *old = places;
    const size_t had = capacity;
    const size_t wanted = had ? had * 2 : 256;
    struct egpu_track *fresh = calloc(wanted, sizeof *fresh);
    if (!fresh)
        return false;
    places = fresh;
    capacity = wanted;
    count = 0;
    for (size_t i = 0; i < had; i++)
        if (old[i].kind)
            insert(&old[i]);
    free(old);
    return true;
}

/* Closes the gap, so that no probe ends too early. */
static void erase(struct egpu_track *track)
{
    size_t gap = (size_t)(track - places);
    for (size_t i = (gap + 1) & (capacity - 1); places[i].kind; i = (i + 1) & (capacity - 1)) {
        size_t want = home(places[i].kind, places[i].key);
        if (((i - want) & (capacity - 1)) >= ((i - gap) & (capacity - 1))) {
            places[gap] = places[i];
            gap = i;
        }
    }
    places[gap].kind = 0;
    count--;
}

bool egpu_put(const struct egpu_track *track)
{
    egpu_lock(&lock);
    struct egpu_track *same = find(track->kind, track->key);
    bool good = same || (count + 1) * 4 <= capacity * 3 || grow();
    if (same)
        *same = *track;
    else if (good)
        insert(track);
    egpu_unlock(&lock);
    return good;
}

enum egpu_joined egpu_join(const struct egpu_track *track)
{
    egpu_lock(&lock);
    struct egpu_track *same = find(track->kind, track->key);
    enum egpu_joined joined = same ? EGPU_JOINED : EGPU_NOT_KEPT;
    if (same) {
        same->references++;
    } else if ((count + 1) * 4 <= capacity * 3 || grow()) {
        insert(track);
        joined = EGPU_FIRST;
    }
    egpu_unlock(&lock);
    return joined;
}

bool egpu_get(enum egpu_kind kind, uint64_t key, struct egpu_track *track)
{
    egpu_lock(&lock);
    const struct egpu_track *found = find(kind, key);
    if (found)
        *track = *found;
    egpu_unlock(&lock);
    return found != NULL;
}

bool egpu_take(enum egpu_kind kind, uint64_t key, struct egpu_track *track)
{
    egpu_lock(&lock);
    struct egpu_track *found = find(kind, key);
    if (found) {
        *track = *found;
        erase(found);
    }
    egpu_unlock(&lock);
    return found != NULL;
}

bool egpu_change(enum egpu_kind kind, uint64_t key, bool (*change)(struct egpu_track *, void *), void *data)
{
    egpu_lock(&lock);
    struct egpu_track *found = find(kind, key);
    if (found && change(found, data))
        erase(found);
    egpu_unlock(&lock);
    return found != NULL;
}

/* Goes on where the last one was found: of very many that go together each would be looked for from the start. */
bool egpu_take_any(bool (*wanted)(const struct egpu_track *, void *), void *data, struct egpu_track *track)
{
    static size_t last;
    struct egpu_track *found = NULL;
    egpu_lock(&lock);
    for (size_t i = 0; i < capacity && !found; i++) {
        struct egpu_track *at = &places[(last + i) & (capacity - 1)];
        if (at->kind && wanted(at, data))
            found = at;
    }
    if (found) {
        last = (size_t)(found - places);
        *track = *found;
        erase(found);
    }
    egpu_unlock(&lock);
    return found != NULL;
}

struct egpu_track *egpu_take_all(bool (*wanted)(const struct egpu_track *, void *), void *data, size_t *count)
{
    struct egpu_track *taken = NULL;
    size_t matches = 0;
    *count = 0;
    egpu_lock(&lock);
    for (size_t i = 0; i < capacity; i++)
        matches += places[i].kind && wanted(&places[i], data);
    if (matches)
        taken = malloc(matches * sizeof *taken);
    for (size_t i = 0; taken && i < capacity && *count < matches; i++)
        while (places[i].kind && wanted(&places[i], data)) { /* what came next is there now */
            taken[(*count)++] = places[i];
            erase(&places[i]);
        }
    egpu_unlock(&lock);
    return taken;
}

bool egpu_each(bool (*visit)(const struct egpu_track *, void *), void *data)
{
    bool found = false;
    egpu_lock(&lock);
    for (size_t i = 0; i < capacity && !found; i++)
        found = places[i].kind && visit(&places[i], data);
    egpu_unlock(&lock);
    return found;
}

void egpu_forget(void)
{
    egpu_lock(&lock);
    if (places)
        memset(places, 0, capacity * sizeof *places);
    count = 0;
    egpu_unlock(&lock);
}

void egpu_end_track(const struct egpu_track *track)
{
    if (track->shared >= 0)
        egpu_share_drop(track->shared);
    else
        egpu_discharge(track->card, track->bytes, track->managed);
}
