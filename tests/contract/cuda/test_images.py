"""Memory that comes with device code and with a context's settings."""

from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

import pytest
from contract.cuda.binding import GRANULE, KERNELS, NOT_FOUND, OUT_OF_MEMORY, Driver

MIB = 1 << 20
BYTES = 64 * MIB


def _with_array(bytes_: int) -> bytes:
    """Kernels, and an array in global memory beside them."""
    declaration = f".visible .global .align 16 .b8 egpu_table[{bytes_}];\n".encode()
    head, entry, rest = KERNELS.partition(b".visible .entry")
    return head + declaration + entry + rest


@pytest.mark.parametrize("kind", ["Module", "Library"])
def test_an_array_of_an_image_takes_its_bytes_and_gives_them_back(driver: Driver, kind: str) -> None:
    made, at, size = c_void_p(), c_uint64(), c_size_t()
    before = driver.free_bytes()
    image, none = _with_array(BYTES), (None, None, 0, None, None, 0)
    if kind == "Module":
        driver.cuModuleLoadData(byref(made), image)
        driver.cuModuleGetGlobal_v2(byref(at), byref(size), made, b"egpu_table")
    else:
        driver.cuLibraryLoadData(byref(made), image, *none)
        driver.cuLibraryGetGlobal(byref(at), byref(size), made, b"egpu_table")
    assert size.value == BYTES
    assert BYTES <= before - driver.free_bytes() <= BYTES + 2 * GRANULE
    driver.cuMemsetD8_v2(at.value, 1, BYTES)
    driver.cuCtxSynchronize()
    assert (
        driver.code(f"cu{kind}GetGlobal{'_v2' * (kind == 'Module')}", None, None, made, b"other") == NOT_FOUND
    )
    getattr(driver, f"cu{kind}Unload")(made)
    assert before - driver.free_bytes() <= 2 * GRANULE


def test_an_array_larger_than_the_card_is_out_of_memory(driver: Driver) -> None:
    made = c_void_p()
    before = driver.free_bytes()
    assert driver.code("cuModuleLoadData", byref(made), _with_array(driver.total_bytes())) == OUT_OF_MEMORY
    assert before - driver.free_bytes() <= 2 * GRANULE


def test_stacks_take_room_for_all_threads_that_the_card_can_hold(driver: Driver) -> None:
    processors, threads, stack = c_int(), c_int(), c_size_t()
    driver.cuDeviceGetAttribute(byref(processors), 16, 0)
    driver.cuDeviceGetAttribute(byref(threads), 39, 0)
    driver.cuCtxGetLimit(byref(stack), 0)
    before = driver.free_bytes()
    driver.cuCtxSetLimit(0, stack.value + 8192)
    expected = 8192 * processors.value * threads.value
    assert 0.8 * expected <= before - driver.free_bytes() <= 1.2 * expected + 8 * GRANULE


def test_a_kernel_says_for_which_cards_it_was_compiled(driver: Driver) -> None:
    text, code, major = c_int(), c_int(), c_int()
    kernel = driver.kernel("egpu_add")
    driver.cuFuncGetAttribute(byref(text), 5, kernel)
    driver.cuFuncGetAttribute(byref(code), 6, kernel)
    driver.cuDeviceGetAttribute(byref(major), 75, 0)
    assert 50 <= text.value <= code.value
    assert code.value // 10 == major.value
