"""`spotkeep init`: a CDK app in a new folder, or a job file for a training script.

Python 3.9 and the standard library suffice. A script is read and never imported or run.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_constructs.carried import carried
from spotkeep_fleet.printable_text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DONE, _USAGE = 0, 2

APP = '''"""The CDK app of this project. Its settings are in cdk.json, below "spotkeep"."""

import sys
from pathlib import Path

from spotkeep_stacks.synthesis import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent))
'''

SYNTH_TEST = '''"""The templates of this project: held to cdk-nag's rules, and compared with the reviewed ones.

`UPDATE_SNAPSHOT=1 pytest` writes `tests/snapshot.json` anew. Review its difference before you deploy.
"""

import json
import os
from pathlib import Path

from spotkeep_stacks.synthesis import templates

PROJECT = Path(__file__).resolve().parents[1]
SNAPSHOT = PROJECT / "tests" / "snapshot.json"


def test_the_templates_pass_cdk_nag_and_are_those_that_were_reviewed(tmp_path):
    # The synthesis itself fails on each finding of cdk-nag's AwsSolutions and of the template validation.
    found = templates(PROJECT, outdir=tmp_path / "cdk.out")
    assert found
    if os.environ.get("UPDATE_SNAPSHOT") or not SNAPSHOT.exists():
        SNAPSHOT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\\n", encoding="utf-8")
    assert found == json.loads(SNAPSHOT.read_text(encoding="utf-8"))
'''

IGNORED = """\
.spotkeep/
.venv/
cdk.out/
__pycache__/
.pytest_cache/
"""


def app_files() -> dict[str, str]:
    """Return the files of a CDK app, by their path in its folder."""
    settings = json.loads(carried("cdk.json").read_text(encoding="utf-8"))
    del settings["watch"]
    settings["app"] = "python app.py"
    return {
        "app.py": APP,
        "cdk.json": json.dumps(settings, indent=2) + "\n",
        "requirements.txt": f"spotkeep[cdk]=={metadata.version('spotkeep')}\npytest>=8\n",
        "tests/test_synth.py": SYNTH_TEST,
        ".gitignore": IGNORED,
    }


def main(arguments: Sequence[str]) -> int:
    """Run `spotkeep init`.

    Args:
        arguments: The words after `init`.

    Returns:
        The exit code. It is 2 where something is in the way, and then nothing was written.
    """
    parser = argparse.ArgumentParser(
        prog="spotkeep init",
        description="Write a CDK app into a new folder, or a job file for a training script.",
        epilog="No file is ever overwritten.",
    )
    parser.add_argument("target", metavar="FOLDER|SCRIPT.py", help="the folder of the app, or a training script")
    target = Path(parser.parse_args(arguments).target)
    if target.suffix == ".py":
        from spotkeep_cli.script_job import job_file_of

        if not target.is_file():
            return _refuse(f"there is no script {target}", hint="spotkeep init train.py, in the folder of the script")
        try:
            job = job_file_of(target)
        except (SyntaxError, ValueError) as error:
            return _refuse(f"{target} is no script that this Python reads: {error}", hint="name a script of Python 3")
        return _written({job.path: job.text}, say=job.remarks)
    files = {target / path: text for path, text in app_files().items()}
    folder = shlex.quote(str(target))
    return _written(
        files,
        say=(
            "",
            f"Next: cd {folder} && pip install -r requirements.txt",
            "      pytest                       checks the templates, writes tests/snapshot.json",
            "      spotkeep local up            deploys it to a local AWS",
            "      spotkeep cdk bootstrap       prepares your AWS account, once",
            "      spotkeep cdk deploy --all    deploys it there",
        ),
    )


def _written(files: Mapping[Path, str], *, say: Sequence[str]) -> int:
    there = [path for path in files if path.exists() or path.is_symlink()]
    if there:
        listed = "".join(f"\n  {path}" for path in there)
        return _refuse(
            f"these are there already, and nothing was written:{listed}", hint="move them away, or name another folder"
        )
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    lines = [*(f"wrote {path}" for path in files), *say]
    sys.stdout.write(printable("".join(f"{line}\n" for line in lines)))
    return _DONE


def _refuse(problem: str, *, hint: str) -> int:
    sys.stderr.write(printable(f"Error: {problem}\nHint: {hint}\n"))
    return _USAGE
