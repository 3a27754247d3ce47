"""I9 for any number of ranks: it ends with the bits of one process that was left alone, or it is refused by name."""

from __future__ import annotations

import contextlib
import math
import random
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from spotkeep import Checkpointer, GlobalBatches, ResumableTraining, UsageError  # noqa: E402
from spotkeep.integrations import virtual_ranks_refusals  # noqa: E402
from spotkeep.integrations.virtual_ranks import VirtualRanks  # noqa: E402
from spotkeep.integrations.virtual_ranks_gradients import norm_of, squares_on_grid  # noqa: E402
from spotkeep.integrations.virtual_ranks_refusals import problems_of_training  # noqa: E402
from tests.spotkeep.integrations.virtual_ranks_training import BATCH_SIZE, EPOCHS, ROWS  # noqa: E402
from tests.spotkeep.ranks.trainings import Trainings  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.long]

STEPS = 7


@pytest.fixture
def train(rank_server, tmp_path):
    trainings = Trainings(rank_server, tmp_path)

    def run(wrapper, world_size, *, directory="checkpoints", count=4, steps=STEPS, **job):
        return trainings.run(
            tmp_path / directory,
            kind="virtual",
            wrapper=wrapper,
            world_size=world_size,
            count=count,
            steps=steps,
            **job,
        )

    return run


@pytest.fixture(scope="module")
def alone(rank_server, tmp_path_factory):
    """Give the end of one process that was left alone, of each number of virtual ranks."""
    ends = {}

    def end(count=4, **job):
        key = (count, *job.items())
        if key not in ends:
            folder = tmp_path_factory.mktemp("alone")
            whole = {"kind": "virtual", "wrapper": "none", "world_size": 1, "count": count, "steps": STEPS, **job}
            run = Trainings(rank_server, folder).run(folder / "checkpoints", **whole)
            assert run.codes == [0], run.output
            ends[key] = run.results[0]
        return ends[key]

    return end


def require_equal(run, alone, steps=STEPS):
    """Model, optimizer, norm, and the random states of each virtual rank in each step are equal to the bit."""
    assert set(run.codes) == {0}, run.output
    assert [result["weights"] for result in run.results] == [alone["weights"]] * len(run.results)
    drawn = {place: state for result in run.results for place, state in result["own"].items()}
    assert drawn == {place: alone["own"][place] for place in drawn}
    assert sum(len(result["own"]) for result in run.results) == len(drawn)
    first = run.began[0]
    assert len(drawn) == len(alone["own"]) * (steps - first) // steps


@pytest.mark.parametrize("wrapper", ["ddp", "fully_shard"])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_each_number_of_ranks_ends_as_one_process_does(train, alone, wrapper, world_size):
    require_equal(train(wrapper, world_size), alone())


@pytest.mark.parametrize("wrapper", ["ddp", "fully_shard"])
@pytest.mark.parametrize(("count", "world_size"), [(6, 2), (6, 3), (3, 3)])
def test_virtual_ranks_that_are_no_power_of_two_do_so_too(train, alone, wrapper, count, world_size):
    require_equal(train(wrapper, world_size, count=count), alone(count))


@pytest.mark.parametrize("wrapper", ["ddp", "fully_shard"])
def test_several_threads_do_so_too(train, alone, wrapper):
    large = {"threads": 2, "width": 4099}
    require_equal(train(wrapper, 2, count=2, **large), alone(2, **large))


@pytest.mark.parametrize(
    "worlds",
    [
        (("ddp", 4), ("ddp", 2)),
        (("ddp", 1), ("ddp", 4)),
        (("fully_shard", 2), ("fully_shard", 4)),
        (("fully_shard", 4), ("fully_shard", 1)),
        (("ddp", 4), ("fully_shard", 2), ("none", 1)),
        (("none", 1), ("fully_shard", 4), ("ddp", 2)),
    ],
    ids=lambda worlds: ", ".join(" ".join(map(str, world)) for world in worlds),
)
def test_a_notice_and_another_number_of_ranks_change_nothing(train, alone, worlds):
    *interrupted, last = worlds
    for number, (wrapper, world_size) in enumerate(interrupted):
        run = train(wrapper, world_size, notice=[world_size - 1, 2 * number + 1])
        assert run.codes == [75] * world_size, run.output
    run = train(*last)
    assert run.began[0] >= 2
    require_equal(run, alone())


def test_a_drawn_course_of_ranks_changes_nothing(train, alone):
    drawn = random.Random(20261129)  # noqa: S311 - it is no secret
    step = 0
    while step < STEPS - 3:  # A rank may make one step more.
        wrapper, world_size = drawn.choice(["ddp", "fully_shard"]), drawn.choice([1, 2, 4])
        step += drawn.randint(1, 2)
        run = train(wrapper, world_size, notice=[drawn.randrange(world_size), step - 1])
        assert set(run.codes) <= {0, 75}, run.output
    require_equal(train("ddp", 2), alone())


@pytest.mark.parametrize(
    "worlds",
    [(("ddp", 2),), (("fully_shard", 4),), (("ddp", 4), ("fully_shard", 2), ("none", 1)), (("none", 1), ("ddp", 2))],
    ids=lambda worlds: ", ".join(" ".join(map(str, world)) for world in worlds),
)
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_loader_are_those_of_virtual_ranks_on_each_number_of_ranks(train, alone, worlds, workers):
    """Random numbers of rows and of a batch, its padding and its place belong to a virtual rank."""
    steps = {"steps": EPOCHS * ROWS // BATCH_SIZE}
    *interrupted, last = worlds
    for number, (wrapper, world_size) in enumerate(interrupted):
        run = train(wrapper, world_size, notice=[world_size - 1, 2 * number + 1], workers=workers, **steps)
        assert run.codes == [75] * world_size, run.output
    require_equal(train(*last, workers=workers, **steps), alone(workers=0, **steps), **steps)


@pytest.mark.parametrize(
    ("wrapper", "world_size", "fault", "said"),
    [
        ("fully_shard", 2, "clipping of torch", "clip them by ranks.clip_grad_norm_"),
        ("fully_shard", 1, "clipping of torch", "clip them by ranks.clip_grad_norm_"),
        ("fully_shard", 2, "two passes", "add its losses, and call backward once"),
        ("fully_shard", 2, "bfloat16", "pass MixedPrecisionPolicy(reduce_dtype=torch.float32)"),
        ("ddp", 2, "some micro-batches", "only some micro-batches of a step have a gradient of module.extra"),
        # With one micro-batch a rank, each rank has the same parameters in all of its own.
        *[
            (
                wrapper,
                4,
                fault,
                "the ranks differ in the parameters with a gradient: rank 1 has another one than rank 0",
            )
            for wrapper in ("ddp", "fully_shard")
            for fault in ("some ranks", "another layer")
        ],
        ("fully_shard", 2, "another layer", "the ranks differ in the parameters with a gradient"),
        ("fully_shard", 2, "some ranks", "the ranks differ in the parameters with a gradient"),
        ("fully_shard", 2, "threads of a rank", "the ranks differ in the threads: rank 1 has another one than rank 0"),
        ("ddp", 2, "threads of a rank", "the ranks differ in the threads: rank 1 has another one than rank 0"),
    ],
)
def test_a_fault_of_the_script_ends_it_before_its_first_step(train, wrapper, world_size, fault, said):
    run = train(wrapper, world_size, fault=fault)
    assert set(run.codes) == {1}
    assert any(said in output for output in run.output), run.output
    assert not run.events("saved")


def test_other_threads_than_those_of_the_checkpoint_are_refused(train):
    train("ddp", 2, notice=[0, 2])
    run = train("ddp", 2, threads=2)
    assert set(run.codes) == {1}
    assert all("threads: 1 in the checkpoint, 2 here" in output for output in run.output), run.output


# One process of these tests alone from here on.


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def one_rank(deterministic):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
def test_another_number_of_micro_batches_than_of_virtual_ranks_is_refused():
    model = torch.nn.Linear(2, 2)
    ranks = VirtualRanks(2, model, torch.optim.SGD(model.parameters()))
    with pytest.raises(
        UsageError, match=r"3 micro-batches were given, and this rank has 2 virtual ranks \(0, 1\); pass one for each"
    ):
        next(ranks.micro_batches([1, 2, 3]))


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("of_virtual_ranks", [True, False])
def test_batches_that_follow_from_the_number_of_ranks_are_named_in_the_log(tmp_path, caplog, of_virtual_ranks):
    model = torch.nn.Linear(2, 2)
    ranks = VirtualRanks(2, model, torch.optim.SGD(model.parameters()))
    training = ResumableTraining({"ranks": ranks}, directory=tmp_path)
    batches = GlobalBatches(8, batch_size=4, virtual_ranks=ranks if of_virtual_ranks else None)
    training.loader(torch.utils.data.DataLoader(torch.zeros(8, 2), batch_sampler=batches))
    named = [record.message for record in caplog.records if record.message.endswith("Pass it virtual_ranks=")]
    assert len(named) == (not of_virtual_ranks)


class Embedded(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.layer = torch.nn.Embedding(4, 2, **options)

    def forward(self, inputs):
        return self.layer(inputs)


def problems(model, *, count=4, world_size=1, optimizer=None):
    return problems_of_training(count, world_size, model, [optimizer or torch.optim.SGD(model.parameters())])


def the_problem(*arguments, **options):
    (problem,) = problems(*arguments, **options)
    return problem


@pytest.mark.usefixtures("one_rank")
class TestTrainingsThatAreRefused:
    def test_none_for_a_model_that_fits(self):
        layer = torch.nn.Linear(2, 2)
        assert problems(layer) == problems(DistributedDataParallel(layer)) == []
        assert problems(fully_shard(layer)) == []

    def test_ranks_that_cannot_share(self):
        model = DistributedDataParallel(torch.nn.Linear(2, 2))
        assert "numbers of ranks: 1, 2, 3, 6" in problems(model, count=6, world_size=4)[0]
        assert "pass a number above zero" in the_problem(model, count=0)

    def test_batch_norm_across_ranks(self):
        model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(torch.nn.BatchNorm1d(2)))
        assert the_problem(model).startswith("0 is a SyncBatchNorm, which computes with the batches of all ranks")

    def test_an_optimizer_that_is_not_elementwise(self):
        model = torch.nn.Linear(2, 2)
        for optimizer in (
            torch.optim.LBFGS(model.parameters()),
            torch.optim.Adafactor(model.parameters()),
            type("Mine", (torch.optim.SGD,), {})(model.parameters()),
        ):
            said = f"the optimizer {type(optimizer).__name__} is not known to compute each element alone"
            assert the_problem(model, optimizer=optimizer).startswith(said)

    @pytest.mark.parametrize("kind", [torch.nn.Embedding, torch.nn.EmbeddingBag])
    def test_a_table_whose_forward_pass_changes_its_weights(self, kind):
        assert the_problem(torch.nn.Sequential(kind(4, 2, max_norm=1.0))).startswith(
            f"0 is a {kind.__name__} with max_"
        )

    def test_a_fused_optimizer_of_a_divided_model(self):
        model = torch.nn.Linear(2, 2)
        assert problems(model, optimizer=torch.optim.AdamW(model.parameters(), fused=True)) == []
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        assert "rounds an element by its place in memory" in the_problem(model, optimizer=optimizer)

    def test_parameters_of_other_models(self):
        model, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()])
        assert "2 parameters that are not in the model" in the_problem(model, optimizer=optimizer)

    def test_divided_parameters_of_a_short_dtype(self):
        model = fully_shard(torch.nn.Linear(2, 2, dtype=torch.bfloat16))
        assert "by its place in memory; let all be torch.float32" in the_problem(model)

    def test_other_divisions(self):
        mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicas", "shards"))
        assert "pass fully_shard a mesh of one dimension" in the_problem(fully_shard(torch.nn.Linear(2, 2), mesh=mesh))
        model = torch.nn.Linear(2, 2)
        fully_shard(model, ignored_params={model.bias})
        assert the_problem(model).startswith("bias is not divided by fully_shard, and other parameters are")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, about one rank
            older = FullyShardedDataParallel(torch.nn.Linear(2, 2), device_id=torch.device("cpu"))
        assert "divide the model by fully_shard" in the_problem(older)

    @pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
    def test_a_hook_of_a_divided_parameter(self, register):
        model = torch.nn.Linear(2, 2)
        getattr(model.weight, register)(lambda _: None)
        assert problems(model) == problems(DistributedDataParallel(model)) == []
        model = fully_shard(torch.nn.Linear(2, 2))
        getattr(model.weight, register)(lambda _: None)
        assert the_problem(model).startswith("weight is given a hook of its own")

    def test_a_model_without_its_wrapper(self):
        model = torch.nn.Linear(2, 2)
        assert "pass the wrapper that the script calls" in the_problem(model, world_size=2)
        inside = torch.nn.Sequential(DistributedDataParallel(model))
        assert "wrap the whole model" in the_problem(inside)

    def test_a_communication_hook(self):
        model = DistributedDataParallel(torch.nn.Linear(2, 2))
        model.register_comm_hook(None, lambda state, bucket: bucket)
        assert "no gradient passes through it; leave the hook out" in the_problem(model)

    def test_a_static_graph(self):
        assert "leave it out" in the_problem(DistributedDataParallel(torch.nn.Linear(2, 2), static_graph=True))

    def test_a_compiled_model(self):
        assert "leave torch.compile out" in problems(torch.compile(torch.nn.Linear(2, 2), backend="eager"))[0]
        model = torch.nn.Linear(2, 2)
        model.forward = torch.compile(model.forward, backend="eager")
        assert "leave torch.compile out" in problems(model)[0]

    def test_algorithms_that_may_differ(self):
        torch.use_deterministic_algorithms(True, warn_only=True)
        assert "call torch.use_deterministic_algorithms(True)" in the_problem(torch.nn.Linear(2, 2))

    def test_all_of_them_at_once(self):
        torch.use_deterministic_algorithms(False)
        model = torch.nn.Sequential(torch.nn.SyncBatchNorm(2))
        with pytest.raises(UsageError) as found:
            VirtualRanks(0, model, torch.optim.Adafactor(model.parameters()))
        assert str(found.value).count("\n  - ") == 4


@pytest.fixture
def trained(deterministic, tmp_path):
    """Give one step of a training at a time, in which a test does what it likes."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ranks = VirtualRanks(2, model, optimizer)
    with Checkpointer({"model": model, "optimizer": optimizer, "ranks": ranks}, tmp_path):
        yield model, optimizer, ranks


def go_through(model, ranks, *, in_each=lambda: None):
    for _ in ranks.micro_batches():
        model(torch.ones(1, 2)).sum().backward()
        in_each()


def test_parameters_of_other_models_that_come_after_a_step_are_refused(trained):
    model, optimizer, ranks = trained
    go_through(model, ranks)
    optimizer.step()
    optimizer.zero_grad()
    optimizer.add_param_group({"params": list(torch.nn.Linear(2, 2).parameters())})
    with pytest.raises(UsageError, match="2 parameters that are not in the model"):
        go_through(model, ranks)


def test_a_step_before_the_sum_is_refused(trained):
    model, optimizer, ranks = trained
    for _ in ranks.micro_batches():
        model(torch.ones(1, 2)).sum().backward()
        with pytest.raises(UsageError, match="stepped before the gradients were added"):
            optimizer.step()
        with pytest.raises(UsageError, match="clip_grad_norm_ was called before"):
            ranks.clip_grad_norm_(1.0)
        break
    with pytest.raises(UsageError, match="stepped before the gradients were added"):
        optimizer.step()


def test_a_second_step_with_one_sum_is_refused(trained):
    model, optimizer, ranks = trained
    go_through(model, ranks)
    optimizer.step()
    with pytest.raises(UsageError, match="stepped twice for one sum"):
        optimizer.step()


def test_gradients_that_are_there_before_are_refused(trained):
    model, optimizer, ranks = trained
    go_through(model, ranks)
    optimizer.step()
    with pytest.raises(UsageError, match=r"of weight, bias: call optimizer.zero_grad\(\) before the loop"):
        go_through(model, ranks)
    optimizer.zero_grad()
    go_through(model, ranks)


def test_micro_batches_without_a_gradient_are_refused(trained):
    _, _, ranks = trained
    with pytest.raises(UsageError, match="call backward inside of the loop"):
        list(ranks.micro_batches())


def scheduled(model, optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9).step


def scheduled_in_a_tensor(model, optimizer):
    optimizer.param_groups[0]["lr"] = torch.tensor(0.1)
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9).step


def with_another_momentum(model, optimizer):
    return lambda: optimizer.param_groups[0].update(momentum=optimizer.param_groups[0]["momentum"] + 0.1)


def with_clipped_weights(model, optimizer):
    return lambda: model.weight.detach().clamp_(-0.1, 0.1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (scheduled, "lr of SGD"),
        (scheduled_in_a_tensor, "lr of SGD"),
        (with_another_momentum, "momentum of SGD"),
        (with_clipped_weights, "weight"),
    ],
)
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_a_change_in_each_turn_of_the_loop_is_refused(trained, change, named):
    model, optimizer, ranks = trained
    changed = change(model, optimizer)
    with pytest.raises(UsageError, match=rf"the loop over the micro-batches changed {named}\. It has as many turns"):
        go_through(model, ranks, in_each=changed)
    with pytest.raises(UsageError, match="stepped before the gradients were added"):
        optimizer.step()


def test_a_closure_is_refused(trained):
    model, optimizer, ranks = trained
    for closure in ({"closure": lambda: 1.0}, None):
        go_through(model, ranks)
        if closure:
            with pytest.raises(UsageError, match=r"with a closure, .* call step\(\) without one"):
                optimizer.step(**closure)
            with pytest.raises(UsageError, match="with a closure"):
                optimizer.step(closure["closure"])
        else:
            optimizer.step()
        optimizer.zero_grad()


@pytest.mark.usefixtures("one_rank")
def test_gradients_that_ddp_adds_by_itself_are_refused(tmp_path):
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ranks = VirtualRanks(2, model, optimizer)
    with Checkpointer({"model": model, "optimizer": optimizer, "ranks": ranks}, tmp_path):
        go_through(model, ranks)
        model(torch.ones(1, 2))  # is no change
        optimizer.step()
        optimizer.zero_grad()
        go_through(model, ranks)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # is the same on all ranks
        optimizer.step()
        optimizer.zero_grad()
        go_through(model, ranks)
        model(torch.ones(1, 2)).sum().backward()
        with pytest.raises(UsageError, match="compute each loss inside of the loop"):
            optimizer.step()


class Counts(torch.nn.Module):
    """Makes a buffer in its first forward pass."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, inputs):
        if not hasattr(self, "seen"):
            self.register_buffer("seen", torch.zeros(()))
        self.seen += 1
        return self.layer(inputs)


def test_a_buffer_that_the_first_micro_batch_makes_is_refused(deterministic):
    model = Counts()
    ranks = VirtualRanks(2, model, torch.optim.SGD(model.parameters()))
    ranks.state_dict()
    with pytest.raises(UsageError, match=r"a micro-batch made or removed the buffers seen, .* before the first"):
        go_through(model, ranks)
    model.zero_grad()
    go_through(model, ranks)
    assert float(model.seen) == 2.0, "the pass that made it and virtual rank 0"


def test_buffers_of_other_modules_stay_as_they_are_or_are_refused(trained):
    """A teacher's batch norm, or that of the generator while its critic trains."""
    model, optimizer, ranks = trained
    other = torch.nn.Sequential(torch.nn.BatchNorm1d(2)).eval()
    for step in range(2):
        context = pytest.raises(UsageError, match="changed buffers of BatchNorm1d, outside of the model")
        with context if step else contextlib.nullcontext():
            go_through(model, ranks, in_each=lambda: other(torch.ones(2, 2)))
        optimizer.zero_grad()
        other.train()
    other(torch.ones(2, 2))  # outside of the loop it may


@pytest.mark.filterwarnings("ignore:Using `torch.compile:UserWarning")
def test_a_module_that_is_compiled_later_is_refused_in_the_loop(trained):
    model, _, ranks = trained
    compiled = torch.compile(model, backend="eager")
    with pytest.raises(UsageError, match=r"leave torch\.compile out"):
        go_through(compiled, ranks)


def test_sparse_gradients_are_refused(deterministic):
    model = Embedded(sparse=True)
    ranks = VirtualRanks(2, model, torch.optim.SGD(model.parameters()))
    ranks.state_dict()
    batches = ranks.micro_batches()
    next(batches)
    model(torch.tensor([1])).sum().backward()
    with pytest.raises(UsageError, match="make the layers with sparse=False"):
        next(batches)


def test_virtual_ranks_outside_of_the_state_are_refused(deterministic):
    model = torch.nn.Linear(2, 2)
    ranks = VirtualRanks(2, model, torch.optim.SGD(model.parameters()))
    with pytest.raises(UsageError, match="pass the VirtualRanks in the state of the Checkpointer"):
        next(ranks.micro_batches())


def test_what_comes_after_the_first_step_is_looked_at_too(trained):
    model, optimizer, ranks = trained
    go_through(model, ranks)
    optimizer.step()
    optimizer.zero_grad()
    model.bias.requires_grad_(False)
    torch.use_deterministic_algorithms(False)
    with pytest.raises(UsageError, match=r"call torch\.use_deterministic_algorithms"):
        go_through(model, ranks)


def test_frozen_parameters_and_another_order_of_freezing_train_on(trained):
    model, optimizer, ranks = trained
    model.bias.requires_grad_(False)
    go_through(model, ranks)
    assert model.bias.grad is None
    optimizer.step()
    optimizer.zero_grad()
    model.bias.requires_grad_(True)
    go_through(model, ranks)
    assert model.bias.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"count": 3}, "virtual ranks: 3 in the checkpoint, 2 here"),
        ({"torch": "2.0.0"}, "torch: 2.0.0 in the checkpoint"),
        ({"processor": "a TPU"}, "processor: a TPU in the checkpoint"),
        ({"threads": 64}, "threads: 64 in the checkpoint"),
    ],
)
def test_another_machine_than_that_of_the_checkpoint_is_refused(deterministic, changed, said):
    model = torch.nn.Linear(2, 2)
    ranks = VirtualRanks(2, model, torch.optim.SGD(model.parameters()))
    state = ranks.state_dict()
    environment = {**state["environment"], **{name: value for name, value in changed.items() if name != "count"}}
    with pytest.raises(UsageError, match=said):
        ranks.load_state_dict({**state, "environment": environment, "count": changed.get("count", 2)})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n\nprocessor\t: 1\nmodel name\t: B\n", "A CPU @ 2 GHz"),
        ("CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd40\n", "0x41 8 0x1 0xd40"),
    ],
)
def test_a_processor_has_a_name(tmp_path, monkeypatch, text, name):
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(virtual_ranks_refusals, "_CPU_FILE", tmp_path / "cpuinfo")
    environment = virtual_ranks_refusals.environment_of(torch.device("cpu"))
    assert environment["processor"].startswith(f"{name}, ")


def test_random_numbers_outside_of_the_loop_are_left_alone(trained):
    model, _, ranks = trained
    torch.manual_seed(3)
    random.seed(3)
    before = torch.get_rng_state(), random.getstate()
    inside = []
    for _ in ranks.micro_batches():
        inside += [torch.rand(1).item(), random.random()]  # noqa: S311 - they are no secret
        model(torch.ones(1, 2)).sum().backward()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert len(set(inside)) == 4


# The norm, and the optimizers that may have a part of a model.

VALUES = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=60)


@given(VALUES, st.randoms(use_true_random=False))
def test_a_norm_has_no_order(values, drawn):
    whole = torch.tensor(values)
    expected = norm_of([whole], None)
    shuffled = whole[torch.tensor(drawn.sample(range(len(values)), len(values)))]
    assert norm_of([shuffled], None) == expected
    exact = math.sqrt(math.fsum(value * value for value in whole.tolist()))
    assert math.isclose(expected, exact, rel_tol=1e-12, abs_tol=1e-300)


@given(VALUES, st.randoms(use_true_random=False))
def test_the_parts_of_a_norm_are_added_without_rounding(values, drawn):
    whole = torch.tensor(values)
    scale = 1 / whole.abs().max().double().clamp(min=1e-300)
    cuts = sorted(drawn.choices(range(len(values) + 1), k=3))
    parts = [squares_on_grid(part, scale, len(values)) for part in whole.tensor_split(cuts)]
    drawn.shuffle(parts)
    assert torch.equal(sum(parts), squares_on_grid(whole, scale, len(values)))


def test_a_norm_of_several_tensors_is_the_norm_of_all_values():
    assert norm_of([torch.tensor([3.0]), torch.tensor([[4.0], [12.0]]), torch.zeros(2), torch.zeros(0)], None) == 13.0
    assert norm_of([torch.zeros(2)], None) == 0.0
    assert norm_of([torch.tensor([3e-310, 4e-310], dtype=torch.float64)], None) <= 1e-300


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_norm_of_values_that_are_not_finite_is_infinite(value):
    assert norm_of([torch.tensor([1.0, value]), torch.tensor([2.0])], None) == math.inf


@pytest.mark.parametrize("kind", virtual_ranks_refusals._ELEMENTWISE, ids=lambda kind: kind.__name__)
@settings(max_examples=15, deadline=None)
@given(cut=st.integers(0, 211), dtype=st.sampled_from([torch.float32, torch.float64]), foreach=st.booleans())
def test_a_known_optimizer_computes_each_element_alone(kind, cut, dtype, foreach):
    data = torch.Generator().manual_seed(cut)
    begin, *gradients = torch.randn(4, 211, generator=data, dtype=dtype)

    def trained(parts):
        parameters = [torch.nn.Parameter(begin[part].clone()) for part in parts]
        optimizer = kind(parameters, lr=0.01, foreach=foreach, **({} if kind is torch.optim.Rprop else DECAY))
        for gradient in gradients:
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.grad = gradient[part].clone()
            optimizer.step()
        return torch.cat([parameter.detach() for parameter in parameters])

    assert torch.equal(trained([slice(0, 211)]), trained([slice(0, cut), slice(cut, 211)]))


DECAY = {"weight_decay": 0.01}
