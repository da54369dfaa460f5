/* The control page: read in full into memory of our own, so that no change to the file can hurt a reader. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPIES = 16, TRIES = 200 };
#define SEED_BIT (1ull << 63)

static struct egpu_control copies[COPIES]; /* a reader of an old copy has COPIES - 1 changes of time */
static unsigned next_copy;
static _Atomic(const struct egpu_control *) good;
static struct egpu_lock reading; /* of all that follows */
static struct source {           /* where `good` is from */
    bool known, seed;
    dev_t device;
    ino_t inode;
    struct timespec changed;     /* a file written anew may count anew */
    char head[offsetof(struct egpu_control, name)];
} source;
static struct { ino_t inode; uint64_t sequence; } stuck; /* a writer died in the midst: waited for once */

const char *egpu_path(const char *path, char *buffer, size_t size)
{
#ifdef EGPU_TEST_ROOT
    const char *root = getenv("EGPU_TEST_ROOT");
    if (root && *root && (size_t)snprintf(buffer, size, "%s%s", root, path) < size)
        return buffer;
#else
    (void)buffer;
    (void)size;
#endif
    return path;
}

static bool terminated(const char *text, size_t size)
{
    return memchr(text, 0, size) != NULL;
}

bool egpu_control_sane(const struct egpu_control *page)
{
    if (page->magic != EGPU_CONTROL_MAGIC || page->abi_major != EGPU_ABI_MAJOR || page->bytes < EGPU_CONTROL_LEAST_BYTES ||
        page->card_count > EGPU_MAX_CARDS || page->peer_count > EGPU_MAX_PEERS ||
        page->beyond_count > EGPU_MAX_BEYOND ||
        page->own_class > EGPU_CLASS_HIGH || !terminated(page->name, sizeof page->name))
        return false;
    for (uint32_t i = 0; i < page->card_count; i++) {
        const struct egpu_control_card *card = &page->cards[i];
        if (!terminated(card->uuid, sizeof card->uuid) || !terminated(card->pci_bus_id, sizeof card->pci_bus_id) ||
            !card->memory_bytes || card->physical_bytes > card->memory_bytes || card->cores_percent > 100 ||
            card->core_policy > EGPU_CORES_SOFT || card->weight > 100)
            return false;
    }
    for (uint32_t i = 0; i < page->peer_count; i++)
        if (!terminated(page->peers[i].name, sizeof page->peers[i].name) || page->peers[i].peer_class > EGPU_CLASS_HIGH)
            return false;
    return true;
}

static bool read_at(int file, void *into, size_t size, off_t offset)
{
    size_t done = 0;
    while (done < size) {
        ssize_t more = pread(file, (char *)into + done, size - done, offset + (off_t)done);
        if (more < 0 && errno == EINTR)
            continue;
        if (more <= 0)
            return false;
        done += (size_t)more;
    }
    return true;
}

/* The whole page, as far as its writer knows it: one of an earlier minor version ends sooner. */
static bool read_whole(int file, struct egpu_control *into)
{
    enum { LEAST = EGPU_CONTROL_LEAST_BYTES };
    memset((char *)into + LEAST, 0, sizeof *into - LEAST);
    return read_at(file, into, LEAST, 0) &&
           (into->bytes < sizeof *into || read_at(file, (char *)into + LEAST, sizeof *into - LEAST, LEAST));
}

/* A consistent copy of the page into `into`. */
static bool read_page(int file, ino_t inode, struct egpu_control *into)
{
    const off_t at = offsetof(struct egpu_control, sequence);
    uint64_t before = 0, after;
    for (int tries = 0; tries < TRIES; tries++) {
        if (!read_at(file, &before, sizeof before, at))
            return false;
        if (!(before & 1) && read_whole(file, into) && read_at(file, &after, sizeof after, at) &&
            before == after)
            return egpu_control_sane(into);
        if (before & 1 && stuck.inode == inode && stuck.sequence == before)
            return false;
        if (tries < TRIES / 2)
            sched_yield();
        else
            usleep(500);
    }
    stuck.inode = inode;
    stuck.sequence = before;
    return false;
}

const struct egpu_control *egpu_control_now(void)
{
    return atomic_load_explicit(&good, memory_order_acquire);
}

static bool unchanged(const struct stat *about, const char *head, bool seed)
{
    return source.known && source.seed == seed && about->st_dev == source.device && about->st_ino == source.inode &&
           about->st_mtim.tv_sec == source.changed.tv_sec && about->st_mtim.tv_nsec == source.changed.tv_nsec &&
           memcmp(head, source.head, sizeof source.head) == 0;
}

enum found { IN_FORCE, MISSING, DAMAGED };

/* Makes what the file says the good copy, if it is not already. */
static enum found take(const char *path, bool seed)
{
    /* Opened anew each time: programs that close all descriptors would hand ours to somebody else. */
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about = {0};
    char head[sizeof source.head];
    if (file < 0)
        return MISSING;
    enum found found = DAMAGED;
    if (fstat(file, &about) == 0 && read_at(file, head, sizeof head, 0)) {
        egpu_lock(&reading);
        struct egpu_control *copy = &copies[next_copy % COPIES];
        if (unchanged(&about, head, seed)) {
            found = IN_FORCE;
        } else if (read_page(file, about.st_ino, copy)) {
            next_copy++;
            source = (struct source){.known = true, .seed = seed, .device = about.st_dev, .inode = about.st_ino,
                                     .changed = about.st_mtim};
            memcpy(source.head, copy, sizeof source.head);
            copy->sequence |= seed ? SEED_BIT : 0; /* what is made from a page is told apart by it */
            atomic_store_explicit(&good, copy, memory_order_release);
            found = IN_FORCE;
        }
        egpu_unlock(&reading);
    }
    close(file);
    return found;
}

static bool seed_in_force(void)
{
    egpu_lock(&reading);
    bool seed = source.known && source.seed;
    egpu_unlock(&reading);
    return seed;
}

/* The page is no good. What was good stays in force; a process that never saw one goes by the seed; one that has
 * neither is given no memory, since whoever preloads this library into a container has granted it a share. */
static void without_page(const char *path, const char *why)
{
    char buffer[512];
    const bool known = egpu_control_now() != NULL;
    if (known && !seed_in_force())
        egpu_say_once("control-lost", "%s cannot be used any more: the last good limits stay in force", path);
    else if (take(egpu_path(EGPU_SEED_PATH, buffer, sizeof buffer), true) == IN_FORCE)
        egpu_say_once("control-seed", "%s %s: the limits that this container was started with are in force", path, why);
    else if (!known)
        egpu_say_once("control", "%s %s: the limits of this container are not known, so it gets no memory of any card",
                      path, why);
}

const struct egpu_control *egpu_control_refresh(void)
{
    char buffer[512];
    const char *path = egpu_path(EGPU_CONTROL_PATH, buffer, sizeof buffer);
    const int kept_errno = errno;
    egpu_keep_thread(); /* with a file open */
    const enum found found = take(path, false);
    if (found != IN_FORCE)
        without_page(path, found == MISSING ? strerror(errno) : "is damaged or of another version");
    egpu_let_thread();
    errno = kept_errno;
    return egpu_control_now();
}
