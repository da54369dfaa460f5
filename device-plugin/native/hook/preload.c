/* egpu-preload LINE MERGED: the image's /etc/ld.so.preload with LINE before its own lines, mounted over it read-only.
 *
 * Run by the container runtime (hook createContainer) in the container's mount namespace, before its root becomes
 * the root: the runtime's state comes on stdin, the container's root is looked up in the bundle's config.json. The
 * image is not trusted: nothing in it is opened but below its own root. MERGED lies in a folder of the node agent.
 * Any failure is said on stderr and keeps the container from starting. */
#define _GNU_SOURCE
#define PROGRAM "egpu-preload"
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char target[] = "etc/ld.so.preload";
enum { MAX_CONFIG = 16 << 20, MAX_PRELOAD = 64 << 10, MAX_TRIES = 10000 };

static bool text_of(const char *at, char *into, size_t size)
{
    const char *end = at && *at == '"' ? end_of_string(at) : NULL;
    size_t length = 0;
    if (!end)
        return false;
    for (at++; at < end - 1; at++) {
        if (*at == '\\' && *++at != '"' && *at != '\\' && *at != '/')
            return false;
        if (length + 1 >= size)
            return false;
        into[length++] = *at;
    }
    into[length] = 0;
    return length > 0;
}

/* --- files ------------------------------------------------------------------------------------------- */

/* Below `root` whatever links in it say. */
static int open_in(int root, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int file = -1, tries = 0;
    /* A ".." on the way cannot be vouched for while anything on the machine is renamed or mounted. */
    do
        file = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    while (file < 0 && errno == EAGAIN && ++tries < MAX_TRIES);
    return file;
}

static int open_root(void)
{
    static char bundle[PATH_MAX], path[PATH_MAX], root[2 * PATH_MAX];
    char *state = all_of(STDIN_FILENO, MAX_STATE, "the runtime's state");
    if (!text_of(member(state, "bundle"), bundle, sizeof bundle))
        fail("the runtime's state", "names no bundle");
    snprintf(root, sizeof root, "%s/config.json", bundle);
    int file = open(root, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        fail(root, strerror(errno));
    if (!text_of(member(member(all_of(file, MAX_CONFIG, root), "root"), "path"), path, sizeof path))
        fail(root, "names no root");
    close(file);
    snprintf(root, sizeof root, "%s%s%s", path[0] == '/' ? "" : bundle, path[0] == '/' ? "" : "/", path);
    int found = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (found < 0)
        fail(root, strerror(errno));
    return found;
}

/* What the image has there; an empty text if it has none. */
static char *image_lines(int root)
{
    struct stat about;
    int file = open_in(root, target, O_RDONLY | O_NONBLOCK);
    if (file < 0 && errno == ENOENT)
        return strdup("");
    if (file < 0 || fstat(file, &about) != 0)
        fail("the image's ld.so.preload", strerror(errno));
    if (!S_ISREG(about.st_mode))
        fail("the image's ld.so.preload", "is no file");
    char *text = all_of(file, MAX_PRELOAD, "the image's ld.so.preload");
    close(file);
    return text;
}

/* In a user namespace (hostUsers: false) root is somebody else on the host and may not write there: then a folder in
 * memory lies over it while this runs, for nobody outside this mount namespace. */
static char covered[PATH_MAX];

static bool cover(const char *merged)
{
    const char *name = strrchr(merged, '/');
    if (!name || name == merged || (size_t)snprintf(covered, sizeof covered, "%s", merged) >= sizeof covered)
        return false;
    covered[name - merged] = 0;
    return mount("egpu-preload", covered, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0755,size=256k") == 0;
}

static void uncover(void)
{
    if (covered[0])
        umount2(covered, MNT_DETACH); /* what is bound from it stays; it goes with the runtime's root at the latest */
}

static void write_merged(const char *merged, const char *line, const char *lines)
{
    const int fresh = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    char draft[PATH_MAX];
    if ((size_t)snprintf(draft, sizeof draft, "%s.%ld", merged, (long)getpid()) >= sizeof draft)
        fail(merged, strerror(ENAMETOOLONG));
    unlink(draft);
    int file = open(draft, fresh, 0644);
    if (file < 0 && errno == EACCES && cover(merged))
        file = open(draft, fresh, 0644);
    if (file < 0 || fchmod(file, 0644) != 0 || dprintf(file, "%s\n%s", line, lines) < 0 || close(file) != 0 ||
        rename(draft, merged) != 0)
        fail(draft, strerror(errno));
}

static int make_target(int root)
{
    int file = open_in(root, target, O_PATH);
    if (file >= 0 || errno != ENOENT)
        return file;
    int folder = open_in(root, "etc", O_PATH | O_DIRECTORY);
    if (folder < 0 && errno == ENOENT && mkdirat(root, "etc", 0755) == 0)
        folder = open_in(root, "etc", O_PATH | O_DIRECTORY);
    int made = folder < 0 ? -1 : openat(folder, "ld.so.preload", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (made < 0)
        return -1;
    close(made);
    return open_in(root, target, O_PATH);
}

static void mount_on(int root, const char *merged)
{
    const unsigned long kept = MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    char path[64];
    int file = make_target(root);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (file < 0 || mount(merged, path, NULL, MS_BIND, NULL) != 0)
        fail("the container's /etc/ld.so.preload", strerror(errno));
    file = open_in(root, target, O_PATH); /* what is mounted there now */
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (file < 0 || mount(NULL, path, NULL, kept, NULL) != 0)
        fail("the container's /etc/ld.so.preload was not made read-only", strerror(errno));
}

int main(int argc, char **argv)
{
    if (argc != 3)
        fail("arguments", "LINE MERGED, and the runtime's state on stdin");
    int root = open_root();
    write_merged(argv[2], argv[1], image_lines(root));
    mount_on(root, argv[2]);
    uncover();
    return 0;
}
