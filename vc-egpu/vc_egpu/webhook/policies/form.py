"""How an admission policy is written down: its conditions, variables and checks, and its binding."""

from collections.abc import Iterable, Sequence
from typing import Any

from vc_egpu.webhook.policies.expressions import quoted

Json = dict[str, Any]


def differs(key: str) -> str:
    """True if this annotation (its key a CEL expression) is not what it was.

    One that is empty is there all the same: for some of them that is all that counts.
    """
    return f"variables.old[?{key}] != variables.new[?{key}]"


def is_by(accounts: Iterable[str]) -> str:
    """True if one of these usernames asks."""
    return f"request.userInfo.username in {quoted(accounts)}"


def rule(resources: list[str], operations: list[str], group: str = "", version: str = "v1") -> Json:
    """What a policy is asked about."""
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": operations,
        "resources": resources,
    }


def policy(
    name: str,
    matched: Json,
    *conditions: str,
    variables: dict[str, str],
    validations: Sequence[tuple[str, ...]],
    is_common: bool = False,
) -> Json:
    """All ``conditions`` must hold for the validations to be asked; the cheapest one that often fails first.

    ``is_common``: they hold often, so that what is in order is found out by one more of them.
    """
    checks = []
    for expression, message, *detail in validations:
        check = {"expression": expression, "message": message, "reason": "Forbidden"}
        checks.append({**check, "messageExpression": detail[0]} if detail else check)
    # The API server converts the objects for CEL once for all conditions, and three times more if they hold.
    # Conditions that seldom hold keep the policies cheap on every write to every pod. The server evaluates a
    # whole list of conditions even if the first is false, so they are one condition.
    if is_common:
        conditions = (*conditions, any_fails([validation[0] for validation in validations], variables))
    spec: Json = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [matched]},
        "variables": [{"name": key, "expression": value} for key, value in variables.items()],
        "validations": checks,
    }
    if conditions:
        joined = conditions[0] if len(conditions) == 1 else " && ".join(f"({text})" for text in conditions)
        spec["matchConditions"] = [{"name": "concerned", "expression": joined}]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def binding(name: str, action: str = "Deny") -> Json:
    """The policy of this name, in force for all users. ``action``: ``Warn`` tells, and refuses nothing."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": [action]},
    }


def any_fails(expressions: Sequence[str], variables: dict[str, str]) -> str:
    """True if one of the validations fails. A condition knows no variables: they are written out."""
    text = " && ".join(f"({expression})" for expression in expressions)
    for name, expression in variables.items():
        text = text.replace(f"variables.{name}", f"({expression})")
    return f"!({text})"
