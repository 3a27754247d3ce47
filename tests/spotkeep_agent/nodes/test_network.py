"""The interface that the ranks of a node are given is the one that has the node's address."""

from __future__ import annotations

import pytest

from spotkeep_agent.nodes.network import interface_of


@pytest.mark.parametrize(("address", "interface"), [("127.0.0.1", "lo"), ("127.0.0.7", "lo"), ("203.0.113.7", None)])
def test_an_address_is_found_at_its_interface(address: str, interface: str | None) -> None:
    """The loopback interface says that it has 127.0.0.1, and has the rest of that network, too."""
    assert interface_of(address) == interface
