"""A pass over any kind of DataLoader goes on in its middle: the same batches, and nothing loaded that was seen."""

# ruff: noqa: S311 - any random numbers will do

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import io
import itertools
import os
import queue
import random
import re
import signal
import tarfile
import threading
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep import GlobalBatches, ResumableTraining, UsageError

torch = pytest.importorskip("torch")
from torch.utils.data import (  # noqa: E402
    BatchSampler,
    ChainDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from spotkeep.loops import torch_batches  # noqa: E402
from spotkeep.loops.resumable_training import _described as described_loader  # noqa: E402
from spotkeep.loops.torch_batches import (  # noqa: E402
    KeyedCollate,
    KeyedDataset,
    KeyedIndex,
    batches_from,
    order_facts,
)

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


class Drawing(BatchSampler):
    """Draws each batch when it is asked for it, from a generator of its own."""

    def __init__(self):
        self.rng = random.Random(4)

    def __len__(self):
        return 4

    def __iter__(self):
        for _ in range(4):
            yield [self.rng.randrange(COUNT) for _ in range(3)]


class CountsItsPasses:
    def __init__(self, *, at_end):
        self.passes, self.at_end = 0, at_end

    def __len__(self):
        return COUNT

    def __iter__(self):
        order = torch.randperm(COUNT, generator=torch.Generator().manual_seed(self.passes)).tolist()
        self.passes += not self.at_end
        yield from order
        self.passes += self.at_end


class ShufflesInPlace:
    def __init__(self):
        self.indices = [*range(COUNT)]

    def __len__(self):
        return COUNT

    def __iter__(self):
        random.shuffle(self.indices)
        return iter(self.indices)


class GoesOnByItself:
    """Begins where its state says, once, as torchdata's StatefulDistributedSampler."""

    def __init__(self):
        self.given, self.begin_at = 0, None

    def __len__(self):
        return COUNT

    def __iter__(self):
        self.given, self.begin_at = self.begin_at or 0, None
        for index in torch.randperm(COUNT, generator=torch.Generator().manual_seed(1)).tolist()[self.given :]:
            self.given += 1
            yield index

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.begin_at = state["given"]


class OwnNoise(Augmented):
    """Draws from a generator of its own while it loads."""

    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(1)

    def __getitem__(self, index):
        return index + 0.01 * self.rng.random()


class Mixes:
    """Puts items together with a number from a generator of its own."""

    def __init__(self):
        self.rng = np.random.default_rng(1)

    def __call__(self, items):
        return mixed(items, self.rng)

    def mix(self, items):
        return self(items)


def mixed(items, rng):
    return torch.tensor([float(item) for item in items]) + rng.random()


def mixing_closure():
    rng = random.Random(2)
    return lambda items: mixed(items, rng)


MIXES = {
    "an object": Mixes,
    "a method": lambda: Mixes().mix,
    "a partial": lambda: functools.partial(mixed, rng=np.random.RandomState(3)),
    "a closure": mixing_closure,
}


def mixing(name, *, ordered, workers):
    """Make a loader whose function that puts batches together has a generator."""
    options = {"batch_sampler": GlobalBatches(COUNT, batch_size=3)} if ordered else {"batch_size": 3, "shuffle": True}
    return lambda: DataLoader([*range(COUNT)], collate_fn=MIXES[name](), num_workers=workers, **options)


class OwnStream(IterableDataset):
    def __init__(self):
        self.rng = np.random.default_rng(1)

    def __iter__(self):
        return iter(self.rng.permutation(COUNT).tolist())


class FetchesAhead(DataLoader):
    def __iter__(self):
        batches, fetched = super().__iter__(), queue.Queue(2)

        def fetch():
            for batch in batches:
                fetched.put([batch])
            fetched.put(None)

        threading.Thread(target=fetch, daemon=True).start()
        while (batch := fetched.get()) is not None:
            yield batch[0]


class TakesTurns(DataLoader):
    """Saves itself, and makes an iterator in each pass, as litdata's StreamingDataLoader."""

    def __iter__(self):
        self.turns = itertools.cycle(range(2))
        for batch in super().__iter__():
            self.turn = next(self.turns)
            yield batch

    def state_dict(self):
        return {"turn": self.turn}

    def load_state_dict(self, state):
        self.turn = state["turn"]


class Ahead:
    """Has a batch ready before it gives the one before, as NVIDIA's prefetchers do."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        batches = iter(self.loader)
        ready = next(batches, None)
        while ready is not None:
            batch, ready = ready, next(batches, None)
            yield batch


class InPairs(DataLoader):
    def __iter__(self):
        batches = super().__iter__()
        for batch in batches:
            yield torch.cat([batch, next(batches)])


class WithoutItsSampler(DataLoader):
    def __iter__(self):
        for indices in torch.randperm(COUNT).split(3):
            yield torch.stack([self.dataset[index] for index in indices.tolist()])


def prepared(loader):
    return pytest.importorskip("accelerate").Accelerator(cpu=True).prepare(loader)


def seedable(loader):
    data_loader = pytest.importorskip("accelerate.data_loader")
    return data_loader.prepare_data_loader(loader, use_seedable_sampler=True)


def dispatched(loader):
    data_loader = pytest.importorskip("accelerate.data_loader")
    options = {"put_on_device": True, "dispatch_batches": True}
    return data_loader.prepare_data_loader(loader, device=torch.device("cpu"), **options)


def stateful(loader, *, seedable=False):
    """What `prepare` gives with `use_stateful_dataloader=True`."""
    pytest.importorskip("torchdata")
    accelerate = pytest.importorskip("accelerate")
    options = {"use_stateful_dataloader": True, "use_seedable_sampler": seedable}
    configuration = accelerate.utils.DataLoaderConfiguration(**options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torchdata calls what torch calls deprecated
        return accelerate.Accelerator(cpu=True, dataloader_config=configuration).prepare(loader)


def fabric(loader):
    return pytest.importorskip("lightning.fabric").Fabric(accelerator="cpu", devices=1).setup_dataloaders(loader)


def of_torchdata(*arguments, **options):
    make = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it calls what torch calls deprecated
        return make(*arguments, **options)


def takes_turns(*arguments, **options):
    loader = TakesTurns(*arguments, **options)
    loader.turns = loader.turn = None
    return loader


def asked_for_its_place(loader):
    loader.state_dict()
    return loader


ORDERS = {
    "a batch sampler's own generator": lambda: DataLoader(Augmented(), batch_sampler=Drawing()),
    "one that draws late, workers": lambda: DataLoader(Augmented(), batch_sampler=Drawing(), num_workers=1),
    "counts its passes": lambda: DataLoader(Augmented(), 3, sampler=CountsItsPasses(at_end=False)),
    "counts at the end": lambda: DataLoader(Augmented(), 3, sampler=CountsItsPasses(at_end=True)),
    "counts at the end, workers": lambda: DataLoader(
        Augmented(), 3, sampler=CountsItsPasses(at_end=True), num_workers=1
    ),
    "shuffles in place": lambda: DataLoader(Augmented(), 3, sampler=ShufflesInPlace()),
    "goes on by itself": lambda: DataLoader(Augmented(), 3, sampler=GoesOnByItself()),
    "a dataset's own generator": lambda: DataLoader(OwnNoise(), 3, shuffle=True),
    "a dataset's own generator, workers": lambda: DataLoader(OwnNoise(), 3, shuffle=True, num_workers=2),
    "a stream's own generator": lambda: DataLoader(OwnStream(), 3),
    "a chain of streams": lambda: DataLoader(ChainDataset([OwnStream(), OwnStream()]), 3),
    "fetches ahead": lambda: FetchesAhead([*range(COUNT)], 3, shuffle=True),
    "takes turns": lambda: takes_turns(Augmented(), 3, shuffle=True),
    "in pairs": lambda: InPairs(Augmented(), 3, shuffle=True),
    "without its sampler": lambda: WithoutItsSampler(Augmented(), 3),
    "accelerate": lambda: prepared(DataLoader(Augmented(), 3, shuffle=True)),
    "accelerate, seedable": lambda: seedable(DataLoader(Augmented(), 3, shuffle=True)),
    "accelerate, a stream": lambda: prepared(DataLoader(OwnStream(), 3)),
    "accelerate, dispatched": lambda: dispatched(DataLoader(Augmented(), 3, shuffle=True)),
    "accelerate, stateful": lambda: stateful(DataLoader(Augmented(), 3, shuffle=True)),
    "accelerate, stateful, seedable, workers": lambda: stateful(
        DataLoader(Augmented(), 3, shuffle=True, num_workers=1), seedable=True
    ),
    "accelerate, stateful, a stream": lambda: stateful(DataLoader(OwnStream(), 3)),
    "Fabric": lambda: fabric(DataLoader(Augmented(), 3, shuffle=True)),
    "Fabric, a stream": lambda: fabric(DataLoader(OwnStream(), 3)),
    "torchdata": lambda: of_torchdata(Augmented(), 3, shuffle=True),
    "torchdata, workers": lambda: of_torchdata(Augmented(), 3, shuffle=True, num_workers=1),
    "torchdata, a stream": lambda: of_torchdata(OwnStream(), 3),
    "torchdata, asked for its place": lambda: asked_for_its_place(of_torchdata(Augmented(), 3, shuffle=True)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.enable_socket] if "workers" in name else []) for name in ORDERS]
)
def test_whatever_decides_the_order_it_ends_as_one_that_was_left_alone(tmp_path, name):
    make = ORDERS[name]
    expected, _ = run(make, tmp_path / "undisturbed")
    of_an_epoch = len(expected) // EPOCHS
    # In the second epoch, where an order with a memory is another one, and at the end of the first.
    for stop_after in (of_an_epoch + 1, of_an_epoch):
        directory = tmp_path / str(stop_after)
        assert run(make, directory, stop_after=stop_after)[0] is None
        assert run(make, directory)[0] == expected, f"interrupted after {stop_after} batches"


@pytest.mark.enable_socket
@pytest.mark.parametrize("name", MIXES)
@pytest.mark.parametrize(("ordered", "workers"), [(False, (0, 0)), (False, (1, 2)), (True, (0, 1))])
def test_a_generator_of_what_puts_batches_together_draws_the_same_again(tmp_path, name, ordered, workers):
    before, after = (mixing(name, ordered=ordered, workers=count) for count in workers)
    expected = run(before, tmp_path / "undisturbed")[0]
    assert len({tuple(batch) for batch, _ in expected}) == len(expected)
    assert run(before, tmp_path / "run", stop_after=5)[0] is None
    assert run(after, tmp_path / "run")[0] == expected


@pytest.mark.enable_socket
@pytest.mark.parametrize(("kind", "workers"), [(DataLoader, (2, 0, 1)), (of_torchdata, (2, 1, 2))])
def test_a_resume_may_have_another_number_of_workers(tmp_path, kind, workers):
    def make(count):
        return kind([*range(COUNT)], 3, shuffle=True, num_workers=count)

    expected = run(lambda: make(workers[0]), tmp_path / "undisturbed")[0]
    assert run(lambda: make(workers[0]), tmp_path / "run", stop_after=1)[0] is None
    assert run(lambda: make(workers[1]), tmp_path / "run", stop_after=4)[0] is None
    resumed, loader = run(lambda: make(workers[2]), tmp_path / "run")
    assert resumed == expected
    assert loader.num_workers == workers[2]


@pytest.mark.enable_socket
def test_torchdatas_order_is_another_one_without_workers_which_the_log_names(tmp_path, caplog):
    def make(count):
        return of_torchdata([*range(COUNT)], 3, shuffle=True, num_workers=count)

    run(lambda: make(1), tmp_path, stop_after=2)
    with pytest.raises(UsageError, match="does not give the batches that were trained on"):
        run(lambda: make(0), tmp_path)
    assert re.search(r'loader 0 was \{.*"has workers": true.* and is \{.*"has workers": false', caplog.text)


@pytest.mark.parametrize("inside", [False, True])
def test_a_sampler_that_goes_on_by_itself_may_stand_in_the_state(tmp_path, inside):
    def attempt(directory, stop_after=None):
        seen, sampler = [], GoesOnByItself()
        training = ResumableTraining({"seen": seen, "sampler": sampler}, directory=directory, every_steps=1)
        loader = DataLoader([*range(COUNT)], 3, sampler=sampler)
        resumable = loader if inside else training.loader(loader)
        with contextlib.suppress(SystemExit):
            for _epoch in training.epochs(EPOCHS):
                for batch in training.loader(loader) if inside else resumable:
                    seen.append(batch.tolist())
                    if len(seen) == stop_after:
                        os.kill(os.getpid(), signal.SIGTERM)
        return seen

    expected = attempt(tmp_path / "undisturbed")
    attempt(tmp_path / "run", stop_after=6)
    assert attempt(tmp_path / "run") == expected


@pytest.mark.parametrize(
    "place",
    [
        lambda loader: {"state": {"loader": loader}},
        lambda loader: {"state": {"data": [loader]}},
        lambda loader: {"state": {}, "per_rank": {"loader": loader}},
    ],
    ids=["at the top", "inside of a list", "of each rank"],
)
def test_torchdatas_loader_in_the_state_is_refused(tmp_path, place):
    loader = of_torchdata([1, 2], 1)
    training = ResumableTraining(**place(loader), directory=tmp_path)
    with pytest.raises(UsageError, match=r"StatefulDataLoader stands in the state too.*Leave it out"):
        training.loader(loader)


class Lasting(DataLoader):
    """Makes one iterator for all epochs, as timm's MultiEpochsDataLoader."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        object.__setattr__(self, "batch_sampler", [*self.batch_sampler] * 100)
        self.lasting = super().__iter__()

    def __iter__(self):
        return itertools.islice(self.lasting, 4)


def test_a_loader_that_keeps_one_iterator_is_refused_before_the_first_step(tmp_path):
    with pytest.raises(UsageError, match=r"Lasting keeps one iterator over all passes \(lasting\)"):
        run(lambda: Lasting(Augmented(), 3), tmp_path)


def test_a_subclass_that_goes_through_its_sampler_for_itself_is_as_any_other(tmp_path):
    class Measured(DataLoader):
        def longest(self):
            return max(len(batch) for batch in self.batch_sampler)

        def __iter__(self):
            self.longest()
            return super().__iter__()

    assert [batch for batch, _ in run(lambda: Measured(Augmented(), 5), tmp_path)[0]] != []


class Sees(Augmented):
    def set_epoch(self, epoch):
        self.epoch = epoch


@pytest.mark.parametrize(
    ("dataset", "warning"), [(Sees, "Sees has set_epoch"), (OwnStream, "workers are started anew for each pass")]
)
def test_workers_that_stay_and_a_dataset_that_changes_are_warned_of(tmp_path, caplog, dataset, warning):
    training = ResumableTraining({}, directory=tmp_path)
    training.loader(DataLoader(Augmented(), 3, num_workers=1, persistent_workers=True))
    training.loader(DataLoader(dataset(), 3, num_workers=1))
    assert caplog.messages == []
    training.loader(DataLoader(dataset(), 3, num_workers=1, persistent_workers=True))
    assert warning in caplog.text


def shards(folder):
    for shard in range(3):
        with tarfile.open(folder / f"{shard}.tar", "w") as tar:
            for index in range(4):
                text = str(shard * 4 + index).encode()
                info = tarfile.TarInfo(f"{shard}-{index}.txt")
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text))
    return [str(folder / f"{shard}.tar") for shard in range(3)]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it leaves a shard open where a pass is left
def test_webdataset_ends_as_one_that_was_left_alone_or_is_refused(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    urls = shards(tmp_path)

    def stages():
        data = webdataset.WebDataset(urls, shardshuffle=3, detshuffle=True, seed=1)
        as_number = data.shuffle(5, rng=random.Random(1)).decode().to_tuple("txt").map(lambda texts: float(texts[0]))
        return webdataset.WebLoader(as_number, batch_size=3)

    expected, _ = run(stages, tmp_path / "undisturbed")
    assert run(stages, tmp_path / "run", stop_after=6)[0] is None
    assert run(stages, tmp_path / "run")[0] == expected
    training = ResumableTraining({}, directory=tmp_path)
    for unseeded in (
        webdataset.WebDataset(urls, shardshuffle=False).shuffle(5),
        webdataset.WebDataset(urls, resampled=True, shardshuffle=False),
    ):
        with pytest.raises(UsageError, match=r"clock.*so no order comes again"):
            training.loader(DataLoader(unseeded, 3))
    gc.collect()


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


def dealt(*, seed=0, **options):
    rows = Augmented()
    sampler = DistributedSampler(rows, num_replicas=2, rank=1, seed=seed, shuffle=True)
    return DataLoader(rows, sampler=sampler, **{"batch_size": 1, **options})


# Each has six batches in an epoch.
FAR_BEHIND = {
    "in order": lambda: DataLoader(Augmented(), 2),
    "in order, one by one": lambda: DataLoader(Augmented(), sampler=SequentialSampler(range(6)), batch_size=None),
    "in order, the last left out": lambda: DataLoader(range(13), 2, drop_last=True),
    "in order, workers": lambda: DataLoader(Augmented(), 2, num_workers=2),
    "dealt out": dealt,
    "dealt out, one by one": lambda: dealt(batch_size=None),
    "dealt out, workers that stay": lambda: dealt(num_workers=1, persistent_workers=True),
    "Fabric": lambda: fabric(DataLoader(Augmented(), 2)),
}
NOT_A_FUNCTION = {"shuffled": lambda: DataLoader(Augmented(), 2, shuffle=True)}


@pytest.fixture
def asked(monkeypatch):
    """The batches of indices that samplers were asked for."""
    numbers = []
    take = torch_batches.index_bytes
    monkeypatch.setattr(torch_batches, "index_bytes", lambda index: numbers.append(index) or take(index))
    return numbers


@pytest.mark.parametrize(
    ("name", "passed_over"),
    [
        *(pytest.param(name, 0, marks=pytest.mark.enable_socket if "workers" in name else []) for name in FAR_BEHIND),
        ("shuffled", 4),
    ],
)
def test_an_order_that_follows_from_its_numbers_is_gone_on_with_and_not_passed_over(tmp_path, asked, name, passed_over):
    make = {**FAR_BEHIND, **NOT_A_FUNCTION}[name]
    expected = run(make, tmp_path / "undisturbed")[0]
    assert len(expected) == 6 * EPOCHS
    assert run(make, tmp_path / "run", stop_after=4)[0] is None
    asked.clear()
    assert run(make, tmp_path / "run")[0] == expected
    again = int(name == "Fabric")  # it loads the batch before once more
    assert len(asked) == 6 * EPOCHS - 4 + passed_over + again


@pytest.mark.parametrize("name", ["in order", "dealt out", "Fabric"])
@pytest.mark.parametrize("unknown", ["then", "now"])
def test_where_its_numbers_are_not_known_the_batches_are_compared(tmp_path, asked, name, unknown, monkeypatch):
    make = FAR_BEHIND[name]
    expected = run(make, tmp_path / "undisturbed")[0]
    for moment, stop_after in (("then", 2), ("then", 3), ("now", None)):
        with monkeypatch.context() as patched:
            if moment == unknown:
                patched.setattr(torch_batches, "order_facts", lambda sampler: None)
            asked.clear()
            seen = run(make, tmp_path / "run", stop_after=stop_after)[0]
    assert seen == expected
    assert len(asked) == 6 * EPOCHS


def test_another_torch_may_deal_out_another_order(tmp_path, asked, monkeypatch):
    assert run(dealt, tmp_path, stop_after=4)[0] is None
    monkeypatch.setattr(torch_batches, "__version__", "9.0")
    asked.clear()
    run(dealt, tmp_path)
    assert len(asked) == 6 * EPOCHS


def test_another_seed_is_refused(tmp_path):
    assert run(dealt, tmp_path, stop_after=4)[0] is None
    with pytest.raises(UsageError, match="does not give the batches that were trained on"):
        run(lambda: dealt(seed=1), tmp_path)


@given(data=st.data(), length=st.integers(1, 40), size=st.integers(0, 7), drop_last=st.booleans())
def test_the_batches_from_a_place_on_are_those_of_the_whole_pass(data, length, size, drop_last):
    rows = range(length)
    if data.draw(st.booleans()):
        sampler = SequentialSampler(rows)
    else:
        ranks = data.draw(st.integers(1, 5))
        shuffle, rank = data.draw(st.booleans()), data.draw(st.integers(0, ranks - 1))
        sampler = DistributedSampler(rows, ranks, rank, shuffle, data.draw(st.integers(0, 9)), data.draw(st.booleans()))
        sampler.set_epoch(data.draw(st.integers(0, 9)))
    if size:
        sampler = BatchSampler(sampler, size, drop_last)
    first = data.draw(st.integers(0, len(sampler) + 1))
    assert list(batches_from(sampler, first)) == list(sampler)[first:]
    assert order_facts(sampler) is not None


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


def test_another_number_of_ranks_is_no_other_loader_and_other_samples_are():
    from accelerate.data_loader import BatchSamplerShard

    rows = range(47)

    def by_torch(ranks, rows=rows, size=4):
        sampler = torch.utils.data.DistributedSampler(rows, num_replicas=ranks, rank=0)
        return DataLoader(rows, batch_size=size, sampler=sampler)

    def by_accelerate(ranks, rows=rows, size=4):
        batches = BatchSampler(RandomSampler(rows), size, drop_last=False)
        return DataLoader(rows, batch_sampler=BatchSamplerShard(batches, num_processes=ranks, process_index=0))

    for loader in (by_torch, by_accelerate):
        assert len({len(loader(ranks)) for ranks in (1, 2, 3)}) == 3
        assert described_loader(loader(1)) == described_loader(loader(2)) == described_loader(loader(3))
        assert described_loader(loader(2)) != described_loader(loader(2, rows=range(46)))
    assert described_loader(by_torch(2)) == described_loader(DataLoader(rows, batch_size=4, shuffle=True))
    assert described_loader(by_torch(2)) != described_loader(by_torch(2, size=5))
    fewer = DataLoader(rows, batch_size=4, sampler=RandomSampler(rows, num_samples=20))
    assert described_loader(fewer) != described_loader(DataLoader(rows, batch_size=4))
    assert described_loader([1, 2]) != described_loader([1, 2, 3])


def train_weight(directory, wrap, *, stop_after=None, skipped=None):
    torch.manual_seed(3)
    model, seen = torch.nn.Linear(1, 1), []
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    training = ResumableTraining({"model": model, "optimizer": optimizer, "seen": seen}, directory, every_steps=1)
    loader = wrap(training, DataLoader([[float(index)] for index in range(COUNT)], 3, shuffle=True))
    done = 0
    with contextlib.suppress(SystemExit):
        for _epoch in training.epochs(EPOCHS):
            for (batch,) in loader:
                done += 1
                if done == skipped:
                    continue
                optimizer.zero_grad()
                model(batch.float()[:, None]).square().mean().backward()
                optimizer.step()
                seen.append(batch.tolist())
                if done == stop_after:
                    os.kill(os.getpid(), signal.SIGTERM)
    return seen


def test_a_prefetcher_around_a_resumable_loader_is_named_and_one_inside_of_it_loses_no_batch(tmp_path, caplog):
    alone = train_weight(tmp_path / "alone", lambda training, loader: training.loader(loader))
    for place, wrap in {
        "inside": lambda training, loader: training.loader(Ahead(loader)),
        "skips the third": lambda training, loader: training.loader(loader),
    }.items():
        options = {"skipped": 3} if place.startswith("skips") else {}
        train_weight(tmp_path / place, wrap, stop_after=2, **options)
        if not options:
            assert train_weight(tmp_path / place, wrap) == alone
    assert "asked for the second batch" not in caplog.text
    train_weight(tmp_path / "around", lambda training, loader: Ahead(training.loader(loader)))
    assert caplog.text.count("asked for the second batch before an optimizer had used the first one") == 1
    assert "training.loader(Prefetcher(loader))" in caplog.text
