"""Write the schema at head, as text, to tests/data/schema; run it with each new revision."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "migrations")]

import postgres_server  # noqa: E402 - the path is set above
import schema_files  # noqa: E402 - the path is set above

from sessionstore import schema  # noqa: E402 - the path is set above
from sessionstore.location import locate  # noqa: E402 - the path is set above

SCHEMA = Path(__file__).parent / "schema"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "head.db"
        schema_files.open_store(path)
        write("head.sqlite.sql", schema_files.sqlite_text(path))
    if postgres_server.find_binaries() is None:
        sys.exit("no PostgreSQL server here: head.postgresql.sql stays as it was")
    server = postgres_server.Server(postgres_server.new_folder())
    try:
        server.make()
        server.start()
        with postgres_server.empty_database(server.url) as url:
            schema.open_current(
                locate(url=url), schema_files.SETTINGS, read_only=False, migrate=True
            ).close()
            write("head.postgresql.sql", schema_files.postgres_text(url))
    finally:
        server.remove()


def write(name: str, text: str) -> None:
    (SCHEMA / name).write_text(text)
    print(f"wrote {name}")


if __name__ == "__main__":
    main()
