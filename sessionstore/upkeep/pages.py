"""Read the tables of a SQLite file page by page, without SQLite, as far as pages are whole.

SQLite gives up a table at its first damaged page. What is on the others is still there, and
so are leaf pages that no page above leads to any more. The format is SQLite's own and is
promised to stay (https://www.sqlite.org/fileformat2.html); the numbers here are its.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

_MAGIC = b"SQLite format 3\0"
_HEADER = 100
_TABLE_LEAF, _TABLE_INTERIOR = 0x0D, 0x05
_BTREE = {0x02, 0x05, 0x0A, 0x0D}
_SIZES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
_ENCODINGS = {1: "utf-8", 2: "utf-16-le", 3: "utf-16-be"}
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_REAL, _ZERO, _ONE, _BLOB = 7, 8, 9, 12
# The share of the best guess at a page size that is as good as it.
_GOOD = 0.8
# So many pages tell more of their size than a header does.
_ENOUGH_PAGES = 8
# So many leaf pages tell how they are to be read.
_SAMPLE = 40
_KINDS = {(each,) for each in ("table", "index", "view", "trigger")}
_VARINT, _SEVEN_BITS, _MORE = 9, 0x7F, 0x80


class BrokenText(bytes):
    """The bytes of a text that are none in the file's encoding."""

    __slots__ = ()


Value: TypeAlias = int | float | str | bytes | None
Row: TypeAlias = tuple[int, tuple[Value, ...]]


class DamagedError(ValueError):
    """A page, a cell or a record does not follow the format."""


@dataclass
class Pages:
    """The pages of a file, those that stand in its write-ahead log before its own.

    Attributes:
        file: An open descriptor of it.
        size: Bytes of a page.
        usable: Bytes of it that hold content.
        count: How many pages there should be.
        last: The last page that is there.
        encoding: Of its texts.
        log: The log's descriptor and where in it the newest form of a page begins.
        problems: What was found wrong, a sentence each.
        seen: The pages that were reached and read.
    """

    file: int
    size: int = 4096
    usable: int = 4096
    count: int = 0
    last: int = 0
    encoding: str = "utf-8"
    log: tuple[int, dict[int, int]] | None = None
    problems: list[str] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def page(self, number: int) -> bytes:
        """Give a page.

        Raises:
            DamagedError: The file ends before its end, or the disk does not give it.
        """
        try:
            if self.log and number in self.log[1]:
                found = os.pread(self.log[0], self.size, self.log[1][number])
            else:
                found = os.pread(self.file, self.size, max(number - 1, 0) * self.size)
        except (OSError, OverflowError) as error:  # a bad sector, or no place in any file
            msg = f"page {number} cannot be read from the disk"
            raise DamagedError(msg) from error
        if number < 1 or len(found) < self.size:
            msg = f"page {number} is not in the file"
            raise DamagedError(msg)
        return found

    def walk(self, root: int, name: str) -> Iterator[Row]:
        """Yield the rows of the table below a page, in the order of their ids."""
        waiting = [root]
        while waiting:
            number = waiting.pop()
            if number in self.seen:
                self.problems.append(f"{name}: page {number} is reached twice")
                continue
            try:
                page = self.page(number)
                kind = _kind(page, number)
                if kind == _TABLE_LEAF:
                    self.seen.add(number)
                    yield from self.rows(number, name)
                elif kind == _TABLE_INTERIOR:
                    self.seen.add(number)
                    waiting.extend(reversed(_children(page, number)))
                else:
                    self.problems.append(f"{name}: page {number} is not a page of a table")
            except DamagedError as error:
                self.problems.append(f"{name}: {error}")

    def rows(self, number: int, name: str) -> Iterator[Row]:
        """Yield the rows on a leaf page; what cannot be read becomes a problem."""
        try:
            page = self.page(number)
            cells = _pointers(page, number)
        except DamagedError as error:
            self.problems.append(f"{name}: {error}")
            return
        last: int | None = None
        for at in cells:
            try:
                row = self._row(page, at)
            except DamagedError as error:
                self.problems.append(f"{name}: a row on page {number} cannot be read ({error})")
                continue
            if last is not None and row[0] <= last:
                self.problems.append(f"{name}: the rows on page {number} are out of order")
            last = row[0]
            yield row

    def leaves(self) -> Iterator[int]:
        """List the leaf pages of tables that were not reached and are not free."""
        free = self._free()
        for number in range(1, min(self.count, self.last) + 1):
            if number in self.seen or number in free:
                continue
            try:
                if _kind(self.page(number), number) == _TABLE_LEAF:
                    yield number
            except DamagedError:
                continue

    def _row(self, page: bytes, at: int) -> Row:
        length, at = _varint(page, at)
        rowid, at = _varint(page, at)
        if not 0 <= length <= self.last * self.size:
            msg = f"it would be {length} bytes long"
            raise DamagedError(msg)
        payload = self._payload(page, at, length)
        return rowid, _record(payload, self.encoding)

    def _payload(self, page: bytes, at: int, length: int) -> bytes:
        """Collect a payload, of which what does not fit lies on a chain of other pages."""
        most = self.usable - 35
        if length <= most:
            here = length
        else:
            least = (self.usable - 12) * 32 // 255 - 23
            here = least + (length - least) % (self.usable - 4)
            here = here if here <= most else least
        parts = [page[at : at + here]]
        if len(parts[0]) < here or at + here > self.usable:
            msg = "it leaves its page"
            raise DamagedError(msg)
        left = length - here
        following = _number(page, at + here) if left else 0
        while left > 0:
            more = self.page(following)
            parts.append(more[4 : min(self.usable, 4 + left)])
            left -= len(parts[-1])
            following = _number(more, 0)
            if left > 0 and not following:
                msg = "the chain of its pages ends too early"
                raise DamagedError(msg)
        if following and length > here:
            msg = "the chain of its pages does not end"
            raise DamagedError(msg)
        return b"".join(parts)

    def _free(self) -> set[int]:
        """List the free pages, which hold rows that were deleted; empty if nobody can tell."""
        free: set[int] = set()
        try:
            trunk = _number(self.page(1), 32) if self.page(1).startswith(_MAGIC) else 0
            while trunk and trunk not in free:
                free.add(trunk)
                page = self.page(trunk)
                count = min(_number(page, 4), self.usable // 4 - 2)
                free.update(_number(page, 8 + 4 * each) for each in range(count))
                trunk = _number(page, 0)
        except DamagedError as error:
            self.problems.append(f"free pages: {error}")
        return free


def open_pages(file: int, length: int) -> Pages:
    """Find out how the pages of a file are laid out, by its header and by trying.

    A single bit may make one plausible header of another, so what it says is believed only as
    far as the pages agree.

    Args:
        file: Its descriptor.
        length: Its bytes.
    """
    header = os.pread(file, _HEADER, 0)
    pages = Pages(file)
    if len(header) < _HEADER:
        pages.problems.append("the file is shorter than a header")
        return pages
    told_size = 65536 if header[16:18] == b"\x00\x01" else int.from_bytes(header[16:18])
    intact = header.startswith(_MAGIC) and told_size in _SIZES
    pages.size = _size(file, length, told_size if intact else None)
    reserved, encoding = header[20], _ENCODINGS.get(_number(header, 56), "utf-8")
    pages.last = -(-length // pages.size)
    pages.usable, pages.encoding = _layout(pages, reserved if intact else 0, encoding)
    layout = (pages.size, pages.size - pages.usable, pages.encoding)
    if not intact or layout != (told_size, reserved, encoding):
        intact = False
        pages.problems.append("the header is damaged")
    # The count in the header holds if the same change wrote both.
    told = _number(header, 28) if intact and header[24:28] == header[92:96] else 0
    pages.count = told or pages.last
    if told * pages.size > length:
        pages.problems.append(f"the file ends after {length:,} of {told * pages.size:,} bytes")
    return pages


def _size(file: int, length: int, told: int | None) -> int:
    """Say how large the pages are; what the header tells counts where there are only a few."""
    likely = {each: _likely(file, length, each) for each in _SIZES}
    best = max(likely.values())
    # Every second page, or fourth, looks as good as every page: the smallest size has it.
    good = min(each for each in _SIZES if likely[each] >= _GOOD * best)
    sure = best > 0 and length // good >= _ENOUGH_PAGES
    return good if told is None or sure else told


def _layout(pages: Pages, reserved: int, encoding: str) -> tuple[int, str]:
    """Choose how many bytes of a page count and how its texts are encoded, by what makes sense."""
    some: list[int] = []
    for number in range(1, pages.last + 1):
        with suppress(DamagedError):
            if _kind(pages.page(number), number) == _TABLE_LEAF:
                some.append(number)
        if len(some) == _SAMPLE:
            break
    ways = [
        (pages.size - unused, each)
        for unused in dict.fromkeys((reserved, 0))
        for each in dict.fromkeys((encoding, *_ENCODINGS.values()))
        if pages.size - unused >= _SIZES[0] - 32
    ]

    def sense(way: tuple[int, str]) -> int:
        tried = replace(pages, usable=way[0], encoding=way[1], problems=[], seen=set())
        good = 0
        for number in some:
            for _, values in tried.rows(number, ""):
                good += not any(isinstance(value, BrokenText) for value in values)
                # The kinds of entries in a schema are the same in each file.
                good += _SAMPLE * (values[:1] in _KINDS)
        return good - len(tried.problems)

    return max(ways, key=sense)


def _likely(file: int, length: int, size: int) -> float:
    """Say how many of the pages begin as pages do, if they are of this size."""
    starts = range(size, min(length, 1000 * size), size)
    found = 0
    for at in starts:
        page = os.pread(file, 12, at)
        cells, content = struct.unpack(">HH", page[3:7].ljust(4, b"\0"))
        found += page[0] in _BTREE and 8 + 2 * cells <= (content or 65536) <= size
    return found / max(len(starts), 1)


@dataclass(frozen=True)
class Log:
    """What of a write-ahead log was committed.

    Attributes:
        places: Where the newest form of a page begins, by its number.
        count: How many pages the file has by the last commit.
        damaged: How many of its pages cannot be trusted.
    """

    places: dict[int, int]
    count: int
    damaged: int


def read_log(log: int, length: int, size: int) -> Log:
    """Find the committed pages in a write-ahead log.

    SQLite ends at the first page whose checksum is wrong. Each checksum goes on from the one
    before, which is stored: so those after a damaged page can be checked as well.
    """
    header = os.pread(log, 32, 0)
    order = ">" if header[:4] == b"\x37\x7f\x06\x83" else "<"
    places: dict[int, int] = {}
    pending: dict[int, int] = {}
    count = damaged = suspect = 0
    salts, last = header[16:24], header[24:32]
    told = struct.unpack(">II", header[24:32].ljust(8, b"\0"))
    if not any(told) or _checksum(header[:24], (0, 0), order) != told:
        salts = os.pread(log, 8, 40)
    for at in range(32, length - size - 23, size + 24):
        frame = os.pread(log, 24 + size, at)
        if frame[8:16] != salts:
            suspect += 1  # of an earlier round, which was moved into the file, or damaged
            last = frame[16:24]
            continue
        seed = struct.unpack(">II", last)
        told = struct.unpack(">II", frame[16:24])
        last = frame[16:24]
        damaged, suspect = damaged + suspect, 0
        if _checksum(frame[24:], _checksum(frame[:8], seed, order), order) != told:
            damaged += 1
            continue
        pending[_number(frame, 0)] = at + 24
        if commit := _number(frame, 4):
            count = commit
            places |= pending
            pending.clear()
    return Log(places, count, damaged)


def _checksum(data: bytes, seed: tuple[int, int], order: str) -> tuple[int, int]:
    one, two = seed
    words = struct.unpack(f"{order}{len(data) // 4}I", data[: len(data) // 4 * 4])
    for first, second in zip(words[::2], words[1::2], strict=False):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


def _number(page: bytes, at: int) -> int:
    return int.from_bytes(page[at : at + 4])


def _kind(page: bytes, number: int) -> int:
    return page[_HEADER if number == 1 else 0]


def _pointers(page: bytes, number: int) -> tuple[int, ...]:
    """Say where on a page its cells begin, in their order."""
    start = _HEADER if number == 1 else 0
    cells = int.from_bytes(page[start + 3 : start + 5])
    first = start + (12 if page[start] == _TABLE_INTERIOR else 8)
    if first + 2 * cells > len(page):
        msg = f"page {number} would have {cells} cells"
        raise DamagedError(msg)
    return struct.unpack_from(f">{cells}H", page, first)


def _children(page: bytes, number: int) -> list[int]:
    start = _HEADER if number == 1 else 0
    cells = _pointers(page, number)
    return [*(_number(page, at) for at in cells), _number(page, start + 8)]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_VARINT):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        if place == _VARINT - 1:
            value = value << 8 | byte
            return (value - (1 << 64) if value >> 63 else value), at
        value = value << 7 | byte & _SEVEN_BITS
        if byte < _MORE:
            return value, at
    msg = "a number does not end"
    raise DamagedError(msg)


def _record(payload: bytes, encoding: str) -> tuple[Value, ...]:
    """Take a record apart.

    Raises:
        DamagedError: Its header and its length do not agree.
    """
    end, at = _varint(payload, 0)
    if not at <= end <= len(payload):
        msg = "its header is longer than it is"
        raise DamagedError(msg)
    values: list[Value] = []
    body = end
    while at < end:
        kind, at = _varint(payload, at)
        value, body = _value(payload, body, kind, encoding)
        values.append(value)
    if at != end or body != len(payload):
        msg = "its header does not fit its length"
        raise DamagedError(msg)
    return tuple(values)


def _value(payload: bytes, at: int, kind: int, encoding: str) -> tuple[Value, int]:
    if kind in {0, _ZERO, _ONE}:
        return {0: None, _ZERO: 0, _ONE: 1}[kind], at
    if kind == _REAL:
        length = 8
    elif kind in _INTEGERS:
        length = _INTEGERS[kind]
    elif kind >= _BLOB:
        length = (kind - _BLOB) // 2
    else:
        msg = f"there is no type {kind}"
        raise DamagedError(msg)
    held = payload[at : at + length]
    if len(held) < length:
        msg = "a value is longer than it is"
        raise DamagedError(msg)
    at += length
    if kind == _REAL:
        return struct.unpack(">d", held)[0], at
    if kind in _INTEGERS:
        return int.from_bytes(held, signed=True), at
    if kind % 2 == 0:
        return held, at
    try:
        return held.decode(encoding), at
    except UnicodeDecodeError:
        return BrokenText(held), at
