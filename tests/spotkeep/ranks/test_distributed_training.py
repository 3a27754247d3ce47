"""Several ranks, real processes: they save together or not at all, and any of them may die at any moment.

I2, whole or invisible, and I3, little is lost, hold for a data-parallel training as for a training of one process.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.ranks.rank_shares import differing_paths
from tests.spotkeep.ranks.distributed_ranks import parts_of
from tests.spotkeep.ranks.trainings import STEPS, Trainings

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]


@pytest.fixture
def train(rank_server, tmp_path):
    return Trainings(rank_server, tmp_path).run


@pytest.fixture(scope="module")
def undisturbed(rank_server, tmp_path_factory):
    """Gives the end of a training on so many ranks that nothing happened to, and its checkpoints."""
    folder = tmp_path_factory.mktemp("undisturbed")
    trainings = Trainings(rank_server, folder)

    @functools.cache
    def train(world_size=2):
        run = trainings.run(folder / f"of-{world_size}", world_size=world_size)
        assert run.codes == [0] * world_size, run.output
        return run, folder / f"of-{world_size}"

    return train


def steps_in(directory):
    return CheckpointDirectory(directory).steps()


def test_the_ranks_of_a_training_left_alone_write_one_checkpoint_prefix(undisturbed):
    run, directory = undisturbed(world_size=3)
    assert len({own for _, own in run.state}) == 3, "each rank has its own random numbers"
    assert [event["step"] for event in run.events("saved")] == [4, 8, 12, 14]
    assert run.printed(1) == run.printed(2) == [], "one rank speaks for all"
    assert steps_in(directory) == [14, 12, 8]
    manifest = CheckpointDirectory(directory).read_manifest(12)
    assert manifest.world_size == 3
    assert [len(stream) for stream in manifest.streams[1:]] == [1, 1, 1]
    assert {share.differences for share in manifest.ranks} == {None}, "the next step takes rank 0's buffers"


def test_a_rank_that_is_killed_in_a_save_leaves_the_checkpoints_whole(train, tmp_path, undisturbed):
    """At whichever point of a save: in test_shared_directory, where a rank is a thread."""
    for rank, kind, resumed_at in ((1, "killed after its data", 0), (0, "killed after the commit", 4)):
        run = train(tmp_path / "c", trap={"rank": rank, "step": 8, "kind": kind})
        assert [event["step"] for event in run.events("resume")] == [resumed_at]
        assert run.codes[rank] == -signal.SIGKILL
        assert run.codes[1 - rank] == 1, run.output[1 - rank]
    again = train(tmp_path / "c")
    assert again.codes == [0, 0], again.output
    assert again.began == [8, 8]
    assert again.state == undisturbed()[0].state


def test_a_rank_that_is_killed_in_a_step_takes_the_others_along_and_no_checkpoint(train, tmp_path, undisturbed):
    for rank, step, saved in ((2, 5, (0, 4)), (0, 9, (4, 8))):
        run = train(tmp_path / "c", world_size=3, kill_in_step=[rank, step])
        assert run.codes[rank] == -signal.SIGKILL
        assert "did not end" not in run.codes
        newest = (steps_in(tmp_path / "c") or [0])[0]
        assert newest in saved, "the last one may have been on its way"
    again = train(tmp_path / "c", world_size=3)
    assert again.began == [newest] * 3
    assert again.state == undisturbed(world_size=3)[0].state


def test_killed_at_random_moments_the_training_ends_as_if_nothing_had_happened(train, tmp_path, undisturbed):
    chance = random.Random()  # noqa: S311
    reached = 0

    def kill(pids, output, victims, seconds):
        while not output.exists() or '"resume"' not in output.read_text():
            time.sleep(0.005)
        time.sleep(seconds)
        for victim in victims:
            with suppress(ProcessLookupError):  # it may have come to its end
                os.kill(pids[victim], signal.SIGKILL)

    for attempt, victims in enumerate(([0], [1], [0, 1])):
        seconds = chance.random() * 0.3
        print(f"attempt {attempt}: {victims} are killed after {seconds} s")
        kill_some = partial(kill, victims=victims, seconds=seconds)
        run = train(tmp_path / "c", kill=kill_some, step_seconds=0.005, options={"every_steps": 1})
        assert "did not end" not in run.codes, attempt
        newest = (steps_in(tmp_path / "c") or [0])[0]
        saved = max((event["step"] for event in run.events("saved")), default=0)
        assert newest >= max(reached, saved), "nothing that was durable is lost"
        reached = newest
    run = train(tmp_path / "c")
    assert run.began == [reached, reached]
    assert run.state == undisturbed()[0].state


def test_a_notice_that_reaches_one_rank_makes_all_save_that_step_or_the_next_and_leave(train, tmp_path, undisturbed):
    """A rank that has no notice may have begun the next step, which takes a millisecond here."""
    run = train(tmp_path / "c", notice=[0, 5])
    assert run.codes == [75, 75], run.output
    interval, notice = run.events("saved")
    assert (interval["step"], interval["reason"], notice["reason"]) == (4, "interval", "notice")
    assert notice["step"] in (6, 7)
    assert [event["source"] for event in run.events("notice")] == ["SIGTERM"]
    run = train(tmp_path / "c", notice=[1, 8])
    assert run.codes == [75, 75], run.output
    assert [event["step"] for event in run.events("resume")] == [notice["step"]], "not a step is lost"
    assert run.events("saved")[-1]["reason"] == "notice"
    left_after = run.events("saved")[-1]["step"]
    assert left_after in (9, 10)
    assert [event["source"] for event in run.events("notice")] == ["another rank"]
    again = train(tmp_path / "c")
    assert again.began == [left_after] * 2
    assert again.state == undisturbed()[0].state


def test_a_notice_in_a_long_step_makes_all_leave_after_that_step(train, tmp_path):
    """It comes in the step's beginning, before the ranks wait for each other's gradients."""
    for rank, world_size in ((0, 2), (2, 4)):
        directory = tmp_path / f"c{rank}"
        run = train(directory, world_size=world_size, notice_at_begin=[rank, 5], long_step_seconds=5)
        assert run.codes == [75] * world_size, run.output
        assert [event["step"] for event in run.events("saved")] == [4, 6]


def test_a_rank_that_is_stopped_for_a_while_leaves_with_the_others(train, tmp_path):
    def stop_one(pids, output):
        while not output.exists() or '"saved"' not in output.read_text():
            time.sleep(0.005)
        os.kill(pids[1], signal.SIGSTOP)
        os.kill(pids[0], signal.SIGTERM)
        time.sleep(1)
        os.kill(pids[1], signal.SIGCONT)

    run = train(tmp_path / "c", steps=500, step_seconds=0.005, kill=stop_one)
    assert run.codes == [75, 75], run.output
    last = run.events("saved")[-1]
    assert last["reason"] == "notice"
    assert steps_in(tmp_path / "c")[0] == last["step"]
    again = train(tmp_path / "c", steps=last["step"] + 4)
    assert again.began == [last["step"]] * 2


def test_saves_by_rank_0s_clock_are_of_the_same_steps_on_all_ranks(train, tmp_path):
    options = {"every_steps": None, "every_seconds": 0.15, "keep_last": 9}
    run = train(tmp_path / "c", world_size=3, steps=60, step_seconds=0.025, options=options)
    assert run.codes == [0, 0, 0], run.output
    saved = [event["step"] for event in run.events("saved")]
    assert len(saved) >= 3
    assert saved[-1] == 60
    assert steps_in(tmp_path / "c") == saved[::-1][:9]


def test_a_notice_to_one_rank_at_the_step_of_a_pause_is_a_notice_to_all(train, tmp_path, undisturbed):
    pause = {"SPOTKEEP_PAUSE_AT_STEP": "6"}
    run = train(tmp_path / "c", notice=[1, 5], environment=pause)
    assert (run.codes, run.events("paused")) == ([75, 75], []), run.output
    run = train(tmp_path / "c", environment=pause)
    assert run.codes == [0, 0], run.output
    assert run.results == [None, None], "what follows the loop does not run"
    assert [event["step"] for event in run.events("paused")] == [6]
    assert run.printed(1) == []
    assert train(tmp_path / "c").state == undisturbed()[0].state


def test_a_loop_that_counts_its_own_steps_saves_and_leaves_on_all_ranks(train, tmp_path, undisturbed):
    run = train(tmp_path / "c", own_loop=True, notice=[1, 9])
    assert run.codes == [75, 75], run.output
    assert [event["step"] for event in run.events("saved")] in ([4, 8, 10], [4, 8, 11])
    run = train(tmp_path / "c", own_loop=True, environment={"SPOTKEEP_PAUSE_AT_STEP": "12"})
    assert run.codes == [0, 0], run.output
    assert [event["step"] for event in run.events("paused")] == [12]
    again = train(tmp_path / "c", own_loop=True)
    assert again.codes == [0, 0], again.output
    assert again.began == [12, 12]
    assert again.state == undisturbed()[0].state


def test_damage_that_one_rank_finds_makes_all_fall_back(train, tmp_path, undisturbed):
    train(tmp_path / "c", steps=12)
    path = tmp_path / "c" / "step-12" / "data-00002.bin"  # what is rank 1's own
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 3] ^= 1
    path.write_bytes(raw)
    run = train(tmp_path / "c")
    assert run.codes == [0, 0], run.output
    assert run.began == [8, 8]
    assert [event["file"] for event in run.events("fallback")] == ["step-12/data-00002.bin"]
    assert run.state == undisturbed()[0].state


def test_a_slow_rank_delays_the_checkpoint_and_not_the_training(train, tmp_path):
    run = train(tmp_path / "c", trap={"rank": 1, "step": 4, "kind": "slow"}, options={"every_steps": 4})
    assert run.codes == [0, 0], run.output
    seconds = {event["step"]: event["seconds"] for event in run.events("saved")}
    assert list(seconds) == [4, 8, 12, 14]
    assert seconds[4] > 0.5, "it is durable when the last rank's part is"


def test_a_rank_whose_disk_is_full_costs_that_checkpoint_and_nothing_else(train, tmp_path, undisturbed):
    run = train(tmp_path / "c", trap={"rank": 1, "step": 8, "kind": "full disk"})
    assert run.codes == [0, 0], run.output
    assert [event["step"] for event in run.events("saved")] == [4, 12, 14]
    (failure,) = run.events("save-failed")
    assert failure["step"] == 8
    assert "the disk is full" in failure["problem"]
    assert steps_in(tmp_path / "c") == [14, 12, 4]
    assert all("no checkpoint of step 8" in output for output in run.output), "every rank tells"
    assert run.state == undisturbed()[0].state


def test_another_number_of_ranks_takes_what_each_rank_had_by_rule(train, tmp_path):
    two = train(tmp_path / "c", steps=8)
    subprocess.run(["cp", "-r", tmp_path / "c", tmp_path / "again"], check=True)
    run = train(tmp_path / "c", world_size=3, steps=8)
    assert run.codes == [0, 0, 0], run.output
    assert run.began == [8, 8, 8]
    assert run.state[:2] == two.state, "the ranks that there were have their own back"
    assert len({own for _, own in run.state}) == 3, "the new one has random numbers of its own"
    assert train(tmp_path / "again", world_size=3, steps=8).state == run.state, "the same ones each time"
    assert train(tmp_path / "c", world_size=1, steps=8).state == run.state[:1]


def test_another_number_of_ranks_is_refused_where_no_rule_says_who_gets_what(train, tmp_path):
    train(tmp_path / "c", steps=8, notes=["a", "b"])
    refused = train(tmp_path / "c", world_size=3, notes=["c", "c", "c"])
    assert refused.codes == [1, 1, 1]
    for output in refused.output:
        assert "WorldSizeError" in output
        assert "was written by 2 ranks, and this training has 3 ranks" in output
        assert "values of its own in note" in output
    again = train(tmp_path / "c", steps=12, notes=["c", "c"])
    assert again.began == [8, 8], "refusing changed nothing"


def test_what_all_ranks_have_in_common_suits_any_number_of_them(train, tmp_path):
    for world_size, steps in ((2, 4), (3, 8), (1, 12)):
        run = train(tmp_path / "c", world_size=world_size, steps=steps, per_rank=False)
        assert run.codes == [0] * world_size, run.output
    assert run.began == [8]


def test_a_second_training_of_the_processes_has_a_name_or_is_refused_on_all_ranks(train, tmp_path):
    refused = train(tmp_path / "c", steps=2, second={})
    assert refused.codes == [1, 1]
    assert all("ended in this process, after step 2" in output for output in refused.output)
    assert train(tmp_path / "c", steps=2, second={"name": "b"}).codes == [0, 0]
    assert steps_in(tmp_path / "c" / "b") == [2]


def test_a_rank_that_does_not_enter_is_not_waited_for_for_ever(train, tmp_path):
    run = train(tmp_path / "c", stays_away=1, answer_seconds=1)
    assert run.codes == [1, 0]
    assert "every rank must enter its own Checkpointer" in run.output[0]


def test_hosts_with_a_disk_each_save_together_where_the_platform_brings_them_together(train, tmp_path, undisturbed):
    """SageMaker copies every host's directory to one place, and all of that to each host of the next attempt."""
    hosts = [tmp_path / "host-0", tmp_path / "host-1"]
    sagemaker = {"TRAINING_JOB_NAME": "digits-1"}
    run = train(hosts, steps=8, environment=sagemaker)
    assert run.codes == [0, 0], run.output
    files = [sorted(path.name for path in (host / "step-8-0.0.1").iterdir()) for host in hosts]
    assert files == [["data-00000.bin", "data-00001.bin", "manifest.json"], ["data-00002.bin"]]
    for host, other in (hosts, hosts[::-1]):
        subprocess.run(["cp", "-rn", f"{host}/.", other], check=True)
    again = train(hosts, environment=sagemaker)
    assert again.codes == [0, 0], again.output
    assert again.began == [8, 8]
    assert again.state == undisturbed()[0].state


def test_loops_over_each_ranks_part_of_the_data_go_on_in_the_middle(train, tmp_path):
    whole = train(tmp_path / "whole", kind="epochs")
    assert whole.codes == [0, 0], whole.output
    for disturbance in ({"kill_in_step": [1, 5]}, {"notice": [1, 3]}, {"notice": [0, 2]}):
        assert 0 not in train(tmp_path / "c", kind="epochs", **disturbance).codes
    again = train(tmp_path / "c", kind="epochs")
    assert again.codes == [0, 0], again.output
    assert again.began[0] < whole.began[0] - 4, "not from the beginning"
    assert again.state == whole.state


def batches_of_all_ranks(*runs):
    """Give the batches in the order of epochs and numbers: the samples with the numbers that were drawn for them."""
    found = defaultdict(list)
    for run in runs:
        for output in run.output:
            for line in output.splitlines():
                if line.startswith("samples "):
                    epoch, number, rank, rows, drawn = json.loads(line[8:])
                    found[epoch, number].append((rank, list(zip(rows, drawn, strict=True))))
    return [
        (epoch, [sample for _, samples in sorted(found[epoch, number]) for sample in samples])
        for epoch, number in sorted(found)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_drawn_ranks_and_workers_go_on_in_the_batches_of_one_rank_that_was_left_alone(train, tmp_path, seed):
    draw = random.Random(seed)  # noqa: S311
    options = {"kind": "samples", "global_batch": 12}
    alone = train(tmp_path / "alone", world_size=1, workers=draw.randint(0, 2), **options)
    assert alone.codes == [0], alone.output
    runs = []
    for notice in [*sorted([draw.randint(0, 1), draw.randint(0, 3)] for _ in range(3)), None]:
        ranks = draw.randint(1, 4)
        place = None if notice is None else [*notice, draw.randrange(ranks)]
        workers = draw.randint(0, 2)
        runs.append(train(tmp_path / "c", world_size=ranks, workers=workers, notice=place, **options))
        # A place that is behind the ranks already is none.
        assert set(runs[-1].codes) <= {0, 75}, runs[-1].output
    assert batches_of_all_ranks(*runs) == batches_of_all_ranks(alone)


@pytest.mark.parametrize(
    ("ranks", "batch", "stopped_at", "ranks_after", "batch_after"),
    [
        (2, 6, 1, 3, 4),  # as many samples a step
        (3, 4, 1, 2, 4),  # 24 samples are 3 batches of 2 ranks
        (2, 4, 5, 4, 3),  # a pass that was over stays over
    ],
)
def test_another_number_of_ranks_goes_on_after_the_samples_that_all_ranks_have_passed(
    train, tmp_path, ranks, batch, stopped_at, ranks_after, batch_after
):
    before = train(
        tmp_path / "c", kind="samples", world_size=ranks, batch_size=batch, notice=[0, stopped_at, ranks - 1]
    )
    assert before.codes == [75] * ranks, before.output
    after = train(tmp_path / "c", kind="samples", batch_size=batch_after, world_size=ranks_after)
    times = Counter(
        (epoch, row) for run in (before, after) for epoch, samples in batches_of_all_ranks(run) for row, _ in samples
    )
    assert after.codes == [0] * ranks_after, after.output
    assert times == {(epoch, row): 1 for epoch in range(2) for row in range(48)}


def test_a_place_that_other_ranks_cannot_take_over_is_refused_before_the_first_step(train, tmp_path):
    before = train(tmp_path / "c", kind="samples", world_size=2, batch_size=4, notice=[0, 3, 1])
    after = train(tmp_path / "c", kind="samples", world_size=5, batch_size=4)
    assert before.codes == [75] * 2, before.output
    assert 0 not in after.codes
    assert batches_of_all_ranks(after) == []
    assert all("samples of the pass are done, and steps of 20 do not end there" in one for one in after.output)


def test_what_differs_from_rank_to_rank_comes_back_on_each_though_the_script_passed_it_as_common(train, tmp_path):
    whole = train(tmp_path / "whole", kind="apart")
    assert whole.codes == [0, 0], whole.output
    assert whole.results[0]["weights"] != whole.results[1]["weights"]
    manifest = CheckpointDirectory(tmp_path / "whole").read_manifest(14)
    assert manifest.ranks[0].differences is None
    assert differing_paths(manifest) == [
        "state['contrast']['queue']",
        *(f"state['local']['0.{name}']" for name in ("weight", "bias")),
        *(f"state['optimizer']['state'][{index}]['{name}']" for index in (2, 3) for name in ("exp_avg", "exp_avg_sq")),
        "state['generator']",
        *(f"state['average']['0.{name}']" for name in ("weight", "bias")),
        "state['history']",
    ]
    for disturbance in ({"kill_in_step": [1, 3]}, {"notice": [0, 7]}, {"notice": [1, 10]}):
        assert 0 not in train(tmp_path / "c", kind="apart", **disturbance).codes
    again = train(tmp_path / "c", kind="apart")
    assert again.began == [11, 11], again.output
    assert again.state == whole.state
    alone = train(tmp_path / "c", kind="apart", world_size=1)
    assert alone.codes == [0], alone.output
    assert "each of which had its own values in state['contrast']['queue']" in alone.output[0]


def test_ranks_with_different_numbers_of_batches_are_refused_and_do_not_wait_for_each_other(train, tmp_path):
    for how, said in (
        ("a pass in join", ["in a block of join(), in which ranks may have different numbers of batches"] * 2),
        ("in join", ["in a block of join(), in which ranks may have different numbers of batches"] * 2),
        ("of steps", ["rank 0 has done its last step, 3, rank 1 has done step 3"] * 2),
    ):
        run = train(tmp_path / how, kind="uneven", how=how, batches=[3, 5])
        assert run.codes == [1, 1], run.output
        for output, expected in zip(run.output, said, strict=True):
            assert "spotkeep.errors.UsageError" in output
            assert expected in output
            assert "drop_last=True" in output
            assert "a step" not in output
    for how in ("of steps", "of steps in DDP"):
        run = train(tmp_path / f"rarely {how}", kind="uneven", how=how, batches=[3, 5], every_steps=1000)
        assert run.codes == [1, 1], run.output
        for output in run.output:
            assert "spotkeep.errors.UsageError: the ranks are at different places" in output
            assert "rank 0 has done its last step, 3, rank 1 has done " in output
    around = train(tmp_path / "around", kind="uneven", how="around join", batches=[3, 5])
    assert around.codes == [0, 0], around.output
    assert [event["step"] for event in around.events("saved")] == [1, 2]


class TestFreeRanks:
    """Ranks that do not wait for each other in a step."""

    def test_a_rank_in_a_long_step_holds_no_other_up(self, train, tmp_path):
        run = train(tmp_path / "c", kind="free", long_step=[1, 3], long_step_seconds=2.5)
        assert run.codes == [0, 0], run.output
        ahead, slow = run.began
        assert len(ahead) == len(slow) == STEPS
        assert ahead[-1] < slow[4], "no message is sent for a step"
        assert all("spotkeep-ranks" not in result["threads"] for result in run.results)

    def test_a_rank_that_leaves_ends_the_others_though_its_process_stays(self, train, tmp_path):
        ways = {"steps": 1000, "step_seconds": 0.02, "leaves": [1, 5], "stays_seconds": 5}
        run = train(tmp_path / "c", world_size=3, kind="free", **ways)
        assert run.codes == [1, 1, 1], run.output
        for rank in (0, 2):
            assert "RankLostError: another rank of this training has left its Checkpointer" in run.output[rank]
        assert "KeyError" in run.output[1]

    def test_a_rank_that_asks_more_often_is_found_beside_the_training(self, train, tmp_path):
        run = train(tmp_path / "c", kind="free", steps=1000, step_seconds=0.005, asks_once_more=[1, 4])
        assert run.codes == [1, 1], run.output
        for output in run.output:
            assert "UsageError: the ranks are at different places of the training: rank 0 has done step " in output
            assert "has done its last step" not in output, "long before the next save"

    def test_a_process_that_forks_and_one_with_several_checkpointers_end(self, train, tmp_path):
        run = train(tmp_path / "a", kind="free", fork=[1, 3])
        assert run.codes == [0, 0], run.output
        run = train(tmp_path / "b", kind="free", nested=True)
        assert run.codes == [0, 0], run.output
        assert [steps_in(tmp_path / "b" / f"inner-{number}") for number in (0, 1)] == [[STEPS]] * 2
        assert [len(began) for began in run.began] == [2 * STEPS] * 2
        assert all("spotkeep-ranks" not in result["threads"] for result in run.results)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the open files and threads are counted in /proc")
class TestFolds:
    """Many trainings in one process: each ends its connections to the other ranks."""

    def test_a_training_that_has_ended_leaves_no_open_file_and_no_thread(self, train, tmp_path):
        run = train(tmp_path / "c", world_size=3, kind="folds", folds=3, calls_outside=True)
        assert run.codes == [0] * 3, run.output
        assert [count for result in run.results for counts in result["opened"] for count in counts if count > 0] == []

    def test_each_training_may_have_a_process_group_of_its_own(self, train, tmp_path):
        run = train(tmp_path / "c", world_size=3, kind="folds", folds=3, groups_of_each=True)
        assert run.codes == [0] * 3, run.output
        assert [count for result in run.results for counts in result["opened"] for count in counts if count > 0] == []

    def test_a_rank_that_fails_or_is_lost_does_not_hold_the_others(self, train, tmp_path):
        for name, code in (("fails", 1), ("killed", -signal.SIGKILL)):
            run = train(tmp_path / name, world_size=3, kind="folds", folds=3, **{name: [1, 1]})
            assert run.codes == [1, code, 1], run.output
            for rank in (0, 2):
                assert "RankLostError: another rank of this training" in run.output[rank]


def test_ranks_go_back_to_the_best_checkpoint_together_and_remove_newer_ones(train, tmp_path):
    run = train(tmp_path / "back", kind="back")
    assert run.codes == [0, 0], run.output
    for rank, result in enumerate(run.results):
        assert result["found"] == [4, 100 * rank + 3, 2, 100 * rank + 1, 2.0]
        assert "those of the steps 3, 4, 5 are newer" in result["refused"]
        assert result["steps"] == [1, 2, 3]


DIVISIONS = {
    "fully_shard": (1, 2, 3),
    "fully_shard in replicas": (4,),
    "tensor parallel": (1, 3, 2),
    "tensor parallel in replicas": (4,),
    "tensor parallel, fully_shard": (4,),
    "stages": (1, 4, 2),
    "flat": (1, 3, 2),
    "flat with names": (3, 1, 2),
    "flat in replicas": (4,),  # with all of a replica on one rank, torch does not make replicas equal
}
"""Divisions of a model among the ranks, and the numbers of ranks that have them."""


def require_saved(run, saved, *, when):
    """Require that the ranks hold together what a checkpoint has, each element in at least one place."""
    import torch

    held = [torch.load(f"{run.out}.{rank}.parts")[when] for rank in range(len(run.codes))]
    expected = parts_of({name: value for name, value in saved.items() if name == "shards"})
    assert all(set(each) == set(expected) for each in held)
    for path, value in expected.items():
        for rank, each in enumerate(held):
            found = each[path]
            if not isinstance(found, tuple):
                if rank and "/norm.running" in path:
                    continue  # each rank has averages of its own data
                assert torch.equal(found, value) if torch.is_tensor(value) else found == value, path
                continue
            shape, parts = found
            assert shape == tuple(value.shape), path
            for offsets, part in parts:
                place = tuple(slice(start, start + size) for start, size in zip(offsets, part.shape, strict=True))
                assert part.dtype == value.dtype
                assert torch.equal(part, value[place]), path
        if isinstance(held[0][path], tuple) and value.numel():
            covered = torch.zeros(value.shape, dtype=torch.bool)
            for each in held:
                for offsets, part in each[path][1]:
                    covered[tuple(slice(at, at + size) for at, size in zip(offsets, part.shape, strict=True))] = True
            assert covered.all(), path


class TestShards:
    """A model of which each rank holds a part."""

    @pytest.mark.parametrize("division", [*DIVISIONS])
    def test_it_goes_on_bit_for_bit_on_as_many_ranks(self, train, tmp_path, division):
        count = DIVISIONS[division][-1]
        whole = train(tmp_path / "whole", kind="shards", division=division, world_size=count)
        assert whole.codes == [0] * count, whole.output
        train(tmp_path / "c", kind="shards", division=division, world_size=count, kill_in_step=[count - 1, 9])
        again = train(tmp_path / "c", kind="shards", division=division, world_size=count)
        assert again.codes == [0] * count, again.output
        assert again.began[0] in (4, 8)
        assert again.state == whole.state
        require_saved(again, CheckpointDirectory(tmp_path / "c").read(14).state, when="ended")

    @pytest.mark.parametrize("division", ["flat", "flat with names"])
    def test_torch_warns_of_none_of_its_own_older_parts_and_a_script_of_what_it_wants(self, train, tmp_path, division):
        for steps in (4, 8):
            run = train(tmp_path / "c", kind="shards", division=division, steps=steps, hook_warns="by the script")
            assert run.codes == [0, 0], run.output
            for output in run.output:
                said = [line for line in output.splitlines() if "Warning: " in line]
                assert said
                assert [line for line in said if "UserWarning: by the script" not in line] == []

    def test_any_division_takes_what_any_other_has_saved(self, train, tmp_path):
        """One checkpoint goes through all divisions and numbers of ranks, and is trained on in each of them."""
        steps = 4
        for division in random.Random(7).sample([*DIVISIONS], len(DIVISIONS)):  # noqa: S311
            for count in DIVISIONS[division]:
                run = train(tmp_path / "c", kind="shards", division=division, world_size=count, steps=steps)
                assert run.codes == [0] * count, (division, count, run.output)
                if steps > 4:
                    assert run.began == [steps - 4] * count, (division, run.output)
                    require_saved(run, CheckpointDirectory(tmp_path / "c").read(steps - 4).state, when="taken")
                steps += 4


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("fully sharded", 2), ("fully sharded", 3)),
        (("fully sharded", 3), ("fully sharded", 1)),
        (("fully sharded", 2), ("replicas", 2)),
        (("replicas", 3), ("fully sharded", 2)),
        (("fully sharded", 3), ("none", 1)),
        (("none", 1), ("fully sharded", 2)),
        (("replicas of shards", 4), ("fully sharded", 3)),
        (("fully sharded", 3), ("replicas of shards", 4)),
        (("two dimensions", 4), ("fully sharded", 2)),
        (("fully sharded", 2), ("two dimensions", 4)),
    ],
    ids=str,
)
def test_a_model_goes_on_in_another_division(train, tmp_path, before, after):
    """Each array is equal to the bit, in the model and in the optimizer, which has made no step yet."""

    def run(division, *, seed, steps=2):
        kind, world_size = division
        ended = train(tmp_path / "c", kind="reshard", world_size=world_size, division=kind, seed=seed, steps=steps)
        assert ended.codes == [0] * world_size, ended.output
        return ended

    saved, restored = run(before, seed=0), run(after, seed=1)
    assert restored.began == [2] * after[1]
    digests = [one for one, _ in restored.state]
    assert digests == [saved.state[0][0]] * after[1]
    assert len(digests[0]) == 9 + 3 * 6
    trained = run(after, seed=2, steps=4)
    assert set(trained.began) == {2}, "it trains on"
    again = run(before, seed=3, steps=4)
    assert set(again.began) == {4}
    assert [one for one, _ in again.state] == [trained.state[0][0]] * before[1], "and comes back in the first division"
