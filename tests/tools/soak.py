"""Plays arrivals to a gateway and a daemon, and compares the quarters. Called by tests/soak.sh, which says what it prints.

The trace has an hour of a service: a day is that hour twenty-four times, squeezed, and thinned by a seed to the wanted rate. Prompts
are beginnings of this repository's files, as long in proportion as the trace's. The same request is asked many times, and
every answer to it must be the same text. One in ten is asked by a new process (hearth run), the others by HTTP; one in
twenty of these is dropped after its first token. What the gateway refuses because its queue is full is asked again.
"""

import argparse
import asyncio
import glob
import json
import random
import subprocess
import sys
import time

PROMPT_MAX = 1800  # characters of the longest prompt: less than the context of any model
OUTPUT_MAX = 48    # tokens
STEPS = 12         # lengths of prompts, and of answers
QUARTERS = 4
WARM = 24          # requests at once before the first quarter, so that the gateway has all the handles it ever has
IDLE_S = 12        # of each quarter's end, in which wake-ups are counted
ROOM_KB = 4096     # that an allocator may vary, from one quarter to the next
LATE_THREADS = {"daemon": 1, "gateway": 0}  # the daemon's waker starts when a wake first takes long, and stays


def arrivals(path, seed, count):
    """[count] (share of the day, prompt in [0, 1], output tokens)."""
    rng = random.Random(seed)
    try:
        with open(path, encoding="ascii") as f:
            rows = [line.split(",") for line in f.read().split("\n")[1:] if line]
        seconds = [sum(float(x) * u for x, u in zip(r[0].split(" ")[1].split(":"), (3600, 60, 1))) for r in rows]
        rows = [(s - seconds[0], int(r[1]), int(r[2])) for s, r in zip(seconds, rows)]
        source = "the Azure code trace"
    except OSError:
        rows, at = [], 0.0
        while at < 3600:
            at += rng.choice((0.01, 0.01, 0.01, 4 * rng.random()))
            rows.append((at, int(rng.paretovariate(1) * 400) % 7000 + 1, 1 + rng.randrange(60)))
        source = "a seeded process of bursts"
    span, longest = rows[-1][0] + 1, max(r[1] for r in rows)
    picked = sorted(((h + r[0] / span) / 24, r[1] / longest, r[2]) for h in range(24)
                    for r in rng.sample(rows, min(len(rows), -(-count // 24))))
    return source, picked[:count]


class Figures:
    """What the processes hold, from /proc, and the daemon's counters."""

    def __init__(self, options):
        self.options = options
        self.status = [f"{options.bin}/hearth", "status", "--json", "--socket", f"{options.folder}/hearth.sock"]

    def counters(self):
        found = json.loads(subprocess.run(self.status, stdout=subprocess.PIPE, check=True).stdout)
        return found.get("counters", found)

    @staticmethod
    def process(pid):
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            words = dict(line.split(":", 1) for line in f)
        fds = len(glob.glob(f"/proc/{pid}/fd/*"))
        return {"rss": int(words["VmRSS"].split()[0]), "threads": int(words["Threads"]), "fds": fds}

    def take(self):
        return {"daemon": self.process(self.options.daemon), "gateway": self.process(self.options.gateway), "counters": self.counters()}


class Player:
    """Asks, and keeps what came."""

    def __init__(self, options):
        self.options = options
        self.texts = {}
        self.first, self.between = [], []
        self.asked = self.wrong = self.lost = self.dropped = self.refused = 0
        self.problems = []
        files = sorted(glob.glob("daemon/*/*.c"))
        self.files = [open(name, encoding="utf-8").read()[:PROMPT_MAX] for name in files[:: max(1, len(files) // 12)]]

    def request(self, share, output):
        """(file, characters of it, tokens): few enough that all are asked often."""
        part = 1 + round(share * (STEPS - 1))
        tokens = max(1, round(min(output, OUTPUT_MAX) / OUTPUT_MAX * STEPS)) * OUTPUT_MAX // STEPS
        return part * 31 % len(self.files), part * PROMPT_MAX // STEPS, tokens

    def compare(self, key, text):
        if self.texts.setdefault(key, text) != text:
            self.wrong += 1
            self.problems.append(f"another answer to {key}")

    async def http(self, key, drop):
        file, characters, tokens = key
        body = json.dumps({"prompt": self.files[file][:characters], "n_predict": tokens, "seed": 7, "temperature": 0.7, "stream": True,
                           "top_k": 40, "top_p": 0.95, "min_p": 0.05}).encode()
        began = last = time.monotonic()
        reader, writer = await asyncio.open_unix_connection(f"{self.options.folder}/http.sock", limit=1 << 20)
        text, ended = "", False
        try:
            writer.write(b"POST /completion HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            if b" 503 " in await asyncio.wait_for(reader.readline(), 300):
                return False
            while line := await asyncio.wait_for(reader.readline(), 300):
                if not line.startswith(b"data: "):
                    continue
                now, event = time.monotonic(), json.loads(line[6:])
                if last == began:
                    self.first.append(now - began)
                elif not event["stop"]:
                    self.between.append(now - last)
                last, ended = now, event["stop"]
                text += event["content"]
                if drop:
                    self.dropped += 1
                    return True
        finally:
            writer.close()
        if not ended:
            raise OSError("the stream ended early")
        self.compare(key, text)
        return True

    async def process(self, key):
        file, characters, tokens = key
        command = [f"{self.options.bin}/hearth", "run", "--socket", f"{self.options.folder}/hearth.sock", "--max-tokens", str(tokens),
                   "--seed", "7", "--temperature", "0.7", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.05"]
        child = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, error = await asyncio.wait_for(child.communicate(self.files[file][:characters].encode()), 300)
        if child.returncode:
            raise OSError(error.decode().strip())
        self.compare(("run",) + key, out.decode())

    async def ask(self, number, key):
        self.asked += 1
        try:
            if number % 10 == 0:
                return await self.process(key)
            while not await self.http(key, number % 20 == 1):
                self.refused += 1
                await asyncio.sleep(1)
        except (OSError, ValueError, KeyError, asyncio.TimeoutError) as e:
            self.lost += 1
            self.problems.append(f"{type(e).__name__} {e}")


def quantile(values, share):
    return sorted(values)[int(share * (len(values) - 1))] * 1000 if values else 0.0


async def quarter(player, figures, rows, number, span, began):
    """Plays the quarter's arrivals, waits until nothing runs, and returns its figures."""
    tasks = set()
    player.first, player.between = [], []
    for i, (share, prompt, output) in rows:
        if (wait := began + (share - number / QUARTERS) * span - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(player.ask(i, player.request(prompt, output)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    busy = figures.take()
    if tasks:
        await asyncio.wait(tasks)
    for _ in range(600): # the last cancelled ones
        if figures.counters()["slots_active"] == 0:
            break
        await asyncio.sleep(0.1)
    before = figures.take()
    await asyncio.sleep(IDLE_S)
    after = figures.take()
    wakes = [after["counters"][n] - before["counters"][n] for n in ("engine_wakeups", "control_wakeups")]
    return {"busy": busy, "idle": after, "wakes": wakes, "first": player.first, "between": player.between}


def table(quarters):
    rows = [
        ("daemon, KiB resident", lambda q: q["idle"]["daemon"]["rss"]),
        ("gateway, KiB resident", lambda q: q["idle"]["gateway"]["rss"]),
        ("daemon, descriptors", lambda q: q["idle"]["daemon"]["fds"]),
        ("gateway, descriptors", lambda q: q["idle"]["gateway"]["fds"]),
        ("daemon, threads", lambda q: q["idle"]["daemon"]["threads"]),
        ("gateway, threads", lambda q: q["idle"]["gateway"]["threads"]),
        (f"engine wake-ups in {IDLE_S} s idle", lambda q: q["wakes"][0]),
        (f"control wake-ups in {IDLE_S} s idle", lambda q: q["wakes"][1]),
        ("slots in use", lambda q: q["idle"]["counters"]["slots_used"]),
        ("requests finished", lambda q: q["idle"]["counters"]["requests_finished"]),
        ("requests cancelled", lambda q: q["idle"]["counters"]["requests_cancelled"]),
        ("protocol errors", lambda q: q["idle"]["counters"]["protocol_errors"]),
        ("missed requests", lambda q: q["idle"]["counters"]["rescans_found"]),
    ]
    times = [
        ("first token, ms, p50", lambda q: quantile(q["first"], 0.5)),
        ("first token, ms, p99", lambda q: quantile(q["first"], 0.99)),
        ("between tokens, ms, p50", lambda q: quantile(q["between"], 0.5)),
        ("between tokens, ms, p99", lambda q: quantile(q["between"], 0.99)),
    ]
    print(f"{'at the end of quarter':34}" + "".join(f"{i + 1:>12}" for i in range(len(quarters))))
    for name, of in rows:
        print(f"{name:34}" + "".join(f"{of(q):>12}" for q in quarters))
    for name, of in times:
        print(f"{name:34}" + "".join(f"{of(q):>12.1f}" for q in quarters))


def drifts(quarters, player):
    """What is wrong, a line each."""
    first, last = quarters[0], quarters[-1]
    for program in ("daemon", "gateway"):
        a, b = first["idle"][program], last["idle"][program]
        if b["rss"] > a["rss"] + ROOM_KB + a["rss"] // 50:
            yield f"the {program}'s memory grew from {a['rss']} to {b['rss']} KiB"
        if b["fds"] > a["fds"] or b["threads"] > a["threads"] + LATE_THREADS[program]:
            yield f"the {program}'s descriptors grew from {a['fds']} to {b['fds']}, its threads from {a['threads']} to {b['threads']}"
    for i, thread in enumerate(("engine", "control")):
        if last["wakes"][i] > 2 * first["wakes"][i] + 10:
            yield f"the {thread}'s idle wake-ups grew from {first['wakes'][i]} to {last['wakes'][i]}"
    for name in ("protocol_errors", "rescans_found", "requests_errors", "slots_active"):
        if last["idle"]["counters"][name]:
            yield f"{name} is {last['idle']['counters'][name]}"
    if player.wrong or player.lost:
        yield f"{player.wrong} wrong answers, {player.lost} lost: {player.problems[:5]}"


async def play(options):
    figures, player, span = Figures(options), Player(options), options.hours * 3600
    source, rows = arrivals(options.trace, options.seed, int(span * options.rate))
    print(f"soak: {len(rows)} requests, a day of {source} in {options.hours} h", flush=True)
    await asyncio.gather(*[player.http((0, PROMPT_MAX // STEPS, OUTPUT_MAX), False) for _ in range(WARM)])
    quarters = []
    for number in range(QUARTERS):
        mine = [(i, r) for i, r in enumerate(rows) if int(r[0] * QUARTERS) == number]
        quarters.append(await quarter(player, figures, mine, number, span, time.monotonic()))
        print(f"soak: quarter {number + 1}: {player.asked} asked, {player.dropped} dropped, {player.refused} refused, {player.lost} lost,"
              f" {player.wrong} wrong, {len(player.texts)} different requests", flush=True)
    table(quarters)
    wrong = list(drifts(quarters, player))
    print("\n".join(f"soak: {line}" for line in wrong) or "soak: ok: no drift")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("hours", "rate"):
        parser.add_argument(f"--{name}", type=float, required=True)
    for name in ("daemon", "gateway"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("bin", "folder", "trace"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seed", type=int, default=1)
    sys.exit(asyncio.run(play(parser.parse_args())))


if __name__ == "__main__":
    main()
