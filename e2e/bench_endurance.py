"""Hours of load on a full cluster with a real API server: memory and latency of the leader, minute by minute.

    make bench-endurance            (NODES=5000 PODS=20000 MINUTES=120 GANGS=60)
    .venv/bin/python e2e/bench_endurance.py --nodes 200 --pods 800 --minutes 2

Prints one line a minute, and one JSON object as its last line: ``first`` and ``last`` are tenths of the time.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bench.endurance import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
