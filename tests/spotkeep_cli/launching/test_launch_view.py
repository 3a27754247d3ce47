"""What a launch would do, in words: where the run looks for capacity, and what it can cost at most."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.launching.judgement import Judgement
from spotkeep_cli.launching.launch_view import allowed, cost_ceiling_usd, installation_rows, launch_view, places
from spotkeep_cli.launching.preparation import prepare
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.request import JobRequest, validate
from spotkeep_jobs.document.spending import worst_case_usd

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def accepted(**fields: Any) -> dict[str, Any]:
    defaults = DeploymentDefaults(image="image", prices={"ml.g5.xlarge": 1.5, "ml.g5.2xlarge": 2.0})
    document = {"name": "first", "command": "python train.py", "max_run": "2h"} | fields
    return validate(document, defaults=defaults).accepted().as_document()


def test_one_place_is_one_line() -> None:
    assert places(accepted(instance_type="ml.g5.xlarge", instance_count=2)) == ["2 x ml.g5.xlarge, spot, 250 GB each"]


def test_fallbacks_are_a_line_each() -> None:
    document = accepted(capacity="auto", instance_types=["ml.g5.xlarge", "ml.g5.2xlarge"], longest_wait="30m")
    assert places(document) == [
        "ml.g5.xlarge, spot, 250 GB each, for up to 30m of waiting",
        "then ml.g5.2xlarge, spot, 450 GB each, for up to 30m of waiting",
        "then ml.g5.xlarge or ml.g5.2xlarge, on-demand, 250 to 450 GB each, for up to 30m of waiting",
    ]


def test_a_deadline_ends_the_waiting_and_no_clock() -> None:
    document = accepted(instance_types=["ml.g5.xlarge", "ml.g5.2xlarge"], longest_wait="30m", deadline="10h")
    assert places(document) == [
        "ml.g5.xlarge, spot, 250 GB each, for up to 30m of waiting",
        "then ml.g5.2xlarge, spot, 450 GB each, as long as the deadline allows",
        "then ml.g5.xlarge or ml.g5.2xlarge, on-demand, 250 to 450 GB each",
    ]


@pytest.mark.parametrize(
    ("fields", "dollars"),
    [
        ({}, 4.0),
        ({"instance_count": 3}, 12.0),
        ({"max_total_run": "10h"}, 20.0),
        ({"max_total_run": "10h", "max_cost": 5}, 5.0),
        ({"max_cost": 50}, 4.0),
        ({"capacity": "on-demand", "keep_alive": "30m"}, 5.0),
        ({"deadline": "10h"}, 24.0),
        ({"deadline": "2026-11-21T22:00:00Z"}, 24.0),
        ({"deadline": "10h", "max_total_run": "8h"}, 16.0),
    ],
)
def test_the_ceiling_is_all_that_the_run_may_train_and_never_above_max_cost(
    fields: dict[str, Any], dollars: float
) -> None:
    assert cost_ceiling_usd(accepted(instance_type="ml.g5.2xlarge", **fields), usd_per_hour=2.0, now=NOON) == dollars


@pytest.mark.parametrize(
    "fields",
    [
        {"instance_count": 4},
        {"instance_count": 4, "capacity": "on-demand", "keep_alive": "30m", "script_retries": 1},
        {"instance_count": 2, "capacity": "on-demand", "keep_alive": "30m", "max_total_run": "5h"},
        {"capacity": "on-demand", "keep_alive": "30m", "max_total_run": "20h", "max_attempts": 2},
    ],
)
def test_the_ceiling_is_the_worst_case_that_the_launcher_compares_with_its_limit(fields: dict[str, Any]) -> None:
    """Each job may leave a warm pool, and all its instances are billed."""
    document = accepted(instance_type="ml.g5.2xlarge", **fields)
    worst = worst_case_usd(JobRequest.model_validate(document), prices={"ml.g5.2xlarge": 2.0}, now=NOON)
    assert cost_ceiling_usd(document, usd_per_hour=2.0, now=NOON) == pytest.approx(worst)


def shown(tmp_path: Path, job_file: str, *, usd_per_hour: float | None = None, **facts: Any) -> str:
    (tmp_path / "job.yaml").write_text(job_file)
    prepared = prepare(read_job_file(tmp_path / "job.yaml"), deployment=None, new_token=lambda: "once")
    defaults = DeploymentDefaults(instance_type="ml.g5.xlarge", region="us-east-1", **facts)
    request = validate(prepared.payload, defaults=defaults).accepted().as_document()
    judgement = Judgement(request=request, usd_per_hour=usd_per_hour)
    console = Console(width=120, file=StringIO())
    console.print(launch_view(judgement, prepared=prepared, where="here", now=NOON))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_the_image_of_a_framework_the_queue_where_mlflow_logs_to_the_way_to_a_shell_and_the_pause_are_shown(
    tmp_path: Path,
) -> None:
    printed = shown(
        tmp_path,
        "name: first\ncommand: python train.py\nframework: pytorch-2.8\ndebug: true\n"
        "pause_at_step: 1000\nqueue: gpu\nshare: vision\npriority: 7\n"
        "mlflow: {tracking_uri: https://mlflow.example.com, experiment: digits}\n",
    )
    assert "image  " in printed
    assert "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312" in printed
    assert "AWS patches it until 2026-08-06" in printed
    assert "spotkeep shell RUN opens one" in printed
    assert "after step 1,000, until" in printed
    assert "gpu, share vision, priority 7" in printed
    assert "https://mlflow.example.com, experiment digits" in printed


def test_the_ranks_of_each_instance_are_shown(tmp_path: Path) -> None:
    image = "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/i:1\n"
    job = f"name: first\ncommand: python train.py\ninstance_count: 2\n{image}"
    auto = " ".join(shown(tmp_path, f"{job}distributed: torchrun\n").split())
    assert "ranks torchrun starts one for each GPU, else for each Neuron core, else one, on each of 2 instances" in auto
    some = shown(tmp_path, f"{job}distributed: {{launcher: torchrun, processes: 8}}\n")
    assert "torchrun starts 8 ranks, on each of 2 instances" in some
    assert "ranks  " not in shown(tmp_path, f"{job}distributed: none\n")


def test_the_max_cost_of_a_fleet_is_shown_with_its_volume(tmp_path: Path) -> None:
    fleet = "name: first\ncommand: python train.py\nbackend: ec2\ninstance_type: m5.large\nmax_cost: 5\n"
    printed = shown(tmp_path, fleet, fleet_instance_types=("m5.large",), prices={"m5.large": 0.096})
    assert "at most $5.00 with its volume (max_cost), and the run ends before" in printed


@pytest.mark.parametrize(
    ("fields", "row"),
    [
        ("capacity: on-demand\nmax_cost: 1\n", "30m of training, for which max_cost pays"),
        (
            "capacity: on-demand\nmax_cost: 2\nkeep_alive: 30m\n",
            "30m of training, for which max_cost pays, then 30m of warm pool, billed",
        ),
        ("capacity: on-demand\nmax_cost: 2\n", "1h of training"),
        (
            "capacity: on-demand\nmax_cost: 4\nmax_total_run: 3h\n",
            "2h of training, for which max_cost pays, 1h of training a job",
        ),
        ("capacity: on-demand\nmax_cost: 1\nmax_total_run: 3h\n", "30m of training, for which max_cost pays"),
        (
            "max_cost: 1\nmax_wait: 2h\n",
            "1h of training, of which max_cost pays 30m at the on-demand price, 2h in all, waiting included",
        ),
        (
            "max_cost: 4\nmax_total_run: 3h\n",
            "3h of training, of which max_cost pays 2h at the on-demand price, 1h of training a job, "
            "25h in all, waiting included",
        ),
        (
            "max_cost: 4\ndeadline: 20h\n",
            "1h of training a job, as many as its deadline asks for, of which max_cost pays 2h at the on-demand price",
        ),
    ],
)
def test_the_time_that_max_cost_pays_for_is_shown_where_it_ends_the_training(
    tmp_path: Path, fields: str, row: str
) -> None:
    job = "name: first\ncommand: python train.py\ninstance_type: ml.g5.xlarge\nmax_run: 1h\n"
    image = "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/i:1\n"
    printed = shown(tmp_path, f"{job}{image}{fields}", usd_per_hour=2.0, prices={"ml.g5.xlarge": 2.0})
    assert f" at most {row} " in " ".join(printed.split())


def test_a_fleet_trains_for_less_as_max_cost_pays_until_it_has_ended(tmp_path: Path) -> None:
    fleet = "name: first\ncommand: python train.py\nbackend: ec2\ninstance_type: m5.large\nmax_run: 1h\n"
    facts: dict[str, Any] = {"fleet_instance_types": ("m5.large",), "prices": {"m5.large": 2.0}, "usd_per_hour": 2.0}
    one = " ".join(shown(tmp_path, f"{fleet}capacity: on-demand\nmax_cost: 1\n", **facts).split())
    assert "at most 14m of training, for which max_cost pays, 25h in all" in one
    nodes = "nodes: {min: 1, max: 4}\ndistributed: torchrun\ncapacity: on-demand\nmax_cost: 3\n"
    some = " ".join(shown(tmp_path, f"{fleet}{nodes}", **facts).split())
    assert "1h of training, of which max_cost pays 6m 30s of all nodes at the on-demand price, 25h in all" in some


def test_without_checkpoints_a_volume_keeps_what_the_script_saves(tmp_path: Path) -> None:
    job = "name: first\ncommand: python train.py\ncheckpoints: false\nmax_run: 30m\n"
    facts: dict[str, Any] = {"fleet_instance_types": ("m5.large",)}
    fleet = shown(tmp_path, f"{job}backend: ec2\ninstance_type: m5.large\n", **facts)
    assert "checkpoints  none in S3: what the script saves is on the volume alone" in fleet
    image = "image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/i:1\n"
    assert "checkpoints  none: it starts from zero" in shown(tmp_path, f"{job}{image}max_wait: 1h\n")


def test_the_fleets_of_a_run_that_goes_on_demand_by_itself_are_shown_in_their_order(tmp_path: Path) -> None:
    fleet = "name: first\ncommand: python train.py\nbackend: ec2\ninstance_types: [m5.large, m6i.large]\n"
    facts = {"fleet_instance_types": ("m5.large",)}
    auto = " ".join(shown(tmp_path, f"{fleet}capacity: auto\nlongest_wait: 30m\n", **facts).split())
    assert "runs on m5.large or m6i.large, spot, an EC2 fleet of one instance, for up to 30m of waiting" in auto
    assert "then m5.large or m6i.large, on-demand, an EC2 fleet of one instance, for up to 30m of waiting" in auto
    steered = " ".join(shown(tmp_path, f"{fleet}deadline: 60h\n", **facts).split())
    assert "spot, an EC2 fleet of one instance, as long as the deadline allows then m5.large" in steered
    some = " ".join(shown(tmp_path, f"{fleet}capacity: auto\nruns: 3\non_demand_base: 1\n", **facts).split())
    assert "m6i.large, on-demand, 1 EC2 fleet of one instance: run 1 m5.large" in some
    assert "m6i.large, spot, 2 EC2 fleets of one instance: runs 2 to 3, for up to 1h of waiting then m5.large" in some


def test_nodes_are_shown_with_their_wait_and_network_and_all_of_them_are_paid_for(tmp_path: Path) -> None:
    job = "name: first\ncommand: python train.py\nbackend: ec2\ninstance_types: [m5.large]\ndistributed: torchrun\n"
    facts: dict[str, Any] = {"fleet_instance_types": ("m5.large",), "prices": {"m5.large": 0.1}, "usd_per_hour": 0.1}
    some = " ".join(shown(tmp_path, f"{job}nodes: {{min: 2, max: 8}}\nmax_run: 10h\n", **facts).split())
    assert "runs on m5.large, spot, an EC2 fleet of 2 to 8 nodes in one zone" in some
    assert "on each of 2 to 8 instances" in some
    assert "nodes wait up to 10m for 2 of them, on the bill; then another zone or type is tried" in some
    assert "is tried, or the same again where there is no other" in some
    of_eight = {"backend": "ec2", "max_run": 36_000, "instance_count": 1, "nodes": {"min": 2, "max": 8}}
    assert cost_ceiling_usd(of_eight, usd_per_hour=0.1, now=NOON) == pytest.approx(8.0)
    assert "costs at most $8.00 of instance time ($0.10 an hour each on demand; spot usually costs far less)" in some
    waits = "; nodes that wait for others, and root disks, come on top"
    assert f"far less){waits}" in some
    dear = " ".join(shown(tmp_path, f"{job}nodes: 2\nmax_run: 10h\nmax_price: 0.05\n", **facts).split())
    assert f"at most $1.00 of instance time, at max_price{waits}" in dear
    until = " ".join(shown(tmp_path, f"{job}nodes: 2\nmax_run: 10h\nwork: 8h\ndeadline: 20h\n", **facts).split())
    assert "far less); root disks come on top" in until, "until the deadline all time is counted"
    assert "volume" not in some
    network = "network: {placement: cluster, efa: true}\nnodes_wait: 30m\nvolume: {size_gb: 300}\nmax_cost: 5\n"
    two = " ".join(shown(tmp_path, f"{job}nodes: 2\nruns: 2\n{network}", **facts).split())
    assert "spot, 2 EC2 fleets of 2 nodes in one zone" in two
    assert "2, independent: each with its own fleet of nodes and checkpoints" in two
    assert "wait up to 30m for the rest, on the bill" in two
    assert "in a cluster placement group" in two
    assert "with an Elastic Fabric Adapter each" in two
    assert "300 GiB of root disk each, deleted with their nodes" in two
    assert "at most $5.00 with root disks and waits (max_cost), and the run ends before" in two


def test_the_channel_that_has_the_checkpoints_of_nodes_is_shown(tmp_path: Path) -> None:
    job = "name: first\ncommand: python train.py\nbackend: ec2\ninstance_types: [m5.large]\ndistributed: torchrun\n"
    shared = "channels:\n  shared: {efs: fs-0123456789abcdef0, path: /, access: rw}\ncheckpoint_channel: shared\n"
    printed = shown(tmp_path, f"{job}nodes: 2\n{shared}", fleet_instance_types=("m5.large",))
    assert "checkpoints in the channel shared; copies: in the deployment's bucket" in " ".join(printed.split())


def test_an_algorithm_and_the_kind_of_its_data_are_shown(tmp_path: Path) -> None:
    mounted = "more: {fsx: fs-0123456789abcdef0, path: /m/a}, rest: {efs: fs-0123456789abcdef0, path: /, access: rw}"
    channels = f"channels: {{train: {{uri: s3://data/train/, content_type: text/csv}}, {mounted}}}"
    printed = shown(tmp_path, f"name: trees\nalgorithm: xgboost-1.7\n{channels}\n")
    assert "none: algorithm xgboost-1.7-1 runs" in printed
    assert "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1" in printed
    assert "train: s3://data/train/ (text/csv)" in printed
    assert "more: FSx fs-0123456789abcdef0, /m/a, ro" in printed
    assert "rest: EFS fs-0123456789abcdef0, /, rw" in printed


def test_the_deployments_ceilings_are_shown_and_how_near_the_run_comes() -> None:
    limits = {
        "allowed_instance_types": ["ml.g5.*", "g5.*"],
        "run_cost_limit_usd": 1_000,
        "volume_size_limit_gb": 2_048,
        "volume_iops_limit": 16_000,
        "runs_in_flight_limit": 100,
    }
    assert allowed(Judgement(request={}, limits=limits, worst_case_usd=48.0)) == [
        "instance types ml.g5.*, g5.*",
        "$1,000.00 of instance time a run; this one, $48.00 in the worst case",
        "2,048 GB of storage each",
        "100 runs at a time",
    ]
    assert allowed(Judgement(request={})) == []


COMMAND = {"command": ["python", "train.py"]}


@pytest.mark.parametrize(
    ("request_", "rows"),
    [
        ({**COMMAND, "install": "none"}, []),
        ({**COMMAND, "install": "auto"}, [("installs", "what requirements.txt asks for; a restart finds it in S3")]),
        (
            {**COMMAND, "install": "more.txt", "backend": "ec2"},
            [("installs", "what more.txt asks for; a restart finds it on the run's volume")],
        ),
        (
            {**COMMAND, "install": ["timm", "einops"], "setup": ["make", "all"]},
            [("installs", "timm, einops; a restart finds it in S3"), ("setup", "make all, once a machine")],
        ),
        (
            {**COMMAND, "install": ["timm"], "keep_alive": 1800},
            [("installs", "timm; a restart finds it in S3, the next job on the warm pool in its cache")],
        ),
        (
            {"command": "a\nb\n", "install": "none", "setup": "apt-get update\n\napt-get install -y x\n"},
            [("setup", "2 lines for bash: apt-get update; apt-get install -y x, once a machine")],
        ),
        ({"install": "auto"}, []),
    ],
)
def test_each_kind_of_installation_is_a_row(
    request_: dict[str, Any], rows: list[tuple[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("timm\n")
    (tmp_path / "job.yaml").write_text("name: first\ncommand: python train.py\nsource: .\n")
    prepared = prepare(read_job_file(tmp_path / "job.yaml"), deployment=None, new_token=lambda: "once")
    assert list(installation_rows(request_, prepared=prepared)) == rows
