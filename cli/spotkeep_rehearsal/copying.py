"""The state of checkpoints that came back from a copy that was cut off, as SageMaker's is. Pure.

SageMaker copies each file of `/opt/ml/checkpoints` to S3 by itself, in no documented order, and also while it is
written. A loss cuts that off. Files of older saves are whole. Of the newest save some files are whole, one ends
anywhere, and the others are missing.

Source: AWS, "Checkpoints in Amazon SageMaker AI", and what users report.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

NEWEST_SAVE_SECONDS = 1.0
"""Files whose times of change are less apart than this count as one save."""


def cut_off(files: Mapping[str, tuple[int, int]], *, rewritten: frozenset[str], draw: random.Random) -> dict[str, int]:
    """Return how many bytes of each file came back. A file that is missing did not.

    Args:
        files: The time of change in nanoseconds and the size of each file, by name.
        rewritten: The files that the command has written more than once. S3 has an earlier one of these, or half a
            newer one, so they are never missing.
        draw: The source of chance.
    """
    newest = max((time for time, _ in files.values()), default=0)
    young = sorted(name for name, (time, _) in files.items() if newest - time < NEWEST_SAVE_SECONDS * 1e9)
    draw.shuffle(young)
    # All of them may have arrived: the loss came after the copy.
    cut = draw.randint(0, len(young))
    came = {name: size for name, (_, size) in files.items() if name not in young[cut:]}
    for number, name in enumerate(young[cut:]):
        size = files[name][1]
        if number == 0:
            came[name] = draw.randint(0, size)
        elif name in rewritten:
            came[name] = size
    return came
