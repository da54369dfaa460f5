/* Cards in virtual time, and as much of a driver as the compute side asks for.
 *
 * First in, first out: a unit's end is known when it is queued. In slices: the cards' clocks follow those who look,
 * programs take turns of 2 ms. Streams side by side: each is a queue of its own. Units that meet run beside all
 * others, and end when as many of them as want to have been launched. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

enum { LAUNCH_NS = 1500, RECORD_NS = 600, QUERY_NS = 250, SMALL_NS = 30, NOISE_PERCENT = 20, EVENT_STEP_NS = 500, PARTIES = 16 };
static const int64_t NOT_YET = INT64_MAX, SLICE_NS = 2000000;

struct unit {
    struct unit *next;
    int64_t enqueued, start, left;
    uint32_t number;
    int process;
};
static struct card {
    char uuid[48], bus[32];
    int64_t clock, slice_end;
    int current; /* process that has the slice */
    struct unit *first[MAX_PROCESSES], *last[MAX_PROCESSES];
} cards[MAX_CARDS];
static struct meeting { struct party { uint32_t unit; int64_t enqueued, length; } parties[PARTIES]; int arrived; } meetings[MAX_PROCESSES];
struct CUstream_st { int card; uint32_t last; int64_t free_at; };
struct CUevent_st { uint32_t unit; int64_t at; };

bool cards_in_slices, cards_side_by_side;
char kernel_that_meets;
static int64_t *ends; /* by number of the unit, from 1 */
static uint32_t units, units_room;
static struct stretch *stretches;
static size_t stretch_count, stretch_room;

void cards_name(int card, const char *uuid, const char *bus)
{
    snprintf(cards[card].uuid, sizeof cards[card].uuid, "%s", uuid);
    snprintf(cards[card].bus, sizeof cards[card].bus, "%s", bus);
}

void cards_save(FILE *file)
{
    fwrite(stretches, sizeof *stretches, stretch_count, file);
}

static void say_ran(int process, int card, int64_t enqueued, int64_t start, int64_t end)
{
    struct stretch *last = stretch_count ? &stretches[stretch_count - 1] : NULL;
    if (last && last->process == process && last->card == card && last->enqueued == enqueued && last->end == start) {
        last->end = end; /* somebody looked in the midst of it */
        return;
    }
    if (stretch_count == stretch_room)
        stretches = realloc(stretches, (stretch_room = stretch_room * 2 + 65536) * sizeof *stretches);
    stretches[stretch_count++] = (struct stretch){process, card, enqueued, start, end};
}

/* --- slices --------------------------------------------------------------------------------------- */

static bool has_work(const struct card *card, int process)
{
    return card->first[process] != NULL && card->first[process]->enqueued <= card->clock;
}

/* Who is next, from `after` on; -1: nobody has work by now. */
static int next_with_work(const struct card *card, int after)
{
    for (int i = 1; i <= MAX_PROCESSES; i++)
        if (has_work(card, (after + i) % MAX_PROCESSES))
            return (after + i) % MAX_PROCESSES;
    return -1;
}

static int64_t next_arrival(const struct card *card)
{
    int64_t next = NOT_YET;
    for (int i = 0; i < MAX_PROCESSES; i++)
        if (card->first[i] != NULL && card->first[i]->enqueued < next)
            next = card->first[i]->enqueued;
    return next;
}

static void run_unit(int index, int64_t until)
{
    struct card *card = &cards[index];
    struct unit *unit = card->first[card->current];
    int64_t end = card->clock + unit->left < until ? card->clock + unit->left : until;
    unit->left -= end - card->clock;
    say_ran(unit->process, index, unit->enqueued, card->clock, end);
    card->clock = end;
    if (unit->left != 0)
        return;
    ends[unit->number] = end;
    card->first[card->current] = unit->next;
    free(unit);
}

static void advance(int index, int64_t now)
{
    struct card *card = &cards[index];
    while (card->clock < now) {
        int other = next_with_work(card, card->current);
        if (other < 0) {
            int64_t next = next_arrival(card);
            if (next == NOT_YET) /* who looks may be ahead of who launches next: that is not in the card's past */
                return;
            card->clock = next < now ? next : now;
            card->slice_end = card->clock;
            continue;
        }
        if (!has_work(card, card->current) || card->clock >= card->slice_end) {
            card->current = other;
            card->slice_end = card->clock + SLICE_NS;
        }
        run_unit(index, card->slice_end < now ? card->slice_end : now);
    }
}

static int64_t next_change(int index)
{
    const struct card *card = &cards[index];
    const struct unit *unit = card->first[card->current];
    if (unit == NULL || card->clock >= card->slice_end)
        return card->clock + 20000;
    int64_t end = card->clock + unit->left;
    return end < card->slice_end ? end : card->slice_end;
}

/* --- units ---------------------------------------------------------------------------------------- */

static int64_t noisy(int64_t length)
{
    return length * (100 - NOISE_PERCENT) / 100 + (int64_t)dice((uint64_t)(length * 2 * NOISE_PERCENT / 100) + 1);
}

static void new_unit(CUstream stream)
{
    if (++units >= units_room)
        ends = realloc(ends, (units_room = units_room * 2 + 65536) * sizeof *ends);
    stream->last = units;
    ends[units] = NOT_YET;
}

/* One of `parties` of this program that run until all of them do, and so long together. */
static void enqueue_meeting(CUstream stream, int64_t length, int parties)
{
    struct process *process = task_process();
    struct meeting *meeting = &meetings[process->number];
    new_unit(stream);
    meeting->parties[meeting->arrived++] = (struct party){units, task_now(), noisy(length)};
    for (int i = 0; meeting->arrived == parties && i < parties; i++) {
        const struct party *one = &meeting->parties[i];
        ends[one->unit] = task_now() + one->length;
        say_ran(process->number, stream->card, one->enqueued, one->enqueued, ends[one->unit]);
    }
    meeting->arrived %= parties;
}

static void enqueue(CUstream stream, int64_t length)
{
    struct process *process = task_process();
    struct card *card = &cards[stream->card];
    int64_t now = task_now();
    length = noisy(length);
    new_unit(stream);
    if (cards_side_by_side) {
        int64_t begin = now > stream->free_at ? now : stream->free_at;
        stream->free_at = ends[units] = begin + length;
        say_ran(process->number, stream->card, now, begin, begin + length);
        return;
    }
    if (cards_in_slices) {
        struct unit *unit = malloc(sizeof *unit);
        *unit = (struct unit){.enqueued = now, .left = length, .number = units, .process = process->number};
        advance(stream->card, now);
        if (card->first[process->number] == NULL)
            card->first[process->number] = unit;
        else
            card->last[process->number]->next = unit;
        card->last[process->number] = unit;
        return;
    }
    int64_t start = now > card->clock ? now : card->clock;
    card->clock = ends[units] = start + length;
    say_ran(process->number, stream->card, now, start, card->clock);
}

static int64_t end_of(int card, uint32_t unit)
{
    if (unit == 0)
        return 0;
    if (cards_in_slices)
        advance(card, task_now());
    return ends[unit];
}

CUstream stream_new(struct process *process)
{
    CUstream stream = malloc(sizeof *stream);
    *stream = (struct CUstream_st){.card = process->card};
    return stream;
}

void stream_wait(CUstream stream)
{
    task_works(LAUNCH_NS);
    int64_t end;
    while ((end = end_of(stream->card, stream->last)) > task_now())
        task_waits_until(end == NOT_YET ? next_change(stream->card) : end);
    task_sleeps_until(task_now());
}

/* --- the driver ----------------------------------------------------------------------------------- */

static CUresult launch_kernel(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                              unsigned shared, CUstream stream, void **params, void **extra)
{
    (void)x, (void)y, (void)z, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
    task_works(LAUNCH_NS);
    if ((char *)f == &kernel_that_meets)
        enqueue_meeting(stream, *(int64_t *)params[0], *(int *)params[1]);
    else
        enqueue(stream, *(int64_t *)params[0]);
    return CUDA_SUCCESS;
}

static CUresult graph_launch(CUgraphExec exec, CUstream stream)
{
    task_works(4 * LAUNCH_NS);
    enqueue(stream, *(int64_t *)exec);
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *stream, unsigned flags)
{
    (void)flags;
    *stream = stream_new(task_process());
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof **event);
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    task_works(RECORD_NS);
    task_recorded();
    event->at = task_now();
    event->unit = end_of(stream->card, stream->last) > event->at ? stream->last : 0;
    return CUDA_SUCCESS;
}

/* When it was reached, if it was. An event's time has steps, as on a card. */
static int64_t reached(CUevent event)
{
    int64_t end = end_of(task_process()->card, event->unit);
    int64_t at = end > event->at ? end : event->at;
    return end > task_now() ? NOT_YET : at / EVENT_STEP_NS * EVENT_STEP_NS;
}

static CUresult event_query(CUevent event)
{
    task_works(QUERY_NS);
    return reached(event) == NOT_YET ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult event_elapsed(float *ms, CUevent from, CUevent to)
{
    task_works(QUERY_NS);
    if (reached(from) == NOT_YET || reached(to) == NOT_YET)
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(reached(to) - reached(from)) / 1e6);
    return CUDA_SUCCESS;
}

static CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult context_current(CUcontext *context)
{
    task_works(SMALL_NS);
    *context = task_contexts()->stack[0];
    return CUDA_SUCCESS;
}

static CUresult context_push(CUcontext context)
{
    struct contexts *all = task_contexts();
    task_works(SMALL_NS);
    memmove(&all->stack[1], &all->stack[0], sizeof all->stack - sizeof all->stack[0]);
    all->stack[0] = context;
    return CUDA_SUCCESS;
}

static CUresult context_pop(CUcontext *context)
{
    struct contexts *all = task_contexts();
    *context = all->stack[0];
    memmove(&all->stack[0], &all->stack[1], sizeof all->stack - sizeof all->stack[0]);
    return CUDA_SUCCESS;
}

static CUresult context_device(CUdevice *device)
{
    *device = task_process()->card;
    return CUDA_SUCCESS;
}

static CUresult device_bus(char *bus, int size, CUdevice device)
{
    snprintf(bus, (size_t)size, "%s", cards[device].bus);
    return CUDA_SUCCESS;
}

void *driver_function(const char *name)
{
    static const struct { const char *name; void *function; } all[] = {
        {"cuLaunchKernel", (void *)launch_kernel},     {"cuGraphLaunch", (void *)graph_launch},
        {"cuStreamCreate", (void *)stream_create},     {"cuEventCreate", (void *)event_create},
        {"cuEventRecord", (void *)event_record},       {"cuEventQuery", (void *)event_query},
        {"cuEventElapsedTime", (void *)event_elapsed}, {"cuStreamIsCapturing", (void *)stream_is_capturing},
        {"cuCtxGetCurrent", (void *)context_current},  {"cuCtxPushCurrent_v2", (void *)context_push},
        {"cuCtxPopCurrent_v2", (void *)context_pop},   {"cuCtxGetDevice", (void *)context_device},
        {"cuDeviceGetPCIBusId", (void *)device_bus},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].function;
    return NULL;
}
