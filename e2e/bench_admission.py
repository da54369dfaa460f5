"""Submit to bind: 625 Jobs of eight one-slice pods on 1,000 simulated nodes, beside Volcano in the same run.

    make bench-admission            (VOLCANO_BIN_DIR and VOLCANO_CRD_DIR: Volcano's side and its controllers)
    .venv/bin/python e2e/bench_admission.py --jobs 60 --nodes 100 --rounds 1

Prints what it does, and one JSON object as its last line.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from bench.admission import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
