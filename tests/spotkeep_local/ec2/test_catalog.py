"""What follows from the name of a type, by boto3, and through the seam that the launcher uses."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

from spotkeep_constructs.settings import Settings
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.ec2.facts import InstanceTypeFacts, ProvisionedVolume
from spotkeep_local.ec2.catalog import described
from spotkeep_local.ec2.market import SpotPoolChange

if TYPE_CHECKING:
    from .conftest import Ec2


@pytest.mark.parametrize(
    ("name", "hypervisor", "nvme", "architecture"),
    [
        ("m5.xlarge", "nitro", "required", "x86_64"),
        ("m4.xlarge", "xen", "unsupported", "x86_64"),
        ("p3.2xlarge", "xen", "unsupported", "x86_64"),
        ("p3dn.24xlarge", "nitro", "required", "x86_64"),
        ("i3.metal", None, "required", "x86_64"),
        ("g5.xlarge", "nitro", "required", "x86_64"),
        ("g5g.xlarge", "nitro", "required", "arm64"),
        ("g4dn.xlarge", "nitro", "required", "x86_64"),
        ("c7gn.large", "nitro", "required", "arm64"),
        ("im4gn.large", "nitro", "required", "arm64"),
        ("a1.large", "nitro", "required", "arm64"),
        ("t2.micro", "xen", "unsupported", "x86_64"),
    ],
)
def test_a_family_decides_hypervisor_volumes_and_processors(
    name: str, hypervisor: str | None, nvme: str, architecture: str
) -> None:
    found = described(name)
    assert found.get("Hypervisor") == hypervisor
    assert found["EbsInfo"]["NvmeSupport"] == nvme
    assert found["ProcessorInfo"]["SupportedArchitectures"] == [architecture]


def test_named_types_are_described_and_others_refused(ec2: Ec2) -> None:
    answer = ec2.client.describe_instance_types(InstanceTypes=["g5.xlarge", "m4.large"])
    assert [each["InstanceType"] for each in answer["InstanceTypes"]] == ["g5.xlarge", "m4.large"]
    with pytest.raises(ClientError, match=r"g5\.xxlarge"):
        ec2.client.describe_instance_types(InstanceTypes=["g5.xxlarge"])


def test_a_filter_chooses_of_all_types(ec2: Ec2) -> None:
    answer = ec2.client.describe_instance_types(Filters=[{"Name": "instance-type", "Values": ["m4.*", "t2.*"]}])
    found = [each["InstanceType"] for each in answer["InstanceTypes"]]
    assert "m4.large" in found
    assert "m5.large" not in found
    assert len(found) == len(set(found)) > 10


def test_the_launcher_asks_for_types_and_for_what_its_ami_runs_on(ec2: Ec2) -> None:
    api = Ec2Api(lambda: ec2.client)
    assert api.instance_types(["g5g.xlarge", "no.such"]) == (
        InstanceTypeFacts(
            name="g5g.xlarge",
            nvme_volumes=True,
            spot=True,
            architectures=("arm64",),
            accelerators=("NVIDIA GPUs",),
            efa=False,
            in_clusters=True,
        ),
    )
    network = {each.name: (each.efa, each.in_clusters) for each in api.instance_types(["p4d.24xlarge", "t3.large"])}
    assert network == {"p4d.24xlarge": (True, True), "t3.large": (False, False)}
    asked = ["g4ad.xlarge", "trn1.2xlarge", "dl1.24xlarge", "m5.large"]
    assert {each.name: each.accelerators for each in api.instance_types(asked)} == {
        "g4ad.xlarge": ("AMD GPUs",),
        "trn1.2xlarge": ("AWS Neuron devices",),
        "dl1.24xlarge": ("Habana GPUs",),
        "m5.large": (),
    }
    # Of an AMI that is not there nothing is known; what a run's own version of the template says does not count.
    assert api.deployed_ami(ec2.template()).architecture is None
    image = ec2.client.describe_images()["Images"][0]
    ami = api.deployed_ami(ec2.template(ImageId=image["ImageId"]))
    assert (ami.architecture, ami.name) == (image["Architecture"], image["Name"])


@pytest.mark.parametrize(
    ("image", "device"), [("ami-0c2023a1b2c3d4e5f", "/dev/xvda"), ("ami-0fedcba9876543210", "/dev/sda1")]
)
def test_an_attempts_root_volume_is_that_of_its_image(ec2: Ec2, image: str, device: str) -> None:
    wanted = {"Encrypted": True, "VolumeSize": 100, "VolumeType": "gp3", "DeleteOnTermination": True, "Throughput": 250}
    template = ec2.template(ImageId=image, BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": wanted}])
    api = Ec2Api(lambda: ec2.client)
    made = api.make_template_version(template, run="r", token="t", tags={"spotkeep:deployment": "d"})
    assert made.root_volume == ProvisionedVolume(size_gb=100, type="gp3", throughput_mib_s=250)
    again = api.make_template_version(template, run="r", token="t", tags={"spotkeep:deployment": "d"})
    assert again == made, "of a call whose answer was lost"
    answer = ec2.client.describe_launch_template_versions(LaunchTemplateId=template, Versions=[made.number])
    (mapping,) = answer["LaunchTemplateVersions"][0]["LaunchTemplateData"]["BlockDeviceMappings"]
    assert mapping == {"DeviceName": device, "Ebs": wanted}


def test_the_default_image_is_found_by_its_public_parameter(ec2: Ec2) -> None:
    name = str(Settings.model_fields["instance_ami"].default)
    image = ec2.local.session().client("ssm").get_parameter(Name=name)["Parameter"]["Value"]
    (found,) = ec2.client.describe_images(ImageIds=[image])["Images"]
    assert (found["RootDeviceName"], found["Architecture"]) == ("/dev/xvda", "x86_64")
    assert "PyTorch" in found["Name"]


def test_the_price_now_is_given_for_every_zone(ec2: Ec2) -> None:
    ec2.control.script_market([SpotPoolChange(zone="us-east-1b", instance_type="g5.xlarge", price_usd=0.4321)])
    answer = ec2.client.describe_spot_price_history(
        InstanceTypes=["g5.xlarge"], ProductDescriptions=["Linux/UNIX"], StartTime=dt.datetime.now(dt.UTC)
    )
    prices = {record["AvailabilityZone"]: record["SpotPrice"] for record in answer["SpotPriceHistory"]}
    assert prices == {"us-east-1a": "0.030000", "us-east-1b": "0.432100", "us-east-1c": "0.030000"}


def test_changes_are_listed_latest_first(ec2: Ec2) -> None:
    start = time.time()
    ec2.control.script_market(
        [
            SpotPoolChange(zone="us-east-1a", price_usd=0.3),
            SpotPoolChange(zone="us-east-1a", price_usd=0.2, at_seconds=0.05),
            SpotPoolChange(zone="us-east-1a", price_usd=0.9, at_seconds=3600.0),
        ]
    )
    ec2.wait_until(lambda: time.time() > start + 0.5)
    answer = ec2.client.describe_spot_price_history(
        InstanceTypes=["g5.xlarge"],
        AvailabilityZone="us-east-1a",
        StartTime=dt.datetime.fromtimestamp(start - 60, dt.UTC),
    )
    assert [record["SpotPrice"] for record in answer["SpotPriceHistory"]] == ["0.200000", "0.300000", "0.030000"]
