"""The division of a notice's time. Saving comes first, S3 next, and the release of the volume in any case. Pure.

The volume survives the instance, so a checkpoint on it is safe once it is unmounted. S3 is the second tier and gets the
time that the volume does not need. An unmount that comes too late is a crash of the file system, which costs the next
instance a check, and no data.
"""

from __future__ import annotations

from dataclasses import dataclass

_SPARE_SECONDS = 3.0
_LET_GO_SECONDS = 12.0
_SAVE_SHARE = 0.7


@dataclass(frozen=True)
class NoticeBox:
    """The end of each part, in seconds from the moment the agent saw the notice.

    Attributes:
        save: End of the training's save and exit, after which it is killed.
        copy: End of the copy of the newest checkpoint to S3.
        let_go: End of unmounting, detaching and giving the lease back.
    """

    save: float
    copy: float
    let_go: float


def divide(seconds: float) -> NoticeBox:
    """Divide the time that a notice leaves.

    Args:
        seconds: Seconds until the machine is gone.
    """
    let_go = max(seconds - min(_SPARE_SECONDS, seconds * 0.05), 0.0)
    copy = max(let_go - min(_LET_GO_SECONDS, let_go * 0.2), 0.0)
    return NoticeBox(save=copy * _SAVE_SHARE, copy=copy, let_go=let_go)
