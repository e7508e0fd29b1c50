#!/usr/bin/env python3
"""Runs a command and notes what else the machine did meanwhile.

    watch.py REPORT [--with PID] -- COMMAND...

It stands between a wrapper such as `taskset` or a queue for quiet moments and the command, so
that time spent waiting in the wrapper is not in the report:

    seconds   of wall clock
    own       CPU seconds of the command and its children, and of the process PID, which works for it
    busy      CPU seconds that the machine's processors worked, whoever for
    steal     CPU seconds that a hypervisor gave to others
    cpus      processors of the machine

Busy and steal are counted in ticks of the kernel, usually 10 ms. What no counter in here can see
is other tenants who use memory bandwidth.
"""

import json
import os
import resource
import subprocess
import sys
import time

USER, NICE, SYSTEM, IRQ, SOFTIRQ, STEAL = 0, 1, 2, 5, 6, 7


def cpu_ticks(stat: str) -> tuple[int, int]:
    """Busy and stolen ticks of all processors since boot, from the text of /proc/stat."""
    fields = [int(f) for f in stat.split("\n", 1)[0].split()[1:]]
    # Guests' time is inside user and nice.
    return sum(fields[i] for i in (USER, NICE, SYSTEM, IRQ, SOFTIRQ)), fields[STEAL]


def read_ticks() -> tuple[int, int]:
    with open("/proc/stat", encoding="ascii") as stat:
        return cpu_ticks(stat.readline())


def process_ticks(stat: str) -> int:
    """Ticks of all threads of a process, from the text of its /proc/PID/stat."""
    # The name may have spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def read_process(pid: str | None) -> int:
    if pid is None:
        return 0
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return process_ticks(stat.read())
    except FileNotFoundError:
        return 0


def main() -> int:
    report, *rest = sys.argv[1:]
    pid = rest[1] if rest[:1] == ["--with"] else None
    dashes, *command = rest[2:] if pid else rest
    if dashes != "--" or not command:
        sys.exit("usage: watch.py REPORT [--with PID] -- COMMAND...")
    served = read_process(pid)
    hz = os.sysconf("SC_CLK_TCK")
    busy, steal = read_ticks()
    start = time.monotonic()
    code = subprocess.call(command)
    seconds = time.monotonic() - start
    busy_after, steal_after = read_ticks()
    served = max(0, read_process(pid) - served)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(report, "w", encoding="ascii") as out:
        json.dump({
            "code": code,
            "seconds": seconds,
            "own": used.ru_utime + used.ru_stime + served / hz,
            "busy": (busy_after - busy) / hz,
            "steal": (steal_after - steal) / hz,
            "cpus": os.cpu_count(),
        }, out)
    # As a shell tells it.
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
