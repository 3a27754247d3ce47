import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.training.errors import ValidationError
from spotkeep_local.training.job import SecondaryStatus, TrainingJob, advance
from spotkeep_local.training.listing import list_jobs

ENDINGS = [SecondaryStatus.COMPLETED, SecondaryStatus.FAILED, SecondaryStatus.TRAINING]


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
