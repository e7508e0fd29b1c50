//! Traces by OTLP over HTTP, in protobuf's JSON: for a collector of OpenTelemetry.
//!
//! Spans are made by `arclight-server`; here is where they go. The exporter has a thread of its own, which sends some at
//! a time. What a collector does not take is lost, and requests do not wait for it. Variables of OpenTelemetry
//! (`OTEL_SERVICE_NAME`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, ...) hold as its SDK has them.

use crate::error::Error;
use crate::term::note;
use async_trait::async_trait;
use opentelemetry::global;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::time::Duration;

/// Time for a collector to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Traces on their way; what is left of them is sent at the end.
pub(super) struct Traces(SdkTracerProvider);

impl Traces {
    /// Sends traces to `endpoint`, or where OpenTelemetry's variables say, if they say it.
    ///
    /// # Errors
    /// When the endpoint is no URL of HTTP, or a variable cannot be understood.
    pub(super) fn begin(endpoint: Option<&str>) -> Result<Option<Traces>, Error> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let named = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        if endpoint.is_none() && !named.iter().any(|name| variable(name).is_some()) {
            return Ok(None);
        }
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .build()
            .new_agent();
        let mut exporter = SpanExporter::builder().with_http().with_http_client(Client(agent));
        exporter = exporter.with_protocol(Protocol::HttpJson);
        if let Some(url) = endpoint {
            if !url.starts_with("http://") && !url.starts_with("https://") {
                let message =
                    format!("--otlp-endpoint {url}: it must begin with http:// or https://");
                return Err(Error::Usage(message));
            }
            exporter = exporter.with_endpoint(format!("{}/v1/traces", url.trim_end_matches('/')));
        }
        let exporter =
            exporter.build().map_err(|e| Error::Usage(format!("--otlp-endpoint: {e}")))?;
        let mut resource = Resource::builder();
        if variable("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("arclight");
        }
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        global::set_text_map_propagator(TraceContextPropagator::new());
        global::set_tracer_provider(provider.clone());
        note!("traces go to {}", endpoint.unwrap_or("where OTEL_EXPORTER_OTLP_ENDPOINT says"));
        Ok(Some(Traces(provider)))
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(e) = self.0.shutdown_with_timeout(Duration::from_secs(5)) {
            tracing::warn!("the last traces were not sent: {e}");
        }
    }
}

/// The program's own HTTP client. It blocks, on the exporter's thread.
#[derive(Debug)]
struct Client(ureq::Agent);

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.0.run(request.map(|body| body.to_vec()))?;
        let (head, mut body) = answer.into_parts();
        let body = body.with_config().limit(1 << 20).read_to_vec()?;
        Ok(Response::from_parts(head, body.into()))
    }
}
