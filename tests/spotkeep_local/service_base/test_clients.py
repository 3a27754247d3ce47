"""Sessions that share botocore's descriptions of services make the same clients as sessions of their own."""

from __future__ import annotations

import boto3
import botocore.session
import pytest

from spotkeep_local.service_base.clients import with_shared_models

WHERE = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}


def sharing() -> boto3.Session:
    return boto3.Session(botocore_session=with_shared_models(botocore.session.Session()), **WHERE)


@pytest.mark.parametrize("service", ["s3", "sagemaker", "ec2"])
def test_a_client_has_the_operations_and_the_address_that_it_has_otherwise(service: str) -> None:
    shared, own = sharing().client(service), boto3.Session(**WHERE).client(service)
    assert shared.meta.service_model.operation_names == own.meta.service_model.operation_names
    assert shared.meta.endpoint_url == own.meta.endpoint_url
    assert sorted(shared.waiter_names) == sorted(own.waiter_names)
    assert {name for name in dir(shared) if name[0] != "_"} == {name for name in dir(own) if name[0] != "_"}


def test_resources_are_found_too() -> None:
    assert sharing().resource("s3").Bucket("name").name == "name"


def test_a_description_is_read_once_and_where_to_look_stays_a_short_list() -> None:
    loaders = [sharing()._session.get_component("data_loader") for _ in range(3)]
    first, second, third = (loader.load_service_model("sqs", "service-2") for loader in loaders)
    assert first is second is third
    assert len(loaders[2].search_paths) == len(set(loaders[2].search_paths))
