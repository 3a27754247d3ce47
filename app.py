"""The CDK app: reads the settings and places the stacks. `cdk` runs it; nothing here calls AWS."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def _use_own_toolchain() -> None:
    """Runs the CDK's library on the checkout's Node and keeps its cache in the checkout.

    It has to happen before the library is imported, which is why `main` imports late.
    """
    node = Path(sys.executable).parent / "node"
    if node.exists():
        os.environ.setdefault("JSII_NODE", str(node))
    os.environ.setdefault("JSII_RUNTIME_PACKAGE_CACHE_ROOT", str(ROOT / ".spotkeep" / "cache" / "jsii"))


def main() -> int:
    """Synthesizes the deployment the context describes.

    Returns:
        0, or 1 after one message about what is wrong with the settings or the build.
    """
    _use_own_toolchain()
    from aws_cdk import App

    from spotkeep_constructs.errors import ConstructError
    from stacks.deployment import Deployment
    from stacks.project import Project
    from stacks.settings import Settings, SettingsError

    app = App()
    try:
        settings = Settings.from_context(app.node.get_all_context())
        Deployment(app, settings=settings, project=Project.at(ROOT))
    except (SettingsError, ConstructError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
