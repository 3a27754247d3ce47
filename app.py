"""The CDK app: reads the settings and places the stacks. `cdk` runs it; nothing here calls AWS."""

from __future__ import annotations

import gc
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent

_CDK_MODULES = ("cloudwatch", "dynamodb", "ec2", "events", "iam", "kms", "lambda", "logs", "s3", "sns", "sqs")


def _use_own_toolchain() -> None:
    """Run the CDK's library on the checkout's Node and keep its cache in the checkout.

    It has to happen before the library is imported, which is why `main` imports late.
    """
    node = Path(sys.executable).parent / "node"
    if node.exists():
        os.environ.setdefault("JSII_NODE", str(node))
    os.environ.setdefault("JSII_RUNTIME_PACKAGE_CACHE_ROOT", str(ROOT / ".spotkeep" / "cache" / "jsii"))


def main(*, judge: bool = True) -> int:
    """Synthesize the deployment the context describes.

    Args:
        judge: Whether the templates are held to the rules. Only a measurement of what the rules take leaves them out.

    Returns:
        0, or 1 after one message about what is wrong with the settings or the build.
    """
    # Nearly all that a synth makes lives to its end: looking for garbage in it takes time and finds none.
    gc.disable()
    _use_own_toolchain()
    from aws_cdk import App

    from stacks.rules import load_rules

    with ThreadPoolExecutor(max_workers=1) as background:
        loading = background.submit(load_rules if judge else list)
        # Seconds of Python's work, while Node loads the rules. Only modules that ask Node nothing may be imported here,
        # for its pipe has room for one caller: the CDK's do not, some of ours do.
        for module in _CDK_MODULES:
            import_module(f"aws_cdk.aws_{module}")
        rules = loading.result()

    from spotkeep_constructs.deployment_build import Project
    from spotkeep_constructs.errors import ConstructError
    from spotkeep_constructs.settings import Settings, SettingsError
    from stacks.deployment import place_stacks

    # The deployment names its rules itself, the CDK's own among them.
    app = App(builtin_cloud_formation_validation=False)
    try:
        settings = Settings.from_context(app.node.get_all_context())
        place_stacks(app, settings=settings, project=Project.at(ROOT), rules=rules)
    except (SettingsError, ConstructError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    app.synth()
    # Python looks through all of it once more when it ends, but not through what is frozen.
    gc.freeze()
    return 0


if __name__ == "__main__":
    sys.exit(main())
