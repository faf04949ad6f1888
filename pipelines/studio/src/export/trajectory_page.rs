//! The page of a trajectory.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pybench_run::RunError;
use pybench_types::id::Digest;
use pybench_types::text::{cut, line};
use pybench_types::trajectory::Outcome;
use serde::Serialize;

use super::Chosen;
use super::content::{task_path, trajectory_path, view, word};
use super::site::Site;
use crate::file_types::Preview;
use crate::sources::{Opened, Sources};
use crate::view::{CellView, FileView, OutputView, TurnView, View};

/// Maximum number of characters of a text file that a page shows.
const MAX_PREVIEW: usize = 4000;
/// Maximum number of characters of a query in the list.
const MAX_QUERY: usize = 200;
/// From the page of a trajectory to the top of the site.
const TOP: &str = "../../";
/// Pictures that pages show, by extension. Hosts send them as pictures by these names.
const IMAGES: [&str; 5] = ["png", "jpg", "gif", "webp", "bmp"];

/// A trajectory in the list of the first page.
#[derive(Serialize)]
pub(super) struct TrajectoryLine {
    href: String,
    name: String,
    query: String,
}

#[derive(Serialize)]
struct TrajectoryPage {
    title: String,
    about: String,
    task_href: Option<String>,
    results: Vec<ResultPart>,
    query: String,
    files: Vec<FilePart>,
    turns: Vec<TurnPart>,
    outputs: Vec<FilePart>,
}

/// A check, or a score.
#[derive(Serialize)]
struct ResultPart {
    result: &'static str,
    name: String,
    detail: String,
}

#[derive(Serialize)]
struct TurnPart {
    asked: Vec<String>,
    text: String,
    cells: Vec<CellPart>,
}

#[derive(Serialize)]
struct CellPart {
    code: Option<String>,
    outputs: Vec<OutputPart>,
}

#[derive(Serialize)]
struct OutputPart {
    kind: &'static str,
    text: String,
    src: Option<String>,
}

#[derive(Serialize)]
struct FilePart {
    name: String,
    note: String,
    src: Option<String>,
    text: String,
}

/// Writes the pages of the chosen trajectories; returns the lines of the list.
///
/// # Errors
/// A trajectory cannot be read, or a page cannot be written.
pub(super) fn write_all(
    site: &mut Site,
    sources: &Sources,
    chosen: &Chosen,
) -> Result<Vec<TrajectoryLine>, RunError> {
    let mut lines = Vec::new();
    for (name, numbers) in chosen {
        let Some(opened) = sources.open_whole(name)? else {
            continue;
        };
        for number in numbers {
            let Some(view) = view(&opened, *number)? else {
                continue;
            };
            let path = trajectory_path(name, *number);
            lines.push(TrajectoryLine {
                href: path.clone(),
                name: line(&format!("{name} {number}")),
                query: line(&cut(&view.query, MAX_QUERY)),
            });
            let page = page(site, &opened, name, view)?;
            site.page(&path, "trajectory.html", &page)?;
        }
    }
    Ok(lines)
}

fn page(
    site: &mut Site,
    opened: &Opened,
    name: &str,
    view: View,
) -> Result<TrajectoryPage, RunError> {
    let row = &view.row;
    let about = [
        &row.category,
        &row.keyword,
        &row.origin,
        &row.teacher,
        &row.format,
        &row.end,
    ];
    let about: Vec<&str> = about
        .into_iter()
        .map(String::as_str)
        .filter(|text| !text.is_empty())
        .collect();
    // A log has attempts, but no pages of tasks.
    let task = view.evaluation.as_ref().filter(|_| opened.run().is_ok());
    let task_href = task.map(|one| format!("{TOP}{}", task_path(&one.suite, &one.task)));
    Ok(TrajectoryPage {
        title: line(&format!("{name} {}", row.number)),
        about: about.join(" · "),
        task_href,
        results: results(&view),
        files: files(site, opened, &view.files)?,
        outputs: files(site, opened, &view.outputs)?,
        turns: turns(site, view.turns)?,
        query: view.query,
    })
}

/// The verdict of a run, or the scores of an evaluation. Its checks are on the page of the task.
fn results(view: &View) -> Vec<ResultPart> {
    let findings = view.verdict.iter().flat_map(|verdict| &verdict.findings);
    let findings = findings.map(|finding| ResultPart {
        result: match finding.outcome {
            Outcome::Pass => "passed",
            Outcome::Fail => "failed",
            Outcome::Unproven => "unproven",
        },
        name: format!("{} {}", finding.filter, finding.subject),
        detail: finding.detail.clone(),
    });
    let scores = view.evaluation.iter().flat_map(|one| &one.scores);
    let scores = scores.map(|score| ResultPart {
        result: word(score.passed),
        name: score.score.clone(),
        detail: String::new(),
    });
    findings.chain(scores).collect()
}

fn turns(site: &mut Site, turns: Vec<TurnView>) -> Result<Vec<TurnPart>, RunError> {
    let turns = turns.into_iter();
    let part = |turn: TurnView| {
        let cells = turn.cells.into_iter().map(|cell| self::cell(site, cell));
        Ok(TurnPart {
            asked: turn.asked,
            text: turn.text,
            cells: cells.collect::<Result<_, RunError>>()?,
        })
    };
    turns.map(part).collect()
}

fn cell(site: &mut Site, cell: CellView) -> Result<CellPart, RunError> {
    let outputs = cell.outputs.into_iter().map(|seen| output(site, seen));
    Ok(CellPart {
        outputs: outputs.collect::<Result<_, RunError>>()?,
        code: cell.code,
    })
}

fn output(site: &mut Site, seen: OutputView) -> Result<OutputPart, RunError> {
    let (kind, text) = match seen {
        OutputView::Text { text } => ("", text),
        OutputView::Stderr { text } => ("stderr", text),
        OutputView::Error { text } => ("error", text),
        OutputView::Note { text } => ("note", text),
        OutputView::Image { mime, base64 } => return image(site, &mime, &base64),
    };
    Ok(OutputPart {
        kind,
        text,
        src: None,
    })
}

/// A picture among the outputs of a cell.
fn image(site: &mut Site, mime: &str, base64: &str) -> Result<OutputPart, RunError> {
    let extension = match mime {
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        _ => "png",
    };
    let src = match STANDARD.decode(base64.replace(['\n', '\r'], "")) {
        Ok(bytes) => site.file(&bytes, extension)?,
        Err(_) => None,
    };
    Ok(OutputPart {
        kind: "note",
        text: "A picture that is not part of this site.".to_owned(),
        src: src.map(|path| format!("{TOP}{path}")),
    })
}

fn files(site: &mut Site, opened: &Opened, files: &[FileView]) -> Result<Vec<FilePart>, RunError> {
    let parts = files.iter().map(|file| self::file(site, opened, file));
    parts.collect()
}

/// A file: a picture, the start of a text, or its name only.
fn file(site: &mut Site, opened: &Opened, file: &FileView) -> Result<FilePart, RunError> {
    let mut part = FilePart {
        name: file.name.clone(),
        note: String::new(),
        src: None,
        text: String::new(),
    };
    let id = Digest::try_from(file.id.clone()).ok();
    let Some(bytes) = id.and_then(|id| opened.file(&id).ok()) else {
        part.note = "not part of this site".to_owned();
        return Ok(part);
    };
    let extension = file.name.rsplit('.').next().unwrap_or_default();
    let extension = extension.to_ascii_lowercase().replace("jpeg", "jpg");
    match file.preview {
        Preview::Image if IMAGES.contains(&&*extension) => {
            let path = site.file(&bytes, &extension)?;
            part.src = path.map(|path| format!("{TOP}{path}"));
        }
        Preview::Text => part.text = cut(&String::from_utf8_lossy(&bytes), MAX_PREVIEW),
        Preview::Image | Preview::Audio | Preview::None => {}
    }
    if part.src.is_none() && part.text.is_empty() {
        part.note = "not part of this site".to_owned();
    }
    Ok(part)
}
