"""Jobs over HTTP: how many one core takes, and how long each waits at 200 per second. Prints one JSON object.

The real process has a core of its own. A stand-in for the API server and the load share another one. A
cluster's own time to store a Job is not in the figures.

- ``requests_per_s``: Jobs made per second, with all connections busy
- ``refusals_per_s``: the same with bad requests, which reach no API server
- ``p50_ms``, ``p99_ms``: at 200 requests per second, evenly spaced, from the due time to the answer
- ``cpu_ms``: CPU of the process for each request at that pace
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
from unit.jobsapi.stand_in import cluster, wanted
from vc_egpu import __version__

PACE_PER_S = 200.0
CONNECTIONS = 16
ROUNDS = 3
TOKENS = [f"token-{number}" for number in range(50)]
START_TIMEOUT_S = 120.0


def stand_in(pipe: Connection) -> None:
    with cluster() as api:
        api.rights = {token: {"lab"} for token in TOKENS}
        pipe.send(api.url)
        pipe.recv()


async def ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < deadline and process.poll() is None:
            try:
                async with session.get(f"{url}/healthz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)
    raise RuntimeError("the server did not start")


class Load:
    """Sends Jobs of different names and callers."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._number = 0

    async def send(self, **fields: Any) -> int:
        self._number += 1
        plain = {"members": 4, "needs": "cuda>=12.4"}
        body = wanted(name=f"job-{os.getpid()}-{self._number}", **(plain | fields))
        headers = {"Authorization": f"Bearer {TOKENS[self._number % len(TOKENS)]}"}
        async with self._session.post(f"{self._url}/v1/jobs", json=body, headers=headers) as answer:
            await answer.read()
            return answer.status

    async def flat_out(self, seconds: float, expected: int, **fields: Any) -> float:
        count, until = 0, time.perf_counter() + seconds

        async def worker() -> None:
            nonlocal count
            while time.perf_counter() < until:
                if (status := await self.send(**fields)) != expected:
                    raise RuntimeError(f"answered {status}")
                count += 1

        await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))
        return count / seconds

    async def paced(self, seconds: float) -> list[float]:
        times_ms: list[float] = []

        async def one(due: float) -> None:
            if (status := await self.send()) != 201:
                raise RuntimeError(f"answered {status}")
            times_ms.append((time.perf_counter() - due) * 1000)

        begin, tasks = time.perf_counter(), []
        for index in range(int(PACE_PER_S * seconds)):
            due = begin + index / PACE_PER_S
            if (wait_s := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            tasks.append(asyncio.create_task(one(due)))
        await asyncio.gather(*tasks)
        return sorted(times_ms)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def bench(seconds: float, port: int) -> dict[str, Any]:
    here, there = multiprocessing.Pipe()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(cores[:-1]) or set(cores))
    api = multiprocessing.Process(target=stand_in, args=(there,), daemon=True)
    api.start()
    url = f"http://127.0.0.1:{port}"
    command = ["taskset", "--cpu-list", str(cores[-1]), sys.executable, "-m", "vc_egpu.cli.main", "jobs-api"]
    command += ["--server", here.recv(), "--plain-http", "--listen", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen([*command, "--metrics-port", "0"], stderr=subprocess.DEVNULL)
    try:
        await ready(url, process)
        connector = aiohttp.TCPConnector(limit=CONNECTIONS)
        async with aiohttp.ClientSession(connector=connector) as session:
            load = Load(session, url)
            await load.flat_out(1.0, 201)
            rounds = []
            for _ in range(ROUNDS):
                made = await load.flat_out(seconds, 201)
                refused = await load.flat_out(seconds, 400, members=0)
                before = cpu_s(process.pid)
                times_ms = await load.paced(seconds)
                rounds.append((made, refused, times_ms, (cpu_s(process.pid) - before) / len(times_ms) * 1000))
    finally:
        process.terminate()
        process.wait(20)
        here.send(None)
        api.join(10)
    return {
        "bench": "jobs-api",
        "requests_per_s": round(statistics.median(made for made, *_ in rounds), 1),
        "refusals_per_s": round(statistics.median(refused for _, refused, *_ in rounds), 1),
        "paced_per_s": PACE_PER_S,
        "p50_ms": round(statistics.median(statistics.median(ms) for _, _, ms, _ in rounds), 2),
        "p99_ms": round(statistics.median(ms[int(len(ms) * 0.99) - 1] for _, _, ms, _ in rounds), 2),
        "cpu_ms": round(statistics.median(cpu for *_, cpu in rounds), 2),
        "cores": os.cpu_count(),
        "versions": {"vc_egpu": __version__, "python": platform.python_version()},
    }


def main() -> int:
    """Run it; the last line is the JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each part")
    parser.add_argument("--port", type=int, default=19452)
    flags = parser.parse_args()
    print(json.dumps(asyncio.run(bench(flags.seconds, flags.port))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
