"""Whose part of a checkpoint is whose: what each rank put in, each rank gets out, and no other rank's."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.disk.manifest import (
    DataFile,
    MalformedManifestError,
    Manifest,
    RankShare,
    data_file_name,
    manifest_bytes,
    parse_manifest,
)
from spotkeep.ranks.rank_shares import (
    WrittenShare,
    encode_share,
    first_files,
    merged,
    rank_share,
    states_of_ranks,
    view_for,
)
from spotkeep.state.encoding import MalformedStateError, decode_state, encode_state

# Any value comes back: in test_encoding. Here it counts which of them have files.
PLAIN = st.none() | st.integers() | st.text(max_size=5) | st.binary(max_size=9) | st.integers(0, 9).map(np.arange)
VALUES = PLAIN | st.lists(PLAIN, max_size=2) | st.dictionaries(st.text(max_size=5), PLAIN, max_size=2)
STATES = st.dictionaries(st.sampled_from(["model", "optimizer", "file", "offset", "dict"]), VALUES, max_size=3)
OWN = st.dictionaries(st.sampled_from(["rng", "sampler", "files"]), VALUES, max_size=2)


def content(blobs, first):
    """The bytes of one rank's files, as a disk would have them."""
    files = {}
    for blob in blobs:
        file = files.setdefault(first + blob.file_index, bytearray())
        file.extend(bytes(blob.offset - len(file)))
        file.extend(blob.raw)
    return files


def written_by_ranks(common, owns):
    """What several ranks write together, without a disk."""
    encoded = [encode_share(encode_state(common), encode_state(own), rank=rank) for rank, own in enumerate(owns)]
    counts = [one.document.common_files + one.document.own_files for one in encoded]
    disk, shares = {}, []
    for one, first in zip(encoded, first_files(counts), strict=True):
        mine = content(one.blobs, first)
        disk.update(mine)
        files = tuple(
            DataFile(data_file_name(index), len(raw), ("00000000",) * -(-len(raw) // 2**20))
            for index, raw in sorted(mine.items())
        )
        share = WrittenShare(files, rank_share(one.document, first=first))
        shares.append(WrittenShare.from_message(json.loads(json.dumps(share.as_message())), first=first))
    files, ranks = merged(shares)
    manifest = Manifest(7, None, 1.0, "spotkeep", files, encoded[0].document.common, ranks=ranks)
    return parse_manifest(manifest_bytes(manifest)), disk


def read(view, disk):
    def bytes_of(file_index, offset, size):
        assert view.file_indices is None or file_index in view.file_indices, "a file of another rank"
        return bytes(disk[file_index][offset : offset + size])

    return decode_state(view.state, bytes_of)


def same(one, other):
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and np.array_equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@given(common=STATES, owns=st.lists(OWN, min_size=2, max_size=4))
def test_each_rank_gets_back_what_all_have_in_common_and_what_is_its_own(common, owns):
    manifest, disk = written_by_ranks(common, owns)
    assert manifest.world_size == len(owns)
    assert set(disk) == set(range(len(manifest.files)))
    seen = []
    for rank, own in enumerate(owns):
        view = view_for(manifest, rank=rank, world_size=len(owns), per_rank=own)
        assert same(read(view, disk), {**common, **own})
        seen += view.file_indices
    assert set(seen) == set(disk), "no file that no rank verifies"


@given(common=STATES, owns=st.lists(OWN, min_size=2, max_size=4), world_size=st.integers(1, 5))
def test_another_number_of_ranks_gets_what_all_have_in_common_and_the_states_of_each(common, owns, world_size):
    manifest, disk = written_by_ranks(common, owns)
    if world_size == len(owns):
        world_size += 1
    names = {name for own in owns for name in own}
    view = view_for(manifest, rank=world_size - 1, world_size=world_size, per_rank=names)
    assert same(read(view, disk), common)
    states = read(states_of_ranks(manifest, per_rank=names), disk)
    assert same(states, {str(rank): own for rank, own in enumerate(owns)})


@given(common=STATES, owns=st.lists(OWN, min_size=2, max_size=3))
def test_a_tool_sees_everything_and_whose_it_is(common, owns):
    manifest, disk = written_by_ranks(common, owns)
    found = decode_state(manifest.whole_state(), lambda index, offset, size: bytes(disk[index][offset : offset + size]))
    assert same(found, {**common, **{f"rank {rank}": own for rank, own in enumerate(owns) if own}})


def test_one_process_wrote_the_state_of_its_only_rank():
    state = {"dict": [["model", 1], ["rng", 2]]}
    manifest = Manifest(7, None, 1.0, "spotkeep", (), state)
    assert view_for(manifest, rank=1, world_size=2, per_rank=["rng"]).state == {"dict": [["model", 1]]}
    assert states_of_ranks(manifest, per_rank=["rng"]).state == {"dict": [["0", {"dict": [["rng", 2]]}]]}
    assert view_for(manifest, rank=1, world_size=2, per_rank=[]).state == state


def test_two_ranks_cannot_claim_the_same_file():
    message = WrittenShare((DataFile("data-00000.bin", 0, ()),), RankShare(1, {"dict": []})).as_message()
    with pytest.raises(MalformedManifestError, match="file name"):
        WrittenShare.from_message(message, first=1)


def test_a_rank_cannot_refer_to_the_file_of_another():
    manifest, disk = written_by_ranks({}, [{"rng": b"mine"}, {"rng": b"yours"}])
    thief = replace(manifest, ranks=(manifest.ranks[0], RankShare(1, manifest.ranks[0].state)))
    view = view_for(thief, rank=1, world_size=2, per_rank=["rng"])
    assert view.file_indices == (1,)
    with pytest.raises(AssertionError, match="a file of another rank"):
        read(view, disk)
    with pytest.raises(MalformedStateError, match="share the same bytes"):
        decode_state(thief.whole_state(), lambda *_: b"mine")


@pytest.mark.parametrize(
    ("ranks", "problem"),
    [
        ("two", "ranks"),
        ([{"files": 0, "state": {"dict": []}}], "ranks"),
        ([{"files": 2, "state": {"dict": []}}, {"files": 0, "state": {"dict": []}}], "ranks' files"),
        ([{"files": -1, "state": {"dict": []}}, {"files": 0, "state": {"dict": []}}], "ranks' files"),
        ([{"files": True, "state": {"dict": []}}, {"files": 0, "state": {"dict": []}}], "ranks' files"),
        ([{"files": 0, "state": []}, {"files": 0, "state": {"dict": []}}], "ranks' state"),
        ([{"files": 0, "state": {"dict": {}}}, {"files": 0, "state": {"dict": []}}], "ranks' state"),
        ([7, 8], "ranks"),
        *(
            ([{"files": 0, "state": {"dict": []}, "differences": found}] * 2, "ranks' differences")
            for found in (
                7,
                {},
                {"changed": []},
                {"changed": 7, "removed": []},
                {"changed": [["a", 7]], "removed": []},
                {"changed": [[["a"], {"own": 1}]], "removed": []},
                {"changed": [], "removed": [{"tuple": []}]},
                {"own": 1, "changed": [], "removed": []},
            )
        ),
    ],
)
def test_nonsense_about_ranks_is_refused(ranks, problem):
    import hashlib

    raw = manifest_bytes(Manifest(7, None, 1.0, "spotkeep", (DataFile("data-00000.bin", 0, ()),), {"dict": []}))
    body = json.dumps({**json.loads(raw)["manifest"], "ranks": ranks}, separators=(",", ":")).encode()
    digest = hashlib.sha256(body).hexdigest().encode()
    with pytest.raises(MalformedManifestError, match=f"the manifest's {problem} is"):
        parse_manifest(b'{"sha256":"' + digest + b'","manifest":' + body + b"}\n")
