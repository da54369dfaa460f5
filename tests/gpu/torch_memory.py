"""PyTorch's allocator against the cap: `torch_memory.py`. One line of JSON: what it saw."""

import gc
import json

import torch

MIB = 1 << 20
PIECE_MIB = 64


def free_mib() -> int:
    """As the driver says."""
    return int(torch.cuda.mem_get_info()[0] >> 20)


def take(mib: int) -> torch.Tensor:
    """So much of the card."""
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def fill() -> list[torch.Tensor]:
    """All there is."""
    held: list[torch.Tensor] = []
    try:
        while True:
            held.append(take(PIECE_MIB))
    except torch.cuda.OutOfMemoryError:
        return held


def graph_replays() -> float:
    """The sum after five launches of a graph: 5 on a card that computes."""
    counter, one = torch.zeros(1, device="cuda"), torch.ones(1, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        counter.add_(one)
    torch.cuda.current_stream().wait_stream(side)
    counter.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        counter.add_(one)
    for _ in range(5):
        graph.replay()
    return float(counter.item())


def loaded() -> int:
    """Pieces that two forked workers brought, through pinned memory, onto the card."""
    data = torch.utils.data.TensorDataset(torch.arange(64))
    loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
    return sum(batch.to("cuda", non_blocking=True).numel() for (batch,) in loader)


def main() -> None:
    """Fills the card, makes room, and uses it."""
    said: dict[str, object] = {"total_mib": torch.cuda.mem_get_info()[1] >> 20}
    said["capacity_mib"] = torch.cuda.get_device_properties(0).total_memory >> 20
    take(1)
    torch.cuda.empty_cache()
    said["before_mib"] = free_mib()
    held = fill()
    said["held_mib"], said["left_mib"] = len(held) * PIECE_MIB, free_mib()
    keep = len(held) // 4
    del held[keep:]
    gc.collect()
    whole = take((int(str(said["held_mib"])) - keep * PIECE_MIB) // 2)  # from what its cache held in pieces
    said["again"] = whole.numel() > 0
    del held, whole
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    said["after_mib"] = free_mib()
    weights = torch.randn(256, 256, device="cuda", requires_grad=True)
    optimiser = torch.optim.Adam([weights])
    for _ in range(3):
        (weights * weights).sum().backward()
        optimiser.step()
    torch.topk(weights.detach().flatten(), 3)  # kernels that ask what they were compiled for
    torch.cuda.synchronize()
    said["graph"], said["loaded"] = graph_replays(), loaded()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
