"""The driver under test: the fake one, or with ``VC_EGPU_REAL_CUDA=1`` the machine's own."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from ctypes import c_int
from pathlib import Path

import pytest
from contract.cuda.binding import NATIVE, Driver

REAL = os.environ.get("VC_EGPU_REAL_CUDA") == "1"


@pytest.fixture(scope="session")
def fake_library() -> Path:
    """Built here, or taken from VC_EGPU_NATIVE_BUILD (with sanitizers, say)."""
    built = os.environ.get("VC_EGPU_NATIVE_BUILD")
    if built:
        return Path(built) / "libcuda.so.1"
    subprocess.run(["make", "-s", "-C", str(NATIVE), "build/libcuda.so.1"], check=True, timeout=120)
    return NATIVE / "build" / "libcuda.so.1"


@pytest.fixture(scope="session")
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Driver:
    """Initialised once in this process, as a driver is; skips where a real one is asked for but missing."""
    if REAL:
        try:
            driver = Driver(ctypes.CDLL("libcuda.so.1"))
        except OSError as error:
            pytest.skip(f"no CUDA driver here: {error}")
        code = driver.code("cuInit", 0)
        if code:
            pytest.skip(f"cuInit returned {code}")
        return driver
    library = request.getfixturevalue("fake_library")
    folder = tmp_path_factory.mktemp("cuda")
    cards = "".join(f"card=GPU-00000000-0000-4000-8000-00000000000{i}\nmemory_mib=16384\n" for i in (1, 2))
    (folder / "nvml.state").write_text("driver=580.65.06\ncuda=13000\n" + cards)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_NVML_STATE", str(folder / "nvml.state"))
        patch.delenv("FAKE_CUDA_STATE", raising=False)
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        driver = Driver(ctypes.CDLL(str(library)))
        driver.cuInit(0)
    return driver


@pytest.fixture
def driver(loaded: Driver) -> Iterator[Driver]:
    """With card 0's primary context current, and nothing of the test left on it afterwards."""
    context = loaded.primary()
    loaded.cuCtxSetCurrent(context)
    yield loaded
    loaded.cuDevicePrimaryCtxReset_v2(0)
    loaded.cuCtxSetCurrent(None)


@pytest.fixture
def two_cards(driver: Driver) -> Driver:
    count = c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    if count.value < 2:
        pytest.skip("one card here")
    return driver
