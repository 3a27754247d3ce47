"""What goes wrong with a host."""

from __future__ import annotations

from spotkeep_local.errors import LocalAwsError


class HostRefusedError(LocalAwsError):
    """The machine did not let a host be made; the text says what it refused."""
