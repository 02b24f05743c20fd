"""Systems Manager parameters that AWS publishes, such as the machine images for NAT and bastion."""

from __future__ import annotations

from typing import Any

from rig.local_aws.api import Api, NotAnswered

_IMAGES = "/aws/service/ami-"


def _get_parameter(request: dict[str, Any]) -> dict[str, Any]:
    name = request["Name"]
    if not name.startswith(_IMAGES):
        raise NotAnswered
    return {"Parameter": {"Name": name, "Type": "String", "Value": "ami-00000000000000000", "Version": 1}}


API = Api("ssm", {"GetParameter": _get_parameter})
