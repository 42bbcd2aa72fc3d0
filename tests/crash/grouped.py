"""What the children of ``test_grouped`` do: append from many threads, or tasks, to one session."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from statebackend import AsyncStateBackend, Session, StateBackend
from tests.crash.children import say
from tests.crash.forked import in_child
from tests.crash.samples import MODEL, append, cost, item

THREADS = 8
TASKS = 32


def append_in_threads(directory: str, session_id: str) -> None:
    """Append for ever in threads, saying the id and the sequence of what is durable."""
    with StateBackend(directory).open(session_id) as session, _appending(session, told=True):
        threading.Event().wait()


@contextmanager
def _appending(session: Session, *, told: bool) -> Iterator[None]:
    done = threading.Event()

    def work(number: int) -> None:
        place = 0
        while not done.is_set():
            place += 1
            if place % 5:
                events = [append(session, f"{number}:{place}", b"x" * 700)]
            else:
                with session.batch() as batch:
                    batch.append_message(producer=MODEL, payload=b"m", cost=cost())
                    batch.append_plan(producer=MODEL, payload=b"p", items=[item()])
                events = list(batch.events)
            if told:
                _tell([(event.id, event.sequence) for event in events])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def _tell(events: list[tuple[str, int]]) -> None:
    # One call for one line, so that no line has another within it.
    os.write(1, "".join(f'["{name}", {sequence}]\n' for name, sequence in events).encode())


def append_in_tasks(directory: str, session_id: str) -> None:
    """Append for ever in tasks, saying the id and the sequence of what is durable."""

    async def work() -> None:
        async with AsyncStateBackend(directory).open(session_id) as session:

            async def forever() -> None:
                while True:
                    event = await session.append_message(
                        producer=MODEL, payload=b"x" * 700, cost=cost()
                    )
                    _tell([(event.id, event.sequence)])

            await asyncio.gather(*(forever() for _ in range(TASKS)))

    asyncio.run(work())


def fork_beside_appends(directory: str, session_id: str) -> None:
    """Fork again and again while threads append; say what an append in each child came to."""
    with StateBackend(directory).open(session_id) as session:
        with _appending(session, told=False):
            answers = {in_child(lambda: append(session)) for _ in range(20)}
        count = session.counts().events
        say([sorted(answers), append(session).sequence == count + 1])
