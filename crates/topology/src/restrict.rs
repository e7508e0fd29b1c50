//! A machine cut down to the nodes and CPUs that a user asks for.
//!
//! The hardware stays described; what was not asked for becomes "not allowed", as a cpuset makes
//! it, so that everything that respects cpusets respects the request.

use crate::machine::Restriction;
use crate::{CpuId, CpuList, Error, Machine, NodeId, NodeList};

impl Machine {
    /// This machine with only the memory and the CPUs of `nodes`, and of these CPUs only `cpus`.
    /// `None` leaves them all.
    ///
    /// A node without CPUs may be named beside others: its memory stays allowed. [`Machine::notes`]
    /// of the result say which nodes have nothing running on them.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Offline`] and [`Error::NotAllowed`] name what cannot be had, the
    /// reason, and what could; [`Error::Elsewhere`] CPUs outside the nodes; [`Error::MemoryOnly`]
    /// means that no CPU is left. An empty list is [`Error::BadList`].
    pub fn restrict(
        &self,
        nodes: Option<&[NodeId]>,
        cpus: Option<&CpuList>,
    ) -> Result<Machine, Error> {
        let nodes: Option<NodeList> = nodes.map(|ids| ids.iter().copied().collect());
        if let Some(nodes) = &nodes {
            self.check_nodes(nodes)?;
        }
        if let Some(cpus) = cpus {
            self.check_cpus(cpus)?;
        }
        if nodes.is_none() && cpus.is_none() {
            return Ok(self.clone());
        }
        if let (Some(nodes), Some(cpus)) = (&nodes, cpus) {
            let inside = |id| self.cpu(id).is_some_and(|c| nodes.contains(c.node));
            let outside: CpuList = cpus.iter().filter(|&id| !inside(id)).collect();
            if !outside.is_empty() {
                return Err(Error::Elsewhere { cpus: outside, nodes: nodes.clone() });
            }
        }

        let mut machine = self.clone();
        for cpu in &mut machine.cpus {
            cpu.allowed &= cpus.is_none_or(|list| list.contains(cpu.id));
            cpu.allowed &= nodes.as_ref().is_none_or(|list| list.contains(cpu.node));
        }
        machine.cpus.sort_by_key(|c| (!c.allowed, c.id));
        machine.allowed_cpus = machine.cpus.iter().filter(|c| c.allowed).count();
        if machine.allowed_cpus == 0 {
            let have = self.nodes().iter().filter(|n| !n.cpus.is_empty()).map(|n| n.id);
            let (nodes, available) = (nodes.unwrap_or_default(), have.collect());
            return Err(Error::MemoryOnly { nodes, available });
        }
        for node in &mut machine.nodes {
            node.memory_allowed &= nodes.as_ref().is_none_or(|list| list.contains(node.id));
            let own = machine.cpus.iter().filter(|c| c.allowed && c.node == node.id);
            node.cpus = own.map(|c| c.id).collect();
        }
        if let Some(nodes) = &nodes {
            let idle = nodes.iter().filter(|&id| self.is_idle(id, cpus));
            let idle: NodeList = idle.collect();
            if !idle.is_empty() {
                machine.notes.push(format!(
                    "node {idle}: asked for, but without a cpu that may be used: nothing runs there"
                ));
            }
        }
        let earlier = self.limits.restriction.as_ref();
        machine.limits.restriction = Some(Restriction {
            // A list that is not given leaves what an earlier one left.
            nodes: nodes.or_else(|| earlier?.nodes.clone()),
            cpus: cpus.cloned().or_else(|| earlier?.cpus.clone()),
            before: match earlier {
                Some(earlier) => earlier.before.clone(),
                None => self.cpus().iter().map(|c| c.id).collect(),
            },
        });
        Ok(machine)
    }

    fn is_idle(&self, node: NodeId, cpus: Option<&CpuList>) -> bool {
        let runs = |&id: &CpuId| cpus.is_none_or(|list| list.contains(id));
        !self.node(node).is_some_and(|n| n.cpus.iter().any(runs))
    }

    fn check_nodes(&self, nodes: &NodeList) -> Result<(), Error> {
        if nodes.is_empty() {
            return Err(empty("node"));
        }
        let missing: NodeList = nodes.iter().filter(|&id| self.node(id).is_none()).collect();
        if !missing.is_empty() {
            let all: NodeList = self.nodes().iter().map(|n| n.id).collect();
            let (ids, available) = (missing.to_string(), all.to_string());
            return Err(Error::Missing { what: "node", ids, available });
        }
        // Memory that is there but forbidden. A node that is all CPUs has none to forbid.
        let denied =
            |id: &NodeId| self.node(*id).is_some_and(|n| n.has_memory && !n.memory_allowed);
        let denied: NodeList = nodes.iter().filter(denied).collect();
        if !denied.is_empty() {
            let allowed = self.nodes().iter().filter(|n| n.memory_usable());
            return Err(Error::NotAllowed {
                what: "node",
                ids: denied.to_string(),
                by: self.denied_by("cpuset"),
                available: or_none(&allowed.map(|n| n.id).collect()),
            });
        }
        // CPUs that are there but forbidden, all of them. Without any the node is memory only.
        let barred = |id: &NodeId| {
            let online = self.all_cpus().iter().any(|c| c.node == *id);
            online && self.node(*id).is_some_and(|n| n.cpus.is_empty())
        };
        let barred: NodeList = nodes.iter().filter(barred).collect();
        if !barred.is_empty() {
            let allowed = self.nodes().iter().filter(|n| !n.cpus.is_empty());
            return Err(Error::NotAllowed {
                what: "node",
                ids: barred.to_string(),
                by: self.denied_by(self.confined_by()),
                available: or_none(&allowed.map(|n| n.id).collect()),
            });
        }
        Ok(())
    }

    fn check_cpus(&self, cpus: &CpuList) -> Result<(), Error> {
        if cpus.is_empty() {
            return Err(empty("cpu"));
        }
        let online = || self.all_cpus().iter().map(|c| c.id).collect::<CpuList>();
        let absent = |id: &CpuId| self.cpu(*id).is_none();
        let (offline, missing): (Vec<CpuId>, Vec<CpuId>) =
            cpus.iter().filter(absent).partition(|&id| self.offline.contains(id));
        if !missing.is_empty() {
            let ids = missing.into_iter().collect::<CpuList>().to_string();
            return Err(Error::Missing { what: "cpu", ids, available: online().to_string() });
        }
        if !offline.is_empty() {
            let cpus = offline.into_iter().collect();
            return Err(Error::Offline { cpus, online: online() });
        }
        let denied = |id: &CpuId| self.cpu(*id).is_some_and(|c| !c.allowed);
        let denied: CpuList = cpus.iter().filter(denied).collect();
        if !denied.is_empty() {
            return Err(Error::NotAllowed {
                what: "cpu",
                ids: denied.to_string(),
                by: self.denied_by(self.confined_by()),
                available: self.cpus().iter().map(|c| c.id).collect::<CpuList>().to_string(),
            });
        }
        Ok(())
    }

    /// What forbids a CPU or a node that exists.
    fn denied_by(&self, otherwise: &'static str) -> &'static str {
        if self.limits.restriction.is_some() { "earlier choice" } else { otherwise }
    }
}

fn empty(what: &'static str) -> Error {
    Error::BadList { what, text: String::new(), reason: format!("it names no {what}") }
}

fn or_none(nodes: &NodeList) -> String {
    if nodes.is_empty() { "none".to_owned() } else { nodes.to_string() }
}
