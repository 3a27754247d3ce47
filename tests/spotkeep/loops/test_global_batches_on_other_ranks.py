"""Each kind of loader goes on with another number of ranks exactly, or is refused by name before its first batch.

The ranks are trainings of this process, one after the other. They hand their places over as a checkpoint does.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import warnings
from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, Sampler  # noqa: E402

from spotkeep import GlobalBatches, ResumableTraining, UsageError  # noqa: E402
from spotkeep.loops import global_batches  # noqa: E402
from tests.pages.every_block import placed_blocks  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.enable_socket]
LENGTH = 48


@pytest.fixture(autouse=True)
def _workers_end_at_once(monkeypatch):
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)


class Rows(Dataset):
    """The number of a row, and one drawn while it is loaded."""

    def __init__(self, length=LENGTH):
        self.length = length
        self.noise = random.Random(5)  # noqa: S311

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return index, float(torch.rand(())), self.noise.random()


class RowsAtOnce(Rows):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class World:
    """A number of ranks.

    Args:
        folder: A folder for each rank.
        make: Makes a rank's loader, from its number and the number of ranks.
        ranks: The number of ranks.
        states: The places of the ranks before, if there were some.
    """

    def __init__(self, folder, make, ranks, states=None, **options):
        self.batches = []  # of each rank: an epoch and a batch
        self.states = []
        self._made = (folder, make, ranks, states, options)

    def go(self, stop_at=None):
        """Let each rank leave after a batch of an epoch, or go to the end of two epochs."""
        folder, make, ranks, states, options = self._made
        for rank in range(ranks):
            torch.manual_seed(100 + rank)
            training = ResumableTraining({"w": [rank]}, directory=folder / f"{ranks} {rank}", **options)
            progress = training.checkpointer._setup.state.per_rank["loop"]
            made = make(rank, ranks)
            loader, sampler = training.loader(made), made.sampler
            if states is not None:
                progress.load_rank_states(states, rank=rank, world_size=ranks)
            self.batches.append([])
            with contextlib.suppress(SystemExit):
                for epoch in training.epochs(2):
                    if isinstance(sampler, DistributedSampler):
                        sampler.set_epoch(epoch)
                    for number, batch in enumerate(loader, loader.start):
                        rows, *drawn = batch if isinstance(batch, list) else (batch,)
                        self.batches[rank].append((epoch, number, rows.tolist(), [one.tolist() for one in drawn]))
                        if (epoch, number) == stop_at:
                            os.kill(os.getpid(), signal.SIGTERM)
            self.states.append(progress.state_dict())
        return self


def together(*worlds):
    """Give the batches of all ranks together: an epoch and the rows."""
    return [
        (parts[0][0], [row for part in parts for row in part[2]])
        for world in worlds
        for parts in zip(*world.batches, strict=True)
    ]


def interrupted(folder, make, *parts, **options):
    """Train in parts, each on a number of ranks and up to a batch of an epoch."""
    worlds, states = [], None
    for number, (ranks, stop_at) in enumerate(parts):
        worlds.append(World(folder / str(number), make, ranks, states, **options).go(stop_at))
        states = worlds[-1].states
    return worlds


def in_global_batches(data=Rows, kind=DataLoader, length=LENGTH, workers=0, **options):
    def make(rank, ranks):
        batches = GlobalBatches(length, **{"batch_size": 12, "seed": 3, "rank": rank, "world_size": ranks, **options})
        return kind(data(length), batch_sampler=batches, num_workers=workers)

    return make


def dealt(batch_of, length=LENGTH, **options):
    def make(rank, ranks):
        sampler = DistributedSampler(range(length), ranks, rank, seed=3, **options)
        return DataLoader(range(length), batch_of[ranks], sampler=sampler)

    return make


def stateful(*arguments, **options):
    from torchdata.stateful_dataloader import StatefulDataLoader

    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of what torchdata asks of torch
        return StatefulDataLoader(*arguments, **options)


KINDS = {
    "plain": {},
    "loaded at once": {"data": RowsAtOnce},
    "torchdata": {"kind": stateful},
    "lengths that do not divide": {"length": 50, "uneven": True, "drop_last": True},
    "uneven slices": {"length": 55, "batch_size": 11, "uneven": True},
    "without shuffle": {"shuffle": False},
}


@pytest.mark.parametrize("name", KINDS)
def test_global_batches_are_those_of_one_rank_that_was_left_alone(tmp_path, name):
    make = in_global_batches(**KINDS[name])
    alone = World(tmp_path / "alone", make, 1).go()
    parts = interrupted(tmp_path, make, (2, (0, 1)), (3, (0, 2)), (1, (0, 3)), (4, (1, 0)), (2, None))
    assert together(*parts) == together(alone)
    drawn = {
        (epoch, row): numbers
        for epoch, _, rows, (noise, own) in alone.batches[0]
        for row, *numbers in zip(rows, noise, own, strict=True)
    }
    assert len(set(map(tuple, drawn.values()))) == len(drawn), "each sample has random numbers of its own"
    for world in parts:
        for batches in world.batches:
            for epoch, _, rows, (noise, own) in batches:
                assert [drawn[epoch, row] for row in rows] == [*map(list, zip(noise, own, strict=True))]


@pytest.mark.parametrize("kind", [DataLoader, stateful])
def test_workers_of_any_number_change_neither_batches_nor_random_numbers(tmp_path, kind):
    alone = World(tmp_path / "alone", in_global_batches(kind=kind), 1).go()
    states, seen = None, []
    for number, (ranks, workers, stop_at) in enumerate([(2, 1, (0, 1)), (3, 2, (1, 0)), (1, 1, None)]):
        make = in_global_batches(kind=kind, workers=workers)
        world = World(tmp_path / str(number), make, ranks, states).go(stop_at)
        states = world.states
        seen += [
            (parts[0][0], [one for part in parts for one in zip(part[2], *part[3], strict=True)])
            for parts in zip(*world.batches, strict=True)
        ]
    assert seen == [(epoch, list(zip(rows, *drawn, strict=True))) for epoch, _, rows, drawn in alone.batches[0]]


def test_gradients_that_are_added_up_over_batches_stay_together(tmp_path):
    make = in_global_batches(length=72)
    alone = World(tmp_path / "alone", make, 1, batches_per_step=2).go()
    parts = interrupted(tmp_path, make, (2, (0, 2)), (3, (1, 1)), (1, None), batches_per_step=2)
    assert together(*parts) == together(alone)
    assert [len(world.batches[0]) for world in parts] == [4, 4, 4], "no save comes in the middle of a step"


def test_batch_a_million_is_taken_without_the_batches_before_it(tmp_path, monkeypatch):
    class Endless(Rows):
        def __getitem__(self, index):
            loaded.append(index)
            return index

    loaded, asked = [], []
    at = global_batches._Order.__getitem__
    monkeypatch.setattr(
        global_batches._Order, "__getitem__", lambda order, place: asked.append(place) or at(order, place)
    )
    make = in_global_batches(Endless, length=10**9)
    states = World(tmp_path / "before", make, 1).go((0, 0)).states
    states[0]["loaders"][0]["position"] = 10**6
    loaded.clear()
    asked.clear()
    after = World(tmp_path / "after", make, 2, states).go((0, 10**6))
    assert [[number for _, number, *_ in batches] for batches in after.batches] == [[10**6]] * 2
    assert asked == list(range(12 * 10**6, 12 * 10**6 + 12))
    assert loaded == [row for batches in after.batches for row in batches[0][2]]


def in_epochs(folder, *, stop_after=None, made_anew=False, set_late=False):
    """Train on three epochs of four batches, with a sampler or a loader as a script may have it. Gives the batches."""
    training = ResumableTraining({"w": [0]}, directory=folder, every_steps=1)
    batches = GlobalBatches(LENGTH, batch_size=12, seed=3)
    lasting = None if made_anew else training.loader(DataLoader(range(LENGTH), batch_sampler=batches))
    seen = []
    with contextlib.suppress(SystemExit):
        for epoch in training.epochs(3):
            loader = lasting or training.loader(DataLoader(range(LENGTH), batch_sampler=batches))
            for batch in loader:
                seen.append((epoch, batch.tolist()))
                if len(seen) == stop_after:
                    os.kill(os.getpid(), signal.SIGTERM)
            if set_late:
                batches.set_epoch(50 - epoch)
    return seen


@pytest.mark.parametrize("stop_after", range(1, 12))
@pytest.mark.parametrize("way", ["made_anew", "set_late"])
def test_an_interruption_changes_no_batch_of_a_loader_made_anew_or_of_epochs_set_late(tmp_path, way, stop_after):
    alone = in_epochs(tmp_path / "alone", **{way: True})
    before = in_epochs(tmp_path / "run", stop_after=stop_after, **{way: True})
    assert before + in_epochs(tmp_path / "run", **{way: True}) == alone
    orders = [[row for at, batch in alone if at == epoch for row in batch] for epoch in range(3)]
    assert all(sorted(order) == list(range(LENGTH)) for order in orders)
    assert len(set(map(tuple, orders))) == 3, "each epoch has an order of its own"
    if way == "made_anew":
        assert alone == in_epochs(tmp_path / "lasting")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"seed": 4}, "seed was 3 and is 4"),
        ({"batch_size": 24}, "batch_size was 12 and is 24"),
        ({"length": 49, "uneven": True, "drop_last": True}, "length was 48 and is 49, drop_last was False and is True"),
    ],
)
def test_other_global_batches_in_the_middle_of_a_pass_are_refused(tmp_path, options, problem):
    states = World(tmp_path / "before", in_global_batches(), 2).go((0, 1)).states
    world = World(tmp_path / "after", in_global_batches(**options), 1, states)
    with pytest.raises(UsageError, match=problem):
        world.go()
    assert not any(world.batches)


def test_a_data_set_of_another_length_is_refused_or_named_before_the_first_batch(tmp_path, caplog):
    def world(name, samples):
        batches = GlobalBatches(60, batch_size=12, rank=0, world_size=1)
        return World(tmp_path / name, lambda _, __: DataLoader(Rows(samples), batch_sampler=batches), 1)

    short = world("short", 48)
    with pytest.raises(UsageError, match=r"a length of 60, and the data set has 48 samples; pass len\(data\)"):
        short.go()
    assert not any(short.batches)
    world("long", 62).go()
    assert [record.message for record in caplog.records] == [
        "GlobalBatches has a length of 60, and the data set has 62 samples: the last 2 never come; pass len(data)"
    ]


def test_batches_that_accelerate_would_divide_once_more_are_refused(tmp_path):
    shards = pytest.importorskip("accelerate.data_loader").BatchSamplerShard
    batches = GlobalBatches(LENGTH, batch_size=12, rank=0, world_size=2)
    loader = DataLoader(Rows(), batch_sampler=shards(batches, 2, 0))
    with pytest.raises(
        UsageError, match=r"accelerate divides the batches of its loaders .* pass it the loader as it is"
    ):
        ResumableTraining({"w": [1]}, directory=tmp_path).loader(loader)


@pytest.mark.parametrize("data", [Rows, IterableDataset])
def test_a_stream_of_mosaicml_is_refused_where_its_loader_is_made_and_the_way_out_named(tmp_path, data):
    # A resume in its first epoch goes on. In a later one it gives other batches, and the digest of the pass refuses it.
    dataset = type("StreamingDataset", (data,), {"__module__": "streaming.base.dataset", "__iter__": None})
    own = type("Own", (dataset,), {})()
    with pytest.raises(UsageError, match=r"a Checkpointer with the StreamingDataLoader in its state"):
        ResumableTraining({"w": [1]}, directory=tmp_path).loader(DataLoader(own))


def test_another_sampler_in_the_middle_of_a_pass_over_global_batches_is_refused(tmp_path):
    states = World(tmp_path / "before", in_global_batches(), 2).go((0, 1)).states
    with pytest.raises(UsageError, match="was in batches of all ranks then, and is gone through by each rank now"):
        World(tmp_path / "on others", lambda _, ranks: DataLoader(Rows(), 12 // ranks), 1, states).go()


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (in_global_batches(), in_global_batches(seed=4), "seed was 3 and is 4"),
        (
            in_global_batches(),
            dealt({2: 6}),
            "in the middle of a pass over GlobalBatches, and the DataLoader has another",
        ),
        (dealt({2: 6}), in_global_batches(), "in another order than that of GlobalBatches"),
    ],
)
def test_so_they_are_on_as_many_ranks(tmp_path, before, after, problem):
    World(tmp_path, before, 2).go((0, 1))
    with pytest.raises(UsageError, match=problem):
        World(tmp_path, after, 2).go()


def test_one_order_that_is_dealt_out_goes_on_in_the_same_batches(tmp_path, caplog):
    make = dealt({1: 12, 2: 6, 3: 4})
    alone = [(epoch, sorted(rows)) for epoch, rows in together(World(tmp_path / "alone", make, 1).go())]
    parts = interrupted(tmp_path, make, (2, (0, 1)), (3, (0, 2)), (1, (1, 0)), (2, None))
    assert [(epoch, sorted(rows)) for epoch, rows in together(*parts)] == alone
    assert not caplog.records


def of_accelerate(batch_of, *, split_batches=False, shuffle=True):
    """Give what `accelerator.prepare` gives a rank."""
    from accelerate.data_loader import prepare_data_loader

    def make(rank, ranks):
        loader = DataLoader(range(LENGTH), batch_of[ranks], shuffle=shuffle)
        return prepare_data_loader(
            loader, num_processes=ranks, process_index=rank, split_batches=split_batches, put_on_device=False,
            use_seedable_sampler=True, data_seed=3,
        )  # fmt: skip

    return make


def of_fabric(rank, ranks):
    from lightning.fabric.wrappers import _FabricDataLoader

    return _FabricDataLoader(dealt({1: 12, 2: 6, 3: 4})(rank, ranks))


LOADERS_OF_LIBRARIES = {
    "accelerate": lambda: of_accelerate({1: 12, 2: 6, 3: 4}),
    "accelerate, split": lambda: of_accelerate({1: 12, 2: 12, 3: 12}, split_batches=True),
    "fabric": lambda: of_fabric,
}


@pytest.mark.parametrize("name", LOADERS_OF_LIBRARIES)
def test_loaders_of_libraries_deal_out_one_order(tmp_path, name):
    pytest.importorskip("lightning" if name == "fabric" else "accelerate")
    make = LOADERS_OF_LIBRARIES[name]()
    alone = [(epoch, sorted(rows)) for epoch, rows in together(World(tmp_path / "alone", make, 1).go())]
    parts = interrupted(tmp_path, make, (2, (0, 1)), (3, (0, 2)), (1, (1, 0)), (2, None))
    assert [(epoch, sorted(rows)) for epoch, rows in together(*parts)] == alone


def test_an_order_of_accelerate_by_another_seed_is_refused(tmp_path):
    states = World(tmp_path / "before", of_accelerate({2: 6}), 2).go((0, 1)).states
    with pytest.raises(UsageError, match="on 3 ranks in place of 2 does not give the batches that were trained on"):
        World(tmp_path / "after", of_accelerate({3: 4}, shuffle=False), 3, states).go()


def test_other_batches_of_one_order_are_remarked_on_and_each_sample_comes_once(tmp_path, caplog):
    parts = interrupted(tmp_path, dealt({2: 6, 3: 2}), (2, (0, 1)), (3, None))
    times = Counter((epoch, row) for epoch, rows in together(*parts) for row in rows)
    assert set(times.values()) == {1}
    assert len(times) == 2 * LENGTH
    assert [record.message for record in caplog.records] == [
        "DataLoader, from here on 3 ranks: a batch of all ranks had 12 samples, and has 6 now"
    ]


def by_rank(rank, ranks):
    return DataLoader(torch.utils.data.Subset(Rows(), range(rank, LENGTH, ranks)), 4, shuffle=True)


def in_blocks(rank, ranks):
    share = LENGTH // ranks
    return DataLoader(torch.utils.data.Subset(Rows(), range(rank * share, (rank + 1) * share)), 4)


class Own(Sampler):
    """Deals out like DistributedSampler, in a class that is not known."""

    def __init__(self, rank, ranks, length):
        self.rows = range(rank, length, ranks)

    def __iter__(self):
        return iter(self.rows)

    def __len__(self):
        return len(self.rows)


class Stream(IterableDataset):
    def __init__(self, rank=0, ranks=1, *, blocks=False):
        share = LENGTH // ranks
        self.rows = range(rank * share, (rank + 1) * share) if blocks else range(rank, LENGTH, ranks)

    def __iter__(self):
        return iter(self.rows)


def seeded_otherwise(rank, ranks):
    sampler = DistributedSampler(range(LENGTH), ranks, rank, seed=ranks)
    return DataLoader(range(LENGTH), 12 // ranks, sampler=sampler)


def shuffled_alone(rank, ranks):
    if ranks == 1:
        return DataLoader(range(LENGTH), 12, shuffle=True)
    return dealt({2: 6, 3: 4})(rank, ranks)


ANOTHER_DIVISION = {
    "a part of the data for each rank": (by_rank, "so each rank has a part of the data"),
    "a block of the data for each rank": (in_blocks, "so each rank has a part of the data"),
    "a sampler that is not known": (
        lambda rank, ranks: DataLoader(range(LENGTH), 4, sampler=Own(rank, ranks, LENGTH)),
        "so each rank has a part",
    ),
    # Both numbers of ranks have two batches a rank of these 13 samples.
    "a sampler that is not known, with as many batches": (
        lambda rank, ranks: DataLoader(range(13), 4, sampler=Own(rank, ranks, 13)),
        "does not give the batches that were trained on|gone through by each|each rank has a part",
    ),
    "a stream of each rank": (lambda rank, ranks: DataLoader(Stream(rank, ranks), 4), "each rank had batches of its"),
    "a stream of blocks": (
        lambda rank, ranks: DataLoader(Stream(rank, ranks, blocks=True), 4),
        "each rank had batches of its own",
    ),
    "batches that do not end there": (dealt({1: 4, 2: 4, 3: 4}), "16 samples of the pass are done, and steps of 12"),
    "an order by another seed": (seeded_otherwise, "does not give the batches that were trained on"),
}


@pytest.mark.parametrize("name", ANOTHER_DIVISION)
def test_what_is_divided_in_another_way_is_refused_before_the_first_batch(tmp_path, name):
    make, problem = ANOTHER_DIVISION[name]
    states = World(tmp_path / "before", make, 2).go((0, 0 if "as many" in name else 1)).states
    for ranks in (3, 1):
        if name == "batches that do not end there" and ranks == 1:
            continue  # 16 samples are four batches of one rank
        world = World(tmp_path / f"after {ranks}", make, ranks, states)
        with pytest.raises(UsageError, match=problem):
            world.go()
        assert not any(world.batches)


def test_the_page_shows_the_refusal(tmp_path):
    """The block of exact-data.md is the message of such a training."""
    states = World(tmp_path / "before", dealt({2: 4}), 2).go((0, 1)).states
    with pytest.raises(UsageError) as refused:
        World(tmp_path / "after", dealt({3: 4}), 3, states).go()
    (block,) = (
        placed.block
        for placed in placed_blocks()
        if placed.block.test == "tests/spotkeep/loops/test_global_batches_on_other_ranks.py"
    )
    assert block.content.split() == f"spotkeep.errors.UsageError: {refused.value}".split()


def test_a_script_that_shuffles_in_another_way_on_one_rank_is_refused(tmp_path):
    one = World(tmp_path / "one", shuffled_alone, 1).go((0, 1)).states
    with pytest.raises(UsageError, match="on 2 ranks in place of 1 does not give the batches that were trained on"):
        World(tmp_path / "two", shuffled_alone, 2, one).go()
    two = World(tmp_path / "from two", shuffled_alone, 2).go((0, 1)).states
    with pytest.raises(UsageError, match="dealt out from one order then, and is gone through by each rank now"):
        World(tmp_path / "to one", shuffled_alone, 1, two).go()


def test_one_stream_from_two_ranks_on_is_refused_where_the_new_rank_has_another_one(tmp_path):
    one = World(tmp_path / "one", lambda rank, ranks: DataLoader(Stream(rank, ranks, blocks=True), 4), 1).go((0, 1))
    world = World(tmp_path / "two", lambda rank, ranks: DataLoader(Stream(rank, ranks, blocks=True), 4), 2, one.states)
    with pytest.raises(UsageError, match="on 2 ranks in place of 1 does not give the batches"):
        world.go()


@pytest.mark.parametrize(
    "make",
    [
        lambda rank, ranks: DataLoader(Stream(), 4),
        lambda rank, ranks: DataLoader(range(LENGTH), 4),
        lambda rank, ranks: DataLoader(range(LENGTH), 4, shuffle=True),
    ],
    ids=["a stream", "in order", "shuffled"],
)
def test_data_that_each_rank_goes_through_goes_on_at_the_batch(tmp_path, make):
    parts = interrupted(tmp_path, make, (2, (0, 4)), (3, (0, 6)), (1, None))
    alone = World(tmp_path / "alone", make, 2).go()
    rows = [(epoch, row) for world in parts for epoch, _, rows, _ in world.batches[0] for row in rows]
    assert rows[:LENGTH] == [(epoch, row) for epoch, _, rows, _ in alone.batches[0] for row in rows][:LENGTH]


def test_a_file_of_each_rank_with_as_many_rows_is_named(tmp_path, caplog):
    """The indices of rows are the same in each file. So nothing shows that rank 2 and 3 had files of their own."""
    files = [[100 * number + row for row in range(12)] for number in range(4)]
    parts = interrupted(tmp_path, lambda rank, _: DataLoader(files[rank], 4), (4, (0, 0)), (2, None))
    assert {row // 100 for batches in parts[1].batches for _, _, rows, _ in batches for row in rows} == {0, 1}
    (record,) = caplog.records
    assert record.message.startswith(
        "DataLoader, from here on 2 ranks: each of 4 ranks went through its loader for itself"
    )
    assert "such as a file, that of ranks that are gone comes no more" in record.message


def test_at_the_end_of_an_epoch_any_division_goes_on(tmp_path):
    parts = interrupted(tmp_path, by_rank, (2, (0, 5)), (3, None))
    assert sorted(row for _, rows in together(*parts) for row in rows) == sorted([*range(LENGTH)] * 2)


def test_filling_up_that_depends_on_the_ranks_is_remarked_on(tmp_path, caplog):
    interrupted(tmp_path, dealt({2: 6, 3: 4}, length=50), (2, (0, 1)), (3, None))
    assert [record.message for record in caplog.records] == [
        "DataLoader, from here on 3 ranks: an epoch had 50 samples with those that fill it up, and has 51 now"
    ]
