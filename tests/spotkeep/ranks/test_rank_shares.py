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
    ShareNumbers,
    WrittenShare,
    encode_share,
    even_ranges,
    merged,
    own_bytes,
    share_numbers,
    states_of_ranks,
    view_for,
)
from spotkeep.state.decoding import decode_state
from spotkeep.state.encoding import MalformedStateError, encode_state

# Any value comes back: in test_encoding. Here it counts which of them have files.
PLAIN = st.none() | st.integers() | st.text(max_size=5) | st.binary(max_size=9) | st.integers(0, 9).map(np.arange)
VALUES = PLAIN | st.lists(PLAIN, max_size=2) | st.dictionaries(st.text(max_size=5), PLAIN, max_size=2)
STATES = st.dictionaries(st.sampled_from(["model", "optimizer", "file", "offset", "dict"]), VALUES, max_size=3)
OWN = st.dictionaries(st.sampled_from(["rng", "sampler", "files"]), VALUES, max_size=2)


def content(part):
    """The bytes of one rank's part of a stream, as a disk would have them."""
    raw = bytearray(part.size)
    for blob in part.blobs:
        raw[blob.offset : blob.offset + len(blob.raw)] = bytes(blob.raw)
    return bytes(raw)


def written_by_ranks(common, owns):
    """What several ranks write together, without a disk. Gives the manifest, and the streams."""
    parts = [(encode_state(common), encode_state(own)) for own in owns]
    sizes = [own_bytes(*of_rank) for of_rank in parts]
    encoded = [encode_share(*of_rank, rank=rank, own_bytes=sizes) for rank, of_rank in enumerate(parts)]
    disk, shares = [bytearray(), *(b"" for _ in owns)], []
    counts = [[int(part.size > 0) for part in one.parts] for one in encoded]
    for rank, (one, numbers) in enumerate(zip(encoded, share_numbers(counts), strict=True)):
        common_bytes, disk[rank + 1] = map(content, one.parts)
        disk[0] += common_bytes
        files = [
            (DataFile(data_file_name(number), len(raw), ("00000000",) * -(-len(raw) // 2**20)),) if raw else ()
            for number, raw in ((numbers.common, common_bytes), (numbers.own, disk[rank + 1]))
        ]
        share = WrittenShare(*files, one.document.share, one.document.boxes)
        shares.append(WrittenShare.from_message(json.loads(json.dumps(share.as_message())), numbers))
    streams, ranks, divided = merged(shares)
    manifest = Manifest(7, None, 1.0, "spotkeep", streams, encoded[0].document.common, ranks=ranks, divided=divided)
    return parse_manifest(manifest_bytes(manifest)), disk


def read(document, disk):
    return decode_state(document, lambda stream, offset, size: bytes(disk[stream][offset : offset + size]))


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
    assert [sum(file.size for file in stream) for stream in manifest.streams] == list(map(len, disk))
    for rank, own in enumerate(owns):
        view = view_for(manifest, rank=rank, world_size=len(owns), per_rank=own)
        assert same(read(view, disk), {**common, **own})


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
    found = read(manifest.whole_state(), disk)
    assert same(found, {**common, **{f"rank {rank}": own for rank, own in enumerate(owns) if own}})


def test_one_process_wrote_the_state_of_its_only_rank():
    state = {"dict": [["model", 1], ["rng", 2]]}
    manifest = Manifest(7, None, 1.0, "spotkeep", ((),), state)
    assert view_for(manifest, rank=1, world_size=2, per_rank=["rng"]) == {"dict": [["model", 1]]}
    assert states_of_ranks(manifest, per_rank=["rng"]) == {"dict": [["0", {"dict": [["rng", 2]]}]]}
    assert view_for(manifest, rank=1, world_size=2, per_rank=[]) == state


def test_two_ranks_cannot_claim_the_same_file():
    share = WrittenShare((DataFile("data-00000.bin", 0, ()),), (), RankShare({"dict": []}), ())
    with pytest.raises(MalformedManifestError, match="file name"):
        WrittenShare.from_message(share.as_message(), ShareNumbers(1, 2))


def test_two_ranks_cannot_refer_to_the_same_bytes():
    manifest, disk = written_by_ranks({}, [{"rng": b"mine"}, {"rng": b"yours"}])
    thief = replace(manifest, ranks=(manifest.ranks[0], manifest.ranks[0]))
    with pytest.raises(MalformedStateError, match="share the same bytes"):
        read(thief.whole_state(), disk)


@given(size=st.integers(0, 40 * 2**20), owns=st.lists(st.integers(0, 20 * 2**20), min_size=2, max_size=8))
def test_all_ranks_write_about_as_many_bytes(size, owns):
    ranges = even_ranges(size, owns)
    assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert ranges[-1][1] == size
    assert all(start % 2**20 == 0 or start == end == size for start, end in ranges), "whole chunks"
    written = [own + end - start for own, (start, end) in zip(owns, ranges, strict=True)]
    assert max(written) <= max(max(owns), -(-(size + sum(owns)) // len(owns))) + 2**20
    # No rank gets more while another one has less.
    given_more = [count for count, own in zip(written, owns, strict=True) if count > own]
    assert not given_more or max(given_more) - min(written) <= 2 * 2**20


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

    raw = manifest_bytes(Manifest(7, None, 1.0, "spotkeep", ((DataFile("data-00000.bin", 0, ()),),), {"dict": []}))
    body = json.dumps({**json.loads(raw)["manifest"], "ranks": ranks}, separators=(",", ":")).encode()
    digest = hashlib.sha256(body).hexdigest().encode()
    with pytest.raises(MalformedManifestError, match=f"the manifest's {problem} is"):
        parse_manifest(b'{"sha256":"' + digest + b'","manifest":' + body + b"}\n")
