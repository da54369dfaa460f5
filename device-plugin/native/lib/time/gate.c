#include "gate.h"

#include "../base/internal.h"
#include "limiter.h"

static int64_t earliest(int64_t a, int64_t b) { return a < b ? a : b; }

static struct egpu_gate_out wait_until(enum egpu_reason reason, const struct egpu_gate_in *in, int64_t wake_ns) {
    int64_t latest = in->now_ns + EGPU_RECHECK_NS;
    if (in->due_ns != 0 && in->due_ns > in->now_ns)
        latest = earliest(latest, in->due_ns);
    if (wake_ns <= in->now_ns)
        wake_ns = in->now_ns + 1;
    return (struct egpu_gate_out){.reason = reason, .wake_ns = earliest(wake_ns, latest)};
}

/* How long after the last launch that was let through the next one is. */
static int64_t pass_step(int64_t given_ns, uint32_t passes) {
    int64_t step = given_ns / 8 > EGPU_PASS_STEP_NS ? given_ns / 8 : EGPU_PASS_STEP_NS;
    for (uint32_t i = 1; i < passes && step < EGPU_PASS_MAX_NS; i++)
        step += step / 2;
    return step < EGPU_PASS_MAX_NS ? step : EGPU_PASS_MAX_NS;
}

static bool may_pass_overdue(const struct egpu_gate_in *in) {
    if (in->due_ns == 0 || in->now_ns < in->due_ns)
        return false;
    if (in->passes_paid_ns > in->now_ns && in->passes_paid_ns - in->now_ns <= EGPU_PASS_FAR_NS)
        return false;
    return in->passes == 0 || in->last_pass_ns > in->now_ns || in->now_ns - in->last_pass_ns >= pass_step(in->given_ns, in->passes);
}

static bool fits_bound(const struct egpu_gate_in *in) {
    if (in->bound_ns == 0)
        return true;
    if (in->others_turn)
        return false;
    if (in->in_flight == 0 && !in->alone && in->beside_ns == 0)
        return true;
    if (in->alone || !in->unit_known || (in->window != 0 && in->in_flight >= in->window))
        return false;
    if (in->spare)
        return true;
    const uint64_t queued_ns = egpu_add(in->queued_ns, in->beside_ns);
    return queued_ns <= in->bound_ns && in->unit_ns <= in->bound_ns - queued_ns;
}

struct egpu_gate_out egpu_gate(const struct egpu_gate_in *in) {
    if (in->suspended)
        return wait_until(EGPU_WAIT_SUSPEND, in, INT64_MAX);

    bool paid = egpu_limiter_free(in->paid_ns, in->rate_ppm, in->now_ns + in->ahead_ns);
    bool full = in->second_ns != 0 && in->used_ns >= in->second_ns;
    bool fits = fits_bound(in);
    bool would_wait = in->held || !paid || full || !fits;
    if (would_wait && may_pass_overdue(in))
        return (struct egpu_gate_out){.reason = EGPU_PASS_OVERDUE};

    if (in->held) {
        if (in->floor_ppm == 0)
            return wait_until(EGPU_WAIT_HELD, in, INT64_MAX);
        int64_t begins = in->held_since_ns + in->floor_after_ns;
        if (begins < in->floor_paid_ns)
            begins = in->floor_paid_ns;
        if (in->now_ns < begins)
            return wait_until(EGPU_WAIT_HELD, in, begins);
        if (in->in_flight != 0 || in->beside_ns != 0 || in->others_turn)
            return wait_until(EGPU_WAIT_BOUND, in, INT64_MAX);
        if (paid && !full)
            return (struct egpu_gate_out){.reason = EGPU_PASS_FLOOR};
    }
    if (!paid)
        return wait_until(EGPU_WAIT_SHARE, in, in->paid_ns - in->ahead_ns);
    if (full) { /* a second loses no more than it goes on; but what is booked for it may turn out to be less */
        uint64_t over = in->used_ns - in->second_ns;
        return wait_until(EGPU_WAIT_SHARE, in, in->now_ns + (over < EGPU_SECOND_STEP_NS ? (int64_t)over + 1000 : EGPU_SECOND_STEP_NS));
    }
    if (!fits)
        return wait_until(EGPU_WAIT_BOUND, in, INT64_MAX);
    return (struct egpu_gate_out){.reason = EGPU_PASS};
}

uint32_t egpu_window(uint32_t window, uint32_t ended, uint64_t booked_ns, uint64_t length_ns) {
    if (length_ns / 2 > booked_ns && length_ns - booked_ns > EGPU_PAUSE_MIN_NS)
        return EGPU_WINDOW_LEAST; /* much longer than expected: one sees first how long they are now */
    uint32_t wider = window + ended;
    return wider < EGPU_WINDOW_LEAST ? EGPU_WINDOW_LEAST : wider > EGPU_WINDOW_MOST || wider < window ? EGPU_WINDOW_MOST : wider;
}

int64_t egpu_pass_paid(int64_t now_ns, uint64_t cost_ns, bool known, uint64_t rate_ppm, bool alone) {
    if (rate_ppm == EGPU_RATE_FREE || rate_ppm >= EGPU_RATE_WHOLE)
        return now_ns;
    const int64_t most = alone ? EGPU_PASS_MAX_NS : EGPU_PASS_FAR_NS;
    if (!known)
        cost_ns = EGPU_PASS_UNKNOWN_NS;
    if (cost_ns > EGPU_PASS_COST_NS)
        cost_ns = EGPU_PASS_COST_NS;
    const uint64_t wait = cost_ns * EGPU_RATE_WHOLE / rate_ppm;
    return now_ns + ((int64_t)wait < most ? (int64_t)wait : most);
}

int64_t egpu_overdue_at(int64_t begin_ns, uint64_t unit_ns, bool known) {
    if (!known)
        return begin_ns + EGPU_UNKNOWN_DUE_NS;
    if (unit_ns > INT64_MAX / 8)
        unit_ns = INT64_MAX / 8;
    return begin_ns + (int64_t)unit_ns * 2 + EGPU_OVERDUE_SLACK_NS;
}

static uint64_t pause_allowed(const struct egpu_pulse *pulse, uint64_t most_ns) {
    uint64_t pause = pulse->pause_ns > UINT64_MAX / 2 ? UINT64_MAX : pulse->pause_ns * 2;
    if (pause < EGPU_PAUSE_MIN_NS)
        pause = EGPU_PAUSE_MIN_NS;
    return pause < most_ns ? pause : most_ns;
}

void egpu_pulse_launch(struct egpu_pulse *pulse, int64_t now_ns, uint64_t most_ns) {
    if (!pulse->busy && pulse->ended_ns != 0 && !pulse->capped) {
        uint64_t pause = now_ns > pulse->ended_ns ? (uint64_t)(now_ns - pulse->ended_ns) : 0;
        if (pause <= most_ns)
            pulse->pause_ns = pulse->pause_ns - pulse->pause_ns / 4 + pause / 4;
        else /* it was no pause but the end of a piece of work: waiting for it would have been in vain */
            pulse->pause_ns -= pulse->pause_ns / 8;
    }
    pulse->busy = true;
    pulse->capped = false;
}

void egpu_pulse_ended(struct egpu_pulse *pulse, int64_t ended_ns) {
    pulse->busy = false;
    pulse->ended_ns = ended_ns;
}

void egpu_pulse_capped(struct egpu_pulse *pulse) { pulse->capped = true; }

int64_t egpu_pulse_until(const struct egpu_pulse *pulse, int64_t now_ns, uint64_t most_ns) {
    if (pulse->busy)
        return INT64_MAX;
    if (pulse->ended_ns == 0 || pulse->capped)
        return 0;
    int64_t until = pulse->ended_ns + (int64_t)pause_allowed(pulse, most_ns);
    return until > now_ns ? until : 0;
}
