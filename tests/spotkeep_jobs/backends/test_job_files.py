"""The copy of `spotkeep.pyz` that runs fetch: made once, there when what was uploaded is gone."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from spotkeep_jobs.backends.job_files import TrainingBundleStore
from spotkeep_jobs.errors import AwsBusyError, AwsCallError, AwsRefusedError
from tests.models.s3 import Objects

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ASSET, KEY = "4567.pyz", "bundles/0123/spotkeep.pyz"


@dataclass
class Site:
    """What a deployment has of it, on the local S3."""

    s3: S3Client
    calls: list[str] = field(default_factory=list)
    name: str = field(default_factory=lambda: f"bundle-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        for bucket in (self.assets, self.name):
            self.s3.create_bucket(Bucket=bucket)
        self.s3.put_object(Bucket=self.assets, Key=ASSET, Body=b"the bundle")
        self.s3.put_object_tagging(
            Bucket=self.assets, Key=ASSET, Tagging={"TagSet": [{"Key": "aws-cdk:isolated", "Value": "1795219200"}]}
        )
        self.s3.meta.events.register("before-call.s3", lambda model, **_: self.calls.append(model.name))

    @property
    def assets(self) -> str:
        return f"{self.name}-assets"

    def process(self) -> TrainingBundleStore:
        """What one process of a function has."""
        return store_on(self.s3, assets=self.assets, bucket=self.name)

    def kept(self) -> bytes:
        return self.s3.get_object(Bucket=self.name, Key=KEY)["Body"].read()


def store_on(client: Any, *, assets: str = "assets", bucket: str = "checkpoints") -> TrainingBundleStore:
    return TrainingBundleStore(lambda: client, asset_uri=f"s3://{assets}/{ASSET}", uri=f"s3://{bucket}/{KEY}")


@pytest.fixture
def site(local_aws: Any) -> Site:
    return Site(local_aws.session().client("s3"))


def test_a_process_asks_once_and_only_the_first_one_copies(site: Site) -> None:
    first = site.process()
    first.keep()
    first.keep()
    site.process().keep()
    assert site.calls == ["HeadObject", "CopyObject", "HeadObject"]
    assert site.kept() == b"the bundle"
    assert site.s3.get_object_tagging(Bucket=site.name, Key=KEY)["TagSet"] == []


def test_when_what_was_uploaded_is_gone_runs_start_with_the_copy(site: Site) -> None:
    site.process().keep()
    site.s3.delete_object(Bucket=site.assets, Key=ASSET)
    site.process().keep()
    assert site.kept() == b"the bundle"


def test_when_both_are_gone_it_says_what_to_do_and_the_next_launch_asks_again(site: Site) -> None:
    site.s3.delete_object(Bucket=site.assets, Key=ASSET)
    store = site.process()
    with pytest.raises(AwsRefusedError, match="deploy the app again"):
        store.keep()
    site.s3.put_object(Bucket=site.assets, Key=ASSET, Body=b"the bundle")
    store.keep()
    assert site.kept() == b"the bundle"


def objects(*, head: Exception | None = None, copy: Exception | None = None) -> Objects:
    """A bucket without the copy, some of whose calls fail."""
    objects = Objects()
    for operation, error in (("HeadObject", head), ("CopyObject", copy)):
        if error is not None:
            objects.refuse(error, operation=operation)
    return objects


def failure(code: str, status: int, operation: str = "HeadObject") -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, operation)


def test_a_caller_that_may_not_list_the_bucket_copies_what_s3_will_not_say_is_missing() -> None:
    s3 = objects(head=failure("403", 403))
    store_on(s3).keep()
    assert [(copy["Bucket"], copy["Key"]) for copy in s3.copies] == [("checkpoints", KEY)]


@pytest.mark.parametrize(
    ("head", "copy", "expected"),
    [
        (failure("503", 503), None, AwsBusyError),
        (EndpointConnectionError(endpoint_url="https://s3.amazonaws.com"), None, AwsBusyError),
        (None, failure("SlowDown", 503, "CopyObject"), AwsBusyError),
        (failure("403", 403), failure("AccessDenied", 403, "CopyObject"), AwsRefusedError),
    ],
)
def test_an_answer_that_passes_by_itself_is_distinguished_from_a_refusal(
    head: Exception | None, copy: Exception | None, expected: type[AwsCallError]
) -> None:
    with pytest.raises(expected):
        store_on(objects(head=head, copy=copy)).keep()
