"""What must hold between the fields of a job document, by what the rules are about. Each rule yields problems."""

from typing import Final

from spotkeep_jobs.document.rules import (
    access,
    capacity,
    deadline_and_cost,
    ec2,
    job_contents,
    own_entry_point,
    queues,
    spending,
    warm_pools,
)
from spotkeep_jobs.document.rules.rule import Rule

RULES: Final[tuple[Rule, ...]] = (
    *capacity.RULES,
    *deadline_and_cost.RULES,
    *spending.RULES,
    *warm_pools.RULES,
    *job_contents.RULES,
    *own_entry_point.RULES,
    *access.RULES,
    *ec2.RULES,
    *queues.RULES,
)
