"""Finds a deployment.

One SSM parameter, `/<deployment>/connection`, names all its resources. In AWS the usual credentials apply (environment,
profile, instance role). With `--local` the running local AWS of this project is used instead, and nothing else can be
reached.
"""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_cli.bounded_reading import read_file
from spotkeep_cli.errors import NoConnectionError
from spotkeep_constructs.carried import STATE_FOLDER, checkout

if TYPE_CHECKING:
    import boto3
    import botocore.session

    from spotkeep_cli.aws.calls import Connection
    from spotkeep_cli.aws.connection_options import ConnectionOptions
    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.aws.launcher_calls import LauncherUrl
    from spotkeep_local.lifecycle import LocalAws
    from spotkeep_planner.spot_market import SpotMarket

STATE_DIRECTORY = STATE_FOLDER
LOCAL_STATE_VARIABLE = "SPOTKEEP_LOCAL_STATE"
"""Names the local AWS's state directory, where it is not `.spotkeep/local` of this project."""
INSTALLED_FROM = checkout()
"""The checkout, where the command is installed from one (`make setup`). None for a wheel."""
_MOST_SETTINGS_BYTES = 1024 * 1024
_RETRIES = {
    "retry_mode": ("retry_mode", "AWS_RETRY_MODE", "standard", None),
    "max_attempts": ("max_attempts", "AWS_MAX_ATTEMPTS", 5, int),
}
"""Botocore's session variables of retries, with our defaults.

Botocore's own defaults change from version to version.

Source: https://docs.aws.amazon.com/boto3/latest/guide/retries.html
"""


def connect(options: ConnectionOptions) -> DeploymentClient:
    """Find a deployment.

    Raises:
        NoConnectionError: There is none, or it cannot be reached with these credentials.
    """
    from spotkeep_cli.aws.calls import Connection, translated_aws_errors
    from spotkeep_cli.aws.deployment import DeploymentClient

    local = running_local_aws() if options.local else None
    session = aws_session(options) if local is None else _session_of_developer(local)
    name = f"/{options.deployment}/connection"
    with translated_aws_errors(f"reading the parameter {name}", options=options):
        ssm = session.client("ssm")
        try:
            value = ssm.get_parameter(Name=name)["Parameter"]["Value"]
        except ssm.exceptions.ParameterNotFound as error:
            raise _not_deployed(options, region=session.region_name) from error
    try:
        connection = Connection.model_validate(json.loads(value))
    except ValueError as error:
        raise NoConnectionError(
            f"the parameter {name} is not one this version can read",
            hint="deploy again with the version of Spotkeep you use here: cdk deploy --all",
        ) from error
    url = None
    if connection.launcher_url:
        url = _launcher_url(connection, session=session, local=local, profile=options.profile)
    return DeploymentClient(connection=connection, client=session.client, options=options, launcher_url=url)


def _launcher_url(
    connection: Connection, *, session: boto3.Session, local: LocalAws | None, profile: str | None
) -> LauncherUrl:
    from botocore.utils import get_environ_proxies

    from spotkeep_cli.aws.launcher_calls import LauncherUrl

    url, region, credentials = connection.launcher_url, connection.region, session.get_credentials
    if local is not None:
        return LauncherUrl(url=local.on_this_port(url), region=region, credentials=credentials, proxies={})
    return LauncherUrl(
        url=url,
        region=region,
        credentials=credentials,
        proxies=get_environ_proxies(url),
        ca_bundle=_botocore_session(profile).get_config_variable("ca_bundle"),
    )


def _botocore_session(profile: str | None) -> botocore.session.Session:
    import botocore.session

    return botocore.session.Session(session_vars=_RETRIES, profile=profile)


def local_state_directory(*, start: Path | None = None) -> Path:
    """Return the folder of the local AWS's state.

    It is `.spotkeep/local` here, or the folder in `SPOTKEEP_LOCAL_STATE`.
    """
    if named := os.environ.get(LOCAL_STATE_VARIABLE):
        return Path(named)
    return project_directory(start=start) / STATE_DIRECTORY / "local"


def rehearsal_directory() -> Path:
    """Return the folder of the reports of rehearsals.

    It is `.spotkeep/rehearsal` here, or `rehearsal` in the folder in `SPOTKEEP_LOCAL_STATE`.
    """
    if named := os.environ.get(LOCAL_STATE_VARIABLE):
        return Path(named) / "rehearsal"
    return project_directory() / STATE_DIRECTORY / "rehearsal"


def project_directory(*, start: Path | None = None) -> Path:
    """Return the directory whose `.spotkeep` holds undeployed files.

    It is the directory of the app, else the current one.
    """
    return app_directory(start=start) or start or Path.cwd()


def app_directory(*, start: Path | None = None) -> Path | None:
    """Return the directory that Spotkeep's app is deployed from.

    It is the nearest project upwards, else the checkout of this command. Files in a project's `.spotkeep` are its
    state, and no part of it.

    Args:
        start: The directory to begin in. The current directory by default.

    Returns:
        None without a project upwards, where the command was installed from a wheel.
    """
    here = (start or Path.cwd()).resolve()
    upwards = itertools.takewhile(lambda folder: folder.name != STATE_DIRECTORY, (here, *here.parents))
    places = (*upwards, *([] if INSTALLED_FROM is None else [INSTALLED_FROM]))
    return next((folder for folder in places if _holds_the_app(folder)), None)


def app_to_deploy(*, start: Path | None = None) -> Path:
    """Return the directory of the app to deploy. Without a project it is the app that `spotkeep init` writes.

    That one is written into the state of this folder, and again for another version of the package.

    Args:
        start: The directory to begin in. The current directory by default.
    """
    from spotkeep_cli.init import app_files

    found = app_directory(start=start)
    if found is not None:
        return found
    folder = (start or Path.cwd()).resolve() / STATE_DIRECTORY / "app"
    files = app_files()
    for name in ("app.py", "cdk.json"):
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != files[name]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[name], encoding="utf-8")
    return folder


def _holds_the_app(folder: Path) -> bool:
    """Return True if it has a `cdk.json` with Spotkeep's settings. A user's project may have a CDK app of its own."""
    try:
        return b'"spotkeep"' in read_file(folder / "cdk.json", most_bytes=_MOST_SETTINGS_BYTES)
    except OSError:
        return False


def running_local_aws() -> LocalAws:
    """Return the local AWS of this project.

    Raises:
        NoConnectionError: It is not running.
    """
    from spotkeep_local import lifecycle

    state = local_state_directory()
    local = lifecycle.status(state)
    if local is None:
        raise NoConnectionError(
            f"the local AWS is not running (looked in {_near(state)})", hint="start it: spotkeep local up"
        )
    return local


def boto_session_of(options: ConnectionOptions) -> boto3.Session:
    """Return the session that a deployment is reached with, for a library that makes clients of its own.

    Raises:
        NoConnectionError: The local AWS is meant and does not run, or there is no profile or region.
    """
    return _session_of_developer(running_local_aws()) if options.local else aws_session(options)


def administrator_session(options: ConnectionOptions) -> boto3.Session:
    """Return a session with the rights of who deployed. On AWS these are the caller's own.

    Raises:
        NoConnectionError: The local AWS is meant and does not run, or there is no profile or region.
    """
    return running_local_aws().session().boto3_session if options.local else aws_session(options)


def _session_of_developer(local: LocalAws) -> boto3.Session:
    return local.session(key=local.keys.developer).boto3_session


def aws_session(options: ConnectionOptions) -> boto3.Session:
    """Return the session of the user's AWS configuration.

    Raises:
        NoConnectionError: It has no such profile, or no region.
    """
    import boto3
    from botocore.exceptions import ProfileNotFound

    try:
        configured = _botocore_session(options.profile)
        configured.get_scoped_config()  # Raises where there is no such profile.
        session = boto3.Session(botocore_session=configured, region_name=options.region)
    except ProfileNotFound as error:
        raise NoConnectionError(
            f"there is no AWS profile {options.profile!r}", hint="`aws configure list-profiles` shows those you have"
        ) from error
    if session.region_name is None:
        raise NoConnectionError(
            "no AWS region is set",
            hint="name it: spotkeep --region us-east-1 ... (or AWS_REGION); for the local AWS: spotkeep --local ...",
        )
    return session


def _not_deployed(options: ConnectionOptions, *, region: str) -> NoConnectionError:
    if options.local:
        return NoConnectionError(
            f"the local AWS runs, but nothing is deployed to it as {options.deployment!r}",
            hint="deploy to it: spotkeep local up",
        )
    return NoConnectionError(
        f"no deployment {options.deployment!r} in {region}",
        hint="deploy it (`cdk deploy --all`), or name another: spotkeep --deployment NAME --region REGION ...",
    )


def _near(path: Path) -> str:
    """Return a path as a person would give it from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def spot_market(options: ConnectionOptions) -> SpotMarket:
    """Return the spot market that the connection's credentials see.

    Raises:
        NoConnectionError: The local AWS is meant and does not run, or there is no region.
    """
    from spotkeep_planner.spot_market import SpotMarket

    return SpotMarket(boto_session_of(options).client("ec2"))
