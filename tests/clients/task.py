"""The task of the packages' scripts: read two files, write one, say that it is done."""

from tools import read_file, write_file

URL = "http://127.0.0.1:8012"
QUESTION = "Put both words into one file."


def run(name, arguments):
    """A call of one of the tools."""
    return {"read_file": read_file, "write_file": write_file}[name](**arguments)


def schema(*names):
    return {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": list(names),
        "additionalProperties": False,
    }


FUNCTIONS = [
    {"name": "read_file", "description": "Reads a file.", "parameters": schema("path")},
    {"name": "write_file", "description": "Writes a file.", "parameters": schema("path", "text")},
]
