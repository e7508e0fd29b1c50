//! Changes of the prefix cache, published for gateways in front of several servers.

use crate::error::Error;
use crate::term::note;
use arclight_server::CachePublisher;
use clap::Args;

/// What gateways in front of several servers want to know.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Behind a gateway")]
pub(super) struct GatewayArgs {
    /// Publish changes of the prefix cache over ZeroMQ on this endpoint, as in tcp://*:5557
    #[arg(long, value_name = "ENDPOINT")]
    kv_events: Option<String>,
    /// Endpoint on which changes that were missed are asked for, as in tcp://*:5558
    #[arg(long, value_name = "ENDPOINT", requires = "kv_events")]
    kv_events_replay: Option<String>,
    /// This server's name in topics, kv@POD@MODEL: the address that the gateway has of it [default: the
    /// host's name]
    #[arg(long, value_name = "POD", requires = "kv_events")]
    kv_events_pod: Option<String>,
}

impl GatewayArgs {
    /// Publishes changes of the prefix cache, if that is wanted.
    pub(super) async fn publisher(&self) -> Result<Option<CachePublisher>, Error> {
        let Some(endpoint) = &self.kv_events else { return Ok(None) };
        let pod = match &self.kv_events_pod {
            Some(pod) => pod.clone(),
            None => gethostname::gethostname().to_string_lossy().into_owned(),
        };
        let replay = self.kv_events_replay.as_deref();
        let publisher = CachePublisher::open(endpoint, replay, pod).await?;
        let replay = publisher.replay().map(|at| format!(", and again on {at}"));
        note!("cache events on {}{}", publisher.endpoint(), replay.unwrap_or_default());
        Ok(Some(publisher))
    }
}
