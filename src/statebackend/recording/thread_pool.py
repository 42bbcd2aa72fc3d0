"""A bounded pool of threads that many sessions share, and the order of the calls of each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from statebackend.errors import StateBackendError, StorageError

_T = TypeVar("_T")


class ThreadPool:
    """At most *count* threads, each started with the first work that finds none idle.

    *directory* is named in the error where no thread can be started.
    """

    def __init__(self, count: int, name: str, directory: Path) -> None:
        self._count = count
        self._name = name
        self._directory = directory
        self._pid = os.getpid()
        self._executor = ThreadPoolExecutor(count, name)

    def start(self, call: Callable[[], _T]) -> Future[_T]:
        """Let a thread call; raise :class:`StorageError` if none can be started.

        The executor keeps what it could start no thread for, and would call it with the next that
        it can: it is cancelled here, so that it is never called.
        """
        if self._pid != os.getpid():  # a forked child has none of the threads
            self._pid = os.getpid()
            self._executor = ThreadPoolExecutor(self._count, self._name)
        done: Future[_T] = Future()
        try:
            self._executor.submit(_run, done, call)
        except RuntimeError as error:
            if done.cancel():
                raise StorageError(
                    self._directory,
                    f"{error}; raise the limit of processes, or close what is open",
                ) from error
        return done


class Sequencer:
    """Runs the calls of one session in a pool: in their order, one at a time.

    An idle session has no thread, and one with much to do goes to the end of the pool's queue after
    each call.
    """

    def __init__(self, pool: ThreadPool) -> None:
        self._pool = pool
        self._mutex = Lock()
        self._calls: list[tuple[Future[Any], Callable[[], Any]]] = []
        self._is_running = False

    def start(self, call: Callable[[], _T]) -> Future[_T]:
        """Let a thread call, after the calls before; raise :class:`StorageError` if none can be.

        A cancelled future is passed over.
        """
        done: Future[_T] = Future()
        with self._mutex:
            self._calls.append((done, call))
            if not self._is_running:
                try:
                    self._pool.start(self._run_first)
                except StateBackendError:
                    self._calls.pop()
                    raise
                self._is_running = True
        return done

    def _run_first(self) -> None:
        with self._mutex:
            done, call = self._calls.pop(0)
        _run(done, call)
        while True:
            with self._mutex:
                if not self._calls:
                    self._is_running = False
                    return
                try:
                    self._pool.start(self._run_first)
                except StateBackendError:  # no further thread, so this one goes on
                    done, call = self._calls.pop(0)
                else:
                    return
            _run(done, call)


def _run(done: Future[_T], call: Callable[[], _T]) -> None:
    if done.set_running_or_notify_cancel():
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            done.set_exception(error)


async def call_in(
    threads: ThreadPool | Sequencer,
    call: Callable[[], _T],
    on_abandoned: Callable[[_T], object] | None = None,
) -> _T:
    """Return what *call* returns in a thread, with the telemetry and the context of this task.

    A cancelled task does not wait; *call* goes on, and *on_abandoned* gets its result in a thread.
    """
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[_T] = loop.create_future()
    context = copy_context()

    def work() -> None:
        try:
            result = context.run(call)
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            post(loop, partial(_fail, waiter, error))
            return
        if not post(loop, partial(deliver, result)) and on_abandoned is not None:
            on_abandoned(result)

    def deliver(result: _T) -> None:
        if not waiter.done():
            waiter.set_result(result)
        elif on_abandoned is not None:
            try:
                threads.start(partial(on_abandoned, result))
            except StateBackendError:  # no thread any more: then here
                on_abandoned(result)

    threads.start(work)
    return await waiter


def _fail(waiter: asyncio.Future[Any], error: BaseException) -> None:
    if not waiter.done():
        waiter.set_exception(error)


def post(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> bool:
    """Let the loop call back; return false when it is closed, and so nobody waits any more."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        return False
    return True
