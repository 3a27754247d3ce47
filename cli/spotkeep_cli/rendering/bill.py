"""What a run cost and saved (I8): against a clean on-demand run of the same work, work done twice on the bill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.facts import Fact, facts

if TYPE_CHECKING:
    from rich.console import RenderableType

    from spotkeep_jobs.record.record import Cost, Run


def bill(run: Run, *, prices: str | None = None) -> RenderableType:
    """Return a run's bill, a line each; say so where a figure is not known.

    Args:
        run: The run.
        prices: Whose the prices are, where they are not those of the reader's account.
    """
    if run.cost is None:
        return Text("  nothing was billed" if run.state.ended else "  not known before the attempt ends", style="dim")
    cost = run.cost
    at_most = "at most " if cost.redone_seconds is None else ""
    rows: list[Fact] = [
        (
            "billed",
            _amount(cost.training_seconds if run.place.backend == "ec2" else cost.billed_seconds, cost.billed_usd),
        ),
        *_idle_pool(cost),
        ("on demand, clean", at_most + _amount(cost.clean_on_demand_seconds, cost.clean_on_demand_usd)),
        *_storage(cost),
        ("saved", _saved(cost)),
        ("done twice", _redone(cost)),
        ("waited", f"{quantities.duration(cost.waited_seconds)} for capacity, not billed"),
    ]
    if cost.aws_saved_percent is not None:
        rows.append(
            ("AWS would say", f"{quantities.percent(cost.aws_saved_percent)}, taking work done twice for useful")
        )
    if cost.unknown_prices:
        rows.append(("price", f"not known: {', '.join(cost.unknown_prices)}"))
    elif cost.usd_per_hour is None:
        rows.append(("price", f"of {run.place.instance_type} not known: in instance time"))
    if prices is not None and cost.billed_usd is not None:
        rows.append(("prices", prices))
    return facts(rows)


def _saved(cost: Cost) -> str:
    if cost.saved_percent is None and cost.unknown_prices:
        return "not known without the prices below"
    # A price that is missing where the saving is known is one of storage.
    at_most = "at most " if cost.unknown_prices else ""
    return f"{at_most}{quantities.percent(cost.saved_percent)}, {_amount(cost.saved_seconds, cost.saved_usd)}"


def _storage(cost: Cost) -> list[Fact]:
    rows: list[Fact] = []
    if cost.storage_gb_hours:
        rows.append(("volume", _stored(cost.storage_gb_hours, cost.storage_usd)))
    if cost.snapshot_gb_hours:
        rows.append(("snapshots", f"{_stored(cost.snapshot_gb_hours, cost.snapshot_usd)}, from zone to zone"))
    if cost.root_volume_gb_hours:
        rows.append(("root volumes", _stored(cost.root_volume_gb_hours, cost.root_volume_usd)))
    return rows


def _stored(gb_hours: float, usd: float | None) -> str:
    price = "" if usd is None else f", {quantities.dollars(usd)} of it"
    return f"{gb_hours:,.1f} GiB hours{price}"


def _idle_pool(cost: Cost) -> list[Fact]:
    if not cost.idle_pool_seconds:
        return []
    return [("idle pool", f"{_amount(cost.idle_pool_seconds, cost.idle_pool_usd)} of it")]


def _amount(seconds: float, usd: float | None) -> str:
    time = quantities.duration(seconds)
    return time if usd is None else f"{time} ({quantities.dollars(usd)})"


def _redone(cost: Cost) -> str:
    if cost.redone_steps is None:
        return "not known: the job did not report its steps"
    if cost.redone_steps == 0:
        return "nothing"
    seconds = f", {quantities.duration(cost.redone_seconds)}" if cost.redone_seconds is not None else ""
    return f"{quantities.counted(cost.redone_steps, 'step')}{seconds}"
