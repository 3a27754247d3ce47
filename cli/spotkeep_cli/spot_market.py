"""The EC2 spot market of the account a deployment is in, for planning."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotkeep_cli.deployment import ConnectionOptions
    from spotkeep_planner.history.spot_market import SpotMarket


def spot_market(options: ConnectionOptions) -> SpotMarket:
    """The spot market that the connection's credentials see.

    Raises:
        NoConnectionError: The local AWS is meant and does not run, or there is no region.
    """
    from spotkeep_cli.connection import aws_session, running_local_aws
    from spotkeep_planner.history.spot_market import AwsSpotMarket

    session = running_local_aws().session() if options.local else aws_session(options)
    return AwsSpotMarket(session.client("ec2"))
