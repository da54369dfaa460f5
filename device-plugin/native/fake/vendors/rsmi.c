/* A fake librocm_smi64.so, scripted by the file of FAKE_DCU_STATE (`script.h`). Keys of a card:
 *
 *   name=K100_AI  serial=…  unique=0x…  bus=0x33  memory_mib=65520  used_mib=0  util=0  temp_c=40  power_w=100
 *   render=128  ecc=0
 *   smi_error=2         every call on it answers so;  hang_s=60   every call on it sleeps first
 */
#define _GNU_SOURCE
#include "script.h"

#include <stdint.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))
#define STATE "FAKE_DCU_STATE"

static int on_card(uint32_t index, const struct scripted_card **found) {
    script_lock(STATE);
    const struct script *script = script_now(STATE);
    if (index >= script->card_count) return 1;
    *found = &script->cards[index];
    script_hang(*found);
    return (int)card_number(*found, "smi_error", 0);
}

#define ON(index) \
    const struct scripted_card *at = NULL; \
    int answer = on_card(index, &at); \
    if (answer != 0) { script_unlock(); return answer; }
#define GIVE(value) do { (value); script_unlock(); return 0; } while (0)

EXPORT int rsmi_init(uint64_t flags) {
    (void)flags;
    script_lock(STATE);
    int answer = (int)node_number(script_now(STATE), "init", 0);
    script_unlock();
    return answer;
}

EXPORT int rsmi_num_monitor_devices(uint32_t *count) {
    script_lock(STATE);
    GIVE(*count = (uint32_t)script_now(STATE)->card_count);
}

EXPORT int rsmi_dev_name_get(uint32_t index, char *name, size_t room) {
    ON(index)
    GIVE(snprintf(name, room, "%s", card_text(at, "name", "K100_AI")));
}

EXPORT int rsmi_dev_id_get(uint32_t index, uint16_t *id) {
    ON(index)
    GIVE(*id = (uint16_t)card_number(at, "device", 0x6210));
}

EXPORT int rsmi_dev_serial_number_get(uint32_t index, char *serial, uint32_t room) {
    ON(index)
    GIVE(snprintf(serial, room, "%s", card_text(at, "serial", "")));
}

EXPORT int rsmi_dev_unique_id_get(uint32_t index, uint64_t *id) {
    ON(index)
    GIVE(*id = (uint64_t)card_number(at, "unique", 0));
}

EXPORT int rsmi_dev_pci_id_get(uint32_t index, uint64_t *bdf) {
    ON(index)
    GIVE(*bdf = (uint64_t)card_number(at, "bus", 0x30 + index) << 8);
}

EXPORT int rsmi_dev_memory_total_get(uint32_t index, int type, uint64_t *bytes) {
    (void)type;
    ON(index)
    GIVE(*bytes = (uint64_t)card_number(at, "memory_mib", 65520) << 20);
}

EXPORT int rsmi_dev_memory_usage_get(uint32_t index, int type, uint64_t *bytes) {
    (void)type;
    ON(index)
    GIVE(*bytes = (uint64_t)card_number(at, "used_mib", 0) << 20);
}

EXPORT int rsmi_dev_busy_percent_get(uint32_t index, uint32_t *percent) {
    ON(index)
    GIVE(*percent = (uint32_t)card_number(at, "util", 0));
}

EXPORT int rsmi_dev_temp_metric_get(uint32_t index, uint32_t sensor, int metric, int64_t *thousandths) {
    (void)sensor, (void)metric;
    ON(index)
    GIVE(*thousandths = card_number(at, "temp_c", 40) * 1000);
}

EXPORT int rsmi_dev_power_ave_get(uint32_t index, uint32_t sensor, uint64_t *microwatts) {
    (void)sensor;
    ON(index)
    GIVE(*microwatts = (uint64_t)card_number(at, "power_w", 100) * 1000000);
}

EXPORT int rsmi_dev_drm_render_minor_get(uint32_t index, uint32_t *minor) {
    ON(index)
    GIVE(*minor = (uint32_t)card_number(at, "render", 128 + index));
}
