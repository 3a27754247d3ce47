"""The services of the daemon, which are ministack, the services that it lacks, and the control plane of both.

ministack reads its environment while it is imported. `server.server_environment` must be in force before this module is
imported.
"""

from __future__ import annotations

import asyncio
import functools
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from spotkeep_local.access.admission import Admission
from spotkeep_local.access.call_rates import CALLS_A_SECOND, CallRates
from spotkeep_local.access.enforcement import Enforcement, UnsureCalls
from spotkeep_local.account import price_list
from spotkeep_local.account import service_quotas as quotas
from spotkeep_local.account.session_manager import LocalSessionManager
from spotkeep_local.account.stacks import (
    RESOURCE_TYPES,
    BatchResource,
    ExperimentTemplateResource,
    GroupRuleResource,
    PlacementGroupResource,
    StackRoles,
)
from spotkeep_local.batch.service import BatchService
from spotkeep_local.capacity import EventFaults
from spotkeep_local.daemon.state_directory import CONTROL_TARGET
from spotkeep_local.ec2 import records as ec2_records
from spotkeep_local.ec2.catalog import PYTORCH
from spotkeep_local.ec2.service import Ec2Service, read_template_data, template_data_as_xml
from spotkeep_local.ec2.surroundings import Surroundings
from spotkeep_local.errors import LocalAwsError
from spotkeep_local.fis.service import FisService
from spotkeep_local.iam.judge import Judge, agent_may_connect, is_allowed
from spotkeep_local.iam.local_account import LocalAccount
from spotkeep_local.iam.reference import Reference
from spotkeep_local.ministack import application as ministack
from spotkeep_local.ministack import cloudformation, ec2, functions, identities, messages, storage
from spotkeep_local.ministack.functions import UnpackedArchives
from spotkeep_local.ministack.identities import missing_from_account
from spotkeep_local.principals import CredentialRegistry
from spotkeep_local.service_base.aws_service import control_service
from spotkeep_local.service_base.clients import LocalSession
from spotkeep_local.training import file_systems
from spotkeep_local.training import service as training_service
from spotkeep_local.training.file_systems import FileSystems
from spotkeep_local.training.service import TrainingService

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from spotkeep_local.daemon.state_directory import ServerRecord, StateDirectory
    from spotkeep_local.options import ServerOptions
    from spotkeep_local.principals import PersonKeys, ServiceCall


class LocalServices:
    """All services of one local AWS. Made in the thread of the event loop that serves them.

    Args:
        directory: The directory of their state.
        options: The options of the local AWS.
        record: The record with the port of the server.
        people: The keys of the people at the command line.
        judge: The class that decides about permissions.

    Raises:
        LocalAwsError: ministack is not the one that is extended, or a state cannot be read.
    """

    def __init__(
        self,
        *,
        directory: StateDirectory,
        options: ServerOptions,
        record: ServerRecord,
        people: PersonKeys,
        judge: type[Judge],
    ) -> None:
        ministack.check()
        messages.name_queues_alike_on_every_port()
        storage.know_transactions_by_what_was_sent()
        functions.save_layers_as_files()
        ministack.share_service_models()
        self._archives = UnpackedArchives(directory.unpacked)
        functions.unpack_once(self._archives)
        self._options = options
        self._record = record
        self._registry = CredentialRegistry(
            account_id=options.account_id,
            people=people,
            sessions=identities.StsSessions(asyncio.get_running_loop(), account_id=options.account_id),
            role_id=identities.role_id,
        )
        as_itself = LocalSession(endpoint_url=record.endpoint_url, region=options.region, access_key=self._registry.own)
        self._file_systems = FileSystems(
            folder=directory.file_systems, session=as_itself, account_id=options.account_id, region=options.region
        )
        self._training = TrainingService(
            state_dir=directory.training,
            credentials=self._registry,
            endpoint_url=record.endpoint_url,
            options=options,
            file_systems=self._file_systems,
            publish_event=functools.partial(_publish_event, "aws.sagemaker"),
            on_change=lambda: self._batch.account.changed.set(),
        )
        self._batch = BatchService(
            state_dir=directory.batch,
            options=options,
            training=self._training,
            publish_event=functools.partial(_publish_event, "aws.batch"),
        )
        self._ec2 = Ec2Service(
            state_dir=directory.ec2,
            file_systems=directory.file_systems,
            endpoint_port=record.port,
            options=options,
            surroundings=Surroundings(
                session=as_itself,
                region=options.region,
                credentials=self._registry,
            ),
            publish_event=lambda detail, detail_type, resources: _publish_event(
                ec2_records.source_of(detail_type), detail, detail_type, resources
            ),
            ministack=ministack.handler_of("ec2"),
        )
        self._fis = FisService(
            state_dir=directory.fis, cloud=self._ec2.cloud, instances=self._ec2.instances, is_allowed=self._service_may
        )
        self._account = LocalAccount(
            account_id=options.account_id,
            cloud=self._ec2.cloud,
            job_tags=self._training.tags_of,
            experiment_tags=self._fis.tags_of,
            batch_tags=self._batch.account.tags_of,
        )
        self._judge = judge(account=self._account, reference=Reference())
        self._register_services()
        self._stand_before_ministack()

    def start(self) -> None:
        """Take up the state that an earlier server saved.

        The endpoint must answer soon, and ministack must have its state by now.
        """
        self._training.start()
        self._batch.start()
        self._ec2.start()

    async def make_account(self) -> None:
        """Make the users and roles of a new account that are not there yet. ministack must have its state by now.

        Raises:
            LocalAwsError: IAM refuses.
        """
        iam = ministack.handler_of("iam")
        for call in missing_from_account():
            status, _, answer = await iam("POST", "/", {}, urlencode(call).encode(), {})
            if status != HTTPStatus.OK:
                raise LocalAwsError(f"IAM refused {call['Action']}: {answer.decode(errors='replace')}")

    def stop(self) -> None:
        """End and save everything but ministack's state, while the endpoint still answers.

        The uploads of ending jobs belong to ministack's state, which ministack saves when it shuts down.
        """
        for service in (self._fis, self._ec2, self._batch, self._training):
            service.stop()
        self._archives.remove_unused()

    def guarded(self, application: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        """Return an application behind the admission and the judge, with the faults of calls.

        Args:
            application: Hands requests to `ministack.application.asgi_application`.
        """
        calls = UnsureCalls(application, rates=CallRates(CALLS_A_SECOND if self._options.call_rates else {}))
        control = control_service(
            CONTROL_TARGET,
            {
                **self._training.control_operations,
                **self._batch.control_operations,
                **self._ec2.control_operations,
                **self._judge.control_operations(),
                **calls.control_operations(),
                "EventFaults": self._set_event_faults,
                "EndInvocations": lambda request: {"ended": functions.end_invocations(str(request["function"]))},
            },
        )
        ministack.register_service(
            "spotkeep-control", handler=control.handle_request, target_prefixes=[f"{CONTROL_TARGET}."]
        )
        judged = Enforcement(application, judge=self._judge, find=self._registry.find, calls=calls)
        return Admission(judged, port=self._record.port, find=self._registry.find)

    def _register_services(self) -> None:
        service_quotas = quotas.service_quotas(
            training=lambda: self._training.training_quota, warm_pools=lambda: self._training.warm_pool_quota
        )
        for name, service, target, host in (
            ("sagemaker", self._training.api, training_service.TARGET, r"api\.sagemaker\."),
            ("pricing", price_list.pricing_service(), price_list.TARGET, r"api\.pricing\."),
            ("servicequotas", service_quotas, quotas.TARGET, r"servicequotas\."),
            ("batch", self._batch.api, None, r"^batch\."),
            ("fis", self._fis.api, None, r"fis\."),
            ("fsx", self._file_systems.api, file_systems.TARGET, r"fsx\."),
        ):
            ministack.register_service(
                name,
                handler=service.handle_request,
                target_prefixes=[] if target is None else [f"{target}."],
                host_patterns=[host],
            )

    def _stand_before_ministack(self) -> None:
        """Take requests before ministack's own services, and decide about the calls that these make by themselves."""
        ministack.replace_handler("ec2", self._ec2.handle_request)
        ec2.add_public_image(
            PYTORCH.image_id, parameter=PYTORCH.parameter, name=PYTORCH.name, root_device=PYTORCH.root_device
        )
        ec2.keep_whole_template_data(read=read_template_data, write=template_data_as_xml)
        sessions = LocalSessionManager(
            ministack.handler_of("ssm"),
            cloud=self._ec2.cloud,
            job=self._training.job,
            may_connect=lambda role, instance_arn: agent_may_connect(
                role, instance_arn, judge=self._judge, account=self._account
            ),
        )
        ministack.replace_handler("ssm", sessions.handle_request)
        stack_roles = StackRoles(ministack.handler_of("cloudformation"), is_allowed=self._service_may)
        ministack.replace_handler("cloudformation", stack_roles.handle_request)
        ministack.on_first_request("cloudformation", lambda: self._extend_cloudformation(stack_roles))
        functions.give_functions_credentials(
            lambda arn, name, role: self._registry.of_role(role, session=name, holder=arn).environment()
        )
        functions.name_callers_of_function_urls(self._registry.find)
        messages.judge_service_calls(self._service_may)

    def _extend_cloudformation(self, stack_roles: StackRoles) -> None:
        cloudformation.judge_custom_resources(
            lambda function_arn, stack_id: stack_roles.may_invoke(function_arn, stack_id=stack_id)
        )
        cloudformation.resolve_function_urls_to(self._record.endpoint_url)
        cloudformation.refuse_taken_names()
        made_by: dict[str, ExperimentTemplateResource | BatchResource | GroupRuleResource | PlacementGroupResource] = {
            "AWS::FIS::ExperimentTemplate": ExperimentTemplateResource(self._fis),
            "AWS::EC2::PlacementGroup": PlacementGroupResource(),
            "AWS::EC2::SecurityGroupEgress": GroupRuleResource(outbound=True),
            "AWS::EC2::SecurityGroupIngress": GroupRuleResource(outbound=False),
            **{name: BatchResource(self._batch, resource_type) for name, resource_type in RESOURCE_TYPES.items()},
        }
        for name, resource in made_by.items():
            cloudformation.add_resource_type(
                name, create=resource.create, update=resource.update, delete=resource.delete
            )
        cloudformation.delete_networks_after_instances(self._ec2.has_instances_in)

    def _service_may(self, call: ServiceCall) -> bool:
        return is_allowed(call, judge=self._judge, account=self._account)

    def _set_event_faults(self, request: dict[str, Any]) -> dict[str, Any]:
        faults = EventFaults.from_document(request)
        self._training.set_event_faults(faults)
        self._batch.set_event_faults(faults)
        return {}


def _publish_event(source: str, detail: Mapping[str, Any], detail_type: str, resources: Sequence[str]) -> None:
    messages.publish_event(source=source, detail_type=detail_type, detail=detail, resources=resources)
