//! Made-up machines for tests: the files of a machine that is not there.
//!
//! A [`FakeMachine`] is described by a few numbers, then written as the tree of sysfs, procfs and
//! cgroupfs files that such a machine would show, which [`Machine::read_from`] reads. CPUs are
//! numbered as x86 Linux does: the first SMT sibling of every core, then all the second ones.
//!
//! ```
//! # extern crate arclight_topology as topology;
//! use topology::fake::FakeMachine;
//! // Two sockets of 4 cores, of which a container may use three CPUs.
//! let machine = FakeMachine::uniform(2, 4).affinity("0-2").machine()?;
//! assert_eq!(machine.usable_cores(), 3);
//! # Ok::<(), topology::Error>(())
//! ```

use crate::idlist::{format_ids, parse_ids};
use crate::{Error, Machine};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const GIB_IN_KB: u64 = 1 << 20;

/// A machine to be written as files. Methods take and give the value, to be chained.
#[derive(Clone, Debug)]
pub struct FakeMachine {
    nodes: Vec<FakeNode>,
    smt: u32,
    cores_per_l3: Option<u32>,
    l3_kib: u64,
    cores_per_cluster: Option<u32>,
    nodes_per_package: usize,
    die_id: bool,
    distances: BTreeMap<(u32, u32), u32>,
    offline: Vec<u32>,
    affinity: Option<String>,
    mems_allowed: Option<String>,
    cpuinfo: String,
    groups: Vec<(String, String)>,
    mounts: Vec<String>,
    files: Vec<(String, String)>,
    removed: Vec<String>,
}

#[derive(Clone, Debug)]
struct FakeNode {
    id: u32,
    cores: u32,
    memory_gib: u64,
}

/// An online CPU of a fake machine.
struct FakeCpu {
    id: u32,
    node: usize,
    /// Over the whole machine.
    core: u32,
    /// Within the node.
    core_in_node: u32,
}

impl FakeMachine {
    /// A machine without nodes, to which [`FakeMachine::node`] adds them.
    pub fn empty() -> Self {
        Self {
            nodes: vec![],
            smt: 1,
            cores_per_l3: None,
            l3_kib: 32 * 1024,
            cores_per_cluster: None,
            nodes_per_package: 1,
            die_id: true,
            distances: BTreeMap::new(),
            offline: vec![],
            affinity: None,
            mems_allowed: None,
            cpuinfo: "processor\t: 0\nmodel name\t: Fake CPU @ 2.0GHz\n".into(),
            groups: vec![],
            mounts: vec![],
            files: vec![],
            removed: vec![],
        }
    }

    /// `nodes` nodes numbered from 0, each a package of `cores` cores and 64 GiB; no SMT, one L3
    /// per node, distance 10 within and 20 between nodes.
    pub fn uniform(nodes: u32, cores: u32) -> Self {
        (0..nodes).fold(Self::empty(), |machine, id| machine.node(id, cores, 64))
    }

    /// Adds a node; 0 cores make it memory-only, 0 GiB CPU-only.
    #[must_use]
    pub fn node(mut self, id: u32, cores: u32, memory_gib: u64) -> Self {
        self.nodes.push(FakeNode { id, cores, memory_gib });
        self
    }

    /// Hardware threads per core.
    #[must_use]
    pub fn smt(mut self, threads: u32) -> Self {
        self.smt = threads;
        self
    }

    /// Splits each node's L3 into one per so many cores (default: one per node).
    #[must_use]
    pub fn cores_per_l3(mut self, cores: u32) -> Self {
        self.cores_per_l3 = Some(cores);
        self
    }

    /// Size of each L3 in KiB (default 32 MiB); 0: there is none.
    #[must_use]
    pub fn l3_kib(mut self, kib: u64) -> Self {
        self.l3_kib = kib;
        self
    }

    /// Gives every so many cores a cluster number.
    #[must_use]
    pub fn cores_per_cluster(mut self, cores: u32) -> Self {
        self.cores_per_cluster = Some(cores);
        self
    }

    /// So many nodes make a package (default 1).
    #[must_use]
    pub fn nodes_per_package(mut self, nodes: usize) -> Self {
        self.nodes_per_package = nodes;
        self
    }

    /// No `die_id` files, as on kernels before 5.3 and some Arm machines.
    #[must_use]
    pub fn without_die_id(mut self) -> Self {
        self.die_id = false;
        self
    }

    /// Distance between two nodes, in both directions.
    #[must_use]
    pub fn distance(mut self, a: u32, b: u32, distance: u32) -> Self {
        self.distances.insert((a, b), distance);
        self.distances.insert((b, a), distance);
        self
    }

    /// CPUs that exist but are offline, as a list.
    ///
    /// # Panics
    /// On a malformed list.
    #[must_use]
    pub fn offline(mut self, cpus: &str) -> Self {
        self.offline = parse_ids(cpus).expect("offline cpus of a fake machine");
        self
    }

    /// The affinity mask, as a list (default: all online CPUs).
    #[must_use]
    pub fn affinity(mut self, cpus: &str) -> Self {
        self.affinity = Some(cpus.into());
        self
    }

    /// The nodes whose memory is allowed, as a list (default: all).
    #[must_use]
    pub fn mems_allowed(mut self, nodes: &str) -> Self {
        self.mems_allowed = Some(nodes.into());
        self
    }

    /// Text of `/proc/cpuinfo`.
    #[must_use]
    pub fn cpuinfo(mut self, text: &str) -> Self {
        self.cpuinfo = text.into();
        self
    }

    /// Puts the process into the cgroup v2 group `path` (such as `/a/b`), v2 being mounted at
    /// `/sys/fs/cgroup`. Files of groups are written with [`FakeMachine::cgroup_file`].
    #[must_use]
    pub fn cgroup_v2(mut self, path: &str) -> Self {
        self.groups.push((String::new(), path.into()));
        self.mounts.push("40 30 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw".into());
        self
    }

    /// Puts the process into the v1 group `path` of a hierarchy with the given controllers (such
    /// as `cpu,cpuacct`), mounted at `/sys/fs/cgroup/{controllers}`.
    #[must_use]
    pub fn cgroup_v1(mut self, controllers: &str, path: &str) -> Self {
        self.groups.push((controllers.into(), path.into()));
        self.mounts.push(format!(
            "41 30 0:31 / /sys/fs/cgroup/{controllers} rw - cgroup cgroup rw,{controllers}"
        ));
        self
    }

    /// A file below `/sys/fs/cgroup`.
    #[must_use]
    pub fn cgroup_file(self, path: &str, text: &str) -> Self {
        self.file(&format!("sys/fs/cgroup/{}", path.trim_start_matches('/')), text)
    }

    /// Any file, by its path below the root; written last, so it replaces what is there.
    #[must_use]
    pub fn file(mut self, path: &str, text: &str) -> Self {
        self.files.push((path.into(), text.into()));
        self
    }

    /// Removes a file or directory, by its path below the root, after writing.
    #[must_use]
    pub fn without(mut self, path: &str) -> Self {
        self.removed.push(path.into());
        self
    }

    /// Writes the tree under `root`, which is created if need be.
    ///
    /// # Errors
    /// [`Error::FakeWrite`] names the file that could not be written or removed.
    pub fn write(&self, root: &Path) -> Result<(), Error> {
        let mut files = vec![];
        self.nodes_files(&mut files);
        let cpus = self.online_cpus();
        for cpu in &cpus {
            self.cpu_files(cpu, &cpus, &mut files);
        }
        self.process_files(&cpus, &mut files);
        files.extend(self.files.iter().cloned());
        for (path, text) in files {
            write_file(&root.join(path), &text)?;
        }
        for path in &self.removed {
            let path = root.join(path);
            let result =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            result.map_err(|source| Error::FakeWrite { path, source })?;
        }
        Ok(())
    }

    /// Writes the tree to a temporary directory, reads the machine from it, and removes it.
    ///
    /// # Errors
    /// [`Error::FakeWrite`], and whatever [`Machine::read_from`] finds wrong.
    pub fn machine(&self) -> Result<Machine, Error> {
        let dir = TempDir::new()?;
        self.write(&dir.0)?;
        Machine::read_from(&dir.0)
    }

    fn online_cpus(&self) -> Vec<FakeCpu> {
        let total: u32 = self.nodes.iter().map(|n| n.cores).sum();
        let mut cpus = vec![];
        for rank in 0..self.smt {
            let mut core = 0;
            for (node, n) in self.nodes.iter().enumerate() {
                for core_in_node in 0..n.cores {
                    cpus.push(FakeCpu { id: rank * total + core, node, core, core_in_node });
                    core += 1;
                }
            }
        }
        cpus.retain(|c| !self.offline.contains(&c.id));
        cpus
    }

    fn nodes_files(&self, files: &mut Vec<(String, String)>) {
        let cpus = self.online_cpus();
        for (i, node) in self.nodes.iter().enumerate() {
            let dir = format!("sys/devices/system/node/node{}", node.id);
            let id = node.id;
            let own = cpus.iter().filter(|c| c.node == i).map(|c| c.id);
            let row = self.nodes.iter().map(|to| {
                let default = if to.id == id { 10 } else { 20 };
                self.distances.get(&(id, to.id)).copied().unwrap_or(default).to_string()
            });
            let total = node.memory_gib * GIB_IN_KB;
            files.push((format!("{dir}/cpulist"), line(format_ids(own))));
            files.push((format!("{dir}/distance"), line(row.collect::<Vec<_>>().join(" "))));
            let free = total / 8 * 7;
            let meminfo =
                format!("Node {id} MemTotal: {total:12} kB\nNode {id} MemFree:  {free:12} kB\n");
            files.push((format!("{dir}/meminfo"), meminfo));
        }
    }

    fn cpu_files(&self, cpu: &FakeCpu, all: &[FakeCpu], files: &mut Vec<(String, String)>) {
        let dir = format!("sys/devices/system/cpu/cpu{}", cpu.id);
        let sharing = |same: &dyn Fn(&FakeCpu) -> bool| {
            line(format_ids(all.iter().filter(|c| same(c)).map(|c| c.id)))
        };
        let package = cpu.node / self.nodes_per_package;
        let mut file = |path: &str, text: String| files.push((format!("{dir}/{path}"), text));
        file("topology/physical_package_id", line(package));
        file("topology/core_id", line(cpu.core));
        file("topology/core_cpus_list", sharing(&|c| c.core == cpu.core));
        if self.die_id {
            file("topology/die_id", line(0));
        }
        if let Some(cores) = self.cores_per_cluster {
            file("topology/cluster_id", line(cpu.core / cores));
        }
        let own = sharing(&|c| c.core == cpu.core);
        let mut cache = |index: u32, level: u32, kind: &str, kib: u64, shared: String| {
            let dir = format!("cache/index{index}");
            file(&format!("{dir}/level"), line(level));
            file(&format!("{dir}/type"), line(kind));
            file(&format!("{dir}/size"), line(format!("{kib}K")));
            file(&format!("{dir}/coherency_line_size"), line(64));
            file(&format!("{dir}/shared_cpu_list"), shared);
        };
        cache(0, 1, "Data", 32, own.clone());
        cache(1, 1, "Instruction", 32, own.clone());
        cache(2, 2, "Unified", 1024, own);
        if self.l3_kib > 0 {
            let part = |c: &FakeCpu| (c.node, self.cores_per_l3.map(|n| c.core_in_node / n));
            let shared = sharing(&|c| part(c) == part(cpu));
            cache(3, 3, "Unified", self.l3_kib, shared);
        }
    }

    fn process_files(&self, cpus: &[FakeCpu], files: &mut Vec<(String, String)>) {
        let online = format_ids(cpus.iter().map(|c| c.id));
        let nodes = format_ids(self.nodes.iter().map(|n| n.id));
        let affinity = self.affinity.as_ref().unwrap_or(&online);
        let mems = self.mems_allowed.as_ref().unwrap_or(&nodes);
        let status =
            format!("Name:\tfake\nCpus_allowed_list:\t{affinity}\nMems_allowed_list:\t{mems}\n");
        let group = |(i, (controllers, path)): (usize, &(String, String))| match &**controllers {
            "" => format!("0::{path}\n"),
            _ => format!("{}:{controllers}:{path}\n", i + 1),
        };
        let total: u64 = self.nodes.iter().map(|n| n.memory_gib * GIB_IN_KB).sum();
        let mut file = |path: &str, text: String| files.push((path.to_owned(), text));
        for &id in &self.offline {
            file(&format!("sys/devices/system/cpu/cpu{id}/online"), line(0));
        }
        file("sys/devices/system/cpu/online", line(online));
        file("proc/self/status", status);
        file("proc/self/cgroup", self.groups.iter().enumerate().map(group).collect());
        file("proc/self/mountinfo", self.mounts.iter().map(line).collect());
        file("proc/meminfo", format!("MemTotal: {total} kB\nMemFree: {total} kB\n"));
        file("proc/cpuinfo", self.cpuinfo.clone());
    }
}

fn line(text: impl std::fmt::Display) -> String {
    format!("{text}\n")
}

fn write_file(path: &Path, text: &str) -> Result<(), Error> {
    let fail = |source| Error::FakeWrite { path: path.to_owned(), source };
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(fail)?;
    }
    fs::write(path, text).map_err(fail)
}

/// A directory of its own that goes away with the value.
struct TempDir(PathBuf);

impl TempDir {
    /// In memory where that is possible: a large machine is thousands of files, and making them
    /// on a disk took 35 times as long.
    fn new() -> Result<Self, Error> {
        Self::new_in(Path::new("/dev/shm")).or_else(|_| Self::new_in(&std::env::temp_dir()))
    }

    fn new_in(parent: &Path) -> Result<Self, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("fake-machine-{}-{n}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                // Left over from an earlier process of the same number: not ours to touch.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(Error::FakeWrite { path, source }),
            }
        }
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // Nothing to be done in a test that cannot remove its files; the system clears them.
        let _ = fs::remove_dir_all(&self.0);
    }
}
