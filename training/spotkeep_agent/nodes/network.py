"""The network interface that has an address."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct

_ADDRESS_OF_INTERFACE = 0x8915
"""The request SIOCGIFADDR. Source: netdevice(7)."""
_LOOPBACK = "lo"
_NAME_BYTES, _ADDRESS_AT, _ADDRESS_BYTES = 15, 20, 4


def interface_of(address: str) -> str | None:
    """Return the name of the interface that has an IPv4 address. None where none has it.

    The loopback interface has the whole network 127.0.0.0/8.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:_NAME_BYTES])
            try:
                answer = fcntl.ioctl(asking, _ADDRESS_OF_INTERFACE, request)
            except OSError:  # It has no IPv4 address.
                continue
            if socket.inet_ntoa(answer[_ADDRESS_AT : _ADDRESS_AT + _ADDRESS_BYTES]) == address:
                return name
    return _LOOPBACK if ipaddress.IPv4Address(address).is_loopback else None
