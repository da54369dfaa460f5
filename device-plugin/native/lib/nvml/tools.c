/* nvidia-smi of the drivers from 535 on asks no public function who runs on a card, but functions of a table without a
 * header: words of which the first is the table's size in bytes, the others functions. Drivers add to its end, so a
 * function keeps its place (seen with nvidia-smi 535.261.03, 550.163.01, 555.58.02; NVIDIA's k8s-test-infra finds the
 * lists at the same places in 580.65.06, with the same records). Programs get a copy with our lists in it. */
#include "view.h"

#include <stdlib.h>
#include <string.h>

enum { LISTS_AT = 213, LISTS = 3 /* compute, graphics, MPS */, NAME = 4096, ID = 16 };
enum { FIRST_DRIVER = 535098 /* before that, 535's public records were other ones */, LAST_DRIVER = 580999 };
enum { MOST_WORDS = 4096 }; /* of a table; it had 255 in 555.58.02 */

struct named_process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
    unsigned long long guarded;
    char name[NAME];
};
_Static_assert(sizeof(struct named_process) == 32 + NAME, "as NVML lays it out");

typedef nvmlReturn_t list_function(nvmlDevice_t device, unsigned *count, struct named_process *processes);
struct copy { const uintptr_t *source; uintptr_t words[]; };

static const unsigned char tools_id[ID] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                           0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
static _Atomic(struct copy *) newest; /* earlier ones stay: programs have them */

EGPU_EXPORT nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id);

/* Of a driver that is not among these the records may be others. */
static bool known_driver(void)
{
    const unsigned driver = egpu_nvml_driver();
    return driver >= FIRST_DRIVER && driver <= LAST_DRIVER;
}

static void name_of(unsigned pid, char *name)
{
    nvmlReturn_t (*read)(unsigned, char *, unsigned) =
        (nvmlReturn_t (*)(unsigned, char *, unsigned))(uintptr_t)egpu_nvml("nvmlSystemGetProcessName");
    if (!read || read(pid, name, NAME) != NVML_SUCCESS)
        *name = 0;
}

static nvmlReturn_t fill(int card, unsigned *count, struct named_process *processes)
{
    struct processes all;
    egpu_nvml_processes(card, &all);
    const unsigned room = *count;
    *count = (unsigned)all.count;
    for (unsigned i = 0; processes && i < all.count && i < room; i++) {
        struct named_process *to = &processes[i];
        *to = (struct named_process){.pid = all.pids[i], .bytes = all.bytes[i],
                                     .gpu_instance = (unsigned)NO_INSTANCE, .compute_instance = (unsigned)NO_INSTANCE};
        name_of(to->pid, to->name);
    }
    return all.count > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn_t list(unsigned which, nvmlDevice_t device, unsigned *count, struct named_process *processes)
{
    const struct copy *copy = atomic_load(&newest);
    const int card = count && known_driver() ? egpu_nvml_card(device) : EGPU_NO_LIMITS;
    if (card < 0)
        return ((list_function *)copy->source[LISTS_AT + which])(device, count, processes);
    if (which == 0)
        return fill(card, count, processes);
    *count = 0; /* none draws, none is behind an MPS server */
    return NVML_SUCCESS;
}

static nvmlReturn_t computing(nvmlDevice_t device, unsigned *count, struct named_process *processes)
{
    return list(0, device, count, processes);
}
static nvmlReturn_t drawing(nvmlDevice_t device, unsigned *count, struct named_process *processes)
{
    return list(1, device, count, processes);
}
static nvmlReturn_t together(nvmlDevice_t device, unsigned *count, struct named_process *processes)
{
    return list(2, device, count, processes);
}

/* NULL: no memory for one. */
static const uintptr_t *copy_of(const uintptr_t *source)
{
    struct copy *copy = atomic_load(&newest);
    if (copy && copy->source == source)
        return copy->words;
    copy = malloc(sizeof *copy + source[0]);
    if (!copy)
        return NULL;
    copy->source = source;
    memcpy(copy->words, source, source[0]);
    list_function *const ours[LISTS] = {computing, drawing, together};
    for (unsigned i = 0; i < LISTS; i++)
        copy->words[LISTS_AT + i] = (uintptr_t)ours[i];
    atomic_store(&newest, copy);
    return copy->words;
}

EGPU_EXPORT nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id)
{
    REAL(real, nvmlInternalGetExportTable);
    const nvmlReturn_t result = real(table, id);
    if (result != NVML_SUCCESS || !table || !*table || !id || memcmp(id, tools_id, ID) != 0)
        return result;
    const uintptr_t *source = *table;
    if (source[0] < (LISTS_AT + LISTS) * sizeof *source || source[0] > MOST_WORDS * sizeof *source)
        return result; /* an older one, without these lists; or none that we know */
    const uintptr_t *words = copy_of(source);
    if (words)
        *table = words;
    return result;
}
