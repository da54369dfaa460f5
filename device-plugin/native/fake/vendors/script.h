/* What a fake vendor library says: a text file of `key=value` lines, which tests edit while a program uses the
 * library. It is read again at each call. Lines before the first `card=` are the node's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { CARDS = 16, FIELDS = 24, TEXT = 96, SLICES = 64, CARD_PROCESSES = 32 };

struct field { char key[TEXT], value[TEXT]; };
struct scripted_card { int id; size_t field_count; struct field fields[FIELDS]; };
struct script { size_t node_count, card_count; struct field node[FIELDS]; struct scripted_card cards[CARDS]; };

/* A slice that was made. They lie in `<script>.slices`, one line each, and outlive the process. */
struct slice { int card, id; char template[TEXT]; int cores, mib, used; };

/* The script that the variable names, read now; empty where there is none. The caller holds `script_lock`. */
const struct script *script_now(const char *variable);
const struct scripted_card *script_card(const struct script *script, int id);
/* The last value of a key, or `otherwise`. */
const char *card_text(const struct scripted_card *card, const char *key, const char *otherwise);
long long card_number(const struct scripted_card *card, const char *key, long long otherwise);
long long node_number(const struct script *script, const char *key, long long otherwise);

/* One caller at a time, in all processes of the machine. */
void script_lock(const char *variable);
void script_unlock(void);
size_t slices_read(struct slice *slices);
bool slices_write(const struct slice *slices, size_t count);
/* Sleeps as the card's `hang_s` says, without the lock. */
void script_hang(const struct scripted_card *card);
void script_sleep(long long seconds);
