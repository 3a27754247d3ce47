"""The daemon: ministack, the training service and EC2's fleets behind one loopback port.

`lifecycle.start` runs it as `python -m spotkeep_local.daemon.server`, with a socket that already listens (so no program
can take the port in between, and early requests wait instead of failing). It keeps every file below its state
directory, opens no connection that leaves the machine, and saves its state when SIGTERM or SIGINT ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import functools
import json
import logging
import os
import shlex
import shutil
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotkeep_local import process_identity
from spotkeep_local.access.admission import HEALTH_PATH, Admission
from spotkeep_local.access.issued_credentials import CredentialRegistry, PersonKeys, make_person_keys
from spotkeep_local.daemon.record import ServerRecord
from spotkeep_local.daemon.state_directory import StateDirectory
from spotkeep_local.errors import LocalAwsError
from spotkeep_local.options import ServerOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from spotkeep_local.iam.authorization import ServiceCall

_SHUTDOWN_GRACE_SECONDS = 1.0
_LOOPBACK = "127.0.0.1"
_log = logging.getLogger("spotkeep_local")


def server_environment(
    directory: StateDirectory, *, port: int, options: ServerOptions, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole environment of the daemon, and so of the functions it runs.

    Everything about AWS, Docker and proxies that the caller's shell holds is left out: a function must reach
    this local AWS, with the credentials that are issued to it, and nothing else.
    """
    kept = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    nothing = str(directory.root / "none")
    return {
        **{name: inherited[name] for name in kept if name in inherited},
        "AWS_CONFIG_FILE": nothing,
        "AWS_DEFAULT_REGION": options.region,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": f"http://{_LOOPBACK}:{port}",
        "AWS_REGION": options.region,
        "AWS_SHARED_CREDENTIALS_FILE": nothing,
        "BIND_HOST": _LOOPBACK,
        "DOCKER_HOST": f"unix://{nothing}/docker.sock",
        "GATEWAY_PORT": str(port),
        "HOME": str(directory.home),
        "IOT_MTLS_ENABLED": "0",
        "LAMBDA_EXECUTOR": "local",
        "LOG_LEVEL": options.log_level,
        "MINISTACK_ACCOUNT_ID": options.account_id,
        "MINISTACK_HOST": _LOOPBACK,
        "MINISTACK_REGION": options.region,
        "NO_PROXY": "*",
        "PATH": f"{Path(sys.prefix) / 'bin'}{os.pathsep}{inherited.get('PATH', os.defpath)}",
        "PERSIST_STATE": "1",
        "PYTHONNOUSERSITE": "1",
        "S3_DATA_DIR": str(directory.objects),
        "S3_PERSIST": "1",
        "SFTP_ENABLED": "0",
        "STATE_DIR": str(directory.services),
        "TMPDIR": str(directory.temporary),
    }


def forbid_leaving_the_machine() -> None:
    """Make every connection of this process to anything but loopback fail, for the rest of its life."""

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect":
            address = arguments[1]
            if isinstance(address, tuple) and not _is_loopback(str(address[0])):
                _log.warning("refused a connection to %s: the local AWS stays on this machine", address[0])
                raise ConnectionRefusedError(f"the local AWS opens no connection to {address[0]}")

    sys.addaudithook(refuse)


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


class _Application:
    """ministack's ASGI application, with our own health page; calls `on_started` when ministack is up."""

    def __init__(self, *, inner: Callable[..., Awaitable[None]], nonce: str, on_started: Callable[[], None]) -> None:
        self._inner = inner
        self._on_started = on_started
        self.ready = False
        self._health = json.dumps({"nonce": nonce, "pid": os.getpid()}).encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, self._announcing(send))
        elif scope["type"] == "http" and scope["path"] == HEALTH_PATH:
            headers = [(b"content-type", b"application/json")]
            status = 200 if self.ready else 503
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": self._health})
        else:
            await self._inner(scope, receive, send)

    def _announcing(self, send: Any) -> Any:
        async def announce(message: Any) -> None:
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                self._on_started()

        return announce


async def _serve(
    listening: socket.socket,
    *,
    directory: StateDirectory,
    options: ServerOptions,
    record: ServerRecord,
    people: PersonKeys,
    announce_ready: Callable[[], None],
) -> None:
    # Late, because ministack reads the environment while it is imported.
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    from spotkeep_local import ministack_seams
    from spotkeep_local.access.call_rates import CALLS_A_SECOND, CallRates
    from spotkeep_local.access.clients import FROM_INSIDE, LocalSession
    from spotkeep_local.access.enforcement import Enforcement
    from spotkeep_local.access.unsure_calls import CONTROL_TARGET as CALLS_CONTROL_TARGET
    from spotkeep_local.access.unsure_calls import UnsureCalls
    from spotkeep_local.account import price_list, service_quotas
    from spotkeep_local.account.new_account import make_people, make_service_linked_roles
    from spotkeep_local.account.session_manager import SessionManager
    from spotkeep_local.account.stack_roles import StackRoles
    from spotkeep_local.batch.cloudformation import RESOURCE_TYPES, BatchResource
    from spotkeep_local.batch.service import BatchService
    from spotkeep_local.cdk import npm_package
    from spotkeep_local.ec2 import events as ec2_events
    from spotkeep_local.ec2 import service as ec2_service
    from spotkeep_local.ec2.machine_images import PYTORCH
    from spotkeep_local.ec2.surroundings import Surroundings
    from spotkeep_local.fis.cloudformation import ExperimentTemplateResource
    from spotkeep_local.fis.service import FisService
    from spotkeep_local.function_control import CONTROL_TARGET as FUNCTIONS_CONTROL_TARGET
    from spotkeep_local.function_control import functions_control
    from spotkeep_local.iam.judge import Judge
    from spotkeep_local.iam.local_account import LocalAccount
    from spotkeep_local.iam.reference import PACKAGE, Reference
    from spotkeep_local.iam.report import CONTROL_TARGET as IAM_CONTROL_TARGET
    from spotkeep_local.iam.service import permissions_control
    from spotkeep_local.iam.service_calls import agent_may_connect, is_allowed
    from spotkeep_local.iam.uses import Uses
    from spotkeep_local.iam.withheld import Withheld
    from spotkeep_local.training import service as training_service
    from spotkeep_local.unpacked_archives import UnpackedArchives

    ministack_seams.check()
    ministack_seams.name_queues_alike_on_every_port()
    ministack_seams.know_transactions_by_what_was_sent()
    ministack_seams.unpack_once(UnpackedArchives(directory.temporary / "unpacked"))
    loop = asyncio.get_running_loop()

    def publish_event(source: str, detail: Mapping[str, Any], detail_type: str, resources: Sequence[str]) -> None:
        ministack_seams.publish_event(source=source, detail_type=detail_type, detail=detail, resources=resources)

    registry = CredentialRegistry(
        account_id=options.account_id,
        people=people,
        sessions=ministack_seams.StsSessions(loop, account_id=options.account_id),
        role_id=ministack_seams.role_id,
    )
    ministack_seams.give_functions_credentials(
        lambda arn, name, role: registry.of_role(role, session=name, holder=arn).environment()
    )

    training = training_service.TrainingService(
        state_dir=directory.training,
        credentials=registry,
        endpoint_url=record.endpoint_url,
        options=options,
        publish_event=functools.partial(publish_event, "aws.sagemaker"),
        on_change=lambda: batch.account.changed.set(),
        on_event_faults=lambda faults: batch.set_event_faults(faults),
    )
    batch = BatchService(
        state_dir=directory.batch,
        options=options,
        training=training,
        publish_event=functools.partial(publish_event, "aws.batch"),
    )
    ministack_seams.register_service(
        "batch", handler=batch.api.handle_request, target_prefixes=[], host_patterns=[r"^batch\."]
    )
    for name, service, target, host in (
        ("sagemaker", training.api, training_service.TARGET, r"api\.sagemaker\."),
        ("spotkeep-control", training.control, training_service.CONTROL_TARGET, None),
        ("pricing", price_list.pricing_service(), price_list.TARGET, r"api\.pricing\."),
        (
            "servicequotas",
            service_quotas.service_quotas(
                training=lambda: training.training_quota, warm_pools=lambda: training.warm_pool_quota
            ),
            service_quotas.TARGET,
            r"servicequotas\.",
        ),
    ):
        ministack_seams.register_service(
            name,
            handler=service.handle_request,
            target_prefixes=[f"{target}."],
            host_patterns=[] if host is None else [host],
        )

    session = LocalSession(endpoint_url=record.endpoint_url, region=options.region, access_key=registry.own)
    iam = session.client("iam", config=FROM_INSIDE)
    surroundings = Surroundings(
        iam=iam,
        cloudwatch=session.client("cloudwatch", config=FROM_INSIDE),
        region=options.region,
        credentials=registry,
    )

    ec2 = ec2_service.Ec2Service(
        state_dir=directory.ec2,
        endpoint_port=record.port,
        options=options,
        surroundings=surroundings,
        publish_event=lambda detail, detail_type, resources: publish_event(
            ec2_events.source_of(detail_type), detail, detail_type, resources
        ),
        ministack=ministack_seams.handler_of("ec2"),
    )
    ministack_seams.replace_handler("ec2", ec2.handle_request)
    ministack_seams.add_public_image(
        PYTORCH.image_id, parameter=PYTORCH.parameter, name=PYTORCH.name, root_device=PYTORCH.root_device
    )
    ministack_seams.register_service(
        "spotkeep-ec2-control",
        handler=ec2.control.handle_request,
        target_prefixes=[f"{ec2_service.CONTROL_TARGET}."],
        host_patterns=[],
    )

    def service_may(call: ServiceCall) -> bool:
        return is_allowed(call, judge=judge, account=account)

    fis = FisService(state_dir=directory.fis, cloud=ec2.cloud, instances=ec2.instances, is_allowed=service_may)
    ministack_seams.register_service(
        "fis", handler=fis.api.handle_request, target_prefixes=[], host_patterns=[r"fis\."]
    )

    uses, withheld = Uses(), Withheld()
    ministack_seams.register_service(
        "spotkeep-iam-control",
        handler=permissions_control(uses, withheld).handle_request,
        target_prefixes=[f"{IAM_CONTROL_TARGET}."],
        host_patterns=[],
    )

    ministack_seams.register_service(
        "spotkeep-functions-control",
        handler=functions_control(ministack_seams.end_invocations).handle_request,
        target_prefixes=[f"{FUNCTIONS_CONTROL_TARGET}."],
        host_patterns=[],
    )

    ministack_seams.name_callers_of_function_urls(registry.find)

    sessions = SessionManager(
        ministack_seams.handler_of("ssm"),
        cloud=ec2.cloud,
        job=training.job,
        may_connect=lambda role, instance_arn: agent_may_connect(role, instance_arn, judge=judge, account=account),
    )
    ministack_seams.replace_handler("ssm", sessions.handle_request)

    stack_roles = StackRoles(ministack_seams.handler_of("cloudformation"), is_allowed=service_may)
    ministack_seams.replace_handler("cloudformation", stack_roles.handle_request)

    def add_resource_types() -> None:
        ministack_seams.judge_custom_resources(
            lambda function_arn, stack_id: stack_roles.may_invoke(function_arn, stack_id=stack_id)
        )
        ministack_seams.resolve_function_urls_to(record.endpoint_url)
        template = ExperimentTemplateResource(fis)
        ministack_seams.add_resource_type(
            "AWS::FIS::ExperimentTemplate", create=template.create, update=template.update, delete=template.delete
        )
        for name, resource_type in RESOURCE_TYPES.items():
            resource = BatchResource(batch, resource_type)
            ministack_seams.add_resource_type(
                name, create=resource.create, update=resource.update, delete=resource.delete
            )

    ministack_seams.on_first_request("cloudformation", add_resource_types)

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)

    def when_started() -> None:
        directory.unsaved.touch()
        # In a thread: what it finds unfinished it takes up again by calling S3, that is: this very server.
        loop.run_in_executor(None, start_services).add_done_callback(when_services_started)

    def start_services() -> None:
        make_people(iam)
        make_service_linked_roles(iam)
        training.start()
        batch.start()
        ec2.start()

    def when_services_started(started: asyncio.Future[None]) -> None:
        if error := started.exception():
            _log.error("a service did not start", exc_info=error)
            stop.set()
        else:
            application.ready = True
            announce_ready()

    async def shutdown_trigger() -> None:
        await stop.wait()
        # While requests are still answered: what the jobs upload as they end belongs to what ministack saves, which it
        # does when it shuts down.
        await asyncio.to_thread(fis.stop)
        await asyncio.to_thread(ec2.stop)
        await asyncio.to_thread(batch.stop)
        await asyncio.to_thread(training.stop)

    config = Config()
    config.bind = [f"fd://{listening.detach()}"]
    config.loglevel = options.log_level
    config.keep_alive_timeout = 75
    config.graceful_timeout = _SHUTDOWN_GRACE_SECONDS
    application = _Application(inner=ministack_seams.asgi_application(), nonce=record.nonce, on_started=when_started)
    account = LocalAccount(
        region=options.region,
        account_id=options.account_id,
        cloud=ec2.cloud,
        job_tags=training.tags_of,
        experiment_tags=fis.tags_of,
        batch_tags=batch.account.tags_of,
    )
    judge = Judge(
        account=account,
        reference=Reference(npm_package(PACKAGE) / "data"),
        uses=uses,
        withheld=withheld,
    )
    ministack_seams.judge_service_calls(service_may)
    calls = UnsureCalls(application, rates=CallRates(CALLS_A_SECOND if options.call_rates else {}))
    ministack_seams.register_service(
        "spotkeep-calls-control",
        handler=calls.control().handle_request,
        target_prefixes=[f"{CALLS_CONTROL_TARGET}."],
        host_patterns=[],
    )
    judged = Enforcement(application, judge=judge, find=registry.find, calls=calls)
    admission = Admission(judged, port=record.port, find=registry.find)
    await serve(admission, config, shutdown_trigger=shutdown_trigger)


def _hold(lock: Path) -> int:
    """Take the lock that lets one server live on a state directory; the system frees it when this process ends."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LocalAwsError(
            f"another local AWS runs on {lock.parent}; stop it with `spotkeep local down`, or use another directory"
        ) from error
    return descriptor


def _leave_the_launcher() -> None:
    """Go on in a child whose parent ends now, so that the server outlives its starter."""
    if os.fork() > 0:
        os._exit(0)


def _give_functions_a_bare_python(launcher: Path) -> None:
    """Let functions import what they bring with them, and nothing of the environment this server runs in.

    ministack runs functions on `sys.executable`. In a virtual environment that would offer them all of its
    packages and the checkout's own sources, and a function whose archive lacks something would still work here.
    Where the server is root, functions have none of root's capabilities.
    """
    interpreter = [getattr(sys, "_base_executable", sys.executable), "-S"]
    if os.geteuid() == 0 and (setpriv := shutil.which("setpriv")) is not None:
        interpreter = [setpriv, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", *interpreter]
    launcher.write_text(f'#!/bin/sh\nexec {shlex.join(interpreter)} "$@"\n')
    launcher.chmod(0o755)
    sys.executable = str(launcher)


def _begin_afresh(directory: StateDirectory) -> None:
    """Begin without temporary files, and without a state that was never saved.

    They are thousands of files, and are removed beside the start, not in it.
    """
    if directory.discard_unsaved():
        _log.warning("the server before this one was killed and had saved nothing: what it kept is gone")
    directory.discard_temporary()
    directory.create()
    remove = functools.partial(shutil.rmtree, directory.discarded, ignore_errors=True)
    threading.Thread(target=remove, name="discarded-files", daemon=True).start()


def _say_ready(descriptor: int) -> None:
    os.write(descriptor, b"1")
    os.close(descriptor)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon until SIGTERM.

    Returns:
        The exit code: 0 after a shutdown in good order, 1 with a line on stderr otherwise.
    """
    parser = argparse.ArgumentParser(prog="python -m spotkeep_local.daemon.server", description=main.__doc__)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--listen-fd", type=int, required=True, help="a socket that listens on 127.0.0.1")
    parser.add_argument("--ready-fd", type=int, required=True, help="a pipe that gets a byte when the server is up")
    parser.add_argument("--nonce", required=True, help="what the health page answers with")
    parser.add_argument("--options", type=ServerOptions.from_json, default=ServerOptions(), metavar="JSON")
    given = parser.parse_args(arguments)
    options: ServerOptions = given.options

    directory = StateDirectory(given.state_dir)
    listening = socket.socket(fileno=given.listen_fd)
    for descriptor in (given.listen_fd, given.ready_fd):
        os.set_inheritable(descriptor, False)
    _leave_the_launcher()
    try:
        directory.create()
        lock = _hold(directory.server_lock)
        _begin_afresh(directory)
        record = ServerRecord(
            pid=os.getpid(),
            process_started=process_identity.start_time(os.getpid()) or "",
            nonce=given.nonce,
            port=listening.getsockname()[1],
            region=options.region,
            account_id=options.account_id,
        )
        people = make_person_keys(directory.credentials, account_id=options.account_id)
        environment = server_environment(directory, port=record.port, options=options, inherited=os.environ)
        record.write(directory.record)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory.root)
        forbid_leaving_the_machine()
        _give_functions_a_bare_python(directory.bare_python)
        asyncio.run(
            _serve(
                listening,
                directory=directory,
                options=options,
                record=record,
                people=people,
                announce_ready=lambda: _say_ready(given.ready_fd),
            )
        )
        shutil.rmtree(directory.temporary, ignore_errors=True)
        directory.unsaved.unlink()
        directory.record.unlink(missing_ok=True)
        os.close(lock)
    except LocalAwsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
