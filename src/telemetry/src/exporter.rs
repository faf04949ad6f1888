//! The thread that sends telemetry. A run never waits for it: what the collector does not take in time is dropped.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use reqwest::Client;
use tokio::runtime::Runtime;

use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::wire::{Message, request};

/// Spans that wait to be sent; further ones are dropped.
const MAX_WAITING: usize = 16_384;

/// Spans in one request.
const MAX_BATCH: usize = 512;

/// How long the end of a process waits for the last export.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// What the thread is told.
pub(crate) enum Event {
    Span(Message),
    /// The process ends.
    End,
}

/// Sends spans and metrics until it is dropped.
pub(crate) struct Exporter {
    events: SyncSender<Event>,
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// # Errors
    /// The thread, its runtime or the client cannot be made.
    pub(crate) fn start(settings: Settings, metrics: Arc<Mutex<Metrics>>) -> Result<Self, String> {
        let (events, received) = sync_channel(MAX_WAITING);
        let (finished, ended) = sync_channel(1);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let client = Client::builder()
            .default_headers(settings.headers.clone())
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| error.to_string())?;
        let sender = Sender {
            settings,
            metrics,
            client,
            runtime,
            has_failed: false,
        };
        let thread = std::thread::Builder::new()
            .name("telemetry".to_owned())
            .spawn(move || {
                sender.work(&received);
                let _ = finished.send(());
            })
            .map_err(|error| error.to_string())?;
        Ok(Self {
            events,
            ended,
            thread: Some(thread),
        })
    }

    /// Where spans are put.
    pub(crate) fn events(&self) -> SyncSender<Event> {
        self.events.clone()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // If the collector hangs, the queue may be full; then the process ends without it.
        let is_full = matches!(self.events.try_send(Event::End), Err(TrySendError::Full(_)));
        if !is_full
            && self.ended.recv_timeout(END_TIMEOUT).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

struct Sender {
    settings: Settings,
    metrics: Arc<Mutex<Metrics>>,
    client: Client,
    runtime: Runtime,
    has_failed: bool,
}

impl Sender {
    fn work(mut self, events: &Receiver<Event>) {
        let mut spans = Vec::new();
        let mut next_spans = Instant::now() + self.settings.trace_interval;
        let mut next_metrics = Instant::now() + self.settings.metric_interval;
        loop {
            let wait = next_spans.min(next_metrics);
            let event = events.recv_timeout(wait.saturating_duration_since(Instant::now()));
            let is_end = matches!(event, Ok(Event::End) | Err(RecvTimeoutError::Disconnected));
            if let Ok(Event::Span(span)) = event {
                spans.push(span);
            }
            let now = Instant::now();
            if is_end || now >= next_spans || spans.len() >= MAX_BATCH {
                self.send_spans(std::mem::take(&mut spans));
                next_spans = Instant::now() + self.settings.trace_interval;
            }
            if is_end || now >= next_metrics {
                self.send_metrics();
                next_metrics = Instant::now() + self.settings.metric_interval;
            }
            if is_end {
                return;
            }
        }
    }

    fn send_spans(&mut self, spans: Vec<Message>) {
        if !spans.is_empty() {
            self.send("traces", request(&self.settings.service, spans));
        }
    }

    fn send_metrics(&mut self) {
        let metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        let messages = metrics.messages(SystemTime::now());
        drop(metrics);
        self.send("metrics", request(&self.settings.service, messages));
    }

    /// Sends one request; only the first failure is logged as a warning.
    fn send(&mut self, signal: &str, body: Message) {
        // The timer of a request is one of the runtime.
        let entered = self.runtime.enter();
        let sending = self
            .client
            .post(self.settings.url(signal))
            .header("content-type", "application/x-protobuf")
            .timeout(self.settings.timeout)
            .body(body.into_bytes())
            .send();
        drop(entered);
        let sent = self.runtime.block_on(sending);
        let why = match sent {
            Ok(reply) if reply.status().is_success() => return,
            Ok(reply) => reply.status().to_string(),
            Err(error) => error.without_url().to_string(),
        };
        match std::mem::replace(&mut self.has_failed, true) {
            true => tracing::debug!("telemetry was not sent ({signal}): {why}"),
            false => tracing::warn!(
                "telemetry was not sent to the collector of OTEL_EXPORTER_OTLP_ENDPOINT ({signal}): {why}; the run goes on without"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn exporter(endpoint: &str) -> Exporter {
        let settings = Settings::read(|name| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(endpoint.to_owned()),
            "OTEL_BSP_SCHEDULE_DELAY" => Some("1".to_owned()),
            _ => None,
        });
        let metrics = Arc::new(Mutex::new(Metrics::new(SystemTime::now())));
        Exporter::start(settings.unwrap().unwrap(), metrics).unwrap()
    }

    fn put(exporter: &Exporter, count: usize) -> usize {
        let events = exporter.events();
        let put = |_: &usize| events.try_send(Event::Span(Message::default())).is_ok();
        (0..count).filter(put).count()
    }

    /// Nothing waits: neither the run nor, for long, the end of the process.
    #[test]
    fn a_collector_that_is_away_or_hangs_stops_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        // Connections are made, and never answered.
        let hangs = exporter(&address);
        assert!(put(&hangs, 2 * MAX_WAITING) >= MAX_WAITING);
        drop(hangs);
        drop(listener);
        let is_away = exporter(&address);
        assert_eq!(put(&is_away, 100), 100);
        drop(is_away);
    }
}
