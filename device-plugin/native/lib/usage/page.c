/* The usage page: mapped, a slot of our own in it, the slots of the dead emptied. */
#define _GNU_SOURCE
#include "page.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_TRIES = 400, LOCK_PAUSE_NS = 100000, REAP_NS = 1000 * 1000 * 1000 };

struct egpu_usage_state egpu_usage = {.slot = -1};

static void use_page(void *page, const struct stat *about)
{
    if (egpu_usage.page)
        munmap(egpu_usage.page, sizeof *egpu_usage.page);
    egpu_usage.page = page;
    egpu_usage.device = about ? about->st_dev : 0;
    egpu_usage.inode = about ? about->st_ino : 0;
    egpu_usage.slot = -1;
}

static void use_memory(const char *path, const char *why)
{
    egpu_say_once("usage", "%s %s: memory is counted for each process by itself", path, why);
    void *page = mmap(NULL, sizeof *egpu_usage.page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *egpu_usage.mapping = 0;
    if (page != MAP_FAILED)
        use_page(page, NULL);
}

/* All of the file has its place: writing to a page for which a full file system has none kills. */
static bool has_room(int file)
{
    return fallocate(file, 0, 0, sizeof *egpu_usage.page) == 0 || errno == EOPNOTSUPP || errno == ENOSYS;
}

/* `keep`: the page that is mapped will do where there is no other. */
static void map_file(const char *path, bool keep)
{
    struct stat about;
    const char *why = NULL;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0 || fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) {
        why = file < 0 ? strerror(errno) : "is not a file";
    } else {
        if (about.st_uid == geteuid())
            fchmod(file, 0666); /* whatever the umask: all users of the container share it */
        void *page = MAP_FAILED;
        if ((about.st_size >= (off_t)sizeof *egpu_usage.page || ftruncate(file, sizeof *egpu_usage.page) == 0) &&
            has_room(file))
            page = mmap(NULL, sizeof *egpu_usage.page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (page == MAP_FAILED) {
            why = strerror(errno);
        } else {
            use_page(page, &about);
            egpu_mapping_name(file, page, egpu_usage.mapping, sizeof egpu_usage.mapping);
        }
    }
    if (why && keep && egpu_usage.inode)
        egpu_say_once("usage-away", "%s %s: memory is counted where it was", path, why);
    else if (why && !keep)
        use_memory(path, why);
    if (file >= 0)
        close(file);
}

/* No part of the mapped file has been cut off. Asked of the kernel, which does not kill for it. */
static bool is_whole(void)
{
    char last;
    struct iovec to = {&last, 1}, from = {(char *)egpu_usage.page + sizeof *egpu_usage.page - 1, 1};
    return syscall(SYS_process_vm_readv, (long)getpid(), &to, 1l, &from, 1l, 0l) == 1 || errno != EFAULT;
}

/* The page is there, is the file that others see, and is as long as it must be: touching a page behind the end of
 * a file kills. One that its path does not lead to any more (after a chroot, or with something mounted over it) is
 * still the one where the others count. */
static void hold_page(void)
{
    char buffer[512];
    const char *path = egpu_path(EGPU_USAGE_PATH, buffer, sizeof buffer);
    struct stat about;
    if (!egpu_usage.page)
        map_file(path, false);
    else if (!egpu_usage.inode) /* memory of our own: a file that could not be opened then, perhaps can be now */
        map_file(path, true);
    else if (stat(path, &about) != 0 || about.st_ino != egpu_usage.inode || about.st_dev != egpu_usage.device)
        map_file(path, is_whole());
    else if (about.st_size < (off_t)sizeof *egpu_usage.page)
        map_file(path, false);
    struct egpu_usage *page = egpu_usage.page;
    if (!page)
        return;
    if (page->magic != EGPU_USAGE_MAGIC || page->abi_major != EGPU_ABI_MAJOR || page->bytes != sizeof *page) {
        page->abi_major = EGPU_ABI_MAJOR;
        page->abi_minor = EGPU_ABI_MINOR;
        page->bytes = sizeof *page;
        __atomic_store_n(&page->magic, EGPU_USAGE_MAGIC, __ATOMIC_SEQ_CST);
    }
}

static void empty(struct egpu_usage_slot *slot)
{
    for (int card = 0; card < EGPU_MAX_CARDS; card++) {
        egpu_store(&slot->cards[card].device, 0);
        egpu_store(&slot->cards[card].managed, 0);
    }
    egpu_store(&slot->contexts, 0);
    egpu_store(&slot->changes, 0);
    egpu_store(&slot->pid_namespace, 0);
    egpu_shared_forget((uint32_t)(slot - egpu_usage.page->slots));
}

/* Where its owner is still that one. */
static void empty_of(uint32_t index, uint64_t owner)
{
    struct egpu_usage_slot *slot = &egpu_usage.page->slots[index];
    const uint64_t ours = egpu_self_id() | EGPU_USAGE_EMPTYING;
    if (!egpu_swap(&slot->owner, owner, ours))
        return;
    empty(slot);
    egpu_swap(&slot->owner, ours, 0);
}

void egpu_usage_reap(void)
{
    struct egpu_usage *page = egpu_usage.page;
    const uint32_t slots = egpu_hint(&page->slots_used, EGPU_USAGE_SLOTS);
    for (uint32_t i = 0; i < slots; i++) {
        const uint64_t owner = egpu_load(&page->slots[i].owner);
        if (owner && (int)i != egpu_usage.slot && !egpu_alive(owner, egpu_load(&page->slots[i].pid_namespace), NULL))
            empty_of(i, owner);
    }
}

/* It takes as long as those processes have mappings, and so nobody waits for a lock meanwhile. */
void egpu_usage_reap_programs(void)
{
    static _Atomic int64_t last_ns;
    uint64_t owners[EGPU_USAGE_SLOTS], namespaces[EGPU_USAGE_SLOTS];
    char mapping[sizeof egpu_usage.mapping];
    const int64_t now_ns = egpu_now_ns();
    int64_t before_ns = last_ns;
    if ((before_ns && now_ns - before_ns < REAP_NS) || !atomic_compare_exchange_strong(&last_ns, &before_ns, now_ns))
        return;
    egpu_usage_enter();
    const uint32_t slots = egpu_usage.page ? egpu_hint(&egpu_usage.page->slots_used, EGPU_USAGE_SLOTS) : 0;
    for (uint32_t i = 0; i < slots; i++) {
        owners[i] = (int)i == egpu_usage.slot ? 0 : egpu_load(&egpu_usage.page->slots[i].owner);
        namespaces[i] = egpu_load(&egpu_usage.page->slots[i].pid_namespace);
    }
    memcpy(mapping, egpu_usage.mapping, sizeof mapping);
    egpu_usage_leave();
    for (uint32_t i = 0; i < slots; i++)
        if (owners[i] && egpu_alive(owners[i], namespaces[i], mapping))
            owners[i] = 0;
    egpu_usage_enter();
    for (uint32_t i = 0; i < slots && egpu_usage.page; i++)
        if (owners[i])
            empty_of(i, owners[i]);
    egpu_usage_leave();
}

static bool claim(uint32_t index, uint64_t from)
{
    struct egpu_usage_slot *slot = &egpu_usage.page->slots[index];
    egpu_raise_hint(&egpu_usage.page->slots_used, index + 1);
    if (!egpu_swap(&slot->owner, from, egpu_self_id()))
        return false;
    empty(slot);
    egpu_store(&slot->pid_namespace, egpu_self_namespace());
    egpu_usage.slot = (int)index;
    return true;
}

/* Processes of two namespaces may have the same number and start. Those that have no /proc of their own do not know their
 * start, but see there who lives: the place of one that is gone is taken by the next, as nobody else can tell that. */
static bool may_be_ours(const struct egpu_usage_slot *slot, uint64_t self, uint64_t namespace)
{
    const uint64_t theirs = egpu_load(&slot->pid_namespace);
    return !theirs || !namespace || theirs == namespace || (!(self >> 32) && !egpu_namespace_lives(theirs));
}

/* A slot that already names us is from before an exec of this process: that program's memory is gone. */
static void find_slot(void)
{
    struct egpu_usage *page = egpu_usage.page;
    const uint64_t self = egpu_self_id(), namespace = egpu_self_namespace();
    egpu_usage.slot = -1;
    for (uint32_t i = 0; i < EGPU_USAGE_SLOTS; i++) {
        uint64_t owner = egpu_load(&page->slots[i].owner);
        if (owner == self && !may_be_ours(&page->slots[i], self, namespace))
            continue;
        if (owner == self && egpu_usage.slot < 0)
            claim(i, self);
        else if ((owner & ~(uint64_t)EGPU_USAGE_EMPTYING) == self && (empty(&page->slots[i]), true))
            egpu_swap(&page->slots[i].owner, owner, 0);
    }
    for (int round = 0; round < 2 && egpu_usage.slot < 0; round++) {
        for (uint32_t i = 0; i < EGPU_USAGE_SLOTS && egpu_usage.slot < 0; i++)
            if (!egpu_load(&page->slots[i].owner))
                claim(i, 0);
        if (egpu_usage.slot < 0 && !round)
            egpu_usage_reap();
    }
    if (egpu_usage.slot < 0)
        egpu_say_once("slots", "more than %d processes use a GPU here: this one gets no memory", EGPU_USAGE_SLOTS);
}

void egpu_usage_publish(int card)
{
    if (egpu_usage.slot < 0)
        return;
    struct egpu_usage_slot *slot = &egpu_usage.page->slots[egpu_usage.slot];
    static uint64_t changes; /* under our lock */
    egpu_store(&slot->changes, ++changes);
    egpu_store(&slot->cards[card].device, egpu_usage.own[card].device);
    egpu_store(&slot->cards[card].managed, egpu_usage.own[card].managed);
}

/* The page's lock keeps allocations of two processes from failing each other. Its holder may be dead, or the word
 * nonsense: then it is done without after a while. */
static void lock_page(void)
{
    struct egpu_usage *page = egpu_usage.page;
    const uint64_t self = egpu_self_id();
    for (int tries = 0; tries < LOCK_TRIES; tries++) {
        uint64_t holder = egpu_load(&page->lock);
        if ((!holder || holder == self) && egpu_swap(&page->lock, holder, self))
            return;
        if (tries % 50 == 49 && !egpu_alive(holder, 0, NULL) && egpu_swap(&page->lock, holder, self))
            return;
        if (tries < 20)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
    }
    egpu_swap(&page->lock, egpu_load(&page->lock), 0); /* nobody holds it for 40 ms */
}

void egpu_usage_enter(void)
{
    egpu_lock(&egpu_usage.lock);
    const uint32_t pid = (uint32_t)getpid();
    if (egpu_usage.pid != pid) {
        memset(egpu_usage.own, 0, sizeof egpu_usage.own);
        memset(egpu_usage.held, 0, sizeof egpu_usage.held);
        egpu_usage.held_used = 0;
        egpu_usage.contexts = 0;
        egpu_usage.slot = -1;
        if (egpu_usage.pid)
            egpu_forget(); /* the parent's memory is not the child's */
        egpu_usage.pid = pid;
    }
    hold_page();
    if (!egpu_usage.page)
        return;
    lock_page();
    if (egpu_usage.slot < 0 || egpu_load(&egpu_usage.page->slots[egpu_usage.slot].owner) != egpu_self_id()) {
        find_slot();
        egpu_raise_hint(&egpu_usage.page->slots_used, (uint32_t)(egpu_usage.slot + 1));
        for (int card = 0; card < EGPU_MAX_CARDS; card++)
            egpu_usage_publish(card);
    }
    egpu_shared_publish();
    if (egpu_usage.slot >= 0) {
        egpu_raise_hint(&egpu_usage.page->slots_used, (uint32_t)(egpu_usage.slot + 1));
        egpu_store(&egpu_usage.page->slots[egpu_usage.slot].contexts, egpu_usage.contexts);
    }
}

void egpu_usage_leave(void)
{
    if (egpu_usage.page)
        egpu_swap(&egpu_usage.page->lock, egpu_self_id(), 0);
    egpu_unlock(&egpu_usage.lock);
}
