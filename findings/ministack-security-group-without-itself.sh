#!/usr/bin/env bash
# ministack 1.5.33: the default security group of a VPC has no inbound rule, and DescribeMountTargets of a file system that
# is not there answers 200 with an empty list. On AWS the default group lets in all traffic from itself ("Default security
# groups for your VPCs", Amazon VPC user guide), and EFS answers FileSystemNotFound. A good guess is that a mount which works
# in the emulator's default group works on AWS, and the other way round. The handlers are called in this process, without a
# network. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" ministack==1.5.33
seen="$(cd "$folder" && PYTHONPATH="$folder" python3 -W ignore - 2>"$folder/log" <<'PYTHON'
import asyncio
import re
from urllib.parse import parse_qs

from ministack.services import ec2, efs

query = "Action=DescribeSecurityGroups&Filter.1.Name=group-name&Filter.1.Value.1=default"
form = {"content-type": "application/x-www-form-urlencoded"}
_, _, groups = asyncio.run(ec2.handle_request("POST", "/", form, query.encode(), parse_qs(query)))
inbound = re.search(rb"<ipPermissions>(.*?)</ipPermissions>", groups, re.DOTALL)
print("inbound rules of the default group:", (inbound[1].strip().decode() if inbound else "") or "none")
address = "/2015-02-01/mount-targets"
status, _, body = asyncio.run(efs.handle_request("GET", address, {}, b"", {"FileSystemId": ["fs-0123abcd"]}))
print("mount targets of no file system:", status, body.decode() if isinstance(body, bytes) else body)
PYTHON
)"
echo "$seen"
grep -q "inbound rules of the default group: none" <<<"$seen"
grep -q 'mount targets of no file system: 200 {"MountTargets": \[\]}' <<<"$seen"
