/* A thread that is cancelled while it waits for a short lock: it goes on, since it may hold what others need. */
#undef _GNU_SOURCE /* it says so itself */
#include "../lib/base/util.c"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static struct egpu_spin lock;
static _Atomic bool waits, passed;

static void *take(void *unused) {
    atomic_store(&waits, true);
    egpu_spin_lock(&lock);
    atomic_store(&passed, true);
    egpu_spin_unlock(&lock);
    for (;; pthread_testcancel())
        usleep(100);
    return unused;
}

int main(void) {
    pthread_t thread;
    egpu_spin_lock(&lock);
    if (pthread_create(&thread, NULL, take, NULL) != 0)
        return 2;
    while (!atomic_load(&waits))
        usleep(100);
    usleep(10000);
    pthread_cancel(thread);
    usleep(10000);
    egpu_spin_unlock(&lock);
    pthread_join(thread, NULL);
    puts(atomic_load(&passed) ? "passed" : "cancelled while it waited");
    return 0;
}
