"""What is one memory at the start of a script, and was two at the save, comes back as two; else it stays one."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from spotkeep import Checkpointer
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
