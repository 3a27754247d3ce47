"""What an operator sees of a deployment: alarms, the dashboard, and the drill that the alarms stop."""

from __future__ import annotations

from constructs import Construct

from spotkeep_constructs.alarms import FailureAlarms, OrphanAlarms
from spotkeep_constructs.controller import Controller
from spotkeep_constructs.dashboard import Dashboard
from spotkeep_constructs.interruption_drill import InterruptionDrill
from spotkeep_constructs.launching import Launching
from spotkeep_constructs.notifications import Notifications
from spotkeep_constructs.settings import Settings
from spotkeep_constructs.spot_compute import SpotCompute


class Monitoring(Construct):
    """Alarms on every function and queue, and what the settings ask for besides.

    Attributes:
        drill: The experiment of drills; None without them.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        settings: Settings,
        compute: SpotCompute | None,
        launching: Launching,
        notifications: Notifications,
        controller: Controller,
    ) -> None:
        """Place the alarms.

        Args:
            scope: Parent construct.
            id: Construct id.
            settings: The deployment's settings.
            compute: What EC2 instances need; None where the deployment has no fleets.
            launching: The launcher.
            notifications: The topic of alarms, and the queues that they are about.
            controller: The controller and its queue of events.
        """
        super().__init__(scope, id)
        functions = [launching.launcher, controller.function]
        if compute is not None:
            functions.append(compute.credentials.function)
        if launching.search is not None:
            functions.append(launching.search)
        if notifications.webhook is not None:
            functions.append(notifications.webhook.function)
        alarms = FailureAlarms(
            self,
            "Alarms",
            notifications=notifications,
            functions=functions,
            events=controller.events.queue,
        )
        orphan_alarms = OrphanAlarms(
            self, "OrphanAlarms", topic=notifications.topics.operations, controller=controller.function
        )
        self.drill = (
            InterruptionDrill(
                self,
                "Drill",
                deployment=settings.deployment,
                # No experiment takes capacity away from runs that the controller does not reconcile.
                stop_alarms=[alarms.errors["controller"], alarms.events_waiting],
            )
            if settings.drills
            else None
        )
        if settings.dashboard:
            Dashboard(
                self,
                "Board",
                deployment=settings.deployment,
                launcher=launching.launcher,
                controller=controller.function,
                functions=functions,
                notifications=notifications,
                alarms=[*alarms.alarms, *orphan_alarms.alarms],
            )
