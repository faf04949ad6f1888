//! OpenTelemetry: one trace per trajectory and the metrics of a run, sent as OTLP over HTTP (`docs/telemetry.md`).
//!
//! Names, counts and times are sent; prompts, replies, code, outputs and keys are not, since [`Observer`] does not have them.

mod exporter;
mod metrics;
mod settings;
mod spans;
mod wire;

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use pybench_run::observer::{ObservedStage, ObservedStep, ObservedUnit, Observer, observe};

use exporter::{Event, Exporter};
use metrics::Metrics;
use settings::Settings;
use spans::OpenTraces;

/// Sends telemetry until it is dropped; the last of it then.
pub struct Telemetry {
    _exporter: Exporter,
}

impl Telemetry {
    /// Observes the runs of this process, if `OTEL_EXPORTER_OTLP_ENDPOINT` names a collector.
    ///
    /// # Errors
    /// A variable that is wrong; telemetry cannot be sent.
    pub fn start() -> Result<Option<Self>, String> {
        Self::start_with(|name| std::env::var(name).ok())
    }

    /// As [`Self::start`], with these variables.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let Some(settings) = Settings::read(variable)? else {
            return Ok(None);
        };
        let metrics = Arc::new(Mutex::new(Metrics::new(SystemTime::now())));
        let exporter = Exporter::start(settings, metrics.clone())?;
        let collector = Collector {
            traces: Mutex::default(),
            metrics,
            events: exporter.events(),
        };
        match observe(Box::new(collector)) {
            true => Ok(Some(Self {
                _exporter: exporter,
            })),
            false => Err("this process is observed already".to_owned()),
        }
    }
}

/// Makes spans and metrics of what happens in this process.
struct Collector {
    traces: Mutex<OpenTraces>,
    metrics: Arc<Mutex<Metrics>>,
    events: SyncSender<Event>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Observer for Collector {
    fn step(&self, step: ObservedStep<'_>) {
        locked(&self.metrics).step(&step);
        locked(&self.traces).add(&step);
    }

    fn unit(&self, unit: ObservedUnit<'_>) {
        locked(&self.metrics).unit(&unit);
        let spans = locked(&self.traces).end(&unit);
        for span in spans {
            // A full queue means that the collector is slow or away.
            let _ = self.events.try_send(Event::Span(span));
        }
    }

    fn stage(&self, stage: ObservedStage<'_>) {
        locked(&self.metrics).stage(&stage);
    }
}
