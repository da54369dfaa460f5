"""``python -m localcluster build|up|down|status|gc``."""

from __future__ import annotations

import sys

from localcluster.cli import main

sys.exit(main())
