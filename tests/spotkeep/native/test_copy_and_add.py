"""The compiled routine: copies what it is given and nothing else, adds up what the format says, on every processor."""

from __future__ import annotations

import mmap
import platform
import random
import struct
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import unicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from unicorn import arm64_const as arm
from unicorn import x86_const as x86

from spotkeep.native import copy_and_add as module
from spotkeep.native.copy_and_add import ROW_WORDS, CopyAndAdd, is_available

ROW = 8 * ROW_WORDS
NATIVE = Path(module.__file__).parent
ARCHITECTURES = ("x86_64", "aarch64")
HERE = sys.platform == "linux" and platform.machine() in ARCHITECTURES
here_only = pytest.mark.skipif(not HERE, reason="there is no compiled routine for this machine")


def by_the_book(content, chunk_bytes):
    """The definition of docs/checkpoint-format.md: the column sums of each chunk."""
    found = []
    for start in range(0, len(content), chunk_bytes):
        chunk = content[start : start + chunk_bytes]
        rows = np.frombuffer(chunk[: len(chunk) // ROW * ROW], dtype="<u8").reshape(-1, ROW_WORDS)
        found.append(rows.sum(axis=0, dtype="<u8").tobytes())
    return found


class ThisMachine:
    """The routine as the library calls it, on memory that begins anywhere."""

    def __call__(self, runs, size, *, chunk_bytes, shift):
        around = bytearray(b"\xa5" * (shift + size + 64))
        file = memoryview(around)[shift : shift + size]
        sources = [(offset, memoryview(bytes(by) + raw)[by:]) for offset, raw, by in runs]
        sums = CopyAndAdd(sources, file=file).column_sums(0, size, chunk_bytes=chunk_bytes)
        assert CopyAndAdd(sources).column_sums(0, size, chunk_bytes=chunk_bytes) == sums, "only added up, it is another"
        assert bytes(around[:shift] + around[shift + size :]) == b"\xa5" * (shift + 64), "wrote elsewhere"
        return bytes(file), [bytes(one) for one in sums]


@dataclass
class Emulated:
    """The routine on a processor that this machine need not have. What touches memory that is not there is an error."""

    architecture: str

    _CODE, _FILE, _SOURCES, _REST, _STOP = 0x100000, 0x1000000, 0x4000000, 0x8000000, 0xF000000
    _PAGE = 4096

    def __call__(self, runs, size, *, chunk_bytes, shift):
        processor = self._processor()
        entry = self._load(processor)
        file_end = -(-(shift + size + 64) // self._PAGE) * self._PAGE
        processor.mem_map(self._FILE, file_end)
        processor.mem_write(self._FILE, b"\xa5" * file_end)
        structs, place = b"", self._SOURCES
        for offset, raw, _ in runs:
            # It ends where a page does, and the next one is not there.
            pages = max(-(-len(raw) // self._PAGE), 1) * self._PAGE
            processor.mem_map(place, pages)
            source = place + pages - len(raw)
            processor.mem_write(source, raw)
            structs += struct.pack("<QQQ", offset, len(raw), source)
            place += pages + self._PAGE
        sums_size = ROW * -(-size // chunk_bytes)
        sums, stack = self._REST + 2**17, self._REST + 2**16
        processor.mem_map(self._REST, 2**17 + -(-(sums_size + 64) // self._PAGE) * self._PAGE)
        processor.mem_write(self._REST, structs)
        processor.mem_write(sums, b"\xa5" * (sums_size + 64))
        arguments = (self._REST, len(runs), self._FILE + shift, 0, size, chunk_bytes, sums)
        self._call(processor, entry, arguments, stack)
        file, sums_found = processor.mem_read(self._FILE, file_end), processor.mem_read(sums, sums_size + 64)
        before, after = file[:shift], file[shift + size :]
        assert before + after == b"\xa5" * (file_end - size), "wrote elsewhere"
        assert sums_found[sums_size:] == b"\xa5" * 64, "wrote behind the sums"
        return bytes(file[shift : shift + size]), [
            bytes(sums_found[low : low + ROW]) for low in range(0, sums_size, ROW)
        ]

    def _processor(self):
        if self.architecture == "x86_64":
            return unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64)
        processor = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        processor.reg_write(arm.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # as Linux has it: vectors may be used
        return processor

    def _load(self, processor):
        """Map the segments of the shared library, and give the address of its one function."""
        raw = (NATIVE / f"copy_and_add-linux-{self.architecture}.so").read_bytes()
        programs, sections = struct.unpack_from("<QQ", raw, 32)
        _, program_count, section_size, section_count = struct.unpack_from("<HHHH", raw, 54)
        processor.mem_map(self._CODE, 2**20)
        for number in range(program_count):
            kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", raw, programs + number * 56)
            if kind == 1:  # PT_LOAD
                processor.mem_write(self._CODE + address, raw[offset : offset + size])
        for number in range(section_count):
            at = sections + number * section_size
            if struct.unpack_from("<I", raw, at + 4) == (11,):  # SHT_DYNSYM
                (symbols,) = struct.unpack_from("<Q", raw, at + 24)
                return self._CODE + struct.unpack_from("<Q", raw, symbols + 24 + 8)[0]
        raise AssertionError("it exports nothing")

    def _call(self, processor, entry, arguments, stack):
        processor.mem_map(self._STOP, self._PAGE)
        if self.architecture == "x86_64":
            *registers, last = arguments
            names = (x86.UC_X86_REG_RDI, x86.UC_X86_REG_RSI, x86.UC_X86_REG_RDX)
            names += (x86.UC_X86_REG_RCX, x86.UC_X86_REG_R8, x86.UC_X86_REG_R9)
            processor.mem_write(stack - 8, struct.pack("<QQ", self._STOP, last))
            processor.reg_write(x86.UC_X86_REG_RSP, stack - 8)
        else:
            registers = arguments
            names = [arm.UC_ARM64_REG_X0 + number for number in range(len(arguments))]
            processor.reg_write(arm.UC_ARM64_REG_SP, stack)
            processor.reg_write(arm.UC_ARM64_REG_LR, self._STOP)
        for name, value in zip(names, registers, strict=True):
            processor.reg_write(name, value)
        processor.emu_start(entry, self._STOP)


MACHINES = [
    pytest.param(ThisMachine(), id="this machine", marks=here_only),
    *(pytest.param(Emulated(architecture), id=architecture) for architecture in ARCHITECTURES),
]
SIZES = st.one_of(st.integers(0, 40), st.integers(0, 3 * ROW), st.sampled_from([ROW - 1, ROW, 2 * ROW, 2 * ROW + 16]))
SIDE_BY_SIDE = 8 * 8 * ROW
"""From here on the routine goes through several places of a run at once: PLACES * PLACE_BYTES of copy_and_add.c."""
LARGE_SIZES = st.integers(SIDE_BY_SIDE - 80, SIDE_BY_SIDE + 2 * ROW + 80)


@pytest.mark.long
@pytest.mark.parametrize("machine", MACHINES)
@given(
    layout=st.lists(st.tuples(st.integers(0, 200), SIZES, st.integers(0, 17)), max_size=6),
    chunk_bytes=st.sampled_from([64, 4096, ROW, 2 * ROW + 8, 2**14, 2**20]),
    shift=st.sampled_from([0, 0, 16, 1, 7, 8]),
)
def test_runs_of_any_size_at_any_place_are_copied_and_added_up(machine, layout, chunk_bytes, shift):
    check(machine, layout, chunk_bytes, shift)


@pytest.mark.parametrize("machine", MACHINES)
@given(
    layout=st.lists(st.tuples(st.integers(0, 200), SIZES | LARGE_SIZES, st.integers(0, 17)), min_size=1, max_size=3),
    large=st.tuples(st.integers(0, 200), LARGE_SIZES, st.integers(0, 17)),
    chunk_bytes=st.sampled_from([SIDE_BY_SIDE, SIDE_BY_SIDE + 2 * ROW + 24, 2**20]),
    shift=st.sampled_from([0, 0, 16, 1, 8]),
)
@settings(max_examples=10)
def test_so_are_runs_that_are_gone_through_at_several_places_at_once(machine, layout, large, chunk_bytes, shift):
    check(machine, [*layout, large], chunk_bytes, shift)


def check(machine, layout, chunk_bytes, shift):
    runs, size, noise = [], 0, random.Random(0)  # noqa: S311 - not secret
    expected, content = bytearray(), bytearray()
    for gap, run_size, by in layout:
        raw = noise.randbytes(run_size)
        runs.append((size + gap, raw, by))
        expected += b"\xa5" * gap + raw
        content += bytes(gap) + raw
        size += gap + run_size
    file, sums = machine(runs, size, chunk_bytes=chunk_bytes, shift=shift)
    assert file == expected
    assert sums == by_the_book(content, chunk_bytes)


@pytest.mark.parametrize("machine", MACHINES)
def test_sums_wrap_around_as_the_format_says(machine):
    file, sums = machine([(0, b"\xff" * (4 * ROW), 0)], 4 * ROW, chunk_bytes=2**20, shift=0)
    assert file == b"\xff" * (4 * ROW)
    assert sums == [struct.pack("<Q", 2**64 - 4) * ROW_WORDS]


@here_only
def test_threads_may_take_pieces_in_any_order():
    chunk = 2**16
    content = random.Random(1).randbytes(40 * chunk + 5000)  # noqa: S311 - not secret
    file = memoryview(mmap.mmap(-1, len(content)))
    work = CopyAndAdd([(0, content[:100_000]), (100_000, content[100_000:])], file=file)
    starts = list(range(0, len(content), 3 * chunk))
    random.Random(2).shuffle(starts)  # noqa: S311 - not secret

    def piece(start):
        return work.column_sums(start, min(start + 3 * chunk, len(content)), chunk_bytes=chunk)

    with ThreadPoolExecutor(4) as pool:
        found = dict(zip(starts, pool.map(piece, starts), strict=True))
    assert file == content
    assert [bytes(one) for start in sorted(found) for one in found[start]] == by_the_book(content, chunk)


@here_only
def test_what_is_there_already_is_only_added_up():
    file = bytearray(b"\7" * ROW * 2)
    view = memoryview(file)
    (sums,) = CopyAndAdd([(0, view[:ROW]), (ROW, view[ROW:])], file=view).column_sums(0, len(file), chunk_bytes=2**20)
    assert [bytes(sums)] == by_the_book(b"\7" * ROW * 2, 2**20)
    assert file == b"\7" * ROW * 2


@here_only
def test_without_memory_of_a_file_nothing_is_copied_and_what_cannot_be_written_is_read():
    (sums,) = CopyAndAdd([(0, b"\1" * ROW)]).column_sums(0, ROW, chunk_bytes=2**20)
    assert sums == b"\1" * ROW


@here_only
def test_it_keeps_what_it_reads_from():
    source = bytearray(b"\3" * ROW)
    work = CopyAndAdd([(0, source)])
    with pytest.raises(BufferError):
        source.clear()
    del source
    (sums,) = work.column_sums(0, ROW, chunk_bytes=2**20)
    assert sums == b"\3" * ROW


@here_only
@pytest.mark.parametrize("offset", [1, 4096])
def test_a_run_outside_of_the_file_is_refused_before_anything_is_copied(offset):
    with pytest.raises(ValueError, match=r"4,096 bytes at [\d,]+ are not inside of 4,096 bytes"):
        CopyAndAdd([(offset, bytes(4096))], file=bytearray(4096))


@here_only
@pytest.mark.parametrize("offsets", [(-1,), (0, 9), (100, 0)])
def test_runs_that_overlap_or_are_not_in_their_order_are_refused(offsets):
    with pytest.raises(ValueError, match=r"10 bytes at -?\d+ begin before \d+, where the run before ends"):
        CopyAndAdd([(offset, bytes(10)) for offset in offsets], file=bytearray(4096))


@here_only
def test_memory_that_cannot_be_written_to_is_refused():
    with pytest.raises(BufferError):
        CopyAndAdd([(0, bytes(10))], file=bytes(10))


@here_only
def test_what_has_no_bytes_is_refused():
    with pytest.raises(TypeError):
        CopyAndAdd([(0, "text")])
    with pytest.raises((BufferError, ValueError)):
        CopyAndAdd([(0, memoryview(bytes(10))[::2])])


SAY = "from spotkeep.native.copy_and_add import is_available; print(is_available())"
NO_MEMFD = "import os; vars(os).pop('memfd_create', None); "


@here_only
@pytest.mark.parametrize("program", [SAY, NO_MEMFD + SAY])
def test_it_is_found_in_a_folder_and_in_a_zipapp_and_leaves_no_file(tmp_path, program):
    sources = NATIVE.parents[1]
    bundle, scratch = tmp_path / "library.zip", tmp_path / "scratch"
    scratch.mkdir()
    with zipfile.ZipFile(bundle, "w") as archive:
        for path in (*sources.glob("spotkeep/**/*.py"), *NATIVE.glob("*.so")):
            archive.write(path, path.relative_to(sources))
    for place in (sources, bundle):
        command = [sys.executable, "-S", "-B", "-c", program]
        environment = {"PYTHONPATH": str(place), "TMPDIR": str(scratch)}
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert said.stdout == "True\n"
        assert not list(scratch.iterdir())


def test_a_machine_that_there_is_none_for_has_none(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "sparc64")
    monkeypatch.setattr(module, "_routine", module._routine.__wrapped__)
    monkeypatch.setattr(module, "library", module.library.__wrapped__)
    assert not is_available()
    with pytest.raises(RuntimeError, match=r"no compiled routine for .* on sparc64"):
        CopyAndAdd([])


@here_only
def test_a_system_that_does_not_let_it_be_loaded_has_none():
    program = "import pkgutil; pkgutil.get_data = lambda *_: b'\x7fELF, but no library'; " + SAY
    command = [sys.executable, "-S", "-c", program]
    environment = {"PYTHONPATH": str(NATIVE.parents[1])}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_needs_no_library_and_nothing_but_what_is_in_it(architecture):
    raw = (NATIVE / f"copy_and_add-linux-{architecture}.so").read_bytes()
    assert b"GLIBC" not in raw
    assert b"libc" not in raw
    assert len(raw) < 2**14
