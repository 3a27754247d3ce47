"""Where the AWS console shows a run's training job or instances."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_jobs.record.console_page import console_page, training_job_page
from spotkeep_local.options import ServerOptions


def arn_of(run: Any, *, partition: str, region: str, account: str = "123456789012") -> str:
    return f"arn:{partition}:sagemaker:{region}:{account}:training-job/{run.job_name}"


@pytest.mark.parametrize(
    ("partition", "region", "host"),
    [
        ("aws", "eu-west-1", "eu-west-1.console.aws.amazon.com"),
        ("aws-cn", "cn-north-1", "cn-north-1.console.amazonaws.cn"),
        ("aws-us-gov", "us-gov-west-1", "us-gov-west-1.console.amazonaws-us-gov.com"),
    ],
)
class TestInEachPartition:
    def test_a_training_jobs_page_is_in_its_own_console(
        self, make: Any, partition: str, region: str, host: str
    ) -> None:
        run = make.run()
        run = run.model_copy(update={"job_id": arn_of(run, partition=partition, region=region)})
        page = f"https://{host}/sagemaker/home?region={region}#/jobs/{run.job_name}"
        assert training_job_page(run) == console_page(run, region=region) == page

    def test_the_instances_of_a_run_on_ec2_are_found_by_its_name(
        self, make: Any, partition: str, region: str, host: str
    ) -> None:
        run = make.run(backend="ec2", job_id="fleet-1")
        page = f"https://{host}/ec2/home?region={region}#Instances:search={run.run}"
        assert console_page(run, region=region) == page
        assert training_job_page(run) is None, partition


@pytest.mark.parametrize("backend", ["sagemaker", "ec2"])
def test_what_was_not_made_has_no_page(make: Any, backend: str) -> None:
    run = make.run(backend=backend, job_id=None)
    assert console_page(run, region="eu-west-1") is None


def test_the_local_aws_has_no_console(make: Any) -> None:
    run = make.run()
    account = ServerOptions.account_id
    run = run.model_copy(update={"job_id": arn_of(run, partition="aws", region="us-east-1", account=account)})
    assert training_job_page(run) is None
