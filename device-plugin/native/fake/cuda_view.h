/* What the fake CUDA driver's processes add to a card of the state file. */
#pragma once

#include "state.h"

/* `card` with their memory, utilisation and entries of the process list; NULL stays NULL. Good until the next call;
 * the caller holds the library's lock. Where no program ever used the fake driver it is `card` itself. */
const struct card *card_with_cuda(const struct card *card);
