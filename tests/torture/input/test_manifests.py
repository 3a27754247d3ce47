"""What a checkpoint says about itself is a manifest and a state, or damage: nothing else comes of any bytes."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.disk.inspection import outline
from spotkeep.disk.manifest import (
    DataFile,
    MalformedManifestError,
    Manifest,
    RankShare,
    manifest_bytes,
    parse_manifest,
)
from spotkeep.errors import NewerFormatError
from spotkeep.state.decoding import decode_state
from spotkeep.state.divided import Box, DividedArray, Part
from spotkeep.state.encoding import MalformedStateError, encode_state
from spotkeep.state.resharding import Piece, SavedBox, Scattered
from spotkeep.state.state_dicts import StateDict

from .bounds import bounded, fed_by_strangers
from .mutations import NUMBERS, as_json, mutated

MODULE = StateDict({"weight": np.zeros((2, 2, 2)).transpose(0, 2, 1)})
MODULE._metadata = {"": {"version": 2}}
MODULE.frozen, MODULE.evaluating = ("weight",), ("",)
STATE = encode_state(
    {
        "w": np.arange(6.0).reshape(2, 3),
        "n": {"step": 3},
        "s": np.float32(2),
        "t": (1, 2.5, "x", b"raw"),
        "h": 2**80,
        "m": MODULE,
        "d": DividedArray(kind="ndarray", dtype="<f4", shape=(4, 6), parts=()),
    }
)
OWN = {"dict": [["rng", {"bytes": {"stream": 1, "offset": 64, "size": 8}}]]}
OTHER = {"dict": [["rng", {"bytes": {"stream": 2, "offset": 64, "size": 8}}]]}
WHOLE = Manifest(
    step=3,
    epochs_completed=1,
    created=1e9,
    library="spotkeep 0.1.0",
    streams=tuple((DataFile(f"data-0000{number}.bin", 4200, ("00000000",)),) for number in range(3)),
    state=STATE.document,
    metrics={"loss": 0.5},
    made_by={"command line": "--lr 0.1"},
    ranks=(RankShare(OWN), RankShare(OTHER, {"changed": [["n", {"own": 1}]], "removed": []})),
    divided=((SavedBox(Box((0, 0), (4, 2)), 1, 0), SavedBox(Box((0, 2), (4, 4)), 2, 0)),),
)
DOCUMENT = json.loads(manifest_bytes(WHOLE))["manifest"]


def framed(body: bytes) -> bytes:
    """Bytes with the frame and the right digest of a manifest."""
    return b'{"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'","manifest":' + body + b"}\n"


def no_bytes(stream: int, offset: int, size: int) -> bytes:
    """As a data file that has what it says it has, up to its size."""
    if size > 4200:
        raise MalformedStateError(f"stream {stream} has no {size} bytes at {offset}")
    return bytes(size)


class Filled:
    """As a reader that has all bytes, up to the size of a data file."""

    def later(self, stream: int, offset: int, piece: Piece) -> None:
        raw = memoryview(no_bytes(stream, offset, len(piece)))
        if isinstance(piece, Scattered):
            piece.put(0, raw)
        else:
            piece[:] = raw

    def finally_do(self, act: Callable[[], None]) -> None:
        act()


def read(raw: bytes) -> Any:
    with contextlib.suppress(MalformedManifestError, MalformedStateError, NewerFormatError):
        manifest = parse_manifest(raw)
        with contextlib.suppress(MalformedStateError):
            outline(manifest)
        for rank in range(min(manifest.world_size, 2)):
            document = manifest.state_of(rank)
            manifest.files_for(document)
            live = DividedArray("ndarray", "<f4", (4, 6), (Part(Box((1, 1), (2, 3)), np.zeros((2, 3), "<f4")),))
            with contextlib.suppress(MalformedStateError):
                decode_state(document, no_bytes, fill=Filled(), live={"d": live}, divided=manifest.divided)
        return decode_state(manifest.whole_state(), no_bytes, divided=manifest.divided)
    return None


def test_the_manifest_that_is_altered_is_a_whole_one() -> None:
    found = read(manifest_bytes(WHOLE))
    assert found["d"].shape == (4, 6)
    assert found["rank 1"]["rng"] == bytes(8)


@fed_by_strangers(share=0.9)
@given(mutated(DOCUMENT), NUMBERS)
def test_a_manifest_with_anything_in_it_is_read_or_is_damage(document: Any, number: str) -> None:
    body = as_json(document, number=number).encode()
    with bounded():
        read(framed(body))


@fed_by_strangers(share=0.1)
@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_bytes_that_are_no_manifest_are_damage(raw: bytes) -> None:
    with bounded():
        read(raw)
        read(framed(raw))
