/* The part of Ascend's management interface (libdcmi.so) that the agent calls. Fields and sizes follow the
 * vendor's public header; `sizes.c` prints them. */
#pragma once

#include <stdint.h>

enum {
    DCMI_OK = 0, DCMI_BAD_ARGUMENT = -8001, DCMI_NOT_PERMITTED = -8002, DCMI_INTERNAL = -8005,
    DCMI_DEVICE_ABSENT = -8008, DCMI_NOT_READY = -8012, DCMI_BUSY = -8020, DCMI_NOT_SUPPORTED = -8255,
};
enum { DCMI_VDEV = 52, DCMI_VDEV_ONE = 0, DCMI_VDEV_TOTAL = 1, DCMI_VDEV_FREE = 2 };

struct dcmi_chip_info { unsigned char chip_type[32], chip_name[32], chip_ver[32]; unsigned aicore_cnt; };
struct dcmi_chip_info_v2 { unsigned char chip_type[32], chip_name[32], chip_ver[32]; unsigned aicore_cnt; unsigned char npu_name[32]; };
struct dcmi_pcie_info_all {
    unsigned vendor, subvendor, device, subdevice;
    int domain;
    unsigned bus, slot, function;
    unsigned char reserve[32];
};
struct dcmi_die_id { unsigned soc_die[5]; };
struct dcmi_board_info { unsigned board_id, pcb_id, bom_id, slot_id; };
struct dcmi_ecc_info {
    int enable_flag;
    unsigned single_bit, double_bit, total_single_bit, total_double_bit, single_bit_isolated,
        double_bit_isolated, single_bit_next, double_bit_next;
};
struct dcmi_hbm_info { unsigned long long memory_size; unsigned freq; unsigned long long memory_usage; int temp; unsigned bandwidth; };
struct dcmi_memory_info_v3 {
    unsigned long long memory_size, memory_available;
    unsigned freq;
    unsigned long hugepagesize, hugepages_total, hugepages_free;
    unsigned utiliza;
    unsigned char reserve[60];
};
struct dcmi_proc_mem_info { int proc_id; unsigned long proc_mem_usage; };

struct dcmi_create_vdev_res { unsigned vdev_id, vfg_id; char template_name[32]; unsigned char reserved[64]; };
struct dcmi_create_vdev_out { unsigned vdev_id, pcie_bus, pcie_device, pcie_func, vfg_id; unsigned char reserved[32]; };
struct dcmi_base_resource { unsigned long long token, token_max, task_timeout; unsigned vfg_id; unsigned char vip_mode, reserved[31]; };
struct dcmi_computing_resource {
    float aic, aiv;
    unsigned short dsa, rtsq, acsq, cdqm, c_core, ffts, sdma, pcie_dma;
    unsigned long long memory_size;
    unsigned event_id, notify_id, stream_id, model_id;
    unsigned short topic_schedule_aicpu, host_ctrl_cpu, host_aicpu, device_aicpu, topic_ctrl_cpu_slot;
    unsigned char reserved[32];
};
struct dcmi_media_resource { float jpegd, jpege, vpc, vdec, pngd, venc; unsigned char reserved[32]; };
struct dcmi_vdev_query_info {
    char name[16];
    unsigned status, is_container_used, vfid, vfg_id;
    unsigned long container_id;
    struct dcmi_base_resource base;
    struct dcmi_computing_resource computing;
    struct dcmi_media_resource media;
};
struct dcmi_vdev_query { unsigned vdev_id; struct dcmi_vdev_query_info info; };
struct dcmi_soc_total_resource {
    unsigned vdev_num, vdev_id[32], vfg_num, vfg_bitmap;
    struct dcmi_base_resource base;
    struct dcmi_computing_resource computing;
    struct dcmi_media_resource media;
};
struct dcmi_soc_free_resource {
    unsigned vfg_num, vfg_bitmap;
    struct dcmi_base_resource base;
    struct dcmi_computing_resource computing;
    struct dcmi_media_resource media;
};
struct dcmi_spod_info { unsigned sdid, scale_type, super_pod_id, server_id, reserve[8]; };
