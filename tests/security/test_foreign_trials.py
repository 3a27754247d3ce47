"""One user has a sweep, a schedule or a run of theirs meet another's under an id of their choice.

Who attacks: a user with the users' policy of a deployment, by documents alone; or one who may create training jobs with
the deployment's tag. What they would gain: an end to another's training, another's failed run going on with their
command in another's role, a `best` that is theirs, or a night in which another's schedule launches nothing.

A run is a trial only if its record says so. Ids that a sweep or a schedule has for what it launches are given to no
other, whichever user asks, in a deployment that verifies callers as in one that does not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from launcher import handler as entry
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.ec2.fleet_table import FleetTable
from spotkeep_jobs.backends.ec2.jobs import FleetJobs
from spotkeep_jobs.backends.ec2.launch import FleetPlatform
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import RunState, SweepState, TrialState
from spotkeep_jobs.record.sweep import Trial
from spotkeep_jobs.runs.adoption import Adoption
from spotkeep_jobs.runs.callers import CallerRules
from spotkeep_jobs.schedules.scheduled_launches import ScheduledLaunches
from spotkeep_jobs.sweeps.advance import Sweeps
from tests.models.deployment import DEFAULTS, PLATFORM, controller_on, end_run, launcher_on
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.ec2 import TEMPLATE, Ec2
from tests.models.scheduler import Schedules

from .test_callers import ADA, GRACE, RULES, Deployment, refused_fields

TEAM_OF = {ADA: "vision", GRACE: "speech"}
JOB = "pytorch-training-1"
THREE = {"trials": [{"lr": 1}, {"lr": 2}, {"lr": 3}], "parallel": 1}
NIGHTLY = "cron(0 2 * * ? *)"
TONIGHT = "2026-11-22T02:00:00Z"
ROLES = {team: f"arn:aws:iam::111122223333:role/{team}" for team in TEAM_OF.values()}


class Lab(Deployment):
    """A deployment, with schedules, and with fleets for several runs at once."""

    def __init__(self, rules: CallerRules | None, *, isolated: bool) -> None:
        super().__init__(rules)
        dynamodb: Any = InMemoryDynamoDb()
        self.table = RunTable.of(client=dynamodb, table_name="runs")
        self.schedules = Schedules(now=self.sagemaker.now)
        ec2: Any = Ec2(time=self.sagemaker.time)
        records = FleetTable(dynamodb, table_name="runs", retention_days=90)
        fleets = FleetJobs(
            ec2=Ec2Api(lambda: ec2), records=records, deployment="spotkeep", prices={}, now=self.sagemaker.now,
            launches=lambda *_: None, zones={},
        )  # fmt: skip
        self.launcher = launcher_on(
            self.table,
            self.sagemaker,
            platform=replace(PLATFORM, team_role_arns=ROLES if isolated else {}),
            defaults=replace(
                DEFAULTS,
                teams=("speech", "vision"),
                isolated_teams=("speech", "vision") if isolated else (),
                fleet_instance_types=("g5.xlarge",),
            ),
            callers=rules,
            clients={"scheduler": self.schedules},
            fleet_platform=FleetPlatform(launch_template_id=TEMPLATE, subnets={"subnet-a": "us-east-1a"}),
            fleet_checks=None,
            fleets=fleets,
        )

    def invoke(self, event: object) -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(entry, "launcher_function", lambda: self)
            return super().invoke(event)

    def advance(self, sweep: str, **asked: Any) -> None:
        """The launcher goes on with a sweep at once."""
        Sweeps(self.launcher).advance(sweep, ended_runs=asked.get("ended_runs"))

    def launches(self, caller: str, run: str, **fields: Any) -> dict[str, Any]:
        """What a user launches, as their team's."""
        document = {"name": "x", "run": run, "command": "python train.py", "team": TEAM_OF[caller], **fields}
        if fields.get("backend") == "ec2":
            del document["team"]
        return self.call(document, caller=caller)

    def begins(self, caller: str, run: str, **fields: Any) -> None:
        answer = self.launches(caller, run, **fields)
        assert answer["ok"], answer

    def refuses(self, caller: str, run: str, *naming: str, **fields: Any) -> None:
        """A launch is refused whole, for its id, naming who has it."""
        before = (
            set(self.sagemaker.jobs),
            self.table.runs.get(run),
            self.table.sweeps.get(run),
            self.table.schedules.get(run),
        )
        answers = [self.launches(caller, run, action=action, **fields) for action in ("validate", "launch")]
        for answer in answers:
            assert set(refused_fields(answer)) == {"run"}
            assert all(name in str(answer["problems"]) for name in naming), answer["problems"]
        after = (
            set(self.sagemaker.jobs),
            self.table.runs.get(run),
            self.table.sweeps.get(run),
            self.table.schedules.get(run),
        )
        assert before == after

    def acts(self, caller: str, action: str, **fields: Any) -> dict[str, Any]:
        return self.call({"action": action, **fields}, caller=caller)

    def trial(self, sweep: str, number: int) -> Trial:
        return self.table.sweeps.with_trials(sweep)[1][number - 1]

    def job_of_another_client(self, name: str) -> Run:
        """Another client creates a tagged job, and the controller makes a run of it."""
        self.sagemaker.is_made_by_hand(name, tags={"spotkeep:deployment": "spotkeep"})
        assert Adoption(controller_on(self.table, self.sagemaker)).adopt(name) == name
        return self.run_item(name)

    def ends(self, run: str, state: RunState = RunState.COMPLETED) -> None:
        end_run(self.table, self.sagemaker, run, state=state)

    def fires(self, schedule: str = "nightly", at: str = TONIGHT) -> dict[str, Any]:
        self.sagemaker.seconds += max(0.0, (datetime.fromisoformat(at) - self.sagemaker.now()).total_seconds())
        payload = self.schedules.fire(schedule, at)
        assert payload is not None
        return self.invoke(payload)

    @contextmanager
    def untouched(self, *runs: str) -> Iterator[None]:
        """Nothing that is done meanwhile changes these runs, or stops their jobs."""
        before = [self.run_item(run) for run in runs]
        stopped = len(self.sagemaker.stopped)
        yield
        assert [self.run_item(run) for run in runs] == before
        assert not {run.job_name for run in before} & set(self.sagemaker.stopped[stopped:])


@pytest.fixture(params=["trusting", "verifying", "isolated"])
def lab(request: pytest.FixtureRequest) -> Lab:
    return Lab(None if request.param == "trusting" else RULES, isolated=request.param == "isolated")


def trial_token(token: str, number: int) -> str:
    return hashlib.sha256(f"{token}\n{number}".encode()).hexdigest()


class TestASweepOverTheRunsOfAnother:
    def test_it_is_refused_whole_with_all_that_is_wrong_and_names_them(self, lab: Lab) -> None:
        for run in ("exp-2", "exp-3"):
            lab.begins(ADA, run)
        with lab.untouched("exp-2", "exp-3"):
            lab.refuses(GRACE, "exp", "exp-2", "exp-3", sweep=THREE)
            asked = lab.launches(GRACE, "exp", sweep=THREE, max_run="-1", comand="x")
            assert set(refused_fields(asked)) == {"run", "max_run", "comand"}
            for action in ("stop", "pause", "resume", "describe"):
                assert refused_fields(lab.acts(GRACE, action, sweep="exp")) == ["sweep"]

    @pytest.mark.parametrize("number", [1, 4, 77, 10_000])
    def test_it_is_refused_for_any_number_that_a_trial_may_come_to_have(self, lab: Lab, number: int) -> None:
        lab.begins(ADA, f"exp-{number}")
        lab.refuses(GRACE, "exp", f"exp-{number}", sweep=THREE)
        lab.refuses(ADA, "exp", f"exp-{number}", sweep=THREE)

    def test_a_failed_run_does_not_go_on_with_the_command_of_a_sweep(self, lab: Lab) -> None:
        lab.begins(ADA, "exp-2")
        lab.ends("exp-2", RunState.FAILED)
        with lab.untouched("exp-2"):
            lab.refuses(GRACE, "exp", "exp-2", sweep=THREE, command="python steal.py")

    def test_no_run_of_several_that_were_launched_as_one_becomes_a_trial(self, lab: Lab) -> None:
        lab.begins(ADA, "seeds", backend="ec2", instance_type="g5.xlarge", runs=3)
        lab.refuses(GRACE, "seeds", "seeds-1", "seeds-3", sweep=THREE)

    def test_one_of_another_form_is_no_obstacle(self, lab: Lab) -> None:
        for run in ("exp-0", "exp-02", "exp-10001", "exp-x", "exp-2-x"):
            lab.begins(ADA, run)
        lab.begins(GRACE, "exp", sweep=THREE)

    def test_a_run_that_ended_long_ago_and_went_on_since_is_remembered(self, lab: Lab) -> None:
        lab.begins(ADA, "exp-2")
        lab.ends("exp-2", RunState.FAILED)
        del lab.table.client.dynamodb.items["trial-id#exp", "claim"]  # type: ignore[attr-defined]  # As if it had expired.
        assert lab.acts(ADA, "resume", run="exp-2")["ok"]
        lab.refuses(GRACE, "exp", "exp-2", sweep=THREE)


class TestARunInTheSweepOfAnother:
    def test_no_run_sweep_or_several_runs_are_called_like_a_trial(self, lab: Lab) -> None:
        lab.begins(ADA, "swp", sweep=THREE)
        for number in (2, 4, 10_000):
            lab.refuses(GRACE, f"swp-{number}", "sweep swp")
            lab.refuses(GRACE, f"swp-{number}", "sweep swp", sweep=THREE)
        several = {"backend": "ec2", "instance_type": "g5.xlarge", "runs": 3}
        lab.refuses(GRACE, "swp-2", "sweep swp", **several)
        lab.refuses(GRACE, "swp", **several)
        lab.refuses(GRACE, "swp")
        lab.refuses(ADA, "swp-2", "sweep swp")
        for number in (1, 2, 3):
            lab.ends(f"swp-{number}")
            Sweeps(lab.launcher).advance("swp")
        sweep = lab.table.sweeps.get("swp")
        assert sweep is not None
        assert (sweep.state, sweep.counts.completed) == (SweepState.COMPLETED, 3)

    def test_they_are_after_it_ended(self, lab: Lab) -> None:
        lab.begins(ADA, "swp", sweep={"trials": [{"lr": 1}], "parallel": 1})
        lab.ends("swp-1")
        Sweeps(lab.launcher).advance("swp")
        lab.refuses(GRACE, "swp-2", "sweep swp")

    def test_a_job_of_another_client_is_no_trial_and_the_trial_whose_id_it_has_fails(self, lab: Lab) -> None:
        """It is a run whatever its name: SageMaker has it, and nothing may bill unseen."""
        lab.begins(ADA, "swp", sweep=THREE | {"objective": {"metric": "loss", "goal": "minimize"}})
        lab.job_of_another_client("swp-2")
        with lab.untouched("swp-2"):
            lab.ends("swp-1")
            Sweeps(lab.launcher).advance("swp")
            trial = lab.trial("swp", 2)
            assert (trial.state, trial.failure_reason) == (
                TrialState.FAILED,
                "id taken: run swp-2 is no trial of this sweep",
            )
            assert (trial.cost, trial.best, trial.step) == (None, None, None)
            assert lab.trial("swp", 3).state is TrialState.RUNNING
            assert lab.acts(ADA, "stop", sweep="swp")["ok"]
            assert "swp-3-1" in lab.sagemaker.stopped
            lab.ends("swp-3", RunState.STOPPED)
            Sweeps(lab.launcher).advance("swp")
            assert lab.acts(ADA, "resume", sweep="swp", changes={"command": "python other.py"})["ok"]
            Sweeps(lab.launcher).advance("swp")
            assert lab.trial("swp", 2).state is TrialState.FAILED

    def test_its_end_says_nothing_of_a_trial(self, lab: Lab) -> None:
        lab.begins(ADA, "swp", sweep=THREE)
        lab.job_of_another_client("swp-2")
        lab.ends("swp-2")
        Sweeps(lab.launcher).advance("swp", ended_runs=["swp-2"])
        lab.ends("swp-1")
        Sweeps(lab.launcher).advance("swp", ended_runs=["swp-1", "swp-2"])
        assert lab.trial("swp", 2).state is TrialState.FAILED

    def test_a_sweep_that_comes_after_such_a_job_is_refused(self, lab: Lab) -> None:
        lab.job_of_another_client("swp-2")
        lab.refuses(ADA, "swp", "swp-2", sweep=THREE)

    def test_who_knows_the_arn_of_a_job_keeps_it_from_becoming_no_run(self, lab: Lab) -> None:
        arn = f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{JOB}"
        lab.begins(GRACE, "other", token=f"adopted:{arn}")
        assert lab.job_of_another_client(JOB).token == f"adopted:{arn}"

    def test_who_knows_the_token_of_a_sweep_keeps_no_trial_from_beginning(self, lab: Lab) -> None:
        """Everybody reads the record of a sweep, and the token of a trial follows from it."""
        lab.begins(ADA, "swp", sweep=THREE, token="of-the-sweep")
        lab.begins(GRACE, "other", token=trial_token("of-the-sweep", 2))
        lab.ends("swp-1")
        Sweeps(lab.launcher).advance("swp")
        assert lab.trial("swp", 2).state is TrialState.RUNNING
        assert lab.run_item("swp-2").job_name == "swp-2-1"


class TestTheScheduleOfAnother:
    @pytest.mark.parametrize("own", [{}, {"sweep": THREE}], ids=["a run", "a sweep"])
    def test_nothing_is_called_like_what_it_launches(self, lab: Lab, own: dict[str, Any]) -> None:
        lab.begins(ADA, "nightly", schedule=NIGHTLY, **own)
        several = {"backend": "ec2", "instance_type": "g5.xlarge", "runs": 3}
        for run in ("nightly-20261122-0200", "nightly-20261122-0200-2", "nightly-20270101-1200"):
            lab.refuses(GRACE, run, "schedule nightly")
            lab.refuses(GRACE, run, "schedule nightly", sweep=THREE)
            lab.refuses(GRACE, run, "schedule nightly", **several)
        # Its trial 1200 would be called like what is launched at noon.
        lab.refuses(GRACE, "nightly-20261122", "schedule nightly", sweep=THREE)
        answer = lab.fires()
        assert answer["ok"], answer
        assert (answer.get("sweep") or answer.get("run")) == "nightly-20261122-0200"

    def test_it_reserves_ids_of_its_own_form_alone(self, lab: Lab) -> None:
        lab.begins(ADA, "nightly", schedule=NIGHTLY)
        for run in ("nightly-2", "nightly-20261122", "nightly-20261322-0200", "nightly-20261122-2460", "nightly-x"):
            lab.begins(GRACE, run)

    def test_who_was_there_before_it_is_named_and_it_is_refused(self, lab: Lab) -> None:
        lab.begins(GRACE, "nightly-20261122-0200")
        lab.begins(GRACE, "nightly-20261123", sweep=THREE)
        lab.refuses(ADA, "nightly", "nightly-20261122-0200", "nightly-20261123", schedule=NIGHTLY)
        assert lab.schedules.recurring == {}

    def test_what_was_launched_for_a_time_that_is_over_does_not_matter(self, lab: Lab) -> None:
        lab.begins(GRACE, "nightly-20261121-1159")
        lab.begins(ADA, "nightly", schedule=NIGHTLY)

    def test_it_can_be_made_again_after_it_has_fired(self, lab: Lab) -> None:
        lab.begins(ADA, "nightly", schedule=NIGHTLY)
        assert lab.fires()["ok"]
        assert lab.acts(ADA, "remove-schedule", schedule="nightly")["ok"]
        lab.begins(ADA, "nightly", schedule=NIGHTLY)
        assert lab.fires(at="2026-11-23T02:00:00Z")["ok"]

    def test_a_job_of_another_client_removes_no_schedule(self, lab: Lab) -> None:
        """It has that night's id, for SageMaker gave it; the schedule stays, and so do its other nights."""
        lab.begins(ADA, "nightly", schedule=NIGHTLY, token="of-the-schedule")
        lab.job_of_another_client("nightly-20261122-0200")
        recorded = lab.table.schedules.get("nightly")
        assert recorded is not None
        assert ScheduledLaunches(lab.launcher).begin(recorded) == (recorded, True)
        with lab.untouched("nightly-20261122-0200"):
            assert refused_fields(lab.fires()) == ["run"]
        assert lab.fires(at="2026-11-23T02:00:00Z")["ok"]

    def test_who_knows_its_token_keeps_no_night_from_its_launch(self, lab: Lab) -> None:
        lab.begins(ADA, "nightly", schedule=NIGHTLY, token="of-the-schedule")
        token = hashlib.sha256(b"of-the-schedule\nnightly-20261122-0200").hexdigest()
        lab.begins(GRACE, "other", token=token)
        assert lab.fires()["run"] == "nightly-20261122-0200"

    def test_what_it_launched_is_of_it_and_another_schedules_ids_stay_others(self, lab: Lab) -> None:
        lab.begins(ADA, "nightly", schedule=NIGHTLY)
        lab.begins(ADA, "nightly-20261122-0200-20261122", schedule=NIGHTLY)
        assert lab.fires()["ok"]
        assert lab.run_item("nightly-20261122-0200").schedule == "nightly"


class TestSeveralRunsOfAnother:
    def test_its_runs_are_its_own(self, lab: Lab) -> None:
        several = {"backend": "ec2", "instance_type": "g5.xlarge", "runs": 3}
        lab.begins(ADA, "seeds", **several)
        for number in (1, 2, 3):
            lab.refuses(GRACE, f"seeds-{number}")
        lab.refuses(GRACE, "seeds", "seeds-2", **several)


class TestTwoAtOnce:
    """What validation has not seen, the transaction has: the second one read everything before the first one wrote."""

    @pytest.fixture
    def blind(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
        """A launcher that has read everything a moment ago, when there was nothing."""
        for module in ("acceptance",):
            for name in ("problems_of_run_id", "problems_of_sweep_id", "problems_of_schedule_id"):
                monkeypatch.setattr(f"spotkeep_jobs.runs.{module}.{name}", lambda *_, **__: [], raising=False)
        monkeypatch.setattr("spotkeep_jobs.sweeps.launch.problems_of_sweep_id", lambda *_, **__: [])
        return lab

    def test_the_sweep_is_refused_that_comes_second(self, blind: Lab) -> None:
        blind.begins(ADA, "exp-2")
        assert refused_fields(blind.launches(GRACE, "exp", sweep=THREE)) == ["run"]
        assert blind.table.sweeps.get("exp") is None
        assert refused_fields(blind.launches(GRACE, "exp-2", sweep=THREE)) == ["run"]

    def test_the_run_is_refused_that_comes_second(self, blind: Lab) -> None:
        blind.begins(ADA, "exp", sweep=THREE)
        for run in ("exp", "exp-2", "exp-9999"):
            assert refused_fields(blind.launches(GRACE, run)) == ["run"]
            assert blind.table.runs.get(run) is None

    def test_the_schedule_is_refused_that_comes_second(self, lab: Lab) -> None:
        read = ScheduledLaunches(lab.launcher).read(
            {"name": "x", "run": "nightly", "command": "x", "schedule": NIGHTLY}, default_token="t", caller=None
        )
        assert read.schedule is not None
        lab.begins(GRACE, "nightly-20261122-0200")
        with pytest.raises(Exception, match="nightly-20261122-0200"):
            ScheduledLaunches(lab.launcher).begin(read.schedule)
        assert lab.table.schedules.get("nightly") is None
        assert lab.schedules.recurring == {}

    def test_the_run_is_refused_that_comes_after_the_schedule(self, blind: Lab) -> None:
        blind.begins(ADA, "nightly", schedule=NIGHTLY)
        for fields in ({}, {"sweep": THREE}):
            assert refused_fields(blind.launches(GRACE, "nightly-20261122-0200", **fields)) == ["run"]
        assert blind.table.runs.get("nightly-20261122-0200") is None
