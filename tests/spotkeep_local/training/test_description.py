"""Search, of jobs that only exist here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.training.description import describe, list_jobs, search_jobs
from spotkeep_local.training.errors import ValidationError
from spotkeep_local.training.job import SecondaryStatus, TrainingJob, advance

ENDINGS = [SecondaryStatus.COMPLETED, SecondaryStatus.FAILED, SecondaryStatus.TRAINING]


OURS = {"spotkeep:deployment": "ours"}


def job(name: str, created_at: float, secondary: SecondaryStatus) -> TrainingJob:
    started = TrainingJob(name=name, arn=name, request={}, created_at=created_at, updated_at=created_at)
    return advance(started, secondary, now=created_at + 1)


jobs = st.lists(
    st.builds(
        job, st.from_regex(r"[a-c]{1,4}", fullmatch=True), st.integers(0, 5).map(float), st.sampled_from(ENDINGS)
    ),
    max_size=20,
    unique_by=lambda job: job.name,
)


@given(jobs, st.sampled_from(["Ascending", "Descending"]), st.integers(1, 7))
def test_the_pages_together_hold_every_job_once_and_in_order(jobs, sort_order, size):
    request = {"SortBy": "CreationTime", "SortOrder": sort_order, "MaxResults": size}
    names, token = [], None
    while True:
        page = list_jobs(jobs, request | ({"NextToken": token} if token else {}))
        assert len(page["TrainingJobSummaries"]) <= size
        names += [summary["TrainingJobName"] for summary in page["TrainingJobSummaries"]]
        token = page.get("NextToken")
        if token is None:
            break
    everything = list_jobs(jobs, request | {"MaxResults": 100})["TrainingJobSummaries"]
    assert names == [summary["TrainingJobName"] for summary in everything]
    assert sorted(names) == sorted(job.name for job in jobs)


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ({}, ["apple", "banana", "cherry"]),
        ({"NameContains": "AN"}, ["banana"]),
        ({"StatusEquals": "Failed"}, ["banana"]),
        ({"CreationTimeAfter": 2.0}, ["banana", "cherry"]),
        ({"LastModifiedTimeAfter": 4.0}, ["cherry"]),
        ({"SortOrder": "Descending"}, ["cherry", "banana", "apple"]),
        ({"WarmPoolStatusEquals": "Available"}, []),
    ],
)
def test_filters(request_, names):
    fruit = [
        job("apple", 1.0, SecondaryStatus.COMPLETED),
        job("banana", 2.0, SecondaryStatus.FAILED),
        job("cherry", 3.0, SecondaryStatus.TRAINING),
    ]
    found = list_jobs(fruit, request_)["TrainingJobSummaries"]
    assert [summary["TrainingJobName"] for summary in found] == names


@pytest.mark.parametrize("token", ["?", "bm90IGpzb24=", "WzFd"])
def test_a_foreign_token_is_refused(token):
    with pytest.raises(ValidationError, match="NextToken"):
        list_jobs([], {"NextToken": token})


def test_a_filter_and_an_order_without_a_caller_are_refused():
    with pytest.raises(ValidationError, match=r"not by CreationTimeBefore; .* not of their Name"):
        list_jobs([], {"CreationTimeBefore": 2.0, "SortBy": "Name"})


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
