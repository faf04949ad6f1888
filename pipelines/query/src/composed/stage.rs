//! The composed tasks of a run: one unit for each draw.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use pybench_compose::{Made, TaskSeed};
use pybench_library::Library;
use pybench_run::{
    ContentStore, Executor, Failure, FailureKind, Query, Recipe, RunContext, RunError, Stage,
};
use pybench_types::difficulty;
use pybench_types::held_out::{EvaluationFiles, HeldOutRule, TestShares, Unseen};
use pybench_types::id::Digest;
use pybench_types::task::{Category, Difficulty, Language, SourceFile, Task};
use rand::seq::SliceRandom;
use serde_json::Value;

use super::draws::{Draw, Draws, MAX_MISSES, Shortfall};
use super::imprecise::{said_imprecisely, with_file_typo};
use super::pairs::{self, Other, Pairs};
use super::rounds::Rounds;
use crate::STAGE;
use crate::plan::{allocate, rng};

/// Categories that composed tasks can have.
pub(super) const COMPOSED: [Category; 3] = [Category::Chart, Category::Text, Category::ImageAudio];

/// Seeds that are tried for a task of which something certain is held out, or that has a certain difficulty.
const TRIES: usize = 16;

/// Refuses a recipe that asks for composed tasks of other kinds than there are, or holds out what does not exist.
///
/// # Errors
/// [`RunError::BadInput`].
pub(crate) fn validate(recipe: &Recipe) -> Result<(), RunError> {
    for key in unused_shares(&recipe.query)? {
        tracing::warn!(
            "query.{key} has no effect, since it is a share of the composed tasks and `query.composed` is 0"
        );
    }
    if let Some(name) = recipe
        .shard
        .held_out_names
        .iter()
        .find(|name| !exists(name))
    {
        return Err(RunError::BadInput(format!(
            "recipe, shard.held_out_names: there is no operation, pair or wording `{name}`; write an operation \
             (`rank_dense`), two of them that follow each other (`filter_above>answer_mean`), or a wording \
             (`filter_above/en/1`)"
        )));
    }
    validate_query(&recipe.query)
}

/// Whether a name is that of an operation, of a pair of operations, or of one of several wordings.
fn exists(name: &str) -> bool {
    let operation = |name: &str| pybench_compose::operations::named(name).is_some();
    if let Some((first, second)) = name.split_once('>') {
        return operation(first) && operation(second);
    }
    operation(name) || pybench_compose::is_wording(name)
}

fn validate_query(query: &Query) -> Result<(), RunError> {
    let conflict = match query {
        _ if query.composed == 0.0 && !query.difficulties.is_empty() => {
            return Err(RunError::BadInput(
                "recipe, query.difficulties: only composed tasks have a level of difficulty; set `query.composed`, or \
                 remove `query.difficulties`"
                    .into(),
            ));
        }
        _ if query.composed == 0.0 => return Ok(()),
        _ if query.writer.is_some() => "a writer makes all tasks; remove `query.writer`",
        _ if !query.keywords.is_empty() => {
            "keywords choose among templates; remove `query.keywords`"
        }
        _ if !query.categories.is_empty()
            && !COMPOSED.iter().any(|one| query.categories.contains(one)) =>
        {
            "composed tasks are of the categories `chart`, `text` and `image_audio`; add one of them to `query.categories`"
        }
        _ => return Ok(()),
    };
    Err(RunError::BadInput(format!(
        "recipe, query.composed: {conflict}, or set `query.composed` to 0"
    )))
}

/// Keys for shares of the composed tasks in a recipe without such tasks. Values that are the default do not count.
fn unused_shares(query: &Query) -> Result<Vec<&'static str>, RunError> {
    if query.composed > 0.0 {
        return Ok(Vec::new());
    }
    // Defaults are left out.
    let written = serde_json::to_value(query)?;
    let mut keys = vec!["renamed", "foreign_names", "messy", "imprecise", "typos"];
    keys.retain(|key| written[*key].as_f64().is_some_and(|share| share > 0.0));
    Ok(keys)
}

/// Writes the composed tasks. Returns the items of those that were made, at most as many as the recipe asks for, in the
/// order of their draws. None has the parts `apart`. A draw that gives no task, or one that `is_wrong`, is followed by another.
///
/// # Errors
/// As the executor's; a failed draw is no error.
pub(crate) async fn write(
    context: &RunContext,
    library: &Arc<Library>,
    (files, apart): (&[SourceFile], &BTreeSet<String>),
    is_wrong: impl Fn(&Task) -> bool,
) -> Result<Vec<String>, RunError> {
    let recipe = &context.recipe;
    let stage = Arc::new(ComposedStage::new(context, library, files, apart));
    if stage.rounds.is_empty() {
        return Ok(Vec::new());
    }
    let mut draws = Draws::new(&recipe.query, recipe.seed);
    let mut wrong = BTreeSet::new();
    loop {
        let round = draws.next_round();
        if round.is_empty() {
            // Last, so that all other tasks keep their draws if one turns out to be wrong later.
            if draws.replace(&std::mem::take(&mut wrong)) {
                continue;
            }
            break;
        }
        let items: Vec<String> = round.iter().map(|draw| draw.item()).collect();
        context.executor().run(stage.clone(), &items).await?;
        let mut drawn = Vec::with_capacity(round.len());
        for (draw, item) in round.into_iter().zip(&items) {
            let task: Option<Task> = context.folder.journal().output(STAGE, item)?;
            drawn.push((draw, task.is_some()));
            if task.is_some_and(|task| is_wrong(&task)) {
                wrong.insert(item.clone());
            }
        }
        draws.record(&drawn);
    }
    for Shortfall {
        difficulty,
        made,
        asked,
    } in draws.shortfalls()
    {
        let name = difficulty.name();
        tracing::warn!(
            "query.balance.difficulties: only {made} of {asked} {name} composed tasks were made from these files \
             ({MAX_MISSES} failed draws in a row, or the limit of draws); crawl more or other files, or lower the weight \
             of `{name}`"
        );
    }
    Ok(draws.into_items())
}

/// What a task has to be like, besides what its seed says.
#[derive(Clone, Copy)]
struct Wanted {
    /// What is held out of it.
    unseen: Option<Unseen>,
    difficulty: Option<Difficulty>,
    /// Whether it is said less precisely, if it can be.
    is_imprecise: bool,
    /// Whether the name of a file has a typo, if it can have one.
    has_typo: bool,
}

impl Wanted {
    /// Whether nothing certain is wanted: a task that cannot be reworded stays as it is.
    fn is_any(self) -> bool {
        self.unseen.is_none() && self.difficulty.is_none()
    }
}

/// Composes one task per unit. The result depends only on recipe, files and the draw.
struct ComposedStage {
    library: Arc<Library>,
    /// The files, in a seeded order.
    rounds: Rounds,
    /// Read when the first task needs them.
    pairs: OnceLock<Pairs>,
    store: ContentStore,
    seed: u64,
    /// Share of the tasks over files for training whose names and values are invented.
    renamed: f64,
    /// Share of the invented names in other languages and scripts; absent: as [`TaskSeed::foreign_names`] says.
    foreign_names: Option<f64>,
    messy: f64,
    imprecise: f64,
    typos: f64,
    /// Levels of difficulty; empty for all.
    difficulties: Vec<u32>,
    /// What tasks over files of the train split do not have.
    held_out: HeldOutRule,
    /// Operations, pairs and wordings that no task has.
    apart: BTreeSet<String>,
    /// The files whose tasks may have what is held out, and keep their names.
    evaluation_files: EvaluationFiles,
    /// Shares of what is held out of these tasks; absent: as drawn.
    test_shares: Option<TestShares>,
    /// Languages of as many draws as tasks are asked for; later draws begin again.
    languages: Vec<Language>,
}

impl ComposedStage {
    fn new(
        context: &RunContext,
        library: &Arc<Library>,
        files: &[SourceFile],
        apart: &BTreeSet<String>,
    ) -> Self {
        let recipe = &context.recipe;
        let mut files = files.to_vec();
        files.shuffle(&mut rng(&(recipe.seed, "composed files")));
        let mut shuffled = rng(&(recipe.seed, "composed languages"));
        let languages = allocate(
            recipe.query.composed_tasks(),
            &recipe.query.languages,
            &mut shuffled,
        );
        Self {
            library: library.clone(),
            rounds: Rounds::new(&files, &recipe.query.categories),
            pairs: OnceLock::new(),
            store: context.folder.store().clone(),
            seed: recipe.seed,
            renamed: recipe.query.renamed,
            foreign_names: recipe.query.foreign_names,
            messy: recipe.query.messy,
            imprecise: recipe.query.imprecise,
            typos: recipe.query.typos,
            difficulties: recipe.query.difficulties.clone(),
            held_out: recipe.shard.held_out(recipe.seed),
            apart: apart.clone(),
            evaluation_files: recipe.evaluation_files(),
            test_shares: recipe.shard.test_shares,
            languages,
        }
    }

    /// Whether tasks over a file are meant for the test split.
    fn is_for_evaluation(&self, file: &SourceFile) -> bool {
        self.evaluation_files.contains(&file.origin)
    }

    /// What is to be held out of a task over a file for evaluation, if the recipe gives that a share.
    fn wanted_unseen(&self, drawn: &Digest) -> Option<Unseen> {
        let shares = self.test_shares.as_ref()?;
        Some(shares.pick(Digest::of_json(&(drawn, "unseen")).fraction()))
    }

    /// The other tables of a draw over a file; mostly none.
    fn others(
        &self,
        file: &SourceFile,
        seed: TaskSeed<'_>,
        drawn: &Digest,
    ) -> Result<Vec<Other<'_>>, RunError> {
        if !Pairs::are_asked_for(seed, drawn) {
            return Ok(Vec::new());
        }
        let tables = self.rounds.tables();
        let is_apart = |file: &SourceFile| self.is_for_evaluation(file);
        let read = || Pairs::read(tables, &self.store, is_apart);
        let pairs = self.pairs.get_or_init(read);
        pairs.others(tables, file, drawn, &self.store)
    }

    /// Makes a task with this seed and rewords it as is wanted. If something certain is wanted that the task has not, other
    /// seeds follow; all are reworded with the first one.
    fn make(
        &self,
        file: (&SourceFile, &[u8]),
        others: &[Other<'_>],
        seed: TaskSeed<'_>,
        wanted: Wanted,
    ) -> Result<Option<Made>, Failure> {
        let first = std::iter::once(seed.seed);
        let more = (1..TRIES).map(|number| Digest::of_json(&(seed.seed, number)).seed());
        let tries = if wanted.is_any() { 1 } else { TRIES };
        for number in first.chain(more).take(tries) {
            let tried = TaskSeed {
                seed: number,
                ..seed
            };
            let made = pairs::make(file, others, tried, |keyword| {
                self.library.keywords().subcategory(keyword)
            });
            let made =
                made.map_err(|error| Failure::new(FailureKind::Internal, error.to_string()))?;
            let Some(made) = made.filter(|made| self.has_unseen(&made.task, wanted.unseen)) else {
                continue;
            };
            // A rewording can make a task more difficult.
            let made = self.reworded(made, seed, wanted)?;
            let is_asked = |one: Difficulty| difficulty::of_task(&made.task) == Some(one);
            if wanted.difficulty.is_none_or(is_asked) {
                return Ok(Some(made));
            }
        }
        Ok(None)
    }

    /// Whether `unseen` is what is held out of a task. Any task fits `None`.
    fn has_unseen(&self, task: &Task, unseen: Option<Unseen>) -> bool {
        unseen.is_none_or(|unseen| {
            let held_out = (unseen != Unseen::Files).then_some(unseen);
            self.held_out.of_task(task) == held_out
        })
    }

    /// The task in the wording that is wanted.
    fn reworded(&self, made: Made, seed: TaskSeed<'_>, wanted: Wanted) -> Result<Made, RunError> {
        let mut made = match wanted.is_imprecise {
            true => said_imprecisely(made, &self.store, seed)?,
            false => made,
        };
        if wanted.has_typo {
            made.task = with_file_typo(made.task, seed);
        }
        Ok(made)
    }

    fn task(&self, draw: Draw) -> Result<Task, Failure> {
        let internal =
            |error: &dyn std::fmt::Display| Failure::new(FailureKind::Internal, error.to_string());
        let number = draw.number;
        let at = self.rounds.at(number);
        let (file, medium) = at.ok_or_else(|| internal(&"no file fits"))?;
        let drawn = Digest::of_json(&(self.seed, "composed", number));
        let evaluated = self.is_for_evaluation(file);
        let wanted = Wanted {
            unseen: evaluated.then(|| self.wanted_unseen(&drawn)).flatten(),
            difficulty: draw.difficulty,
            is_imprecise: Digest::of_json(&(&drawn, "imprecise")).fraction() < self.imprecise,
            has_typo: Digest::of_json(&(&drawn, "typos")).fraction() < self.typos,
        };
        let mut avoided = match (evaluated, wanted.unseen) {
            (true, Some(unseen)) => self.held_out.before(unseen),
            (true, None) => HeldOutRule::default(),
            (false, _) => self.held_out.clone(),
        };
        avoided.names.extend(self.apart.iter().cloned());
        let seed = TaskSeed {
            foreign_names: self.foreign_names,
            avoided: &avoided,
            seed: drawn.seed(),
            medium,
            language: self.languages[number % self.languages.len()],
            renamed: !evaluated && drawn.fraction() < self.renamed,
            messy: Digest::of_json(&(&drawn, "messy")).fraction() < self.messy,
        };
        let bytes = self.store.get(&file.id)?;
        let others = self.others(file, seed, &drawn)?;
        match self.make((file, bytes.as_slice()), &others, seed, wanted)? {
            Some(made) => {
                for bytes in made.files {
                    self.store.put(&bytes)?;
                }
                self.of_asked_level(made.task)
            }
            None => {
                let chain = match draw.difficulty {
                    Some(difficulty) => format!("{} chain", difficulty.name()),
                    None => "chain".to_owned(),
                };
                let message = format!(
                    "no {chain} of operations on this file was drawn whose result shows each of them"
                );
                Err(Failure::new(FailureKind::Item, message))
            }
        }
    }

    /// The task, if its level of difficulty is one of the recipe's.
    fn of_asked_level(&self, task: Task) -> Result<Task, Failure> {
        let level = difficulty::level(&task).unwrap_or(0);
        if self.difficulties.is_empty() || self.difficulties.contains(&level) {
            return Ok(task);
        }
        let message =
            format!("its level of difficulty is {level}: `query.difficulties` does not name it");
        Err(Failure::new(FailureKind::Item, message))
    }
}

#[async_trait]
impl Stage for ComposedStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let internal = |reason: String| Failure::new(FailureKind::Internal, reason);
        let draw = Draw::parse(item).ok_or_else(|| internal(format!("`{item}` is no draw")))?;
        let task = self.task(draw)?;
        serde_json::to_value(task).map_err(|error| internal(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use pybench_types::task::{FileKind, TaskOrigin};

    use super::*;

    #[test]
    fn shares_of_no_composed_tasks_are_named() {
        let unused = |keys: &str| {
            let text = format!(
                "name = 't'\nteacher = {{ kind = 'expert' }}\n[query]\ntasks = 4\n{keys}\n"
            );
            let recipe = Recipe::parse("t.toml", &text, &[]).unwrap();
            unused_shares(&recipe.query).unwrap()
        };
        assert!(unused("").is_empty());
        assert!(unused("renamed = 0.0\nmessy = 0.0\nimprecise = 0.0").is_empty());
        assert_eq!(
            unused("renamed = 0.5\nimprecise = 0.1"),
            ["renamed", "imprecise"]
        );
        assert!(unused("composed = 0.5\nmessy = 1.0\nimprecise = 0.1").is_empty());
    }

    /// A table with numbers, names and days.
    fn table() -> Vec<u8> {
        let mut text = "shop,city,day,price,amount\n".to_owned();
        for row in 0..90 {
            let city = ["Bern", "Oslo", "Riga", "Turin"][row % 4];
            let (month, day) = (1 + row % 12, 1 + row % 28);
            let (price, amount) = (12.5 + (row * 37 % 91) as f64, 3 + row * 11 % 17);
            text += &format!("shop {row},{city},2023-{month:02}-{day:02},{price},{amount}\n");
        }
        text.into_bytes()
    }

    fn stage(store: ContentStore, shares: TestShares) -> ComposedStage {
        let bytes = table();
        store.put(&bytes).unwrap();
        let file = pybench_profile::source_file("shops.csv", FileKind::Csv, &bytes);
        ComposedStage {
            library: Arc::new(Library::embedded().unwrap()),
            rounds: Rounds::new(&[file], &[]),
            pairs: OnceLock::new(),
            store,
            seed: 1,
            renamed: 0.0,
            foreign_names: None,
            messy: 0.0,
            imprecise: 0.0,
            typos: 0.0,
            difficulties: Vec::new(),
            held_out: HeldOutRule {
                seed: 1,
                operations: 0.3,
                pairs: 0.3,
                ..HeldOutRule::default()
            },
            apart: BTreeSet::from(["sort_descending".to_owned()]),
            // Every file is for evaluation.
            evaluation_files: EvaluationFiles {
                seed: 1,
                share: 1.0,
            },
            test_shares: Some(shares),
            languages: vec![Language::En],
        }
    }

    fn any(number: usize) -> Draw {
        Draw {
            number,
            difficulty: None,
        }
    }

    #[test]
    fn a_draw_of_a_difficulty_gives_a_task_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = ContentStore::open(folder.path()).unwrap();
        let stage = ComposedStage {
            held_out: HeldOutRule::default(),
            test_shares: None,
            ..stage(store, TestShares::default())
        };
        for difficulty in Difficulty::ALL.map(Some) {
            let mut draws = (0..20).map(|number| Draw { number, difficulty });
            let task = draws.find_map(|draw| stage.task(draw).ok());
            let task = task.unwrap_or_else(|| panic!("no task is {difficulty:?}"));
            assert_eq!(difficulty::of_task(&task), difficulty, "{}", task.query);
        }
    }

    #[test]
    fn a_task_whose_typo_changes_its_difficulty_is_followed_by_another_try() {
        let folder = tempfile::tempdir().unwrap();
        let store = ContentStore::open(folder.path()).unwrap();
        let with = |typos: f64| ComposedStage {
            held_out: HeldOutRule::default(),
            test_shares: None,
            typos,
            ..stage(store.clone(), TestShares::default())
        };
        let (exact, misspelled) = (with(0.0), with(1.0));
        let skeleton = |stage: &ComposedStage, number: usize| {
            let difficulty = Some(Difficulty::Easy);
            let task = stage.task(Draw { number, difficulty }).ok()?;
            assert_eq!(difficulty::of_task(&task), difficulty, "{}", task.query);
            match task.origin {
                TaskOrigin::Composed { skeleton, .. } => Some(skeleton),
                _ => None,
            }
        };
        let is_other = |number: usize| {
            let task = skeleton(&misspelled, number);
            task.is_some() && task != skeleton(&exact, number)
        };
        assert!((0..20).any(is_other));
    }

    #[test]
    fn tasks_over_files_for_evaluation_keep_the_names() {
        for (share, is_renamed) in [(1.0, false), (0.0, true)] {
            let folder = tempfile::tempdir().unwrap();
            let store = ContentStore::open(folder.path()).unwrap();
            let mut stage = stage(store, TestShares::default());
            stage.test_shares = None;
            stage.renamed = 1.0;
            stage.evaluation_files.share = share;
            let tasks = (0..30).filter_map(|number| stage.task(any(number)).ok());
            let tasks: Vec<Task> = tasks.take(4).collect();
            assert!(!tasks.is_empty());
            for task in tasks {
                let TaskOrigin::Composed { renamed, .. } = task.origin else {
                    panic!("{:?}", task.origin);
                };
                assert_eq!(renamed, is_renamed, "{}", task.query);
                let mut names = task.files.iter().map(|file| &file.name);
                let is_named = names.any(|name| name.starts_with("shops"));
                assert_eq!(is_named, !is_renamed, "{}", task.query);
            }
        }
    }

    #[test]
    fn tasks_over_files_for_evaluation_lack_what_has_a_share() {
        for (unseen, held_out) in [
            (Unseen::Operations, Some(Unseen::Operations)),
            (Unseen::Files, None),
        ] {
            let mut shares = TestShares::default();
            match unseen {
                Unseen::Operations => shares.operations = 0.5,
                _ => shares.files = 0.5,
            }
            let folder = tempfile::tempdir().unwrap();
            let stage = stage(ContentStore::open(folder.path()).unwrap(), shares);
            let tasks = (0..6).filter_map(|number| stage.task(any(number)).ok());
            let tasks: Vec<Task> = tasks.collect();
            assert!(!tasks.is_empty());
            for task in tasks {
                assert_eq!(stage.held_out.of_task(&task), held_out, "{}", task.query);
                let (operations, _) = pybench_types::held_out::composition(&task);
                assert!(!operations.contains(&"sort_descending".to_owned()));
            }
        }
    }
}
