"""The verdict is measured: each way a run can fall short is a reason, and a run that kept everything has none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_cli.rehearsal.evidence import (
    ModelFile,
    ProcessEnding,
    ReceivedNotification,
    RehearsedHost,
    RehearsedProcess,
    RunEvidence,
)
from spotkeep_cli.rehearsal.verdict import (
    Verdict,
    checkpoint_interval_steps,
    interruptions_of,
    judge,
    same_model,
)
from spotkeep_rehearsal.comparison import FileComparison, ValueDifference

MODEL = {"weights.npy": ModelFile(sha256="aa", size_bytes=400), "bias.npy": ModelFile(sha256="bb", size_bytes=100)}
OTHER = ModelFile(sha256="cc", size_bytes=100)


def life(
    *,
    ending: ProcessEnding = ProcessEnding.EXITED,
    resumed_from: int | None = 0,
    last: int | None = 100,
    saved: tuple[int, ...] = (),
    durable: int = 0,
    started_at: float = 0.0,
) -> RehearsedProcess:
    return RehearsedProcess(
        started_at=started_at,
        ended_at=started_at + 10,
        ending=ending,
        resumed_from_step=resumed_from,
        last_step=last,
        saved_steps=saved,
        durable_step=durable,
    )


def run_of(*lives: RehearsedProcess, name: str = "digits-1", state: str = "COMPLETED") -> RunEvidence:
    return RunEvidence(run=name, state=state, failure=None, attempts=1, lives=lives, model_files=MODEL)


def ending_of(run: str, status: str = "completed") -> ReceivedNotification:
    return ReceivedNotification(run=run, status=status, subject="done", body="", received_at="2026-11-21T00:00:00Z")


REFERENCE = run_of(life(saved=(20, 40, 60, 80, 100)), name="digits-reference")
NOTIFICATIONS = [ending_of("digits-1"), ending_of("digits-reference")]
KEPT = run_of(
    life(ending=ProcessEnding.NO_NOTICE, last=47, saved=(20, 40), durable=40),
    life(ending=ProcessEnding.NOTICE, resumed_from=40, last=71, saved=(60, 71), durable=71, started_at=15),
    life(resumed_from=71, saved=(80, 100), durable=100, started_at=30),
)


def judged(
    run: RunEvidence = KEPT,
    *,
    planned: int = 2,
    reference: RunEvidence = REFERENCE,
    notifications: list[ReceivedNotification] = NOTIFICATIONS,
    compared: tuple[FileComparison, ...] = (),
    repeatable: bool | None = None,
    remarks: tuple[str, ...] = (),
) -> Verdict:
    verdict = judge(
        planned_interruptions=planned, run=run, reference=reference, notifications=notifications, compared=compared,
        repeatable=repeatable, remarks=remarks,
    )  # fmt: skip
    assert verdict.passed == (not verdict.reasons)
    return verdict


def reasons(run: RunEvidence, **evidence: Any) -> str:
    return "\n".join(judged(run, **evidence).reasons)


def test_a_run_that_kept_everything_passes() -> None:
    verdict = judged()
    assert verdict.reasons == ()
    assert verdict.identical_to_uninterrupted
    assert [(i.at_step, i.notice, i.resumed_from_step, i.steps_repeated) for i in verdict.interruptions] == [
        (47, False, 40, 7),
        (71, True, 71, 0),
    ]
    assert verdict.interruptions[0].seconds_to_resume == 5


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        # Its model is the same: only what was done twice gives it away.
        ({"last": 47, "saved": (20, 40), "durable": 40}, {"saved": (20, 40, 100)}, "does not load what it saved"),
        ({"last": 47}, {}, "no checkpoint was ever saved"),
        ({"resumed_from": None, "last": None}, {"resumed_from": None, "last": None}, "nothing shows that it resumed"),
    ],
    ids=["ignores its checkpoints", "never saves", "says nothing of its steps"],
)
def test_a_script_that_could_not_have_gone_on_fails(first: dict[str, Any], second: dict[str, Any], reason: str) -> None:
    assert reason in reasons(run_of(life(ending=ProcessEnding.NO_NOTICE, **first), life(**second)), planned=1)


def test_where_neither_steps_nor_files_are_seen_nothing_is_shown_and_the_script_is_not_accused() -> None:
    lives = [
        life(ending=ending, resumed_from=None, last=None) for ending in (ProcessEnding.NOTICE, ProcessEnding.EXITED)
    ]
    verdict = judged(run_of(*lives), planned=1)
    assert verdict.unproven
    assert len(verdict.reasons) == 1
    assert "spotkeep.report_resumed" in verdict.reasons[0]


def silent(
    *losses: tuple[tuple[str, ...], tuple[str, ...]], at_the_end: tuple[str, ...] = ("model-9.h5",)
) -> RunEvidence:
    """Return a run without reported steps: at each loss what was in S3, and what the next life read of it."""
    read: list[tuple[str, ...]] = [(), *(found for _, found in losses)]
    stored = [*(files for files, _ in losses), at_the_end]
    endings = [ProcessEnding.NO_NOTICE] * len(losses) + [ProcessEnding.EXITED]
    return run_of(
        *(
            replace(life(ending=ending, resumed_from=None, last=None), read_files=again, stored_files=files)
            for ending, again, files in zip(endings, read, stored, strict=True)
        )
    )


def test_a_script_without_steps_that_reads_its_checkpoint_again_passes() -> None:
    run = silent((("model-1.h5", "model-2.h5"), ("model-2.h5",)), (("model-4.h5",), ("model-4.h5",)))
    assert reasons(run) == ""
    assert [(loss.seconds_trained, loss.read_files) for loss in interruptions_of(run)] == [
        (10, ("model-2.h5",)),
        (20, ("model-4.h5",)),
    ]


def test_one_that_saves_and_never_reads_fails_and_the_file_is_named() -> None:
    found = reasons(silent((("model-1.h5", "model-2.h5"), ())), planned=1)
    assert "interruption 1: model-2.h5 and 1 more of the checkpoint directory" in found
    assert "it does not load what it saved" in found


def test_one_whose_only_file_came_back_cut_off_is_told_to_number_its_files() -> None:
    first, second = silent((("checkpoint.pth",), ()), (("checkpoint.pth",), ("checkpoint.pth",))).lives[:2]
    run = run_of(first, replace(second, put_aside=("checkpoint.pth",)))
    found = reasons(run, planned=1)
    assert "half a file came back and was put aside" in found
    assert "does not load" not in found


def test_one_that_writes_no_checkpoint_fails_and_one_that_had_none_yet_is_not_accused() -> None:
    assert "wrote nothing into the checkpoint directory" in reasons(silent(((), ()), at_the_end=()), planned=1)
    late = judged(silent(((), ())), planned=1)
    assert late.unproven
    assert "only after the last interruption" in late.reasons[0]
    assert reasons(silent(((), ()), (("model-4.h5",), ("model-4.h5",)))) == "", "the first was too early, no more"


def drifted(repeatable: bool | None) -> Verdict:
    run = replace(silent((("model-1.h5",), ("model-1.h5",))), model_files={**MODEL, "bias.npy": OTHER})
    differing = FileComparison(name="bias.npy", compared=2, differing=1, differences=())
    return judged(run, planned=1, compared=(differing,), repeatable=repeatable)


def test_another_model_is_held_against_a_script_only_where_it_is_the_same_each_time_it_is_left_alone() -> None:
    not_repeatable = drifted(repeatable=False)
    assert not_repeatable.passed
    assert not not_repeatable.equal_to_uninterrupted
    assert "two runs of this script that were left alone end with different ones" in not_repeatable.remarks[0]
    for repeatable in (True, None):
        verdict = drifted(repeatable)
        assert verdict.only_the_model_differs
        assert ("not deterministic to begin with" in verdict.reasons[0]) == (repeatable is None)


def test_a_file_that_cannot_be_compared_is_no_evidence_either_where_two_runs_left_alone_differ_in_it() -> None:
    run = replace(silent((("model-1.h5",), ("model-1.h5",))), model_files={"model.pkl": OTHER})
    reference = replace(REFERENCE, model_files={"model.pkl": MODEL["bias.npy"]})
    pickled = judged(run, planned=1, reference=reference, repeatable=False)
    assert pickled.passed
    assert "It differs in model.pkl" in pickled.remarks[0]


def test_two_models_are_the_same_when_no_value_differs() -> None:
    other = replace(REFERENCE, model_files={**MODEL, "bias.npy": OTHER})
    assert same_model(KEPT, REFERENCE, ())
    assert same_model(KEPT, other, [FileComparison(name="bias.npy", compared=1)])
    assert not same_model(KEPT, other, [FileComparison(name="bias.npy", compared=1, differing=1)])


def test_an_interruption_that_never_happened_fails() -> None:
    assert "2 interruption(s) were planned and 0 happened" in reasons(run_of(life()))


def test_a_different_model_names_the_files_and_values_that_differ() -> None:
    drifted = replace(KEPT, model_files={**MODEL, "bias.npy": OTHER})
    drift = ValueDifference(
        name="fc.bias", what=None, values=1_200, changed=1_100, largest=0.0123, largest_relative=0.25, not_finite=2
    )
    worse = replace(drift, name="fc.weight", what="has the shape 2x3, not 3x2")
    found = reasons(
        drifted,
        compared=(FileComparison(name="bias.npy", compared=9, differing=7, differences=(worse, drift)),),
    )
    assert (
        "differs from the uninterrupted run's in bias.npy (7 of 9 tensors and values: fc.weight has the shape 2x3, not"
        " 3x2, fc.bias in 1,100 of 1,200 values by at most 0.0123, relatively 0.25, 2 by NaN or infinity, and 5"
        " more): something that training depends on is not in the checkpoint" in found
    )


def test_another_model_on_several_hosts_names_the_order_of_sums() -> None:
    hosts = tuple(RehearsedHost(name=f"algo-{number}", uploads=9, not_copied=0) for number in (1, 2))
    other = replace(KEPT, model_files={**MODEL, "bias.npy": OTHER})
    differing = (FileComparison(name="bias.npy", compared=1, differing=1),)
    assert "DistributedDataParallel" not in reasons(other, compared=differing)
    on_hosts = replace(other, lives=tuple(replace(each, hosts=hosts) for each in other.lives))
    found = reasons(on_hosts, compared=differing)
    assert "With three or more ranks DistributedDataParallel" in found
    assert "spotkeep help distributed-training" in found


def of_models(ours: dict[str, ModelFile], theirs: dict[str, ModelFile], *compared: FileComparison) -> Verdict:
    return judged(replace(KEPT, model_files=ours), reference=replace(REFERENCE, model_files=theirs), compared=compared)


def test_other_bytes_that_hold_the_same_values_pass() -> None:
    verdict = of_models({**MODEL, "bias.npy": OTHER}, MODEL, FileComparison(name="bias.npy", compared=1))
    assert verdict.passed
    assert (verdict.identical_to_uninterrupted, verdict.equal_to_uninterrupted) == (False, True)
    assert verdict.remarks == ()


def test_a_file_that_cannot_be_compared_is_a_remark_and_no_reproach() -> None:
    verdict = of_models(
        {**MODEL, "bias.npy": OTHER}, MODEL, FileComparison(name="bias.npy", incomparable="it is a secret")
    )
    assert verdict.passed
    assert verdict.remarks == ("bias.npy differs and cannot be compared by value: it is a secret",)


def test_a_model_of_which_most_cannot_be_compared_does_not_pass_and_is_not_accused() -> None:
    verdict = of_models({**MODEL, "weights.npy": OTHER}, {**MODEL, "weights.npy": OTHER}, FileComparison(name="a"))
    assert verdict.passed
    for ours in ({"model.pkl": OTHER}, {"model.pkl": OTHER, "labels.npy": MODEL["bias.npy"]}):
        verdict = of_models(ours, {**ours, "model.pkl": MODEL["weights.npy"]})
        (reason,) = verdict.reasons
        assert reason.startswith(
            "whether the final model equals the uninterrupted run's is not shown: model.pkl differs"
        )
        assert "not in the checkpoint" not in reason
        assert not verdict.equal_to_uninterrupted
        assert verdict.unproven


def test_a_file_that_only_one_run_has_is_lost_unless_a_number_in_its_name_is_all() -> None:
    verdict = of_models(MODEL, {**MODEL, "best.npy": OTHER})
    assert "only digits-reference has best.npy in its model" in verdict.reasons[0]
    verdict = of_models({**MODEL, "events.17.9": OTHER}, {**MODEL, "events.18.11": OTHER})
    assert verdict.passed
    assert [remark.split(" ")[0] for remark in verdict.remarks] == ["events.17.9", "events.18.11"]


def test_a_missing_model_fails() -> None:
    assert "no model was uploaded by digits-1" in reasons(replace(KEPT, model_files={}))


def test_a_run_that_did_not_complete_says_why() -> None:
    failed = replace(KEPT, state="FAILED", failure="AlgorithmError: exit code 1", model_files={})
    assert "no model" not in reasons(failed)
    assert "ended as FAILED, not COMPLETED: AlgorithmError: exit code 1" in reasons(failed)


@pytest.mark.parametrize("alone", [True, False])
def test_a_run_that_stood_still_and_was_stopped_says_where(*, alone: bool) -> None:
    stood = replace(run_of(life(last=40), state="STOPPED"), stood_still_seconds=61.4)
    verdict = judged(reference=stood) if alone else judged(stood)
    assert verdict.fails_alone is alone
    assert verdict.reasons[0].startswith(
        f"the {'run left alone' if alone else 'interrupted run'} digits-1 stood still after step 40: no step and no"
        " line of output for 61 s"
    )


def test_what_is_known_of_keras_explains_a_failure_and_another_model() -> None:
    taken = silent((("models/model-2.h5",), ("models/model-2.h5",)))
    failed = replace(taken, state="FAILED", failure="ValueError: Unknown variable", model_files={})
    assert "the script read models/model-2.h5: if that is a whole model of Keras 3" in reasons(failed, planned=1)
    weights = silent((("model-2.weights.h5",), ("model-2.weights.h5",)))
    assert "whole model" not in reasons(replace(weights, state="FAILED", model_files={}), planned=1)
    differing = FileComparison(name="bias.npy", compared=2, differing=1, differences=())
    for stored, known in (
        (("a.keras", "a.h5"), "leave the .h5 out"),
        (("backup/latest.weights.h5", "backup/training_metadata.json"), "leave save_freq out"),
        (("a.keras", "a.weights.h5"), None),
    ):
        run = replace(silent((stored, stored), at_the_end=stored), model_files={**MODEL, "bias.npy": OTHER})
        verdict = judged(run, planned=1, compared=(differing,), repeatable=True)
        assert verdict.only_the_model_differs
        assert (known or "something that training depends on") in verdict.reasons[0]
        assert ("Keras" in verdict.reasons[0]) == (known is not None)


def test_a_remark_of_the_rehearsal_stands_in_the_verdict_and_is_no_reproach() -> None:
    verdict = judged(remarks=("one process was rehearsed, not 2",))
    assert verdict.passed
    assert verdict.remarks == ("one process was rehearsed, not 2",)


@pytest.mark.parametrize("times", [0, 2])
def test_an_ending_not_notified_exactly_once_fails(times: int) -> None:
    notifications = [ending_of("digits-1")] * times + [ending_of("digits-reference")]
    assert f"the ending of digits-1 was notified {times} times" in reasons(KEPT, notifications=notifications)


@given(at=st.integers(1, 10_000), repeated=st.integers(0, 500))
def test_with_notice_one_repeated_step_is_the_most(at: int, repeated: int) -> None:
    resumed = max(0, at - repeated)
    noticed = run_of(
        life(ending=ProcessEnding.NOTICE, last=at, saved=(resumed,), durable=resumed), life(resumed_from=resumed)
    )
    assert ("where one is the most" in reasons(noticed, planned=1)) == (at - resumed > 1)


@given(interval=st.integers(1, 200), into=st.integers(0, 600))
def test_without_notice_one_interval_is_the_most(interval: int, into: int) -> None:
    killed = run_of(
        life(ending=ProcessEnding.NO_NOTICE, last=interval + into, saved=(interval,), durable=interval),
        life(resumed_from=interval),
    )
    assert ("more than the checkpoint interval" in reasons(killed, planned=1)) == (into > interval)


def test_what_was_saved_but_not_uploaded_is_not_held_against_the_script() -> None:
    uploading = run_of(
        life(ending=ProcessEnding.NO_NOTICE, last=41, saved=(20, 40), durable=20),
        life(resumed_from=20, saved=(40, 60, 80, 100)),
    )
    assert reasons(uploading, planned=1) == ""


def test_the_interval_is_the_longest_distance_between_checkpoints() -> None:
    assert checkpoint_interval_steps(KEPT) == 20
    assert checkpoint_interval_steps(run_of(life())) is None


WITHOUT_TORCH = (
    "AlgorithmError: python train.py exited with code 1:\nTraceback (most recent call last):\n"
    "    import torch.nn\nModuleNotFoundError: No module named 'torch.nn', exit code: 1"
)


def failed(run: RunEvidence, failure: str = WITHOUT_TORCH) -> RunEvidence:
    return replace(run, state="FAILED", failure=failure, model_files={})


def test_a_package_that_is_not_installed_is_no_verdict_on_the_script() -> None:
    verdict = judged(failed(KEPT), reference=failed(REFERENCE))
    assert (verdict.missing_module, verdict.passed) == ("torch", False)
    (reason,) = verdict.reasons
    assert "the script imports 'torch'" in reason


def test_a_module_that_only_the_interrupted_run_lacks_is_one() -> None:
    verdict = judged(failed(KEPT))
    assert verdict.missing_module is None
    assert "ended as FAILED" in verdict.reasons[0]


def test_every_other_failure_of_the_run_left_alone_is_the_only_reason() -> None:
    run, reference = (failed(run, "AlgorithmError: KeyError: 'model'") for run in (KEPT, REFERENCE))
    verdict = judged(run, reference=reference)
    assert verdict.missing_module is None
    assert verdict.fails_alone
    (reason,) = verdict.reasons
    assert "KeyError" in reason


def test_a_script_that_saved_beside_its_code_gets_the_variable_to_save_below() -> None:
    silent: dict[str, Any] = {"resumed_from": None, "last": None}
    lives = [
        replace(life(ending=ending, **silent), read_files=(), unsaved_files=("checkpoints/ck-1.pkl",))
        for ending in (ProcessEnding.NO_NOTICE, ProcessEnding.EXITED)
    ]
    said = reasons(run_of(*lives), planned=1)
    assert "the script wrote checkpoints/ck-1.pkl beside its code, which an interruption deletes" in said
    assert "os.environ.get('SPOTKEEP_CHECKPOINT_DIR', 'checkpoints')" in said
    told_nothing = reasons(run_of(*(replace(each, unsaved_files=()) for each in lives)), planned=1)
    assert "the script wrote nothing into the checkpoint directory" in told_nothing
