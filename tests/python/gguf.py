"""A GGUF file with one more text in its metadata."""

import struct

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_ALIGNMENT = 32


class _Reader:
    def __init__(self, data):
        self.data, self.at = data, 24

    def number(self, form):
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def skip_text(self):
        n = self.number("Q")
        self.at += n

    def skip_value(self, kind):
        if kind == _STRING:
            self.skip_text()
        elif kind == _ARRAY:
            item, n = self.number("I"), self.number("Q")
            for _ in range(n if item == _STRING else 0):
                self.skip_text()
            self.at += 0 if item == _STRING else n * _SIZES[item]
        else:
            self.at += _SIZES[kind]


def _padded(data):
    return data + bytes(-len(data) % _ALIGNMENT)


def add_text(source, target, key, text):
    """Copies a model file. Offsets of tensors count from where their data begin: those stay."""
    data = source.read_bytes()
    magic, version, n_tensors, n_values = struct.unpack_from("<4sIQQ", data)
    assert magic == b"GGUF"
    r = _Reader(data)
    for _ in range(n_values):
        r.skip_text()
        r.skip_value(r.number("I"))
    values_end = r.at
    for _ in range(n_tensors):
        r.skip_text()
        dimensions = r.number("I")
        r.at += 8 * dimensions + 4 + 8
    body = data[len(_padded(data[: r.at])) :]
    name, value = key.encode(), text.encode()
    added = struct.pack("<Q", len(name)) + name + struct.pack("<IQ", _STRING, len(value)) + value
    head = struct.pack("<4sIQQ", magic, version, n_tensors, n_values + 1)
    target.write_bytes(_padded(head + data[24:values_end] + added + data[values_end : r.at]) + body)
