//! Options for several hosts: their number, and the links between them.

use clap::Args;
use std::time::Duration;
use tune::hosts::HostLink;

/// Several machines with one model.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "One model over several hosts")]
pub(super) struct HostsArgs {
    /// As many such machines have a run of the layers each (arclight serve --stage)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=256),
          conflicts_with_all = ["scaling", "machines", "plot", "threads"])]
    hosts: Option<u16>,
    /// What the network between them carries, in bits per second: 25gbit, 100mbit
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "25gbit",
          requires = "hosts")]
    link: f64,
    /// Time from one host to the next: 20us, 1ms
    #[arg(long, value_name = "TIME", value_parser = latency, default_value = "20us",
          requires = "hosts")]
    link_latency: Duration,
}

/// Bytes per second.
fn rate(text: &str) -> Result<f64, String> {
    let units = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)];
    let lower = text.to_ascii_lowercase();
    let parsed = units
        .into_iter()
        .find_map(|(unit, bits)| Some(lower.strip_suffix(unit)?.parse::<f64>().ok()? * bits / 8.0));
    let parsed = parsed.filter(|rate| rate.is_finite() && *rate > 0.0);
    parsed.ok_or_else(|| "it must be a number with kbit, mbit or gbit behind it".to_owned())
}

fn latency(text: &str) -> Result<Duration, String> {
    let units = [("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3)];
    let seconds = units
        .into_iter()
        .find_map(|(unit, seconds)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * seconds));
    let parsed = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    parsed.ok_or_else(|| "it must be a number with us or ms behind it, as in 20us".to_owned())
}

/// How many hosts, and what is between them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) hosts: usize,
    pub(super) link: HostLink,
}

impl HostsArgs {
    pub(super) fn layout(&self) -> Option<Layout> {
        let latency = self.link_latency.as_secs_f64();
        let link = HostLink { bandwidth: self.link, latency };
        self.hosts.map(|hosts| Layout { hosts: hosts.into(), link })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_have_units() {
        assert_eq!(rate("25gbit"), Ok(3.125e9));
        assert_eq!(rate("100Mbit"), Ok(12.5e6));
        assert_eq!(latency("20us"), Ok(Duration::from_micros(20)));
        assert_eq!(latency("1.5ms"), Ok(Duration::from_micros(1500)));
        for wrong in ["25", "gbit", "-1gbit", "0gbit", "nangbit"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        assert!(latency("5").is_err() && latency("-1ms").is_err());
    }
}
