"""Real trainers that end a script with code 0 on SIGTERM, on instances: the next instance trains the run to its end."""

from __future__ import annotations

import pytest

from spotkeep_fleet.record import FINISHED, TRAINING
from tests.trainers_with_exit_0 import LIGHTNING, TRANSFORMERS

from .cloud import Cloud
from .conftest import events_of, launch

pytest.importorskip("torch")
pytest.importorskip("lightning")
pytest.importorskip("transformers")

pytestmark = [pytest.mark.torch, pytest.mark.long]


@pytest.mark.parametrize("script", [LIGHTNING, TRANSFORMERS], ids=["lightning", "transformers"])
def test_what_a_trainer_ends_with_0_on_a_notice_is_trained_to_its_end_by_the_next_instance(
    cloud: Cloud, script: str
) -> None:
    launch(cloud, script=script, environment={"OMP_NUM_THREADS": "1"})
    first = cloud.boot("us-east-1a")
    first.wait_for("waits")
    first.announce(60)
    assert first.finish() == 0
    assert [event["code"] for event in events_of(first) if event["event"] == "exit-on-notice"] == [75]
    training = cloud.record.training
    assert (training.state, training.interruptions, training.script_failures) == (TRAINING, 1, 0)
    first.power_off()
    second = cloud.boot("us-east-1a")
    assert second.finish() == 0
    assert cloud.record.training.state == FINISHED
    volume = cloud.record.volume
    assert volume is not None
    assert (cloud.path(volume.id) / "model/model").read_text() == "6"
