"""The seam between the format and a disk: a file is made anew, and nothing that is there is written to."""

from __future__ import annotations

import errno

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


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_directory_whose_name_the_disk_does_not_take_is_made_again_and_synced_the_next_time(tmp_path, failing):
    class FailsOnce(LocalStorage):
        synced = 0

        def sync_directory(self, path):
            self.synced += 1
            if self.synced == failing:
                raise OSError(errno.EIO, "Input/output error")
            super().sync_directory(path)

    storage = FailsOnce()
    with pytest.raises(OSError, match="Input/output error"):
        storage.make_directory(tmp_path / "run" / "checkpoints" / "step-1")
    storage.make_directory(tmp_path / "run" / "checkpoints" / "step-1")
    assert (tmp_path / "run" / "checkpoints" / "step-1").is_dir()
    assert storage.synced == 4, "each of the three, and once more the one that failed"


@pytest.mark.parametrize("size", [0, 1, 4096, 12288, 12289])
def test_a_file_that_is_made_past_the_page_cache_holds_what_was_written_whatever_its_length(tmp_path, size):
    content = memoryview(b"new" * 5000)[:size]
    with LocalStorage().create(tmp_path / "data", direct=True) as descriptor:
        LocalStorage().write_at(descriptor, content, 0)
    assert (tmp_path / "data").read_bytes() == content
