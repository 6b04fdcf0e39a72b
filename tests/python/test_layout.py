"""The structures and functions of hearth._native are those of client/hearth.h."""

import ctypes
import re
import subprocess

from conftest import ROOT

from hearth import _native

HEADER = ROOT / "client" / "hearth.h"


def without_comments():
    return re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.S)


def header_structures():
    """{name: [field, ...]} of every structure with a body."""
    found = {}
    for name, body in re.findall(r"struct (\w+)\s*\{(.*?)\}\s*;", without_comments(), flags=re.S):
        fields = [d for line in body.split(";") for d in line.split(",") if d.strip()]
        found[name] = [re.search(r"(\w+)\s*$", field).group(1) for field in fields]
    return found


def ask_compiler(tmp_path, expressions):
    """The values of C expressions."""
    lines = "".join(f'    printf("%lld\\n", (long long)({e}));\n' for e in expressions)
    source = tmp_path / "ask.c"
    source.write_text(
        f'#include <stdio.h>\n#include "{HEADER}"\nint main(void)\n{{\n{lines}    return 0;\n}}\n'
    )
    subprocess.run(["gcc", "-o", tmp_path / "ask", source], check=True)
    return [int(n) for n in subprocess.check_output([tmp_path / "ask"]).split()]


def test_every_structure_has_every_field_in_the_headers_order():
    ours = {name: [field[0] for field in s._fields_] for name, s in _native.STRUCTURES.items()}
    assert ours == header_structures()


def test_sizes_and_offsets_are_the_compilers(tmp_path):
    asked, ours = [], []
    for name, s in _native.STRUCTURES.items():
        asked.append(f"sizeof(struct {name})")
        ours.append(ctypes.sizeof(s))
        for field, _ in s._fields_:
            asked.append(f"offsetof(struct {name}, {field})")
            asked.append(f"sizeof(((struct {name} *)0)->{field})")
            ours += [getattr(s, field).offset, getattr(s, field).size]
    assert ours == ask_compiler(tmp_path, asked)


def test_signs_and_floats_are_the_headers(tmp_path):
    """A field that is assigned -1.5: what is left says whether it is signed, and whether it is a float."""
    plain = (ctypes.c_uint32, ctypes.c_int32, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_float)
    asked, ours = [], []
    for name, s in _native.STRUCTURES.items():
        for field, kind in s._fields_:
            if kind in plain:
                asked.append(f"2 * ((__typeof__(((struct {name} *)0)->{field}))-1.5 < 0)")
                asked.append(f"((__typeof__(((struct {name} *)0)->{field}))1.5 > 1)")
                ours += [2 * (kind in (ctypes.c_int32, ctypes.c_float)), int(kind is ctypes.c_float)]
    assert ours == ask_compiler(tmp_path, asked)


def test_constants_are_the_headers(tmp_path):
    ours = {
        "HEARTH_POLLABLE": _native.POLLABLE,
        "HEARTH_NONBLOCK": _native.NONBLOCK,
        "HEARTH_ADD_BOS": _native.ADD_BOS,
        "HEARTH_SPECIAL": _native.SPECIAL,
        "HEARTH_TOKENS": _native.TOKENS,
        "HEARTH_PROGRESS": _native.PROGRESS,
        "HEARTH_DONE": _native.DONE,
        "HEARTH_ANY_SLOT": _native.ANY_SLOT,
        **{f"HEARTH_{name.upper()}": number for number, name in _native.REASONS.items()},
        **{f"HEARTH_{name.upper()}": number for name, number in _native.PRIORITIES.items()},
        **{f"HEARTH_FIM_{name.upper()}": number for name, number in _native.FIM_ORDERS.items()},
    }
    assert list(ours.values()) == ask_compiler(tmp_path, ours)
    enums = ("hearth_reason", "hearth_event_kind", "hearth_text_flags", "hearth_priority", "hearth_fim_order")
    for enum in enums:
        body = re.search(rf"enum {enum}\s*\{{(.*?)\}}", without_comments(), flags=re.S).group(1)
        assert set(re.findall(r"HEARTH_\w+", body)) <= set(ours)


def test_functions_take_what_the_header_says():
    declared = {
        name: arguments.count(",") + 1
        for name, arguments in re.findall(
            r"HEARTH_API[^;]*?\b(hearth_\w+)\s*\((.*?)\)\s*;", without_comments(), flags=re.S
        )
    }
    for name, (_, arguments) in _native._FUNCTIONS.items():
        assert declared[name] == len(arguments), name


def test_the_package_may_lie_near_the_root(monkeypatch):
    monkeypatch.delenv("HEARTH_LIBRARY")
    monkeypatch.setattr(_native, "__file__", "/app/hearth/_native.py")
    assert _native._candidates() == [_native.SONAME, "/build/lib/" + _native.SONAME]
