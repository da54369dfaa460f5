#define _GNU_SOURCE
#include "state.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct state current;
static struct stat seen;
static bool was_read;

/* Programs without an environment still see the cards. */
static const char *state_path(void) {
    const char *named = getenv("FAKE_NVML_STATE");
    return named ? named : "/run/fake-gpu/nvml.state";
}

static void copy_text(char *to, size_t room, const char *from) {
    snprintf(to, room, "%s", from);
}

static unsigned number(const char *text) {
    return (unsigned)strtoul(text, NULL, 0);
}

static void card_defaults(struct card *card, const char *uuid, size_t index) {
    memset(card, 0, sizeof *card);
    copy_text(card->uuid, sizeof card->uuid, uuid);
    copy_text(card->name, sizeof card->name, "NVIDIA H20");
    snprintf(card->pci, sizeof card->pci, "00000000:%02X:00.0", (unsigned)(0x10 + index));
    card->memory_bytes = 98304ULL << 20;
    card->minor = (unsigned)index;
    card->cores = 9984;
    card->cc_major = 9;
    card->sm_mhz = card->max_sm_mhz = 1980;
    card->mem_mhz = card->max_mem_mhz = 2619;
    card->power_mw = 75000;
    card->temp_c = 30;
    card->mem_temp_c = 35;
}

struct field { const char *key; size_t offset; bool wide; };
#define NARROW(name) {#name, offsetof(struct card, name), false}
#define WIDE(name) {#name, offsetof(struct card, name), true}
static const struct field FIELDS[] = {
    WIDE(memory_bytes), WIDE(used_mib), WIDE(reserved_mib), WIDE(ecc), WIDE(energy_mj),
    NARROW(minor), NARROW(cores), NARROW(sm_mhz), NARROW(mem_mhz), NARROW(max_sm_mhz), NARROW(max_mem_mhz),
    NARROW(util), NARROW(mem_util), NARROW(enc_util), NARROW(dec_util), NARROW(power_mw), NARROW(temp_c),
    NARROW(mem_temp_c), NARROW(retired), NARROW(remap_pending), NARROW(remap_failure),
    NARROW(recovery_action), NARROW(mig), NARROW(mig_slices), NARROW(compute_mode), NARROW(error), NARROW(link_version),
    NARROW(socket), NARROW(make_error), NARROW(make_ci_error), NARROW(make_hang_s), NARROW(made_mib),
    NARROW(destroy_error), NARROW(limits_error), NARROW(limits_lost), NARROW(list_error),
};

static void card_line(struct card *card, const char *key, const char *value) {
    if (strcmp(key, "name") == 0) {
        copy_text(card->name, sizeof card->name, value);
    } else if (strcmp(key, "pci") == 0) {
        copy_text(card->pci, sizeof card->pci, value);
    } else if (strcmp(key, "memory_mib") == 0) {
        card->memory_bytes = strtoull(value, NULL, 0) << 20;
    } else if (strcmp(key, "cc") == 0) {
        sscanf(value, "%u.%u", &card->cc_major, &card->cc_minor);
    } else if (strcmp(key, "fabric") == 0) {
        card->has_fabric = sscanf(value, "%u:%u", &card->fabric_state, &card->fabric_status) > 0;
    } else if (strcmp(key, "link") == 0 && card->link_count < MAX_LINKS) {
        copy_text(card->links[card->link_count++], sizeof card->links[0], value);
    } else if (strcmp(key, "process") == 0 && card->process_count < MAX_PROCESSES) {
        struct process *process = &card->processes[card->process_count++];
        char kind[4] = "";
        unsigned gi;
        if (sscanf(value, "%u:%llu:%u:%3[CG]:%u", &process->pid, &process->used_mib, &process->sm_percent, kind, &gi) == 5)
            process->gi = gi + 1;
        process->draws = strchr(kind, 'G') != NULL;
        process->only_draws = process->draws && !strchr(kind, 'C');
    } else if (strcmp(key, "instance") == 0 && card->instance_count < MAX_INSTANCES) {
        struct instance *one = &card->instances[card->instance_count++];
        sscanf(value, "%u:%u:%u:%u:%llu:%95s", &one->gi, &one->ci, &one->profile, &one->start, &one->memory_mib,
               one->uuid);
    } else if (strcmp(key, "xid") == 0 && card->xid_count < MAX_XIDS) {
        sscanf(value, "%llu:%llu", &card->xids[card->xid_count].number, &card->xids[card->xid_count].code);
        card->xid_count++;
    } else {
        for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
            if (strcmp(key, FIELDS[i].key) != 0) continue;
            char *at = (char *)card + FIELDS[i].offset;
            unsigned long long wide = strtoull(value, NULL, 0);
            unsigned narrow = (unsigned)wide;
            if (FIELDS[i].wide) memcpy(at, &wide, sizeof wide);
            else memcpy(at, &narrow, sizeof narrow);
        }
    }
}

static void read_file(FILE *file) {
    static struct state fresh;
    memset(&fresh, 0, sizeof fresh);
    copy_text(fresh.driver, sizeof fresh.driver, "570.124.06");
    fresh.cuda = 12080;
    struct card *card = NULL;
    char line[512];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = '\0';
        char *value = strchr(line, '=');
        if (line[0] == '#' || !value) continue;
        *value++ = '\0';
        if (strcmp(line, "card") == 0) {
            if (fresh.card_count == MAX_CARDS) break;
            card = &fresh.cards[fresh.card_count];
            card_defaults(card, value, fresh.card_count++);
        } else if (card) {
            card_line(card, line, value);
        } else if (strcmp(line, "driver") == 0) {
            copy_text(fresh.driver, sizeof fresh.driver, value);
        } else if (strcmp(line, "cuda") == 0) {
            fresh.cuda = number(value);
        } else if (strcmp(line, "error") == 0) {
            fresh.error = number(value);
        }
    }
    current = fresh;
}

const struct state *state_now(void) {
    const char *path = state_path();
    struct stat now;
    if (stat(path, &now) != 0) {
        memset(&current, 0, sizeof current);
        current.error = 9;
        was_read = false;
        return &current;
    }
    bool same = was_read && now.st_ino == seen.st_ino && now.st_size == seen.st_size &&
                now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec;
    if (!same) {
        FILE *file = fopen(path, "re");
        if (file) {
            read_file(file);
            fclose(file);
            seen = now;
            was_read = true;
        }
    }
    return &current;
}

const struct card *state_card(const struct state *state, const char *uuid) {
    for (size_t i = 0; i < state->card_count; i++) {
        if (strcmp(state->cards[i].uuid, uuid) == 0) return &state->cards[i];
    }
    return NULL;
}

bool state_put_instance(const char *uuid, unsigned gi, const struct instance *now) {
    const char *path = state_path();
    char fresh[4096], line[512];
    if (snprintf(fresh, sizeof fresh, "%s.made", path) >= (int)sizeof fresh) return false;
    FILE *from = fopen(path, "re"), *to = from ? fopen(fresh, "we") : NULL;
    bool here = false;
    while (to && fgets(line, sizeof line, from)) {
        const bool begins = strncmp(line, "card=", 5) == 0;
        if (begins) here = strcspn(line + 5, "\r\n") == strlen(uuid) && strncmp(line + 5, uuid, strlen(uuid)) == 0;
        unsigned number;
        if (here && sscanf(line, "instance=%u:", &number) == 1 && number == gi) continue;
        fputs(line, to);
        if (begins && here && now) {
            fprintf(to, "instance=%u:%d:%u:%u:%llu:%s\n", now->gi, (int)now->ci, now->profile, now->start,
                    now->memory_mib, now->uuid);
        }
    }
    if (from) fclose(from);
    return to && fclose(to) == 0 && rename(fresh, path) == 0;
}

bool state_wait(int timeout_ms) {
    const char *path = state_path();
    char folder[4096];
    int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    bool changed = false;
    copy_text(folder, sizeof folder, path);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    else copy_text(folder, sizeof folder, ".");
    if (watch >= 0 && inotify_add_watch(watch, folder, IN_MOVED_TO | IN_CLOSE_WRITE) >= 0) {
        struct pollfd ready = {.fd = watch, .events = POLLIN};
        changed = poll(&ready, 1, timeout_ms) > 0;
    } else {
        struct timespec pause = {.tv_sec = timeout_ms / 1000, .tv_nsec = (timeout_ms % 1000) * 1000000L};
        nanosleep(&pause, NULL);
    }
    if (watch >= 0) close(watch);
    return changed;
}
