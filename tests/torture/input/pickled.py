"""Pickles with something else in one, two or three of their operations: most of each is as a reader expects it."""

from __future__ import annotations

import itertools
import pickletools
import struct

from hypothesis import strategies as st

_TEXTS = (b"", b"a", b"../x", b"\xed\xa0\x80", b"\x1b]52;c;aGk=\x07", b"x" * 5000)
_VALUES = [
    *(b"N", b"\x88", b"]", b"}", b")", b"\x8f", b"G\x7f\xf0\0\0\0\0\0\0", b"G\xff\xf8\0\0\0\0\0\1", b"K\0", b"K\2"),
    *(b"J" + struct.pack("<i", number) for number in (-1, 7, 2**31 - 1)),
    *(b"\x8a\x09" + (2**power).to_bytes(9, "little") for power in (40, 61, 62, 70)),
    *(b"\x8b\xb0\x04\0\0" + b"\x7f" * 1200, b"I" + b"9" * 5000 + b"\n", b"L" + b"1" * 400 + b"L\n", b"F1e999\n"),
    *(b"X" + struct.pack("<I", len(text)) + text for text in _TEXTS),
    *(b"ctorch\n%s\n" % name for name in (b"Size", b"device", b"float32", b"LongStorage", b"QInt8Storage")),
    *(b"cbuiltins\n%s\n" % name for name in (b"complex", b"bytearray", b"set")),
    *(b"ccollections\n%s\n" % name for name in (b"OrderedDict", b"Counter")),
    *(b"ctorch._utils\n_rebuild_%s\n" % name for name in (b"tensor_v2", b"parameter", b"from_type_v2")),
    *(b"ctorch._tensor\n_rebuild_from_type_v2\n", b"c_codecs\nencode\n", b"cos\nsystem\n"),
    b"]2a",  # a list in itself
    b"]" + b"2\x86" * 40,  # 2^40 of a list, in tuples of two
    b"K\1" + b"2\x86" * 40,
    b"cbuiltins\nset\n" + b"2\x85R" * 40,  # a call of a call with a call
    b")" + b"\x85" * 300_000,
    b"]" * 3_000 + b"a" * 2_999,
    b"(X\0\0\x10\0" + b"x" * 2**20 + b"\x85q\x01" + b"c_codecs\nencode\nh\x01R" * 999 + b"l",  # a megabyte, 999 times
]  # fmt: skip
"""Operations that leave one value."""
_ACTS = [
    *(bytes([code]) for code in b"(.012eatldusRbQo\x81\x85\x86\x87\x90\x91\x92\x93\x94\x97\x98"),
    *(b"h\0", b"h\1", b"q\0", b"q\1", b"r\xff\xff\xff\xff", b"j\xff\xff\xff\xff", b"p7\n", b"g7\n", b"p-1\n", b"Px\n"),
    *(code + struct.pack("<Q", 2**62) for code in (b"\x8e", b"\x8d", b"\x96", b"\x95")),
    *(b"\x80\x05", b"\x82\1", b"ia\nb\n", b"T\xff\xff\xff\xff", b"\x8b\xff\xff\xff\xff"),
]
"""Operations that use what others have left."""
OPERATIONS = st.sampled_from(_VALUES) | st.sampled_from(_ACTS) | st.binary(max_size=4)
ROWS = st.lists(OPERATIONS, max_size=30).map(lambda row: b"\x80\2" + b"".join(row) + b".")
"""Pickles of such operations alone."""


def mutated_pickle(raw: bytes) -> st.SearchStrategy[bytes]:
    """Give copies of a pickle with up to three operations replaced, or with others before them."""
    places = [at for _, _, at in pickletools.genops(raw) if at is not None]
    operations = [raw[start:end] for start, end in itertools.pairwise([*places, len(raw)])]

    def changed(changes: list[tuple[int, bytes, bool]]) -> bytes:
        row = list(operations)
        for at, other, before in changes:
            row[at] = other + (row[at] if before else b"")
        return b"".join(row)

    place = st.integers(1, len(operations) - 2)
    return st.lists(st.tuples(place, OPERATIONS, st.booleans()), min_size=1, max_size=3).map(changed)
