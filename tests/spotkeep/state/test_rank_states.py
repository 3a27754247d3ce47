"""Another number of ranks takes the states that each rank had for itself by rule, or says what it cannot take."""

# ruff: noqa: S311

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

from spotkeep import GlobalBatches
from spotkeep.errors import StateMismatchError, UsageError, WorldSizeError
from spotkeep.state.decoding import copied_state
from spotkeep.state.encoding import object_state
from spotkeep.state.random_states import RandomStates
from spotkeep.state.rank_states import rank_states_for, refuse_kept_places, state_of_rank


class Counter:
    def __init__(self, count=0):
        self.count = count

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


class Place(Counter):
    """A place in the data, counted in samples of all ranks."""

    def load_rank_states(self, states, *, rank, world_size):
        self.count = sum(state["count"] for state in states) // world_size
        self.rank = rank


def taken_by(live, states, *, rank=0, world_size=3):
    found = rank_states_for(live, states, step=7, rank=rank, world_size=world_size)
    found.put_back()
    found.compare()
    return live


def saved(**live):
    return copied_state(live)


def test_what_is_equal_on_all_ranks_is_taken_by_each_and_named_since_it_may_be_a_place_in_its_file(caplog):
    states = [saved(note=[1, "a"], counter=Counter(5), array=np.arange(3)) for _ in range(2)]
    live = taken_by({"note": [], "counter": Counter(), "array": np.zeros(3, np.int64)}, states, rank=2)
    assert (live["note"], live["counter"].count, live["array"].tolist()) == ([1, "a"], 5, [0, 1, 2])
    assert not caplog.records, "rank 0 alone speaks"
    taken_by({**live, "rng": random.Random(1)}, [{**one, **saved(rng=random.Random(2))} for one in states])
    (record,) = caplog.records
    assert record.message.startswith(
        "2 ranks had the same value each in note, counter, array of per_rank, and each of 3"
    )
    assert "or never: let the entry be an object with load_rank_states" in record.message


def test_what_differs_is_refused_by_name_with_the_remedy():
    states = [saved(seen=[rank], counter=Counter(rank), same=1) for rank in range(2)]
    with pytest.raises(WorldSizeError) as caught:
        taken_by({"seen": [], "counter": Counter(), "same": 1}, states)
    assert caught.value.names == ("seen", "counter")
    text = str(caught.value)
    assert "was written by 2 ranks, and this training has 3 ranks" in text
    assert "values of its own in seen, counter" in text
    assert "load_rank_states(states, *, rank, world_size)" in text


def test_a_number_is_not_another_that_only_looks_equal():
    with pytest.raises(WorldSizeError, match="values of its own in x"):
        taken_by({"x": [1]}, [{"x": [1]}, {"x": [1.0]}])


def test_an_object_makes_its_state_from_those_of_all_ranks():
    states = [saved(place=Place(10)), saved(place=Place(11))]
    live = taken_by({"place": Place()}, states, rank=1, world_size=4)
    assert (live["place"].count, live["place"].rank) == (5, 1)


def test_an_object_may_refuse():
    class Never(Place):
        def load_rank_states(self, states, *, rank, world_size):
            raise ValueError("two places cannot be one")

    with pytest.raises(StateMismatchError, match="place refused the states of all ranks: two places cannot be one"):
        taken_by({"place": Never()}, [saved(place=Place(1)), saved(place=Place(2))])


def test_a_dictionary_of_objects_is_looked_into():
    states = [saved(own={"rng": random.Random(rank), "place": Place(rank), "note": "a"}) for rank in range(2)]
    live = {"own": {"rng": random.Random(9), "place": Place(), "note": ""}}
    taken_by(live, states, rank=1)
    assert live["own"]["rng"].getstate() == random.Random(1).getstate()
    assert live["own"]["note"] == "a"


GENERATORS = {
    "python": lambda seed: random.Random(seed),
    "numpy": np.random.default_rng,
    "numpy with another bit generator": lambda seed: np.random.Generator(np.random.Philox(seed)),
    "RandomState": lambda seed: np.random.RandomState(seed),
}


def draw(generator):
    return [generator.random() for _ in range(3)] if hasattr(generator, "random") else generator.rand(3).tolist()


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS)
def test_a_rank_gets_its_own_generator_back_and_a_new_rank_one_that_follows_from_rank_0(make):
    states = [saved(rng=make(rank)) for rank in range(2)]
    drawn = []
    for rank in (0, 1, 2, 3, 2):
        live = taken_by({"rng": make(100)}, states, rank=rank, world_size=4)
        drawn.append(draw(live["rng"]))
    assert drawn[:2] == [draw(make(0)), draw(make(1))]
    assert drawn[2] == drawn[4]
    assert len({tuple(each) for each in drawn[:4]}) == 4
    other = taken_by({"rng": make(100)}, [saved(rng=make(5)), states[1]], rank=2, world_size=4)
    assert draw(other["rng"]) != drawn[2]


def test_a_generator_that_all_ranks_have_alike_stays_alike():
    states = [saved(rng=np.random.default_rng(3)) for _ in range(2)]
    live = taken_by({"rng": np.random.default_rng(0)}, states, rank=2)
    assert draw(live["rng"]) == draw(np.random.default_rng(3))


def test_ranks_that_follow_one_process_draw_other_numbers():
    states = [saved(rng=np.random.default_rng(3))]
    first, second = (taken_by({"rng": np.random.default_rng(0)}, states, rank=rank)["rng"] for rank in (0, 1))
    assert draw(first) == draw(np.random.default_rng(3))
    assert draw(second) != draw(np.random.default_rng(3))


def test_the_random_states_of_a_process_follow_too():
    random.seed(1)
    np.random.seed(1)
    states = [saved(random=RandomStates()) for _ in range(2)]
    random.seed(2)
    states[1] = saved(random=RandomStates())
    before = states[0]["random"]
    taken_by({"random": RandomStates()}, states, rank=5, world_size=6)
    drawn = (random.random(), np.random.rand())
    assert object_state(RandomStates()).keys() == before.keys()
    taken_by({"random": RandomStates()}, states, rank=5, world_size=6)
    assert (random.random(), np.random.rand()) == drawn
    taken_by({"random": RandomStates()}, states, rank=4, world_size=6)
    assert (random.random(), np.random.rand()) != drawn


def test_a_generator_of_an_unknown_kind_has_no_new_state():
    class Own:
        def __init__(self, state):
            self.state = state

        def getstate(self):
            return self.state

        def setstate(self, state):
            self.state = state

    states = [saved(rng=Own("a")), saved(rng=Own("b"))]
    assert taken_by({"rng": Own("")}, states, rank=1, world_size=3)["rng"].state == "b"
    with pytest.raises(WorldSizeError, match="rng"):
        taken_by({"rng": Own("")}, states, rank=2, world_size=3)


def test_entries_that_the_script_does_not_pass_are_a_mismatch():
    with pytest.raises(StateMismatchError, match=r"the checkpoint has state\['x'\], this script does not pass it"):
        taken_by({}, [{"x": 1}, {"x": 1}])
    with pytest.raises(StateMismatchError, match=r"the checkpoint has no state\['y'\]"):
        taken_by({"x": [1], "y": [2]}, [{"x": [1]}, {"x": [1]}])


def test_an_entry_that_only_some_ranks_have_is_refused():
    with pytest.raises(WorldSizeError, match="values of its own in x"):
        taken_by({"x": [1]}, [{"x": [1]}, {}])


def test_nested_values_take_the_rank_that_there_was_and_derive_random_states():
    values = [
        {"epoch": 3, "seed": np.random.default_rng(rank).bit_generator.state, "items": [rank, 5]} for rank in range(2)
    ]
    assert state_of_rank(values, rank=1) == values[1]
    new = state_of_rank(values, rank=2)
    assert (new["epoch"], new["items"]) == (3, [0, 5])
    assert new["seed"] not in [value["seed"] for value in values]
    assert new["seed"]["bit_generator"] == "PCG64"


@pytest.mark.torch
def test_torchs_generators_follow_too():
    torch = pytest.importorskip("torch")
    states = [saved(rng=torch.Generator().manual_seed(rank)) for rank in range(2)]
    drawn = [
        torch.rand(3, generator=taken_by({"rng": torch.Generator()}, states, rank=rank)["rng"]).tolist()
        for rank in (0, 1, 2, 3, 2)
    ]
    assert drawn[0] == torch.rand(3, generator=torch.Generator().manual_seed(0)).tolist()
    assert drawn[2] == drawn[4]
    assert len({tuple(each) for each in drawn}) == 4
    # The state of a generator on a GPU is a seed and an offset.
    on_gpu = [{"seed": torch.arange(16, dtype=torch.uint8) + rank} for rank in range(2)]
    new = state_of_rank(on_gpu, rank=2)["seed"]
    assert (new.shape, new.dtype, new[8:].tolist()) == ((16,), torch.uint8, [0] * 8)
    assert new.tolist() not in [one["seed"].tolist() for one in on_gpu]


@pytest.mark.torch
class TestPlacesOfTorchdatasLoaders:
    """They take the place of any rank for their own, and 2 ranks of 24 samples do not know which ones a third had."""

    @pytest.fixture
    def loader(self):
        make = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # of what torchdata asks of torch
            yield make

    @pytest.mark.parametrize("state", [lambda one: {"loader": one}, lambda one: {"data": [{"train": one}]}])
    def test_they_are_refused_by_name_wherever_they_are(self, loader, state):
        with pytest.raises(UsageError, match=r"2 ranks .* and 3 cannot go on there: state\['.* StatefulDataLoader"):
            refuse_kept_places(state(loader(range(24), 4)), written_by=2, world_size=3)

    def test_so_is_one_that_accelerate_has_prepared(self, loader):
        data_loader = pytest.importorskip("accelerate.data_loader")
        prepared = data_loader.prepare_data_loader(loader(range(24), 4), use_stateful_dataloader=True)
        with pytest.raises(UsageError, match="Start it with 1 ranks"):
            refuse_kept_places({"loader": prepared}, written_by=1, world_size=2)

    def test_a_place_in_global_batches_is_that_of_all_ranks(self, loader):
        batches = GlobalBatches(24, batch_size=6, rank=0, world_size=3)
        refuse_kept_places({"loader": loader(range(24), batch_sampler=batches)}, written_by=2, world_size=3)

    def test_another_object_is_none(self):
        refuse_kept_places({"counter": Counter(), "own": {"rng": random.Random(1)}}, written_by=2, world_size=3)


def stream_of(package, counted):
    """Give a double of a library's stream. Its place is that of a rank, or counts the samples of all ranks."""
    counts = {"sample_in_epoch": 24} if counted else {"shard_example_idx": 12}

    def __iter__(self):  # noqa: N807
        return iter(())

    members = {"state_dict": lambda self: counts, "load_state_dict": lambda self, state: None, "__iter__": __iter__}
    return type("Stream", (), {**members, "__module__": package})()


@pytest.mark.parametrize("inherited", [False, True])
def test_a_stream_of_datasets_has_the_place_of_a_rank_and_is_refused_on_another_number_of_ranks(inherited):
    stream = stream_of("datasets.iterable_dataset", counted=False)
    if inherited:
        stream = type("Own", (type(stream),), {})()
    with pytest.raises(
        UsageError, match=r"1 ranks wrote .* and 2 cannot go on there: state\['data'\] has the place of"
    ):
        refuse_kept_places({"data": stream}, written_by=1, world_size=2)


def test_the_place_of_mosaicml_streaming_counts_samples_of_all_ranks(caplog):
    stream = stream_of("streaming.base.dataloader", counted=True)
    refuse_kept_places({"data": stream}, written_by=1, world_size=2)
    taken_by({"data": stream}, [saved(data=stream)] * 2)
    assert not caplog.records
