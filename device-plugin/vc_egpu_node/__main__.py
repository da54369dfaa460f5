"""``python -m vc_egpu_node``."""

import sys

from vc_egpu_node.main import main

sys.exit(main())
