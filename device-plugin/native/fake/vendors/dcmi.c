/* A fake libdcmi.so, scripted by the file of FAKE_DCMI_STATE (`script.h`). Keys of the node:
 *
 *   init=-8005          dcmi_init answers so
 *   not_ready=2         the first calls of each process answer -8012, so many
 *
 * Keys of a card (`card=<id>`, one device each):
 *
 *   chip=910B3  die=7  phy=0  bus=0xc1  memory_mib=65536  used_mib=0  aicore=20  board=0
 *   health=0  code=0x80e01801  util=0  temp_c=40  power_dw=900
 *   error=-8006         every call on it answers so
 *   hang_s=60           every call on it sleeps first
 *   create=-8005 destroy=-8020      making or removing a slice answers so
 *   create_hang_s=60    making a slice sleeps first
 *   made_mib=8192       slices that are made have so much memory, whatever their template
 *   process=<pid>:<MiB> one program on it
 */
#define _GNU_SOURCE
#include "dcmi.h"
#include "script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define STATE "FAKE_DCMI_STATE"

static struct { const char *chip, *name; int mib, cores, cpus; } TEMPLATES[] = {
    {"910A", "vir02", 2184, 2, 0}, {"910A", "vir04", 4369, 4, 0}, {"910A", "vir08", 8738, 8, 0},
    {"910A", "vir16", 17476, 16, 0},
    {"910B2", "vir03_1c_8g", 8192, 3, 1}, {"910B2", "vir06_1c_16g", 16384, 6, 1},
    {"910B2", "vir12_3c_32g", 32768, 12, 3},
    {"910B3", "vir05_1c_16g", 16384, 5, 1}, {"910B3", "vir10_3c_32g", 32768, 10, 3},
    {"910B4", "vir05_1c_8g", 8192, 5, 1}, {"910B4", "vir10_3c_16g", 16384, 10, 3},
    {"310P3", "vir01", 3072, 1, 1}, {"310P3", "vir02", 6144, 2, 2}, {"310P3", "vir04", 12288, 4, 4},
};
static int not_ready_answers;

static int on_card(int card, const struct scripted_card **found) {
    script_lock(STATE);
    const struct script *script = script_now(STATE);
    *found = script_card(script, card);
    if (!*found) return DCMI_DEVICE_ABSENT;
    script_hang(*found);
    if (not_ready_answers < node_number(script, "not_ready", 0)) {
        not_ready_answers++;
        return DCMI_NOT_READY;
    }
    return (int)card_number(*found, "error", DCMI_OK);
}

#define ON(card) \
    const struct scripted_card *at; \
    int answer = on_card(card, &at); \
    if (answer != DCMI_OK) { script_unlock(); return answer; }
#define DONE(value) do { int done = (value); script_unlock(); return done; } while (0)

EXPORT int dcmi_init(void) {
    script_lock(STATE);
    DONE((int)node_number(script_now(STATE), "init", DCMI_OK));
}

EXPORT int dcmi_get_dcmi_version(char *version, unsigned room) {
    snprintf(version, room, "25.2.0");
    return DCMI_OK;
}

EXPORT int dcmi_get_card_list(int *count, int *ids, int room) {
    script_lock(STATE);
    const struct script *script = script_now(STATE);
    *count = 0;
    for (size_t i = 0; i < script->card_count && *count < room; i++) ids[(*count)++] = script->cards[i].id;
    DONE(DCMI_OK);
}

EXPORT int dcmi_get_device_num_in_card(int card, int *count) {
    (void)card;
    *count = 1;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_type(int card, int device, int *type) {
    (void)card;
    *type = device == 0 ? 0 : 1;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_logic_id(int *logic, int card, int device) {
    (void)device;
    *logic = card;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_phyid_from_logicid(unsigned logic, unsigned *phy) {
    ON((int)logic)
    *phy = (unsigned)card_number(at, "phy", (long long)logic);
    DONE(DCMI_OK);
}

EXPORT int dcmi_get_device_chip_info(int card, int device, struct dcmi_chip_info *info) {
    (void)device;
    ON(card)
    snprintf((char *)info->chip_type, 32, "Ascend");
    snprintf((char *)info->chip_name, 32, "%s", card_text(at, "chip", "910B3"));
    snprintf((char *)info->chip_ver, 32, "V1");
    info->aicore_cnt = (unsigned)card_number(at, "aicore", 20);
    DONE(DCMI_OK);
}

EXPORT int dcmi_get_device_board_info(int card, int device, struct dcmi_board_info *info) {
    (void)device;
    ON(card)
    info->board_id = (unsigned)card_number(at, "board", 0);
    DONE(DCMI_OK);
}

EXPORT int dcmi_get_device_die_v2(int card, int device, int type, struct dcmi_die_id *id) {
    (void)device, (void)type;
    ON(card)
    unsigned die = (unsigned)card_number(at, "die", card + 1);
    for (int i = 0; i < 5; i++) id->soc_die[i] = die ? die * 16 + (unsigned)i : 0;
    DONE(DCMI_OK);
}

EXPORT int dcmi_get_device_pcie_info_v2(int card, int device, struct dcmi_pcie_info_all *info) {
    (void)device;
    ON(card)
    info->bus = (unsigned)card_number(at, "bus", 0xc1 + card);
    DONE(DCMI_OK);
}

EXPORT int dcmi_get_device_hbm_info(int card, int device, struct dcmi_hbm_info *info) {
    (void)device;
    ON(card)
    if (strncmp(card_text(at, "chip", ""), "310P", 4) == 0) DONE(DCMI_NOT_SUPPORTED);
    info->memory_size = (unsigned long long)card_number(at, "memory_mib", 65536);
    info->memory_usage = (unsigned long long)card_number(at, "used_mib", 0);
    info->temp = (int)card_number(at, "temp_c", 40);
    DONE(DCMI_OK);
}

EXPORT int dcmi_get_device_memory_info_v3(int card, int device, struct dcmi_memory_info_v3 *info) {
    (void)device;
    ON(card)
    info->memory_size = (unsigned long long)card_number(at, "memory_mib", 24576);
    info->memory_available = info->memory_size - (unsigned long long)card_number(at, "used_mib", 0);
    DONE(DCMI_OK);
}

EXPORT int dcmi_get_device_utilization_rate(int card, int device, int type, unsigned *rate) {
    (void)device, (void)type;
    ON(card)
    *rate = (unsigned)card_number(at, "util", 0);
    DONE(DCMI_OK);
}

EXPORT int dcmi_get_device_temperature(int card, int device, int *celsius) {
    (void)device;
    ON(card)
    *celsius = (int)card_number(at, "temp_c", 40);
    DONE(DCMI_OK);
}

EXPORT int dcmi_get_device_power_info(int card, int device, int *tenths) {
    (void)device;
    ON(card)
    *tenths = (int)card_number(at, "power_dw", 900);
    DONE(DCMI_OK);
}

EXPORT int dcmi_get_device_health(int card, int device, unsigned *health) {
    (void)device;
    ON(card)
    *health = (unsigned)card_number(at, "health", 0);
    DONE(DCMI_OK);
}

EXPORT int dcmi_get_device_errorcode_v2(int card, int device, int *count, unsigned *codes, unsigned room) {
    (void)device;
    ON(card)
    long long code = card_number(at, "code", 0);
    *count = code && room ? 1 : 0;
    if (*count) codes[0] = (unsigned)code;
    DONE(DCMI_OK);
}

EXPORT int dcmi_get_device_resource_info(int card, int device, struct dcmi_proc_mem_info *processes, int *count) {
    (void)device;
    ON(card)
    *count = 0;
    for (size_t i = 0; i < at->field_count && *count < CARD_PROCESSES; i++) {
        int pid;
        unsigned long mib;
        if (strcmp(at->fields[i].key, "process") != 0) continue;
        if (sscanf(at->fields[i].value, "%d:%lu", &pid, &mib) != 2) continue;
        processes[*count].proc_id = pid;
        processes[(*count)++].proc_mem_usage = mib << 20;
    }
    DONE(DCMI_OK);
}

static int total_cores(const struct scripted_card *at) {
    return (int)card_number(at, "aicore", 20);
}

static int total_cpus(const struct scripted_card *at) {
    return (int)card_number(at, "aicpu", strcmp(card_text(at, "chip", ""), "910B2") == 0 ? 6 : 7);
}

static int cpus_of(const char *chip, const char *name) {
    for (size_t i = 0; i < sizeof TEMPLATES / sizeof *TEMPLATES; i++)
        if (strcmp(TEMPLATES[i].chip, chip) == 0 && strcmp(TEMPLATES[i].name, name) == 0) return TEMPLATES[i].cpus;
    return 0;
}

EXPORT int dcmi_create_vdevice(int card, int device, struct dcmi_create_vdev_res *wanted, struct dcmi_create_vdev_out *out) {
    (void)device;
    ON(card)
    script_sleep(card_number(at, "create_hang_s", 0));
    answer = (int)card_number(at, "create", DCMI_OK);
    if (answer != DCMI_OK) DONE(answer);
    const char *chip = card_text(at, "chip", "910B3");
    struct slice slices[SLICES];
    size_t count = slices_read(slices);
    int cores = 0, cpus = 0, id = 16 * (int)card_number(at, "phy", card) + 100;
    for (size_t i = 0; i < count; i++) {
        if (slices[i].card != card) continue;
        cores += slices[i].cores, cpus += cpus_of(chip, slices[i].template);
        if (slices[i].id >= id) id = slices[i].id + 1;
    }
    for (size_t i = 0; i < sizeof TEMPLATES / sizeof *TEMPLATES; i++) {
        if (strcmp(TEMPLATES[i].chip, chip) != 0 || strcmp(TEMPLATES[i].name, wanted->template_name) != 0) continue;
        if (cores + TEMPLATES[i].cores > total_cores(at) || cpus + TEMPLATES[i].cpus > total_cpus(at)) DONE(DCMI_INTERNAL);
        if (count == SLICES) DONE(DCMI_INTERNAL);
        struct slice *made = &slices[count++];
        *made = (struct slice){.card = card, .id = id, .cores = TEMPLATES[i].cores};
        made->mib = (int)card_number(at, "made_mib", TEMPLATES[i].mib);
        snprintf(made->template, sizeof made->template, "%s", TEMPLATES[i].name);
        out->vdev_id = (unsigned)id;
        DONE(slices_write(slices, count) ? DCMI_OK : DCMI_INTERNAL);
    }
    DONE(DCMI_BAD_ARGUMENT);
}

EXPORT int dcmi_set_destroy_vdevice(int card, int device, unsigned id) {
    (void)device;
    ON(card)
    answer = (int)card_number(at, "destroy", DCMI_OK);
    if (answer != DCMI_OK) DONE(answer);
    struct slice slices[SLICES];
    size_t count = slices_read(slices);
    for (size_t i = 0; i < count; i++) {
        if (slices[i].card != card || slices[i].id != (int)id) continue;
        if (slices[i].used) DONE(DCMI_BUSY);
        slices[i] = slices[--count];
        DONE(slices_write(slices, count) ? DCMI_OK : DCMI_INTERNAL);
    }
    DONE(DCMI_BAD_ARGUMENT);
}

EXPORT int dcmi_get_device_info(int card, int device, int main_command, unsigned command, void *buffer, unsigned *size) {
    (void)device;
    ON(card)
    if (main_command != DCMI_VDEV) DONE(DCMI_NOT_SUPPORTED);
    struct slice slices[SLICES];
    size_t count = slices_read(slices);
    if (command == DCMI_VDEV_TOTAL) {
        struct dcmi_soc_total_resource total = {.computing.aic = (float)total_cores(at)};
        for (size_t i = 0; i < count; i++)
            if (slices[i].card == card && total.vdev_num < 32) total.vdev_id[total.vdev_num++] = (unsigned)slices[i].id;
        if (*size < sizeof total) DONE(DCMI_BAD_ARGUMENT);
        memcpy(buffer, &total, sizeof total);
        DONE(DCMI_OK);
    }
    if (command != DCMI_VDEV_ONE || *size < sizeof(struct dcmi_vdev_query)) DONE(DCMI_NOT_SUPPORTED);
    struct dcmi_vdev_query *query = buffer;
    for (size_t i = 0; i < count; i++) {
        if (slices[i].card != card || slices[i].id != (int)query->vdev_id) continue;
        snprintf(query->info.name, sizeof query->info.name, "%.15s", slices[i].template);
        query->info.status = (unsigned)slices[i].used;
        query->info.is_container_used = (unsigned)slices[i].used;
        query->info.computing.aic = (float)slices[i].cores;
        query->info.computing.memory_size = (unsigned long long)slices[i].mib;
        DONE(DCMI_OK);
    }
    DONE(DCMI_DEVICE_ABSENT);
}
