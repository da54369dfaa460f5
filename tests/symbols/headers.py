"""Every entry point that the headers of CUDA name, read from the wheels that pip has.

``python -m symbols.headers`` (``make driver-symbols``) writes ``driver.csv`` beside this file from the newest
wheels of CUDA 12 and 13. The headers themselves are never kept.
"""

import csv
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
LIST: Final = HERE / "driver.csv"
WHEELS: Final = {"12": "nvidia-cuda-runtime-cu12", "13": "nvidia-cuda-runtime"}
"""CUDA's major version → the wheel that holds its headers."""

HEADERS: Final = ("cuda", "cudaGL", "cudaEGL", "cudaVDPAU")
_MODES: Final = ("-D__CUDA_API_VERSION_INTERNAL", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM", "-DEGPU_NEITHER")
"""Old names, names of programs whose default stream is per thread, present names."""

_GRAPHICS: Final = ("GL/gl.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h")
"""Headers of other projects that CUDA's include: for names alone, empty ones do."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """An entry point of ``libcuda.so.1``."""

    name: str
    header: str
    cuda: tuple[str, ...]
    """Major versions whose headers name it."""


def fetched(wheel: str, folder: Path) -> tuple[Path, str]:
    """The wheel's folder of headers, unpacked into ``folder``, and its version. Pip keeps the wheel."""
    ask = ["download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder), wheel]
    subprocess.run([sys.executable, "-m", "pip", *ask], check=True, timeout=280)
    file = next(folder.glob("*.whl"))
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder)
    return next(folder.rglob("cuda.h")).parent, file.name.split("-")[1]


def named(include: Path, scratch: Path) -> dict[str, str]:
    """Symbol → header, of all functions that the headers of ``include`` declare for Linux."""
    found: dict[str, str] = {}
    for name in _GRAPHICS:
        (scratch / name).parent.mkdir(exist_ok=True)
        (scratch / name).touch()
    for header in HEADERS:
        for mode in _MODES:
            command = ["cc", "-E", "-P", mode, f"-I{include}", f"-I{scratch}", str(include / f"{header}.h")]
            text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
            for name in re.findall(r"\bCUresult\s+(?:CUDAAPI\s+)?(cu[A-Z]\w+)\s*\(", text):
                found.setdefault(name, f"{header}.h")
    profiler = (include / "cudaProfilerTypedefs.h").read_text()  # the wheels hold nothing else of it
    for name in re.findall(r"\*PFN_(cu\w+?)_v\d+\)", profiler):
        found.setdefault(name, "cudaProfiler.h")
    return found


def from_wheels() -> list[Symbol]:
    """All symbols of the newest wheels, by name."""
    versions: dict[str, list[str]] = {}
    headers: dict[str, str] = {}
    for major, wheel in WHEELS.items():
        with tempfile.TemporaryDirectory() as folder:
            include, _ = fetched(wheel, Path(folder))
            for name, header in named(include, Path(folder)).items():
                versions.setdefault(name, []).append(major)
                headers.setdefault(name, header)
    return [Symbol(name, headers[name], tuple(sorted(versions[name]))) for name in sorted(versions)]


def committed() -> list[Symbol]:
    """The symbols of ``driver.csv``."""
    with LIST.open(newline="") as file:
        return [
            Symbol(row["symbol"], row["header"], tuple(row["cuda"].split())) for row in csv.DictReader(file)
        ]


def main() -> None:
    """Writes the list anew."""
    with LIST.open("w", newline="") as file:
        write = csv.writer(file, lineterminator="\n")
        write.writerow(["symbol", "header", "cuda"])
        write.writerows([one.name, one.header, " ".join(one.cuda)] for one in from_wheels())


if __name__ == "__main__":
    main()
