"""The names of the pods of each task, as files and as variables of the plugin svc.

Files hold any number of names. Variables do not: Linux starts no program with one of 128 KiB, or with some
MiB of all of them. So a list that is too long is no variable, and stands in its file alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from vc_egpu.volcano.api.job import Job, Task

LONGEST_LIST: Final = 64 * 1024
"""Bytes of a list that is a variable."""
LONGEST_LISTS: Final = 256 * 1024
"""Bytes of all lists of a Job that are variables."""


def host_of(job: Job, task: Task, index: int) -> str:
    """The name under which a pod of the Job is found in its namespace."""
    spec = task.template.spec
    host = spec.get("hostname") or f"{job.metadata.name}-{task.name}-{index}"
    return f"{host}.{spec.get('subdomain') or job.metadata.name}"


def upper(task: Task) -> str:
    """The task's name as a part of a variable's."""
    return task.name.replace("-", "_").upper()


@dataclass(frozen=True)
class HostLists:
    """The lists of one completed Job. Sizes are worked out without the names."""

    job: Job
    in_variables: bool = True
    """False: pods get no variables, as ``--inject-hosts-env=false`` says."""

    @cached_property
    def variables(self) -> list[str]:
        """The names of the variables of each container, which are keys of the ConfigMap."""
        if not self.in_variables:
            return []
        return [
            name
            for task in self.job.spec.tasks
            for name in (_list_name(task), _count_name(task))
            if name not in self.too_long
        ]

    @cached_property
    def too_long(self) -> dict[str, int]:
        """The lists that are no variables because they are too long, with their bytes."""
        sizes = {_list_name(task): self._bytes_of(task) for task in self.job.spec.tasks}
        long = {name: size for name, size in sizes.items() if size > LONGEST_LIST}
        if sum(sizes.values()) - sum(long.values()) > LONGEST_LISTS:
            return sizes
        return long

    @cached_property
    def size(self) -> int:
        """Bytes of all values of :meth:`data`, or a little more."""
        files = sum(self._bytes_of(task) for task in self.job.spec.tasks)
        lists = sum(
            self._bytes_of(task) for task in self.job.spec.tasks if _list_name(task) not in self.too_long
        )
        return files + lists + 8 * len(self.job.spec.tasks)

    def left_out(self) -> str:
        """A sentence on the lists that are too long for variables; empty if there are none."""
        if not self.in_variables or not self.too_long:
            return ""
        name, size = max(self.too_long.items(), key=lambda item: item[1])
        others = f" and {len(self.too_long) - 1} more" if len(self.too_long) > 1 else ""
        most = f"a list may have {LONGEST_LIST} bytes, all together {LONGEST_LISTS}"
        return f"no variable {name} ({size} bytes){others}: {most}; the files in /etc/volcano have all hosts"

    def data(self) -> dict[str, str]:
        """The values of the ConfigMap.

        A list that is no variable any more stays as an empty value: a pod from before that names it would
        otherwise not start again.
        """
        data: dict[str, str] = {}
        for task in self.job.spec.tasks:
            hosts = list(self._hosts(task))
            name = _list_name(task)
            data[f"{task.name.replace('-', '_')}.host"] = "\n".join(hosts)
            data[name] = "" if name in self.too_long else ",".join(hosts)
            data[_count_name(task)] = str(len(hosts))
        return data

    def _count_of(self, task: Task) -> int:
        # With a host name in the template, all pods of the task have the same.
        return min(task.replicas, 1) if task.template.spec.get("hostname") else task.replicas

    def _hosts(self, task: Task) -> Iterator[str]:
        return (host_of(self.job, task, index) for index in range(self._count_of(task)))

    def _bytes_of(self, task: Task) -> int:
        """The names and what stands between them."""
        count = self._count_of(task)
        if not count:
            return 0
        one = len(host_of(self.job, task, 0).encode()) + 1
        digits = sum(max(0, count - 10**power) for power in range(1, len(str(count))))
        return count * one - 1 + (0 if task.template.spec.get("hostname") else digits)


def _list_name(task: Task) -> str:
    return f"VC_{upper(task)}_HOSTS"


def _count_name(task: Task) -> str:
    return f"VC_{upper(task)}_NUM"
