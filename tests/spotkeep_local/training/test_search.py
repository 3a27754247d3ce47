"""Search, of jobs that only exist here."""

from __future__ import annotations

import pytest

from spotkeep_local.training.description import describe
from spotkeep_local.training.errors import ValidationError
from spotkeep_local.training.job import SecondaryStatus, TrainingJob, advance
from spotkeep_local.training.search import search_jobs

OURS = {"spotkeep:deployment": "ours"}


def ended(name: str, tags: dict[str, str], secondary: SecondaryStatus = SecondaryStatus.COMPLETED) -> TrainingJob:
    request = {"AlgorithmSpecification": {}, "RoleArn": "role"}
    job = TrainingJob(name=name, arn=name, request=request, created_at=1.0, updated_at=1.0, tags=tags)
    return advance(job, secondary, now=2.0)


def test_jobs_are_found_by_status_and_tag_page_by_page_and_described_whole() -> None:
    ours = [ended(f"ours-{number}", OURS) for number in range(3)]
    failed = ended("ours-failed", OURS, SecondaryStatus.FAILED)
    jobs = [ended("theirs", {}), failed, *reversed(ours)]
    filters = [
        {"Name": "TrainingJobStatus", "Operator": "Equals", "Value": "Completed"},
        {"Name": "Tags.spotkeep:deployment", "Operator": "Equals", "Value": "ours"},
    ]
    query = {"Resource": "TrainingJob", "SearchExpression": {"Filters": filters}, "MaxResults": 2}
    first = search_jobs(jobs, query)
    rest = search_jobs(jobs, query | {"NextToken": first["NextToken"]})
    found = [record["TrainingJob"] for page in (first, rest) for record in page["Results"]]
    assert [job["TrainingJobName"] for job in found] == ["ours-0", "ours-1", "ours-2"]
    assert "NextToken" not in rest
    tags = [{"Key": "spotkeep:deployment", "Value": "ours"}]
    assert found[0] == {**describe(ours[0], now=9.0), "Tags": tags}


def test_what_is_not_known_is_refused_all_at_once() -> None:
    filters = [{"Name": "TrainingJobName", "Operator": "GreaterThan", "Value": "a"}]
    expression = {"Filters": filters, "Operator": "Or", "NestedFilters": [{}]}
    with pytest.raises(ValidationError) as refused:
        search_jobs([], {"Resource": "Pipeline", "SearchExpression": expression})
    for unknown in ("Pipeline", "GreaterThan", "And only", "NestedFilters"):
        assert unknown in refused.value.message
