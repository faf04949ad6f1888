//! Crawl: gathers files from sources and profiles them.
//!
//! Sources are asked item by item (a folder, a URL, a package), each a unit of work: its files are
//! typed by content, stored by BLAKE3 and profiled. Then quotas decide which are kept. The stage
//! writes `files.jsonl`, one [`SourceFile`](pybench::task::SourceFile) a line, and
//! `crawl-report.jsonl`, which names every file that was left out, broken or renamed, and why.

pub mod archive;
pub(crate) mod clock;
mod entity;
pub(crate) mod name;
pub mod profile;
mod select;
pub mod sniff;
pub mod source;
pub mod stage;
pub mod text;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use pybench::run::local::LocalExecutor;
use pybench::run::{Executor, RunContext, RunError, SourceChoice, UnitState};
use serde::Serialize;
use source::{Source, Web};
use stage::{CrawlStage, Manifest, Remark, What};

/// The artefact: one source file a line, sorted by type and origin.
pub const FILES: &str = "files.jsonl";
/// Every file left out, broken or renamed.
pub const REPORT: &str = "crawl-report.jsonl";

/// Gather the recipe's files. Once done it costs nothing again: the files of a run never change.
///
/// When no source gave a file (no network) it says so and uses the recipe's `fallback`.
pub async fn run(context: &RunContext) -> Result<(), RunError> {
    if context.folder.journal().fact("files")?.is_some()
        && context.folder.root().join(FILES).exists()
    {
        return Ok(());
    }
    let crawl = &context.recipe.crawl;
    let web = Web::new(&context.cache_dir);
    let sources = check(context, &web, "sources", &crawl.sources)?;
    let fallback = check(context, &web, "fallback", &crawl.fallback)?;
    let mut gathered = gather(context, "sources", sources).await?;
    if gathered.iter().all(|manifest| manifest.files.is_empty()) && !crawl.fallback.is_empty() {
        tracing::warn!(
            "no source gave a file (is there a network?): using the recipe's fallback files"
        );
        let reports = gathered
            .into_iter()
            .flat_map(|manifest| manifest.remarks)
            .collect();
        let report = Manifest {
            files: vec![],
            remarks: reports,
        };
        gathered = gather(context, "fallback", fallback).await?;
        gathered.push(report);
        context
            .folder
            .journal()
            .set_fact("crawl_fallback", &true.into())?;
    }
    let chosen = select::select(gathered, crawl, context.recipe.seed);
    if chosen.files.is_empty() {
        let path = context.folder.write(REPORT, &lines(&chosen.remarks)?)?;
        return Err(RunError::BadInput(format!(
            "crawl found no file of use; {} says what was left out and why; check [crawl] in the recipe",
            path.display()
        )));
    }
    context.folder.write(REPORT, &lines(&chosen.remarks)?)?;
    context.folder.write(FILES, &lines(&chosen.files)?)?;
    context
        .folder
        .journal()
        .set_fact("files", &chosen.files.len().into())?;
    Ok(())
}

/// The sources of a list. Wrong paths, packages named twice and credentials that are none are found before any
/// work.
fn check(
    context: &RunContext,
    web: &Arc<Web>,
    list: &str,
    choices: &[SourceChoice],
) -> Result<Vec<Arc<dyn Source>>, RunError> {
    let mut sources = Vec::new();
    for (number, choice) in choices.iter().enumerate() {
        let at = format!("crawl.{list}[{number}]");
        if let SourceChoice::Local { path, .. } = choice {
            let folder = context.resolve(path);
            if !folder.is_dir() {
                let folder = folder.display();
                return Err(RunError::BadInput(format!(
                    "{at}.path: there is no folder {folder}"
                )));
            }
        }
        let mut seen = HashSet::new();
        let opened = source::open(choice, context, web);
        let source = opened.map_err(|f| RunError::BadInput(format!("{at}: {}", f.detail)))?;
        for item in source.items() {
            if !seen.insert(item.clone()) {
                return Err(RunError::BadInput(format!(
                    "{at}: `{item}` is named twice; name it once"
                )));
            }
        }
        sources.push(Arc::from(source));
    }
    Ok(sources)
}

/// Do the units of these sources; their manifests in order. A unit that failed gives a manifest
/// that says so.
async fn gather(
    context: &RunContext,
    list: &str,
    sources: Vec<Arc<dyn Source>>,
) -> Result<Vec<Manifest>, RunError> {
    let prefixes: Vec<String> = (0..sources.len()).map(|n| format!("{list}/{n}/")).collect();
    let sources: BTreeMap<_, _> = prefixes.iter().cloned().zip(sources).collect();
    let limits = source::Limits::of(&context.recipe.crawl);
    let stage = Arc::new(CrawlStage::new(context.folder.clone(), limits, sources));
    let items = stage.items(&prefixes);
    executor(context).run(stage, &items).await?;
    let units = context.folder.journal().units("crawl")?;
    let mut manifests = Vec::new();
    for item in &items {
        let Some(unit) = units.iter().find(|unit| unit.item == *item) else {
            continue;
        };
        match (&unit.output, unit.state) {
            (Some(output), UnitState::Done) => {
                manifests.push(serde_json::from_value(output.clone())?)
            }
            _ => {
                let failure = unit
                    .failure
                    .as_ref()
                    .map_or("not tried", |f| f.detail.as_str());
                tracing::warn!("crawl: {item}: {failure}");
                let remark = Remark {
                    what: What::LeftOut,
                    origin: name::printable(item),
                    reason: name::printable(failure),
                };
                manifests.push(Manifest {
                    files: vec![],
                    remarks: vec![remark],
                });
            }
        }
    }
    Ok(manifests)
}

/// Fewer attempts than a teacher's endpoint is worth: without a network the fallback shall not wait.
fn executor(context: &RunContext) -> LocalExecutor {
    let mut options = context.options.clone();
    options.attempts = options.attempts.min(3);
    LocalExecutor::new(
        context.folder.clone(),
        options,
        context.progress.clone(),
        context.interrupt.clone(),
    )
}

fn lines<T: Serialize>(items: &[T]) -> Result<Vec<u8>, RunError> {
    let mut bytes = Vec::new();
    for item in items {
        serde_json::to_writer(&mut bytes, item)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}
