"""The CDK app: reads the settings and places the stacks. `cdk` runs it; nothing here calls AWS."""

from __future__ import annotations

import gc
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
    # Nearly all that a synth makes lives to its end: looking for garbage in it takes time and finds none.
    gc.disable()
    _use_own_toolchain()
    from aws_cdk import App

    from stacks.validated_inputs import REPORT, Sources, ValidatedInputs, found_nothing

    # Read before they are imported, and compared afterwards: an edit in between is not remembered as validated.
    sources = Sources.read(ROOT)
    from spotkeep_constructs.errors import ConstructError
    from stacks.deployment import Deployment
    from stacks.project import Project
    from stacks.settings import Settings, SettingsError

    # The deployment names its rules itself, the CDK's own among them.
    app = App(builtin_cloud_formation_validation=False)
    context = app.node.get_all_context()
    project = Project.at(ROOT)
    known = ValidatedInputs(project.validated_inputs)
    inputs = sources.digest(context=context, environment=os.environ)
    try:
        settings = Settings.from_context(context)
        validate = settings.validation == "always" or inputs not in known
        Deployment(app, settings=settings, project=project, validate=validate)
    except (SettingsError, ConstructError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    report = Path(app.outdir, REPORT)
    # The CDK's command line prints what it finds there, be it of an earlier synth.
    report.unlink(missing_ok=True)
    app.synth()
    if validate and found_nothing(report) and Sources.read(ROOT) == sources:
        known.add(inputs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
