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

static struct egpu_control copies[COPIES]; /* a reader of an old copy has COPIES - 1 changes of time */
static unsigned next_copy;
static _Atomic(const struct egpu_control *) good;
static struct { dev_t device; ino_t inode; struct timespec changed; } good_file; /* a file written anew may count anew */
static struct egpu_lock reading;

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
    if (page->magic != EGPU_CONTROL_MAGIC || page->abi_major != EGPU_ABI_MAJOR || page->bytes < sizeof *page ||
        page->card_count > EGPU_MAX_CARDS || page->peer_count > EGPU_MAX_PEERS ||
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

/* A consistent copy of the page into `into`. */
static bool read_page(int file, struct egpu_control *into)
{
    const off_t at = offsetof(struct egpu_control, sequence);
    for (int tries = 0; tries < TRIES; tries++) {
        uint64_t before, after;
        if (!read_at(file, &before, sizeof before, at))
            return false;
        if (!(before & 1) && read_at(file, into, sizeof *into, 0) && read_at(file, &after, sizeof after, at) &&
            before == after)
            return egpu_control_sane(into);
        if (tries < TRIES / 2)
            sched_yield();
        else
            usleep(500);
    }
    return false;
}

const struct egpu_control *egpu_control_now(void)
{
    return atomic_load_explicit(&good, memory_order_acquire);
}

static bool same_file(const struct stat *about)
{
    egpu_lock(&reading);
    bool same = about->st_dev == good_file.device && about->st_ino == good_file.inode &&
                about->st_mtim.tv_sec == good_file.changed.tv_sec &&
                about->st_mtim.tv_nsec == good_file.changed.tv_nsec;
    egpu_unlock(&reading);
    return same;
}

const struct egpu_control *egpu_control_refresh(void)
{
    char buffer[512];
    const char *path = egpu_path(EGPU_CONTROL_PATH, buffer, sizeof buffer);
    const int kept_errno = errno;
    /* Opened anew each time: programs that close all descriptors would hand ours to somebody else. */
    int file = open(path, O_RDONLY | O_CLOEXEC);
    const struct egpu_control *now = egpu_control_now();
    struct egpu_control head;
    const size_t head_size = offsetof(struct egpu_control, name);
    struct stat about = {0};
    bool there = file >= 0 && fstat(file, &about) == 0 && read_at(file, &head, head_size, 0);
    if (there && now && memcmp(&head, now, head_size) == 0 && same_file(&about))
        goto done;
    egpu_lock(&reading);
    struct egpu_control *copy = &copies[next_copy % COPIES];
    if (there && read_page(file, copy)) {
        next_copy++;
        good_file.device = about.st_dev;
        good_file.inode = about.st_ino;
        good_file.changed = about.st_mtim;
        atomic_store_explicit(&good, copy, memory_order_release);
    } else if (egpu_control_now()) {
        egpu_say_once("control-lost", "%s cannot be used any more: the last good limits stay in force", path);
    } else {
        egpu_say_once("control", "%s %s: the limits of this container are not known, none is applied", path,
                      file < 0 ? strerror(errno) : "is damaged or of another version");
    }
    egpu_unlock(&reading);
done:
    if (file >= 0)
        close(file);
    errno = kept_errno;
    return egpu_control_now();
}
