#define _GNU_SOURCE
#include "signals.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct { const char *name; int number; } ALLOWED[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"TSTP", SIGTSTP}};
enum { ALLOWED_COUNT = sizeof ALLOWED / sizeof *ALLOWED };

static bool read_file(int pid, const char *name, char *text, size_t room) {
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    size_t length = fread(text, 1, room - 1, file);
    fclose(file);
    text[length] = '\0';
    return true;
}

/* The process's name may hold anything: skipped from the end. */
unsigned long long process_start(int pid) {
    char text[1024];
    if (!read_file(pid, "stat", text, sizeof text)) return 0;
    char *at = strrchr(text, ')');
    for (int field = 0; at && field < 20; field++) at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

/* Its name is the first line, in which a line's end is written as \n. */
static uint64_t mask(const char *text, const char *name) {
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 16) : 0;
}

struct process_signals signals_of(int pid) {
    char text[4096];
    if (!read_file(pid, "status", text, sizeof text)) return (struct process_signals){0};
    return (struct process_signals){mask(text, "\nSigIgn:"), mask(text, "\nSigCgt:")};
}

uint64_t signal_bit(int number) { return 1ull << (number - 1); }

int signal_number(const char *name) {
    for (int i = 0; i < ALLOWED_COUNT; i++)
        if (strcmp(ALLOWED[i].name, name) == 0) return ALLOWED[i].number;
    return 0;
}

const char *signal_name(int number) {
    for (int i = 0; i < ALLOWED_COUNT; i++)
        if (ALLOWED[i].number == number) return ALLOWED[i].name;
    return "";
}

bool signal_send(int pid, unsigned long long start, int number) {
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    if (process < 0) return false;
    unsigned long long now = process_start(pid); /* it keeps its number while we hold it */
    bool sent = now != 0 && (!start || start == now) && syscall(SYS_pidfd_send_signal, process, number, NULL, 0) == 0;
    close(process);
    return sent;
}
