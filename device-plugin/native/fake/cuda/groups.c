/* Memory limits of control groups, as drivers from 615 on hold them. A group is known by its folder's inode, which is
 * the same on the host and where the folder is mounted as a container's /sys/fs/cgroup. */
#define _GNU_SOURCE
#include "shared.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIMITS = 1024 };

struct limit {
    char uuid[48];
    uint64_t group, soft, hard;
};

uint64_t fc_group_of(const char *folder) {
    struct stat about;
    return folder && stat(folder, &about) == 0 && S_ISDIR(about.st_mode) ? (uint64_t)about.st_ino : 0;
}

/* Version 2 of control groups alone; in a container the folder that is mounted there is its own. */
uint64_t fc_group_own(void) {
    char line[4096], path[5120];
    const char *named = getenv("FAKE_CUDA_CGROUP");
    if (named) return fc_group_of(named);
    FILE *file = fopen("/proc/self/cgroup", "re");
    uint64_t found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        if (strncmp(line, "0::", 3) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(path, sizeof path, "/sys/fs/cgroup%s", line + 3);
        found = fc_group_of(path);
    }
    if (file) fclose(file);
    return found;
}

static int open_limits(bool write) {
    char path[4096];
    fc_path(path, sizeof path, ".limits");
    int fd = open(path, (write ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC, 0666);
    if (fd >= 0 && write) (void)!fchmod(fd, 0666);
    if (fd >= 0) flock(fd, write ? LOCK_EX : LOCK_SH);
    return fd;
}

/* The caller holds the lock of all programs, and files are where a thread that is cancelled ends. */
static int keep_thread(void) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

bool fc_limit_get(const char *uuid, uint64_t group, uint64_t *soft, uint64_t *hard) {
    struct limit one;
    int before = keep_thread(), fd = group ? open_limits(false) : -1;
    bool found = false;
    while (fd >= 0 && !found && read(fd, &one, sizeof one) == (ssize_t)sizeof one)
        found = one.group == group && strcmp(one.uuid, uuid) == 0 && one.hard != UINT64_MAX;
    if (fd >= 0) close(fd);
    pthread_setcancelstate(before, NULL);
    if (found) *soft = one.soft, *hard = one.hard;
    return found;
}

bool fc_limit_put(const char *uuid, uint64_t group, uint64_t soft, uint64_t hard) {
    struct limit one, now = {.group = group, .soft = soft, .hard = hard};
    int fd = open_limits(true);
    off_t at = 0, unused = -1;
    if (fd < 0 || strlen(uuid) >= sizeof now.uuid) return false;
    strcpy(now.uuid, uuid);
    for (; pread(fd, &one, sizeof one, at) == (ssize_t)sizeof one; at += (off_t)sizeof one) {
        if (one.group == group && strcmp(one.uuid, uuid) == 0) break;
        if (one.hard == UINT64_MAX && unused < 0) unused = at;
    }
    if (pread(fd, &one, sizeof one, at) != (ssize_t)sizeof one && unused >= 0) at = unused;
    bool done = at < (off_t)(LIMITS * sizeof one) && pwrite(fd, &now, sizeof now, at) == (ssize_t)sizeof now;
    close(fd);
    return done;
}
