"""A block of the instance metadata service for every user but root, which needs the instance's role, and its test.

A rule of the kernel's routing refuses packets of any other user to it, from any process, worker or namespace of that
user. The rule needs iproute2 alone, which every image has. The agent tests the rule with the rights of the user that
trains.

Sources: ip-rule(8), `uidrange` and `prohibit`. "Limit access to the Instance Metadata Service", EC2 user guide.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess

from spotkeep_agent.as_user.process import Perform
from spotkeep_agent.errors import MetadataOpenError

ADDRESSES = (("-4", "169.254.169.254"), ("-6", "fd00:ec2::254"))
"""The service's addresses ("Access instance metadata", EC2 user guide)."""
_PORT = 80
_TRY_SECONDS = 2.0
# `protocol kernel`: systemd-networkd removes the rules of others when it starts anew, but not the kernel's.
_RULE = ("pref", "100", "uidrange", "1-4294967294", "protocol", "kernel", "prohibit")
_REFUSED = (errno.EACCES,)
_NO_SUCH_NETWORK = (errno.ENETUNREACH, errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def close_metadata(perform: Perform) -> None:
    """Close it, unless it is closed already.

    Args:
        perform: Tries it as the user that trains.

    Raises:
        MetadataOpenError: If that user can still reach it, or the test gave no result.
    """
    for family, address in ADDRESSES:
        found = _problem(address, perform)
        if found is None:
            continue
        said = _add_rule(family, address)
        found = _problem(address, perform)
        if found is not None:
            raise MetadataOpenError(
                f"the instance metadata service is not closed to the user that trains: {found}{said}. Use an image "
                "with iproute2 (ip rule), or set instance_metadata: open in the job file"
            )


def _problem(address: str, perform: Perform) -> str | None:
    """Return the reason why an address may be reachable, or None when the test shows that it is not."""
    try:
        number = int(perform("try_to_connect", address, _PORT, _TRY_SECONDS))
    except OSError as error:
        return f"it cannot be tried: {error}"
    if number in _REFUSED or (":" in address and number in _NO_SUCH_NETWORK):
        return None
    return f"{address} answers" if number == 0 else f"{address} gives {os.strerror(number)}"


def _add_rule(family: str, address: str) -> str:
    """Add the rule. Return the error text for people, if there is one."""
    program = shutil.which("ip", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if program is None:
        return "; there is no command ip"
    command = [program, family, "rule", "add", "to", address, *_RULE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    return f"; {done.stderr.strip()}" if done.returncode else ""
