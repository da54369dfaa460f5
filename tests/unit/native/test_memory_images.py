"""Memory that comes with an image, a stack, another interface or a green context: charged and given back."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from unit.native.memory_worlds import BUILD, CONTEXT_MIB, MIB, UUIDS, Share, World
from unit.native.time_building import compiled

TESTS = Path(__file__).resolve().parents[2]
ARRAY = 64 * MIB

BEGIN = f"""
import ctypes, sys
from ctypes import byref, c_size_t, c_uint64, c_void_p
sys.path.insert(0, {str(TESTS)!r})
from contract.cuda.binding import Driver
cu = Driver(ctypes.CDLL("libcuda.so.1"))
cu.cuInit(0)
cu.cuCtxSetCurrent(cu.primary())
before, made = cu.free_bytes(), c_void_p()
def say(code=0):
    print(code, before - cu.free_bytes())
"""


def _ran(world: World, program: str, begin: str = BEGIN) -> list[tuple[int, int]]:
    """What a program of the container said: pairs of a code and how much less is free than at first."""
    run = subprocess.run(
        [sys.executable, "-c", begin + program],
        capture_output=True,
        text=True,
        check=False,
        env=world.environment(),
    )
    assert run.returncode == 0, run.stderr
    lines = [line.split() for line in run.stdout.splitlines()]
    return [(int(code), int(bytes_)) for code, bytes_ in lines]


def _text(declaration: str) -> bytes:
    head = ".version 8.0\n.target sm_90\n.address_size 64\n"
    return f"{head}{declaration}\n.visible .entry egpu_spin(.param .u64 ns) {{ ret; }}\n".encode() + b"\0"


def _elf(bytes_: int) -> bytes:
    """A device object with so many bytes in a section that has no content."""
    names = b"\0.nv.global\0.shstrtab\0"
    head = struct.pack(
        "<4s5B7xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 51, 7, 2, 190, 1, 0, 0, 128, 0, 64, 56, 0, 64, 3, 2
    )
    sections = bytes(64)
    sections += struct.pack("<IIQQQQIIQQ", 1, 8, 3, 0, 64, bytes_, 0, 0, 16, 0)
    sections += struct.pack("<IIQQQQIIQQ", 12, 3, 0, 0, 64, len(names), 0, 0, 1, 0)
    return head + names.ljust(64, b"\0") + sections


def _bundle(*members: tuple[int, int, bytes]) -> bytes:
    """A fat binary of (kind, flags, content)."""
    body = b"".join(
        struct.pack("<HHIQI5IQ16x", kind, 1, 64, len(content), 0, 0, 0, 0, 0, 0, flags) + content
        for kind, flags, content in members
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


IMAGES = {
    "text": _text(f".visible .global .align 16 .b8 table[{ARRAY}];"),
    "several dimensions": _text(f".global .align 4 .f32 table[16][{ARRAY // 64}];"),
    "in another base": _text(f".global .b8 table[{ARRAY // 512:#x}][0{512:o}];"),
    "vectors": _text(f".global .v4 .u32 table[{ARRAY // 16}];"),
    "with a value": _text(f".visible .global .align 4 .u8 table[{ARRAY}] = {{1, 2, 3}};"),
    "binary": _elf(ARRAY),
    "bundle": _bundle((2, 0, _elf(4096)), (2, 0, _elf(ARRAY))),
}
SMALL = {
    "small": _text(".visible .global .align 4 .u32 counter;"),
    "of another module": _text(f".extern .global .align 4 .b8 table[{ARRAY}];"),
    "remark": _text(f"// .global .b8 table[{ARRAY}];"),
    "pointer": _text(
        f".visible .entry f(.param .u64 .ptr .global .align 8 p, .param .b8 s[{ARRAY}]) {{ ret; }}"
    ),
    "cut off": f".version 8.0\n.target sm_90\n.global .align 4 .b8 table[{ARRAY}".encode(),
    "garbled binary": b"\x7fELF" + bytes(range(1, 250)),
    "garbled bundle": struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 60) + b"\xff" * 64 + bytes(64),
    "nothing": bytes(256),
}
LOADS = {
    "cuModuleLoadData": ("(byref(made), image)", "cuModuleUnload(made)"),
    "cuModuleLoadFatBinary": ("(byref(made), image)", "cuModuleUnload(made)"),
    "cuModuleLoad": ("(byref(made), path)", "cuModuleUnload(made)"),
    "cuLibraryLoadData": ("(byref(made), image, None, None, 0, None, None, 0)", "cuLibraryUnload(made)"),
    "cuLibraryLoadFromFile": ("(byref(made), path, None, None, 0, None, None, 0)", "cuLibraryUnload(made)"),
}


def _load(world: World, image: bytes, how: str) -> list[tuple[int, int]]:
    file = world.root / "image"
    file.write_bytes(image)
    arguments, undo = LOADS[how]
    program = f"""
path = {str(file).encode()!r}
image = ctypes.create_string_buffer(open(path, "rb").read())
say(cu.code({how!r}, *{arguments}))
if made.value:
    cu.{undo}
say()
"""
    return _ran(world, program)


@pytest.mark.parametrize("how", LOADS)
@pytest.mark.parametrize("image", IMAGES)
def test_arrays_of_an_image_are_charged(world: World, image: str, how: str) -> None:
    assert _load(world, IMAGES[image], how) == [(0, ARRAY), (0, 0)]


@pytest.mark.parametrize("image", IMAGES)
def test_arrays_that_do_not_fit_are_refused(world: World, image: str) -> None:
    world.limit([Share(UUIDS[0], ARRAY + (CONTEXT_MIB - 2) * MIB)])
    assert _load(world, IMAGES[image], "cuModuleLoadData") == [(2, 0), (0, 0)]


@pytest.mark.parametrize("how", ["cuModuleLoadData", "cuModuleLoad"])
@pytest.mark.parametrize("image", SMALL)
def test_images_without_arrays_of_their_own_cost_nothing(world: World, image: str, how: str) -> None:
    assert [charged for _, charged in _load(world, SMALL[image], how)] == [0, 0]


def test_variables_of_a_compressed_image_are_charged_as_they_are_asked_for(world: World) -> None:
    file = world.root / "image"
    file.write_bytes(_bundle((1, 0x2000, IMAGES["text"])))
    program = f"""
image, at, size = ctypes.create_string_buffer(open({str(file)!r}, "rb").read()), c_uint64(), c_size_t()
ask = ("cuModuleGetGlobal_v2", byref(at), byref(size), made, b"table")
cu.cuModuleLoadData(byref(made), image)
say()
for _ in range(2):
    say(cu.code(*ask))
cu.cuModuleUnload(made)
say()
cu.cuLibraryLoadData(byref(made), image, None, None, 0, None, None, 0)
say(cu.code("cuLibraryGetGlobal", *ask[1:]))
cu.cuLibraryUnload(made)
say()
"""
    once = [(0, 0), (0, ARRAY), (0, ARRAY), (0, 0), (0, ARRAY), (0, 0)]
    assert _ran(world, program) == once
    world.limit([Share(UUIDS[0], ARRAY + (CONTEXT_MIB - 2) * MIB)])
    assert _ran(world, program) == [(0, 0), (2, 0), (2, 0), (0, 0), (2, 0), (0, 0)]


def test_a_library_loaded_before_there_is_a_context_is_charged_as_it_is_used(world: World) -> None:
    begin = BEGIN.replace("cu.cuCtxSetCurrent(cu.primary())\nbefore, made = cu.free_bytes(), c_void_p()", "")
    assert begin != BEGIN
    program = f"""
made, at, size, image = c_void_p(), c_uint64(), c_size_t(), {IMAGES["text"]!r}
cu.cuLibraryLoadData(byref(made), image, None, None, 0, None, None, 0)
cu.cuCtxSetCurrent(cu.primary())
before = cu.free_bytes()
say()
say(cu.code("cuLibraryGetGlobal", byref(at), byref(size), made, b"table"))
cu.cuLibraryUnload(made)
say()
"""
    assert _ran(world, program, begin) == [(0, 0), (0, ARRAY), (0, 0)]
    world.limit([Share(UUIDS[0], ARRAY + (CONTEXT_MIB - 2) * MIB)])
    assert _ran(world, program, begin) == [(0, 0), (2, 0), (0, 0)]


def test_arrays_end_with_their_context(world: World) -> None:
    program = f"""
context = c_void_p()
cu.cuCtxCreate_v2(byref(context), 0, 0)
cu.cuModuleLoadData(byref(made), {IMAGES["text"]!r})
cu.cuCtxDestroy_v2(context)
say()
"""
    assert _ran(world, program) == [(0, 0)]


def test_stacks_of_kernels_are_charged_for_all_threads_of_the_card(tmp_path: Path) -> None:
    threads = 2048 * 78  # on a card of so many processors
    program = """
sms = ctypes.c_int()
cu.cuDeviceGetAttribute(byref(sms), 16, 0)
print(sms.value, 0)
for stack in (1536, 1024, 1536, 2048):
    say(cu.code("cuCtxSetLimit", 0, stack))
"""
    world = World(tmp_path, [Share(UUIDS[0], 2048 * MIB)])
    try:
        (sms, _), first, lower, again, more = _ran(world, program)
        threads = 2048 * sms
        assert first == (0, 512 * threads)
        assert lower == again == first
        assert more == (0, 1024 * threads)
        world.limit([Share(UUIDS[0], 512 * threads + CONTEXT_MIB * MIB)])
        assert [code for code, _ in _ran(world, program)[1:]] == [0, 0, 0, 2]
    finally:
        world.close()


def test_memory_of_another_interface_is_charged_to_its_importer(world: World) -> None:
    program = """
import os
words = (c_uint64 * 13)(1, os.memfd_create("other"), 0, 64 << 20)
say(cu.code("cuImportExternalMemory", byref(made), words))
buffer, part = c_uint64(), (c_uint64 * 10)(0, 64 << 20)
say(cu.code("cuExternalMemoryGetMappedBuffer", byref(buffer), made, part))
words[1], words[3] = os.memfd_create("other"), 600 << 20
say(cu.code("cuImportExternalMemory", byref(c_void_p()), words))
cu.cuMemFree_v2(buffer)
say()
say(cu.code("cuDestroyExternalMemory", made))
"""
    held = 64 * MIB
    assert _ran(world, program) == [(0, held), (0, held), (2, held), (0, held), (0, 0)]


GREEN = """
import ctypes, sys
from ctypes import byref, c_void_p
sys.path.insert(0, TESTS)
from contract.cuda.binding import Driver
cu = Driver(ctypes.CDLL("libcuda.so.1"))
cu.types |= {"cuDevResourceGenerateDesc": (0, [c_void_p, c_void_p, ctypes.c_uint])}
cu.cuInit(0)
resources, green, words = c_void_p(), c_void_p(), (ctypes.c_uint64 * 64)()
cu.cuDevResourceGenerateDesc(byref(resources), words, 1)
"""


def test_a_green_context_is_charged_as_the_primary_one_that_it_makes(world: World) -> None:
    other = world.actor().start()
    free = other.info()[0]
    program = """
print(cu.code("cuGreenCtxCreate", byref(green), resources, 0, 1), 0)
second = c_void_p()
print(cu.code("cuGreenCtxCreate", byref(second), resources, 0, 1), 0)
cu.cuCtxSetCurrent(cu.primary())
print(0, cu.free_bytes())
cu.cuDevicePrimaryCtxRelease_v2(0)
cu.cuGreenCtxDestroy(green)
cu.cuCtxSetCurrent(cu.primary())
print(0, cu.free_bytes())
cu.cuDevicePrimaryCtxRelease_v2(0)
cu.cuGreenCtxDestroy(second)
cu.cuGreenCtxCreate(byref(green), resources, 0, 1)
cu.cuCtxSetCurrent(cu.primary())
print(0, cu.free_bytes())
"""
    left = free - CONTEXT_MIB * MIB
    begin = GREEN.replace("TESTS", repr(str(TESTS)))
    assert _ran(world, program, begin) == [(0, 0), (0, 0), (0, left), (0, left), (0, left)]
    assert other.do("alloc", 0, free) == 0
    refused = 'print(cu.code("cuGreenCtxCreate", byref(green), resources, 0, 1), 0)'
    assert _ran(world, refused, begin) == [(2, 0)]


def test_the_driver_of_these_tests_takes_the_same_from_the_card(world: World) -> None:
    """What is charged is what the fake card gives: the text's array and stacks."""
    watcher = world.watcher()
    before = watcher.info()[0]
    program = BEGIN + f"cu.cuModuleLoadData(byref(made), {IMAGES['text']!r})\nprint(1, flush=True)\ninput()\n"
    running = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=world.environment(LD_LIBRARY_PATH=str(BUILD)),
    )
    assert running.stdout
    assert running.stdout.readline() == b"1\n"
    taken = before - watcher.info()[0]
    running.communicate(b"\n", timeout=60)
    assert taken == ARRAY + (CONTEXT_MIB - 2) * MIB


def test_garbled_images_are_read_within_their_bounds() -> None:
    sources = ("tests/fuzz_images.c", "lib/memory/image.c")
    program = compiled("fuzz-images", *sources, sanitize="address,undefined")
    run = subprocess.run([program, "200000"], capture_output=True, text=True, timeout=250, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 20000
