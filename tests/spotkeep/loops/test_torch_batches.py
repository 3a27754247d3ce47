"""A pass over any kind of DataLoader goes on in its middle: the same batches, and nothing loaded that was seen."""

from __future__ import annotations

import copy
import os
import random
import signal

import numpy as np
import pytest

from spotkeep import ResumableTraining, UsageError

torch = pytest.importorskip("torch")
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
)

from spotkeep.loops.torch_batches import KeyedCollate, KeyedDataset, KeyedIndex  # noqa: E402

pytestmark = pytest.mark.torch

COUNT = 12
EPOCHS = 2


class Augmented(Dataset):
    """Draws random numbers of every kind while it loads, and tells what it loaded in this process."""

    def __init__(self):
        self.loaded = []

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        self.loaded.append(index)
        noise = torch.rand(()) + random.gauss(0, 1) + float(np.random.random())
        return torch.tensor(float(index)) + 0.01 * noise


class AugmentedAtOnce(Augmented):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Stream(IterableDataset):
    def __iter__(self):
        for index in torch.randperm(COUNT).tolist():
            yield torch.tensor(float(index)) + 0.01 * torch.rand(())


class DrawsLate:
    """A sampler that draws each index when it is asked for it."""

    def __len__(self):
        return COUNT

    def __iter__(self):
        for _ in range(COUNT):
            yield int(torch.randint(COUNT, ()))


def batches_of_batches():
    return BatchSampler(RandomSampler(range(COUNT), generator=torch.Generator().manual_seed(3)), 3, drop_last=False)


LOADERS = {
    "shuffled": lambda: DataLoader(Augmented(), 3, shuffle=True),
    "in order": lambda: DataLoader(Augmented(), 3),
    "at once, workers": lambda: DataLoader(AugmentedAtOnce(), 3, shuffle=True, num_workers=2),
    "workers that stay": lambda: DataLoader(Augmented(), 3, shuffle=True, num_workers=1, persistent_workers=True),
    "a generator": lambda: DataLoader(Augmented(), 3, shuffle=True, generator=torch.Generator().manual_seed(5)),
    "a generator and workers": lambda: DataLoader(
        Augmented(), 3, shuffle=True, num_workers=1, persistent_workers=True, generator=torch.Generator()
    ),
    "replacement": lambda: DataLoader(Augmented(), 3, sampler=RandomSampler(range(COUNT), replacement=True)),
    "drawn late": lambda: DataLoader(Augmented(), 3, sampler=DrawsLate()),
    "drawn late, workers": lambda: DataLoader(Augmented(), 3, sampler=DrawsLate(), num_workers=1),
    "a batch sampler": lambda: DataLoader(Augmented(), batch_sampler=batches_of_batches()),
    "one by one": lambda: DataLoader(Augmented(), batch_size=None, shuffle=True),
    "one by one, workers": lambda: DataLoader(Augmented(), batch_size=None, shuffle=True, num_workers=1),
    "a stream": lambda: DataLoader(Stream(), 3),
    "a stream, workers": lambda: DataLoader(Stream(), 3, num_workers=1),
}
# With workers, or drawing late, random numbers are not those of the plain loop.
OTHER_NUMBERS = {"drawn late", "a stream", *(name for name in LOADERS if "workers" in name)}


# Workers hand batches over through sockets of the machine's own.
CASES = [pytest.param(name, marks=[pytest.mark.enable_socket] if "workers" in name else []) for name in LOADERS]


@pytest.fixture(autouse=True)
def _workers_end_at_once(monkeypatch):
    """A loader that goes with a cycle of garbage cannot tell its workers to end any more: it waits, and ends them."""
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.2)


def seed():
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)


def plain(make):
    seed()
    loader, seen = make(), []
    for _epoch in range(EPOCHS):
        seen += [(batch.tolist(), float(torch.rand(()))) for batch in loader]
    return seen


def run(make, directory, *, stop_after=None):
    """One process; gives what it has seen, those of the processes before included, None if it was asked to leave."""
    seed()
    seen = []
    training = ResumableTraining({"seen": seen}, directory=directory, every_steps=1)
    loader = make()
    resumable = training.loader(loader)
    done = 0
    try:
        for _epoch in training.epochs(EPOCHS):
            for batch in resumable:
                seen.append((batch.tolist(), float(torch.rand(()))))
                done += 1
                if done == stop_after:
                    os.kill(os.getpid(), signal.SIGTERM)
    except SystemExit:
        return None, loader
    return seen, loader


@pytest.mark.parametrize("name", CASES)
def test_interrupted_again_and_again_it_gives_the_same_batches(tmp_path, name):
    make = LOADERS[name]
    expected, _ = run(make, tmp_path / "undisturbed")
    if name not in OTHER_NUMBERS:
        assert expected == plain(make), "the loop is the plain loop, bit for bit"
    values = [value for batch, _ in expected for value in (batch if isinstance(batch, list) else [batch])]
    assert len({*values}) == len(values) == EPOCHS * COUNT, "each epoch has random numbers of its own"
    # In an epoch, at its end, and somewhere in the next one.
    of_an_epoch = len(expected) // EPOCHS
    stops = (2, of_an_epoch - 2, random.SystemRandom().randint(1, of_an_epoch - 1))
    for stop_after in stops:
        assert run(make, tmp_path / "run", stop_after=stop_after)[0] is None
    assert run(make, tmp_path / "run")[0] == expected, f"interrupted after {stops} batches more, one after the other"


def test_batches_that_were_seen_are_not_loaded_again(tmp_path):
    make = LOADERS["shuffled"]
    _, loader = run(make, tmp_path, stop_after=3)
    assert len(loader.dataset.loaded) == 9
    seen, loader = run(make, tmp_path)
    assert len(loader.dataset.loaded) == EPOCHS * COUNT - 9
    assert len(seen) == EPOCHS * COUNT / 3


class Scaled(Augmented):
    """What a worker multiplies with is made in the worker, as a connection or an open file would be."""

    def __getstate__(self):
        return {"made in": "another process"}

    def __setstate__(self, state):
        self.loaded = []

    def __getitem__(self, index):
        return self.scale * torch.tensor(float(index))


def make_scale(worker):
    dataset = torch.utils.data.get_worker_info().dataset
    dataset.scale, dataset.passing = 2.0 * len(dataset), None
    dataset.first = dataset[1]
    del dataset.passing


@pytest.mark.enable_socket
@pytest.mark.parametrize("batch_size", [3, None])
def test_what_a_worker_sets_up_in_its_dataset_is_there_when_it_loads(tmp_path, batch_size):
    loader = DataLoader(Scaled(), batch_size, num_workers=1, worker_init_fn=make_scale)
    training = ResumableTraining({}, directory=tmp_path, every_steps=100)
    resumable = training.loader(loader)
    seen = []
    for _epoch in training.epochs(1):
        for batch in resumable:
            seen += torch.atleast_1d(batch).tolist()
    assert seen == [2.0 * COUNT * index for index in range(COUNT)]


def test_so_it_is_where_a_worker_is_a_new_process_and_the_dataset_is_pickled():
    dataset = Scaled()
    ours, collate = copy.deepcopy((KeyedDataset(dataset), KeyedCollate(dataset, torch.stack)))
    ours.scale = 3.0
    assert collate(ours[KeyedIndex(key=b"", index=[2, 4])]).tolist() == [6.0, 12.0]
    assert ours[2] == 6.0
    assert ours.loaded == [], "as the dataset's own way of being pickled has it"


def test_what_the_loader_has_is_there(tmp_path):
    loader = DataLoader(Augmented(), 5)
    resumable = ResumableTraining({}, directory=tmp_path).loader(loader)
    assert (len(resumable), resumable.batch_size, resumable.dataset) == (3, 5, loader.dataset)


def test_an_order_that_cannot_be_repeated_is_refused(tmp_path):
    training = ResumableTraining({}, directory=tmp_path)
    with pytest.raises(UsageError, match="in_order=False"):
        training.loader(DataLoader(Augmented(), 3, num_workers=1, in_order=False))


def test_another_batch_size_is_refused(tmp_path):
    run(lambda: DataLoader(Augmented(), 3), tmp_path, stop_after=2)
    with pytest.raises(UsageError, match="a loader with 4 batches, and this one has 3"):
        run(lambda: DataLoader(Augmented(), 4), tmp_path)
