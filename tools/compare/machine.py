"""What the machine is, without saying which machine it is."""

import os
import platform
import re
from pathlib import Path


def physical_cores(sys_cpu: Path = Path("/sys/devices/system/cpu"),
                   allowed: set[int] | None = None) -> int:
    """Cores that this process may use, SMT siblings counted once."""
    allowed = os.sched_getaffinity(0) if allowed is None else allowed
    cores = set()
    for cpu in allowed:
        topology = sys_cpu / f"cpu{cpu}" / "topology"
        try:
            cores.add(tuple((topology / f).read_text().strip()
                            for f in ("physical_package_id", "core_id")))
        except OSError:
            cores.add((cpu,))
    return len(cores)


def cpuinfo_field(cpuinfo: str, name: str) -> str | None:
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def describe() -> str:
    """One line for the head of a table of results."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = cpuinfo_field(cpuinfo, "model name") or "unknown CPU"
    flags = (cpuinfo_field(cpuinfo, "flags") or "").split()
    isa = [f for f in ("amx_int8", "avx512_bf16", "avx512_vnni", "avx512f", "avx_vnni", "avx2")
           if f in flags]
    virtual = " of a virtual machine" if "hypervisor" in flags else ""
    cores = physical_cores()
    kib = int(cpuinfo_field(Path("/proc/meminfo").read_text(), "MemTotal").split()[0])
    # Without what a distribution or a host adds to it.
    kernel = re.match(r"[\d.]*\d", os.uname().release)[0]
    nodes = len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1
    return (f"{model} ({' '.join(isa) or platform.machine()}), "
            f"{cores} {'core' if cores == 1 else 'cores'}{virtual}, {kib / (1 << 20):.0f} GiB, "
            f"{nodes} memory {'node' if nodes == 1 else 'nodes'}, Linux {kernel}")
