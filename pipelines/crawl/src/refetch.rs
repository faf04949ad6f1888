//! Fetches input files again whose bytes in the content store are damaged or missing.

use std::collections::BTreeMap;
use std::sync::Arc;

use pybench_net::HttpClient;
use pybench_run::artifacts::FILES;
use pybench_run::{Failure, FailureKind, RunContext, RunError, UnitState, Urgency};
use pybench_types::id::Digest;

use super::source::{self, Collecting, Event, Limits, Source};
use super::stage::Manifest;

/// Digest and name of each damaged file.
type Damaged = BTreeMap<Digest, String>;

/// Checks the files of a finished crawl, and collects those items again that damaged files came from. A file that its
/// source no longer has stays damaged; the rows that need it fail by name.
///
/// # Errors
/// I/O errors; [`RunError::Interrupted`].
pub(super) async fn refetch_damaged(context: &RunContext) -> Result<(), RunError> {
    let mut damaged = find_damaged(context)?;
    if damaged.is_empty() {
        return Ok(());
    }
    tracing::warn!(
        "input files of this run are damaged or missing; fetching {} again",
        damaged.len()
    );
    let web = HttpClient::new(&context.cache_dir);
    for unit in context.folder.journal().units("crawl")? {
        let (Some(output), UnitState::Done) = (unit.output, unit.state) else {
            continue;
        };
        let manifest: Manifest = serde_json::from_value(output)?;
        if !manifest
            .files
            .iter()
            .any(|file| damaged.contains_key(&file.id))
        {
            continue;
        }
        tokio::select! {
            collected = collect(context, &web, &unit.item, &mut damaged) => {
                if let Err(failure) = collected {
                    tracing::warn!("crawl: {}: {}", unit.item, failure.detail);
                }
            }
            () = context.interrupt.wait(Urgency::Finish) => return Err(RunError::Interrupted),
        }
    }
    for name in damaged.values() {
        tracing::warn!("{name} stays damaged: its source could not deliver these bytes again");
    }
    Ok(())
}

fn find_damaged(context: &RunContext) -> Result<Damaged, RunError> {
    let mut damaged = Damaged::new();
    for file in FILES.read(context.folder.root())? {
        let file = file?;
        if context.folder.store().checked_path(&file.id).is_err() {
            damaged.insert(file.id, file.name);
        }
    }
    Ok(damaged)
}

/// Collects an item and stores those of its files that are damaged.
async fn collect(
    context: &RunContext,
    web: &Arc<HttpClient>,
    item: &str,
    damaged: &mut Damaged,
) -> Result<(), Failure> {
    let (source, name) = open_source(context, web, item).await?;
    let limits = Limits::of(&context.recipe.crawl);
    let mut collecting = Collecting::start(source, name, limits);
    while let Some(event) = collecting.next().await {
        if let Event::File { bytes, .. } = event
            && damaged.contains_key(&Digest::of_bytes(&bytes))
        {
            let id = context.folder.store().put(&bytes)?;
            damaged.remove(&id);
        }
    }
    collecting.end().await
}

/// The source of an item such as `sources/1/mutagen==1.47.0`, and the name of the item in it.
async fn open_source(
    context: &RunContext,
    web: &Arc<HttpClient>,
    item: &str,
) -> Result<(Arc<dyn Source>, String), Failure> {
    let crawl = &context.recipe.crawl;
    let mut parts = item.splitn(3, '/');
    let choices = match parts.next() {
        Some("fallback") => &crawl.fallback,
        _ => &crawl.sources,
    };
    let choice = parts
        .next()
        .and_then(|number| choices.get(number.parse::<usize>().ok()?));
    let (Some(choice), Some(name)) = (choice, parts.next()) else {
        let detail = format!("no source for the item `{item}`");
        return Err(Failure::new(FailureKind::Internal, detail));
    };
    let source = source::open(choice, context, web).await?;
    Ok((source.into(), name.to_owned()))
}
