"""Says until when AWS patches the images that Spotkeep names: `make check-dates`, which CI prints.

It fails nothing: a calendar is no fault of a change. The table is `framework_images.PATCHED_UNTIL`, with its source.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Final

from spotkeep_jobs.document.framework_images import PATCHED_UNTIL, PATCHED_UNTIL_READ

WARNED_BEFORE: Final = timedelta(days=60)


def lines(today: date) -> Iterator[str]:
    """Yield a line for each image, and one for what is to be done.

    Args:
        today: What the days are compared with.
    """
    yield f"AWS patches these images until (read in {PATCHED_UNTIL_READ}):"
    newest = list(PATCHED_UNTIL)[-1]
    for name, last in PATCHED_UNTIL.items():
        if last < today:
            state = "WARNING: past"
        elif last - today <= WARNED_BEFORE:
            state = f"WARNING: {(last - today).days} days left"
        else:
            state = "good"
        yield f"  {name:<16} {last}  {state}"
    if PATCHED_UNTIL[newest] - today <= WARNED_BEFORE:
        yield (
            f"{newest} is the default image (the setting default_image): read AWS's support policy, add the next "
            "version to framework_images.py, and make it the default."
        )


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in lines(datetime.now(UTC).date())))
