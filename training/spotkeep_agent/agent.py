"""One instance from boot to end, with its run, lease and volume, the inputs of the training, the training and the end.

After a fault in any phase, durable data stays durable. The agent unmounts and detaches the volume if it can. The run's
record shows the last phase. docs/volume-protocol.md has the details.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

from spotkeep.errors import CheckpointError, SourceError
from spotkeep.notices.instance_metadata import InstanceMetadataService
from spotkeep.notices.notice import (
    EXIT_INTERRUPTED,
    Notice,
    left_file,
    notice_bytes,
    notice_seconds,
    save_advice_file,
)
from spotkeep_fleet.instance_job import InstanceJob
from spotkeep_fleet.record import (
    FAILED,
    FINISHED,
    INPUT_ERROR,
    LONGEST_FAILURE,
    MOST_NOTICED,
    TRAINING,
    Departure,
)
from spotkeep_fleet.training_spec import NOT_STARTED

from .as_user.files import UserFiles
from .as_user.process import Perform, UserProcess, perform_here
from .aws.calls import AwsCalls
from .aws.connections import Connections
from .aws.credentials import CurrentCredentials
from .aws.fleet_records import FleetRecords
from .aws.run_credentials import RENEW_SECONDS, RunCredentials, wait_for
from .aws.volumes import RunVolumes
from .containers.container import Container, container_environment
from .containers.docker import Docker
from .errors import (
    DataRefusedError,
    GpusUnusableError,
    ImageUnavailableError,
    InputError,
    LeaseLostError,
    MetadataOpenError,
    OutputNotSentError,
    SecretRefusedError,
    SecretUnavailableError,
    SourceUnavailableError,
    VolumeError,
)
from .gpus import count_nvidia_gpus, require_driver
from .identity import InstanceIdentity, read_identity
from .nodes.connections import NodeNames
from .nodes.controller import NodesController
from .nodes.decisions import DONE
from .nodes.decisions import FAILED as NODE_FAILED
from .nodes.lease import NodesLease
from .nodes.outcome import REFUSED, join_world, outcome_of_world
from .nodes.world import Ending, NodesTimes
from .notices import NoticeBoard, divide
from .reports import Reports
from .settings import AgentSettings
from .training.checkpoint_copies import CheckpointCopies
from .training.metadata_door import close_metadata
from .training.node_copies import NodeCopies
from .training.process import (
    RUNNER_WORDS,
    TrainingProcess,
    runner_command,
    search_path,
    training_environment,
)
from .training.script_files import CHECKPOINTS, SCAN_SECONDS
from .training.sending import send_output
from .training.shared_copies import SharedCopies
from .training.supplies import (
    Supplies,
    clear_failure,
    is_for_good,
    put_spec,
    read_failure,
    read_secret_values,
    with_hint,
)
from .training.user import current_user, find_user
from .volume.controller import VolumeController
from .volume.executor import Executor
from .volume.file_systems import FileSystems
from .volume.machine import KEPT_NAME, BlockDeviceMachine, DeviceLinks, DirectoryMachine, VolumeMachine, divide_volume
from .volume.protocol import Leaving

EXIT_LEFT, EXIT_FAILED = 0, 3
HEARTBEAT_SECONDS = 20.0
"""Seconds between two renewals of an instance's lease, which take one call each."""
_ASKING_ATTEMPTS = 2
"""Attempts of one call for credentials. After these the code that needs the credentials decides on another try."""
_POLL_SECONDS = 0.5
_RESTART_PAUSE_SECONDS = 5.0
_LAST_COPY_SECONDS = 900.0
_UNCONFIRMED_SECONDS = 3600.0
_FREE_SECONDS = 3600.0
_END_SECONDS = 5.0
_LOST_SECONDS = 1.0
"""Seconds for the runner of a world that has lost a node, which may end the ranks by itself. They save no more."""
_NODES_POLL_SECONDS = 0.1
"""Seconds until a node takes in what the others have said, or that one is gone."""
_NOTICE_NAME = "notice.json"
_LATE_SECONDS = 60.0  # EC2 names an approximate time; who is still there then goes by itself, for nothing may bill on

_logger = logging.getLogger("spotkeep.agent")


class Agent:
    """The agent of one instance.

    Args:
        settings: The settings that the environment holds.
        environment: The environment itself, with endpoints, credentials and PATH.
        metadata: The metadata of this instance.
        say: The function that prints a line.
    """

    def __init__(
        self,
        *,
        settings: AgentSettings,
        environment: Mapping[str, str],
        metadata: InstanceMetadataService,
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._metadata = metadata
        self._board = NoticeBoard(metadata, time_scale=settings.time_scale)
        self._reports = Reports(say=say, counted_calls=self._counted_calls)
        self._world_ended = False
        self._copies: CheckpointCopies | None = None
        self._nodes: NodesController | None = None
        self._container: Container | None = None
        self._secret_values: Mapping[str, str] = {}
        self._gpus = count_nvidia_gpus(settings.pci_devices)
        self._file_systems = FileSystems(settings.file_systems, environment=environment, cancelled=self._board.seen)
        self._perform: Perform = perform_here

    def run(self) -> int:
        """Run the instance to its end. Return 0 when the agent left, 3 when it left and something is wrong."""
        self._settings.state.mkdir(parents=True, exist_ok=True)
        with (self._settings.state / "agent.lock").open("w") as lock:
            # One agent a machine: a second one would hold the same lease. The kernel gives it back when we die.
            fcntl.flock(lock, fcntl.LOCK_EX)
            return self._run()

    def _run(self) -> int:
        self._board.start()
        identity = read_identity(self._metadata)
        region = self._settings.region or identity.region
        # With the instance's own credentials nothing is asked for but those of its run.
        self._asking = AwsCalls(region=region, environment=self._environment, attempts=_ASKING_ATTEMPTS)
        run_credentials = RunCredentials(self._asking, function=self._settings.credentials_function)
        credentials = CurrentCredentials(run_credentials.fetch, renew_seconds=RENEW_SECONDS)
        wait_for(credentials, sleep=self._pause)
        self._calls = AwsCalls(region=region, environment=self._environment, credentials=credentials)
        fetching, self._copy_connections = Connections(), Connections()
        # What is fetched for a training is not waited for once a notice has come.
        self._board.when_seen(fetching.break_off)
        self._fetching = self._calls_over(fetching, sleep=self._pause)
        self._copying = self._calls_over(self._copy_connections, sleep=time.sleep)
        self._identity = identity
        self._user = current_user() if self._settings.directories else find_user(self._settings.user)
        if not self._user.is_us:
            self._perform = UserProcess(uid=self._user.uid, gid=self._user.gid).perform
        self._kept = self._settings.mount_point / KEPT_NAME
        self._files = UserFiles(self._settings.mount_point, perform=self._perform)
        self._records = FleetRecords(self._calls, table=self._settings.run_table, run=identity.run)
        self._volumes = RunVolumes(
            self._calls, deployment=identity.deployment, run=identity.run, instance=identity.instance
        )
        volume = self._new_controller(identity)
        self._controller: VolumeController | NodesController = volume
        self._reports.speak_for(volume)
        self._reports.end_phase("identity")
        leaving = volume.find_job(should_leave=self._board.why)
        if leaving is None and volume.job.nodes is not None:
            self._controller = self._nodes = self._new_nodes(identity, volume.job)
            self._reports.speak_for(self._nodes)
        if leaving is None:
            leaving = self._controller.bring(should_leave=self._board.why)
        self._reports.end_phase("volume")
        if leaving is None:
            leaving = self._work()
        else:
            self._open_outside()
        failed = self._leave(leaving).failed
        self._linger()
        self._reports.close()
        return EXIT_FAILED if failed else EXIT_LEFT

    # What the agent stands on

    def _calls_over(self, connections: Connections, *, sleep: Callable[[float], None]) -> AwsCalls:
        return AwsCalls(
            region=self._calls.region,
            environment=self._environment,
            transport=connections,
            sleep=sleep,
            credentials=self._calls.credentials,
        )

    def _new_controller(self, identity: InstanceIdentity) -> VolumeController:
        settings = self._settings
        devices = DeviceLinks(settings.devices)
        machine: VolumeMachine
        if settings.directories:
            machine = DirectoryMachine(mount_point=settings.mount_point, devices=devices)
        else:
            machine = BlockDeviceMachine(mount_point=settings.mount_point, devices=devices)
        self._machine = machine
        executor = Executor(
            records=self._records,
            volumes=self._volumes,
            machine=machine,
            has_second_tier=self._has_second_tier,
        )
        return VolumeController(
            instance=identity.instance,
            zone=identity.zone,
            executor=executor,
            tell=self._reports.add_action,
            pause=self._pause,
        )

    def _new_nodes(self, identity: InstanceIdentity, job: InstanceJob) -> NodesController:
        times = NodesTimes.scaled(self._settings.time_scale, first=self._settings.first_world_seconds)
        names = NodeNames(
            run=identity.run,
            attempt=job.attempt,
            launch=job.launch or "",
            instance=identity.instance,
            address=identity.address,
        )

        def new_copies(ask: Callable[[int, str], None], on_sent: Callable[[int], None]) -> NodeCopies:
            assert job.checkpoint_uri is not None  # noqa: S101 - a job with nodes has one
            kind, files = NodeCopies, self._files
            if job.checkpoint_channel is not None:
                kind, files = SharedCopies, UserFiles(self._shared_folder(job), perform=self._perform)
            copies = kind(job.checkpoint_uri, files, ask=ask, on_sent=on_sent, **self._copies_settings())
            self._copies = copies
            return copies

        return NodesController(
            names,
            instance_type=identity.instance_type,
            job=job,
            lease=NodesLease(names, records=self._records, ec2=self._volumes, lease_seconds=times.lease),
            new_copies=new_copies,
            files=self._files,
            tell=self._reports.add_event,
            pause=self._pause,
            times=times,
        )

    def _pause(self, seconds: float) -> None:
        self._board.seen.wait(seconds)

    def _open_outside(self, log_name: str = "algo-1") -> None:
        """Connect log and events, once the job says where they are.

        Args:
            log_name: The name of this instance in the logs of the run.
        """
        job = self._controller.found_job
        if job is not None:
            self._reports.open(job, self._identity, self._calls, log_name=log_name)

    def _has_second_tier(self) -> bool:
        copies = self._new_copies(self._controller.job)
        return copies is not None and copies.has_any()

    def _new_copies(self, job: InstanceJob) -> CheckpointCopies | None:
        if self._copies is None and job.checkpoint_uri is not None:
            self._copies = CheckpointCopies(job.checkpoint_uri, self._files, **self._copies_settings())
        return self._copies

    def _copies_settings(self) -> dict[str, Any]:
        return {
            "kept": self._kept,
            "calls": self._copying,
            "fetching": self._fetching,
            "break_off": self._copy_connections.break_off,
            "cancelled": self._board.seen,
            "on_uploaded": self._reports.add_uploaded,
            "scan_seconds": SCAN_SECONDS / self._settings.time_scale,
        }

    # The work

    def _new_notices(self) -> UserFiles:
        """Make the folder in which the agent and the training leave each other notices."""
        folder = self._settings.state / "job"
        folder.mkdir(exist_ok=True)
        if not self._user.is_us:
            os.chown(folder, self._user.uid, self._user.gid, follow_symlinks=False)
        return UserFiles(folder, perform=self._perform)

    def _work(self) -> Leaving:
        """Train to the end, or until something ends it. The volume is mounted and the lease ours."""
        self._open_outside("algo-1" if self._nodes is None else f"algo-{self._identity.instance}")
        job = self._controller.job
        self._board.follow_rebalance(job.rebalance)
        try:
            # First, because what is wrong is known at once, and the data may take an hour.
            require_driver(self._gpus, instance_type=self._identity.instance_type, environment=self._environment)
            self._bring_image(job)
            divide_volume(self._settings.mount_point, uid=self._user.uid, gid=self._user.gid)
            self._file_systems.mount(job.file_systems)
            self._file_systems.hide(job.channels, files=self._files)
            restored = self._bring_supplies(job)
            self._file_systems.show(job.file_systems, files=self._files)
            self._share_checkpoints(job)
        except (SourceError, InputError) as error:  # Another instance would find the same.
            return self._conclude(INPUT_ERROR, failure=str(error))
        except (
            SourceUnavailableError,
            GpusUnusableError,
            ImageUnavailableError,
            CheckpointError,
            VolumeError,
            OSError,
        ) as error:
            why = self._board.why()
            if why is not None:
                return Leaving(why)
            what = f"{self._disk} cannot be written: " if isinstance(error, OSError) else ""
            if is_for_good(error) and not getattr(error, "missing", False):
                return self._conclude(INPUT_ERROR, failure=f"{what}{with_hint(error)}")
            return Leaving(f"{what}{error}", failed=True)
        self._reports.end_phase("supplies")
        try:
            self._close_metadata()
        except MetadataOpenError as error:
            return Leaving(str(error), failed=True)
        self._notices = self._new_notices()
        notice_file = self._notices.base / _NOTICE_NAME
        while True:
            if self._board.notice is not None:
                return Leaving(self._board.why() or "")
            if self._nodes is not None:
                try:
                    world = join_world(self._nodes, should_leave=self._board.why)
                except InputError as error:
                    return self._conclude(INPUT_ERROR, failure=str(error))
                if isinstance(world, Leaving):
                    return world
                restored = world.step
                self._open_outside(f"algo-{world.place + 1}")
                self._reports.end_phase("world")
            try:
                for stale in (notice_file, left_file(notice_file), save_advice_file(notice_file)):
                    self._notices.remove(stale.name)
                clear_failure(self._files)
            except OSError as error:
                return Leaving(f"what an earlier training left cannot be removed: {error}", failed=True)
            self._reports.has_stepped = self._world_ended = False
            try:
                self._secret_values = read_secret_values(self._fetching, job.training)
            except SecretRefusedError as error:
                return self._conclude(INPUT_ERROR, failure=str(error))
            except SecretUnavailableError as error:
                why = self._board.why()
                return Leaving(str(error), failed=True) if why is None else Leaving(why)
            try:
                put_spec(self._files, job.training)
            except OSError as error:
                return Leaving(f"{self._disk} cannot be written: {with_hint(error)}", failed=True)
            try:
                process = self._start(job)
            except OSError as error:
                return Leaving(f"the training cannot be started as {self._user.name}: {error}", failed=True)
            self._reports.end_phase("start")
            self._reports.begin_training(restored_step=restored)
            try:
                leaving = self._watch(process)
            finally:
                self._end_training(process)
            if leaving is not None:
                return leaving
            leaving = self._after_exit(process)
            if leaving is not None:
                return leaving

    def _bring_image(self, job: InstanceJob) -> None:
        if job.image is None:
            return
        container = self._container = Container(
            job.image,
            docker=Docker(
                environment=self._environment,
                configuration=self._settings.state / "docker",
                cancelled=self._board.seen,
            ),
            calls=self._fetching,
            user=self._user,
            state=self._settings.state,
            gpus=self._gpus > 0,
            adapters=self._settings.fabric_adapters,
        )
        self._reports.add_event("image-pulling", what=job.image)
        began = time.monotonic()
        digest = container.bring()
        self._reports.add_event(
            "image-pulled", what=job.image, seconds=round(time.monotonic() - began, 3), digest=digest
        )
        self._reports.end_phase("image")

    def _shared_folder(self, job: InstanceJob) -> Path:
        """Return the folder of the run in the file system that has its checkpoints."""
        assert job.checkpoint_channel is not None  # noqa: S101 - asked for only with one
        return self._file_systems.point(job.checkpoint_channel) / self._identity.run

    def _share_checkpoints(self, job: InstanceJob) -> None:
        """Make the folder of checkpoints lead to the one that all nodes of the run have.

        Raises:
            DataRefusedError: The user that trains may not write there.
            OSError: The disk, or the file system, cannot be written.
        """
        if job.checkpoint_channel is None:
            return
        folder = self._shared_folder(job)
        try:
            UserFiles(folder.parent, perform=self._perform).make_folder(f"{folder.name}/{CHECKPOINTS}")
        except PermissionError as error:
            raise DataRefusedError(
                f"checkpoints cannot be written to channel {job.checkpoint_channel}: {error}. Let the user "
                f"{self._user.name} (uid {self._user.uid}) write to its directory"
            ) from error
        self._files.remove(CHECKPOINTS)
        self._files.link(CHECKPOINTS, str(folder / CHECKPOINTS))

    def _start(self, job: InstanceJob) -> TrainingProcess:
        """Start the training in its container, or as a process of the AMI."""
        settings, user, container = self._settings, self._user, self._container
        base, notice_file = settings.mount_point, self._notices.base / _NOTICE_NAME
        if container is None:
            own = settings.state / "bin"
            path = search_path(self._environment.get("PATH", os.defpath), root=settings.root, own=own)
            inherited: Mapping[str, str] = {**self._environment, "PATH": path}
        else:
            inherited = container_environment(self._environment)
        environment: Mapping[str, str] = training_environment(
            inherited=inherited,
            run=self._identity.run,
            job=job,
            base=base,
            notice_file=notice_file,
            user=user,
            lease=self._controller.fence,
            secret_values=self._secret_values,
        )
        command = runner_command()
        if container is not None:
            command = container.command(
                RUNNER_WORDS,
                environment=environment,
                base=base,
                notices=notice_file.parent,
                file_systems={self._file_systems.point(name): each.writable for name, each in job.file_systems.items()},
            )
            # Docker's option --user names the user that trains; the docker command itself runs as the agent.
            environment, user = container.docker_environment, current_user()
        return TrainingProcess(
            command,
            environment=environment,
            directory=base,
            user=user,
            on_line=self._reports.add_line,
            on_event=self._on_event,
        )

    def _bring_supplies(self, job: InstanceJob) -> int | None:
        Supplies(self._fetching, files=self._files, kept=self._kept, cancelled=self._board.seen).bring(job)
        if self._nodes is not None:
            return None
        copies = self._new_copies(job)
        if copies is None:
            return None
        restored = copies.restore_newer(known_uploaded=self._controller.record.training.uploaded_step)
        copies.start()
        if restored is not None:
            self._reports.add_event("downloaded", step=restored)
        return restored

    def _watch(self, process: TrainingProcess) -> Leaving | None:
        """Wait for the end of a training. Return the reason to leave, or None when the process ended by itself."""
        beaten_at = confirmed_at = time.monotonic()
        advised = False
        while process.exit_code is None:
            if self._board.rebalance_recommended and not advised:
                advised = True
                self._advise_to_save()
            if self._board.notice is not None:
                return self._end_in_time(process, self._board.notice)
            ending = None if self._nodes is None else self._nodes.attend(has_stepped=self._reports.has_stepped)
            if ending is not None:
                self._end_with_world(process, ending)
                return None
            if time.monotonic() - beaten_at >= self._heartbeat_seconds():
                beaten_at = time.monotonic()
                try:
                    self._reports.record(state=TRAINING)
                    confirmed_at = time.monotonic()
                except LeaseLostError as lost:
                    if self._nodes is not None and not self._nodes.holds_lease:
                        continue  # This node ends the world, and looks for the new leader.
                    return self._end_in_time(process, self._own_notice(str(lost)))
                except ConnectionError as error:
                    # No instance takes the volume while it is attached here: training on is safe.
                    _logger.warning("the record cannot be reached: %s", error)
                    if time.monotonic() - confirmed_at > _UNCONFIRMED_SECONDS:
                        return self._end_in_time(process, self._own_notice("the record is out of reach"))
                try:
                    self._close_metadata()
                except MetadataOpenError as error:
                    return self._end_in_time(process, self._own_notice(str(error)))
                seen = self._controller.found_record
                if seen is not None and (seen.stop_requested or seen.ended):
                    return self._end_in_time(process, self._own_notice("the run is asked to stop"))
            if not self._controller.tend():
                self._board.seen.wait(_POLL_SECONDS if self._nodes is None else _NODES_POLL_SECONDS)
        return None

    def _advise_to_save(self) -> None:
        """Pass on EC2's rebalance recommendation. SPOTKEEP_REBALANCE decides the training's reaction to it."""
        try:
            self._notices.write(save_advice_file(Path(_NOTICE_NAME)).name, b"")
        except OSError as error:
            _logger.warning("a recommendation to save cannot be passed on: %s", error)

    def _close_metadata(self) -> None:
        """Keep the metadata service closed to the training, unless the job opens it.

        Where the agent shares user and network with others, it cannot be closed.

        Raises:
            MetadataOpenError: If it cannot be closed.
        """
        if self._settings.directories or self._controller.job.instance_metadata == "open":
            return
        if self._user.is_us:
            raise MetadataOpenError(
                f"the metadata service cannot be closed to {self._user.name}, who is the agent, too"
            )
        close_metadata(self._perform)

    def _end_training(self, process: TrainingProcess) -> None:
        """End every process of the training, even processes outside its session."""
        if self._container is not None:
            self._container.remove()
        process.kill()
        if self._user.is_us:
            if self._nodes is not None:
                # torchrun gives each rank a session of its own.
                self._nodes.end_processes()
        else:
            try:
                self._perform("end_processes", _END_SECONDS, seconds=2 * _END_SECONDS)
            except OSError as error:
                _logger.warning("processes of the training may be left: %s", error)

    def _heartbeat_seconds(self) -> float:
        # Until its first step a training has nothing to report, and a recovery's calls are counted, wherever it is.
        return HEARTBEAT_SECONDS / (self._settings.time_scale if self._reports.has_stepped else 1.0)

    def _own_notice(self, source: str) -> Notice:
        return Notice(source=source, deadline=time.time() + notice_seconds())

    def _end_in_time(self, process: TrainingProcess, notice: Notice) -> Leaving:
        """Have the training save and leave, copy its newest checkpoint, within the time that a notice leaves."""
        copy_ends = time.monotonic() + divide(notice.seconds_left).copy
        exit_code = self._ask_to_end(process, notice)
        self._reports.add_event("instance-leaving", reason=notice.source, exit_code=exit_code)
        if self._nodes is not None:
            left = self._after_world(
                self._nodes, process, lambda: copy_ends - time.monotonic(), is_ended=True, stays=False
            )
            return left or Leaving(self._board.why() or notice.source)
        if exit_code == 0:
            # It is done: the runner says 75 of a script that only left with 0.
            return self._after_exit(process) or Leaving(notice.source)
        self._finish(lambda: copy_ends - time.monotonic(), exit_code=exit_code, goes_on=True)
        return Leaving(self._board.why() or notice.source)

    def _ask_to_end(self, process: TrainingProcess, notice: Notice) -> int | None:
        """Have the training save and leave in the first part of a notice's time. Return its exit code."""
        box = divide(notice.seconds_left)
        self._reports.say(f"{notice.source}: {notice.seconds_left:.0f} s left, {box.save:.0f} s of them to save")
        said = notice_bytes(Notice(source=notice.source, deadline=time.time() + box.save))
        try:
            self._notices.write(_NOTICE_NAME, said)
        except OSError as error:
            _logger.warning("the notice file cannot be written, and SIGTERM must do: %s", error)
        process.ask_to_end()
        exit_code = process.wait(box.save)
        self._end_training(process)
        return exit_code

    def _end_with_world(self, process: TrainingProcess, ending: Ending) -> None:
        """End the training of this node, because its world ends."""
        self._reports.say(f"the world ends: {ending.why}")
        if ending.saves:
            self._ask_to_end(process, self._own_notice(ending.why))
        else:
            # A notice would have the ranks save, which wait for a rank that is gone.
            process.wait(_LOST_SECONDS)
            self._end_training(process)
        self._world_ended = True

    def _after_exit(self, process: TrainingProcess) -> Leaving | None:
        """Decide after the training's exit.

        Return the reason to leave, or None to start the script again.
        """
        if self._nodes is not None:
            stays = self._board.notice is None
            seconds_left = self._until(_LAST_COPY_SECONDS)
            return self._after_world(self._nodes, process, seconds_left, is_ended=self._world_ended, stays=stays)
        exit_code = process.exit_code or 0
        if exit_code == EXIT_INTERRUPTED and (self._board.notice is not None or self._board.confirm()):
            # The library asks the metadata service, too, and may hear of an interruption first.
            return Leaving(self._board.why() or "the training left after a notice that cannot be confirmed")
        if exit_code == 0:
            return self._after_done()
        return self._after_failure(exit_code, self._failure(process), never_entered=process.never_entered(self._job))

    def _after_world(
        self,
        nodes: NodesController,
        process: TrainingProcess,
        seconds_left: Callable[[], float],
        *,
        is_ended: bool,
        stays: bool,
    ) -> Leaving | None:
        """Decide after the exit of this node's training, with the ends on the other nodes.

        Return the reason to leave, or None to wait for the next world.
        """
        exit_code = process.exit_code or 0
        outcome = outcome_of_world(
            nodes,
            exit_code,
            is_ended=is_ended,
            failure=lambda: self._failure(process),
            never_entered=lambda: process.never_entered(self._job),
            seconds_left=seconds_left,
        )
        if outcome.kind == REFUSED:
            return self._conclude(INPUT_ERROR, exit_code=exit_code, failure=outcome.failure)
        if outcome.kind == DONE:
            return self._after_done()
        leaving = None
        if outcome.kind == NODE_FAILED:
            leaving = self._after_failure(outcome.exit_code, outcome.failure, never_entered=outcome.never_entered)
        if leaving is None:
            waits = nodes.copies.next_world_needs_s3 or not stays
            self._finish(seconds_left if waits else lambda: 0.0, exit_code=exit_code, goes_on=True)
            self._reports.record_progress()
        return leaving if self._board.notice is None else Leaving(self._board.why() or "")

    def _after_done(self) -> Leaving:
        """Send the model of a training that is done, and conclude."""
        self._finish_copies(exit_code=0)
        try:
            model = self._send(Supplies.send_model, what="the model")
            self._send(Supplies.send_output, what="the output")
        except OutputNotSentError as error:
            why = self._board.why()
            if why is not None:
                return Leaving(why)  # The next instance ends the training once more, and sends its files.
            return self._conclude(INPUT_ERROR, exit_code=0, failure=str(error))
        return self._conclude(FINISHED, exit_code=0, failure=None, output_uri=model)

    def _after_failure(self, exit_code: int, failure: str, *, never_entered: bool) -> Leaving | None:
        """Count a failure of the training. Return the reason to leave, or None to start the script again."""
        job = self._job
        if failure.startswith(NOT_STARTED) or never_entered:  # Another instance would find the same.
            return self._conclude(INPUT_ERROR, exit_code=exit_code, failure=failure)
        failures = self._controller.record.training.script_failures + 1
        self._reports.say(
            f"the training ended with exit code {exit_code}, failure {failures} of {job.max_script_retries + 1}"
        )
        if failures > job.max_script_retries:
            self._finish_copies(exit_code=exit_code)
            try:
                self._send(Supplies.send_output, what="the output")
            except OutputNotSentError as error:
                _logger.warning("%s", error)
            return self._conclude(FAILED, exit_code=exit_code, failure=failure, script_failures=failures)
        self._reports.send_event("script-failed", exit_code=exit_code, script_failures=failures)
        try:
            self._reports.record(exit_code=exit_code, failure=failure, script_failures=failures)
        except (LeaseLostError, ConnectionError) as error:
            return Leaving(str(error)) if self._nodes is None else None
        self._board.seen.wait(_RESTART_PAUSE_SECONDS)
        return None

    @property
    def _disk(self) -> str:
        return "the volume" if self._nodes is None else "the root disk"

    @property
    def _job(self) -> InstanceJob:
        return self._controller.job

    def _failure(self, process: TrainingProcess) -> str:
        return read_failure(self._files) or process.failure(self._job, secret_values=self._secret_values)

    def _finish(self, seconds_left: Callable[[], float], *, exit_code: int | None, goes_on: bool) -> bool:
        """Wait for the copies of checkpoints up to a limit. Return True when all have arrived."""
        if self._nodes is not None:
            return self._nodes.finish_copies(seconds_left, exit_code=exit_code, goes_on=goes_on)
        return self._copies is None or self._copies.finish(seconds_left, exit_code=exit_code, goes_on=goes_on)

    def _finish_copies(self, *, exit_code: int) -> None:
        if not self._finish(self._until(_LAST_COPY_SECONDS), exit_code=exit_code, goes_on=False):
            self._reports.miss_in_s3("a checkpoint, or a file beside them", "it has not arrived in time")

    def _until(self, seconds: float) -> Callable[[], float]:
        began = time.monotonic()

        def left() -> float:
            notice = self._board.notice
            box = seconds - (time.monotonic() - began)
            return box if notice is None else min(box, divide(notice.seconds_left).copy)

        return left

    def _send(self, send: Callable[[Supplies, str], str | None], *, what: str) -> str | None:
        """Send the training's files. Return their address, or None with nothing to send.

        Raises:
            OutputNotSentError: If they cannot be sent.
        """
        uri = self._job.output_uri
        if uri is None:
            return None
        supplies = Supplies(self._calls, files=self._files, kept=self._kept, cancelled=threading.Event())
        try:
            sent = send_output(
                lambda: send(supplies, uri),
                what=what,
                uri=uri,
                remains="It is on the volume" if self._nodes is None else "It goes with this instance",
                may_go_on=self._may_go_on_sending,
                pause=self._pause,
                time_scale=self._settings.time_scale,
            )
        except OutputNotSentError as error:
            self._reports.add_event("not-in-s3", what=what, problem=str(error.__cause__))
            raise
        if sent is not None:
            self._reports.add_event("output-sent", uri=sent)
        return sent

    def _may_go_on_sending(self) -> bool:
        """Renew the lease. Return True when this instance stays, and the run is still its own."""
        if self._board.notice is not None:
            return False
        try:
            self._reports.record(state=TRAINING)
        except LeaseLostError:
            return False
        except ConnectionError as error:
            _logger.warning("the record cannot be reached: %s", error)
            return True
        record = self._controller.record
        return not (record.stop_requested or record.ended)

    def _conclude(self, state: str, *, failure: str | None, **changes: Any) -> Leaving:
        changes["failure"] = None if failure is None else failure[:LONGEST_FAILURE]
        if self._nodes is not None and not self._nodes.leads(should_leave=self._board.why):
            self._nodes.refuse(changes["failure"] or "")
            return Leaving(self._board.why() or f"the training has {FAILED}")
        for attempt in range(10):
            try:
                self._reports.record(state=state, **changes)
                break
            except ConnectionError as error:
                _logger.warning("the end cannot be recorded yet: %s", error)
                time.sleep(min(2.0**attempt, 15.0))
            except LeaseLostError as lost:
                return Leaving(str(lost))
        # One event for both: the instance's message is its reason to give up.
        ended = FINISHED if state == FINISHED else FAILED
        self._reports.send_event(ended, **changes)
        return Leaving(f"the training has {ended}")

    # What the training and AWS's calls report

    def _on_event(self, event: Mapping[str, Any]) -> None:
        step = self._reports.take_in(event)
        # One of several trainings of the script has a folder of its own, which is copied as files of the script's are.
        if step is None or self._copies is None or event.get("training") is not None:
            return
        if event.get("event") == "resume":
            self._copies.keep(event.get("keep"))
        elif event.get("event") == "saved":
            self._copies.offer(step)

    def _counted_calls(self) -> dict[str, int]:
        calls = self._asking.counted + self._calls.counted + self._fetching.counted + self._copying.counted
        return dict(sorted(calls.items()))

    # The end

    def _leave(self, leaving: Leaving) -> Leaving:
        if self._copies is not None:
            self._copies.stop()
        notice = self._board.notice
        if notice is not None and not self._board.from_ec2:
            self._board.confirm()
        interrupted = self._board.from_ec2 and not self._over()
        if self._controller.holds_lease:
            training = self._controller.record.training
            noticed = (*training.noticed, Departure(self._identity.instance, time.time()))[-MOST_NOTICED:]
            changes = {"interruptions": training.interruptions + 1, "noticed": noticed} if interrupted else {}
            self._reports.record_progress(**changes)
        if self._nodes is not None and not self._board.from_ec2 and leaving.why == self._board.why():
            # The functions end each instance of a run that is over, and that may be faster than the leader's word.
            leaving = Leaving(self._nodes.why_over() or leaving.why)
        ends = time.monotonic() + (divide(notice.seconds_left).let_go if notice is not None else notice_seconds())

        def seconds_left() -> float:
            return ends - time.monotonic()

        if self._nodes is None:
            left = self._controller.leave(why=leaving.why, failed=leaving.failed, seconds_left=seconds_left)
            self._open_outside()
        else:
            left = self._nodes.leave(
                why=leaving.why, failed=leaving.failed, taken=interrupted, seconds_left=seconds_left
            )
        self._file_systems.unmount()
        if self._reports.is_open:
            self._reports.send_event(
                "left", why=left.why, failed=left.failed or leaving.failed, interrupted=interrupted
            )
            self._reports.flush()
        self._reports.say(f"left: {left.why}")
        return Leaving(left.why, left.failed or leaving.failed)

    def _over(self) -> bool:
        if self._nodes is not None and self._nodes.over is not None:
            return True
        record = self._controller.found_record
        return record is not None and (record.training.over or record.ended)

    def _linger(self) -> None:
        """Stay as long as it is better that EC2 or the functions end this instance.

        EC2 does not bill an instance that it interrupts in the first hour, but bills one that powers itself off. Later
        a wait gains nothing. The sooner this instance is gone, the sooner the fleet replaces it.

        When the training is done, the functions delete the fleet. A fleet would replace an instance that powers itself
        off.

        Source: "Billing for interrupted Spot Instances", EC2 user guide.
        """
        board, launched_at = self._board, self._identity.launched_at
        if board.taken_at is not None and launched_at is not None and board.taken_at - launched_at < _FREE_SECONDS:
            self._reports.say("EC2 takes this instance in its first hour, which is then free: waiting for it")
            late = _LATE_SECONDS / self._settings.time_scale
            board.signalled.wait(max(board.taken_at + late - time.time(), 0.0))
        elif self._over():
            board.seen.wait(self._settings.linger_seconds)
