//! Traces: a span of each request, and within it what its answers' time went into, for OpenTelemetry.
//!
//! A request's span continues the trace that its `traceparent` names. The names of attributes are those of
//! OpenTelemetry's conventions for HTTP and for generative AI. No text is in them. A program that wants traces sets
//! the provider of the crate `opentelemetry`; without one all of this does nothing.

use crate::status::Served;
use axum::http::{HeaderMap, Method, StatusCode};
use opentelemetry::propagation::Extractor;
use opentelemetry::trace::{SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue, StringValue, Value, global};
use std::time::{Duration, Instant, SystemTime};

const NAME: &str = "arclight";

struct Headers<'h>(&'h HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(|name| name.as_str()).collect()
    }
}

/// The span of a request; it ends when this is dropped.
pub(crate) struct RequestSpan(Context);

impl RequestSpan {
    /// A request has come; what is written to the log as its id is its attribute, too.
    pub(crate) fn begin(
        method: &Method,
        route: &str,
        headers: &HeaderMap,
        id: &str,
    ) -> RequestSpan {
        let parent =
            global::get_text_map_propagator(|propagator| propagator.extract(&Headers(headers)));
        let tracer = global::tracer(NAME);
        let span = tracer
            .span_builder(format!("{method} {route}"))
            .with_kind(SpanKind::Server)
            .with_attributes([
                KeyValue::new("http.request.method", method.to_string()),
                KeyValue::new("http.route", route.to_owned()),
                KeyValue::new("arclight.request.id", id.to_owned()),
            ])
            .start_with_context(&tracer, &parent);
        RequestSpan(parent.with_span(span))
    }

    /// What the spans within it begin with.
    pub(crate) fn context(&self) -> Context {
        self.0.clone()
    }

    /// Whether anybody hears of it.
    pub(crate) fn is_recorded(&self) -> bool {
        self.0.span().is_recording()
    }

    /// The head of the answer is sent.
    pub(crate) fn answered(&self, status: StatusCode) {
        let span = self.0.span();
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
        if status.is_server_error() {
            span.set_attribute(KeyValue::new("error.type", status.as_str().to_owned()));
            span.set_status(Status::error(""));
        }
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        self.0.span().end();
    }
}

/// The answer of a request, in its span.
pub(crate) struct AnswerSpan(Context);

impl AnswerSpan {
    /// An answer of a model begins, in the span of the request that is being served.
    pub(crate) fn begin(operation: &'static str, model: &str) -> AnswerSpan {
        let context = Context::current();
        let span = context.span();
        span.set_attribute(KeyValue::new("gen_ai.operation.name", operation));
        span.set_attribute(KeyValue::new("gen_ai.provider.name", NAME));
        span.set_attribute(KeyValue::new("gen_ai.request.model", model.to_owned()));
        AnswerSpan(context)
    }

    /// A choice has ended: its time in the queue, for the prompt, and for the tokens after the first.
    pub(crate) fn choice(
        &self,
        served: &Served,
        (submitted, first, last): (Instant, Option<Instant>, Instant),
    ) {
        if !self.0.span().is_recording() {
            return;
        }
        let tracer = global::tracer(NAME);
        let span = |name: &'static str, from: Instant, to: Instant, attributes: Vec<KeyValue>| {
            let span =
                tracer.span_builder(name).with_start_time(time(from)).with_attributes(attributes);
            let span = span.start_with_context(&tracer, &self.0);
            self.0.with_span(span).span().end_with_timestamp(time(to));
        };
        let waited = served.place.map_or(Duration::ZERO, |(_, waited)| waited);
        let begun = (submitted + waited).min(first.unwrap_or(last));
        span("queue", submitted, begun, Vec::new());
        let number = |name: &'static str, count: usize| KeyValue::new(name, count as i64);
        let mut prompt = vec![
            number("gen_ai.usage.input_tokens", served.prompt_tokens),
            number("gen_ai.usage.cache_read.input_tokens", served.cached_tokens),
        ];
        prompt.extend(served.place.map(|(replica, _)| number("arclight.replica", replica)));
        span("prompt", begun, first.unwrap_or(last), prompt);
        if let Some(first) = first {
            let reasons = Value::Array(vec![StringValue::from(served.end)].into());
            let decode = vec![
                number("gen_ai.usage.output_tokens", served.tokens),
                KeyValue::new("gen_ai.response.finish_reasons", reasons),
            ];
            span("decode", first, last, decode);
        }
    }

    /// All choices have ended.
    pub(crate) fn end(&self, prompt_tokens: usize, tokens: usize) {
        let span = self.0.span();
        span.set_attribute(KeyValue::new("gen_ai.usage.input_tokens", prompt_tokens as i64));
        span.set_attribute(KeyValue::new("gen_ai.usage.output_tokens", tokens as i64));
    }
}

/// The time of day of an instant that has passed.
fn time(at: Instant) -> SystemTime {
    SystemTime::now().checked_sub(at.elapsed()).unwrap_or(SystemTime::UNIX_EPOCH)
}
