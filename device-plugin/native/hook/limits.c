/* egpu-limits NAME SOCKET: has the node agent limit the memory of the container NAME through the card's driver.
 *
 * Run by the container runtime (hook createRuntime) on the host, once the container has its control group and before
 * its program starts: the runtime's state comes on stdin and names the container's first process. The agent looks up
 * that process's control group by itself. An agent that is away is waited for. Any failure is said on stderr and keeps
 * the container from starting. */
#define _GNU_SOURCE
#define PROGRAM "egpu-limits"
#include "state.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

enum { WAIT_S = 30, PAUSE_MS = 200, MAX_ANSWER = 1024 };

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The agent's answer without its end of line, or NULL: it is away, or went before it answered. */
static const char *asked(const char *socket_path, const char *name, long pid)
{
    static char answer[MAX_ANSWER];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = WAIT_S};
    if (strlen(socket_path) >= sizeof address.sun_path)
        fail(socket_path, "is too long");
    strcpy(address.sun_path, socket_path);
    int agent = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t length = 0;
    if (agent < 0)
        fail("a socket", strerror(errno));
    setsockopt(agent, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(agent, (struct sockaddr *)&address, sizeof address) == 0 && dprintf(agent, "%s %ld\n", name, pid) > 0) {
        ssize_t more;
        while (length < sizeof answer - 1 && (more = read(agent, answer + length, sizeof answer - 1 - length)) > 0)
            length += (size_t)more;
    }
    close(agent);
    answer[length] = 0;
    if (!length || answer[length - 1] != '\n')
        return NULL;
    answer[length - 1] = 0;
    return answer;
}

int main(int argc, char **argv)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    if (argc != 3)
        fail("arguments", "NAME SOCKET, and the runtime's state on stdin");
    const char *pid_text = member(all_of(STDIN_FILENO, MAX_STATE, "the runtime's state"), "pid"), *answer;
    const long pid = pid_text ? strtol(pid_text, NULL, 10) : 0;
    if (pid <= 0)
        fail("the runtime's state", "names no process");
    signal(SIGPIPE, SIG_IGN);
    for (double end = now_s() + WAIT_S; !(answer = asked(argv[2], argv[1], pid)); nanosleep(&pause, NULL)) {
        if (now_s() > end)
            fail("the node agent", "does not answer: nothing would limit the container's memory");
    }
    if (strcmp(answer, "ok") != 0)
        fail("the container's memory is not limited", answer);
    return 0;
}
