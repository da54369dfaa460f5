"""Volcano's Job, ``batch.volcano.sh/v1alpha1``."""

from enum import StrEnum
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from vc_egpu.volcano.api.meta import (
    LONGEST_PATH,
    AnyObject,
    ApiModel,
    ApiObject,
    Count,
    CrdDefault,
    GoDuration,
    Int32,
    LabelName,
    NetworkTopology,
    Positive,
    SubdomainName,
    Time,
    kept,
    refused,
    supported,
)

DEFAULT_MAX_RETRY: Final = 3
"""For a Job and for a task. Volcano takes 0 for "not said": its clients leave it out."""


class JobPhase(StrEnum):
    """Where a Job stands."""

    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    ABORTING = "Aborting"
    ABORTED = "Aborted"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"
    FAILED = "Failed"


class JobEvent(StrEnum):
    """What a lifecycle policy may react to (the last three are the controller's own)."""

    ANY = "*"
    POD_PENDING = "PodPending"
    POD_RUNNING = "PodRunning"
    POD_FAILED = "PodFailed"
    POD_EVICTED = "PodEvicted"
    UNKNOWN = "Unknown"
    TASK_COMPLETED = "TaskCompleted"
    TASK_FAILED = "TaskFailed"
    JOB_UPDATED = "JobUpdated"
    OUT_OF_SYNC = "OutOfSync"
    COMMAND_ISSUED = "CommandIssued"


class JobAction(StrEnum):
    """What a lifecycle policy or a Command does to a Job."""

    ABORT_JOB = "AbortJob"
    RESTART_JOB = "RestartJob"
    RESTART_TASK = "RestartTask"
    RESTART_POD = "RestartPod"
    RESTART_PARTITION = "RestartPartition"
    TERMINATE_JOB = "TerminateJob"
    COMPLETE_JOB = "CompleteJob"
    RESUME_JOB = "ResumeJob"
    SYNC_JOB = "SyncJob"
    ENQUEUE_JOB = "EnqueueJob"


class LifecyclePolicy(ApiModel):
    """When this event (or exit code) happens, do that."""

    action: Annotated[JobAction | None, supported("RestartPartition is refused by our Job controller")] = None
    """The action to take."""
    event: JobEvent | None = None
    """The event that it answers; not together with exitCode."""
    events: list[JobEvent] = Field(default_factory=list)
    """Several events that it answers."""
    exit_code: Int32 | None = None
    """The exit code that it answers, of any container of the pod; never 0."""
    timeout: GoDuration | None = None
    """Wait this long before acting; dropped if the pod recovers meanwhile."""


class DependsOn(ApiModel):
    """Tasks that have to be there before this one's pods are made."""

    name: list[str] = Field(default_factory=list)
    """Names of other tasks of the Job."""
    iteration: Literal["any", "all"] | None = None
    """Whether one of them is enough."""


class PartitionPolicy(ApiModel):
    """Groups of pods within a task."""

    total_partitions: Annotated[Positive, refused("partitions need Volcano's own controllers")]
    """Number of groups; times partitionSize it is the task's replicas."""
    partition_size: Annotated[Positive, refused("")]
    """Pods in each group."""
    min_partitions: Annotated[Count, refused(""), CrdDefault(0)] = 0
    """Groups that have to run at least."""
    network_topology: Annotated[NetworkTopology | None, refused("")] = None
    """How close the pods of a group must be."""


class TemplateMeta(ApiModel):
    """Metadata that each pod gets."""

    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    name: Annotated[str | None, kept("pods are named <job>-<task>-<index>")] = None
    namespace: Annotated[str | None, kept("pods are made in the Job's namespace")] = None
    finalizers: Annotated[list[str], kept("")] = Field(default_factory=list)


class PodTemplate(ApiModel):
    """What a pod of the task looks like."""

    metadata: TemplateMeta = Field(default_factory=TemplateMeta)
    spec: AnyObject = Field(default_factory=dict)


class Task(ApiModel):
    """Pods of one kind within a Job."""

    name: LabelName = ""
    """Name of the task; default<i> where it is empty."""
    replicas: Count = 0
    """Number of pods."""
    min_available: Count | None = None
    """Pods of the task that have to run together; its replicas where it is absent."""
    template: PodTemplate = Field(default_factory=PodTemplate)
    """What a pod of the task looks like."""
    policies: list[LifecyclePolicy] = Field(default_factory=list)
    """Come before the Job's own policies."""
    topology_policy: Annotated[
        Literal["none", "best-effort", "restricted", "single-numa-node"] | None,
        kept("written on the pods, as Volcano does"),
    ] = None
    """NUMA policy for Volcano's scheduler."""
    max_retry: Count = DEFAULT_MAX_RETRY
    """Container restarts after which the task counts as failed (event TaskFailed); 0 is 3."""
    depends_on: DependsOn | None = None
    """Tasks that have to be there first."""
    partition_policy: Annotated[PartitionPolicy | None, refused("needs Volcano's own controllers")] = None
    """Groups of pods within the task."""


class Volume(ApiModel):
    """A claim that all pods of the Job mount."""

    mount_path: Annotated[str, Field(min_length=1, max_length=LONGEST_PATH, pattern=r"^[^:]+$")]
    """Where all containers see it."""
    volume_claim_name: Annotated[str | None, Field(max_length=253)] = None
    """An existing claim."""
    volume_claim: Annotated[AnyObject | None, supported("the claim is made and goes with the Job")] = None
    """Specification of a claim to make."""


class JobSpec(ApiModel):
    """What the user wants."""

    scheduler_name: Annotated[str, Field(max_length=63)] = ""
    """Default of the pods' schedulerName."""
    min_available: Count = 0
    """Pods that have to run together: the gang. The sum over tasks where it is absent."""
    volumes: list[Volume] = Field(default_factory=list)
    """Claims that all pods mount."""
    tasks: Annotated[list[Task], Field(min_length=1)] = Field(default_factory=list)
    """The Job's kinds of pods."""
    policies: list[LifecyclePolicy] = Field(default_factory=list)
    """Lifecycle policies for all tasks."""
    plugins: Annotated[
        dict[str, list[str]], supported("env, svc, pytorch; others are refused by our Job controller")
    ] = Field(default_factory=dict)
    """Plugin name to its arguments."""
    running_estimate: Annotated[GoDuration | None, kept("")] = None
    """How long the user thinks it runs."""
    queue: Annotated[SubdomainName, CrdDefault("default")] = "default"
    """The queue whose caps apply."""
    max_retry: Annotated[Count, CrdDefault(DEFAULT_MAX_RETRY)] = DEFAULT_MAX_RETRY
    """Restarts before the Job has failed; 0 is 3."""
    ttl_seconds_after_finished: Count | None = None
    """Delete the Job this many seconds after it finished."""
    priority_class_name: SubdomainName | None = None
    """Default of the pods' priority class, and that of the PodGroup."""
    min_success: Positive | None = None
    """Pods that have to succeed for the Job to be completed."""
    network_topology: Annotated[NetworkTopology | None, supported("passed on to the PodGroup")] = None
    """How close members must be."""


class JobState(ApiModel):
    """Phase, and how it came to be."""

    phase: JobPhase | None = None
    """Where the Job stands."""
    reason: str = ""
    """One word for the last change."""
    message: str = ""
    """A sentence for people."""
    last_transition_time: Time | None = None
    """When the phase or the counts last changed."""


class JobCondition(ApiModel):
    """When the Job was last in this phase."""

    status: JobPhase
    last_transition_time: Time | None = None


class TaskState(ApiModel):
    """Pods of a task by phase."""

    phase: dict[str, Int32] = Field(default_factory=dict)


class JobStatus(ApiModel):
    """What is."""

    state: JobState = Field(default_factory=JobState)
    """Phase, and how it came to be."""
    min_available: Count = 0
    """The gang's size at the last sync."""
    task_status_count: dict[str, TaskState] = Field(default_factory=dict)
    """Pods by task and phase."""
    pending: Count = 0
    """Pods that wait or start."""
    running: Count = 0
    """Pods that run."""
    succeeded: Count = 0
    """Pods that ended well."""
    failed: Count = 0
    """Pods that failed."""
    terminating: Count = 0
    """Pods that are being deleted."""
    unknown: Count = 0
    """Pods that nobody knows about (their node is silent)."""
    version: Count = 0
    """Raised at each kill of the whole Job; events of older pods count no more."""
    retry_count: Count = 0
    """Restarts so far."""
    running_duration: GoDuration | None = None
    """From creation to the end."""
    controlled_resources: dict[str, str] = Field(default_factory=dict)
    """Services, claims and the like that were made for the Job."""
    conditions: list[JobCondition] = Field(default_factory=list)
    """One entry per phase it has been in."""


class Job(ApiObject):
    """A batch job: one or more kinds of pods that run together."""

    api_version: Literal["batch.volcano.sh/v1alpha1"] = "batch.volcano.sh/v1alpha1"
    kind: Literal["Job"] = "Job"
    spec: JobSpec = Field(default_factory=JobSpec)
    status: JobStatus = Field(default_factory=JobStatus)

    GROUP: ClassVar[str] = "batch.volcano.sh"
    VERSION: ClassVar[str] = "v1alpha1"
    PLURAL: ClassVar[str] = "jobs"

    def total_replicas(self) -> int:
        """Pods of all tasks together."""
        return sum(task.replicas for task in self.spec.tasks)

    def total_min_available(self) -> int:
        """Sum over tasks of minAvailable, or replicas where it is absent."""
        return sum(
            task.replicas if task.min_available is None else task.min_available for task in self.spec.tasks
        )

    def pod_group_name(self) -> str:
        """Name of the PodGroup that belongs to this very Job."""
        return f"{self.metadata.name}-{self.metadata.uid}"
