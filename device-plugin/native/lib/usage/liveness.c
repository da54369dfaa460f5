/* Who lives. A process is its pid, its namespace and its start time: pids come again. */
#define _GNU_SOURCE
#include "usage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static size_t read_file(const char *path, char *buffer, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, buffer, size - 1) : -1;
    if (file >= 0)
        close(file);
    buffer[length > 0 ? length : 0] = 0;
    return length > 0 ? (size_t)length : 0;
}

struct stat_line {
    unsigned pid;
    char state;
    unsigned long threads;
    unsigned long long start;
};

/* /proc/PID/stat; false: no such process (or no /proc). */
static bool read_stat(const char *who, struct stat_line *line)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%s/stat", who);
    if (!read_file(path, text, sizeof text))
        return false;
    const char *rest = strrchr(text, ')'); /* the name before it may hold anything */
    line->pid = (unsigned)strtoul(text, NULL, 10);
    return rest && sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %lu %*d %llu",
                          &line->state, &line->threads, &line->start) == 3;
}

static uint64_t make_id(unsigned pid, unsigned long long start)
{
    return (uint64_t)(uint32_t)start << 32 | (pid & ~EGPU_USAGE_EMPTYING);
}

uint64_t egpu_self_id(void)
{
    static _Atomic uint64_t known;
    const unsigned pid = (unsigned)getpid();
    uint64_t id = atomic_load_explicit(&known, memory_order_relaxed);
    if ((uint32_t)id == pid)
        return id;
    struct stat_line line;
    /* A /proc of another namespace shows somebody else under "self". */
    id = make_id(pid, read_stat("self", &line) && line.pid == pid ? line.start : 0);
    atomic_store_explicit(&known, id, memory_order_relaxed);
    return id;
}

uint64_t egpu_self_namespace(void)
{
    struct stat about;
    return stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

bool egpu_namespace_lives(uint64_t pid_namespace)
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    struct stat about;
    char path[300];
    bool found = false;
    while (folder && !found && (entry = readdir(folder))) {
        snprintf(path, sizeof path, "/proc/%s/ns/pid", entry->d_name);
        found = *entry->d_name >= '1' && *entry->d_name <= '9' && stat(path, &about) == 0 && about.st_ino == pid_namespace;
    }
    if (folder)
        closedir(folder);
    return found;
}

/* True unless the process's maps can be read and do not name the page: then it has become another program, whose
 * GPU memory is gone. */
static bool maps_page(unsigned pid, const char *mapping)
{
    char path[64], text[8192];
    snprintf(path, sizeof path, "/proc/%u/maps", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return true;
    size_t kept = 0, all = 0;
    bool found = false;
    for (;;) {
        ssize_t more = read(file, text + kept, sizeof text - 1 - kept);
        if (more <= 0) {
            found = found || more < 0 || !all; /* cannot be told */
            break;
        }
        all += (size_t)more;
        size_t length = kept + (size_t)more;
        text[length] = 0;
        if (strstr(text, mapping)) {
            found = true;
            break;
        }
        kept = length < 128 ? length : 128; /* the name may lie across two reads */
        memmove(text, text + length - kept, kept);
    }
    close(file);
    if (found)
        return true;
    /* A process that dies loses its maps, perhaps while we read them, before it lets go of the card. If they are
     * still there now, we have read all of them. */
    return read_file(path, text, sizeof text) == 0;
}

bool egpu_alive(uint64_t owner, uint64_t pid_namespace, const char *mapping)
{
    const unsigned pid = (uint32_t)owner & ~EGPU_USAGE_EMPTYING;
    const uint32_t start = (uint32_t)(owner >> 32), own_start = (uint32_t)(egpu_self_id() >> 32);
    if (!pid || pid > 1u << 22)
        return false;
    if (pid_namespace && pid_namespace != egpu_self_namespace())
        return true; /* not for us to judge */
    if (kill((pid_t)pid, 0) != 0 && errno == ESRCH)
        return false;
    struct stat_line line;
    char who[16];
    snprintf(who, sizeof who, "%u", pid);
    if (!own_start || !read_stat(who, &line))
        return true; /* no /proc of ours, or it is hidden */
    if (start && (uint32_t)line.start != start)
        return false;
    if ((line.state == 'Z' || line.state == 'X') && line.threads <= 1)
        return false;
    return !mapping || !*mapping || maps_page(pid, mapping);
}

void egpu_mapping_name(int file, const void *at, char *name, size_t size)
{
    struct stat about;
    *name = 0;
    if (fstat(file, &about) != 0)
        return;
    snprintf(name, size, " %02x:%02x %llu ", major(about.st_dev), minor(about.st_dev),
             (unsigned long long)about.st_ino);
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], start[32];
    bool found = false;
    snprintf(start, sizeof start, "%lx-", (unsigned long)(uintptr_t)at);
    while (maps && !found && fgets(line, sizeof line, maps))
        found = strncmp(line, start, strlen(start)) == 0 && strstr(line, name);
    if (maps)
        fclose(maps);
    if (!found) /* some file systems show another device here */
        *name = 0;
}
