"""The errors of an instance.

```
AgentError
├── InstanceSettingsError        the environment or the instance's tags lack a needed setting (all problems at once)
├── CredentialsUnavailableError  this instance gets no credentials of its run
├── AwsCallRefusedError          AWS refused a call, and will until something changes
├── AwsUnavailableError          AWS did not answer, or throttled for too long: a call may have taken effect
├── VolumeError                  a device or a file system is not as expected
├── InputError                   the run's input does not work, on this instance or on any other
│   ├── DataRefusedError         the source, the data, or the volume for them
│   ├── DriverMissingError       this instance has NVIDIA GPUs, and its AMI has no driver
│   ├── SecretRefusedError       AWS refuses the value of a secret, or it is none for a variable
│   └── ImageRefusedError        no instance of this deployment can run the container image
├── SourceUnavailableError       the source or the data could not be brought here now
├── SecretUnavailableError       the value of a secret cannot be read now
├── LeaseLostError               another instance has the run's lease by now, or the run has ended
├── NodePortError                the port at which the other nodes of the run connect cannot be opened
├── OutputNotSentError           the model, or other output, has not reached S3
├── GpusUnusableError            the driver has not all of this instance's GPUs
├── ImageUnavailableError        this instance cannot have the container image now
└── MetadataOpenError            the instance metadata service is not closed to the user that trains
```
"""

from __future__ import annotations

from collections.abc import Sequence


class AgentError(Exception):
    """The root of the agent's errors."""


class InstanceSettingsError(AgentError):
    """The environment or the instance's tags lack a needed setting.

    Attributes:
        problems: One sentence for each problem.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            "this instance does not know what to do:\n" + "\n".join(f"  - {problem}" for problem in problems)
        )


class CredentialsUnavailableError(AgentError):
    """This instance gets no credentials of its run, as the function that gives them refuses or is out of reach."""


class AwsCallRefusedError(AgentError):
    """AWS refused a call.

    Attributes:
        code: AWS's error code.
        message: AWS's message.
        status: The HTTP status.
    """

    def __init__(self, *, call: str, code: str, message: str, status: int) -> None:
        self.code = code
        self.message = message
        self.status = status
        super().__init__(f"{call} was refused: {code}: {message}")


class AwsUnavailableError(AgentError):
    """AWS did not answer, or throttled for too long."""


class VolumeError(AgentError):
    """A device or a file system is not as expected."""


class DamagedFilesystemError(VolumeError):
    """A file system needs more repair than is safe to do unasked."""


class BusyFilesystemError(VolumeError):
    """A file system cannot be unmounted or checked, as a process uses it."""


class InputError(AgentError):
    """The run's input does not work on any instance, and the run ends."""


class DataRefusedError(InputError):
    """The source or a channel's data cannot be had, or the volume has no room for them."""


class SecretRefusedError(InputError):
    """AWS refuses the value of a secret, or it is none for a variable. The message names no value."""


class SecretUnavailableError(AgentError):
    """The value of a secret cannot be read now. Another instance may do better."""


class SourceUnavailableError(AgentError):
    """The source, or a channel's data, could not be brought here now. Another instance may do better."""


class LeaseLostError(AgentError):
    """Another instance has the lease by now, or the run has ended. This one may change nothing of the run any more."""


class NodePortError(AgentError):
    """The port of the leader, where the other nodes connect, cannot be opened. Another instance may do better."""


class OutputNotSentError(AgentError):
    """The model, or other output, has not reached S3. It is on the volume alone."""


class DriverMissingError(InputError):
    """This instance has NVIDIA GPUs, but the deployment's AMI has no driver. No other instance has one either."""


class GpusUnusableError(AgentError):
    """The driver has not all of this instance's GPUs. Another instance may do better."""


class ImageRefusedError(InputError):
    """No instance of this deployment can run the container image, as the AMI lacks something or a registry refuses."""


class ImageUnavailableError(AgentError):
    """This instance cannot have the container image now. Docker or a registry failed, or the pull was cancelled."""


class MetadataOpenError(AgentError):
    """The instance metadata service is not closed to the user that trains, or it is not known."""
