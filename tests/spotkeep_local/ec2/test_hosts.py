"""Instances as hosts, from outside: real devices, real file systems, and nothing that outlives them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spotkeep_local.ec2.catalog import PYTORCH
from spotkeep_local.hosts import process_identity
from tests.models.granted import make_role

if TYPE_CHECKING:
    from .conftest import Ec2

pytestmark = pytest.mark.long

MOUNT = """
wait_for() { until [ -e "$1" ]; do sleep 0.05; done; }
find_device() {
    device=/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_$(echo "$1" | tr -d -)
    wait_for "$device"
}
mount_volume() {
    find_device "$1"
    [ -n "$(blkid -p -s TYPE -o value "$device")" ] || mkfs.ext4 -q "$device"
    mkdir -p /mnt/volume
    mount "$device" /mnt/volume
}
"""


def script(ec2: Ec2, body: str) -> str:
    """User data that knows its volume by its tag."""
    return f"#!/bin/bash\n{ec2.metadata}\n{MOUNT}\nVOLUME=$(metadata tags/instance/volume)\n{body}"


def run(ec2: Ec2, volume: str, body: str, *, zone: str = "us-east-1a", spot: bool = True) -> str:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "volume", "Value": volume}]}]
    instance = ec2.run(script(ec2, body), zone=zone, spot=spot, TagSpecifications=tags)
    ec2.attach(volume, instance)
    return instance


def test_data_survive_a_power_cut_once_synced_an_end_in_good_order_and_a_move_to_another_zone(hosts: Ec2) -> None:
    volume = hosts.volume()
    # Linux writes back by itself after some seconds, and whenever anybody asks it to: what counts is the last file.
    lose = "n=0; while :; do n=$((n + 1)); echo lost > lost.$n; echo WRITTEN $n; sleep 0.05; done\n"
    first = run(hosts, volume, f"mount_volume $VOLUME; cd /mnt/volume; echo kept > kept; sync; {lose}")
    hosts.wait_for_line(first, "WRITTEN 1")
    hosts.control.interrupt(first, notice=False)
    hosts.wait_for_volume(volume, "available")
    written = [line.split()[1] for line in hosts.console(first).splitlines() if line.startswith("WRITTEN ")]
    look = "mount_volume $VOLUME; cat /mnt/volume/kept; ls /mnt/volume; echo unsynced > /mnt/volume/file; echo LISTED\n"
    second = run(hosts, volume, f"{look}sleep 600\n")
    hosts.wait_for_line(second, "LISTED")
    listed = hosts.console(second).splitlines()
    assert "kept" in listed
    assert f"lost.{written[-1]}" not in listed

    hosts.client.terminate_instances(InstanceIds=[second])
    hosts.wait_for_volume(volume, "available")
    snapshot = hosts.client.create_snapshot(VolumeId=volume)["SnapshotId"]

    def is_completed() -> bool:
        found = hosts.client.describe_snapshots(SnapshotIds=[snapshot])["Snapshots"][0]
        return bool(found["State"] == "completed" and found["FullSnapshotSizeInBytes"] > 0)

    hosts.wait_until(is_completed)
    moved = hosts.volume(zone="us-east-1b", SnapshotId=snapshot, Size=2)
    # Not while it is mounted: that needs CAP_SYS_RESOURCE, which root in a container may lack.
    grow = "find_device $VOLUME; e2fsck -fp $device; resize2fs $device; mount_volume $VOLUME\n"
    body = f"{grow}cat /mnt/volume/file; df -BM --output=size /mnt/volume | tail -n 1; echo READ; sleep 600\n"
    third = run(hosts, moved, body, zone="us-east-1b")
    hosts.wait_for_line(third, "READ")
    lines = hosts.console(third).splitlines()
    assert "unsynced" in lines
    assert int(lines[lines.index("READ") - 1].strip().rstrip("M")) > 1500


def test_a_mounted_volume_stays_busy_until_it_is_unmounted(hosts: Ec2) -> None:
    volume = hosts.volume()
    body = "mount_volume $VOLUME; echo MOUNTED; wait_for /tmp/go; umount /mnt/volume; echo UNMOUNTED; sleep 600\n"
    instance = run(hosts, volume, body)
    hosts.wait_for_line(instance, "MOUNTED")
    hosts.client.detach_volume(VolumeId=volume)
    hosts.wait_until(lambda: hosts.attachment_state(volume) == "busy")
    process = hosts.control.instance_facts(instance).process_id
    Path(f"/proc/{process}/root/tmp/go").touch()
    hosts.wait_for_volume(volume, "available")


def test_a_forced_detach_makes_the_old_host_s_writes_fail(hosts: Ec2) -> None:
    # Two writers on one volume would be the end of it.
    volume = hosts.volume()
    body = "mount_volume $VOLUME; echo MOUNTED\n"
    body += "while echo more >> /mnt/volume/log && sync /mnt/volume/log; do sleep 0.05; done; echo FAILED; sleep 600\n"
    old = run(hosts, volume, body)
    hosts.wait_for_line(old, "MOUNTED")
    hosts.client.detach_volume(VolumeId=volume, Force=True)
    hosts.wait_for_volume(volume, "available")
    hosts.wait_for_line(old, "FAILED")
    new = run(hosts, volume, "mount_volume $VOLUME && echo MOUNTED; sleep 600\n")
    hosts.wait_for_line(new, "MOUNTED")


def test_a_host_that_shuts_itself_down_is_terminated(hosts: Ec2) -> None:
    instance = hosts.run("#!/bin/sh\nshutdown -h now\n")
    hosts.wait_for_state(instance, "terminated")
    assert hosts.instance(instance)["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"


def test_a_host_reaches_the_local_aws_in_its_role_and_what_it_does_stays_in_it(hosts: Ec2) -> None:
    iam = hosts.local.session().client("iam")
    make_role(hosts.local, "trainer", service="ec2.amazonaws.com")
    iam.create_instance_profile(InstanceProfileName="trainer-profile")
    iam.add_role_to_instance_profile(InstanceProfileName="trainer-profile", RoleName="trainer")
    body = "metadata iam/security-credentials/; echo; export AWS_DEFAULT_REGION=$(metadata placement/region)\n"
    body += "aws sts get-caller-identity --query Account --output text\n"
    body += "curl -s -m 1 http://192.0.2.1/ || echo UNREACHABLE; ip route show default | wc -l\n"
    body += "useradd user-in-a-host && touch /etc/of-a-host /of-a-host && ps ax | wc -l && hostname\n"
    # A user without privileges has the Python of a host too.
    asks = "import sys, getpass, botocore; print(getpass.getuser(), sys.prefix)"
    body += f"runuser -u user-in-a-host -- python3 -c '{asks}'; echo DONE; sleep 600\n"
    instance = hosts.run(f"#!/bin/bash\n{hosts.metadata}\n{body}", IamInstanceProfile={"Name": "trainer-profile"})
    hosts.wait_for_line(instance, "DONE")
    *access, processes, hostname, python, _ = hosts.console(instance).splitlines()
    assert access == ["trainer", "000000000000", "UNREACHABLE", "0"]
    assert int(processes) < 10
    assert hostname == "ip-" + hosts.instance(instance)["PrivateIpAddress"].replace(".", "-")
    assert python == f"user-in-a-host {sys.prefix}"
    assert not Path("/etc/of-a-host").exists()
    assert not Path("/of-a-host").exists()
    assert "user-in-a-host" not in Path("/etc/passwd").read_text()


LOOK = """
import os, pathlib
status = pathlib.Path("/proc/self/status").read_text().split("\\n")
print("rights:", os.getuid() > 0, *(line for line in status if line[:6] in ("CapEff", "NoNewP")))
processes = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
print("processes:", processes[0], len(processes) < 10)
print("sees:", [sorted(os.listdir(folder)) for folder in ("/run", "/home")], os.path.exists("/opt/other"))
try:
    pathlib.Path("/opt/library/file").write_text("changed")
except OSError as error:
    print("the library:", error.strerror)
pathlib.Path("/home/trainer/made").touch()
"""


def test_a_container_has_processes_of_its_own_and_sees_what_is_mounted(hosts: Ec2) -> None:
    words = "--rm --name training --pull never --log-driver none --network host --userns host --cap-drop ALL "
    words += "--security-opt no-new-privileges --user $(id -u trainer):$(id -g trainer) --workdir /home/trainer "
    words += "--mount type=bind,source=/home/trainer,target=/home/trainer "
    words += "--mount type=bind,source=/opt/library,target=/opt/library,readonly --entrypoint python3 python:3.12"
    body = "useradd --create-home trainer; mkdir -p /opt/library /opt/other; echo kept > /opt/library/file\n"
    body += f"chown trainer /opt/library/file; cat > /home/trainer/look.py << 'END'\n{LOOK}\nEND\n"
    body += f"docker pull python:3.12 > /dev/null; docker run {words} /home/trainer/look.py; echo ENDED $?\n"
    body += "cat /opt/library/file; ls /home/trainer; echo DONE; sleep 600\n"
    instance = hosts.run(f"#!/bin/bash\n{body}", ImageId=PYTORCH.image_id)
    hosts.wait_for_line(instance, "DONE")
    assert hosts.console(instance).splitlines() == [
        "rights: True CapEff:\t0000000000000000 NoNewPrivs:\t1",
        "processes: 1 True",
        "sees: [[], ['trainer']] False",
        "the library: Read-only file system",
        "ENDED 0",
        "kept",
        "look.py",
        "made",
        "DONE",
    ]


def test_nothing_of_an_ended_host_is_left(hosts: Ec2) -> None:
    volume = hosts.volume()
    instance = run(hosts, volume, "mount_volume $VOLUME; setsid sleep 600 & echo MOUNTED; sleep 600\n")
    hosts.wait_for_line(instance, "MOUNTED")
    process = hosts.control.instance_facts(instance).process_id
    assert process is not None
    started = process_identity.start_time(process)
    namespace = _namespace_of(Path(f"/proc/{process}"))
    inside = _processes_in(namespace)
    assert len(inside) > 1
    hosts.control.interrupt(instance, notice=False)
    hosts.wait_for_state(instance, "terminated")
    assert not process_identity.is_same_process(process, started)
    # Not by the namespace: a host that starts meanwhile may get its number.
    assert not [pid for pid, since in inside.items() if process_identity.is_same_process(pid, since)]
    assert volume not in subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout
    assert str(hosts.local.state_dir) not in Path("/proc/self/mountinfo").read_text()


def _processes_in(namespace: str) -> dict[int, str | None]:
    """Process ids, and since when each is its process's."""
    inside = [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if _namespace_of(folder) == namespace]
    return {pid: process_identity.start_time(pid) for pid in inside}


def _namespace_of(folder: Path) -> str:
    try:
        return str((folder / "ns/pid").readlink())
    except OSError:
        return ""
