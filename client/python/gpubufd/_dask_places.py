"""Where daemons are: this process's own, and those beside the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import socket
import sys
from typing import Any, Callable, Dict, Iterable, List, Tuple, Union

from . import _errors
from ._client import Client, default_client, forget
from ._errors import failure
from ._told import Info

TRIES = 50  # attempts at a step that other programs may disturb


def local_daemon() -> Client:
    """This process's connection to the daemon of its machine."""
    return default_client(name="dask", cache_leases=False)  # leases are counted, those cached are not


def found_here(prefix: str) -> List[Info]:
    """The objects of this process's daemon whose names begin so; a * there is no wildcard."""
    return [info for info in local_daemon().list(f"{prefix}*") if info.name.startswith(prefix)]


def delete_here(*names: str) -> None:
    """Deletes those of the names that are in this process's daemon; they are no patterns."""
    for name in names:
        try:
            local_daemon().call("delete", {"name": name})
        except _errors.NotFound:
            pass


def host_name() -> str:
    return socket.gethostname()


def tell_place() -> Tuple[str, str]:
    """(instance of the daemon, name of the host). The daemon has just answered."""
    client = local_daemon()
    try:
        client.call("list", {"limit": 1})
    except _errors.Closed:  # not resumed in time: a new connection may find another daemon
        forget(client)
        client = local_daemon()
    return client.instance, host_name()


def is_here(instance: str) -> bool:
    """Whether this process's daemon is that instance, and answers."""
    try:
        return tell_place()[0] == instance
    except (_errors.Closed, _errors.ConnectFailed, _errors.Timeout):
        return False


@dataclasses.dataclass(eq=False)
class Place:
    """A daemon: the name of its host and the workers beside it."""

    host: str
    workers: List[str] = dataclasses.field(default_factory=list)


class Here:
    """The daemon of this process's machine, and whichever scheduler Dask uses in it."""

    advice = "This process reaches the daemon of its own machine alone: give a distributed.Client"

    def survey(self) -> Dict[str, Place]:
        instance, host = tell_place()
        return {instance: Place(host)}

    def each(self, places: Dict[str, Place], function: Callable[..., Any], *args: Any) -> Dict[str, Any]:
        return {instance: function(*args) for instance in places}

    def hold(self, places: Dict[str, Place], function: Callable[..., Any], *args: Any) -> Dict[str, Any]:
        manifest, *rest = args
        return {instance: function(manifest, instance, *rest) for instance in places}

    def compute(self, tasks: List[Any], places: Dict[str, Place], tell: Callable[[int], None]) -> List[Any]:
        import dask
        from dask.callbacks import Callback

        left = {task.key for task in tasks}

        def done(key: Any, *_: Any) -> None:
            left.discard(key)
            tell(len(tasks) - len(left))

        with Callback(posttask=done):
            return list(dask.compute(*tasks))


async def _in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Runs the call on a thread, so that a worker's loop does not wait for its daemon."""
    return await asyncio.to_thread(function, *args)


class Cluster:
    """The daemons beside the workers of a distributed.Client."""

    advice = ("No worker of the cluster reaches that daemon: it has ended, or the workers beside it have. "
              "If it lives, start a worker on that host; if not, publish again")

    def __init__(self, client: Any):
        self.client = client

    def _run(self, workers: Iterable[str], function: Callable[..., Any], *args: Any) -> Dict[str, Any]:
        return self.client.run(_in_thread, function, *args, workers=list(workers), on_error="return")

    def survey(self) -> Dict[str, Place]:
        """Every daemon that a worker reaches, by its instance."""
        places: Dict[str, Place] = {}
        errors = []
        for worker, told in sorted(self._run(self.client.nthreads(), tell_place).items()):
            if isinstance(told, BaseException):
                errors.append((worker, told))
                continue
            instance, host = told
            places.setdefault(instance, Place(host)).workers.append(worker)
        if not places:
            if not errors:
                raise failure("connect", "the cluster has no workers")
            raise failure("connect", f"no worker reaches a daemon; {errors[0][0]}: {errors[0][1]}")
        return places

    def each(self, places: Dict[str, Place], function: Callable[..., Any], *args: Any) -> Dict[str, Any]:
        """The results of a function, run beside each daemon."""
        by_worker = {place.workers[0]: (instance, place) for instance, place in places.items()}
        answers = self._run(by_worker, function, *args)
        results = {}
        for worker, (instance, place) in by_worker.items():
            result = answers.get(worker)
            if isinstance(result, _errors.Error):
                raise _errors.make(result.code, result.kind, f"on host {place.host!r}: {result}")
            if isinstance(result, BaseException):
                raise failure("connect", f"the worker {worker} on host {place.host!r} has failed: {result!r}")
            results[instance] = result
        return results

    def hold(self, places: Dict[str, Place], function: Callable[..., Any], *args: Any) -> Dict[str, Any]:
        """Runs a task beside each daemon. The returned futures keep its results, and these the leases."""
        manifest, *rest = args
        futures = {}
        missing = dict(places)
        for _ in range(TRIES):
            # Others are allowed, so that Dask can run the task again after these have ended. Dask may also send a
            # task there because these are busy: then it holds nothing, and is submitted again.
            futures.update({
                instance: self.client.submit(
                    function, manifest, instance, *rest, workers=place.workers, allow_other_workers=True,
                    pure=False, priority=10, key=f"{function.__name__}-{secrets.token_hex(16)}",
                )
                for instance, place in missing.items()
            })
            missing = {i: places[i] for i in missing if not futures[i].result().held}
            if not missing:
                return futures
            if not set(self.client.nthreads()).issuperset(w for p in missing.values() for w in p.workers):
                break
        hosts = ", ".join(sorted(place.host for place in missing.values()))
        raise failure("stale", f"the workers beside the daemon on host {hosts} have ended")

    def wait(self, future: Any, workers: List[str]) -> bool:
        """Waits for a task that only those workers may run; False: all of them have ended."""
        while not future.done():
            if not self._wait_a_moment(future, workers):
                return False
        return True

    def _wait_a_moment(self, future: Any, workers: List[str]) -> bool:
        try:
            future.exception(timeout=1)
        except (TimeoutError, asyncio.TimeoutError):
            return bool(set(workers) & set(self.client.nthreads()))
        return True

    def compute(self, tasks: List[Any], places: Dict[str, Place], tell: Callable[[int], None]) -> List[Any]:
        """The results of tasks that only workers beside daemons may run; calls tell(number of tasks done)."""
        workers = [worker for place in places.values() for worker in place.workers]
        return self.gather(self.client.compute(tasks), [[workers]] * len(tasks), tell)

    def gather(self, futures: List[Any], needed: List[List[List[str]]], tell: Callable[[int], None]) -> List[Any]:
        """compute() for submitted tasks. `needed`: groups of workers for each; it needs one worker of each group."""
        try:
            while not any(future.status == "error" for future in futures):
                pending = [i for i, future in enumerate(futures) if not future.done()]
                tell(len(futures) - len(pending))
                if not pending:
                    break
                self._wait_a_moment(futures[pending[0]], [])
                there = set(self.client.nthreads())
                if any(not there.intersection(group) for i in pending for group in needed[i] if not futures[i].done()):
                    raise failure("connect", "the workers beside daemons have ended")
            return self.client.gather(futures)
        except BaseException:
            self.client.cancel(futures)
            raise


def places_of(client: Any) -> Union[Here, Cluster]:
    """Where to publish to and load from; `client`: a distributed.Client or None."""
    import dask

    if client is None:
        scheduler = dask.config.get("scheduler", None)
        if "distributed" not in sys.modules or scheduler not in (None, "distributed", "dask.distributed"):
            return Here()
        import distributed

        try:
            client = distributed.get_client()
        except ValueError:
            return Here()
    if not hasattr(client, "run") or not hasattr(client, "submit"):
        raise TypeError(f"client is a {type(client).__name__}: expected a distributed.Client")
    if client.asynchronous:
        raise TypeError("the distributed.Client is asynchronous: use one that is not, in a thread")
    return Cluster(client)
