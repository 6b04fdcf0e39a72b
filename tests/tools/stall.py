#!/usr/bin/env python3
"""Runs a command, and stops one process of it after the other for a moment, as a busy machine does.

    tests/tools/stall.py [--seed N] [--gap SECONDS] [--stop SECONDS] COMMAND [ARGUMENT...]

A suite that fails so expects something within a time. (One whose tests stop a daemon themselves may fail because it is
continued too early.) Ends with the command's exit code.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time


def members(session):
    """The processes of a session."""
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat", encoding="latin-1") as stat:
                if int(stat.read().rsplit(")", 1)[1].split()[3]) == session:
                    yield int(name)
        except (OSError, ValueError, IndexError):
            pass  # no process, or one that has ended


def stop_one(session, seconds, rng):
    candidates = list(members(session))
    if not candidates:
        return
    pid = rng.choice(candidates)
    try:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="of the moments and the processes (1)")
    parser.add_argument("--gap", type=float, default=0.3, help="most seconds between two stops (0.3)")
    parser.add_argument("--stop", type=float, default=0.8, help="longest stop, in seconds (0.8)")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("name a command")
    rng = random.Random(options.seed)
    child = subprocess.Popen(options.command, start_new_session=True)
    while child.poll() is None:
        time.sleep(rng.uniform(0, options.gap))
        # Most stops are short, some are not.
        stop_one(child.pid, options.stop * rng.random() ** 3, rng)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


if __name__ == "__main__":
    sys.exit(main())
