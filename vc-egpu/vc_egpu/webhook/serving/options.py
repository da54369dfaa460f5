"""The webhook's settings: flags over environment over the settings file over defaults."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from vc_egpu.volcano.needs.file import ENVIRONMENTS, read_environments
from vc_egpu.volcano.needs.table import EnvironmentTable
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.yaml_text import NotYamlError, read_yaml
from vc_egpu.webhook.protocol.context import Binder, Settings
from vc_egpu.webhook.serving.certificates import Lifetimes
from vc_egpu.webhook.serving.tls import TlsSettings

SERVICE: Final = "vc-egpu-webhook"
_ENVIRONMENT_PREFIX: Final = "VC_EGPU_WEBHOOK_"


class OptionsError(ValueError):
    """A setting cannot be used; the text names it."""


class SettingsFile(BaseModel):
    """``webhook.yaml``. Every key has a flag and an environment variable of the same name."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        str_strip_whitespace=True,
    )

    binder: Binder = "direct"
    scheduler_name: str = "default-scheduler"
    ungrouped_scheduler_name: str = ""
    """See :class:`~.context.Settings`."""
    direct_without_group: bool = False
    unnamed_model_unlimited: bool = False
    keep_managed_fields: bool = False
    job_controllers: tuple[str, ...] = ()
    """In addition to the default ones; see :class:`~.context.Settings`."""
    max_gang_members: Annotated[int, Field(ge=1, le=100_000)] = 2048
    max_gang_cards: Annotated[int, Field(ge=1, le=1_000_000)] = 16384
    max_low_grace_s: Annotated[int, Field(ge=1, le=2**31 - 1)] = 3600
    models: Path = Path("/etc/vc-egpu/models.yaml")
    environments: Path = ENVIRONMENTS
    """What software needs of nodes; where the default file is not there, the table that is shipped."""
    listen: str = "::"
    """IPv4 too: it serves the API server, wherever that is."""
    port: Annotated[int, Field(ge=0, le=65535)] = 9443
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 9447
    namespace: str = names.SYSTEM_NAMESPACE
    hosts: tuple[str, ...] = ()
    """Further names and addresses under which the API server calls."""
    kubeconfig: Path | None = None
    drain_s: Annotated[float, Field(ge=0, le=60)] = 5.0
    """How long it goes on serving after SIGTERM, so that no endpoint list names it any more."""
    authority_lifetime_s: Annotated[float, Field(ge=1)] = 365 * 86400.0
    serving_lifetime_s: Annotated[float, Field(ge=1)] = 90 * 86400.0
    settle_s: Annotated[float, Field(ge=0)] = 60.0
    tls_interval_s: Annotated[float, Field(ge=0.05)] = 15.0


@dataclass(frozen=True, slots=True)
class Options:
    """All that ``main`` needs."""

    file: SettingsFile
    settings: Settings
    tls: TlsSettings


def parse_options(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Options:
    """Read flags, environment and file. Raises :class:`OptionsError`; exits on ``--help`` and usage."""
    environment = os.environ if environment is None else environment
    flags = _parser().parse_args(argv)
    values: dict[str, Any] = _read_file(flags.config or environment.get(f"{_ENVIRONMENT_PREFIX}CONFIG"))
    if "POD_NAMESPACE" in environment:
        values["namespace"] = environment["POD_NAMESPACE"]
    for name, field in SettingsFile.model_fields.items():
        given = getattr(flags, name, None)
        raw = environment.get(_ENVIRONMENT_PREFIX + name.upper())
        if given is not None:
            values[field.alias or name] = given
        elif raw is not None:
            values[field.alias or name] = raw.split(",") if name in _LISTS else raw
    try:
        file = SettingsFile.model_validate({_alias(key): value for key, value in values.items()})
        settings = _settings(file)
    except ValidationError as error:
        first = error.errors()[0]
        raise OptionsError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except ValueError as error:
        raise OptionsError(str(error)) from error
    return Options(file, settings, _tls(file))


_LISTS: Final = frozenset({"job_controllers", "hosts"})


def _alias(key: str) -> str:
    return to_camel(key) if "_" in key else key


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vc-egpu webhook", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", help="settings file (YAML)")
    for name, field in SettingsFile.model_fields.items():
        flag = "--" + name.replace("_", "-")
        if name in _LISTS:
            parser.add_argument(flag, action="append", help="may be given several times")
        else:
            parser.add_argument(flag, help=f"default: {field.default}")
    return parser


def _read_file(path: str | None) -> dict[str, Any]:
    if not path:
        return {}
    try:
        document = read_yaml(Path(path).read_text(encoding="utf-8")) or {}
    except (OSError, NotYamlError) as error:
        raise OptionsError(f"settings file {path}: {error}") from error
    if not isinstance(document, dict):
        raise OptionsError(f"settings file {path}: is no mapping")
    return document


def _settings(file: SettingsFile) -> Settings:
    default = Settings(scheduler_name=file.scheduler_name)
    own = f"system:serviceaccount:{file.namespace}:vc-egpu-jobs"
    return Settings(
        binder=file.binder,
        scheduler_name=file.scheduler_name,
        ungrouped_scheduler_name=file.ungrouped_scheduler_name,
        direct_without_group=file.direct_without_group,
        unnamed_model_unlimited=file.unnamed_model_unlimited,
        keep_managed_fields=file.keep_managed_fields,
        job_controllers=default.job_controllers | {own, *file.job_controllers},
        max_gang_members=file.max_gang_members,
        max_gang_cards=file.max_gang_cards,
        max_low_grace_s=file.max_low_grace_s,
        environments=_environments(file.environments),
    )


def _environments(file: Path) -> EnvironmentTable:
    try:
        return read_environments(file)
    except (OSError, ValueError) as error:
        raise ValueError(f"environments: {error}") from error


def _tls(file: SettingsFile) -> TlsSettings:
    service = f"{SERVICE}.{file.namespace}"
    return TlsSettings(
        namespace=file.namespace,
        hosts=(f"{service}.svc", service, SERVICE, f"{service}.svc.cluster.local", *file.hosts),
        interval_s=file.tls_interval_s,
        lifetimes=Lifetimes(
            authority=timedelta(seconds=file.authority_lifetime_s),
            serving=timedelta(seconds=file.serving_lifetime_s),
            settle=timedelta(seconds=file.settle_s),
        ),
    )
