"""Writes a wheel of the package that carries libhearth and what that needs: make_wheel.py LIBRARIES FOLDER,
from client/python; LIBRARIES is a folder.

The same bytes each time: no date, user or order of files goes into it. Needs nothing but Python 3.11."""
import base64
import hashlib
import pathlib
import sys
import tomllib
import zipfile

# The least glibc is that of Debian 12, which releases are built on.
TAG = "py3-none-manylinux_2_36_x86_64"

libraries, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]
label = f"{project['name']}-{project['version']}"
info = f"{label}.dist-info"

files = {
    str(path): path.read_bytes()
    for path in sorted(pathlib.Path("hearth").iterdir())
    if path.suffix == ".py" or path.name == "py.typed"
}
files.update({f"hearth/{path.name}": path.read_bytes() for path in sorted(libraries.iterdir())})
files[f"{info}/licenses/LICENSE"] = pathlib.Path("../../LICENSE").read_bytes()
files[f"{info}/METADATA"] = (
    f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    f"Summary: {project['description']}\nRequires-Python: {project['requires-python']}\n"
    + "".join(f"Classifier: {classifier}\n" for classifier in project["classifiers"])
    + "Description-Content-Type: text/markdown\n\n"
    + pathlib.Path(project["readme"]).read_text()
).encode()
files[f"{info}/WHEEL"] = (
    f"Wheel-Version: 1.0\nGenerator: hearth\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode()
)
files[f"{info}/entry_points.txt"] = "".join(
    f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
    for group, entries in project.get("entry-points", {}).items()
).encode()


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in files.items())
files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()

wheel = out / f"{label}-{TAG}.whl"
with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    for name, data in files.items():
        entry = zipfile.ZipInfo(name)
        entry.external_attr = (0o755 if ".so." in name else 0o644) << 16
        entry.create_system = 3
        entry.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(entry, data)
print(wheel)
