"""DeleteLaunchTemplateVersions, which ministack's launch templates lack."""

from __future__ import annotations

from typing import Any

from spotkeep_local import ministack_seams
from spotkeep_local.ec2.errors import Ec2Error


def delete_template_versions(request: dict[str, Any]) -> dict[str, Any]:
    """DeleteLaunchTemplateVersions, of any but the default version; the answer says which cannot be deleted."""
    template = _find(request)
    about = {
        "LaunchTemplateId": template["LaunchTemplateId"],
        "LaunchTemplateName": template["LaunchTemplateName"],
    }
    deleted, refused = [], []
    for number in request["Versions"]:
        found = next((each for each in template["Versions"] if str(each["VersionNumber"]) == str(number)), None)
        entry = {**about, "VersionNumber": int(number)}
        if found is None:
            code, message = "launchTemplateVersionDoesNotExist", f"The version {number} does not exist"
        elif int(number) == template["DefaultVersionNumber"]:
            code, message = "unexpectedError", "The default version cannot be deleted"
        else:
            template["Versions"].remove(found)
            deleted.append(entry)
            continue
        refused.append({**entry, "ResponseError": {"Code": code, "Message": message}})
    numbers = [each["VersionNumber"] for each in template["Versions"]]
    template["LatestVersionNumber"] = max([*numbers, template["DefaultVersionNumber"]])
    return {
        "SuccessfullyDeletedLaunchTemplateVersions": deleted,
        "UnsuccessfullyDeletedLaunchTemplateVersions": refused,
    }


def _find(request: dict[str, Any]) -> dict[str, Any]:
    template_id, name = request.get("LaunchTemplateId"), request.get("LaunchTemplateName")
    for template in ministack_seams.launch_templates():
        if template_id in (None, template["LaunchTemplateId"]) and name in (None, template["LaunchTemplateName"]):
            return template
    code = "InvalidLaunchTemplateId.NotFound" if template_id else "InvalidLaunchTemplateName.NotFoundException"
    raise Ec2Error(code, f"The specified launch template, {template_id or name}, does not exist.")
