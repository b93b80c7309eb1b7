"""How long the same calls take on a file and on a PostgreSQL server.

The server is the one that --url names, which must be an empty store or database, or one that
is started for this and forgets everything; then nothing is flushed to the disk, as it is in
earnest, and the append says how long all but that takes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import TEXT, in_turn, message

from sessionstore import SessionDB

SESSIONS = 500
MESSAGES = 2000


@contextmanager
def a_server(url: str | None) -> Iterator[str]:
    """Give the URL of a server, one of our own unless it is named."""
    if url is not None:
        yield url
        return
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from postgres_server import Server, find_binaries, new_folder

    if find_binaries() is None:
        sys.exit("no PostgreSQL server is installed here; name one with --url")
    server = Server(new_folder())
    try:
        server.make()
        server.start()
        yield server.url.render_as_string(hide_password=False)
    finally:
        server.remove()


def fill(db: SessionDB) -> None:
    """Store a long conversation and many short ones."""
    if db.session_count():
        sys.exit(f"{db.location} holds data of its own; name an empty database")
    db.create_session("long", "cli")
    db.append_messages("long", [message(number) for number in range(MESSAGES)])
    for number in range(SESSIONS):
        db.create_session(f"s{number}", "cli", title=f"Title {number}")
        db.append_messages(f"s{number}", [message(each) for each in range(5)])
    db.optimize()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help="an empty database; else a server is started")
    options = parser.parse_args(arguments)
    batch = [message(number) for number in range(500)]
    with (
        tempfile.TemporaryDirectory() as folder,
        a_server(options.url) as url,
        SessionDB(Path(folder) / "state.db") as file,
        SessionDB(url=url) as server,
    ):
        stores = (file, server)
        for db in stores:
            fill(db)
        benches = {
            "append, one message": (
                300,
                [lambda db=db: db.append_message("s1", "user", TEXT) for db in stores],
            ),
            "append, 500 in one call": (
                5,
                [lambda db=db: db.append_messages("s2", batch) for db in stores],
            ),
            f"load {MESSAGES:,} messages": (
                20,
                [lambda db=db: db.get_messages("long") for db in stores],
            ),
            f"list 20 of {SESSIONS:,} conversations": (
                40,
                [lambda db=db: db.list_sessions_rich() for db in stores],
            ),
            "… by latest activity": (
                40,
                [lambda db=db: db.list_sessions_rich(order_by_last_active=True) for db in stores],
            ),
            "get one session": (100, [lambda db=db: db.get_session("s3") for db in stores]),
        }
        print(f"{'':42}{'file':>13}{'server':>13}{'ratio':>9}")
        for what, (rounds, calls) in benches.items():
            file_ms, server_ms = in_turn(rounds, *calls)
            print(f"{what:42}{file_ms:10.3f} ms{server_ms:10.3f} ms{server_ms / file_ms:8.2f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
