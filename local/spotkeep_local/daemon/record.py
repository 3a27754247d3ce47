"""The record of a running server in its state directory (`local.json`)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ServerRecord:
    """One running server.

    Attributes:
        pid: Its process.
        process_started: When that process began, as `process_identity.start_time` returns it.
        nonce: A random text that only this server answers with.
        port: Where it listens, on 127.0.0.1.
        region: The region of its resources.
        account_id: The account in its ARNs.
    """

    pid: int
    process_started: str
    nonce: str
    port: int
    region: str
    account_id: str

    @property
    def endpoint_url(self) -> str:
        """Where clients reach it."""
        return f"http://127.0.0.1:{self.port}"

    def write(self, path: Path) -> None:
        """Replace the record, atomically."""
        temporary = path.with_suffix(".new")
        document = {**asdict(self), "endpoint": self.endpoint_url}
        temporary.write_text(json.dumps(document, indent=2) + "\n")
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read a record.

        Returns:
            None when there is none, or when it is not whole: a record that cannot be used is as good as none.
        """
        try:
            document = json.loads(path.read_text())
            document.pop("endpoint")
            return cls(**document)
        except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
            return None
