"""The nodes of a run on local EC2 instances, which lose one of them."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.nodes.training import RANKS_OF_NODE, SCRIPT, step_of
from spotkeep_fleet.instance_job import InstanceJob, NodesSpec, VolumeSpec
from spotkeep_fleet.ranks import Ranks
from spotkeep_fleet.tags import RUN_TAG
from spotkeep_fleet.training_spec import TrainingSpec
from spotkeep_local.hosts.written_files import read_end
from tests.models.fleet_site import ZONES

if TYPE_CHECKING:
    from tests.models.fleet_site import Site

PHASES: Final = {
    "world-began": "the loss is seen, the ranks are ended, a leader has the lease and names the checkpoint",
    "start": "the checkpoint is brought, and the runner starts",
    "resume": "torchrun and the ranks import torch one after the other, meet and restore",
    "step": "the first step",
}
"""The last event of each phase between the loss and the next step."""
_EVENT: Final = "spotkeep-event: "
_NODES: Final = 2
_MOST_BYTES: Final = 1 << 22
_POLL_SECONDS: Final = 0.05
_MOST_SECONDS: Final = 180.0


class LostNodes:
    """A run of two nodes, one of which is lost.

    Attributes:
        phases: The seconds of each phase after the loss.

    Args:
        site: The local AWS that it runs on.
    """

    def __init__(self, site: Site) -> None:
        self.phases: dict[str, float] = {}
        self._site = site
        self._fleet = site.launch(_job(site))
        self._step_after(0.0, ranks=_NODES * RANKS_OF_NODE)

    def lose_other(self) -> float:
        """Lose the node without the lease. Return the seconds until the next step of the survivor."""
        return self._lose(self._site.record.world[-1])

    def lose_leader(self) -> float:
        """Lose the node with the lease. Return the seconds until the next step of the survivor."""
        return self._lose(self._site.record.world[0])

    def close(self) -> None:
        """End the fleet with its instances, and give the zone its room back."""
        self._site.fill(ZONES[0], room=-1)
        self._site.close()

    def _lose(self, instance_id: str) -> float:
        zone = self._site.control.instance_facts(instance_id).zone
        lost_at = time.time()
        self._site.control.interrupt(instance_id, notice=False)
        # No other one comes meanwhile, so the world has one node.
        self._site.fill(zone, room=1)
        stepped_at = self._step_after(lost_at, ranks=RANKS_OF_NODE)
        self.phases = phases_of(self._printed(), since=lost_at, until=stepped_at)
        return stepped_at - lost_at

    def _step_after(self, moment: float, *, ranks: int) -> float:
        """Wait for the first step after a moment that so many ranks have done. Return its time."""
        deadline = time.monotonic() + _MOST_SECONDS
        while time.monotonic() < deadline:
            for at, _, size in self._steps():
                if at > moment and size == ranks:
                    return at
            time.sleep(_POLL_SECONDS)
        raise RuntimeError(f"the step did not come:\n{self._printed()[-4000:]}")

    def _steps(self) -> list[tuple[float, int, int]]:
        return [step for line in self._printed().splitlines() if (step := step_of(line)) is not None]

    def _printed(self) -> str:
        consoles = (Path(self._site.control.instance_facts(each).console) for each in self._instances())
        read = (read_end(each, most_bytes=_MOST_BYTES) for each in consoles if each.is_file())
        return b"".join(read).decode("utf-8", errors="replace")

    def _instances(self) -> list[str]:
        own = [{"Name": f"tag:{RUN_TAG}", "Values": [self._site.run]}]
        found = self._site.ec2.describe_instances(Filters=own)["Reservations"]
        return [str(instance["InstanceId"]) for group in found for instance in group["Instances"]]


def phases_of(printed: str, *, since: float, until: float) -> dict[str, float]:
    """Return the seconds of each phase, from the events of the node that is left. Lines may be cut off."""
    events = []
    for line in printed.splitlines():
        if line.startswith(_EVENT):
            with contextlib.suppress(json.JSONDecodeError):
                events.append(json.loads(line[len(_EVENT) :]))
    found, before = {}, since
    for name in PHASES:
        at = min((each["time"] for each in events if each["event"] == name and each["time"] > before), default=until)
        found[name], before = round(at - before, 3), at
    return found


def _job(site: Site) -> InstanceJob:
    return InstanceJob(
        training=TrainingSpec(
            command=("python3", "-c", SCRIPT),
            environment={"OMP_NUM_THREADS": "1", "SPOTKEEP_PROGRESS_SECONDS": "0"},
            distributed=Ranks(processes=RANKS_OF_NODE),
        ),
        volume=VolumeSpec(size_gb=4),
        log_group=site.group,
        event_bus="default",
        checkpoint_uri=f"s3://{site.bucket}/runs/{site.run}/checkpoints/",
        nodes=NodesSpec(at_least=1, at_most=_NODES, wait_seconds=600, key=secrets.token_hex(16)),
    )
