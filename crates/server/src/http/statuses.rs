//! How many requests had which status, by route, for `/metrics`.

use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode};
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{IntCounterVec, Opts};

/// Counts of answers since the server was started. An answer counts when its head is sent; what goes wrong in a stream
/// after that is counted by `vllm:request_success_total`.
pub(crate) struct Statuses(IntCounterVec);

impl Default for Statuses {
    fn default() -> Statuses {
        let opts = Opts::new("arclight:http_requests_total", "Answers by route, method and status");
        let counters = IntCounterVec::new(opts, &["route", "method", "class", "status"]);
        Statuses(counters.expect("names and labels are constant and valid"))
    }
}

/// What is counted of a request: there are as many of them as routes, whatever clients ask for.
pub(super) struct Route {
    path: String,
    method: &'static str,
}

impl Route {
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The route of a request, when its path has been looked up.
    pub(super) fn of(request: &Request, is_page: bool) -> Route {
        let matched = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
        let path = match matched {
            Some(path) => path,
            None if is_page => "page",
            None => "none",
        };
        let method = match *request.method() {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::DELETE => "DELETE",
            Method::HEAD => "HEAD",
            Method::OPTIONS => "OPTIONS",
            _ => "other",
        };
        Route { path: path.to_owned(), method }
    }
}

impl Statuses {
    /// An answer was begun.
    pub(super) fn count(&self, route: &Route, status: StatusCode) {
        let class = match status.as_u16() / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        };
        self.0.with_label_values(&[&*route.path, route.method, class, status.as_str()]).inc();
    }

    /// All of them.
    pub(crate) fn families(&self) -> Vec<MetricFamily> {
        let mut all = self.0.collect();
        // Before the first answer there is nothing to write.
        all.retain(|family| !family.get_metric().is_empty());
        all
    }
}
