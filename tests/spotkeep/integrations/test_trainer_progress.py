"""The position of a Trainer, made of those of another number of ranks."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from accelerate.data_loader import BatchSamplerShard, SeedableRandomSampler  # noqa: E402
from torch.utils.data import BatchSampler  # noqa: E402

from spotkeep import UsageError  # noqa: E402
from spotkeep.integrations.trainer_progress import KeyedBatches, TrainerProgress  # noqa: E402
from spotkeep.loops.order_memory import OrderMemory  # noqa: E402
from spotkeep.loops.pass_digest import PassDigest, index_bytes  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.long]

BATCH = 8


class Counts(transformers.TrainerCallback):
    def __init__(self):
        self.count = 0

    def state_dict(self):
        return {"count": self.count, "values": torch.tensor([self.count])}

    def load_state_dict(self, state):
        self.count = state["count"]


class CountsOfAll(Counts):
    def load_rank_states(self, states, *, rank, world_size):
        self.count = sum(state["count"] for state in states) // world_size + rank


def progress(tmp_path, callback):
    trainer = transformers.Trainer(
        model=torch.nn.Linear(2, 2),
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=BATCH, report_to=[], use_cpu=True
        ),
        callbacks=[callback],
    )
    trainer._tr_loss, trainer._globalstep_last_logged = torch.tensor(0.0), 0
    return TrainerProgress(trainer, ours=None)


def states_of_ranks(one, *, losses, counts, samples_a_step, steps):
    """Give the states of ranks that are in the second epoch, which began after two steps."""
    saved = one.state_dict()
    state = json.dumps({**json.loads(saved["state"]), "global_step": 2 + steps})
    return [
        {
            **saved,
            "state": state,
            "epoch": {"number": 1, "first_step": 2, "random": {"rank": rank}, "order": {}},
            "samples_a_step": samples_a_step,
            "callbacks": [
                [name, callback if "count" not in callback else {"count": count, "values": torch.tensor([count])}]
                for name, callback in saved["callbacks"]
            ],
            "loss": torch.tensor(loss),
        }
        for rank, (loss, count) in enumerate(zip(losses, counts, strict=True))
    ]


def test_a_place_is_counted_in_the_samples_of_all_ranks(tmp_path, caplog):
    one = progress(tmp_path, Counts())
    states = states_of_ranks(one, losses=[1.0, 2.0, 6.0], counts=[4, 4, 4], samples_a_step=3 * BATCH, steps=2)
    one.load_rank_states(states, rank=0, world_size=1)
    assert (one.epoch.number, one.epoch.first_step) == (1, 4 - 2 * 3)
    assert one.epoch.random == {"rank": 0}, "the ranks draw one order together"
    assert one.steps_changed
    assert float(one.restored["loss"]) == 3
    assert one.callbacks.state_dict()[-1][1]["count"] == 4
    assert caplog.messages == ["a step had 24 samples, and has 8 with 1 ranks from here on"]


def test_a_place_within_a_step_is_refused_with_what_to_do(tmp_path):
    one = progress(tmp_path, Counts())
    states = states_of_ranks(one, losses=[1.0, 1.0], counts=[4, 4], samples_a_step=BATCH + 4, steps=3)
    with pytest.raises(
        ValueError, match=r"36 samples of epoch 1 are done, and steps of 8 on 1 .* step have 12 samples"
    ):
        one.load_rank_states(states, rank=0, world_size=1)


@pytest.mark.parametrize("seed", [3, 4])
def test_the_order_of_other_ranks_is_compared_where_the_pass_begins(tmp_path, seed):
    def order_of(seed):
        return SeedableRandomSampler(range(64), data_seed=seed)

    of_two = iter(BatchSamplerShard(BatchSampler(order_of(3), BATCH // 2, drop_last=False), 2, 0))
    digest = PassDigest()
    for _ in range(3):
        digest.add(index_bytes(next(of_two)))
    one = progress(tmp_path, Counts())
    states = states_of_ranks(one, losses=[1.0, 1.0], counts=[4, 4], samples_a_step=BATCH, steps=3)
    for state in states:
        state["batches"] = {"count": 3, "digest": digest.state_dict(), "batch": BATCH // 2}
    one.load_rank_states(states, rank=0, world_size=1)
    batches = BatchSampler(order_of(seed), BATCH, drop_last=False)
    one.order = OrderMemory({"sampler": batches})
    keyed = iter(KeyedBatches(batches, lambda: b"", one.pass_begins))
    if seed == 3:
        assert [batch.index for batch in keyed] == [*BatchSampler(order_of(3), BATCH, drop_last=False)]
    else:
        with pytest.raises(UsageError, match="with another number of ranks than 2, does not give the batches"):
            next(keyed)


def test_as_many_samples_a_step_change_no_schedule(tmp_path):
    one = progress(tmp_path, Counts())
    one.load_rank_states(
        states_of_ranks(one, losses=[1.0, 1.0], counts=[4, 4], samples_a_step=BATCH, steps=3), rank=0, world_size=1
    )
    assert (one.epoch.first_step, one.steps_changed) == (2, False)


def test_callbacks_that_differ_are_refused_by_name_or_take_the_states_of_all(tmp_path):
    one = progress(tmp_path, Counts())
    states = states_of_ranks(one, losses=[1.0, 1.0], counts=[4, 5], samples_a_step=BATCH, steps=3)
    with pytest.raises(ValueError, match=r"the callback Counts .* 2 ranks .* load_rank_states\(states"):
        one.load_rank_states(states, rank=0, world_size=1)
    of_all = progress(tmp_path, CountsOfAll())
    states = states_of_ranks(of_all, losses=[1.0, 1.0], counts=[4, 6], samples_a_step=BATCH, steps=3)
    of_all.load_rank_states(states, rank=1, world_size=2)
    of_all.put_back()
    assert of_all.callbacks.state_dict()[-1][1]["count"] == 6
