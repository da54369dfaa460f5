"""A program that asks a driver what names mean, and tells whose functions it got."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

LOOKS_UP: Final = """
import ctypes, json, sys
class Where(ctypes.Structure):
    text, place = ctypes.c_char_p, ctypes.c_void_p
    _fields_ = [("file", text), ("base", place), ("name", text), ("at", place)]
driver, program = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(None)
questions, answers = json.load(sys.stdin), []
for name, version, flags in questions:
    found, where = ctypes.c_void_p(), Where()
    code = driver.cuGetProcAddress(name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags))
    known = found and program.dladdr(found, ctypes.byref(where))
    answers.append([code, where.file.decode(), where.name.decode()] if known else [code, "", ""])
json.dump(answers, sys.stdout)
"""


def looked_up(
    driver: Path, questions: Sequence[tuple[str, int, int]], environment: Mapping[str, str]
) -> list[list[int | str]]:
    """For each name, version and flags: the code, the object of what was found, and its symbol."""
    run = subprocess.run(
        [sys.executable, "-c", LOOKS_UP, str(driver)], input=json.dumps(questions), env=environment,
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    found: list[list[int | str]] = json.loads(run.stdout)
    return found
