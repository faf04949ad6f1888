//! The crawl stage: gathers files from sources and profiles them.
//!
//! Each item of a source (a folder, a URL, a package) is one unit of work. The stage detects the type
//! of every file from its content, stores the file under its BLAKE3 hash and profiles it. Quotas then
//! decide which files are kept. The stage writes `files.jsonl`, one
//! [`SourceFile`](pybench_types::task::SourceFile) per line, and `crawl-report.jsonl`, which lists every
//! file that was left out, broken or renamed, with the reason.

pub mod init;
mod refetch;
mod select;
pub mod source;
pub mod stage;
mod summary;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use pybench_files::name::printable;
use pybench_hub::fetch_input;
use pybench_net::HttpClient;
use pybench_run::artifacts::FILES;
use pybench_run::local::LocalExecutor;
use pybench_run::{Executor, RunContext, RunError, SourceChoice, UnitState};
use pybench_types::task::SourceFile;
use serde::Serialize;
use source::Source;
use stage::{CrawlStage, Manifest, Remark, RemarkKind};
use summary::Summary;

/// The description shown by `--help`.
pub const ABOUT: &str = "Gather files from the recipe's sources and profile them";
/// Name of the report that lists every file left out, broken or renamed.
pub const REPORT: &str = "crawl-report.jsonl";

/// Gathers the files that the recipe asks for. The files of a run never change, so a finished crawl
/// only fetches those again that are damaged or missing in the run folder.
///
/// If no source returns a file (for example without a network), a warning is logged and the recipe's
/// `fallback` is used.
pub async fn run(context: &RunContext) -> Result<(), RunError> {
    if context.folder.journal().metadata("files")?.is_some() && FILES.exists(context.folder.root())
    {
        return refetch::refetch_damaged(context).await;
    }
    let (crawl, query) = (&context.recipe.crawl, &context.recipe.query);
    let needs_files = !crawl.sources.is_empty() || !crawl.fallback.is_empty();
    if !needs_files && !query.task_sets.is_empty() {
        // Rows of task sets bring their own files.
        let none = std::iter::empty::<Result<SourceFile, RunError>>();
        FILES.write(&context.folder, none)?;
        return context.folder.journal().set_metadata("files", &0.into());
    }
    let chosen = choose(context).await?;
    let report = context
        .folder
        .write(REPORT, &json_lines(&chosen.remarks)?)?;
    let summary = Summary::of(&chosen);
    for line in summary.to_string().lines() {
        tracing::info!("crawl: {line}");
    }
    if chosen.files.is_empty() {
        return Err(RunError::BadInput(format!(
            "crawl found no usable file; {} lists what was left out and why; check [crawl] in the recipe, which needs at \
             least one entry in `sources` unless all tasks come from `query.task_sets`",
            report.display()
        )));
    }
    FILES.write(&context.folder, chosen.files.iter().map(Ok))?;
    context
        .folder
        .journal()
        .set_metadata("files", &chosen.files.len().into())?;
    Ok(())
}

/// Gathers the files of all sources and chooses among them by the quotas of the recipe.
async fn choose(context: &RunContext) -> Result<Manifest, RunError> {
    let crawl = &context.recipe.crawl;
    let web = HttpClient::new(&context.cache_dir);
    let sources = open_sources(context, &web, "sources", &crawl.sources).await?;
    let fallback = open_sources(context, &web, "fallback", &crawl.fallback).await?;
    let mut gathered = gather(context, "sources", sources).await?;
    if gathered.iter().all(|manifest| manifest.files.is_empty()) && !crawl.fallback.is_empty() {
        tracing::warn!(
            "no source returned a file (is the network reachable?); using the recipe's fallback files"
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
            .set_metadata("crawl_fallback", &true.into())?;
    }
    Ok(select::select(gathered, crawl, context.recipe.seed))
}

/// Opens the sources of a list. Reports missing folders, duplicate items and invalid credentials before
/// any work starts.
async fn open_sources(
    context: &RunContext,
    web: &Arc<HttpClient>,
    list: &str,
    choices: &[SourceChoice],
) -> Result<Vec<Arc<dyn Source>>, RunError> {
    let mut sources = Vec::new();
    for (number, choice) in choices.iter().enumerate() {
        let at = format!("crawl.{list}[{number}]");
        if let SourceChoice::Local { path, .. } = choice {
            let folder = fetch_input(context, path).await?;
            if !folder.is_dir() {
                let folder = folder.display();
                return Err(RunError::BadInput(format!(
                    "{at}.path: there is no folder {folder}"
                )));
            }
        }
        let mut seen = HashSet::new();
        let opened = source::open(choice, context, web).await;
        let source = opened.map_err(|f| RunError::BadInput(format!("{at}: {}", f.detail)))?;
        for item in source.items() {
            if !seen.insert(item.clone()) {
                return Err(RunError::BadInput(format!(
                    "{at}: `{item}` is listed twice; remove one of them"
                )));
            }
        }
        sources.push(Arc::from(source));
    }
    Ok(sources)
}

/// Runs the units of these sources and returns their manifests in order. A failed unit returns a
/// manifest with the failure as its only remark.
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
                    .map_or("not attempted", |f| f.detail.as_str());
                // The executor has logged it, and the summary counts it.
                tracing::debug!("crawl: {item}: {failure}");
                let remark = Remark {
                    what: RemarkKind::LeftOut,
                    origin: printable(item),
                    reason: printable(failure),
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

/// Allows at most three attempts, so that without a network the fallback starts soon; a large download may take long.
fn executor(context: &RunContext) -> LocalExecutor {
    let mut options = context.options.clone();
    options.attempts = options.attempts.min(3);
    options.unit_limit = None;
    LocalExecutor::new(
        context.folder.clone(),
        options,
        context.progress.clone(),
        context.interrupt.clone(),
    )
}

fn json_lines<T: Serialize>(items: &[T]) -> Result<Vec<u8>, RunError> {
    let mut bytes = Vec::new();
    for item in items {
        serde_json::to_writer(&mut bytes, item)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}
