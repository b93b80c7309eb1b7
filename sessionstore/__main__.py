"""`python -m sessionstore` is the command `sessionstore`."""

from sessionstore.cli import main

if __name__ == "__main__":
    main(prog_name="sessionstore")
