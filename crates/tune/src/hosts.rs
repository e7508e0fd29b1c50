//! One model over several hosts: how steps follow each other through them.
//!
//! Each host has a run of layers, and its time for a step is that of any machine. On top come the links. Sequences are
//! dealt to as many groups as there are hosts, and while one group is in a host, another is in the next. So tokens come
//! as fast as the slowest host or link lets groups pass, but a group's next token only after its last one went round.
//!
//! Limits: all hosts are alike; a link passes rows of one step at a time; the front's sampling is free; no jitter.

/// What is between two hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostLink {
    /// Bytes per second.
    pub bandwidth: f64,
    /// Seconds from one host to the next.
    pub latency: f64,
}

impl HostLink {
    /// Seconds that so many bytes keep the link busy.
    fn busy(&self, bytes: f64) -> f64 {
        bytes / self.bandwidth
    }
}

/// What limits a model over several hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostLimit {
    /// A host, from 0 on: the others wait for it.
    Host(usize),
    /// The bytes on a link.
    Link,
    /// The way round through all hosts: more sequences would fill them.
    Round,
}

/// How fast tokens come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// Tokens per second, of all sequences together.
    pub tokens_per_second: f64,
    /// Seconds until a step has been through all hosts.
    pub round: f64,
    /// What limits it.
    pub limit: HostLimit,
}

/// The slowest of the hosts or the link between them, and its seconds.
fn slowest(hosts: &[f64], link: f64) -> (f64, HostLimit) {
    let slower = |most: (f64, HostLimit), (host, &seconds): (usize, &f64)| {
        if seconds > most.0 { (seconds, HostLimit::Host(host)) } else { most }
    };
    hosts.iter().enumerate().fold((link, HostLimit::Link), slower)
}

/// Seconds of a step that takes so long in each host, once round: rows of so many bytes go over all links but the
/// first way, by which the front tells what to compute.
fn round(hosts: &[f64], row_bytes: f64, link: HostLink) -> f64 {
    let links = (hosts.len() - 1) as f64;
    hosts.iter().sum::<f64>() + (links + 1.0) * link.latency + links * link.busy(row_bytes)
}

/// Decoding with so many sequences: `hosts` is how long a step of one group ([`group`]) takes in each.
pub fn decoding(hosts: &[f64], sequences: usize, row_bytes: f64, link: HostLink) -> Flow {
    let each = group(sequences, hosts.len());
    let groups = sequences.div_ceil(each) as f64;
    let bytes = each as f64 * row_bytes;
    let (slowest, limit) = slowest(hosts, link.busy(bytes));
    let round = round(hosts, bytes, link);
    // All groups are once in each host between two tokens of one.
    let (time, limit) = match groups * slowest > round {
        true => (groups * slowest, limit),
        false => (round, HostLimit::Round),
    };
    Flow { tokens_per_second: sequences as f64 / time, round, limit }
}

/// Sequences of a group, of so many over so many hosts.
pub fn group(sequences: usize, hosts: usize) -> usize {
    sequences.div_ceil(hosts).max(1)
}

/// Tokens of a part of a prompt, where steps have `step` at most: as the engine cuts it.
pub fn part(step: usize, hosts: usize) -> usize {
    (step / (2 * hosts)).max(64).min(step)
}

/// A prompt of so many tokens, whose parts follow each other: `hosts` is how long all of them take in each.
pub fn prompt(
    hosts: &[f64],
    (tokens, part): (usize, usize),
    row_bytes: f64,
    link: HostLink,
) -> Flow {
    let parts = tokens.div_ceil(part) as f64;
    let each: Vec<f64> = hosts.iter().map(|seconds| seconds / parts).collect();
    let bytes = tokens as f64 / parts * row_bytes;
    let (slowest, limit) = slowest(&each, link.busy(bytes));
    let round = round(&each, bytes, link);
    let time = round + (parts - 1.0) * slowest;
    let limit = if parts * slowest > round { limit } else { HostLimit::Round };
    Flow { tokens_per_second: tokens as f64 / time, round, limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: HostLink = HostLink { bandwidth: 1e12, latency: 0.0 };

    #[test]
    fn one_sequence_goes_round_and_many_fill_the_hosts() {
        let hosts = [0.01, 0.02, 0.01];
        let one = decoding(&hosts, 1, 0.0, FAST);
        assert!((one.tokens_per_second - 25.0).abs() < 1e-6 && one.limit == HostLimit::Round);
        // Groups of two pass the slowest host, 50 times a second.
        let six = decoding(&hosts, 6, 0.0, FAST);
        assert!((six.tokens_per_second - 100.0).abs() < 1e-6, "{six:?}");
        assert_eq!(six.limit, HostLimit::Host(1));
        // With a long way no host is busy all the time.
        let far = decoding(&hosts, 6, 0.0, HostLink { latency: 0.02, ..FAST });
        assert!((far.round - 0.1).abs() < 1e-9 && far.limit == HostLimit::Round);
        assert!((far.tokens_per_second - 60.0).abs() < 1e-6);
    }

    #[test]
    fn a_slow_link_is_the_limit() {
        let link = HostLink { bandwidth: 1e6, latency: 0.0 };
        let flow = decoding(&[0.001; 2], 8, 16e3, link);
        // Four rows of 16 kB take 64 ms.
        assert_eq!(flow.limit, HostLimit::Link);
        assert!((flow.tokens_per_second - 8.0 / 0.128).abs() < 0.1, "{flow:?}");
        let flow = prompt(&[0.1; 2], (640, 64), 16e3, link);
        assert_eq!(flow.limit, HostLimit::Link);
    }

    #[test]
    fn parts_of_a_prompt_overlap() {
        // Four parts of 10 ms each in two hosts: five rounds of 10 ms.
        let flow = prompt(&[0.04, 0.04], (512, 128), 0.0, FAST);
        assert!((flow.tokens_per_second - 512.0 / 0.05).abs() < 1e-6, "{flow:?}");
        assert_eq!((part(512, 2), part(512, 8), part(32, 2)), (128, 64, 32));
        assert_eq!((group(1, 4), group(6, 4), group(8, 4)), (1, 2, 2));
    }
}
