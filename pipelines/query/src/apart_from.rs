//! `query.apart_from`: what other runs hold out, so that no task of this run has it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use pybench_datasets::row::{shared_keys, template};
use pybench_datasets::{DatasetError, Row, read};
use pybench_hub::fetch_any;
use pybench_run::artifacts::HELD_OUT;
use pybench_run::{Recipe, RunContext, RunError};
use pybench_types::held_out::{
    HeldOutRule, HeldOutTask, Unseen, composition, is_unique, pair, pairs,
};
use pybench_types::id::Digest;
use pybench_types::task::{SourceFile, Task, TaskFile};
use serde_json::{Value, json};

/// Journal entry with the digest of what is kept apart, and a line for `pybench status`.
pub const APART_FROM: &str = "apart_from";

/// Name of the split of a dataset whose rows are held out.
const TEST: &str = "test";

/// What other runs hold out.
#[derive(Debug, Default)]
pub(crate) struct Apart {
    /// What files of held-out tasks have in common with others: digests and origins.
    files: BTreeSet<String>,
    /// Operations, pairs of operations, and wordings.
    pub(crate) parts: BTreeSet<String>,
    pub(crate) templates: BTreeSet<String>,
    /// Crawled files that are not used.
    unused_files: usize,
    /// Tasks that were made and dropped.
    dropped: AtomicUsize,
}

impl Apart {
    /// Reads what the runs and datasets of `query.apart_from` hold out.
    ///
    /// # Errors
    /// [`RunError::BadInput`] for one that does not exist, holds nothing out or cannot be read; [`RunError::Conflict`] if
    /// they hold out something else than when this run began.
    pub(crate) async fn of(context: &RunContext) -> Result<Self, RunError> {
        let mut apart = Self::default();
        for path in &context.recipe.query.apart_from {
            let folder = match fetch_any(path, &context.cache_dir).await? {
                Some(copy) => copy,
                None => find(context, path)?,
            };
            if HELD_OUT.exists(&folder) {
                apart.add_loop(&folder)?;
                continue;
            }
            let dataset = folder.join("dataset");
            let dataset = if dataset.is_dir() { dataset } else { folder };
            let bad = |error: DatasetError| bad(&error.to_string());
            let rows = read::dataset(&dataset).map_err(bad)?;
            if apart.add_rows(rows.map(|row| row.map_err(bad)))? == 0 {
                return Err(self::bad(&format!(
                    "{} has no test split; remove it, or make it with `shard.test_fraction` above 0",
                    dataset.display()
                )));
            }
        }
        apart.compare(context)?;
        Ok(apart)
    }

    /// Adds what the test rows have and the training rows lack. Returns the number of test rows.
    fn add_rows(
        &mut self,
        rows: impl Iterator<Item = Result<(String, Row), RunError>>,
    ) -> Result<usize, RunError> {
        let (mut held_out, mut trained) = (BTreeSet::new(), BTreeSet::new());
        let (mut held_out_templates, mut trained_templates) = (BTreeSet::new(), BTreeSet::new());
        let mut tested = 0;
        for row in rows {
            let (split, row) = row?;
            if split != TEST {
                trained.extend([row.operations, row.pairs, row.wordings].concat());
                trained_templates.insert(row.template);
                continue;
            }
            tested += 1;
            self.files.extend(shared_keys(row.all_files()));
            match Unseen::named(&row.unseen) {
                Some(Unseen::Operations) => held_out.extend(row.operations),
                Some(Unseen::Pairs) => held_out.extend(row.pairs),
                Some(Unseen::Wordings) => held_out.extend(row.wordings),
                Some(Unseen::Template) if !is_unique(&row.template) => {
                    held_out_templates.insert(row.template);
                }
                Some(Unseen::Template | Unseen::Files) | None => {}
            }
        }
        self.parts.extend(&held_out - &trained);
        self.templates
            .extend(&held_out_templates - &trained_templates);
        Ok(tested)
    }

    /// Adds what the rounds of a loop lack.
    fn add_loop(&mut self, folder: &Path) -> Result<(), RunError> {
        let recipe = Recipe::load(&folder.join("recipe.toml"), &[])?;
        let rule = recipe.shard.held_out(recipe.seed);
        for task in HELD_OUT.read_all(folder)? {
            self.add_task(&task, &rule);
        }
        Ok(())
    }

    fn add_task(&mut self, HeldOutTask { unseen, task }: &HeldOutTask, rule: &HeldOutRule) {
        self.files.extend(shared_keys(files_of(task)));
        let (operations, wordings) = composition(task);
        match unseen {
            Unseen::Operations => {
                let names = operations.into_iter();
                self.parts.extend(names.filter(|name| rule.operation(name)));
            }
            Unseen::Pairs => {
                let two = operations.windows(2);
                let held_out = two.filter(|two| rule.pair(&two[0], &two[1]));
                self.parts
                    .extend(held_out.map(|two| pair(&two[0], &two[1])));
            }
            Unseen::Wordings => {
                let names = wordings.into_iter();
                self.parts.extend(names.filter(|name| rule.wording(name)));
            }
            Unseen::Template => {
                let template = Some(template(task)).filter(|name| !is_unique(name));
                self.templates.extend(template);
            }
            Unseen::Files => {}
        }
    }

    /// The crawled files that no held-out task uses.
    pub(crate) fn keep_files(&mut self, mut files: Vec<SourceFile>) -> Vec<SourceFile> {
        let crawled = files.len();
        files.retain(|file| !self.has_file(std::iter::once(TaskFile::from(file))));
        self.unused_files = crawled - files.len();
        files
    }

    fn has_file(&self, files: impl Iterator<Item = TaskFile>) -> bool {
        let keys = shared_keys(files);
        keys.iter().any(|key| self.files.contains(key))
    }

    /// Whether a task has something of what is held out. Such a task is dropped and counted.
    pub(crate) fn drops(&self, task: &Task) -> bool {
        let (operations, wordings) = composition(task);
        let pairs = pairs(&operations);
        let mut parts = operations.iter().chain(&pairs).chain(&wordings);
        let dropped = parts.any(|part| self.parts.contains(part))
            || self.templates.contains(&template(task))
            || self.has_file(files_of(task));
        self.dropped
            .fetch_add(usize::from(dropped), Ordering::Relaxed);
        dropped
    }

    /// Records what tasks are kept apart from before the first one is made: a run that was interrupted goes on with the same.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub(crate) fn begin(&self, context: &RunContext) -> Result<(), RunError> {
        let journal = context.folder.journal();
        let from = &context.recipe.query.apart_from;
        if from.is_empty() || journal.metadata(APART_FROM)?.is_some() {
            return Ok(());
        }
        journal.set_metadata_synced(APART_FROM, &self.entry(&self.summary(from)))
    }

    /// Records what was kept apart, for `pybench status`.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub(crate) fn record(&self, context: &RunContext) -> Result<(), RunError> {
        let from = &context.recipe.query.apart_from;
        if from.is_empty() {
            return Ok(());
        }
        let text = self.summary(from);
        tracing::info!("{text}");
        let journal = context.folder.journal();
        journal.set_metadata(APART_FROM, &self.entry(&text))
    }

    fn entry(&self, text: &str) -> Value {
        json!({ "digest": self.digest(), "text": text })
    }

    fn summary(&self, from: &[PathBuf]) -> String {
        let from: Vec<String> = from.iter().map(|path| path.display().to_string()).collect();
        let from = from.join(", ");
        format!(
            "kept apart from {from}: {} crawled files, {} operations, pairs and wordings and {} templates are not used, {} \
             tasks were dropped",
            self.unused_files,
            self.parts.len(),
            self.templates.len(),
            self.dropped.load(Ordering::Relaxed)
        )
    }

    fn digest(&self) -> Digest {
        Digest::of_json(&(&self.files, &self.parts, &self.templates))
    }

    /// Refuses to go on with another set than that with which the run began.
    fn compare(&self, context: &RunContext) -> Result<(), RunError> {
        let entry = context.folder.journal().metadata(APART_FROM)?;
        let begun = entry.as_ref().and_then(|entry| entry["digest"].as_str());
        match begun.is_none_or(|digest| digest == self.digest().to_string()) {
            true => Ok(()),
            false => Err(RunError::Conflict(
                "query.apart_from: what these runs hold out has changed since the tasks of this run were written; start a \
                 new run with `--run NAME`"
                    .into(),
            )),
        }
    }
}

fn files_of(task: &Task) -> impl Iterator<Item = TaskFile> {
    task.files.iter().chain(&task.held_out).cloned()
}

/// The folder of a run or a dataset on this machine.
fn find(context: &RunContext, path: &Path) -> Result<PathBuf, RunError> {
    let root = context.folder.root();
    let runs = root.parent().unwrap_or(root);
    let folders = [runs.join(path), context.resolve(path)];
    let shown = path.display();
    let found = folders.into_iter().find(|folder| folder.is_dir());
    let found = found.ok_or_else(|| {
        bad(&format!(
            "there is no run or dataset `{shown}`; give the name of a run in {}, or the folder of a run or a dataset",
            runs.display()
        ))
    })?;
    // A link, or a name with `.` or `..`, may lead to this run.
    let real = |folder: &Path| {
        let real = folder.canonicalize();
        real.map_err(RunError::io(folder.display().to_string()))
    };
    let (own, other) = (real(root)?, real(&found)?);
    if other.starts_with(&own) {
        return Err(bad(&format!("`{shown}` is this run itself; remove it")));
    }
    if own.parent() == Some(&*other) {
        return Err(bad(&format!(
            "`{shown}` is the folder of all runs, with this run itself; give the name of one of the others"
        )));
    }
    Ok(found)
}

fn bad(why: &str) -> RunError {
    RunError::BadInput(format!("query.apart_from: {why}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pybench_run::RunFolder;
    use pybench_testing::task::task;
    use pybench_types::task::{FileKind, TaskOrigin};

    use super::*;

    fn file(name: &str) -> TaskFile {
        TaskFile {
            name: name.to_owned(),
            id: Digest::of_bytes(name.as_bytes()),
            kind: FileKind::Csv,
            origin: name.to_owned(),
            license: None,
            derived_from: None,
            format: None,
        }
    }

    fn from_template(template: &str, files: &[&str]) -> Task {
        Task {
            files: files.iter().map(|name| file(name)).collect(),
            origin: TaskOrigin::Library {
                template: template.to_owned(),
                slots: Default::default(),
                phrasing: 0,
            },
            ..task()
        }
    }

    /// The run `t` beside the run `other`.
    fn context(project: &Path) -> RunContext {
        let text = "name = 't'\nteacher = { kind = 'expert' }\n[query]\ntasks = 1\napart_from = ['other']\n";
        let recipe = Recipe::parse("t.toml", text, &[]).unwrap();
        let runs = project.join("runs");
        std::fs::create_dir_all(runs.join("other")).unwrap();
        let folder = RunFolder::open(&runs.join("t"), &recipe.to_toml().unwrap()).unwrap();
        RunContext {
            project_root: project.to_owned(),
            ..RunContext::new(Arc::new(folder), recipe)
        }
    }

    #[test]
    fn a_run_is_not_kept_apart_from_itself() {
        let project = tempfile::tempdir().unwrap();
        let context = context(project.path());
        let root = context.folder.root();
        std::os::unix::fs::symlink(root, project.path().join("runs/link")).unwrap();
        std::fs::create_dir(root.join("dataset")).unwrap();
        for path in ["t", "./t", "other/../t", "link", "runs/t/dataset", "."] {
            let error = find(&context, Path::new(path)).unwrap_err().to_string();
            assert!(error.contains("this run itself"), "{path}: {error}");
        }
        for path in ["other", "runs/other"] {
            assert!(find(&context, Path::new(path)).is_ok(), "{path}");
        }
    }

    #[tokio::test]
    async fn addresses_lead_to_buckets() {
        let project = tempfile::tempdir().unwrap();
        let mut context = context(project.path());
        context.recipe.query.apart_from = vec!["s3://bucket".into()];
        let error = Apart::of(&context).await.unwrap_err().to_string();
        assert!(error.contains("expected s3://BUCKET/PATH"), "{error}");
    }

    #[test]
    fn a_run_goes_on_with_the_parts_that_it_began_with() {
        let project = tempfile::tempdir().unwrap();
        let context = context(project.path());
        let apart = |part: &str| Apart {
            parts: BTreeSet::from([part.to_owned()]),
            ..Apart::default()
        };
        let (first, other) = (apart("rank"), apart("b>a"));
        assert!(other.compare(&context).is_ok(), "nothing is recorded yet");
        first.begin(&context).unwrap();
        // What was recorded first stays.
        other.begin(&context).unwrap();
        first.dropped.store(3, Ordering::Relaxed);
        first.compare(&context).unwrap();
        let error = other.compare(&context).unwrap_err();
        assert!(matches!(error, RunError::Conflict(_)), "{error}");
        // As at the end of a run.
        first.record(&context).unwrap();
        first.compare(&context).unwrap();
        assert!(other.compare(&context).is_err());
    }

    #[test]
    fn files_and_templates_of_held_out_tasks_are_kept_apart() {
        let mut apart = Apart::default();
        let rule = HeldOutRule::default();
        for (unseen, task) in [
            (Unseen::Files, from_template("t", &["a.csv"])),
            (Unseen::Template, from_template("held", &[])),
        ] {
            apart.add_task(&HeldOutTask { unseen, task }, &rule);
        }
        assert!(!apart.drops(&from_template("t", &["b.csv"])));
        assert!(apart.drops(&from_template("t", &["b.csv", "a.csv"])));
        assert!(apart.drops(&from_template("held", &["b.csv"])));
        let text = apart.summary(&["x".into()]);
        assert!(
            text.contains("1 templates") && text.contains("2 tasks were dropped"),
            "{text}"
        );
    }

    #[test]
    fn parts_that_training_rows_have_are_not_held_out() {
        let row = |split: &str, unseen: &str, operations: &[&str]| {
            let mut row = pybench_testing::rows::row(1);
            row.unseen = unseen.to_owned();
            row.operations = operations.iter().map(|name| (*name).to_owned()).collect();
            row.pairs = pybench_types::held_out::pairs(&row.operations);
            Ok((split.to_owned(), row))
        };
        let mut apart = Apart::default();
        let rows = [
            row("train", "", &["a", "b", "c"]),
            row("test", "pairs", &["b", "a", "b"]),
            row("test", "operations", &["a", "rank"]),
            row("test", "files", &["c", "a"]),
        ];
        assert_eq!(apart.add_rows(rows.into_iter()).unwrap(), 3);
        let parts = ["b>a", "rank"].map(str::to_owned);
        assert_eq!(apart.parts, BTreeSet::from(parts));
    }
}
