#define _GNU_SOURCE
#include "script.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static struct script current;
static pthread_mutex_t here = PTHREAD_MUTEX_INITIALIZER;
static int lock_file = -1;
static char path[4096];

static void add(struct field *fields, size_t *count, const char *key, const char *value) {
    if (*count == FIELDS) return;
    snprintf(fields[*count].key, TEXT, "%.*s", TEXT - 1, key);
    snprintf(fields[*count].value, TEXT, "%.*s", TEXT - 1, value);
    ++*count;
}

const struct script *script_now(const char *variable) {
    memset(&current, 0, sizeof current);
    const char *named = getenv(variable);
    snprintf(path, sizeof path - 16, "%s", named ? named : "");
    FILE *file = named ? fopen(named, "re") : NULL;
    if (!file) return &current;
    struct scripted_card *card = NULL;
    char line[512];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\r\n")] = '\0';
        char *value = strchr(line, '=');
        if (line[0] == '#' || !value) continue;
        *value++ = '\0';
        if (strcmp(line, "card") == 0) {
            if (current.card_count == CARDS) break;
            card = &current.cards[current.card_count++];
            card->id = atoi(value);
        } else if (card) {
            add(card->fields, &card->field_count, line, value);
        } else {
            add(current.node, &current.node_count, line, value);
        }
    }
    fclose(file);
    return &current;
}

const struct scripted_card *script_card(const struct script *script, int id) {
    for (size_t i = 0; i < script->card_count; i++)
        if (script->cards[i].id == id) return &script->cards[i];
    return NULL;
}

static const char *find(const struct field *fields, size_t count, const char *key) {
    while (count--)
        if (strcmp(fields[count].key, key) == 0) return fields[count].value;
    return NULL;
}

const char *card_text(const struct scripted_card *card, const char *key, const char *otherwise) {
    const char *found = find(card->fields, card->field_count, key);
    return found ? found : otherwise;
}

long long card_number(const struct scripted_card *card, const char *key, long long otherwise) {
    const char *found = find(card->fields, card->field_count, key);
    return found ? strtoll(found, NULL, 0) : otherwise;
}

long long node_number(const struct script *script, const char *key, long long otherwise) {
    const char *found = find(script->node, script->node_count, key);
    return found ? strtoll(found, NULL, 0) : otherwise;
}

void script_lock(const char *variable) {
    pthread_mutex_lock(&here);
    char name[4200];
    const char *named = getenv(variable);
    snprintf(name, sizeof name, "%s.lock", named ? named : "/dev/null");
    lock_file = named ? open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (lock_file >= 0) flock(lock_file, LOCK_EX);
}

void script_unlock(void) {
    if (lock_file >= 0) close(lock_file);
    lock_file = -1;
    pthread_mutex_unlock(&here);
}

static void beside(char *name, size_t room, const char *ending) {
    snprintf(name, room, "%s.slices%s", path, ending);
}

size_t slices_read(struct slice *slices) {
    char name[4200];
    beside(name, sizeof name, "");
    FILE *file = fopen(name, "re");
    size_t count = 0;
    while (file && count < SLICES) {
        struct slice *one = &slices[count];
        if (fscanf(file, "%d %d %95s %d %d %d", &one->card, &one->id, one->template, &one->cores, &one->mib, &one->used) != 6) break;
        count++;
    }
    if (file) fclose(file);
    return count;
}

bool slices_write(const struct slice *slices, size_t count) {
    char name[4200], fresh[4200];
    beside(name, sizeof name, "");
    beside(fresh, sizeof fresh, ".tmp");
    FILE *file = fopen(fresh, "we");
    if (!file) return false;
    for (size_t i = 0; i < count; i++)
        fprintf(file, "%d %d %s %d %d %d\n", slices[i].card, slices[i].id, slices[i].template, slices[i].cores, slices[i].mib, slices[i].used);
    fclose(file);
    return rename(fresh, name) == 0;
}

void script_hang(const struct scripted_card *card) {
    if (!card) return;
    script_sleep(card_number(card, "hang_s", 0));
}

void script_sleep(long long seconds) {
    if (seconds <= 0) return;
    script_unlock();
    sleep((unsigned)seconds);
    pthread_mutex_lock(&here);
}
