"""JAX's allocator against the cap: `jax_memory.py`. One line of JSON: what it saw."""

import json
import os

import jax
import numpy as np

PIECE = 64 << 20

if os.environ.get("VC_EGPU_GPU_ON_FAKE") == "1":  # JAX looks for /dev/nvidia0 before it asks the driver
    from jax._src import hardware_utils

    hardware_utils.has_visible_nvidia_gpu = lambda: True


def main() -> None:
    """Puts arrays onto the card until there is no room."""
    card = jax.devices()[0]
    held = []
    said = {"error": ""}
    while not said["error"]:
        try:
            held.append(jax.device_put(np.zeros(PIECE, np.uint8), card).block_until_ready())
        except jax.errors.JaxRuntimeError as error:
            said["error"] = str(error).partition(":")[0]
    stats = card.memory_stats()
    print(json.dumps(said | {"held_mib": len(held) * PIECE >> 20, "limit_mib": stats["bytes_limit"] >> 20}))


if __name__ == "__main__":
    main()
