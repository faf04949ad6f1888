//! Helpers that the tests of sources share.

#[path = "../../../../src/net/tests/mock/service.rs"]
mod service;

use pybench_run::Failure;

use super::{Event, Sink, Source};
pub(super) use service::{Answer, LIMITS, Mock};

/// Collects all items of a source, one line per finding: `license origin`, or `left origin: reason`.
pub(super) async fn collect(source: &dyn Source) -> Result<Vec<String>, Failure> {
    let mut lines = Vec::new();
    for item in source.items() {
        let (sink, mut events) = Sink::new(LIMITS);
        let (result, ()) = tokio::join!(source.collect(&item, sink), async {
            while let Some(event) = events.recv().await {
                lines.push(match event {
                    Event::File {
                        origin, license, ..
                    } => format!("{} {origin}", license.as_deref().unwrap_or("-")),
                    Event::LeftOut { origin, reason } => format!("left {origin}: {reason}"),
                    Event::License(license) => format!("license {license}"),
                });
            }
        });
        result?;
    }
    Ok(lines)
}
