"""DeleteLaunchTemplateVersions, which ministack's launch templates lack."""

from __future__ import annotations

from typing import Any

from spotkeep_local import ministack_seams
from spotkeep_local.ec2.errors import Ec2Error


def delete_template_versions(request: dict[str, Any]) -> dict[str, Any]:
    """DeleteLaunchTemplateVersions, of any but the default version; the answer says which cannot be deleted."""
    template_id, name = request.get("LaunchTemplateId"), request.get("LaunchTemplateName")
    template = ministack_seams.launch_template(template_id=template_id, name=name)
    if template is None:
        code = "InvalidLaunchTemplateId.NotFound" if template_id else "InvalidLaunchTemplateName.NotFoundException"
        raise Ec2Error(code, f"The specified launch template, {template_id or name}, does not exist.")
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
            ministack_seams.delete_template_version(template, found)
            deleted.append(entry)
            continue
        refused.append({**entry, "ResponseError": {"Code": code, "Message": message}})
    return {
        "SuccessfullyDeletedLaunchTemplateVersions": deleted,
        "UnsuccessfullyDeletedLaunchTemplateVersions": refused,
    }
