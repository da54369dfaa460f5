/* Properties of the limiter and the gate under random steps: properties_time [STEPS [SEED]]. Exit status 1 and one
 * line for the first that does not hold. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../abi/activity.h"
#include "../abi/control.h"
#include "../lib/activity/activity.h"
#include "../lib/time/gate.h"
#include "../lib/time/limiter.h"
#include "../lib/time/settle.h"

enum { MS = 1000 * 1000, LOG = 1 << 16 };
static const int64_t SECOND = 1000 * MS;

static uint64_t seed;
static uint64_t dice(uint64_t sides) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed % sides;
}
static long step;
#define HOLDS(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            printf("step %ld, line %d: not so: %s\n", step, __LINE__, #condition);   \
            exit(1);                                                                 \
        }                                                                            \
    } while (0)

/* What passed in the last second, kept the dumb way: a list. */
static struct { int64_t at, cost; } passed[LOG];
static long first, last;
static int64_t sum;

static int64_t in_last_second(int64_t now_ns) {
    while (first < last && passed[first % LOG].at <= now_ns - SECOND)
        sum -= passed[first++ % LOG].cost;
    return sum;
}

/* Random asks against a cap that never changes: no second above the share and one unit; a unit that waits is told
 * when to come; who comes late by less than the burst loses nothing. */
static void share_keeps_its_second(long steps) {
    static const int64_t lengths[] = {5000, 50 * 1000, MS, 20 * MS, 30 * MS};
    while (step < steps) {
        uint32_t percent = 1 + (uint32_t)dice(99);
        struct egpu_share share = {.policy = EGPU_CORES_HARD, .cores_percent = percent};
        uint64_t rate = egpu_limiter_rate(&share);
        HOLDS(rate > 0 && rate <= percent * 10000 && rate >= percent * 9800);
        share.seconds_kept = true; /* there the second itself is looked at, and the rate gives more of the share */
        HOLDS(egpu_limiter_rate(&share) >= rate && egpu_limiter_rate(&share) <= percent * 10000);
        int64_t now = SECOND * (int64_t)dice(1000000), paid = (int64_t)dice(2) * now, began = now, used = 0;
        bool always = true;
        int64_t biggest = 0;
        first = last = 0, sum = 0;
        for (int i = 0; i < 5000; i++, step++) {
            int64_t cost = (int64_t)(lengths[dice(5)] * (80 + dice(41)) / 100);
            int64_t guess = cost * (int64_t)(50 + dice(101)) / 100;
            struct egpu_turn turn = egpu_limiter_ask(paid, rate, now, (uint64_t)guess);
            if (!turn.pass) {
                HOLDS(turn.wake_ns > now && turn.paid_ns == paid);
                HOLDS(!egpu_limiter_ask(paid, rate, turn.wake_ns - 1, 1).pass);
                now = turn.wake_ns + (int64_t)dice(EGPU_BURST_NS);
                HOLDS(egpu_limiter_ask(paid, rate, now, 1).pass);
                turn = egpu_limiter_ask(paid, rate, now, (uint64_t)guess);
            }
            paid = egpu_limiter_correct(turn.paid_ns, rate, (uint64_t)guess, (uint64_t)cost);
            biggest = cost > biggest ? cost : biggest;
            in_last_second(now);
            passed[last++ % LOG] = (__typeof__(passed[0])){now, cost};
            sum += cost, used += cost;
            HOLDS(in_last_second(now) <= percent * (SECOND / 100) + biggest);
            if (dice(500) == 0)
                now += (int64_t)dice((uint64_t)SECOND), always = false;
        }
        int64_t took = paid > now ? paid - began : now - began;
        if (always) /* it asked all the time and got its share */
            HOLDS(used >= (int64_t)((__int128)took * percent / 100) * 975 / 1000 - biggest - EGPU_BURST_NS);
    }
}

static uint64_t wild(void) { /* numbers of all sizes, and those at the edges */
    switch (dice(4)) {
    case 0: return dice(3);
    case 1: return UINT64_MAX - dice(3);
    case 2: return (uint64_t)INT64_MAX + dice(3) - 1;
    default: return dice(UINT64_MAX) >> dice(64);
    }
}

/* Whatever stands in the page, the answers stay in range: a wait ends, a debt is not forgotten by overflow. */
static void limiter_survives_anything(void) {
    int64_t now = (int64_t)dice(INT64_MAX / 16);
    struct egpu_share share = {.policy = (uint32_t)dice(4), .cores_percent = (uint32_t)wild(), .weight = (uint32_t)wild(),
                               .others_soft = (uint32_t)dice(12800), .others_wanting = (uint32_t)dice(3),
                               .seconds_kept = dice(2) != 0, .others_hard_ppm = wild()};
    uint64_t rate = egpu_limiter_rate(&share);
    HOLDS(rate < EGPU_RATE_WHOLE);
    HOLDS(share.policy != EGPU_CORES_HARD || share.cores_percent >= 100 || rate != EGPU_RATE_FREE);
    int64_t paid = (int64_t)wild();
    uint64_t cost = wild();
    int64_t after = egpu_limiter_charge(paid, rate, now, cost);
    HOLDS(after >= now - EGPU_BURST_NS);
    HOLDS(rate == EGPU_RATE_FREE || cost < 1000 || after > now - EGPU_BURST_NS);
    struct egpu_turn turn = egpu_limiter_ask(paid, rate, now, cost);
    HOLDS(turn.pass ? turn.paid_ns == after : turn.wake_ns > now);
    egpu_limiter_correct(paid, rate, cost, wild());
    uint64_t other = 1 + dice(EGPU_RATE_WHOLE);
    if (rate != EGPU_RATE_FREE) {
        int64_t owed = now + (int64_t)dice(100 * (uint64_t)SECOND);
        int64_t there = egpu_limiter_rescale(owed, rate, other, now);
        int64_t back = egpu_limiter_rescale(there, other, rate, now);
        HOLDS(there >= now && (other >= rate ? there <= owed + 1 : there >= owed - (int64_t)(EGPU_RATE_WHOLE / rate)));
        HOLDS(back <= owed && owed - back <= 2 * (int64_t)(EGPU_RATE_WHOLE / rate + EGPU_RATE_WHOLE));
        int64_t begins = egpu_limiter_rescale(paid, EGPU_RATE_FREE, rate, now); /* neither debt nor much credit */
        HOLDS(begins <= now && begins >= now - EGPU_BURST_NS && (paid > now || begins >= paid));
    }
}

/* Each answer of the gate against the rules, said once more in the order of their strength. */
static void gate_keeps_its_rules(void) {
    int64_t now = SECOND + (int64_t)dice(1000 * (uint64_t)SECOND);
    bool flying = dice(2);
    struct egpu_gate_in in = {
        .now_ns = now, .suspended = dice(20) == 0, .held = dice(3) == 0,
        .held_since_ns = now - (int64_t)dice(20 * (uint64_t)SECOND), .floor_ppm = dice(2) * 50000,
        .floor_after_ns = (int64_t)dice(10 * (uint64_t)SECOND), .floor_paid_ns = now - 50 * MS + (int64_t)dice(100 * MS),
        .rate_ppm = dice(2) * dice(EGPU_RATE_WHOLE), .paid_ns = now - 10 * MS + (int64_t)dice(20 * MS),
        .bound_ns = dice(3) == 0 ? 0 : dice(5 * MS), .queued_ns = flying ? dice(6 * MS) : 0,
        .in_flight = flying ? 1 + (uint32_t)dice(9) : 0, .alone = flying && dice(4) == 0, .unit_ns = dice(4 * MS),
        .unit_known = dice(4) != 0, .due_ns = flying ? now - 5 * MS + (int64_t)dice(10 * MS) : 0,
        .given_ns = (int64_t)dice(100 * MS),
        .last_pass_ns = now - (int64_t)dice(200 * MS), .passes = (uint32_t)dice(12),
        .passes_paid_ns = dice(2) ? 0 : now - MS + (int64_t)dice(dice(2) ? 2 * MS : 5 * (uint64_t)SECOND),
        .second_ns = dice(2) * dice(SECOND), .used_ns = dice(SECOND), .spare = flying && dice(4) == 0,
        .beside_ns = dice(3) * dice(MS), .others_turn = dice(5) == 0};
    struct egpu_gate_out out = egpu_gate(&in);
    bool broke = !in.unit_known || in.alone || in.queued_ns + in.beside_ns + in.unit_ns > in.bound_ns;
    bool any = in.in_flight != 0 || in.beside_ns != 0;
    bool crowded = in.bound_ns != 0 && ((any && broke && !(in.spare && in.unit_known && !in.alone)) || in.others_turn);
    bool full = in.second_ns != 0 && in.used_ns >= in.second_ns;
    bool unpaid = full || (in.rate_ppm != 0 && in.paid_ns > now);
    bool passes_owed = in.passes_paid_ns > now && in.passes_paid_ns <= now + EGPU_PASS_FAR_NS;
    switch (out.reason) {
    case EGPU_PASS: HOLDS(!in.suspended && !in.held && !unpaid && !crowded); break;
    case EGPU_PASS_OVERDUE:
        HOLDS(!in.suspended && in.due_ns && in.due_ns <= now && (in.held || unpaid || crowded) && !passes_owed);
        break;
    case EGPU_PASS_FLOOR:
        HOLDS(in.held && in.floor_ppm && now >= in.held_since_ns + in.floor_after_ns && now >= in.floor_paid_ns);
        HOLDS(!any && !in.others_turn && !unpaid && !in.suspended);
        break;
    case EGPU_WAIT_SUSPEND: HOLDS(in.suspended); break;
    case EGPU_WAIT_HELD: HOLDS(in.held); break;
    case EGPU_WAIT_SHARE: HOLDS(unpaid); break;
    case EGPU_WAIT_BOUND: HOLDS(in.held ? any || in.others_turn : crowded); break;
    }
    if (!egpu_passes(out.reason)) {
        HOLDS(out.wake_ns > now && out.wake_ns <= now + EGPU_RECHECK_NS);
        HOLDS(in.due_ns <= now || out.wake_ns <= in.due_ns); /* it is awake when a unit becomes overdue */
        if (!in.suspended && flying) { /* a unit that never ends by itself lets the next one through at last */
            int64_t asked = now > in.due_ns ? now : in.due_ns;
            if (in.passes_paid_ns > asked && in.passes_paid_ns <= asked + EGPU_PASS_FAR_NS + 3 * EGPU_PASS_MAX_NS)
                asked = in.passes_paid_ns;
            for (int k = 0; k < 3; k++, asked += EGPU_PASS_MAX_NS) {
                in.now_ns = asked;
                if (egpu_passes(egpu_gate(&in).reason))
                    return;
            }
            HOLDS(!"an overdue unit lets the next launch through");
        }
    }
}

/* A page as anybody may have filled it, and what is booked on it: no sum goes out of range, and over a fresh page the
 * last second is as long as what was booked in it, but for what the span at its edge may hold. */
static void seconds_add_up(void) {
    static struct egpu_second second, wilds;
    static int64_t end, booked[1024], ends[1024];
    static uint32_t next;
    uint64_t length = 16 * dice(dice(2) ? 3000 : 2000 * 1000);
    end += (int64_t)(length + dice(20 * MS));
    egpu_second_book(&second, end, length, false);
    if (length > 1600 && dice(4) == 0) { /* it was less */
        uint64_t less = dice(length / 16) * 16;
        egpu_second_book(&second, end - (int64_t)(length - less), less, true);
        length -= less;
    }
    booked[next % 1024] = (int64_t)length, ends[next++ % 1024] = end;
    int64_t sum = 0, edge = 40 * MS;
    for (uint32_t i = 0; i < 1024 && i < next; i++)
        if (ends[i] > end - SECOND)
            sum += booked[i];
    int64_t used = (int64_t)egpu_second_used(&second, end);
    HOLDS(used <= sum + edge);
    HOLDS(used + edge >= sum);
    for (int i = 0; i < EGPU_ACTIVITY_SPANS; i++)
        wilds.spans[i] = (uint32_t)wild();
    egpu_second_book(&wilds, (int64_t)wild(), wild(), dice(2));
    HOLDS(egpu_second_used(&wilds, (int64_t)(wild() >> 1)) <= 2 * (uint64_t)SECOND);
    int64_t now = (int64_t)dice(INT64_MAX / 4);
    uint64_t rate = dice(EGPU_RATE_WHOLE + 1), cost = wild();
    int64_t paid = egpu_pass_paid(now, cost, dice(2), rate, dice(2));
    HOLDS(paid >= now && paid <= now + EGPU_PASS_FAR_NS);
}

/* Units that are let through as long as the second that ends with them has room, by a guess of their length: no second
 * holds more than the cap and one unit, and whoever may not go would have been beyond it. */
static void seconds_ahead_keep_the_cap(long steps) {
    const int64_t edge = 40 * MS;
    for (long done = 0; done < steps; done += 200) {
        struct egpu_second second = {0};
        const int64_t cap = SECOND / 100 * (int64_t)(1 + dice(99)), length = MS + (int64_t)dice(200 * MS);
        int64_t now = SECOND * (int64_t)(1 + dice(1000)), sum = 0, longest = 0;
        first = last = 0;
        for (int i = 0; i < 200; i++, step++) {
            const int64_t cost = length * (int64_t)(50 + dice(101)) / 100, guess = length * (int64_t)(50 + dice(101)) / 100;
            uint64_t besides = egpu_second_besides(&second, now, 0, (uint64_t)guess);
            HOLDS(besides <= egpu_second_used(&second, now));
            if (besides >= (uint64_t)cap) {
                HOLDS(egpu_second_used(&second, now + guess) >= (uint64_t)cap);
                now += MS / 2;
                continue;
            }
            longest = cost > longest ? cost : longest;
            longest = guess > longest ? guess : longest;
            now += cost;
            egpu_second_book(&second, now, (uint64_t)cost, false);
            passed[last++ % LOG] = (__typeof__(passed[0])){now, cost};
            for (sum += cost; first < last && passed[first % LOG].at <= now - SECOND;)
                sum -= passed[first++ % LOG].cost;
            int64_t cut = first < last ? now - SECOND - (passed[first % LOG].at - passed[first % LOG].cost) : 0;
            HOLDS(sum - (cut > 0 ? cut : 0) <= cap + longest + edge);
            if (dice(4) == 0) /* others are on the card */
                now += (int64_t)dice(100 * MS);
        }
    }
    struct egpu_second wilds; /* whatever stands in the page, and whatever is asked */
    for (int i = 0; i < EGPU_ACTIVITY_SPANS; i++)
        wilds.spans[i] = (uint32_t)wild();
    const uint64_t queued = wild();
    HOLDS(egpu_second_besides(&wilds, (int64_t)(wild() >> 1), queued, wild()) >= queued);
}

static void pulse_is_short_and_claims_run_out(void) {
    static struct egpu_pulse pulse;
    static int64_t now = 1;
    uint64_t most = 50 * 1000 + dice(5 * MS);
    now += (int64_t)dice(dice(2) ? 100 * 1000 : 10 * MS);
    switch (dice(3)) {
    case 0: egpu_pulse_launch(&pulse, now, most); break;
    case 1: egpu_pulse_ended(&pulse, now); break;
    default: if (!pulse.busy) egpu_pulse_capped(&pulse);
    }
    int64_t until = egpu_pulse_until(&pulse, now, most);
    HOLDS((until == INT64_MAX) == pulse.busy);
    HOLDS(pulse.busy || until == 0 || (until > now && until <= pulse.ended_ns + (int64_t)most && !pulse.capped));

    struct egpu_claim claim = {(uint32_t)dice(4), wild(), wild()};
    uint64_t lease = dice(SECOND), hang = dice(60 * (uint64_t)SECOND);
    if (egpu_claim_holds(&claim, now, lease, hang)) {
        HOLDS(claim.word & EGPU_WORD_ACTIVE);
        HOLDS(!egpu_claim_holds(&claim, now + 2 * (int64_t)lease + 1, lease, hang)); /* without a beat it runs out */
        claim.beat_ns = (uint64_t)now + hang + lease + lease; /* and with one, without progress */
        HOLDS(!egpu_claim_holds(&claim, now + (int64_t)hang + (int64_t)lease + 1, lease, hang));
    }
}

/* What all of them are given adds up to the time in which anybody had work, whatever the looks were. */
static void even_parts_add_up(void) {
    struct egpu_sample looks[16];
    uint32_t size = (uint32_t)dice(16), most = 0;
    int64_t at = (int64_t)dice(MS), begin = (int64_t)dice(8 * MS), end = begin + (int64_t)dice(20 * MS);
    for (uint32_t i = 0; i < size; i++) {
        at += (int64_t)dice(2 * MS);
        looks[i] = (struct egpu_sample){at, (uint32_t)dice(4)};
        most = looks[i].others > most ? looks[i].others : most;
    }
    uint64_t stay = (uint64_t)(end - begin), part = egpu_even_part(looks, size, begin, end);
    HOLDS(part <= stay);
    HOLDS(part + size >= stay / (most + 1)); /* each look may round one down */
    HOLDS(most != 0 || part == stay);
    int64_t cut = begin + (end > begin ? (int64_t)dice(stay) : 0);
    uint64_t sum = egpu_even_part(looks, size, begin, cut) + egpu_even_part(looks, size, cut, end);
    HOLDS(sum <= part && sum + size >= part);
    for (uint32_t i = 0; i < size; i++)
        looks[i].others = 3;
    part = egpu_even_part(looks, size, begin, end);
    HOLDS(size == 0 || (part <= stay / 4 && part + size >= stay / 4));
}

/* Whatever neighbours say of when the card took turns: no moment of the future is believed, and none is forgotten. */
static void turns_are_of_the_past(void) {
    const int64_t now = (int64_t)dice(1000 * (uint64_t)SECOND), sure = (int64_t)dice((uint64_t)now + 1);
    struct egpu_slices seen = {.at_ns = sure + (int64_t)dice((uint64_t)(now - sure) + 1), .sure_ns = sure};
    const struct egpu_slices before = seen;
    egpu_slices_hear(&seen, wild(), now);
    HOLDS(seen.at_ns <= now && seen.sure_ns <= seen.at_ns);
    HOLDS(seen.at_ns >= before.at_ns && seen.sure_ns >= before.sure_ns);
    egpu_slices_hear(&seen, (uint64_t)now, now);
    HOLDS(seen.at_ns == now && seen.sure_ns == now);
    struct egpu_unit unit = {.end_ns = now, .even_ns = wild(), .booked_ns = wild(), .sliced = dice(2)};
    seen.guesses = (uint32_t)dice(20);
    const uint64_t length = wild(), paid = egpu_charged(&seen, &unit, length);
    HOLDS(paid >= length && (paid == length || (paid == unit.even_ns && !egpu_slices_told(&seen, &unit))));
}

/* Units of several streams, each behind the one before it on its own, in the order of their ends: with the time since the
 * last end and what is added to it they have each moment once in which any of them ran, and where not all begins are
 * known, none twice. */
static void stretches_count_each_moment_once(void) {
    enum { STREAMS = 3, TIME = 4000 };
    static bool ran[TIME];
    struct egpu_stretches all = {0};
    int64_t busy_until[STREAMS] = {0}, launched[STREAMS], begins[STREAMS], last = 0;
    const bool some_unknown = dice(2) != 0;
    uint64_t counted = 0, true_sum = 0;
    memset(ran, 0, sizeof ran);
    for (int i = 0; i < STREAMS; i++) {
        launched[i] = 1 + (int64_t)dice(50), begins[i] = launched[i];
        busy_until[i] = begins[i] + 1 + (int64_t)dice(i == 0 ? 900 : 60);
    }
    for (;;) {
        int next = 0;
        for (int i = 1; i < STREAMS; i++)
            next = busy_until[i] < busy_until[next] ? i : next;
        const int64_t begin = begins[next], end = busy_until[next];
        if (end >= TIME)
            break;
        for (int64_t at = begin; at < end; at++)
            ran[at] = true;
        bool overtaken;
        const bool known = !some_unknown || dice(2);
        const uint64_t more = egpu_stretches_add(&all, launched[next], known ? begin : 0, end, &overtaken);
        HOLDS(known || more == 0);
        const int64_t from = known ? begin : launched[next];
        counted += (uint64_t)(end - (from > last ? from : last)) + more;
        last = end;
        launched[next] = end - (int64_t)dice(20), begins[next] = end + (int64_t)dice(30);
        launched[next] = launched[next] > begins[next] ? begins[next] : launched[next];
        if (some_unknown)
            launched[next] = begins[next]; /* where nobody knows better, that is when it began */
        busy_until[next] = begins[next] + 1 + (int64_t)dice(next == 0 ? 900 : 60);
    }
    for (int at = 0; at < TIME; at++)
        true_sum += ran[at];
    HOLDS(some_unknown ? counted <= true_sum : counted == true_sum);
}

int main(int count, char **values) {
    long steps = count > 1 ? atol(values[1]) : 100000;
    seed = count > 2 ? strtoull(values[2], NULL, 0) : 88172645463325252u;
    share_keeps_its_second(steps);
    step = 0;
    seconds_ahead_keep_the_cap(steps);
    for (step = 0; step < steps; step++) {
        limiter_survives_anything();
        gate_keeps_its_rules();
        seconds_add_up();
        pulse_is_short_and_claims_run_out();
        even_parts_add_up();
        turns_are_of_the_past();
        if (step % 50 == 0)
            stretches_count_each_moment_once();
    }
    printf("%ld steps\n", steps);
    return 0;
}
