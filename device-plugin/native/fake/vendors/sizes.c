/* Prints the size of each structure of the vendors' interfaces: `<name> <bytes>`. */
#include "dcmi.h"
#include "dmi.h"

#include <stdio.h>

#define SIZE(type) printf("%s %zu\n", #type, sizeof(struct type))

int main(void) {
    SIZE(dcmi_chip_info);
    SIZE(dcmi_chip_info_v2);
    SIZE(dcmi_pcie_info_all);
    SIZE(dcmi_die_id);
    SIZE(dcmi_board_info);
    SIZE(dcmi_ecc_info);
    SIZE(dcmi_hbm_info);
    SIZE(dcmi_memory_info_v3);
    SIZE(dcmi_proc_mem_info);
    SIZE(dcmi_create_vdev_res);
    SIZE(dcmi_create_vdev_out);
    SIZE(dcmi_vdev_query);
    SIZE(dcmi_soc_total_resource);
    SIZE(dcmi_soc_free_resource);
    SIZE(dcmi_spod_info);
    printf("dmiDeviceInfo %zu\n", sizeof(dmiDeviceInfo));
    printf("rsmi_process_info_t %zu\n", sizeof(rsmi_process_info_t));
    return 0;
}
