"""A restore brings back one whole checkpoint, or says what it could not.

What is one memory at the start of a script, and was two at the save, comes back as two. Else it stays one.
"""

from __future__ import annotations

import copy
import errno
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep import Checkpointer, DamagedCheckpointError, StateMismatchError
from spotkeep.disk.storage import ReadableFile
from spotkeep.restoring import SharedMemory


def test_arrays_in_containers_are_parted_from_what_has_their_memory_and_joined_where_equal():
    whole, other = np.arange(4.0), np.ones(2)
    best = {"weights": [whole, other], "mean": np.zeros(1)}
    shared = SharedMemory({"whole": whole, "best": best, "more": {"twice": other}})
    shared.part()
    assert best["weights"][0] is not whole
    assert best["weights"][1] is other, "the first one keeps its memory"
    best["weights"][0][:] = 7
    shared.join_where_equal()
    assert best["weights"][0].tolist() == [7] * 4
    assert whole.tolist() == [0, 1, 2, 3]
    best["weights"][0][:] = whole
    shared.join_where_equal()
    assert best["weights"][0] is whole


@pytest.mark.torch
@pytest.mark.parametrize("stays", [False, True], ids=["replaced by copies later", "the same memory all the time"])
def test_best_weights_that_are_the_models_own_memory_at_the_start(tmp_path, new_process, stays):
    torch = pytest.importorskip("torch")

    def trained(directory, stop_after=None):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        best = {"loss": float("inf"), "weights": dict(model.state_dict())}
        state = {"best": best, "model": model, "optimizer": optimizer}
        with Checkpointer(state, directory, every_steps=1) as checkpointer:
            for step in checkpointer.steps(9):
                optimizer.zero_grad()
                loss = model(torch.ones(2, 3) * step).square().mean()
                loss.backward()
                optimizer.step()
                if step % 3 == 0 and not stays:
                    best.update(loss=loss.item(), weights=copy.deepcopy(model.state_dict()))
                if step + 1 == stop_after:
                    raise KeyboardInterrupt
        return [value.tolist() for value in (*best["weights"].values(), *model.state_dict().values())]

    alone = trained(tmp_path / "alone")
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "cut", stop_after=6)
    new_process()
    assert trained(tmp_path / "cut") == alone


LARGE = 3 * 2**18 + 5
"""The elements of an array over more than three chunks, which ends within one."""


class Averages:
    """Writes to the memory of another entry when it gets its state back."""

    def __init__(self, weights, place):
        self._weights, self._place = weights, place

    def state_dict(self):
        return {"decay": 0.9}

    def load_state_dict(self, _state):
        self._weights[self._place] += 1


@pytest.mark.parametrize("place", [0, LARGE // 2, LARGE - 1])
def test_a_loader_that_changes_another_entry_is_found(tmp_path, place):
    weights = np.arange(LARGE, dtype=np.float32)
    state = {"weights": weights, "averages": Averages(weights, place)}
    Checkpointer(state, tmp_path).save(1, wait=True)
    with pytest.raises(StateMismatchError, match=r"state\['weights'\]: its values are not the saved ones"):
        Checkpointer(state, tmp_path).restore()


def test_two_entries_in_one_memory_do_not_take_two_values(tmp_path):
    one = np.arange(LARGE, dtype=np.float32)
    Checkpointer({"one": one, "other": (one + 1, 0)}, tmp_path).save(1, wait=True)
    with pytest.raises(StateMismatchError, match="its values are not the saved ones"):
        Checkpointer({"one": one, "other": (one, 0)}, tmp_path).restore()


def training(value):
    """Give arrays over several chunks, small ones between them, and ends within a chunk."""
    return {str(number): np.full(size, value, dtype=np.float32) for number, size in enumerate([LARGE, 7, 2**18, 9])}


@settings(max_examples=20, deadline=None)
@given(
    share=st.floats(0, 1, exclude_max=True),
    fault=st.sampled_from(["a flipped bit", "a read that fails", "a file that ends"]),
    cached=st.booleans(),
    alone=st.booleans(),
)
def test_damage_at_any_place_changes_nothing_or_gives_way_to_the_older_one(share, fault, cached, alone):
    """Whichever thread meets it, in the first pass over a checkpoint that stands alone, or while it is read."""
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        for step in (2,) if alone else (1, 2):
            Checkpointer(training(step), scratch).save(step, wait=True)
        data = Path(scratch, "step-2", "data-00000.bin")
        # Zeros that fill the file up are no damage to a value, and are verified all the same.
        place = int(share * data.stat().st_size)
        if fault == "a flipped bit":
            with data.open("r+b") as file:
                file.seek(place)
                byte = file.read(1)[0]
                file.seek(place)
                file.write(bytes([byte ^ 1]))
        really_read = ReadableFile.read_into

        def read_into(self, target, offset, **options):
            # A save that has ended still looks at what it may remove, with files that it opened before.
            here = getattr(self, "path", None) == data
            if fault == "a flipped bit" or not here or not offset <= place < offset + len(target):
                return really_read(self, target, offset, **options)
            if fault == "a read that fails":
                raise OSError(errno.EIO, "the disk has lost it")
            return really_read(self, target[: place - offset], offset, **options)

        really_open = ReadableFile.__init__

        def opened(self, path, **options):
            self.path = path
            really_open(self, path, **options)

        patch.setattr(ReadableFile, "__init__", opened)
        patch.setattr(ReadableFile, "read_into", read_into)
        patch.setattr(ReadableFile, "is_cached", lambda _file: cached)
        state = training(9)
        assert Checkpointer(state, scratch).restore() == (0 if alone else 1)
        expected = training(9 if alone else 1)
        assert all((state[name] == expected[name]).all() for name in state)


def test_on_nodes_damage_of_all_that_is_here_is_no_beginning(tmp_path, monkeypatch):
    """S3 has older ones, and the agent brings one of them to the next start."""
    Checkpointer({"a": [1]}, tmp_path).save(1, wait=True)
    (tmp_path / "step-1" / "manifest.json").write_bytes(b"damaged")
    assert Checkpointer({"a": [0]}, tmp_path).restore() == 0
    monkeypatch.setenv("SPOTKEEP_NODES", "2")
    with pytest.raises(DamagedCheckpointError, match=r"step-1/manifest\.json"):
        Checkpointer({"a": [0]}, tmp_path).restore()
