"""How the time of a notice is divided: save first, then let go of the volume in any case, S3 in between. Pure.

The volume survives the instance, so a checkpoint on it is safe once it is unmounted. S3 is the second tier and gets
what time the volume does not need. An unmount that comes too late is a crash of the file system, which costs the next
instance a check, and no data.
"""

from __future__ import annotations

from dataclasses import dataclass

_SPARE_SECONDS = 3.0
_LET_GO_SECONDS = 12.0
_SAVE_SHARE = 0.7


@dataclass(frozen=True)
class NoticeBox:
    """Until when each part may take, in seconds from the moment the notice was seen.

    Attributes:
        save: The training saves and leaves. Then it is killed.
        copy: The newest checkpoint goes to S3.
        let_go: Unmount, detach, give the lease back.
    """

    save: float
    copy: float
    let_go: float


def divide(seconds: float) -> NoticeBox:
    """Divide what a notice leaves.

    Args:
        seconds: Until the machine is gone.
    """
    let_go = max(seconds - min(_SPARE_SECONDS, seconds * 0.05), 0.0)
    copy = max(let_go - min(_LET_GO_SECONDS, let_go * 0.2), 0.0)
    return NoticeBox(save=copy * _SAVE_SHARE, copy=copy, let_go=let_go)
