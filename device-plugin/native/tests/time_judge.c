/* What the cards' timeline says: time_judge STATE FROM_NS TO_NS prints one line per process that ran anything on a card
 * then: pid card busy_ns busiest_second_ns longest_unit_ns units first_ns last_ns. With a card's number behind it, one line
 * per stretch of that card instead: pid enqueued_ns start_ns end_ns. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../fake/cuda/shared.h"

enum { PEOPLE = 256 };
static const uint64_t SECOND = 1000000000;

struct stretch { uint64_t start, end; };
struct person {
    uint32_t pid, card;
    uint64_t busy, worst, longest, units, first, last;
    struct stretch *list;
    size_t count, room;
};
static struct person people[PEOPLE];
static int people_count;

static struct person *person_of(uint32_t pid, uint32_t card) {
    for (int i = 0; i < people_count; i++)
        if (people[i].pid == pid && people[i].card == card)
            return &people[i];
    if (people_count == PEOPLE)
        exit(2);
    people[people_count] = (struct person){.pid = pid, .card = card};
    return &people[people_count++];
}

static int by_start(const void *a, const void *b) {
    const struct stretch *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Union of the stretches; and the sliding second with the most of it, tried at each start. */
static void judge(struct person *one) {
    qsort(one->list, one->count, sizeof *one->list, by_start);
    size_t kept = 0;
    for (size_t i = 0; i < one->count; i++) {
        if (kept != 0 && one->list[i].start <= one->list[kept - 1].end) {
            if (one->list[i].end > one->list[kept - 1].end)
                one->list[kept - 1].end = one->list[i].end;
        } else {
            one->list[kept++] = one->list[i];
        }
    }
    size_t in = 0;
    uint64_t whole = 0;
    for (size_t i = 0; i < kept; i++) {
        uint64_t window_end = one->list[i].start + SECOND;
        for (; in < kept && one->list[in].end <= window_end; in++)
            whole += one->list[in].end - one->list[in].start;
        uint64_t sum = whole;
        if (in < kept && one->list[in].start < window_end)
            sum += window_end - one->list[in].start;
        one->worst = sum > one->worst ? sum : one->worst;
        one->busy += one->list[i].end - one->list[i].start;
        if (in > i)
            whole -= one->list[i].end - one->list[i].start;
        else
            in = i + 1;
    }
}

int main(int count, char **values) {
    if (count != 4 && count != 5)
        return 2;
    int file = open(values[1], O_RDONLY);
    struct stat is;
    if (file < 0 || fstat(file, &is) != 0)
        return 2;
    const struct fc_shared *s = mmap(NULL, (size_t)is.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (s == MAP_FAILED || s->magic != FC_MAGIC)
        return 2;
    uint64_t from = strtoull(values[2], NULL, 10), to = strtoull(values[3], NULL, 10);
    const struct fc_stretch *log = (const struct fc_stretch *)((const char *)s + s->log_offset);
    uint64_t head = s->log_head, oldest = head > s->log_count - 1 ? head - s->log_count + 2 : 1;
    for (uint64_t i = oldest; i <= head; i++) {
        const struct fc_stretch *row = &log[i % s->log_count];
        if (row->index != i || row->kind >= FC_MARK || row->kind == FC_COPY_HOST || row->end <= from || row->start >= to)
            continue;
        if (count == 5) {
            if (row->card == strtoul(values[4], NULL, 10))
                printf("%" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", row->pid, row->enqueued, row->start, row->end);
            continue;
        }
        struct person *one = person_of(row->pid, row->card);
        if (one->count == one->room)
            one->list = realloc(one->list, (one->room = one->room * 2 + 1024) * sizeof *one->list);
        uint64_t start = row->start < from ? from : row->start, end = row->end > to ? to : row->end;
        one->list[one->count++] = (struct stretch){start, end};
        one->units += (row->flags & FC_LAST) != 0;
        one->longest = row->end - row->start > one->longest ? row->end - row->start : one->longest;
        if (one->first == 0 || start < one->first)
            one->first = start;
        one->last = end > one->last ? end : one->last;
    }
    for (int i = 0; i < people_count; i++) {
        struct person *one = &people[i];
        judge(one);
        printf("%" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", one->pid,
               one->card, one->busy, one->worst, one->longest, one->units, one->first, one->last);
    }
    return 0;
}
