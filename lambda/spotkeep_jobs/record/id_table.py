"""Ids that sweeps and schedules reserve in the run table, and claims on those that other runs took.

A sweep's record reserves the ids of its trials. A schedule's record reserves the ids of its launches. Any other run may
be opened under an id of such a form. Its transaction checks that there is no such sweep and no such schedule, and
writes a claim. A sweep that is opened checks in its own transaction that there is no such claim. A schedule is recorded
first, and made when there is none. So of two that meet, one is refused, whichever comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from spotkeep_jobs.record.ids import FiringId, firing_around, sweep_around
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.table_client import TableClient, Write, to_dynamodb

_CLAIM: Final = "claim"


class IdTable(TableClient):
    """Claims of ids that a sweep or a schedule would reserve."""

    def run_with_id_of_a_trial(self, sweep: str) -> str | None:
        """Return the newest run that took an id of this sweep's trials (strongly consistent), or None.

        The sweep's own trials do not count. A forgotten run counts for some weeks more.
        """
        item = self._get_item(_of_trials(sweep), _CLAIM)
        return None if item is None else str(item["run"])

    def ids_of_firings(self, schedule: str, *, now: datetime) -> list[FiringId]:
        """Return the ids that this schedule would launch under from now on, and that others have (strongly consistent).

        Args:
            schedule: The schedule.
            now: The time, aware.
        """
        taken = self._query(
            KeyConditionExpression="pk = :pk AND sk >= :first",
            ExpressionAttributeValues=to_dynamodb({":pk": _of_firings(schedule), ":first": f"{now:%Y%m%d}"}),
            ConsistentRead=True,
        )
        found = [firing_around(f"{schedule}-{item['sk']}", is_sweep=True) for item in taken]
        return [each for each in found if each is not None and each.over_at > now]

    def _take_ids_of(self, run: Run) -> Iterator[Write]:
        """Yield the writes that give a run its id, or all runs of its group theirs. They are four at most.

        Another client has made the job of an adopted run, under any name. So an adopted run takes the id without a
        check.
        """
        if run.trial is not None:
            return  # Its sweep has it for it.
        name, expires_at = run.run if run.group is None else run.group.id, self._outlives_run(run.created_at)
        if not run.adopted:
            yield self._absent(f"sweep#{name}")
        if run.group is None:
            yield from self._take_id_of_trial(name, expires_at=expires_at, checked=not run.adopted)
        else:
            yield self._claim_id_of_trial(name, run=run.run, expires_at=expires_at)
        firing = list(self._take_id_of_firing(name, run.schedule, expires_at=expires_at, checked=not run.adopted))
        if run.group is not None and not firing and (sweep := sweep_around(name)) is not None:
            yield self._absent(f"sweep#{sweep}")  # No run has the name of the group; it would look like a trial.
        yield from firing

    def _keep_ids_of(self, run: Run, *, now: datetime) -> Iterator[Write]:
        """Yield the writes that keep the id of a continued run claimed. The claim then expires later."""
        expires_at = self._outlives_run(now)
        yield from self._take_id_of_trial(run.run, expires_at=expires_at, checked=False)
        yield from self._take_id_of_firing(run.run, run.schedule, expires_at=expires_at, checked=False)

    def _take_sweep_id(self, sweep: str, *, schedule: str | None, created_at: datetime) -> Iterator[Write]:
        """Yield the writes that give a sweep its id, and those of its trials."""
        yield self._absent(f"run#{sweep}")
        yield self._absent(_of_trials(sweep), _CLAIM)
        expires_at = self._outlives_run(created_at)
        yield from self._take_id_of_trial(sweep, expires_at=expires_at)
        yield from self._take_id_of_firing(sweep, schedule, expires_at=expires_at, is_sweep=True)

    def _take_id_of_trial(self, name: str, *, expires_at: int, checked: bool = True) -> Iterator[Write]:
        if (sweep := sweep_around(name)) is not None:
            if checked:
                yield self._absent(f"sweep#{sweep}")
            yield self._claim_id_of_trial(sweep, run=name, expires_at=expires_at)

    def _take_id_of_firing(
        self, name: str, schedule: str | None, *, expires_at: int, checked: bool = True, is_sweep: bool = False
    ) -> Iterator[Write]:
        firing = firing_around(name, is_sweep=is_sweep)
        if firing is not None and firing.schedule != schedule:
            if checked:
                yield self._absent(f"schedule#{firing.schedule}")
            key = {"pk": _of_firings(firing.schedule), "sk": firing.firing}
            yield self._put({**key, "run": name, "expires_at": expires_at})

    def _claim_id_of_trial(self, sweep: str, *, run: str, expires_at: int) -> Write:
        return self._put({"pk": _of_trials(sweep), "sk": _CLAIM, "run": run, "expires_at": expires_at})

    def _absent(self, partition: str, sort: str = "item") -> Write:
        return {
            "ConditionCheck": {
                "TableName": self._table,
                "Key": to_dynamodb({"pk": partition, "sk": sort}),
                "ConditionExpression": "attribute_not_exists(pk)",
            }
        }


def _of_trials(sweep: str) -> str:
    return f"trial-id#{sweep}"


def _of_firings(schedule: str) -> str:
    return f"firing-id#{schedule}"
