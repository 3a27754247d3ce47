"""The synthesis of a project, which is a folder with `cdk.json` and an `app.py` that calls this module.

Nothing here calls AWS. The CDK is imported inside functions, because its library starts Node as soon as it is imported.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotkeep_constructs.carried import cache_folder, node_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import App, IPolicyValidationPlugin

_CDK_MODULES = ("cloudwatch", "dynamodb", "ec2", "events", "iam", "kms", "lambda", "logs", "s3", "sns", "sqs")


def main(root: Path, *, judge: bool = True) -> int:
    """Synthesize the deployment that the context describes, as a process of the CDK command line.

    Args:
        root: The project.
        judge: Whether the templates are held to the rules. Only a measurement of what the rules take leaves them out.

    Returns:
        0, or 1 after one message about what is wrong with the settings or the build.
    """
    # Nearly all that a synth makes lives to its end: looking for garbage in it takes time and finds none.
    gc.disable()
    use_own_toolchain(root)
    from aws_cdk import App

    from spotkeep_stacks.rules import load_rules

    with ThreadPoolExecutor(max_workers=1) as background:
        loading = background.submit(load_rules if judge else list)
        # Seconds of Python's work, while Node loads the rules. Only modules that ask Node nothing may be imported here,
        # for its pipe has room for one caller: the CDK's do not, some of ours do.
        for module in _CDK_MODULES:
            import_module(f"aws_cdk.aws_{module}")
        rules = loading.result()

    from spotkeep_constructs.errors import ConstructError
    from spotkeep_constructs.settings import SettingsError

    # The deployment names its rules itself, the CDK's own among them.
    app = App(builtin_cloud_formation_validation=False)
    try:
        _place(app, root=root, rules=rules)
    except (SettingsError, ConstructError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    app.synth()
    # Python looks through all of it once more when it ends, but not through what is frozen.
    gc.freeze()
    return 0


def templates(root: Path, *, outdir: Path) -> dict[str, dict[str, Any]]:
    """Return the templates of a project, by the stack's name, as a test reads them. Dependencies are not bundled.

    Args:
        root: The project.
        outdir: The folder of the assembly.

    Raises:
        RuntimeError: A template breaks a rule of cdk-nag or of the template validation.
    """
    use_own_toolchain(root)
    from aws_cdk import App

    from spotkeep_stacks.rules import load_rules

    context = json.loads((root / "cdk.json").read_text(encoding="utf-8"))["context"]
    app = App(
        builtin_cloud_formation_validation=False,
        context={**context, "aws:cdk:bundling-stacks": []},
        outdir=str(outdir),
    )
    _place(app, root=root, rules=load_rules())
    return {stack.stack_name: stack.template for stack in app.synth().stacks}


def use_own_toolchain(root: Path) -> None:
    """Run the CDK's library on the Node of this environment and name the folder of its cache.

    It has to happen before the library is imported.

    Args:
        root: The project.
    """
    folder = node_folder()
    if folder is not None:
        os.environ.setdefault("JSII_NODE", str(folder / "node"))
    os.environ.setdefault("JSII_RUNTIME_PACKAGE_CACHE_ROOT", str(cache_folder(root) / "jsii"))


def _place(app: App, *, root: Path, rules: Sequence[IPolicyValidationPlugin]) -> None:
    from spotkeep_constructs.deployment_build import Project
    from spotkeep_constructs.settings import Settings
    from spotkeep_stacks.deployment import place_stacks

    settings = Settings.from_context(app.node.get_all_context())
    place_stacks(app, settings=settings, project=Project.at(root), rules=rules)
