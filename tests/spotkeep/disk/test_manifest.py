"""The manifest: what makes a directory of bytes a checkpoint."""

from __future__ import annotations

import hashlib
import json

import pytest

from spotkeep.disk.manifest import (
    CHUNK_BYTES,
    DataFile,
    MalformedManifestError,
    Manifest,
    manifest_bytes,
    parse_manifest,
)
from spotkeep.errors import NewerFormatError

MANIFEST = Manifest(
    step=12,
    epochs_completed=1,
    created=1234.5,
    library="spotkeep 0.1.0",
    streams=((DataFile(name="data-00000.bin", size=3, chunks=("0123abcd",)),),),
    state={"dict": [["a", 1]]},
    metrics={"loss": 0.25},
    measured_at={"loss": 10},
    made_by={"command line": "--lr 0.1", "name": "fold-2"},
)


def test_it_comes_back_as_it_was():
    assert parse_manifest(manifest_bytes(MANIFEST)) == MANIFEST


def test_it_is_json_that_any_tool_can_read():
    document = json.loads(manifest_bytes(MANIFEST))
    assert set(document) == {"sha256", "manifest"}
    assert document["manifest"]["step"] == 12
    assert document["manifest"]["format"] == 4
    assert document["manifest"]["checksum"] == "column-sums-crc32"


def test_any_flipped_bit_is_noticed():
    raw = manifest_bytes(MANIFEST)
    for bit in range(len(raw) * 8):
        altered = bytearray(raw)
        altered[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MalformedManifestError):
            parse_manifest(bytes(altered))


def test_a_manifest_cut_short_or_grown_is_noticed():
    raw = manifest_bytes(MANIFEST)
    for length in range(len(raw)):
        with pytest.raises(MalformedManifestError):
            parse_manifest(raw[:length])
    with pytest.raises(MalformedManifestError):
        parse_manifest(raw + b" ")


def sealed(document: object) -> bytes:
    """A manifest whose digest is right, whatever it says."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return b'{"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'","manifest":' + body + b"}\n"


def altered(**changes: object) -> dict[str, object]:
    return {**json.loads(manifest_bytes(MANIFEST))["manifest"], **changes}


FILE = {"name": "data-00000.bin", "size": 3, "chunks": ["0123abcd"]}


@pytest.mark.parametrize(
    "document",
    [
        [],
        b"not json",
        b"[" * 100_000,
        b"1" * 10_000,
        altered(format=0),
        altered(format="1"),
        altered(format=2),
        altered(divided=7),
        altered(divided=[7]),
        altered(divided=[[[[0], [1], 0]]]),
        altered(divided=[[[[0], [1], 0, -1]]]),
        altered(divided=[[[[0], ["1"], 0, 0]]]),
        altered(divided=[[[0, [1], 0, 0]]]),
        altered(files=[FILE, {**FILE, "name": "data-00001.bin"}]),
        altered(checksum="md5"),
        altered(chunk_bytes=1),
        altered(step=-1),
        altered(step="12"),
        altered(step=True),
        altered(epochs_completed="1"),
        altered(created="yesterday"),
        altered(metrics=None),
        altered(metrics={"loss": "small"}),
        altered(made_by=["--lr"]),
        altered(made_by={"lr": 0.1}),
        altered(measured_at=["loss"]),
        altered(measured_at={"loss": -1}),
        altered(measured_at={"accuracy": 3}),
        altered(files={}),
        altered(files=["data-00000.bin"]),
        altered(files=[{**FILE, "name": "../../etc/passwd"}]),
        altered(files=[{**FILE, "name": "/etc/passwd"}]),
        altered(files=[{**FILE, "name": "data-00001.bin"}]),
        altered(files=[{**FILE, "name": 5}]),
        altered(files=[{**FILE, "size": -1}]),
        altered(files=[{**FILE, "size": CHUNK_BYTES + 1}]),
        altered(files=[{**FILE, "chunks": ["xyz"]}]),
        altered(files=[{**FILE, "chunks": None}]),
    ],
    ids=lambda document: str(document)[:60],
)
def test_a_sealed_manifest_that_makes_no_sense_is_refused(document):
    with pytest.raises(MalformedManifestError):
        parse_manifest(sealed(document))


def test_a_manifest_from_the_future_is_distinguished_from_damage():
    with pytest.raises(NewerFormatError, match="Resume with the newer library"):
        parse_manifest(sealed(altered(format=5, library="spotkeep 9.0")))
