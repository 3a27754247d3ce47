"""The setting of the measurements. It has the jobs, the windows, the split of the zones, and the targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from spotkeep_planner.capacity_model import CapacityModel, fit, watch
from spotkeep_planner.errors import TraceError
from spotkeep_planner.interruption_bands import prior_from_band
from spotkeep_planner.job import PlannedJob
from spotkeep_planner.policies import OnDemand, Prior, greedy, known_prior, survival, uniform_progress
from spotkeep_planner.replay import Policy
from spotkeep_planner.traces import CapacityTrace, read_traces

HOUR_S = 3600.0
WORK_H = 48.0
RESTART_H = 0.2
DEADLINES_H = (52.0, 60.0, 70.0, 92.0)
FOLDS = 3
ON_DEMAND_PRICE = 3.06
"""USD per hour of p3.2xlarge in the V100 traces. A trace that brings its own price is read with that."""

OURS = "spotkeep"
TARGETS = {52.0: 1.10, 60.0: 1.07, 70.0: 1.07, 92.0: 1.05}
MULTI_ZONE_TARGET = 1.10
_UNSEEN_WORTH_ENDINGS = 0.5

HOW_TO_GET_THE_DATA = """\
The traces are not part of this repository. They are public (Apache License 2.0): the artifact of "SkyNomad: On Using
Multi-Region Spot Instances to Minimize AI Batch Job Cost" (NSDI '27).

  git clone https://github.com/andylizf/skynomad-artifact
  python -m benchmarks.policy.convert skynomad-artifact {directory}
  make bench-policy

Any other folder with one <zone>.csv or <zone>.csv.gz a zone (columns time, available, spot_price) can be measured with
  python -m benchmarks.policy --traces DIR --on-demand-price USD"""


def job(deadline_h: float) -> PlannedJob:
    """Return the job of the measures with one of its deadlines."""
    return PlannedJob(work_s=WORK_H * HOUR_S, deadline_s=deadline_h * HOUR_S, restart_s=RESTART_H * HOUR_S)


@dataclass(frozen=True, kw_only=True)
class PolicyTask:
    """Some zones judged together as places one job may use, with the zones that may be learnt from.

    Attributes:
        judged: One zone, or several that a job may move between.
        learnt_from: Zones of the other part of the split.
        of_another_time: True when all of those may be used, as they come from another folder.
        starts: The ticks at which the windows start.
        on_demand_price: USD per hour.
    """

    judged: tuple[CapacityTrace, ...]
    learnt_from: tuple[CapacityTrace, ...]
    of_another_time: bool
    starts: tuple[int, ...]
    on_demand_price: float

    @property
    def prior(self) -> Prior:
        """The knowledge of Spotkeep's policy before it reads the past of the judged zones."""
        if not self.learnt_from:
            return known_prior()
        return prior_from_elsewhere(self.learnt_from, all_times=self.of_another_time)

    def policies(self) -> tuple[Policy, ...]:
        """Return everything that is compared."""
        return (OnDemand(), greedy(), uniform_progress(), survival(prior=self.prior))


def prior_from_elsewhere(traces: Sequence[CapacityTrace], *, all_times: bool = False) -> Prior:
    """Return the model of other zones, from their past before the given time.

    Args:
        traces: Zones like the ones to come.
        all_times: True when they are of another time, so that all of them may be used.
    """
    unseen = prior_from_band()

    def before(moment: datetime) -> CapacityModel:
        watched = []
        for trace in traces:
            ticks = int((moment - trace.start).total_seconds() // trace.tick_s)
            seen = trace.available if all_times else trace.available[: max(0, ticks)]
            watched.append(watch(seen, tick_s=trace.tick_s))
        return fit(watched, prior=unseen, worth_endings=_UNSEEN_WORTH_ENDINGS)

    return before


def read_folder(directory: Path) -> tuple[CapacityTrace, ...]:
    """Return the traces in a folder, or in the only folder in it.

    Raises:
        TraceError: There are none, there are several folders of them, or one is faulty.
    """
    if directory.is_dir() and not any(path.name.endswith((".csv", ".csv.gz")) for path in directory.iterdir()):
        inside = sorted(path for path in directory.iterdir() if path.is_dir())
        if len(inside) > 1:
            reason = f"holds several folders, give one of them: {', '.join(path.name for path in inside)}"
            raise TraceError.of(str(directory), reason)
        directory = inside[0] if inside else directory
    return read_traces(directory)


def tasks(
    traces: Sequence[CapacityTrace],
    *,
    train: Sequence[CapacityTrace],
    windows: int,
    seed: int,
    on_demand_price: float,
) -> list[PolicyTask]:
    """Return all tasks, with each zone alone, the zones in two halves, and all together.

    The split rotates. Each zone is judged once, by a policy that learnt from the zones of the other folds (or, with
    `train`, from those alone). Of the other zones, too, only the time before a window's start is used, as they are of
    the same days.
    """
    ticks = min(len(trace) for trace in traces)
    longest = int(np.ceil(max(DEADLINES_H) * HOUR_S / traces[0].tick_s))
    if ticks - longest < 2:
        reason = f"has {ticks} ticks; windows of {max(DEADLINES_H):g} h need more than {longest}"
        raise TraceError.of(traces[0].zone, reason)
    random = np.random.default_rng(seed)
    starts = tuple(sorted(random.integers(0, ticks - longest, size=windows).tolist()))

    def task(judged: Sequence[int]) -> PolicyTask:
        others = tuple(trace for number, trace in enumerate(traces) if number not in judged)
        price = traces[judged[0]].on_demand_price or on_demand_price
        return PolicyTask(
            judged=tuple(traces[number] for number in judged),
            learnt_from=tuple(train) if train else others,
            of_another_time=bool(train),
            starts=starts,
            on_demand_price=price,
        )

    def single(zone: int) -> PolicyTask:
        fold = [number for number in range(len(traces)) if number % FOLDS == zone % FOLDS]
        whole = task(fold if len(traces) >= FOLDS else [zone])
        return PolicyTask(
            judged=(traces[zone],),
            learnt_from=whole.learnt_from,
            of_another_time=whole.of_another_time,
            starts=starts,
            on_demand_price=traces[zone].on_demand_price or on_demand_price,
        )

    everything = list(range(len(traces)))
    found = [single(zone) for zone in everything]
    if len(traces) >= 4:
        found += [task(everything[0::2]), task(everything[1::2])]
    if len(traces) >= 2:
        found.append(task(everything))
    return found
