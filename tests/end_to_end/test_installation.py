"""A script that needs what its image lacks: installed by pip, and after an interruption by nothing but the cache.

`test_warm_pools` shows it on a pool that a job takes over, `test_drill` on the volume of an instance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spotkeep_jobs.record.states import RunState
from spotkeep_local.capacity import CapacityScript, Interruption

from .conftest import ENVIRONMENTS_ARE_KEPT

if TYPE_CHECKING:
    from .conftest import DeployedApp

pytestmark = pytest.mark.long


def test_a_job_that_comes_back_has_what_it_needs_without_pip(deployed_app: DeployedApp) -> None:
    job = deployed_app.counting("200 --hurry", needs_a_package=True)
    deployed_app.control.script_capacity(
        run=job["run"], script=CapacityScript(interruptions=(Interruption(at_step=10, notice=True, notice_seconds=30),))
    )
    deployed_app.launch(**job)
    ended = deployed_app.wait_until_ended(job["run"])
    assert ended.state is RunState.COMPLETED, ended.failure_reason
    assert deployed_app.installed(ended.job_name) == ["by pip", "from the cache" if ENVIRONMENTS_ARE_KEPT else "by pip"]
