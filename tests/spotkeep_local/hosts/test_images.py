"""Images: what is copied is what was there, and no more is stored than that."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotkeep_local.hosts.images import BlockImages, DirectoryImages, Images

GIB = 1 << 30


@pytest.fixture(params=[BlockImages, DirectoryImages])
def images(request: pytest.FixtureRequest, tmp_path: Path) -> Images:
    made: Images = request.param(tmp_path)
    return made


def write(images: Images, image_id: str, text: str) -> None:
    path = images.path(image_id)
    if path.is_dir():
        (path / "file").write_text(text)
    else:
        with path.open("r+b") as file:
            file.write(text.encode())


def read(images: Images, image_id: str) -> str:
    path = images.path(image_id)
    if path.is_dir():
        return (path / "file").read_text()
    with path.open("rb") as file:
        return file.read(6).decode()


def test_a_copy_is_of_its_moment(images: Images) -> None:
    images.create("vol-1", size_gib=1)
    write(images, "vol-1", "before")
    images.create("snap-1", size_gib=1, source_id="vol-1")
    write(images, "vol-1", "after!")
    images.create("vol-2", size_gib=2, source_id="snap-1")
    assert (read(images, "vol-1"), read(images, "vol-2")) == ("after!", "before")
    images.delete("vol-1")
    images.delete("vol-1")
    assert not images.path("vol-1").exists()


def test_a_block_image_is_as_large_as_asked_and_stores_only_data(tmp_path: Path) -> None:
    images = BlockImages(tmp_path)
    images.create("vol-1", size_gib=500)
    write(images, "vol-1", "before")
    images.create("snap-1", size_gib=600, source_id="vol-1")
    assert images.path("snap-1").stat().st_size == 600 * GIB
    assert images.used_bytes("snap-1") < 1 << 20
