"""Every state, reason and kind in the run table, grouped by the function that sets it. Pure.

One file, so that a reader sees the whole vocabulary at once. `docs/states.md` draws the diagrams.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class RunState(StrEnum):
    """The state of a run, as its user sees it.

    Also the state of an attempt, which is the run's state until the attempt ends.
    """

    # Set by the launcher.
    LAUNCHING = "LAUNCHING"
    """Recorded. SageMaker has not confirmed the training job yet."""

    # Set by the controller, from what SageMaker says of the current attempt's job.
    WAITING = "WAITING"
    """The job exists and waits for capacity it never had."""
    TRAINING = "TRAINING"
    """The job has instances. It downloads, trains or uploads."""
    INTERRUPTED = "INTERRUPTED"
    """The job lost its capacity and waits for new."""

    # Set by the launcher when the user asks, by the controller when SageMaker says so.
    STOPPING = "STOPPING"
    """The job is asked to end. It may still be saving."""

    # Set by the controller when the job ended; by the launcher when there never was one.
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"

    @property
    def ended(self) -> bool:
        """True when nothing runs, waits or bills for the run any more."""
        return self in _ENDED_RUN_STATES


_ENDED_RUN_STATES: Final = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.STOPPED})


class SweepState(StrEnum):
    """The state of a sweep. Set by the launcher, which advances it."""

    RUNNING = "RUNNING"
    """Trials run, or there is room for the next ones."""
    STOPPING = "STOPPING"
    """No trial begins any more, and those that run are asked to end."""
    PAUSED = "PAUSED"
    """Its user paused it. No trial runs, and it can be resumed."""
    COMPLETED = "COMPLETED"
    """The search is over. No trial can follow."""
    FAILED = "FAILED"
    """Its trials failed, one after the other."""
    STOPPED = "STOPPED"
    """Its user stopped it, or its max_cost is spent."""

    @property
    def ended(self) -> bool:
        """True when no trial of it runs, or begins by itself."""
        return self not in _LIVE_SWEEP_STATES


_LIVE_SWEEP_STATES: Final = frozenset({SweepState.RUNNING, SweepState.STOPPING})


class TrialState(StrEnum):
    """The state of a trial of a sweep. Set by the launcher, from the trial's run."""

    RUNNING = "RUNNING"
    """The sweep chose it. Its run is at work, or is about to be opened."""
    PAUSED = "PAUSED"
    """Its run has reached the step at which the search pauses it. It may go on later."""
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    """A user or the sweep stopped it before it was done."""


class EndReason(StrEnum):
    """The reason why an attempt, and with it its run, ended."""

    # Set by the training script, through its exit code.
    COMPLETED = "COMPLETED"
    SCRIPT_FAILED = "SCRIPT_FAILED"
    """The command ended with an error, which is SageMaker's AlgorithmError."""
    PAUSED = "PAUSED"
    """It left after its `pause_at_step`, with a checkpoint. A resume goes on from there."""

    # Set by a person.
    STOPPED_BY_USER = "STOPPED_BY_USER"
    """`spotkeep stop`, the console, or any StopTrainingJob call."""

    # Set by a limit the request names.
    MAX_RUNTIME_EXCEEDED = "MAX_RUNTIME_EXCEEDED"
    MAX_WAIT_EXCEEDED = "MAX_WAIT_EXCEEDED"
    """SageMaker's limit for waiting and running, or the longest wait of the attempt's fallback."""

    MAX_COST = "MAX_COST"
    """The run has cost its max_cost. The controller stopped its job like a user would, and no other job follows."""

    # Set by the controller, by the run's policy.
    DEADLINE = "DEADLINE"
    """The deadline asked for on-demand capacity.

    The controller stopped the job on spot so that one on demand can follow.
    """

    # Set by SageMaker.
    CAPACITY = "CAPACITY"
    """CapacityError: no instances of the type, and SageMaker gave up."""
    INPUT_ERROR = "INPUT_ERROR"
    """ClientError. Data, source, image, command or permissions did not work, and would not the next time."""
    PLATFORM_ERROR = "PLATFORM_ERROR"
    """InternalServerError, or a failure that SageMaker does not put into a class."""
    JOB_VANISHED = "JOB_VANISHED"
    """The job does not exist any more. A person deleted it before its end was seen."""

    # Set by AWS Batch, by a setting of its queue.
    NEVER_FITS = "NEVER_FITS"
    """It asked for more instances than its queue or share may ever have, and stood at the front for too long."""

    # Set by the launcher.
    QUOTA = "QUOTA"
    """SageMaker refused CreateTrainingJob for the account's quota (ResourceLimitExceeded).

    The quota is below the need of the job, or had no room for as long as the run may wait."""
    LAUNCH_REFUSED = "LAUNCH_REFUSED"
    """SageMaker refused CreateTrainingJob for good (a permission, an image, a value)."""


class TimelineKind(StrEnum):
    """The subject of an entry in a run's timeline. Entries of the same time are in the order of this list."""

    # Set by the launcher.
    RUN_OPENED = "run-opened"
    ATTEMPT_BEGUN = "attempt-begun"
    QUOTA_WAIT = "quota-wait"
    """SageMaker has no room in the account's quota for the job. The run waits for it."""
    JOB_CREATED = "job-created"
    STOP_REQUESTED = "stop-requested"
    REQUEST_CHANGED = "request-changed"
    """The run was resumed with another source, command or other fields."""

    # Set by the controller, by the ladder's rules.
    FALLBACK_LEFT = "fallback-left"
    """The job waited longer than its fallback may. It is stopped so that the next can be tried."""
    ATTEMPT_ENDED = "attempt-ended"
    """A job ended and another one follows it."""

    # Set by the controller, by the run's policy.
    STEERED = "steered"
    """The choice between spot, waiting for spot and on demand has changed, with the reason."""
    MAX_COST = "max-cost"
    """The run's max_cost is nearly spent, or spent."""

    # Set by the controller from SageMaker's transitions.
    INTERRUPTED = "interrupted"
    STARTING = "starting"
    DOWNLOADING = "downloading"
    TRAINING = "training"
    RESUMED = "resumed"
    UPLOADING = "uploading"
    STOPPING = "stopping"

    # Set by the controller from what the job wrote into its log.
    STEP_RESUMED = "step-resumed"
    """The script took up a checkpoint (or found none), with the step it resumed from."""
    END_DOUBTFUL = "end-doubtful"
    """The script counts as done because it ended with 0 on one notice after the other. It did not say that it is."""
    LOG_REFUSED = "log-refused"
    """Something in the job's log was not taken, or not all of it was read."""
    STUCK = "stuck"
    """The training stood still for longer than the job file's `stuck` allows."""
    QUEUE_BLOCKED = "queue-blocked"
    """AWS Batch says that the job can never have its turn."""

    # Set by the function that ended the run.
    ENDED = "ended"

    # Set by the function that reconciled the warm pool of an ended job.
    POOL_KEPT = "pool-kept"
    POOL_NOT_KEPT = "pool-not-kept"
    POOL_EXTENDED = "pool-extended"
    """Its keep-alive period became longer or shorter."""
    POOL_STOP_REQUESTED = "pool-stop-requested"
    POOL_REUSED = "pool-reused"
    POOL_ENDED = "pool-ended"


class NotificationKind(StrEnum):
    """The subject of a notification. Also the words of a request's `notify` list."""

    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    RESUMED = "resumed"
    NEXT_FALLBACK = "next-fallback"
    """No capacity for the run's fallback. It tries the next one."""
    WAITING_TOO_LONG = "waiting-too-long"
    """It has waited for capacity longer than the job file, or else the deployment, calls long. It waits on."""
    ON_DEMAND = "on-demand"
    """A run that asked for spot capacity trains on demand now, at the full price."""
    CHECKPOINT_STALE = "checkpoint-stale"
    """It trains, and has not saved for longer than it should."""
    STUCK = "stuck"
    """It has shown no step and no line of output for as long as the job file's `stuck` allows. Once for each
    silence."""
    MAX_COST_NEAR = "max-cost-near"
    """Most of the run's max_cost is spent. It goes on until the rest is. Once for each run."""
    LOG_REFUSED = "log-refused"
    """Something in its job's log was not taken, or not all of it was read. Once for each run."""
    QUEUE_BLOCKED = "queue-blocked"
    """It stands at the front of its queue, can never have its turn, and holds up the jobs behind it. Once for each
    attempt."""
    POOL_EXPIRING = "pool-expiring"
    """The warm pool of an ended job will be gone soon."""
    POOL_EXPIRED = "pool-expired"
    """The warm pool of an ended job is gone, or there never was one."""


class NotificationState(StrEnum):
    """The state of a notification on its way out. Set by the controller, which delivers the outbox."""

    PENDING = "pending"
    """Written in the transaction that moved the run. It is not sent yet."""
    SENDING = "sending"
    """One deliverer claimed it. The claim expires after a while, and the next deliverer claims it again."""
    SENT = "sent"
    DEAD = "dead"
    """Refused so often that the controller gives up, until a person asks for it (`spotkeep notifications replay`).

    A message in the dead-letter queue says so."""


class PoolState(StrEnum):
    """The state of the warm pool of an ended job. Set by the controller or the launcher, which reconcile it."""

    AVAILABLE = "AVAILABLE"
    """Its instances wait for the next job, and are billed."""
    REUSED = "REUSED"
    """Another job has taken its instances over."""
    ENDED = "ENDED"
    NOT_KEPT = "NOT_KEPT"
    """The job asked for a pool and SageMaker kept none, because the account has no quota for it."""


class PoolEndReason(StrEnum):
    """The reason why a warm pool is no longer there."""

    EXPIRED = "EXPIRED"
    """Its keep-alive period is over."""
    STOPPED_BY_USER = "STOPPED_BY_USER"
    """`spotkeep pool stop`."""
    STOPPED_AT_LIMIT = "STOPPED_AT_LIMIT"
    """It was idle for longer than the deployment's settings allow."""
    ENDED_EARLY = "ENDED_EARLY"
    """SageMaker ended it before its time, for a patch or because a person asked SageMaker itself."""
    JOB_GONE = "JOB_GONE"
    """A person deleted its training job, which is all that is known of a pool."""
