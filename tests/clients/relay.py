"""Carries a client's connections to the Unix socket of hearth-http, and keeps the bytes of both directions: a client in a
network namespace of its own reaches nothing else.

    relay.py SOCKET FOLDER COMMAND...

Runs in a network namespace of its own, where it brings loopback up, listens on port 8012, and runs COMMAND. In FOLDER each
connection leaves N.request and N.response; exchanges() reads them. Exits as COMMAND does.
"""

import asyncio
import fcntl
import itertools
import json
import os
import pathlib
import re
import socket
import struct
import sys

SIOCSIFFLAGS, IFF_UP = 0x8914, 1
PORT = 8012


class Stream:
    """HTTP messages in the bytes of a connection."""

    def __init__(self, data):
        self.data = data

    def message(self):
        """(first line, headers, body), or None where there is no whole one."""
        head, found, rest = self.data.partition(b"\r\n\r\n")
        if not found:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            body, rest = self.chunks(rest)
        elif "content-length" in headers:
            n = int(headers["content-length"])
            body, rest = rest[:n], rest[n:]
        else:  # of an answer: up to the connection's end
            body, rest = (rest, b"") if first.startswith("HTTP/") else (b"", rest)
        self.data = rest
        return first, headers, body

    @staticmethod
    def chunks(rest):
        body = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            n = int(size or b"0", 16)
            body, rest = body + rest[:n], rest[n + 2 :]
            if n == 0:
                break
        return body, rest


def exchanges(folder):
    """What went over the connections: (request line, request's JSON or None, status, answer's text), by connection."""
    found = []
    for path in sorted(pathlib.Path(folder).glob("*.request"), key=lambda p: int(p.stem)):
        asked, answered = Stream(path.read_bytes()), Stream(path.with_suffix(".response").read_bytes())
        while (request := asked.message()) is not None:
            answer = answered.message()
            while answer and answer[0].split()[1] == "100":
                answer = answered.message()
            body = json.loads(request[2]) if re.match(rb"\s*[{\[]", request[2]) else None
            status, text = (int(answer[0].split()[1]), answer[2].decode()) if answer else (None, "")
            found.append((request[0], body, status, text))
    return found


async def carry(reader, writer, path):
    with open(path, "wb") as copy:
        while data := await reader.read(65536):
            copy.write(data)
            copy.flush()
            writer.write(data)
            await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def connection(where, base, reader, writer):
    other_reader, other_writer = await asyncio.open_unix_connection(where)
    try:
        await asyncio.gather(
            carry(reader, other_writer, f"{base}.request"), carry(other_reader, writer, f"{base}.response")
        )
    except OSError:  # one side has gone
        pass
    finally:
        writer.close()
        other_writer.close()


def raise_loopback():
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


async def main(where, folder, *command):
    raise_loopback()
    numbers = itertools.count()

    async def accept(reader, writer):
        await connection(where, os.path.join(folder, str(next(numbers))), reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", PORT)
    async with server:
        process = await asyncio.create_subprocess_exec(*command)
        return await process.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
