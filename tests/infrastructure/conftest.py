"""Templates to assert on: whole deployments, synthesized once a run without building the dependency layer.

The CDK is imported where it is used, for that starts Node, which takes seconds: other tests read templates from here,
and most of them read what another process has synthesized.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aws_cdk import IPolicyValidationPlugin, Stack

ROOT = Path(__file__).resolve().parents[2]

Resource = dict[str, Any]
SharedDirectory = Callable[[str, Callable[[Path], object]], Path]

EVERYTHING_SET: dict[str, Any] = {
    "deployment": "lab",
    "region": "us-west-1",
    "account": "111122223333",
    "notify_emails": ["team@example.com", "lead@example.com"],
    "operator_emails": ["ops@example.com"],
    "dashboard": False,
    "keep_data_on_destroy": False,
    "checkpoint_retention_days": 400,
    "permissions_boundary_arn": "arn:aws:iam::111122223333:policy/boundary",
    "prices": {"ml.m5.xlarge": 0.23},
    "max_keep_alive_seconds": 1800,
    "pool_reminder_seconds": 300,
    "pool_idle_limit_seconds": 1200,
    "orphans": "remove",
    "isolated_teams": ["vision", "speech"],
    "verify_callers": True,
    "team_members": {
        "vision": ["arn:aws:sts::111122223333:assumed-role/AWSReservedSSO_Vision_*/*"],
        "speech": ["arn:aws:sts::111122223333:assumed-role/AWSReservedSSO_Speech_*/*"],
    },
    "administrators": ["arn:aws:sts::111122223333:assumed-role/AWSReservedSSO_Platform_*/*"],
    "owner_emails": {"ada": "ada@example.com"},
    "slack_channel": "T0123ABCD/C0123ABCD",
    "teams_channel": "/".join(
        ["1a2b3c4d-0000-4000-8000-000000000001", "1a2b3c4d-0000-4000-8000-000000000002", "19%3aabc%40thread.tacv2"]
    ),
    "webhook_secret_arn": "arn:aws:secretsmanager:us-west-1:111122223333:secret:spotkeep-webhook-AbCd12",
    "shells": True,
    "tpe_search": True,
    "queues": {
        "gpu": {
            "types": {"ml.g5.2xlarge": 20},
            "shares": {
                "vision": {"types": {"ml.g5.2xlarge": 12}, "borrow_limit_percent": 50, "preempt_by_priority": True},
                "nlp": {"types": {"ml.g5.2xlarge": 8}, "lending": "lend"},
            },
        }
    },
    "encrypt_training_volumes": True,
    "data_locations": ["s3://lab-data/", "s3://shared-data/cifar10/"],
    "data_key_arns": ["arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"],
    "mlflow_arns": [
        "arn:aws:sagemaker:us-west-1:111122223333:mlflow-tracking-server/experiments",
        "arn:aws:sagemaker:us-west-1:111122223333:mlflow-app/app-0A1B2C3D",
    ],
    "secrets": [
        "huggingface-token",
        "arn:aws:secretsmanager:us-west-1:111122223333:secret:lab/github-Ab12Cd",
    ],
    "secret_key_arns": ["arn:aws:kms:us-west-1:111122223333:key/5678abcd-12ab-34cd-56ef-1234567890ab"],
    "training_subnet_ids": ["subnet-0aaaaaaaaaaaaaaa1", "subnet-0aaaaaaaaaaaaaaa2"],
    "training_security_group_ids": ["sg-0aaaaaaaaaaaaaaa1"],
    "file_systems": ["fs-0123456789abcdef0", "fs-0fedcba9876543210"],
    "volume_retention_days": 30,
    "drills": True,
    "vpc_id": "vpc-0123456789abcdef0",
    "vpc_subnet_ids": ["subnet-0bbbbbbbbbbbbbbb1", "subnet-0bbbbbbbbbbbbbbb2"],
    "vpc_availability_zones": ["us-west-1a", "us-west-1c"],
    "spot_instance_types": ["c5.xlarge", "c6i.xlarge"],
    "instance_ami": "ami-0123456789abcdef0",
    "volume_kms_key_arn": "arn:aws:kms:us-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    "log_retention_days": 30,
}


@dataclass(frozen=True)
class Templates:
    """The templates of one deployment, by the stack's part of the name, and the folder of the assets they name."""

    by_stack: dict[str, dict[str, Any]]
    assets: Path

    @classmethod
    def read(cls, assembly: Path) -> Templates:
        """Read the templates of an assembly."""
        ending = ".template.json"
        by_stack = {
            path.name.removesuffix(ending).rpartition("-")[2]: json.loads(path.read_text())
            for path in sorted(assembly.glob(f"*{ending}"))
        }
        return cls(by_stack, assembly)

    def resources(self, kind: str, *, stack: str | None = None) -> dict[str, Resource]:
        """Resources of a type by logical id, of one stack or of all."""
        return {
            name: resource
            for part, template in self.by_stack.items()
            if stack in (None, part)
            for name, resource in template["Resources"].items()
            if resource["Type"] == kind
        }

    def only(self, kind: str, *, stack: str | None = None, named: str = "") -> Resource:
        """The properties of the one resource of a type whose logical id starts with a name."""
        found = [
            resource["Properties"]
            for name, resource in self.resources(kind, stack=stack).items()
            if name.startswith(named)
        ]
        assert len(found) == 1, f"{len(found)} resources {kind} named {named}*"
        properties: Resource = found[0]
        return properties


def context_of_checkout() -> dict[str, Any]:
    """The context as cdk.json gives it."""
    context: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text())["context"]
    return context


@functools.cache
def rules() -> list[IPolicyValidationPlugin]:
    """The rules of a deployment, loaded once a worker."""
    from spotkeep_stacks.rules import load_rules

    return load_rules()


def synthesize(directory: Path, settings: dict[str, Any], *, judged: bool = True) -> Path:
    """Synthesize a whole deployment, without bundling dependencies, and return its assembly.

    Args:
        directory: Where it is written.
        settings: What to deploy.
        judged: Whether it is held to all its rules.
    """
    from aws_cdk import App

    from spotkeep_constructs.deployment_build import Project
    from spotkeep_constructs.settings import Settings
    from spotkeep_stacks.deployment import place_stacks

    # As app.py does: the deployment names the rules itself.
    app = App(
        builtin_cloud_formation_validation=False,
        context={**context_of_checkout(), "aws:cdk:bundling-stacks": []},
        outdir=str(directory / "cdk.out"),
    )
    parsed = Settings.from_context({"spotkeep": settings})
    project = replace(Project.at(ROOT), layers=directory / "layers", archives=directory / "archives")
    place_stacks(app, settings=parsed, project=project, rules=rules() if judged else [])
    return Path(app.synth().directory)


SETTINGS: dict[str, dict[str, Any]] = {
    "default": context_of_checkout()["spotkeep"],
    "everything": EVERYTHING_SET,
    # In a region without function URLs.
    "without-fleets": context_of_checkout()["spotkeep"] | {"ec2_fleets": False, "region": "eu-central-2"},
}


def templates_of(shared_directory: SharedDirectory, which: str) -> Templates:
    """Give the templates of one of the deployments, which one worker synthesizes for all."""
    return Templates.read(shared_directory(which, lambda directory: synthesize(directory, SETTINGS[which])) / "cdk.out")


@pytest.fixture(scope="session")
def templates(shared_directory: SharedDirectory) -> Templates:
    """A deployment as cdk.json describes it."""
    return templates_of(shared_directory, "default")


@pytest.fixture(scope="session")
def templates_with_everything(shared_directory: SharedDirectory) -> Templates:
    """A deployment with every setting that adds or changes resources."""
    return templates_of(shared_directory, "everything")


@pytest.fixture(scope="session")
def templates_without_fleets(shared_directory: SharedDirectory) -> Templates:
    """A deployment that does not want EC2, in a region where AWS offers no function URLs."""
    return templates_of(shared_directory, "without-fleets")


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    """An empty stack to place one construct in."""
    from aws_cdk import App, Stack

    return Stack(App(outdir=str(tmp_path / "cdk.out")), "Test")
