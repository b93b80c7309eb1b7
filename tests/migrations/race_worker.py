"""What one of several processes does in a race: wait for the others, open, close."""

from __future__ import annotations

import traceback
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import schema_files as files


def open_each(paths: list[Path], barrier: Barrier, failures: Queue) -> None:
    for path in paths:
        barrier.wait(60)
        try:
            files.open_store(path)
        except BaseException:  # noqa: BLE001 - whatever it is, the test wants to see it
            failures.put(f"{path.name}: {traceback.format_exc()}")
