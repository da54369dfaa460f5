#include "gate.h"

#include "../base/internal.h"

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
static int64_t pass_step(uint32_t passes) {
    int64_t step = EGPU_PASS_STEP_NS;
    for (uint32_t i = 1; i < passes && step < EGPU_PASS_MAX_NS; i++)
        step += step / 2;
    return step < EGPU_PASS_MAX_NS ? step : EGPU_PASS_MAX_NS;
}

static bool may_pass_overdue(const struct egpu_gate_in *in) {
    if (in->due_ns == 0 || in->now_ns < in->due_ns)
        return false;
    return in->passes == 0 || in->last_pass_ns > in->now_ns || in->now_ns - in->last_pass_ns >= pass_step(in->passes);
}

static bool fits_bound(const struct egpu_gate_in *in) {
    if (!in->unit_known && in->unknown >= EGPU_UNKNOWN_MOST)
        return false;
    if (in->bound_ns == 0 || in->in_flight == 0)
        return true;
    return in->unit_known && in->queued_ns <= in->bound_ns && in->unit_ns <= in->bound_ns - in->queued_ns;
}

struct egpu_gate_out egpu_gate(const struct egpu_gate_in *in) {
    if (in->suspended)
        return wait_until(EGPU_WAIT_SUSPEND, in, INT64_MAX);
    const bool paid = in->paid_ns <= in->now_ns, fits = fits_bound(in);
    if ((in->held || !paid || !fits) && may_pass_overdue(in))
        return (struct egpu_gate_out){.reason = EGPU_PASS_OVERDUE};
    if ((in->held || !paid || !fits) && in->signalled)
        return (struct egpu_gate_out){.reason = EGPU_PASS_SIGNAL};
    if (in->held) {
        if (in->floor_ppm == 0)
            return wait_until(EGPU_WAIT_HELD, in, INT64_MAX);
        int64_t begins = in->held_since_ns + in->floor_after_ns;
        if (begins < in->floor_paid_ns)
            begins = in->floor_paid_ns;
        if (in->now_ns < begins)
            return wait_until(EGPU_WAIT_HELD, in, begins);
        if (in->in_flight != 0)
            return wait_until(EGPU_WAIT_BOUND, in, INT64_MAX);
        if (paid)
            return (struct egpu_gate_out){.reason = EGPU_PASS_FLOOR};
    }
    if (!paid)
        return wait_until(EGPU_WAIT_SHARE, in, in->paid_ns);
    if (!fits)
        return wait_until(EGPU_WAIT_BOUND, in, INT64_MAX);
    return (struct egpu_gate_out){.reason = EGPU_PASS};
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
