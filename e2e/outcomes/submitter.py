"""Small Jobs, one after the other, while something else happens: nobody who submits shall notice."""

import threading
from dataclasses import dataclass, field

from stack.kit import Json

from outcomes.workload import Task, job, shares
from outcomes.world import World


@dataclass
class Submitter:
    """Submits small Jobs one after the other, each run to its end, as long as it is let."""

    here: World
    policies: tuple[Json, ...] = ()
    max_retry: int = 3
    done: int = 0
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Submitter":
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(timeout=300)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            name = f"small-{number}"
            try:
                task = Task(shares(1000, 1), replicas=2, command="exit 0")
                self.here.apply(
                    job(name, task, queue=self.here.queue, policies=self.policies, maxRetry=self.max_retry)
                )
                self.here.until(f"{name} is done", name, succeeded, timeout_s=90)
            except Exception as error:  # noqa: BLE001 - whatever it was, the test tells it
                self.failures.append(f"{name}: {error}\n{self.here.why(name)}")
                self._stop.wait(1)
            else:
                self.done += 1


def succeeded(pods: dict[str, Json]) -> bool:
    return len(pods) == 2 and all(found["status"].get("phase") == "Succeeded" for found in pods.values())
