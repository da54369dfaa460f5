/* A fake libhydmi.so, scripted by the file of FAKE_DCU_STATE (`script.h`). Keys of a card beside those of `rsmi.c`:
 *
 *   name=K100_AI  memory_mib=65520  used_mib=0  cu=120
 *   dmi_error=17        every call on it answers so;  hang_s=60   every call on it sleeps first
 *
 * Slices that another tool made stand in `<script>.slices` (card, id, name, CUs, MiB, used). Ours are files. */
#define _GNU_SOURCE
#include "dmi.h"
#include "script.h"

#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define STATE "FAKE_DCU_STATE"
static int not_ready_answers;

static int on_card(int index, const struct scripted_card **found) {
    script_lock(STATE);
    const struct script *script = script_now(STATE);
    if (index < 0 || (size_t)index >= script->card_count) return DMI_NO_DEVICE;
    *found = &script->cards[index];
    script_hang(*found);
    if (not_ready_answers < node_number(script, "not_ready", 0)) {
        not_ready_answers++;
        return DMI_BUSY;
    }
    return (int)card_number(*found, "dmi_error", DMI_OK);
}

#define ON(index) \
    const struct scripted_card *at = NULL; \
    int answer = on_card(index, &at); \
    if (answer != DMI_OK) { script_unlock(); return answer; }
#define DONE(value) do { int done = (value); script_unlock(); return done; } while (0)

EXPORT int dmiInit(void) {
    return DMI_OK;
}

EXPORT int dmiGetDeviceCount(int *count) {
    script_lock(STATE);
    *count = (int)script_now(STATE)->card_count;
    DONE(DMI_OK);
}

EXPORT int dmiGetDeviceInfo(int index, dmiDeviceInfo *info) {
    ON(index)
    snprintf(info->name, sizeof info->name, "%s", card_text(at, "name", "K100_AI"));
    info->compute_units = (int)card_number(at, "cu", 120);
    info->memory = (size_t)card_number(at, "memory_mib", 65520) << 20;
    info->used = (size_t)card_number(at, "used_mib", 0) << 20;
    info->device_id = index;
    DONE(DMI_OK);
}

static void left(const struct scripted_card *at, int index, int *units, long long *mib) {
    struct slice slices[SLICES];
    size_t count = slices_read(slices);
    *units = (int)card_number(at, "cu", 120), *mib = card_number(at, "memory_mib", 65520);
    for (size_t i = 0; i < count; i++)
        if (slices[i].card == index) *units -= slices[i].cores, *mib -= slices[i].mib;
}

EXPORT int dmiGetDeviceRemainingInfo(int index, size_t *units, size_t *bytes) {
    ON(index)
    int free_units;
    long long free_mib;
    left(at, index, &free_units, &free_mib);
    *units = (size_t)free_units, *bytes = (size_t)free_mib << 20;
    DONE(DMI_OK);
}

EXPORT int dmiGetVDeviceCount(int *count) {
    script_lock(STATE);
    script_now(STATE);
    struct slice slices[SLICES];
    *count = (int)slices_read(slices);
    DONE(DMI_OK);
}

EXPORT int dmiGetVDeviceInfo(int id, dmiDeviceInfo *info) {
    script_lock(STATE);
    script_now(STATE);
    struct slice slices[SLICES];
    size_t count = slices_read(slices);
    for (size_t i = 0; i < count; i++) {
        if (slices[i].id != id) continue;
        snprintf(info->name, sizeof info->name, "vdev%d", id);
        info->compute_units = slices[i].cores;
        info->memory = (size_t)slices[i].mib << 20;
        info->container_id = (uint64_t)slices[i].used;
        info->device_id = slices[i].card;
        DONE(DMI_OK);
    }
    DONE(DMI_NO_VDEVICE);
}
