"""Write the boards: ``python -m boards FOLDER``."""

import sys
from pathlib import Path

from boards.every import texts

if __name__ == "__main__":
    for name, text in texts().items():
        (Path(sys.argv[1]) / name).write_text(text)
