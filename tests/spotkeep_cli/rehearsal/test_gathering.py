"""Evidence joins what the training service saw of a process with what the process logged while it lived."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_cli.rehearsal.evidence import ProcessEnding, RehearsedHost
from spotkeep_cli.rehearsal.gathering import durable_step, process_life, process_lives, standstill_seconds
from spotkeep_jobs.progress.job_events import JobEvent, JobEventKind
from spotkeep_local.training.job import HostLifetime, ProcessLifetime


def lifetime(**fields: object) -> ProcessLifetime:
    return ProcessLifetime(**{"pid": 1, "started_at": 100.0, "ended_at": 110.0, **fields})  # type: ignore[arg-type]


def saved(step: int, *, at: float) -> JobEvent:
    return JobEvent(kind=JobEventKind.SAVED, at=at, step=step)


@pytest.mark.parametrize(
    ("fields", "ending"),
    [
        ({"interrupted": True, "notice": True, "signal": "SIGTERM"}, ProcessEnding.NOTICE),
        ({"interrupted": True, "notice": False, "signal": "SIGKILL"}, ProcessEnding.NO_NOTICE),
        ({"signal": "SIGTERM"}, ProcessEnding.STOPPED),
        ({"exit_code": 1}, ProcessEnding.EXITED),
    ],
)
def test_the_service_says_how_a_process_ended(fields: dict[str, object], ending: ProcessEnding) -> None:
    assert process_life(lifetime(**fields), []).ending is ending


def test_a_life_keeps_only_the_checkpoints_that_were_saved_while_it_lived() -> None:
    events = [saved(20, at=99.0), saved(40, at=101.0), saved(60, at=110.0), saved(80, at=111.0)]
    assert process_life(lifetime(), events).saved_steps == (40, 60)


def test_what_was_read_again_is_known_where_the_disk_shows_it_and_not_all_are_checkpoints() -> None:
    names = ("model-1.h5", "tensorboard/events.out.tfevents.1", "exits-on-notice.json")
    seen = process_life(lifetime(stored_files=names, read_files=names, uploads=3), [])
    assert (seen.stored_files, seen.read_files, seen.uploads) == (("model-1.h5",), ("model-1.h5",), 3)
    assert process_life(lifetime(), []).read_files is None


def test_what_came_back_cut_off_is_known_from_the_log() -> None:
    event = JobEvent(kind=JobEventKind.PUT_ASIDE, at=101.0, fields={"what": "model.pth", "problem": "it is empty"})
    assert process_life(lifetime(), [event]).put_aside == ("model.pth",)


def test_the_newest_manifest_in_s3_is_what_was_durable() -> None:
    files = (
        "step-20/manifest.json",
        "step-40/manifest.json",
        "step-60/tensors.bin",
        "step-60/notes/manifest.json.part",
        "step-70/manifest.json.sagemaker-uploading",
        "step-x/manifest.json",
    )
    assert process_life(lifetime(stored_files=files), []).durable_step == 40
    assert process_life(lifetime(stored_files=("rank-0/step-0000120/manifest.json",)), []).durable_step == 120
    assert process_life(lifetime(stored_files=("model.pth",)), []).durable_step == 0


def test_a_checkpoint_with_a_file_that_was_not_sent_was_not_durable() -> None:
    stored = ("step-20/manifest.json", "step-20/data.bin", "step-40/manifest.json")
    assert durable_step(stored_files=stored, unsent_files=("step-40/data.bin",)) == 20


def test_checkpoints_of_the_scripts_own_format_were_durable_once_there_was_time_to_upload_them() -> None:
    events = [saved(20, at=103.0), saved(40, at=107.9), saved(60, at=108.1)]
    own_format = {"stored_files": ("model.pth",), "unsent_files": ("model.pth",)}
    assert process_life(lifetime(uploads=3, **own_format), events).durable_step == 40
    assert process_life(lifetime(uploads=0, **own_format), events).durable_step == 0


def test_each_host_says_what_it_copied_and_what_it_did_not() -> None:
    first = HostLifetime(name="algo-1", exit_code=137, uploads=3)
    second = HostLifetime(name="algo-2", exit_code=137, unsent_files=("step-8/data-00001.bin", "tensorboard/events"))
    assert process_life(lifetime(hosts=(first, second)), []).hosts == (
        RehearsedHost(name="algo-1", uploads=3, not_copied=0),
        RehearsedHost(name="algo-2", uploads=0, not_copied=1),
    )


@pytest.mark.parametrize(
    ("folder", "saved_again", "durable"),
    [("step-8", False, 4), ("step-8", True, 8), ("step-8-1.0.1", False, 4), ("step-8-1.0.1", True, 4)],
)
def test_a_checkpoint_that_came_back_in_part_is_not_durable_until_it_is_written_again(
    folder: str, saved_again: bool, durable: int
) -> None:
    """The manifest of one host arrived, and the data of another did not."""
    there = ("step-4/manifest.json", f"{folder}/manifest.json")
    lost = lifetime(stored_files=there, unsent_files=(f"{folder}/data-00001.bin",))
    after = lifetime(started_at=120.0, ended_at=130.0, stored_files=there)
    events = [saved(8, at=125.0)] if saved_again else []
    assert [life.durable_step for life in process_lives([lost, after, after], events)] == [4, durable, durable]


@pytest.mark.parametrize(
    ("kind", "fields", "seconds"),
    [
        (JobEventKind.STUCK, {"seconds": 61.5}, 61.5),
        (JobEventKind.STUCK, {}, 0.0),
        (JobEventKind.STUCK, {"seconds": 61.5, "restarts": 0, "at_most": 3}, None),
        (JobEventKind.MOVES_AGAIN, {}, None),
    ],
)
def test_a_command_that_hangs_is_known_from_the_log_unless_the_runner_starts_it_again(
    kind: JobEventKind, fields: dict[str, Any], seconds: float | None
) -> None:
    assert standstill_seconds(JobEvent(kind=kind, at=101.0, fields=fields)) == seconds
