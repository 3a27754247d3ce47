"""Which image a job gets that names none, and when a named one does not fit its instance types."""

from __future__ import annotations

import functools
from typing import Any

import botocore.session
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.framework_images import ACCOUNTS, FRAMEWORK_IMAGES
from spotkeep_jobs.document.image import aws_image, processor_of
from spotkeep_jobs.document.request import Validation, validate
from tests.spotkeep_jobs.document.framework_image_table import TABLE, table_source

REGISTRY = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
DEFAULT = f"{REGISTRY}/pytorch-training:2.8.0-{{processor}}-py312"
ON_CPU = f"{REGISTRY}/pytorch-training:2.8.0-cpu-py312"
IN_IRELAND = "141502667606.dkr.ecr.eu-west-1.amazonaws.com/sagemaker-xgboost:1.7-1"
IN_BEIJING = "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn/tensorflow-training:2.19.0-cpu-py312"
ON_GPU = f"{REGISTRY}/pytorch-training:2.8.0-gpu-py312"


def judged(
    default: str | None = DEFAULT, *, region: str | None = None, network: bool | None = None, **fields: Any
) -> Validation:
    return validate(
        {"name": "first", "command": "python train.py", **fields},
        defaults=DeploymentDefaults(
            image=default,
            instance_type="ml.m5.xlarge",
            checkpoint_bucket="checkpoints",
            region=region,
            training_network=network,
            fleet_instance_types=("m5.xlarge",),
        ),
    )


@pytest.mark.parametrize(
    ("fields", "image"),
    [
        ({}, ON_CPU),
        ({"instance_type": "ml.p6-b200.48xlarge"}, ON_GPU),
        # The image for GPUs starts without one too; that for CPUs would leave a GPU unused.
        ({"instance_types": ["ml.m5.xlarge", "ml.g4dn.xlarge"], "capacity": "auto"}, ON_GPU),
        ({"ladder": [{"instance_type": "ml.g5.xlarge"}]}, ON_GPU),
        ({"instance_type": "ml.g5.xlarge", "image": f"{REGISTRY}/mine:1"}, f"{REGISTRY}/mine:1"),
    ],
)
def test_the_default_image_follows_the_instance_types(fields: dict[str, Any], image: str) -> None:
    validation = judged(**fields)
    assert validation.accepted().image == image
    assert validation.warnings == ()


@pytest.mark.parametrize("instance_type", ["ml.trn1.2xlarge", "ml.p6e-gb200.36xlarge"])
def test_a_type_that_no_default_image_fits_needs_an_image_of_its_own(instance_type: str) -> None:
    [problem] = judged(instance_type=instance_type).problems
    assert problem.field == "image"
    assert instance_type in problem.problem
    assert judged(instance_type=instance_type, image=f"{REGISTRY}/mine:1").problems == ()


def test_a_default_image_may_be_for_every_type_and_without_one_the_job_needs_one() -> None:
    assert judged(f"{REGISTRY}/ours:1", instance_type="ml.trn1.2xlarge").accepted().image == f"{REGISTRY}/ours:1"
    [problem] = judged(None).problems
    assert (problem.field, problem.problem) == ("image", "is required: this deployment has no default image")


@pytest.mark.parametrize(
    ("image", "types", "says"),
    [
        (ON_CPU, ["ml.m5.xlarge", "ml.g5.2xlarge"], "ml.g5.2xlarge has NVIDIA GPUs"),
        (ON_GPU, ["ml.m5.xlarge"], "ml.m5.xlarge has CPUs only"),
        ("registry.example.com/train:cuda12", ["ml.m5.xlarge"], "ml.m5.xlarge has CPUs only"),
        (f"{REGISTRY}/pytorch-training-neuronx:2.8", ["ml.g5.xlarge"], "ml.g5.xlarge has NVIDIA GPUs"),
        (ON_GPU, ["ml.trn1.2xlarge"], "ml.trn1.2xlarge has AWS Neuron devices"),
        (f"{REGISTRY}/pytorch-training-arm64:2.8-gpu-py312", ["ml.g5.xlarge"], "ml.g5.xlarge has x86-64 processors"),
        (f"{REGISTRY}/mine:1-x86_64", ["ml.p6e-gb200.36xlarge"], "ml.p6e-gb200.36xlarge has Arm processors"),
    ],
)
def test_an_image_that_by_its_name_does_not_fit_is_warned_of(image: str, types: list[str], says: str) -> None:
    validation = judged(image=image, instance_types=types, capacity="auto")
    assert validation.accepted().image == image
    [warning] = [each for each in validation.warnings if "Amazon ECR" not in each]
    assert image in warning
    assert says in warning


@pytest.mark.parametrize(
    ("image", "types"),
    [
        (ON_GPU, ["ml.m5.xlarge", "ml.g5.2xlarge"]),
        (f"{REGISTRY}/train@sha256:{'cpu0' * 16}", ["ml.g5.2xlarge"]),
        (f"{REGISTRY}/gpucpu:1", ["ml.m5.xlarge"]),
        (f"{REGISTRY}/cpu-and-gpu:1", ["ml.m5.xlarge"]),
    ],
)
def test_an_image_whose_name_says_nothing_else_is_taken_as_it_is(image: str, types: list[str]) -> None:
    assert judged(image=image, instance_types=types, capacity="auto").warnings == ()


HUB = "docker.io/library/python:3.12"
GALLERY = "public.ecr.aws/docker/library/python:3.12"
ELSEWHERE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/mine:1"


@pytest.mark.parametrize(
    ("image", "network", "says"),
    [
        (GALLERY, None, "public gallery, from which SageMaker pulls no image"),
        (GALLERY, True, "public gallery, from which SageMaker pulls no image"),
        (HUB, False, "SageMaker pulls from another registry only through a VPC"),
        ("python:3.12", True, "names no registry"),
        ("team/train:1", None, "names no registry"),
        (ELSEWHERE, True, "may pull from Amazon ECR in us-east-1 alone"),
    ],
)
def test_an_image_that_sagemaker_never_pulls_is_refused(image: str, network: bool | None, says: str) -> None:
    validation = judged(image=image, region="us-east-1", network=network)
    [problem] = validation.problems
    assert problem.field == "image"
    assert says in problem.problem
    assert not any("Amazon ECR" in warning for warning in validation.warnings)


def test_a_framework_that_is_named_as_an_image_is_answered_with_how_to_name_it() -> None:
    [problem] = judged(image="pytorch:latest").problems
    assert "framework: pytorch" in problem.fix
    [problem] = judged(image="pytorch-lightning:latest").problems
    assert "framework" not in problem.fix


@pytest.mark.parametrize(
    ("host", "right"),
    [
        ("123456789012.dkr.ecr.cn-north-1.amazonaws.com", "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn"),
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com.cn", "123456789012.dkr.ecr.eu-west-1.amazonaws.com"),
    ],
)
@pytest.mark.parametrize("backend", [{}, {"backend": "ec2", "instance_types": ["m5.large", "m6i.large"]}])
def test_a_registry_that_there_is_not_in_its_partition_is_refused_with_the_one_that_there_is(
    host: str, right: str, backend: dict[str, Any]
) -> None:
    region = host.split(".")[3]
    [problem] = judged(image=f"{host}/mine:1", region=region, **backend).problems
    assert problem.fix == f"Write {right}/mine:1."
    assert judged(image=f"{right}/mine:1", region=region, **backend).problems == ()


@pytest.mark.parametrize(("network", "says"), [(True, "through the deployment's VPC"), (None, "through a VPC")])
def test_what_an_image_in_another_registry_needs_is_said(network: bool | None, says: str) -> None:
    [warning] = judged(image=HUB, network=network).warnings
    assert says in warning
    assert "without a login" in warning


def test_on_ec2_instances_pull_from_any_registry_and_of_amazon_ecr_in_their_region_alone() -> None:
    on_ec2 = {"backend": "ec2", "region": "us-east-1", "network": False, "instance_types": ["m5.large", "m6i.large"]}
    assert judged(image=HUB, **on_ec2).problems == ()
    assert judged(image=GALLERY, **on_ec2).problems == ()
    [problem] = judged(image=ELSEWHERE, **on_ec2).problems
    assert "eu-west-1" in problem.problem


def test_gpus_of_another_maker_are_no_reason_for_an_image_with_cuda() -> None:
    assert processor_of("g4ad.xlarge") == "cpu"
    assert processor_of("g4dn.xlarge") == "gpu"


def test_a_misfit_of_the_deployments_own_image_is_warned_of_too() -> None:
    [warning] = judged(ON_CPU, instance_type="ml.g5.xlarge").warnings
    assert "ml.g5.xlarge has NVIDIA GPUs" in warning


def test_every_type_that_sagemaker_trains_on_is_known() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    types = model.shape_for("TrainingInstanceType").enum  # type: ignore[attr-defined]
    families: dict[str, set[str]] = {}
    for name in types:
        families.setdefault(processor_of(name), set()).add(name.split(".")[1])
    assert families["neuron"] == {"trn1", "trn1n", "trn2"}
    assert {family[0] for family in families["gpu"]} == {"g", "p"}
    assert {family[0] for family in families["cpu"]} == {"c", "m", "r", "t"}


class TestFramework:
    @pytest.mark.parametrize(
        ("framework", "region", "instance_type", "image"),
        [
            ("pytorch-2.8", "us-east-1", "ml.g5.xlarge", ON_GPU),
            ("pytorch-2.8.0", "us-east-1", "ml.m5.xlarge", ON_CPU),
            ("xgboost-1.7", "eu-west-1", "ml.m5.xlarge", IN_IRELAND),
            ("tensorflow-2.19", "cn-north-1", "ml.m5.xlarge", IN_BEIJING),
        ],
    )
    def test_the_launch_chooses_the_image_by_region_and_instance_type(
        self, framework: str, region: str, instance_type: str, image: str
    ) -> None:
        request = judged(region=region, framework=framework, instance_type=instance_type).accepted()
        assert (request.image, request.framework) == (image, None)

    @pytest.mark.parametrize("framework", sorted({name.partition("-")[0] for name in FRAMEWORK_IMAGES}))
    def test_a_name_alone_is_the_newest_of_the_table(self, framework: str) -> None:
        newest = [name for name in FRAMEWORK_IMAGES if name.startswith(framework)][-1]
        assert judged(framework=framework).accepted().framework == newest

    def test_a_version_is_no_beginning_of_another_number(self) -> None:
        [problem] = judged(framework="pytorch-2.1").problems
        assert problem.field == "framework"
        assert "pytorch-2.10.0" in problem.fix

    @pytest.mark.parametrize(
        ("framework", "instance_type", "says"),
        [("sklearn", "ml.g5.xlarge", "has NVIDIA GPUs"), ("huggingface", "ml.m5.xlarge", "has CPUs only")],
    )
    def test_a_framework_without_an_image_for_the_processor_is_warned_of(
        self, framework: str, instance_type: str, says: str
    ) -> None:
        [warning] = judged(region="us-east-1", framework=framework, instance_type=instance_type).warnings
        assert says in warning

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"image": ON_CPU}, "is given together with image"),
            ({"region": "us-east-9"}, "no image in us-east-9"),
            ({"instance_type": "ml.trn1.2xlarge"}, "ml.trn1.2xlarge"),
            ({"backend": "ec2", "instance_type": "g5g.xlarge"}, "no image for g5g.xlarge"),
        ],
    )
    def test_beside_an_image_or_where_there_is_none_it_is_refused(self, fields: dict[str, Any], says: str) -> None:
        [problem] = judged(**{"region": "us-east-1", "framework": "pytorch", **fields}).problems
        assert problem.field == "framework"
        assert says in problem.problem

    def test_on_ec2_it_is_the_image_that_instances_pull(self) -> None:
        on_ec2 = {"backend": "ec2", "instance_types": ["g5.xlarge", "g6.xlarge"]}
        request = judged(region="us-east-1", framework="pytorch-2.8", **on_ec2).accepted()
        assert (request.image, request.framework) == (ON_GPU, None)

    def test_without_a_region_the_name_is_kept_and_no_image_chosen(self) -> None:
        request = judged(framework="xgboost-3.0").accepted()
        assert (request.image, request.framework) == (None, "xgboost-3.0-5")

    @given(
        name=st.sampled_from(sorted(FRAMEWORK_IMAGES)),
        region=st.sampled_from(sorted(ACCOUNTS["pytorch"])),
        instance_type=st.sampled_from(["ml.m5.xlarge", "ml.g5.xlarge"]),
    )
    def test_what_was_recorded_reads_the_same_again(self, name: str, region: str, instance_type: str) -> None:
        validation = judged(region=region, framework=name, instance_type=instance_type)
        if validation.request is not None:
            recorded = validation.request.as_document()
            assert judged(region=region, **recorded).accepted() == validation.request

    def test_the_table_is_what_the_sdk_of_the_lock_knows(self) -> None:
        assert TABLE.read_text() == table_source()

    @pytest.mark.long
    @pytest.mark.filterwarnings("ignore")
    def test_the_sdk_itself_names_the_same_images(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from sagemaker.core import common_utils, image_uris

        # It reads the endpoints of all services anew for each image.
        monkeypatch.setattr(common_utils, "_botocore_resolver", functools.cache(common_utils._botocore_resolver))
        compared = 0
        for name in FRAMEWORK_IMAGES:
            framework, _, version = name.partition("-")
            base = (
                "pytorch" + FRAMEWORK_IMAGES[name].path.partition(":")[2].partition("-")[0]
                if framework == "huggingface"
                else None
            )
            for region in ("us-east-1", "cn-northwest-1", "me-west-1"):
                for instance_type in ("ml.m5.xlarge", "ml.p4d.24xlarge"):
                    ours = aws_image(FRAMEWORK_IMAGES[name], region=region, instance_types=[instance_type])
                    if (processor_of(instance_type), framework) in (("cpu", "huggingface"), ("gpu", "sklearn")):
                        continue  # The SDK refuses these, for which Spotkeep warns.
                    arguments = {"version": version, "instance_type": instance_type, "image_scope": "training"}
                    if ours is None:
                        with pytest.raises(ValueError, match=region):
                            image_uris.retrieve(framework, region, base_framework_version=base, **arguments)
                        continue
                    assert ours == image_uris.retrieve(framework, region, base_framework_version=base, **arguments)
                    compared += 1
        assert compared > 50
