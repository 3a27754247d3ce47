"""One document, several independent runs: what each of them is asked for, as if it were launched alone. Pure.

Every run of a group has a document of its own, with its own id and token, so whatever follows, repeats, resumes or
bills a run needs to know nothing of groups. The ids and tokens follow from the group's: who repeats a launch finds
them again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.record.record import RunGroup
from spotkeep_jobs.with_changes import with_changes


@dataclass(frozen=True, kw_only=True)
class GroupMember:
    """One of the runs that a document asks for.

    Attributes:
        request: What it is asked for.
        group: Which of several it is; None for a run on its own.
    """

    request: JobRequest
    group: RunGroup | None = None


def members_of(request: JobRequest) -> tuple[GroupMember, ...]:
    """Return the runs that a request asks for, in the order of their numbers: at least one.

    Args:
        request: With its run id and its token, defaults filled in.
    """
    if request.runs == 1:
        return (GroupMember(request=_alone(request, index=1)),)
    return tuple(_member(request, index) for index in range(1, request.runs + 1))


def _member(request: JobRequest, index: int) -> GroupMember:
    token = request.token
    # The first has the group's: it is then claimed, whatever number of runs it comes with again.
    own = token if token is None or index == 1 else hashlib.sha256(f"{token}\n{index}".encode()).hexdigest()
    return GroupMember(
        request=with_changes(_alone(request, index=index), run=f"{request.run}-{index}", token=own),
        group=RunGroup(id=request.run or "", index=index, size=request.runs),
    )


def _alone(request: JobRequest, *, index: int) -> JobRequest:
    on_demand = index <= request.on_demand_base
    alone = with_changes(request, runs=1, on_demand_base=0)
    return with_changes(alone, capacity="on-demand", max_price=None) if on_demand else alone
