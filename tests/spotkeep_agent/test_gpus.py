"""An instance whose GPUs no training would find says so before it trains, and bills no longer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spotkeep_agent.errors import DriverMissingError, GpusUnusableError
from spotkeep_agent.gpus import count_nvidia_gpus, require_driver
from spotkeep_fleet.record import FINISHED, INPUT_ERROR, MOST_SETBACKS

from .cloud import Cloud, Instance
from .conftest import launch

TWO = "GPU 0: NVIDIA A10G (UUID: GPU-1)\nGPU 1: NVIDIA A10G (UUID: GPU-2)"
ONE_IN_PARTS = "GPU 0: NVIDIA H100 (UUID: GPU-1)\n  MIG 1g.10gb Device  0: (UUID: MIG-1)"
NONE = "No devices were found"


def device(folder: Path, name: str, *, vendor: str = "0x10de", kind: str = "0x030200") -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "vendor").write_text(f"{vendor}\n")
    (folder / name / "class").write_text(f"{kind}\n")


def test_nvidias_are_counted_by_what_the_bus_says_with_a_driver_or_without(tmp_path: Path) -> None:
    assert count_nvidia_gpus(tmp_path / "none") == 0
    device(tmp_path, "0000:00:03.0", vendor="0x1d0f", kind="0x010802")
    device(tmp_path, "0000:00:04.0", vendor="0x1d0f", kind="0x030000")
    device(tmp_path, "0000:00:05.0", kind="0x068000")  # an NVSwitch
    device(tmp_path, "0000:00:06.0", vendor="0x1002")  # AMD's, as g4ad has
    assert count_nvidia_gpus(tmp_path) == 0
    device(tmp_path, "0000:00:1e.0")
    device(tmp_path, "0000:00:1f.0", kind="0x030000")
    assert count_nvidia_gpus(tmp_path) == 2


@pytest.fixture
def with_driver(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The environment of an AMI whose `nvidia-smi -L` says this."""

    def make(said: str, *, code: int = 0) -> dict[str, str]:
        programs = tmp_path / "programs"
        programs.mkdir(exist_ok=True)
        (programs / "said").write_text(said)
        program = programs / "nvidia-smi"
        program.write_text(f'#!/bin/sh\n[ "$*" = -L ] || exit 2\ncat "{programs}/said"\nexit {code}\n')
        program.chmod(0o755)
        return {"PATH": f"{programs}{os.pathsep}{os.defpath}"}

    return make


@pytest.mark.parametrize(("gpus", "said"), [(2, TWO), (1, TWO), (1, ONE_IN_PARTS)])
def test_gpus_that_the_driver_lists_are_found(with_driver: Callable[..., dict[str, str]], gpus: int, said: str) -> None:
    require_driver(gpus, instance_type="g5.12xlarge", environment=with_driver(said))


@pytest.mark.parametrize(
    ("gpus", "said", "code"),
    [(1, NONE, 6), (1, NONE, 0), (3, TWO, 0), (2, ONE_IN_PARTS, 0), (2, TWO, 9), (1, "", 0)],
)
def test_gpus_that_it_does_not_list_are_named_with_its_words_and_what_to_do(
    with_driver: Callable[..., dict[str, str]], gpus: int, said: str, code: int
) -> None:
    with pytest.raises(GpusUnusableError) as error:
        require_driver(gpus, instance_type="p3dn.24xlarge", environment=with_driver(said, code=code))
    for words in ("p3dn.24xlarge", f"has {gpus} NVIDIA GPU", f"exit code {code}", said, "instance_ami"):
        assert words in str(error.value)


def test_without_a_driver_the_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(DriverMissingError, match=r"g5\.xlarge.* no driver .*instance_ami"):
        require_driver(1, instance_type="g5.xlarge", environment={"PATH": str(tmp_path)})


def test_where_there_are_no_gpus_nothing_is_asked(tmp_path: Path) -> None:
    require_driver(0, instance_type="m5.large", environment={"PATH": str(tmp_path)})


def boot(cloud: Cloud, path: str) -> Instance:
    """An instance with one GPU."""
    instance = cloud.add("us-east-1a")
    device(instance.root / "sys/bus/pci/devices", "0000:00:1e.0")
    instance.start_agent(PATH=f"{Path(sys.executable).parent}{os.pathsep}{path}")
    return instance


@pytest.mark.long
def test_a_run_whose_ami_has_no_driver_fails_before_its_data_are_fetched(cloud: Cloud, tmp_path: Path) -> None:
    launch(cloud, channels={"train": "s3://bucket/data/"})
    programs = tmp_path / "plain"
    programs.mkdir()
    (programs / "sh").symlink_to("/bin/sh")
    instance = boot(cloud, str(programs))
    assert instance.finish() == 0, instance.lines
    training = cloud.record.training
    assert (training.state, training.exit_code) == (INPUT_ERROR, None)
    assert "no driver" in (training.failure or "")
    assert cloud.calls["s3:GET"] == 0


@pytest.mark.long
def test_a_driver_without_the_gpus_is_a_setback_and_the_last_of_so_many_ends_the_run(
    cloud: Cloud, with_driver: Callable[..., dict[str, str]]
) -> None:
    launch(cloud)
    broken = with_driver(NONE, code=6)["PATH"]
    assert boot(cloud, broken).finish() == 3
    assert cloud.record.setbacks == 1
    assert not cloud.record.training.over
    cloud.change(lambda record: replace(record, setbacks=MOST_SETBACKS - 1))
    assert boot(cloud, broken).finish() == 3
    assert cloud.record.training.state == INPUT_ERROR
    assert NONE in (cloud.record.training.failure or "")


@pytest.mark.long
def test_with_its_driver_it_trains(cloud: Cloud, with_driver: Callable[..., dict[str, str]]) -> None:
    launch(cloud)
    instance = boot(cloud, with_driver(TWO)["PATH"])
    assert instance.finish() == 0, instance.lines
    assert cloud.record.training.state == FINISHED
