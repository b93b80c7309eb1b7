"""What the readers of other programs' histories have in common."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from sessionstore.errors import ImportRejectedError
from sessionstore.readers.jsonl import LONGEST_BYTES, UnreadableError, documents


class History:
    """The history of one program, at one place; gone through once.

    Args:
        path: A file, or a folder that is searched to its bottom.
        longest: How many bytes a line may have.

    Attributes:
        current: The file that is being read, or that an error is about.
        unkept: How many records of each kind do not come along.
        other_files: How many files of the folder are none of the program's histories.
        unfinished: Files whose last line is half written: it is left for the next time.
    """

    program: str
    patterns: tuple[str, ...]

    def __init__(self, path: str | os.PathLike[str], *, longest: int = LONGEST_BYTES) -> None:
        self.path, self.longest = Path(path), longest
        self.current = str(path)
        self.unkept: Counter[str] = Counter()
        self.other_files = 0
        self.unfinished: list[str] = []
        self._found = 0

    def sessions(self) -> Iterator[dict[str, Any]]:
        """Yield each session with its messages, as an export has them, file by file.

        Raises:
            ImportRejectedError: A record is damaged, or there is no conversation at all.
        """
        for file in self._files():
            self.current = str(file)
            for session in self._sessions_of(file):
                self._found += 1
                yield session
        if not self._found:
            self.current = str(self.path)
            msg = f"no conversation of {self.program} is in it; nothing was imported"
            raise ImportRejectedError(msg)

    def _files(self) -> list[Path]:
        """List the files to read: the one that was named, or those in the folder, in order."""
        if not self.path.is_dir():
            return [self.path]
        found = sorted(each for each in self.path.rglob("*") if each.is_file())
        wanted = [each for each in found if any(map(each.match, self.patterns))]
        self.other_files = len(found) - len(wanted)
        return wanted

    def _sessions_of(self, file: Path) -> Iterator[dict[str, Any]]:
        raise NotImplementedError

    def _records(self, stream: BinaryIO) -> Iterator[dict[str, Any]]:
        """Yield the records of an open file; each is an object."""

        def unfinished() -> None:
            if self.current not in self.unfinished:
                self.unfinished.append(self.current)

        for number, record in documents(
            stream, self.current, longest=self.longest, unfinished=unfinished
        ):
            if not isinstance(record, dict):
                said = f"a record is an object, not {type(record).__name__}"
                raise UnreadableError(self.current, number, said)
            yield record
