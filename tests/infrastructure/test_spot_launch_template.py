"""The launch template: encrypted, closed, with metadata that only a session token opens, and the agent's user data."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from spotkeep_constructs.training_bundle import bundle_bytes
from spotkeep_fleet.user_data import MAX_BYTES, BootInputs, user_data

from .conftest import EVERYTHING_SET, ROOT
from .test_permissions import text_of

if TYPE_CHECKING:
    from .conftest import Templates


def data_of(templates: Templates) -> dict[str, Any]:
    data: dict[str, Any] = templates.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
    return data


def test_metadata_needs_a_token_and_shows_tags(templates: Templates) -> None:
    assert data_of(templates)["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 1,
        "InstanceMetadataTags": "enabled",
    }


def test_the_root_volume_is_gp3_encrypted_and_leaves_with_the_instance(templates: Templates) -> None:
    (device,) = data_of(templates)["BlockDeviceMappings"]
    assert device == {
        "DeviceName": "/dev/xvda",
        "Ebs": {
            "Encrypted": True,
            "VolumeType": "gp3",
            "VolumeSize": 100,
            "Throughput": 250,
            "DeleteOnTermination": True,
        },
    }
    assert data_of(templates)["EbsOptimized"] is True


def test_a_key_of_the_customers_own_encrypts_the_root_volume(templates_with_everything: Templates) -> None:
    (device,) = data_of(templates_with_everything)["BlockDeviceMappings"]
    assert device["Ebs"]["KmsKeyId"] == EVERYTHING_SET["volume_kms_key_arn"]
    assert device["Ebs"]["Encrypted"] is True


def test_there_is_no_ssh_key_and_no_way_in(templates: Templates) -> None:
    assert "KeyName" not in data_of(templates)
    [group] = (text_of(group) for group in data_of(templates)["SecurityGroupIds"])
    assert group.startswith("<NetworkInstanceGroup")
    assert "SecurityGroupIngress" not in templates.only("AWS::EC2::SecurityGroup", named="NetworkInstanceGroup")
    ingress = templates.only("AWS::EC2::SecurityGroupIngress")
    assert text_of(ingress["GroupId"]).startswith("<NodesGroup")


def test_it_names_no_spot_options_because_a_fleet_refuses_them_and_a_shutdown_ends_the_instance(
    templates: Templates,
) -> None:
    assert not {"InstanceMarketOptions", "InstanceType"} & data_of(templates).keys()
    assert data_of(templates)["InstanceInitiatedShutdownBehavior"] == "terminate"


def test_what_a_deployment_makes_carries_its_tag_and_is_distinguished_from_what_attempts_make(
    templates: Templates,
) -> None:
    assert templates.only("AWS::EC2::LaunchTemplate")["VersionDescription"] == "deployed"
    tags = {each["ResourceType"]: each["Tags"] for each in data_of(templates)["TagSpecifications"]}
    for kind in ("instance", "volume"):
        assert {"Key": "spotkeep:deployment", "Value": "spotkeep"} in tags[kind]
    assert "spotkeep:run" not in json.dumps(tags)


def test_the_ami_is_found_by_cloudformation_at_deployment(
    templates: Templates, templates_with_everything: Templates
) -> None:
    image = data_of(templates)["ImageId"]
    parameter = templates.by_stack["Compute"]["Parameters"][image["Ref"]]
    assert parameter == {
        "Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>",
        "Default": "/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.11-amazon-linux-2023/latest/"
        "ami-id",
    }
    assert data_of(templates_with_everything)["ImageId"] == "ami-0123456789abcdef0"


def test_its_user_data_are_the_agents_pinned_by_its_hash(templates: Templates) -> None:
    delimiter, parts = data_of(templates)["UserData"]["Fn::Base64"]["Fn::Join"]
    text = delimiter.join(part if isinstance(part, str) else reference(part) for part in parts)
    digest = hashlib.sha256(bundle_bytes(ROOT / "training")).hexdigest()
    expected = user_data(
        BootInputs(
            bundle_uri=f"s3://<bucket>/bundles/{digest}/spotkeep.pyz",
            bundle_sha256=digest,
            region="<AWS::Region>",
            run_table="<run table>",
            deployment="spotkeep",
            credentials_function="<instance_credentials>",
        )
    )
    # Tokens are quoted as one, whatever they turn out to be: quotes are all that may differ.
    assert text.replace("'", "") == expected.replace("'", "")
    assert len(text) < MAX_BYTES


def reference(value: dict[str, Any]) -> str:
    match value:
        case {"Ref": name}:
            return "<instance_credentials>" if name.startswith("CredentialsFunction") else f"<{name}>"
        case {"Fn::GetStackOutput": {"StackName": "Spotkeep-Storage", "OutputName": name}}:
            return "<bucket>" if "Bucket" in name else "<run table>"
    raise AssertionError(value)


def test_instances_print_to_a_log_that_ends_and_leaves_with_the_stack(
    templates: Templates, templates_with_everything: Templates
) -> None:
    for found, name, days in ((templates, "spotkeep", 90), (templates_with_everything, "lab", 30)):
        group = found.only("AWS::Logs::LogGroup", stack="Compute", named="Log")
        assert group["LogGroupName"] == f"/spotkeep/{name}/instances"
        assert group["RetentionInDays"] == days


def test_destroying_a_stack_deletes_no_volume_because_none_is_in_it(templates_with_everything: Templates) -> None:
    for kind in ("AWS::EC2::Volume", "AWS::EC2::EC2Fleet", "AWS::EC2::SpotFleet", "AWS::EC2::Instance"):
        assert templates_with_everything.resources(kind) == {}
