"""The tools of the task (task.py); also the functions that the llm program is given."""

import pathlib


def read_file(path: str) -> str:
    """Reads a file.

    Args:
        path: Its name.
    """
    return pathlib.Path(path).read_text()


def write_file(path: str, text: str) -> str:
    """Writes a file.

    Args:
        path: Its name.
        text: What it is to hold.
    """
    return f"{pathlib.Path(path).write_text(text)} characters"
