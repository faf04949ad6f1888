//! Chooses the library tasks of a run: balanced over categories, templates, files and languages, and
//! determined by the seed.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use pybench_run::{ContentStore, FileUse, Query, RunError};
use pybench_types::id::Digest;
use pybench_types::task::{Category, Language, SourceFile};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use pybench_library::{Draft, Library, Template};

/// Maximum file combinations considered per template.
const MAX_COMBINATIONS: usize = 1000;
/// Draws on one file combination that repeat earlier tasks before the combination counts as exhausted.
const MAX_REPEATS: u32 = 8;

/// A task to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedTask {
    /// The unit's item: `template#number:digest`.
    pub item: String,
    pub template: String,
    /// Indices into the crawled files, one per input.
    pub files: Vec<usize>,
    pub slots: BTreeMap<String, serde_json::Value>,
    pub language: Language,
    /// Index of the phrasing.
    pub phrasing: usize,
    /// Seed for random choices while the task is written.
    pub seed: u64,
}

/// The language of each task that is requested from templates.
pub(super) fn languages(query: &Query, seed: u64) -> Vec<Language> {
    let mut shuffled = rng(&(seed, "languages"));
    let others = query.composed_tasks() + query.set_tasks().iter().sum::<usize>();
    let templates = query.tasks.saturating_sub(others);
    allocate(templates, &query.languages, &mut shuffled)
}

/// Assigns a value to each of `count` tasks: exact shares by largest remainder, then shuffled.
pub(super) fn allocate<T: Copy + Ord>(
    count: usize,
    shares: &BTreeMap<T, f64>,
    rng: &mut ChaCha8Rng,
) -> Vec<T> {
    let total: f64 = shares.values().sum();
    let mut parts: Vec<(T, usize, f64)> = Vec::new();
    for (what, share) in shares {
        let exact = count as f64 * share / total.max(f64::MIN_POSITIVE);
        parts.push((*what, exact.floor() as usize, exact.fract()));
    }
    parts.sort_by(|a, b| b.2.total_cmp(&a.2));
    let given: usize = parts.iter().map(|part| part.1).sum();
    let missing = count.saturating_sub(given);
    let kinds = parts.len().max(1);
    for (i, part) in parts.iter_mut().enumerate() {
        part.1 += missing / kinds + usize::from(i < missing % kinds);
    }
    parts.sort_by_key(|part| part.0);
    let copies = |part: &(T, usize, f64)| std::iter::repeat_n(part.0, part.1);
    let mut assigned: Vec<_> = parts.iter().flat_map(copies).collect();
    assigned.shuffle(rng);
    assigned
}

pub(super) fn rng<T: serde::Serialize>(key: &T) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(Digest::of_json(key).seed())
}

/// Chooses one task after the other. No two have the same query on the same files, or the same template with the same
/// files and values.
pub(super) struct Planner<'a> {
    files: &'a [SourceFile],
    seed: u64,
    /// Maximum tasks per template.
    cap: usize,
    states: Vec<TemplateState<'a>>,
    /// Tasks per file so far.
    usage: Vec<usize>,
    /// Fingerprints of the planned tasks.
    seen: HashSet<Digest>,
}

/// The remaining possibilities of one template.
struct TemplateState<'a> {
    template: &'a Template,
    /// Matching file combinations in a seeded order.
    combinations: Vec<Vec<usize>>,
    /// Tasks planned so far.
    taken: usize,
    /// Draws made so far.
    draws: u64,
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        library: &'a Library,
        files: &'a [SourceFile],
        query: &Query,
        seed: u64,
        store: &ContentStore,
    ) -> Result<Self, RunError> {
        known_keywords(library, query)?;
        let wanted = |template: &&Template| {
            let category =
                query.categories.is_empty() || query.categories.contains(&template.category);
            let keyword =
                query.keywords.is_empty() || query.keywords.contains(template.keyword.get_ref());
            category && keyword
        };
        let mut states = Vec::new();
        for template in library.templates().filter(wanted) {
            let mut rng = rng(&(seed, template.name(), "files"));
            let mut combinations =
                template.combinations(files, MAX_COMBINATIONS, store, &mut rng)?;
            if query.files == FileUse::Required {
                combinations.retain(|files| !files.is_empty());
            }
            states.push(TemplateState {
                template,
                combinations,
                taken: 0,
                draws: 0,
            });
        }
        states.shuffle(&mut rng(&(seed, "templates")));
        Ok(Self {
            files,
            seed,
            cap: ((query.tasks as f64 * query.template_share).floor() as usize).max(1),
            states,
            usage: vec![0; files.len()],
            seen: HashSet::new(),
        })
    }

    /// Plans no tasks of these templates.
    pub(super) fn leave_out(&mut self, templates: &BTreeSet<String>) {
        self.states
            .retain(|state| !templates.contains(state.template.name()));
    }

    /// The next tasks in these languages, or as many as possible.
    pub(super) fn plan(
        &mut self,
        languages: impl IntoIterator<Item = Language>,
    ) -> Vec<PlannedTask> {
        languages
            .into_iter()
            .filter_map(|language| self.next(language))
            .collect()
    }

    /// The next task; `None` if every template with text in the language is exhausted.
    fn next(&mut self, language: Language) -> Option<PlannedTask> {
        loop {
            let index = self.least_used_template(language)?;
            if let Some(planned) = self.draw(index, language) {
                return Some(planned);
            }
        }
    }

    /// Another task in the place of this one, which no longer counts toward the share of its template.
    pub(super) fn replace(&mut self, dropped: &PlannedTask) -> Option<PlannedTask> {
        let mut states = self.states.iter_mut();
        if let Some(state) = states.find(|state| state.template.name() == dropped.template) {
            state.taken -= 1;
        }
        self.next(dropped.language)
    }

    /// Picks the least used template of the least used category that has text in the language.
    fn least_used_template(&self, language: Language) -> Option<usize> {
        let mut by_category: BTreeMap<Category, usize> = BTreeMap::new();
        for state in &self.states {
            *by_category.entry(state.template.category).or_default() += state.taken;
        }
        let live = self
            .states
            .iter()
            .enumerate()
            .filter(|(_, state)| state.taken < self.cap && !state.combinations.is_empty())
            .filter(|(_, state)| state.template.languages().contains(&language));
        let key = |state: &TemplateState<'_>| {
            (
                by_category.get(&state.template.category).copied(),
                state.taken,
            )
        };
        live.min_by_key(|(_, state)| key(state))
            .map(|(index, _)| index)
    }

    /// Draws a new task of a template on its least used files; `None` if these are exhausted for it.
    fn draw(&mut self, index: usize, language: Language) -> Option<PlannedTask> {
        let usage = |files: &Vec<usize>| files.iter().map(|file| self.usage[*file]).sum::<usize>();
        let state = &mut self.states[index];
        let combinations = state.combinations.iter().enumerate();
        let (choice, _) = combinations.min_by_key(|(_, files)| usage(files))?;
        let files = state.combinations[choice].clone();
        for _ in 0..MAX_REPEATS {
            state.draws += 1;
            let key = (self.seed, state.template.name(), state.draws);
            let Some(planned) = draw_task(state.template, self.files, &files, language, &key)
            else {
                break;
            };
            let Some(digests) = fingerprints(&planned, state.template, self.files) else {
                break;
            };
            if digests.iter().any(|digest| self.seen.contains(digest)) {
                continue;
            }
            self.seen.extend(digests);
            state.taken += 1;
            files.iter().for_each(|file| self.usage[*file] += 1);
            return Some(planned);
        }
        state.combinations.remove(choice);
        None
    }
}

pub(super) fn known_keywords(library: &Library, query: &Query) -> Result<(), RunError> {
    let weighed = query.writer.iter();
    let weighed = weighed.flat_map(|writer| writer.balance.keywords.keys());
    for name in query.keywords.iter().chain(weighed) {
        if library.keywords().get(name).is_none() {
            let hint = library.keywords().suggest(name);
            let hint = hint
                .map(|k| format!("; did you mean `{k}`?"))
                .unwrap_or_default();
            let message = format!("recipe, query.keywords: unknown keyword `{name}`{hint}");
            return Err(RunError::BadInput(message));
        }
    }
    Ok(())
}

/// Draws one task on these files; the result depends only on the key.
fn draw_task(
    template: &Template,
    files: &[SourceFile],
    choice: &[usize],
    language: Language,
    key: &(u64, &str, u64),
) -> Option<PlannedTask> {
    let mut rng = rng(key);
    let chosen: Vec<_> = choice.iter().map(|index| &files[*index]).collect();
    let slots = template.draw(&chosen, &mut rng)?;
    let phrasing = rng.random_range(0..template.query.get(language).len());
    let ids: Vec<_> = chosen.iter().map(|file| &file.id).collect();
    let digest = Digest::of_json(&(ids, &slots, language, phrasing));
    Some(PlannedTask {
        item: format!("{}#{}:{}", template.name(), key.2, digest.short()),
        template: template.name().to_owned(),
        files: choice.to_vec(),
        slots,
        language,
        phrasing,
        seed: rng.random(),
    })
}

/// Two tasks that share one of these digests count as duplicates. `None` if the query does not render.
fn fingerprints(
    planned: &PlannedTask,
    template: &Template,
    files: &[SourceFile],
) -> Option<[Digest; 2]> {
    let files: Vec<_> = planned.files.iter().map(|index| &files[*index]).collect();
    let ids: Vec<_> = files.iter().map(|file| file.id.clone()).collect();
    let draft = Draft {
        template,
        files,
        slots: planned.slots.clone(),
        language: planned.language,
        phrasing: planned.phrasing,
        seed: planned.seed,
    };
    let query = draft
        .query()
        .inspect_err(|error| tracing::warn!("{error}"))
        .ok()?;
    Some([
        Digest::of_json(&("query", query, &ids)),
        Digest::of_json(&("values", &planned.template, &planned.slots, &ids)),
    ])
}

#[cfg(test)]
mod tests;
