#!/usr/bin/env python3
"""Makes deliberate mistakes in the code, one at a time, and counts those that make a test fail.

    tests/tools/mutate.py --seed 1                      # fifty mistakes: built, tested, a table
    tests/tools/mutate.py --seed 1 --list               # only say which they are
    tests/tools/mutate.py --seed 1 --only 7,12          # two of them again
    tests/tools/mutate.py --seed 1 --skip ipc/bell.c:41:relation    # equivalent, draw another one for it
    tests/tools/mutate.py --seed 1 --of cuda --count 40             # in the CUDA backend, on the simulated GPU

The tree is copied to a scratch folder, and built and tested there: first as it is, for the times, then with each mistake. A
mistake is drawn by part (ipc; engine, cache and policy; control; or device code and host side), then kind, then place. One that does not compile, or that
gives the same machine code, is drawn anew. The suites of a mistake are those that are linked with a file that it is in, the ones of
its name first, the fastest first; then those of PROGRAMS, which start a daemon; up to the first that fails. Of a mistake in the CUDA
backend they are the tests of the pass contract, one by one, then the daemon on the simulator. A test that hangs fails by its timeout.
"""

import argparse
import filecmp
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# The parts of fifty mistakes, or of forty, and the folders that each is drawn from.
PARTS = {"daemon": {"ipc": (20, ["ipc"]), "engine": (20, ["daemon/engine", "daemon/cache", "daemon/policy"]),
                    "control": (10, ["daemon/control"])},
         "cuda": {"device": (24, ["kernels/cuda/device"]), "host": (16, ["kernels/cuda"])}}
UNITS = {"ipc": ["unit/ipc", "stress", "unit/client/test_client_", "unit/daemon"], "engine": ["unit/daemon"],
         "control": ["unit/daemon"]}
PROGRAMS = ["e2e/test_hostile", "e2e/test_start", "e2e/test_descriptors", "e2e/test_prefix", "e2e/test_crowd",
            "e2e/test_kills", "e2e/test_load", "hostile/test_client"]

# Parts of the contract that a file's mistakes are looked for in first; of any other file in all.
CONTRACT_FIRST = [(r"expert", ["experts", "cut"]), (r"delta|plan_state", ["states"]), (r"sample", ["samples"]),
                  (r"half|native|bf16|warpgroup", ["native", "fast"]), (r"blas|cublas", ["fast"]), (r"cut", ["cut"]),
                  (r"attend", ["heads", "shapes"]), (r"matmul|weights|repack|layout", ["types", "shapes"])]
SIMULATED = ["all", "build/tests/cudasim/libcublas.so.13", "build/tests/gpu/contract", "build/tests/e2e/test_cuda"]
PLAIN = "build/plain"  # the plugin without a mistake
UNKNOWN_SECONDS = 60

WORD = r"[A-Za-z_][\w.>\[\]*-]*"
DECLARATION = re.compile(r"^\s*(static|const|struct|enum|union|extern|void|bool|char|float|double|u?int\d*_t|int|unsigned|long"
                         r"|size_t|ssize_t|pid_t|uid_t|socklen_t|_Atomic|_Static_assert|return|goto|break|continue|case|default|typedef)\b")
STATEMENT = re.compile(r"^(\s+)[A-Za-z_*(+-][^{}]*;$")


def swap_words(pattern, words):
    """A kind that replaces each match by another word."""
    def places(line):
        for m in re.finditer(pattern, line):
            yield line[:m.start()] + words(m) + line[m.end():]
    return places


def drop_check(line):
    """`if (C)` never holds."""
    m = re.match(r"^(\s*(?:\} else )?if \()(.*)(\)(?: \{)?)$", line)
    if m and m[2].count("(") == m[2].count(")"):
        yield f"{m[1]}0 && ({m[2]}){m[3]}"


OTHER_RELATION = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
KINDS = {
    "check": drop_check,
    "relation": swap_words(r"(?<= )[<>]=?(?= )", lambda m: OTHER_RELATION[m[0]]),
    "equality": swap_words(r"(?<= )[=!]=(?= )", lambda m: "!=" if m[0] == "==" else "=="),
    "logic": swap_words(r"(?<= )(&&|\|\|)(?=( |$))", lambda m: "||" if m[0] == "&&" else "&&"),
    "sum": swap_words(r"(?<=[\w)\]] )[+-](?= [\w(])", lambda m: "-" if m[0] == "+" else "+"),
    "constant": swap_words(r"(?<![\w.])(\d+)(?=u?(ll)?\b(?!\.))", lambda m: str(int(m[0]) + 1)),
    "order": swap_words(r"memory_order_(acquire|release|acq_rel|seq_cst)", lambda m: "memory_order_relaxed"),
}


def code_lines(text):
    """The lines with comments and strings' insides blanked, so that only code is matched; None for those to leave alone."""
    blank = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
    for line in blank.split("\n"):
        line = line.rstrip()
        skip = not line.strip() or line.lstrip().startswith("#") or "assert" in line or '"' in line and "if (" not in line
        yield None if skip or line.endswith("\\") else line


def candidates(path):
    """All mistakes of a file: (line number, kind, new text of the lines)."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    lines = text.split("\n")
    code = list(code_lines(text))
    inside = False # a function's body
    for i, line in enumerate(code):
        raw = lines[i]
        if raw.startswith("{"):
            inside = True
        elif raw.startswith("}"):
            inside = False
        if line is None or line != raw.rstrip() or path.endswith((".c", ".cu")) and not inside:
            continue
        for kind, places in KINDS.items():
            for new in places(line):
                yield i + 1, kind, [new]
        statement = STATEMENT.match(line) and not DECLARATION.match(line)
        if statement and code_ends(code[i - 1]):
            yield i + 1, "remove", [re.match(r"\s*", line)[0] + ";"]
            after = code[i + 1] if i + 1 < len(code) else None
            if after and after == lines[i + 1] and STATEMENT.match(after) and not DECLARATION.match(after) and \
                    STATEMENT.match(after)[1] == STATEMENT.match(line)[1] and related(line, after):
                yield i + 1, "swap", [after, line]


def related(one, other):
    """Does a line change what the next one names? Else their order says nothing."""
    def changed(line):
        m = re.match(rf"\s*({WORD})(\+\+|--| [-+|&^*/]?=)", line)
        return {m[1]} if m else set(re.findall(rf"&?({WORD})(?!\()", line.partition("(")[2]))
    both = changed(one), changed(other)
    return one != other and any(re.search(rf"\b{re.escape(w)}\b", line) for words, line in ((both[0], other), (both[1], one)) for w in words)


def code_ends(line):
    """Does a statement begin after this line?"""
    return line is None or line.rstrip().endswith((";", "{", "}", ")", "else", ":"))


def kill_session(session):
    """Ends a suite's processes: check gives each test a group of its own."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(name)) == session:
                os.kill(int(name), signal.SIGKILL)
        except ProcessLookupError:
            pass


class Tree:
    """A scratch copy, built once."""

    targets = ["tests"]

    def __init__(self, folder):
        self.folder = folder
        self.times = {}  # of each suite, on the tree as it is
        self.plain = {}  # what the compiler makes of each file as it is

    def run(self, command, timeout=1800, log=None):
        environment = dict(os.environ, BUILD="build", CK_DEFAULT_TIMEOUT="40")
        with open(log or os.devnull, "wb") as out:
            process = subprocess.Popen(command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=subprocess.STDOUT, start_new_session=True)
            try:
                return process.wait(timeout)
            except subprocess.TimeoutExpired:
                kill_session(process.pid)
                process.wait()
                return 124

    def make(self, *targets):
        compilers = [f"{name}={os.environ[name]}" for name in ("CC", "CXX") if name in os.environ]
        return self.run(["make", "CUDA=0", "WERROR=", "-j2", *compilers, *targets], log=os.path.join(self.folder, "make.log"))

    def fill(self):
        listed = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], stdout=subprocess.PIPE, check=True).stdout
        files = {name for name in listed.decode().split("\0") if os.path.isfile(name)}
        for root, _, names in os.walk(self.folder): # of an earlier time
            for name in names:
                path = os.path.relpath(os.path.join(root, name), self.folder)
                if path.endswith((".c", ".h", ".cu")) and path not in files:
                    os.unlink(os.path.join(self.folder, path))
        for name in sorted(files):
            to = os.path.join(self.folder, name)
            os.makedirs(os.path.dirname(to), exist_ok=True)
            if not os.path.exists(to) or not filecmp.cmp(name, to, shallow=False):
                shutil.copy(name, to)
        if self.make(*self.targets):
            sys.exit(f"mutate: the tree does not build: {self.folder}/make.log")
        if os.path.exists(os.path.join(self.folder, "times.json")):
            self.times = json.loads(self.read("times.json"))

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as f:
            return f.read()

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as f:
            f.write(text)

    def units(self, part):
        """The unit suites of a part that exist, by name."""
        found = []
        for prefix in UNITS[part]:
            folder = os.path.join(self.folder, "build/tests", prefix if "test_" not in prefix else os.path.dirname(prefix))
            for name in sorted(os.listdir(folder)):
                path = os.path.join(os.path.relpath(folder, os.path.join(self.folder, "build/tests")), name)
                if "." not in name and path.startswith(prefix) and path not in found:
                    found.append(path)
        return found

    def users(self, source):
        """The .c files that a change of this one compiles again."""
        if source.endswith(".c"):
            return [source]
        found = []
        for root, _, names in os.walk(os.path.join(self.folder, "build/obj")):
            for name in names:
                if name.endswith(".d"):
                    with open(os.path.join(root, name), encoding="utf-8") as f:
                        if re.search(rf"(^|\s){re.escape(source)}(\s|$)", f.read()):
                            found.append(os.path.relpath(os.path.join(root, name), os.path.join(self.folder, "build/obj"))[:-2] + ".c")
        return [c for c in sorted(found) if c.startswith(("ipc/", "daemon/", "client/"))]

    def suites(self, part, source):
        """Suites that are linked with the file, in the order in which they are run, in groups that are built together."""
        objects = {f"build/obj/{c[:-2]}.o" for c in self.users(source)}
        stem = os.path.basename(source).split(".")[0]
        linked = []
        for suite in self.units(part):
            took = self.read(f"build/tests/{suite}.took")
            if objects & set(re.findall(r"[^ ,()]*\.o", took)):
                own = not re.match(rf"test_{stem}(_|$)", os.path.basename(suite))
                linked.append((own, self.seconds(suite), suite))
        linked = [suite for _, _, suite in sorted(linked)]
        groups = [linked[:1]] + [linked[i:i + 8] for i in range(1, len(linked), 8)]
        return [g for g in groups if g] + [["model"]] * (part == "ipc" and self.modelled(source)) + [PROGRAMS]

    def modelled(self, source):
        return bool(re.match(r"ipc/(ring|bell|event|segment)\.", source))

    def seconds(self, suite):
        """What it takes without a mistake; it must pass."""
        if suite not in self.times:
            began = time.time()
            if self.test(suite, 600):
                sys.exit(f"mutate: {suite} fails without a mistake: {self.folder}/test.log")
            self.times[suite] = time.time() - began
            self.write("times.json", json.dumps(self.times))
        return self.times[suite]

    def test(self, suite, timeout):
        command = ["tests/model/run.sh"] if suite == "model" else [f"build/tests/{suite}"]
        return self.run(command, timeout, log=os.path.join(self.folder, "test.log"))

    def first_failure(self):
        """The name of the test that failed, for the table."""
        with open(os.path.join(self.folder, "test.log"), encoding="utf-8", errors="replace") as f:
            text = f.read()
        m = re.search(r":[FE]:[^:]*:([^:]*):\d+: *(.*)", text)
        return m[1] if m else text.strip().split("\n")[-1][:60]

    def assembly(self, source):
        """What the compiler makes of a file, or None where it does not compile, or with a warning."""
        flags = ["-std=gnu11", "-D_GNU_SOURCE", '-DHEARTH_VERSION="0"', "-Wall", "-Wextra", "-Werror", "-O2", "-g0", "-ffp-contract=off", "-fPIC"]
        return self.compiled(["gcc", "-I.", *flags, "-S", "-o", "-", source])

    def compiled(self, command):
        done = subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        return None if done.returncode else done.stdout

    def matters(self, path, line, new):
        """Does a mistake compile, and change what the compiler makes of some file? The first of them that it changes will do."""
        before = self.read(path)
        for user in self.users(path):
            if user not in self.plain:
                self.plain[user] = self.assembly(user)
            self.write(path, mutated(self, path, line, new))
            with_it = self.assembly(user)
            self.write(path, before)
            if with_it != self.plain[user]:
                return with_it is not None
        return False

    def try_one(self, part, path, line, new):
        """Returns (suite or None, what failed)."""
        before = self.read(path)
        groups = self.suites(part, path)
        for suite in sum(groups, []): # before the mistake
            self.seconds(suite)
        self.write(path, mutated(self, path, line, new))
        try:
            for group in groups:
                if self.build(group):
                    return "build", "it does not link"
                for suite in group:
                    if rc := self.test(suite, 20 + 8 * self.times.get(suite, UNKNOWN_SECONDS)):
                        return suite, "hangs" if rc == 124 else self.first_failure()
            return None, ""
        finally:
            self.write(path, before)

    def build(self, group):
        """Builds what suites of a group need."""
        return group != ["model"] and self.make(*["all"] * (group == PROGRAMS), *[f"build/tests/{s}" for s in group])


class Simulated(Tree):
    """The CUDA backend, on tests/cudasim."""

    targets = SIMULATED

    def users(self, source):
        """As objects: a body of several variants is one for each."""
        folder = os.path.join(self.folder, "build/tests/cudasim/obj")
        found = []
        for name in glob.glob(f"{folder}/kernels/cuda/**/*.d", recursive=True):
            with open(name, encoding="utf-8") as f:
                if re.search(rf"(^|\s){re.escape(source)}(\s|$)", f.read()):
                    found.append(os.path.relpath(name, folder)[:-2])
        return sorted(found)

    def assembly(self, source):
        """-O2 takes minutes for some of them."""
        flags = ["-DHEARTH_CUDASIM", "-isystem", "tests/cudasim/include", "-Wall", "-Werror", "-O1", "-g0", "-fPIC", "-ffp-contract=off"]
        if not source.endswith(".cu"):
            return self.compiled(["gcc", "-I.", "-std=gnu11", "-D_GNU_SOURCE", '-DHEARTH_VERSION="0"', "-Wextra", *flags, "-S", "-o", "-", source + ".c"])
        body = re.match(r"(.*)_(\d)\.cu$", source)
        return self.compiled(["g++", "-I.", "-x", "c++", "-std=gnu++17", "-fno-exceptions", "-fno-rtti", "-Wno-unknown-pragmas", *flags,
                              *([f"-DROW_TILES={body[2]}", "-S", "-o", "-", body[1] + ".cu"] if body else ["-S", "-o", "-", source])])

    def contract(self, *arguments):
        return subprocess.run(["build/tests/gpu/contract", *arguments], cwd=self.folder, stdout=subprocess.PIPE, check=True, text=True).stdout.split()

    def suites(self, part, source):
        first = next((parts for pattern, parts in CONTRACT_FIRST if re.search(pattern, os.path.basename(source))), [])
        tests = {} # (of another part than the first ones, place in its part, time): one of each part before the second of any
        for name in self.contract("--parts"):
            for place, test in enumerate(self.contract("--list", name)):
                tests.setdefault(test, (name not in first, place * (name not in first), self.times.get(test, UNKNOWN_SECONDS)))
        order = sorted(tests, key=tests.get)
        return [order + ["e2e/test_cuda"]]

    def fill(self):
        super().fill()
        os.makedirs(os.path.join(self.folder, PLAIN), exist_ok=True)
        for name in ("hearth-cuda.so", "libcublas.so.13"):
            shutil.copy(os.path.join(self.folder, "build/tests/cudasim", name), os.path.join(self.folder, PLAIN))

    def seconds(self, suite):
        """All of them take long: one that failed is run without the mistake afterwards (test)."""
        return self.times.get(suite, UNKNOWN_SECONDS)

    def test(self, suite, timeout):
        failed = self.run_with("build/tests/cudasim", suite, timeout, "test.log")
        if failed and suite not in self.times:
            began = time.time()
            if self.run_with(PLAIN, suite, 1800, "plain.log"):
                sys.exit(f"mutate: {suite} fails without a mistake: {self.folder}/plain.log")
            self.times[suite] = time.time() - began
            self.write("times.json", json.dumps(self.times))
        return failed

    def run_with(self, plugins, suite, timeout, log):
        command = [f"build/tests/{suite}"] if "/" in suite else ["build/tests/gpu/contract", suite]
        return self.run(["env", f"HEARTH_PLUGINS={plugins}", "HEARTH_CONTRACT_FIRST=1", *command], timeout, log=os.path.join(self.folder, log))

    def build(self, group):
        return self.make(*self.targets)


def draw(parts, seed, skip, count):
    """Yields mistakes in the seed's order for ever: (part, file, line, kind, new lines)."""
    rng = random.Random(seed)
    pools = {}
    for part, (_, folders) in parts.items():
        pools[part] = {}
        for folder in folders:
            for name in sorted(os.listdir(folder)):
                if name.endswith((".c", ".h", ".cu")):
                    path = f"{folder}/{name}"
                    for line, kind, new in candidates(path):
                        pools[part].setdefault(kind, []).append((path, line, new))
    total = sum(n for n, _ in parts.values())
    wanted = [part for part, (n, _) in parts.items() for _ in range(max(1, n * count // total))][:count]
    for part in wanted:
        while True:
            pool = pools[part][rng.choice(sorted(pools[part]))]
            path, line, new = pool[rng.randrange(len(pool))]
            kind = next(k for k, v in pools[part].items() if v is pool)
            if f"{path}:{line}:{kind}" not in skip:
                if (yield part, path, line, kind, new):
                    break


def mutated(tree, path, line, new):
    lines = tree.read(path).split("\n")
    lines[line - 1:line - 1 + len(new)] = new
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--of", choices=PARTS, default="daemon", help="what they are made in")
    parser.add_argument("--only", help="numbers of the list, 7,12")
    parser.add_argument("--skip", default="", help="FILE:LINE:KIND,... that change nothing: others are drawn for them")
    parser.add_argument("--list", action="store_true", help="do not run them")
    parser.add_argument("--scratch", help="a folder to build in, kept (a new one, removed)")
    options = parser.parse_args()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    only = {int(n) for n in options.only.split(",")} if options.only else None

    scratch = options.scratch or tempfile.mkdtemp(prefix="hearth-mutate-")
    os.makedirs(scratch, exist_ok=True)
    tree = (Simulated if options.of == "cuda" else Tree)(scratch)
    tree.fill()
    caught = tried = 0
    drawn = draw(PARTS[options.of], options.seed, set(options.skip.split(",")), options.count)
    mistake, number, seen = next(drawn), 1, set()
    try:
        while True:
            part, path, line, kind, new = mistake
            key = (path, line, tuple(new))
            if key in seen or not tree.matters(path, line, new):
                seen.add(key)
                mistake = drawn.send(False)
                continue
            seen.add(key)
            if not only or number in only:
                print(f"{number:2} {path}:{line}:{kind}")
                old = tree.read(path).split("\n")[line - 1:line - 1 + len(new)]
                print("\n".join([f"     - {o.strip()}" for o in old] + [f"     + {n.strip()}" for n in new]), flush=True)
                if not options.list:
                    suite, what = tree.try_one(part, path, line, new)
                    tried += 1
                    caught += suite is not None
                    print(f"     {suite}: {what}" if suite else "     NOT NOTICED", flush=True)
            number += 1
            mistake = drawn.send(True)
    except StopIteration:
        pass
    if not options.list:
        print(f"{caught} of {tried} mistakes made a test fail")
    if not options.scratch:
        shutil.rmtree(scratch)
    sys.exit(0 if caught == tried or options.list else 1)


if __name__ == "__main__":
    main()
