"""The digest of a pass: the same batches give the same, another batch is found and named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.errors import UsageError
from spotkeep.loops.pass_digest import PassDigest, content_bytes, index_bytes

INDICES = st.lists(st.lists(st.integers(-(2**70), 2**70), max_size=5), min_size=1, max_size=40)


def digest_of(batches):
    digest = PassDigest()
    for batch in batches:
        digest.add(index_bytes(batch))
    return digest


@given(batches=INDICES)
def test_the_same_batches_are_the_same(batches):
    digest_of(batches).require_same(digest_of(batches).state_dict(), name="DataLoader")


@given(batches=INDICES, place=st.integers(0), other=st.lists(st.integers(), max_size=5))
def test_one_other_batch_is_found_and_the_message_says_where(batches, place, other):
    place %= len(batches)
    changed = [*batches[:place], other, *batches[place + 1 :]]
    if other == batches[place]:
        return
    with pytest.raises(UsageError, match="does not give the batches that were trained on") as caught:
        digest_of(changed).require_same(digest_of(batches).state_dict(), name="DataLoader")
    words = str(caught.value).split(" is another one")[0].split("batch ")[1].split()
    numbers = [int(word) for word in words if word.isdigit()]
    assert numbers[0] <= place + 1 <= numbers[-1], "the first other batch is among those that are named"


class Record:
    def __init__(self, text):
        self.text = text


CONTENTS = [
    *(None, True, 0, 1.5, "a", "b", b"a", [1, 2], [2, 1], (1, [2]), {"x": 1}, {"x": 2}, {"y": 1}),
    *(np.arange(3), np.arange(3.0), np.arange(4), np.zeros((2, 2)), np.array(["a", None], dtype=object)),
    *(Record("a"), Record("b"), np.zeros(10_000), np.eye(100), np.eye(100)[::-1].T + 1),
]


def test_what_batches_hold_tells_them_apart():
    found = [content_bytes(content) for content in CONTENTS]
    assert len({*found}) == len(CONTENTS)
    assert found == [content_bytes(content) for content in CONTENTS]


def test_where_a_sample_was_stored_is_not_its_content():
    assert content_bytes({"__url__": "here", "txt": "a"}) == content_bytes({"__url__": "there", "txt": "a"})


@pytest.mark.torch
def test_tensors_of_every_form_count():
    torch = pytest.importorskip("torch")
    large = torch.arange(200_000.0)
    contents = [
        *(
            torch.tensor(1.0),
            torch.tensor(1),
            torch.ones(3, dtype=torch.bfloat16),
            torch.zeros(3, dtype=torch.bfloat16),
        ),
        *(
            torch.empty(0),
            torch.empty(0, 2),
            large,
            large.flip(0),
            large.reshape(400, 500).t(),
            torch.eye(3).to_sparse(),
        ),
        torch.ones(2, requires_grad=True) * 3,
    ]
    assert len({content_bytes(content) for content in contents}) == len(contents)
