"""Pictures of the pages that commands write, as docs/ shows them.

`python -m tests.pages.drawn_pictures` writes docs/pictures/drawn/.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from spotkeep_cli.planning.plan_plots import course_pictures
from spotkeep_cli.sweeps.sweep_plots import sweep_pictures
from tests.spotkeep_cli.planning.example_plans import planned
from tests.spotkeep_cli.sweeps.example_sweeps import example

if TYPE_CHECKING:
    from spotkeep_cli.rendering.pictures import Picture

FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures" / "drawn"


def pictures() -> dict[str, Picture]:
    """Return the pictures by the names of their files, without an ending."""
    story = example(40)
    assert story.drawn is not None
    of_sweep = {f"sweep-{each.name}": each for each in sweep_pictures(story.drawn)}
    of_plan = {f"plan-{each.name}": each for each in course_pictures(planned())}
    shown = of_sweep | of_plan
    return {name: shown[name] for name in ("sweep-curves", "sweep-parameters", "plan-work")}


def write(folder: Path = FOLDER) -> None:
    """Write all pictures."""
    for name, picture in pictures().items():
        picture.save(folder / f"{name}.svg")


if __name__ == "__main__":
    write()
