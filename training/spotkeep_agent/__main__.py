"""The command `python3 spotkeep.pyz agent`, which an instance's user data starts."""

from __future__ import annotations

import logging
import os
import sys
from typing import NoReturn

from spotkeep.notices.instance_metadata import InstanceMetadataService
from spotkeep_fleet.signed_fetch import tell

from .agent import EXIT_FAILED, Agent
from .errors import AgentError
from .settings import read_settings

_METADATA_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_METADATA_ENDPOINT = "http://169.254.169.254"


def main() -> NoReturn:
    """Run the agent and exit with 0 when it left, 3 when it left and something is wrong, 1 when it crashed."""
    logging.basicConfig(level=logging.INFO, format="spotkeep: %(message)s", stream=sys.stderr)
    try:
        agent = Agent(
            settings=read_settings(os.environ),
            environment=dict(os.environ),
            metadata=InstanceMetadataService(os.environ.get(_METADATA_VARIABLE) or _METADATA_ENDPOINT),
            say=_say,
        )
        sys.exit(agent.run())
    except AgentError as error:
        tell(f"spotkeep: {error}")
        sys.exit(EXIT_FAILED)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
