"""A day at one door, squeezed: three models of which the budget holds two, and an upstream that misbehaves.

python3 tests/tools/door.py --minutes 25 [--bin build/bin] [--stay 30] [--trace FILE]

An editor completes at the times of a coding service's trace, on a pinned model; meanwhile sessions of two other models take turns,
and of a model that an upstream has, which answers well, hangs, breaks off, sends nonsense or is slow. Prints a table: what each
model was asked, how often it had to be started, how long that took beside what `hearth serve` takes for it. Exit 1 when a
request for a model of this machine failed, the pinned model was ever away, more was in memory than the budget holds, a request had two
different answers, or the upstream's key is in something that the gateway says. Times are shown, not judged.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import soak

KEY = "sk-door-5eecf1a2b3c4"
PINNED, FAR = "editor", "far"
SHAPES = {"chat": ("qwen2.5-0.5b", "Q4_0"), "agent": ("qwen2.5-0.5b", "Q8_0")}
QUESTIONS = ("How do I reverse a list?", "Explain this function.", "Write a test for it.", "What does the loop do?")
BEHAVIOURS = ("well", "hangs", "breaks off", "nonsense", "slow")
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
EVENT = b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"far "}}]}\n\n'
UPSTREAM_WAIT = 5


class Upstream:
    """Another machine's server: each request meets the next of its behaviours."""

    def __init__(self):
        self.n = 0
        self.keys = 0

    async def serve(self, reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.keys += KEY.encode() in head
            behaviour = BEHAVIOURS[self.n % len(BEHAVIOURS)]
            self.n += 1
            if behaviour == "hangs":
                await reader.read()
            elif behaviour == "nonsense":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello")
            else:
                writer.write(STREAM)
                for _ in range(3):
                    writer.write(EVENT)
                    await writer.drain()
                    await asyncio.sleep(2 if behaviour == "slow" else 0)
                if behaviour != "breaks off":
                    writer.write(b"data: [DONE]\n\n")
            await writer.drain()
        writer.close()


class Door:
    """The gateway, what lies on its disk, and what it says."""

    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.bin = pathlib.Path(options.bin).resolve()
        self.socket = self.folder / "http.sock"
        self.said = bytearray()  # everything that a client ever got
        self.env = {**os.environ, "HOME": folder, "XDG_RUNTIME_DIR": folder, "HEARTH_MODELS": f"{folder}/models"}
        for name in list(self.env):
            if name.startswith(("XDG_C", "XDG_D", "XDG_S", "HF_", "LLAMA_", "OLLAMA_", "HEARTH_SOCKET")):
                del self.env[name]

    def hearth(self, *words):
        return subprocess.run([self.bin / "hearth", *words], env=self.env, capture_output=True, text=True, check=True).stdout

    def make_models(self):
        models = self.folder / "models"
        models.mkdir()
        shutil.copy("daemon/models/hearth-code-5m-f16.gguf", models / f"{PINNED}.gguf")
        for name, (shape, kind) in SHAPES.items():
            made = [self.bin / "hearth-mkmodel", "--shape", shape, "--type", kind, models / f"{name}.gguf"]
            subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        sizes = {file.stem: file.stat().st_size for file in models.iterdir()}
        largest = max(sizes[name] for name in SHAPES)
        return int(1.8 * (sizes[PINNED] + largest)), sizes  # KV may have a quarter of what is left beside the weights

    def load_times(self):
        times = {}
        for name in (PINNED, *SHAPES):
            took = []
            for _ in range(3):
                began = time.monotonic()
                self.hearth("serve", name, "--kv-bytes", "128M")
                took.append(time.monotonic() - began)
                self.hearth("stop", name)
            times[name] = sorted(took)[1]
        return times

    def start(self, budget, port):
        key = self.folder / "key"
        key.touch(0o600)
        key.write_text(KEY + "\n")
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(
            [self.bin / "hearth-http", "--listen", self.socket, "--budget", str(budget), "--pin", PINNED, "--stay", str(self.options.stay),
             "--chat-template", "chatml", "--upstream", f"{FAR}=http://127.0.0.1:{port}/v1", "--upstream-key", f"{FAR}={key}",
             "--upstream-wait", str(UPSTREAM_WAIT), "--upstream-idle", str(UPSTREAM_WAIT)],
            env=self.env, stderr=self.log)

    async def ask(self, path, body):
        """(status, text, seconds to the first of it, comments)."""
        began = time.monotonic()
        reader, writer = await asyncio.open_unix_connection(self.socket, limit=1 << 20)
        try:
            data = json.dumps(body).encode() if body else b""
            writer.write(f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
            line = await asyncio.wait_for(reader.readline(), 300)
            status, text, first, comments = int(line.split()[1]), "", None, 0
            while line := await asyncio.wait_for(reader.readline(), 300):
                self.said += line
                comments += line.startswith(b": ")
                if line.startswith(b"data: {"):
                    first = first or time.monotonic() - began
                    event = json.loads(line[6:])
                    if "error" in event:
                        status = event["error"].get("code", 500)
                    choice = (event.get("choices") or [{}])[0]
                    text += event.get("content") or choice.get("delta", {}).get("content") or ""
            return status, text, first, comments
        finally:
            writer.close()


class Day:
    """What was asked and what came."""

    def __init__(self, door, loads, stay):
        self.door, self.loads, self.stay = door, loads, stay
        self.rows = {name: {"asked": 0, "failed": 0, "starts": 0, "first": [], "served": [], "back": []} for name in (PINNED, *SHAPES, FAR)}
        self.there = {}   # since when each is served
        self.left = {}    # when its last request ended
        self.running = dict.fromkeys((PINNED, *SHAPES, FAR), 0)
        self.texts, self.wrong, self.most, self.away, self.comments = {}, [], 0, 0, 0
        self.is_over = False

    async def watch(self):
        """Which models are served, looked at often."""
        inodes = {}
        while not self.is_over:
            for name in (PINNED, *SHAPES):
                try:
                    inode = (self.door.folder / "hearth" / f"{name}.sock").stat().st_ino
                except OSError:
                    inode = None
                if inode != inodes.get(name):
                    inodes[name] = inode
                    self.there.pop(name, None)
                    if inode:
                        self.there[name] = time.monotonic()
                        self.rows[name]["starts"] += 1
            self.away += PINNED not in self.there
            self.most = max(self.most, len(self.there))
            await asyncio.sleep(0.02)

    def due(self, name, began):
        """When there may be room for it: the other one has been there for --stay and runs nothing."""
        others = [other for other in SHAPES if other != name]
        since = [self.there[other] + self.stay for other in others if other in self.there]
        return max([began, *since, *(self.left.get(other, 0) for other in others)])

    async def ask(self, name, path, body):
        row, began = self.rows[name], time.monotonic()
        is_cold = name in SHAPES and name not in self.there and not self.running[name]
        due = self.due(name, began) if is_cold else began
        row["asked"] += 1
        self.running[name] += 1
        try:
            status, text, first, comments = await self.door.ask(path, {**body, "model": name, "stream": True, "seed": 7})
            self.comments += comments
        except (OSError, ValueError, asyncio.TimeoutError) as e:
            status, text, first = f"{type(e).__name__} {e}", "", None
        self.running[name] -= 1
        self.left[name] = time.monotonic()
        if status != 200 or first is None:
            row["failed"] += 1
            if name != FAR:
                self.wrong.append(f"{name}: {status}")
            return
        if name != FAR and self.texts.setdefault((name, json.dumps(body)), text) != text:
            self.wrong.append(f"{name}: another answer to the same request")
        if is_cold:
            row["back"].append(began + first - due)
            row["served"].append(max(0.0, self.there.get(name, began) - due))
        else:
            row["first"].append(first)


async def play_editor(day, rows, span, began):
    files = [path.read_text() for path in sorted(pathlib.Path("daemon/policy").glob("*.c"))]
    tasks = []
    for share, prompt, _ in rows:
        await asyncio.sleep(max(0.0, began + share * span - time.monotonic()))
        at = 200 + int(prompt * 8) * 120
        body = {"input_prefix": files[int(prompt * 1000) % len(files)][:at], "input_suffix": "\n}\n", "n_predict": 12}
        tasks.append(asyncio.create_task(day.ask(PINNED, "/infill", body)))
    await asyncio.gather(*tasks)


async def play_sessions(day, rng, span, began):
    turns = []
    while time.monotonic() < began + span:
        if not turns:
            turns = rng.sample((*SHAPES, *SHAPES, FAR), 5)
        name = turns.pop()
        for question in rng.choices(QUESTIONS, k=rng.randint(2, 6)):
            body = {"messages": [{"role": "user", "content": question}], "max_tokens": 12, "temperature": 0}
            await day.ask(name, "/v1/chat/completions", body)
            await asyncio.sleep(rng.uniform(0.5, 5))
        await asyncio.sleep(rng.uniform(5, 40))


def table(day):
    print(f"{'model':8}{'asked':>7}{'failed':>8}{'starts':>8}{'load, s':>9}{'first token, ms, p50':>22}{'p99':>8}"
          f"{'served again after, s, p50':>28}{'most':>7}{'first token then, s, most':>27}")
    for name, row in day.rows.items():
        load = f"{day.loads[name]:.2f}" if name in day.loads else "-"
        back = [f"{soak.quantile(row['served'], share) / 1000:.2f}" if row["served"] else "-" for share in (0.5, 1)]
        most = f"{max(row['back']):.2f}" if row["back"] else "-"
        print(f"{name:8}{row['asked']:>7}{row['failed']:>8}{row['starts']:>8}{load:>9}{soak.quantile(row['first'], 0.5):>22.0f}"
              f"{soak.quantile(row['first'], 0.99):>8.0f}{back[0]:>28}{back[1]:>7}{most:>27}")
    served = sum(len(day.rows[name]["served"]) for name in SHAPES)
    late = sum(t > day.loads[name] + 1 for name in SHAPES for t in day.rows[name]["served"])
    print(f"door: {late} of {served} times a model was back later than its load time and a second; at most {day.most} were in memory; {day.comments} comments in streams that waited")


def find_key(door):
    """Where the upstream's key is found."""
    door.log.flush()
    places = {"an answer": bytes(door.said), "the log": (door.folder / "log").read_bytes()}
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            places["the arguments of a process"] = places.get("the arguments of a process", b"") + entry.read_bytes()
    return [place for place, text in places.items() if KEY.encode() in text]


async def play(options, folder):
    door, upstream = Door(options, folder), Upstream()
    budget, sizes = door.make_models()
    print("door: budget", budget >> 20, "MiB, files", {name: f"{size >> 20} MiB" for name, size in sizes.items()}, flush=True)
    loads = door.load_times()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    door.start(budget, server.sockets[0].getsockname()[1])
    day, span, rng = Day(door, loads, options.stay), options.minutes * 60, random.Random(options.seed)
    watcher = asyncio.create_task(day.watch())
    try:
        while PINNED not in day.there:
            await asyncio.sleep(0.05)
        day.away = 0
        source, rows = soak.arrivals(options.trace, options.seed, int(span * options.rate))
        print(f"door: {len(rows)} completions at the times of {source}, a day in {options.minutes} min", flush=True)
        began = time.monotonic()
        await asyncio.gather(play_editor(day, rows, span, began), play_sessions(day, rng, span, began))
        for path in ("/props", "/metrics", "/v1/models", "/status", "/slots", "/api/tags"):
            await door.ask(path, None)
    finally:
        day.is_over = True
        await watcher
        found = find_key(door)
        door.process.terminate()
        code = door.process.wait()
        server.close()
    table(day)
    wrong = day.wrong + [f"the key is in {place}" for place in found]
    wrong += [f"{PINNED} was away"] * (day.away > 0 or day.rows[PINNED]["starts"] != 1)
    wrong += [f"{day.most} models were in memory"] * (day.most > 2) + [f"the gateway ended with {code}"] * (code != 0)
    wrong += ["the upstream never saw its key"] * (upstream.n > 0 and upstream.keys != upstream.n)
    print("\n".join(f"door: {line}" for line in wrong) or "door: ok")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--stay", type=int, default=30)
    parser.add_argument("--rate", type=float, default=0.5, help="completions a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trace", default=os.environ.get("HEARTH_TESTDATA", "") + "/traces/AzureLLMInferenceTrace_code.csv")
    with tempfile.TemporaryDirectory(prefix="hearth-door-") as folder:
        sys.exit(asyncio.run(play(parser.parse_args(), folder)))


if __name__ == "__main__":
    main()
