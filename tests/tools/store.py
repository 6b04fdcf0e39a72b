"""What a KV store gives and costs, measured with real daemons. The figures in tests/bench/RESULTS.md are from here.

python3 tests/tools/store.py day [--requests 240] [--trace FILE]     a day with a restart each hour
python3 tests/tools/store.py first [--tokens 30000]                  the first token of a long prompt after a restart
python3 tests/tools/store.py beside [--bin build/faults/bin]         another client's tokens beside a store at work

All take --bin build/bin, --model FILE, --threads N and --folder DIR (on the disk that is to be measured). Exit 1 when an answer differs from that
without a store. Times are shown, not judged.

day: the trace's lengths, in its order; prompts go on with one of six conversations, each of which begins with one of three trunks, or
stand alone where they are shorter. Tokens of a prompt that were computed, without a store, with one, and without restarts.
first: computing the prompt; the same after a restart, from the store, with the page cache dropped; once more, from memory; reading the
bytes of the store's files, with the page cache dropped, by read(2), through a buffer of 1 MiB and into fresh memory. --also BIN: another build,
in turns. --kept FOLDER: the store is there afterwards, and what an earlier run left there is not computed again.
beside: the time between tokens of a client that streams while another one asks a text of 3,000 tokens every --every seconds, one of four
in turn: all are in memory; they do not fit, and each evicts another one to a store; the same with a disk that takes 50 ms for some of the
reads and writes, one after the other (a build with --fault); without a store. Row by row, --times times.
"""

import argparse
import collections
import contextlib
import itertools
import mmap
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client/python"))
import soak  # noqa: E402

HOURS = 24
TRUNKS, TRUNK, SESSIONS = 3, 1500, 6
CONTEXT = 8192
STEP = 1 << 20  # bytes of a read
VOCABULARY = 300  # ids that every model has


class Daemon:
    def __init__(self, options, folder, *words):
        self.socket = f"{folder}/s"
        self.command = [options.bin / "hearthd", "--model", options.model, "--socket", self.socket, "--threads", str(options.threads),
                        *map(str, words)]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                self.connect(0).close()
                return
            except hearth.Error:
                assert self.process.poll() is None, "hearthd did not start"
                time.sleep(0.02)

    def stop(self):
        self.process.terminate()
        assert self.process.wait() == 0

    def connect(self, slots=1):
        return hearth.Client(self.socket, slots=slots)

    def counters(self):
        with self.connect(0) as client:
            found = client.status()
        return found.get("counters", found)


def tokens(seed, n):
    rng = random.Random(seed)
    return [3 + rng.randrange(VOCABULARY) for _ in range(n)]


def store_words(folder, bytes_=1 << 33):
    return ["--kv-store", f"{folder}/store", "--kv-store-bytes", bytes_, "--kv-store-writes", 1 << 40]


# ---- a day -----------------------------------------------------------------------------------------


def prompts(options):
    """[requests] (prompt, output tokens); answers are not known, so a conversation goes on with other tokens in their place."""
    _, rows = soak.arrivals(options.trace, 1, options.requests)
    rng, sessions = random.Random(5), []
    for number, (_, share, output) in enumerate(rows):
        length, output = max(8, int(share * (CONTEXT - 600))), min(output, 500)
        fitting = [s for s in sessions if len(s) <= length]
        if length <= TRUNK:
            yield tokens(9000 + number, length), output
            continue
        if fitting:
            session = max(fitting, key=len)
        else:
            sessions = sessions[-SESSIONS + 1:]
            session = tokens(rng.randrange(TRUNKS), TRUNK)
            sessions.append(session)
        session += tokens(1000 + number, length - len(session))
        yield list(session), output
        session += tokens(5000 + number, output)


def play(options, words, restarts):
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        daemon = Daemon(options, folder, "--context", CONTEXT, *(store_words(folder) if words else []))
        sums = dict.fromkeys(("prompt", "computed", "stored", "written", "read"), 0)
        answers = []
        for number, (prompt, output) in enumerate(prompts(options)):
            if restarts and number and number % (options.requests // HOURS) == 0:
                sums["read"] += daemon.counters()["store_read_bytes"]
                daemon.stop()
                daemon.start()
            with daemon.connect() as client:
                result = client.generate(prompt, max_tokens=output, proposer="none").wait()
            answers.append(result.receipt)
            sums["prompt"] += result.prompt_tokens
            sums["computed"] += result.prompt_tokens - result.cached_tokens
            sums["stored"] += result.stored_tokens
        sums["read"] += daemon.counters()["store_read_bytes"]
        daemon.stop()
        if words:
            sums["written"] = struct.unpack("16sQQ16s", pathlib.Path(folder, "store/day").read_bytes())[2]
        held = sum(f.stat().st_blocks * 512 for f in pathlib.Path(folder).glob("store/*/*/*.kv"))
    return answers, sums, held


def day(options):
    print("| | prompt tokens | computed | read from the store | written, MB | read, MB | files, MB |\n|---|---|---|---|---|---|---|")
    rows = (("a restart each hour, no store", False, True), ("a restart each hour, a store", True, True), ("no restart", False, False))
    all_answers = []
    for what, words, restarts in rows:
        answers, sums, held = play(options, words, restarts)
        all_answers.append(answers)
        print(f"| {what} | {sums['prompt']:,} | {sums['computed']:,} ({100 * sums['computed'] / sums['prompt']:.1f} %) | {sums['stored']:,} | "
              f"{sums['written'] / 1e6:.0f} | {sums['read'] / 1e6:.0f} | {held / 1e6:.0f} |", flush=True)
    return all_answers[0] == all_answers[1] == all_answers[2]


# ---- the first token -------------------------------------------------------------------------------


def drop(files):
    for file in files:
        with open(file, "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_all(files, fresh):
    """Seconds, bytes of what is there; fresh: into memory that nothing was in, as KV after a start; else through a buffer."""
    size = sum(f.stat().st_blocks * 512 for f in files)
    drop(files)
    began, n = time.monotonic(), 0
    memory = memoryview(mmap.mmap(-1, size + STEP if fresh else STEP, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    for file in files:
        with open(file, "rb", buffering=0) as f:
            end = f.seek(0, os.SEEK_END)
            at = 0
            while at < end:
                try:
                    at = f.seek(at, os.SEEK_DATA)
                except OSError:
                    break
                to = n if fresh else 0
                got = f.readinto(memory[to:to + STEP])
                at, n = at + got, n + got
    return time.monotonic() - began, n


def ask(daemon, prompt):
    with daemon.connect() as client:
        began = time.monotonic()
        result = client.generate(prompt, max_tokens=1, proposer="none").wait()
        return time.monotonic() - began, result


def first(options):
    """Two prompts: all of one but its last token is in pages; of the other the last 16 tokens are computed."""
    n = options.tokens
    prompts = [tokens(1, n)[:n // 32 * 32 + 1 + rest] for rest in (0, 15)]
    builds = [options.bin, *options.also]
    with contextlib.ExitStack() as stack:
        folder = options.kept or stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder))
        daemon = Daemon(options, folder, "--context", n + 1024, "--slots", 2, *store_words(folder))
        ask(daemon, tokens(2, 600))
        computed, result = ask(daemon, prompts[1])
        print(f"computed: {result.prompt_tokens - result.cached_tokens:,} tokens, {computed:.2f} s", flush=True)
        right = [ask(daemon, prompt)[1].receipt for prompt in prompts]
        daemon.stop()
        print("| build | prompt | from the store | first token, s | from memory, s | read(2), s | into fresh memory, s | MB |\n"
              "|---|---|---|---|---|---|---|---|")
        same = True
        for i in range(options.times):
            files = sorted(pathlib.Path(folder).glob("store/*/*/*.kv"))
            reading, size = read_all(files, False)
            fresh, _ = read_all(files, True)
            for build in builds[i // 2 % len(builds):] + builds[:i // 2 % len(builds)]:
                daemon.command[0] = build / "hearthd"
                daemon.start()
                ask(daemon, tokens(2, 600))  # weights are in memory, the rate is measured
                drop(files)
                prompt = prompts[i % 2]
                stored, result = ask(daemon, prompt)
                warm, again = ask(daemon, prompt)
                same &= result.receipt == again.receipt == right[i % 2]
                print(f"| {builds.index(build) + 1} | {len(prompt):,} | {result.stored_tokens:,} | {stored:.3f} | {warm:.3f} | {reading:.3f} | "
                      f"{fresh:.3f} | {size / 1e6:.0f} |", flush=True)
                daemon.stop()
    return same


# ---- another client --------------------------------------------------------------------------------


def stream(daemon, seconds):
    """Milliseconds between tokens, and between requests, of short answers one after the other."""
    gaps, end, number = [], time.monotonic() + seconds, 0
    with daemon.connect() as client:
        while time.monotonic() < end:
            number, last = number + 1, None
            for _ in client.generate(tokens(100 + number, 40), max_tokens=200, proposer="none"):
                now = time.monotonic()
                if last:
                    gaps.append(1000 * (now - last))
                last = now
    return gaps


def ask_at_times(daemon, texts, every, until, sums):
    """A text every so many seconds, the same ones in each row: so all rows have the same to do, but for what they need not compute."""
    begun = time.monotonic()
    with daemon.connect() as client:
        for number in itertools.count():
            if until.wait(max(0, begun + number * every - time.monotonic())):
                return
            result = client.generate(texts[number % len(texts)], max_tokens=1, proposer="none").wait()
            sums["asked"] += 1
            sums["computed"] += result.prompt_tokens - result.cached_tokens
            sums["stored"] += result.stored_tokens


def beside(options):
    texts = [tokens(50 + i, 3000) for i in range(4)]
    slow = ["--fault", f"store-slow={options.slow}"]
    kinds = (("nothing", None, False, []), ("texts in memory", "1G", False, []), ("texts in the store", options.kv_bytes, True, []),
             (f"texts in the store, 50 ms for {options.slow:.0%} of the reads and writes", options.kv_bytes, True, slow),
             ("no store", options.kv_bytes, False, []))
    all_gaps, all_sums = [[] for _ in kinds], [collections.Counter() for _ in kinds]
    for _ in range(options.times):
        for (_, kv_bytes, store, words), gaps, sums in zip(kinds, all_gaps, all_sums):
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                daemon = Daemon(options, folder, "--context", 4096, "--slots", 4, "--kv-bytes", kv_bytes or options.kv_bytes,
                                *(store_words(folder) if store else []), *words)
                if kv_bytes:  # whether they are in memory or in the store: they were computed
                    for text in texts * 2:
                        ask(daemon, text)
                until = threading.Event()
                other = threading.Thread(target=ask_at_times, args=(daemon, texts, options.every, until, sums))
                if kv_bytes:
                    other.start()
                gaps += stream(daemon, options.seconds)
                until.set()
                if kv_bytes:
                    other.join()
                sums["dropped"] += daemon.counters()["store_dropped"]
                daemon.stop()
            print(".", end="", file=sys.stderr, flush=True)
    print("| the other client | tokens | p50, ms | p99, ms | p99.9, ms | its requests | computed | from the store | dropped |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (what, *_), gaps, sums in zip(kinds, all_gaps, all_sums):
        gaps.sort()
        at = [gaps[min(len(gaps) - 1, int(len(gaps) * p))] for p in (0.5, 0.99, 0.999)]
        print(f"| {what} | {len(gaps):,} | {at[0]:.2f} | {at[1]:.2f} | {at[2]:.2f} | {sums['asked']:,} | {sums['computed']:,} | {sums['stored']:,} | "
              f"{sums['dropped']:,} |")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("day", "first", "beside"))
    parser.add_argument("--bin", default="build/bin", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--also", default=[], action="append", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--kept", type=pathlib.Path)
    parser.add_argument("--model", default="daemon/models/hearth-code-5m-f16.gguf")
    parser.add_argument("--folder", default="/var/tmp")
    parser.add_argument("--threads", default=1, type=int)
    parser.add_argument("--trace", default=f"{os.environ.get('HEARTH_TESTDATA', '')}/traces/AzureLLMInferenceTrace_code.csv")
    parser.add_argument("--requests", default=240, type=int)
    parser.add_argument("--tokens", default=30000, type=int)
    parser.add_argument("--times", default=4, type=int)
    parser.add_argument("--seconds", default=60, type=float)
    parser.add_argument("--kv-bytes", default="32M")
    parser.add_argument("--every", default=4, type=float)
    parser.add_argument("--slow", default=0.01, type=float)
    options = parser.parse_args()
    os.environ.setdefault("HEARTH_LIBRARY", str(options.bin.parent / "lib/libhearth.so.0"))
    global hearth
    import hearth  # noqa: E402
    return 0 if {"day": day, "first": first, "beside": beside}[options.what](options) else 1


if __name__ == "__main__":
    sys.exit(main())
