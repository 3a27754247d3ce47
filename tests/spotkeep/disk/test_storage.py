"""The seam between the format and a disk: a file is made anew, and nothing that is there is written to."""

from __future__ import annotations

import pytest

from spotkeep.disk.storage import LocalStorage


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("there", ["a file", "a link"])
def test_what_is_there_is_not_written_to(tmp_path, direct, there):
    path, target = tmp_path / "data", tmp_path / "target"
    target.write_bytes(b"old")
    path.hardlink_to(target) if there == "a file" else path.symlink_to(target)
    with pytest.raises(FileExistsError), LocalStorage().create(path, direct=direct):
        pass
    assert target.read_bytes() == b"old"


@pytest.mark.parametrize("size", [0, 1, 4096, 12288, 12289])
def test_a_file_that_is_made_past_the_page_cache_holds_what_was_written_whatever_its_length(tmp_path, size):
    content = memoryview(b"new" * 5000)[:size]
    with LocalStorage().create(tmp_path / "data", direct=True) as descriptor:
        LocalStorage().write_at(descriptor, content, 0)
    assert (tmp_path / "data").read_bytes() == content
