"""The deployed function that gives instances their credentials, on a local AWS without the CDK."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from tests.models.granted import make_role

if TYPE_CHECKING:
    from spotkeep_local.lifecycle import LocalAws

_ROOT = Path(__file__).parents[2]


def place_credentials_function(local: LocalAws, *, name: str, instance_role: str, deployment: str) -> None:
    """Create the function, its role and the run role.

    Args:
        local: Where.
        name: Of the function, and of its role; the run role is named `<name>-run`.
        instance_role: The name of the role of the instances that it answers; made before.
        deployment: The tag of the instances that it answers.
    """
    # Here, because it starts Node, which takes seconds: most tests of a file that needs this run elsewhere.
    from spotkeep_constructs.archives import zip_bytes
    from spotkeep_constructs.job_function import code_files

    session = local.session()
    iam = session.client("iam")
    own, run = make_role(local, name, service="lambda.amazonaws.com"), make_role(local, f"{name}-run")
    functions = session.client("lambda")
    functions.create_function(
        FunctionName=name,
        Runtime="python3.13",
        Role=own,
        Handler="instance_credentials.handler.handler",
        Timeout=30,
        Code={
            "ZipFile": zip_bytes(
                code_files(
                    _ROOT / "lambda", jobs=_ROOT / "lambda", planner=_ROOT / "planner", training=_ROOT / "training"
                )
            )
        },
        Environment={
            "Variables": {
                # In the place of the deployed layer: the packages of this checkout.
                "PYTHONPATH": sysconfig.get_path("purelib"),
                "SPOTKEEP_DEPLOYMENT": deployment,
                "SPOTKEEP_INSTANCE_ROLE_ARN": iam.get_role(RoleName=instance_role)["Role"]["Arn"],
                "SPOTKEEP_RUN_ROLE_ARN": run,
            }
        },
    )
    functions.get_waiter("function_active_v2").wait(FunctionName=name)
