/* What the fake CUDA driver's processes add to a card of the state file. */
#pragma once

#include "state.h"

/* `card` with their memory, utilisation and entries of the process list; NULL stays NULL. Good until the next call;
 * the caller holds the library's lock. Where no program ever used the fake driver it is `card` itself. */
const struct card *card_with_cuda(const struct card *card);

/* Bytes that the processes of a control group (fc_group_of) have of that card. The caller holds the library's lock. */
uint64_t used_in_group(const char *uuid, uint64_t group);
