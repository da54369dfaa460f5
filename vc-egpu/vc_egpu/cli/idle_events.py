"""``vc-egpu idle-events``: an Event for each low gang that a report finds idle for long. It changes no work.

The report's CronJob does this, and not admission. What cards do is known to Prometheus, and admission knows
what was granted. The process may read PodGroups and create Events, and nothing else.
"""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from vc_egpu.cli.exit_status import EXIT_FOUND, EXIT_NO_CLUSTER, EXIT_OK
from vc_egpu.cli.sizing.source import CannotApplyError, read, rows_of
from vc_egpu.kube import ApiConnection, ConfigError
from vc_egpu.kube.resources import EVENTS, POD_GROUPS
from vc_egpu.kube.wire.errors import AlreadyExists, KubeError, NotFound
from vc_egpu.volcano.api.paths import problem_of

COMPONENT: Final = "vc-egpu-report"
REASON: Final = "IdleLowGang"
MOST_EVENTS: Final = 500
"""One run says no more: those that idle longest come first."""
OLDEST_REPORT: Final = timedelta(hours=26)
_LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class IdleGang:
    """One row of a report's table ``idle_gangs``."""

    namespace: str
    name: str
    """The name of its PodGroup."""
    idle_hours: int
    idle_card_hours: float
    since: datetime


def main(argv: list[str] | None = None) -> int:
    """Tell the owners; returns the exit status."""
    options = _flags().parse_args(argv)
    now = datetime.now(UTC)
    try:
        found = [
            one
            for one in idle_gangs(read(Path(options.report)), now)
            if one.idle_hours >= options.after_hours
        ]
        if options.dry_run:
            for one in found:
                print(f"{one.namespace}/{one.name}: {_note(one)}")
            return EXIT_OK
        api = ApiConnection.connect(options.kubeconfig, user_agent=COMPONENT, qps=10.0)
        try:
            return tell(api, found, now)
        finally:
            api.close()
    except CannotApplyError as error:
        return _fail(str(error), EXIT_FOUND)
    except ConfigError as error:
        return _fail(f"no cluster: {error}", EXIT_NO_CLUSTER)


def _flags() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        prog="vc-egpu idle-events",
        description="Writes an Event for each low gang that idles for long: one a day. It changes no work.",
    )
    flags.add_argument(
        "--report", required=True, metavar="FILE", help="made by `vc-egpu report --format json`"
    )
    flags.add_argument(
        "--after-hours", type=_hours, default=24, metavar="N", help="idle hours in a row; default: 24"
    )
    flags.add_argument("--dry-run", action="store_true", help="print what would be said, and ask no cluster")
    flags.add_argument("--kubeconfig", help="default: $KUBECONFIG, the pod's account, ~/.kube/config")
    return flags


def _hours(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 24 * 365):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hours from 1 to a year's")
    return int(text)


def idle_gangs(report: object, now: datetime) -> tuple[IdleGang, ...]:
    """The rows of a report that is not old. Raises :class:`CannotApplyError`."""
    rows = rows_of(report, "idle_gangs")
    until = _moment(report.get("until") if isinstance(report, dict) else None)
    if until is None or not now - OLDEST_REPORT <= until <= now + timedelta(hours=1):
        raise CannotApplyError("the report does not end within the last day: make it again")
    return tuple(_row(number, row) for number, row in enumerate(rows))


def _row(number: int, row: Any) -> IdleGang:
    try:
        namespace, gang = str(row["namespace"]), str(row["gang"]).rpartition("/")[2]
        hours, card_hours, since = (
            int(row["idle_hours"]),
            float(row["idle_card_hours"]),
            _moment(row["idle_since"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise CannotApplyError(f"row {number} of idle_gangs is not one of a report") from None
    if problem_of(namespace) or problem_of(gang) or since is None:
        raise CannotApplyError(f"row {number} of idle_gangs has a value that is none")
    return IdleGang(namespace, gang, hours, card_hours, since)


def _moment(text: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def tell(api: ApiConnection, gangs: Iterable[IdleGang], now: datetime) -> int:
    """One Event for each gang that is still there. One that fails holds up no other."""
    counts = dict.fromkeys(("told", "told today already", "gone or made again", "failed"), 0)
    for one in gangs:
        if counts["told"] >= MOST_EVENTS:
            print(f"more than {MOST_EVENTS} gangs idle: the rest is told by the next run")
            break
        try:
            counts[_told(api, one, now)] += 1
        except KubeError as error:
            counts["failed"] += 1
            sys.stderr.write(f"vc-egpu idle-events: {one.namespace}/{one.name}: {error.message}\n")
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return EXIT_FOUND if counts["failed"] else EXIT_OK


def _told(api: ApiConnection, one: IdleGang, now: datetime) -> str:
    try:
        group = api.get(POD_GROUPS, one.name, one.namespace)
    except NotFound:
        return "gone or made again"
    created = _moment((group.get("metadata") or {}).get("creationTimestamp"))
    if created is not None and created > one.since + timedelta(hours=1):
        return "gone or made again"
    try:
        api.create(EVENTS, event(group, one, now), one.namespace)
    except AlreadyExists:
        return "told today already"
    return "told"


def event(group: dict[str, Any], one: IdleGang, now: datetime) -> dict[str, Any]:
    """The Event, about the Job where one owns the gang. Its name has the day, so that there is one a day."""
    metadata = group["metadata"]
    owner = next(
        (
            own
            for own in metadata.get("ownerReferences") or []
            if own.get("controller") and own.get("kind") == "Job"
        ),
        None,
    )
    regarding = {
        **{key: owner[key] for key in ("apiVersion", "kind", "name", "uid") if key in owner},
        "namespace": one.namespace,
    } if owner else {
        "apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind, "name": one.name,
        "namespace": one.namespace, "uid": metadata.get("uid"),
    }  # fmt: skip
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {
            "name": f"{one.name[:_LONGEST_NAME].rstrip('-.')}.idle-{now:%Y%m%d}",
            "namespace": one.namespace,
        },
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": COMPONENT,
        "reportingInstance": COMPONENT,
        "action": REASON,
        "reason": REASON,
        "regarding": regarding,
        "note": _note(one),
        "type": "Normal",
    }


def _note(one: IdleGang) -> str:
    return (
        f"it holds cards and idles since {one.since:%Y-%m-%d %H:%M} UTC: {one.idle_hours} hours, "
        f"{one.idle_card_hours:.1f} card-hours. Nothing is done about it; end it if it is not needed"
    )


def _fail(text: str, status: int) -> int:
    sys.stderr.write(f"vc-egpu idle-events: {text}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
