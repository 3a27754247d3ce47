"""What a checkpoint says about itself is a manifest and a state, or damage: nothing else comes of any bytes."""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.disk.manifest import DataFile, MalformedManifestError, Manifest, manifest_bytes, parse_manifest
from spotkeep.errors import NewerFormatError
from spotkeep.state.encoding import MalformedStateError, decode_state, encode_state
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
    }
)
WHOLE = Manifest(
    step=3,
    epochs_completed=1,
    created=1e9,
    library="spotkeep 0.1.0",
    streams=((DataFile("data-00000.bin", 4200, ("00000000",)),),),
    state=STATE.document,
    metrics={"loss": 0.5},
    made_by={"command line": "--lr 0.1"},
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


def read(raw: bytes) -> Any:
    with contextlib.suppress(MalformedManifestError, MalformedStateError, NewerFormatError):
        return decode_state(parse_manifest(raw).state, no_bytes)


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
