"""A job file with a queue: what the deployment has is named, what does not go together is refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.queue import Queue, Share
from spotkeep_jobs.document.request import Validation, validate

GPU = Queue(
    types={"ml.g5.2xlarge": 20, "ml.m5.xlarge": 4},
    shares={
        "vision": Share(types={"ml.g5.2xlarge": 12, "ml.m5.xlarge": 4}),
        "nlp": Share(types={"ml.g5.2xlarge": 8}),
    },
)
ONE = Queue(types={"ml.g5.2xlarge": 2}, shares={"all": Share(types={"ml.g5.2xlarge": 2})})


def judged(*, queues: Any = (("gpu", GPU), ("one", ONE)), **fields: Any) -> Validation:
    document = {
        "name": "first",
        "command": "python train.py",
        "queue": "gpu",
        "share": "vision",
        "capacity": "on-demand",
        "instance_type": "ml.g5.2xlarge",
        "image": "123456789012.dkr.ecr.eu-west-1.amazonaws.com/i:1",
    }
    defaults = DeploymentDefaults(instance_type="ml.m5.large", queues=None if queues is None else dict(queues))
    return validate({**document, **fields}, defaults=defaults)


def problems(**fields: Any) -> dict[str, str]:
    return {each.field: f"{each.problem}. {each.fix}" for each in judged(**fields).problems}


def test_a_job_names_its_queue_its_share_and_its_priority() -> None:
    request = judged(priority=7).accepted()
    assert (request.queue, request.share, request.priority) == ("gpu", "vision", 7)
    assert judged().warnings == ()


def test_the_only_share_and_the_only_type_of_a_queue_need_not_be_named() -> None:
    request = judged(queue="one", share=None, instance_type=None).accepted()
    assert (request.share, request.types) == ("all", ("ml.g5.2xlarge",))
    assert judged(share="nlp", instance_type=None).accepted().types == ("ml.g5.2xlarge",)


def test_of_several_types_one_is_named() -> None:
    assert "is required" in problems(instance_type=None)["instance_types"]


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"queue": "gpus"}, "queue", "is no queue of this deployment. Did you mean `gpu`?"),
        ({"queue": "batch-cpu"}, "queue", "is no queue of this deployment. Known are: gpu, one."),
        ({"queues": ()}, "queue", "is no queue of this deployment. Remove queue, or ask for it in the setting queues."),
        ({"share": None}, "share", "is required: the queue gpu has several. Choose vision, nlp."),
        ({"share": "speech"}, "share", "is no share of the queue gpu. Known are: vision, nlp."),
        ({"instance_type": "ml.p4d.24xlarge"}, "instance_types", "is no instance type of the queue gpu"),
        (
            {"share": "nlp", "instance_type": "ml.m5.xlarge"},
            "instance_types",
            "is no instance type of the share nlp. Choose ml.g5.2xlarge.",
        ),
        (
            {"instance_type": "ml.m5.xlarge", "instance_count": 5},
            "instance_count",
            "is more than the share vision may ever have of ml.m5.xlarge: 4 of its own and 0 that it may borrow; the "
            "job, and those behind it, would wait for ever. Ask for 4 at most, or choose another share.",
        ),
        (
            {"instance_type": None, "instance_types": ["ml.g5.2xlarge", "ml.m5.xlarge"]},
            "instance_types",
            "names several instance types; a queue counts a job's instances as one type",
        ),
        ({"priority": 10_000}, "priority", "is out of range: 0 to 9999 are allowed"),
        ({"priority": -1}, "priority", "is out of range"),
        ({"capacity": "auto"}, "capacity", "is given with a queue: a job that left its fallback would lose its turn"),
        ({"capacity": "auto", "deadline": "60h"}, "deadline", "is given with a queue, whose turns nothing promises"),
        ({"keep_alive": "30m"}, "keep_alive", "is given with a queue: AWS Batch does not say"),
        ({"queue": None, "share": "vision"}, "share", "is given without a queue"),
        ({"queue": None, "share": None, "priority": 7}, "priority", "is given without a queue"),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, Any], field: str, said: str) -> None:
    found = problems(**fields)
    assert list(found) == [field]
    assert said in found[field]


@pytest.mark.parametrize(
    ("share", "other", "most"),
    [
        ({}, {}, 10),
        ({}, {"lending": "lend"}, 10),
        ({}, {"lending": "reserve"}, 6),
        ({"lending": "lend"}, {}, 4),
        ({"lending": "reserve"}, {}, 4),
        ({"borrow_limit_percent": 0}, {}, 4),
        ({"borrow_limit_percent": 50}, {}, 6),
        ({"borrow_limit_percent": 50}, {"lending": "reserve"}, 6),
        ({"borrow_limit_percent": 1_000}, {"lending": "reserve"}, 6),
        ({"borrow_limit_percent": 24}, {}, 4),
    ],
)
def test_a_job_is_held_to_what_its_share_may_ever_have(share: dict[str, Any], other: dict[str, Any], most: int) -> None:
    """Of 10 instances 4 are its own, 4 another's and 2 no share's: what others reserve it never borrows."""
    of_type = {"ml.g5.2xlarge": 4}
    shares = {"vision": Share(types=of_type, **share), "nlp": Share(types=of_type, **other)}
    queues = [("gpu", Queue(types={"ml.g5.2xlarge": 10}, shares=shares))]
    assert problems(queues=queues, instance_count=most) == {}
    assert f"Ask for {most} at most" in problems(queues=queues, instance_count=most + 1)["instance_count"]


def test_a_queue_is_for_training_jobs() -> None:
    found = problems(backend="ec2", instance_type="g5.2xlarge", image=None)
    assert "the queues are for SageMaker training jobs" in found["queue"]


def test_without_a_deployment_its_queues_are_not_known() -> None:
    assert problems(queues=None, queue="any", share=None) == {}


def test_what_batch_does_not_promise_is_a_warning() -> None:
    (spot,) = judged(capacity="spot").warnings
    assert spot.startswith("spot in a queue: AWS Batch passes it on")
    (starts_over,) = judged(checkpoints=False, max_run="30m").warnings
    assert starts_over == "a queue without checkpoints: a job that is preempted starts over."
