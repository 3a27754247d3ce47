"""Linux notes writes to watched memory, by any code of the process, and nothing else."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep.native import written_pages
from spotkeep.native.written_pages import PAGE_BYTES, SharedMemory, WrittenPages, whole_pages

PAGES = 64


def watch_or_skip():
    try:
        return WrittenPages()
    except OSError as error:
        pytest.skip(f"this system notes no written pages: {error}")


def private_memory(pages=PAGES):
    return mmap.mmap(-1, pages * PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def address_of(memory):
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


@pytest.fixture
def pages():
    return watch_or_skip()


@settings(deadline=None, max_examples=60)
@given(
    spans=st.lists(
        st.tuples(st.integers(0, PAGES - 1), st.integers(1, 8)), min_size=1, max_size=4, unique_by=lambda s: s[0]
    ),
    before=st.lists(st.integers(0, PAGES * PAGE_BYTES - 1), max_size=8),
    writes=st.lists(st.integers(0, PAGES * PAGE_BYTES - 1), max_size=4),
)
def test_exactly_the_spans_that_were_written_to_are_named(spans, before, writes):
    pages = watch_or_skip()
    memory = private_memory()
    address = address_of(memory)
    taken, watched = 0, []
    for first, count in sorted(spans):
        first = max(first, taken)
        taken = min(first + count, PAGES)
        if first < taken:
            watched.append((first * PAGE_BYTES, taken * PAGE_BYTES))
    for place in before:
        memory[place] = 1
    places = [(address + start, address + end) for start, end in watched]
    pages.watch(places)
    assert pages.written(places) == []
    for place in writes:
        memory[place] = 2
    expected = [index for index, (start, end) in enumerate(watched) if any(start <= one < end for one in writes)]
    assert pages.written(places) == expected
    pages.release(places)


def test_reading_is_no_write_and_memory_that_was_never_touched_is_unwritten(pages):
    memory = private_memory()
    span = (address_of(memory), address_of(memory) + len(memory))
    pages.watch([span])
    assert sum(memory[:]) == 0
    assert pages.written([span]) == []


def test_a_write_by_the_kernel_by_another_thread_and_after_a_fork_is_noted(pages):
    memory = private_memory()
    span = (address_of(memory), address_of(memory) + len(memory))

    def read_into():
        reading, writing = os.pipe()
        os.write(writing, b"x")
        os.readv(reading, [memoryview(memory)[5:6]])
        os.close(reading)
        os.close(writing)

    def fork_and_write():
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        assert pages.written([span]) == []
        memory[9] = 1

    for write in (read_into, fork_and_write, lambda: memory.__setitem__(7, 3)):
        pages.watch([span])
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
        assert pages.written([span]) == [0]
        pages.release([span])


def test_a_forked_child_does_not_watch_its_parents_memory(pages):
    memory = private_memory()
    span = (address_of(memory), address_of(memory) + len(memory))
    child = os.fork()
    if not child:
        try:
            pages.watch([span])
        except OSError as error:
            os._exit(0 if "forked" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_memory_that_is_not_there_is_refused_and_nothing_is_watched_then(pages):
    memory = private_memory()
    here = (address_of(memory), address_of(memory) + len(memory))
    with pytest.raises(OSError, match=r".+"):
        pages.watch([here, (PAGE_BYTES, 2 * PAGE_BYTES)])
    with pytest.raises(OSError, match=r".+"):
        pages.written([here])


@pytest.mark.parametrize("machine", ["riscv64", "x86_64"])
def test_a_system_without_the_watch_says_so(monkeypatch, machine):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    if machine == "x86_64":
        # As in a container of Docker's.
        monkeypatch.setattr(written_pages, "_user_fault_descriptor", _refused)
    with pytest.raises(OSError, match=r"only Linux on x86-64 and ARM|Operation not permitted"):
        WrittenPages()


def _refused(number):
    raise PermissionError(1, "userfaultfd: Operation not permitted")


@given(start=st.integers(0, 10**6), size=st.integers(0, 10**6))
def test_whole_pages_lie_within_and_leave_less_than_a_page_at_each_end(start, size):
    first, end = whole_pages(start, start + size)
    assert first % PAGE_BYTES == end % PAGE_BYTES == 0
    assert start <= first < start + PAGE_BYTES
    assert start + size - PAGE_BYTES < end <= start + size


def test_shared_memory_is_found_and_private_memory_is_not():
    shared = mmap.mmap(-1, 4 * PAGE_BYTES)
    private = private_memory()
    found = SharedMemory()
    start = address_of(shared)
    assert found.overlaps((start, start + 10))
    assert found.overlaps((start - PAGE_BYTES, start + 1))
    assert not found.overlaps((address_of(private), address_of(private) + len(private)))
