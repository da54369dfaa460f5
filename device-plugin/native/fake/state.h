/* State behind the fake libnvidia-ml.so.1: a text file, named by FAKE_NVML_STATE (else
 * /run/fake-gpu/nvml.state), that tests edit while a program uses the library. It is read again whenever it changes.
 *
 * One `key=value` per line, `#` starts a comment line. Lines before the first `card=` describe the node:
 *
 *   driver=570.124.06      driver version
 *   cuda=12080             CUDA version, as NVML gives it (major * 1000 + minor * 10)
 *   error=9                every call fails with this nvmlReturn_t (9: driver not loaded)
 *
 * `card=<uuid>` begins a card; the lines after it belong to it:
 *
 *   name=NVIDIA H20        product name
 *   memory_mib=98304       total; used_mib= and reserved_mib= likewise
 *   memory_bytes=...       total in bytes, over memory_mib (for absurd values)
 *   pci=00000000:1A:00.0   bus id;  minor=0  device minor
 *   cores=9984 cc=9.0      CUDA cores, compute capability
 *   sm_mhz= mem_mhz= max_sm_mhz= max_mem_mhz=
 *   util= mem_util= enc_util= dec_util=      percent
 *   power_mw= energy_mj= temp_c= mem_temp_c=
 *   ecc=0 retired=0        uncorrected errors since boot; remapped rows by uncorrected errors
 *   remap_pending=0 remap_failure=0 recovery_action=0
 *   mig=0                  1: MIG mode on
 *   mig_slices=8           memory slices that MIG cuts it into: 8, or 4; without it the card cannot be cut
 *   instance=<gi>:<ci>:<profile>:<start>:<mib>:<uuid>   one MIG instance; repeated. The profile is NVML's number: 0 1g,
 *                          9 1g of double memory, 1 2g, 2 3g, 3 4g, 4 7g. With -1 as <ci> it has no compute instance.
 *                          The library writes and removes these lines itself when a program makes or destroys one
 *   make_error= make_ci_error= destroy_error=   what making an instance or its compute instance, and destroying one,
 *                          answers; make_hang_s= how long making one takes; made_mib= the memory of those made
 *   limits_error= limits_lost=   what setting a control group's memory limit answers (drivers from 615 on); 1: it
 *                          answers that all is well, and sets nothing
 *   fabric=2:0             state and status of its NVLink fabric (1: not started, 2: in progress, 3: completed);
 *                          without it the card has none
 *   compute_mode=0         3: exclusive process, 2: prohibited
 *   list_error=3           asked who runs on the card, the driver answers this nvmlReturn_t (999: unknown error)
 *   error=15               every call on this card fails with this nvmlReturn_t (15: GPU is lost)
 *   xid=<n>:<code>         the n-th XID of this card (n counts from 1); each new n is one event
 *   link=<peer bus id>     one NVLink to that card, or to a switch ("switch"); repeated for each link
 *   link_version=6         as nvmlDeviceGetNvLinkVersion tells it; without it that is not supported
 *   socket=0               the processor that the card hangs on
 *   process=<pid>:<used_mib>:<sm percent>     repeated; with :G behind it one that draws, with :CG one that does both;
 *                          behind that :<gi> for one on that MIG instance
 *
 * As with the real library, cards are counted when it is initialised: a card that joins the file later is
 * seen after the next nvmlInit, one that leaves it is "lost" at once. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_CARDS = 64, MAX_LINKS = 18, MAX_PROCESSES = 256, MAX_XIDS = 64, MAX_INSTANCES = 8, TEXT = 96 };
#define NO_CI 0xffffffffu

struct process {
    unsigned pid;
    unsigned long long used_mib;
    unsigned sm_percent;
    bool draws, only_draws;
    unsigned gi; /* of its MIG instance, one more than its id; else 0 */
};

struct instance {
    unsigned gi, ci, profile, start;
    unsigned long long memory_mib;
    char uuid[TEXT];
};

struct card {
    char uuid[TEXT], name[TEXT], pci[32];
    unsigned long long memory_bytes, used_mib, reserved_mib, ecc, energy_mj;
    unsigned minor, cores, cc_major, cc_minor, sm_mhz, mem_mhz, max_sm_mhz, max_mem_mhz;
    unsigned util, mem_util, enc_util, dec_util, power_mw, temp_c, mem_temp_c;
    unsigned retired, remap_pending, remap_failure, recovery_action, mig, mig_slices, compute_mode, error;
    unsigned make_error, make_ci_error, make_hang_s, made_mib, destroy_error;
    unsigned limits_error, limits_lost, list_error;
    unsigned link_version, socket;
    bool has_fabric;
    unsigned fabric_state, fabric_status;
    char links[MAX_LINKS][32];
    size_t link_count, process_count, xid_count;
    struct process processes[MAX_PROCESSES];
    size_t instance_count;
    struct instance instances[MAX_INSTANCES];
    struct { unsigned long long number; unsigned long long code; } xids[MAX_XIDS];
};

struct state {
    char driver[TEXT];
    unsigned cuda, error;
    size_t card_count;
    struct card cards[MAX_CARDS];
};

/* The present state, read again if the file changed; never NULL. A missing file is error 9. The caller
 * holds the library's lock. */
const struct state *state_now(void);

/* Card of that uuid in `state`, or NULL. */
const struct card *state_card(const struct state *state, const char *uuid);

/* Writes the instance `gi` of that card into the file as it is `now`, or takes it out: NULL. The caller holds the
 * library's lock. False: the file could not be written. */
bool state_put_instance(const char *uuid, unsigned gi, const struct instance *now);

/* Waits until the file may have changed, at most `timeout_ms`. True: it changed. No lock needed. */
bool state_wait(int timeout_ms);
