"""The first program in a container. It takes the job's environment from a file, and becomes Spotkeep's runner.

The environment comes in a file that only the user that trains can read. Docker's own `--env-file` knows no line breaks,
and its versions disagree about quotes. Options are visible to each user that may list processes.

It runs on any `python3` of an image, so it refuses an old one before it imports anything else of ours.

Usage: `python3 -I enter.py ENVIRONMENT.json IMPORT_ROOT run [OPTION ...] -- COMMAND [ARGUMENT ...]`
"""

import json
import os
import sys

_OLDEST = (3, 9)


def main() -> None:
    """Become the runner."""
    if sys.version_info < _OLDEST:
        sys.exit(
            "spotkeep: python3 of the image is %d.%d, and 3.9 or later is needed: use a newer image"  # noqa: UP031
            % sys.version_info[:2]
        )
    given, root = sys.argv[1:3]
    with open(given, encoding="utf-8") as file:  # noqa: PTH123
        os.environ.update(json.load(file))
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([root, inherited] if inherited else [root])
    os.execvp("python3", ["python3", "-m", "spotkeep"] + sys.argv[3:])  # noqa: S606 - it is the container's process 1


if __name__ == "__main__":
    main()
