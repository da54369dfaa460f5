"""What a review asks the cluster: may this user do this, does that PodGroup exist.

Reviews stay pure: they look answers up, and raise :class:`Unanswered` with all that they miss. The edge
finds those answers (SubjectAccessReview, GET) and starts the review again.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from vc_egpu.kube.resources import BATCH_JOBS, JOB_SETS, PODS, REPLICA_SETS, STATEFUL_SETS, Resource
from vc_egpu.volcano.api.paths import problem_of
from vc_egpu.volcano.words import names
from vc_egpu.webhook.protocol.decision import Json

SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Subject:
    """The user of a request, or the service account that a pod will run as."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of_user_info(cls, info: Json) -> "Subject":
        """From an AdmissionReview's ``userInfo``."""
        extra = info.get("extra")
        pairs = extra.items() if isinstance(extra, dict) else ()
        return cls(
            user=str(info.get("username") or ""),
            groups=tuple(sorted(str(group) for group in info.get("groups") or ())),
            uid=str(info.get("uid") or ""),
            extra=tuple(sorted((str(key), tuple(str(v) for v in values or ())) for key, values in pairs)),
        )

    @classmethod
    def of_service_account(cls, namespace: str, name: str) -> "Subject":
        """As the API server authenticates a service account."""
        return cls(
            user=f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}",
            groups=("system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{namespace}"),
        )

    def __str__(self) -> str:
        if self.user.startswith(SERVICE_ACCOUNT_PREFIX):
            return f"service account {self.user.removeprefix(SERVICE_ACCOUNT_PREFIX).replace(':', '/')}"
        return f"user {self.user!r}"


@dataclass(frozen=True, slots=True)
class Access:
    """May this subject do this? The namespace lets a RoleBinding in it answer for cluster-wide objects."""

    subject: Subject
    verb: str
    group: str
    resource: str
    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class PodGroupLookup:
    """Does this PodGroup exist? Asked when the cache does not know it: it may be some milliseconds old."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class QueueLookup:
    """Does this Queue exist? The cache may not know yet: one file may hold a Queue and its Job."""

    name: str


@dataclass(frozen=True, slots=True)
class MakerLookup:
    """The maker of a Kubernetes object that makes pods: the reference to its controller."""

    namespace: str
    api_version: str
    kind: str
    name: str
    uid: str

    @classmethod
    def of(cls, namespace: str, reference: Mapping[str, Any]) -> "MakerLookup | None":
        """For what this owner reference names; None if it names none, and for kinds that we may not read.

        Users may write anything into a reference: what can be no name is not asked for.
        """
        kind = (str(reference.get("apiVersion") or ""), str(reference.get("kind") or ""))
        name, uid = reference.get("name"), reference.get("uid")
        if kind not in MAKERS or not isinstance(name, str) or not isinstance(uid, str):
            return None
        can_be = uid and len(name) <= names.LONGEST_OBJECT_NAME and not problem_of(name)
        return cls(namespace, *kind, name, uid) if can_be else None


MAKERS: Final[Mapping[tuple[str, str], Resource]] = {
    (resource.api_version, resource.kind): resource
    for resource in (REPLICA_SETS, STATEFUL_SETS, BATCH_JOBS, JOB_SETS, PODS)
}
"""By apiVersion and kind: Kubernetes' own, and what its batch working group adds to them.

A pod makes pods where a Spark driver makes its executors.
"""

Question = Access | PodGroupLookup | QueueLookup | MakerLookup


class Unanswered(Exception):  # noqa: N818 - not an error: the review is to be tried again with the answers
    """The review needs these answers; ``refused``: only for what its refusal says."""

    def __init__(self, questions: Iterable[Question], *, refused: bool = False) -> None:
        super().__init__("the review needs answers")
        self.questions = tuple(questions)
        self.refused = refused


class Answers(Protocol):
    """What is known so far; reviews read it and never wait."""

    def access(self, question: Access) -> bool | None:
        """Yes, no, or None for not known yet."""
        ...

    def pod_group(self, question: PodGroupLookup) -> tuple[bool, Json | None]:
        """(known, the object or None if there is none)."""
        ...

    def looked_up(self, question: QueueLookup) -> bool:
        """Whether the Queue was asked for; the context's queues have it by now, or not if there is none."""
        ...

    def maker(self, question: MakerLookup) -> tuple[bool, Json]:
        """(known, the reference to the controller; empty where there is none or the object is gone)."""
        ...


@dataclass(slots=True)
class KnownAnswers:
    """Answers in plain maps."""

    accesses: dict[Access, bool] = field(default_factory=dict)
    pod_groups: dict[PodGroupLookup, Mapping[str, Any] | None] = field(default_factory=dict)
    makers: dict[MakerLookup, Json] = field(default_factory=dict)

    def access(self, question: Access) -> bool | None:
        """See :class:`Answers`."""
        return self.accesses.get(question)

    def pod_group(self, question: PodGroupLookup) -> tuple[bool, Json | None]:
        """See :class:`Answers`."""
        return question in self.pod_groups, self.pod_groups.get(question)

    def looked_up(self, question: QueueLookup) -> bool:  # noqa: ARG002 - see below
        """See :class:`Answers`: plain maps come with all queues that there are."""
        return True

    def maker(self, question: MakerLookup) -> tuple[bool, Json]:
        """See :class:`Answers`."""
        return question in self.makers, self.makers.get(question, {})


def together(checks: Iterable[Callable[[], object]]) -> None:
    """Do all of these; raises :class:`Unanswered` once, with what all of them miss.

    Where one refuses, the words of the others are no longer wanted.
    """
    missing: list[Question] = []
    for check in checks:
        try:
            check()
        except Unanswered as unanswered:
            if unanswered.refused:
                raise
            missing += unanswered.questions
    if missing:
        raise Unanswered(missing)


def any_allowed(answers: Answers, questions: Iterable[Access]) -> bool:
    """True if one of these is known to be allowed; raises :class:`Unanswered` while that is open."""
    open_questions: list[Access] = []
    for question in questions:
        known = answers.access(question)
        if known:
            return True
        if known is None:
            open_questions.append(question)
    if open_questions:
        raise Unanswered(open_questions)
    return False


def allowed_of(answers: Answers, questions: Iterable[Access]) -> list[Access]:
    """Those of these that are allowed; raises :class:`Unanswered` with all that are open."""
    known = [(question, answers.access(question)) for question in questions]
    if unknown := [question for question, answer in known if answer is None]:
        raise Unanswered(unknown)
    return [question for question, answer in known if answer]
