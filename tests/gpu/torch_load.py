"""What a model does to a card: `torch_load.py train|serve SECONDS`. One line of JSON at the end."""

import json
import os
import sys
import time

import torch

ON_FAKE = os.environ.get("VC_EGPU_GPU_ON_FAKE") == "1"


class Scale(torch.nn.Module):  # type: ignore[misc]  # torch is in no lock file
    """For the fake driver, on which NVIDIA's libraries for matrices do not run."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Each column by a factor of its own."""
        return batch * self.weight


def main() -> None:
    """Waits for a line on stdin before it begins."""
    mode, seconds = sys.argv[1], float(sys.argv[2])
    width = 4096 if mode == "train" else 1024
    layer = Scale(width) if ON_FAKE else torch.nn.Linear(width, width)
    layers = [layer, torch.nn.ReLU()] * 4
    model = torch.nn.Sequential(*layers).cuda()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(256 if mode == "train" else 8, width, device="cuda")

    def step() -> None:
        if mode == "train":
            optimiser.zero_grad()
            model(batch).square().mean().backward()
            optimiser.step()
        else:
            with torch.no_grad():
                model(batch)
        torch.cuda.synchronize()

    for _ in range(20):
        step()
    print("ready", flush=True)
    sys.stdin.readline()
    took = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        step()
        took.append(time.monotonic() - began)
        if mode == "serve":
            time.sleep(0.02)
    took.sort()
    free, total = torch.cuda.mem_get_info()
    print(
        json.dumps(
            {
                "steps": len(took),
                "p50_ms": 1000 * took[len(took) // 2],
                "p99_ms": 1000 * took[len(took) * 99 // 100],
                "free_mib": free >> 20,
                "total_mib": total >> 20,
            }
        )
    )


if __name__ == "__main__":
    main()
