//! The latest numbers of a run for Prometheus, in its text format 0.0.4, over HTTP.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value as Json;
use tiny_http::{Header, Method, Response, Server};

use super::{Sink, numbers};

/// What is measured once, before the first step.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The run's name.
    pub run: String,
    /// Steps of the whole run.
    pub total_steps: u64,
    /// Bytes that the plan keeps on the device.
    pub planned_bytes: u64,
}

/// Answers `GET /metrics`.
pub struct Prometheus {
    latest: Arc<Mutex<Latest>>,
    server: Arc<Server>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Latest {
    facts: Facts,
    step: u64,
    values: BTreeMap<String, f64>,
    skipped: u64,
    rewound: u64,
}

impl std::fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prometheus").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Prometheus {
    /// Listens at an address, such as `127.0.0.1:9464`; port 0 takes a free one.
    ///
    /// # Errors
    /// When that is no address, or another process listens there.
    pub fn listen(address: impl ToSocketAddrs, facts: Facts) -> io::Result<Self> {
        let server = Arc::new(Server::http(address).map_err(io::Error::other)?);
        let address = server.server_addr().to_ip();
        let address = address.ok_or_else(|| io::Error::other("it is no address of a network"))?;
        let (values, step) = (BTreeMap::new(), 0);
        let latest = Latest { facts, step, values, skipped: 0, rewound: 0 };
        let latest = Arc::new(Mutex::new(latest));
        let (held, listening) = (latest.clone(), server.clone());
        std::thread::Builder::new().name("metrics".into()).spawn(move || {
            for request in listening.incoming_requests() {
                let known = matches!(request.url(), "/metrics" | "/");
                // A client that went away is no matter of the run's.
                let _ = if *request.method() != Method::Get || !known {
                    request.respond(Response::empty(404))
                } else {
                    let text = held.lock().unwrap_or_else(PoisonError::into_inner).text();
                    let form = Header::from_bytes("Content-Type", "text/plain; version=0.0.4");
                    let mut response = Response::from_string(text);
                    form.into_iter().for_each(|form| response.add_header(form));
                    request.respond(response)
                };
            }
        })?;
        Ok(Prometheus { latest, server, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.server.unblock();
    }
}

impl Sink for Prometheus {
    fn record(&mut self, line: &Json) -> io::Result<()> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.step = line["step"].as_u64().unwrap_or(latest.step);
        latest.skipped += u64::from(line["skipped"] == true);
        latest.values.extend(numbers(line).map(|(name, value)| (name.to_owned(), value)));
        Ok(())
    }

    fn rewound(&mut self, step: u64) -> io::Result<()> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        (latest.step, latest.rewound) = (step, latest.rewound + 1);
        Ok(())
    }
}

impl Latest {
    fn text(&self) -> String {
        let mut out = String::new();
        let value = |name: &str| self.values.get(name).copied();
        let rate = value("seconds").filter(|seconds| *seconds > 0.0);
        let rate = rate.and_then(|seconds| Some(value("weight")? / seconds));
        let gauges: [(&str, &str, Option<f64>); 8] = [
            ("step", "Steps done.", Some(self.step as f64)),
            ("total_steps", "Steps of the whole run.", Some(self.facts.total_steps as f64)),
            ("epoch", "The epoch, from 0.", value("epoch")),
            ("loss", "Training loss of the last step.", value("train/loss")),
            ("learning_rate", "Learning rate of the last step.", value("lr")),
            ("gradient_norm", "Norm of the gradient before clipping.", value("grad_norm")),
            ("samples_per_second", "Samples, or tokens that count, in a second.", rate),
            ("planned_bytes", "Bytes kept on the device.", Some(self.facts.planned_bytes as f64)),
        ];
        let run = escaped(&self.facts.run);
        for (name, help, value) in gauges {
            if let Some(value) = value {
                let _ = write!(
                    out,
                    "# HELP wootz_{name} {help}\n# TYPE wootz_{name} gauge\nwootz_{name}{{run=\"{run}\"}} {value}\n"
                );
            }
        }
        let counters = [
            ("skipped_steps_total", "Steps left out because they were not finite.", self.skipped),
            ("rollbacks_total", "Times that the run went back to a checkpoint.", self.rewound),
        ];
        for (name, help, value) in counters {
            let _ = write!(
                out,
                "# HELP wootz_{name} {help}\n# TYPE wootz_{name} counter\nwootz_{name}{{run=\"{run}\"}} {value}\n"
            );
        }
        out += "# HELP wootz_metric Every number of the last step and the last validation.\n";
        out += "# TYPE wootz_metric gauge\n";
        for (name, value) in &self.values {
            let name = escaped(name);
            let _ = writeln!(out, "wootz_metric{{run=\"{run}\",name=\"{name}\"}} {value}");
        }
        out
    }
}

/// A label's value as the format writes it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
