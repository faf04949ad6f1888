//! Which tasks a run writes: balanced over categories, templates, files and languages, by seed.

use std::collections::{BTreeMap, HashSet};

use pybench::id::Digest;
use pybench::run::{ContentStore, Query, RunError};
use pybench::task::{Category, Language, SourceFile};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::library::{Draft, Library, Template};

/// Combinations of files looked at per template.
const MOST_COMBINATIONS: usize = 1000;
/// Draws on one combination that only repeat earlier tasks, before it counts as used up.
const MOST_REPEATS: u32 = 8;

/// A task to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The unit's item: `template#number:digest`.
    pub item: String,
    /// Template id.
    pub template: String,
    /// Indices into the crawled files, one per input.
    pub files: Vec<usize>,
    /// Values of the slots.
    pub slots: BTreeMap<String, serde_json::Value>,
    /// Language of the query.
    pub language: Language,
    /// Which phrasing.
    pub phrasing: usize,
    /// Seed of what is random in writing it.
    pub seed: u64,
}

/// Plans as many tasks as asked for, or as many as there are. No two are alike: neither the same
/// query on the same files, nor the same template with the same files and values.
pub fn plan(
    library: &Library,
    files: &[SourceFile],
    query: &Query,
    seed: u64,
    store: &ContentStore,
) -> Result<Vec<Planned>, RunError> {
    let mut planner = Planner::new(library, files, query, seed, store)?;
    let mut shuffled = rng(&(seed, "languages"));
    let languages = deck(query.tasks, &query.languages, &mut shuffled);
    let mut plan = Vec::with_capacity(query.tasks);
    for language in languages {
        match planner.next(language) {
            Some(planned) => plan.push(planned),
            None => break,
        }
    }
    Ok(plan)
}

/// What each of `count` tasks is, in order: exact shares by largest remainder, then shuffled.
pub(super) fn deck<T: Copy + Ord>(
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
    let mut deck: Vec<_> = parts.iter().flat_map(copies).collect();
    deck.shuffle(rng);
    deck
}

pub(super) fn rng<T: serde::Serialize>(key: &T) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(Digest::of_json(key).seed())
}

struct Planner<'a> {
    files: &'a [SourceFile],
    seed: u64,
    /// Most tasks of one template.
    cap: usize,
    states: Vec<State<'a>>,
    /// Tasks per file so far.
    usage: Vec<usize>,
    /// Digests of what was planned.
    seen: HashSet<Digest>,
}

/// What is left of one template.
struct State<'a> {
    template: &'a Template,
    /// Combinations of files that fit, in a seeded order.
    combinations: Vec<Vec<usize>>,
    /// Tasks planned.
    taken: usize,
    /// Draws made.
    draws: u64,
}

impl<'a> Planner<'a> {
    fn new(
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
            states.push(State {
                template,
                combinations: template.combinations(files, MOST_COMBINATIONS, store, &mut rng)?,
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

    /// The next task, or `None` when every template is used up.
    fn next(&mut self, language: Language) -> Option<Planned> {
        loop {
            let index = self.least_used_template()?;
            if let Some(planned) = self.draw(index, language) {
                return Some(planned);
            }
        }
    }

    /// The template to use next: of the category with the fewest tasks the one with the fewest.
    fn least_used_template(&self) -> Option<usize> {
        let mut by_category: BTreeMap<Category, usize> = BTreeMap::new();
        for state in &self.states {
            *by_category.entry(state.template.category).or_default() += state.taken;
        }
        let live = self
            .states
            .iter()
            .enumerate()
            .filter(|(_, state)| state.taken < self.cap && !state.combinations.is_empty());
        let key = |state: &State<'_>| {
            (
                by_category.get(&state.template.category).copied(),
                state.taken,
            )
        };
        live.min_by_key(|(_, state)| key(state))
            .map(|(index, _)| index)
    }

    /// A new task of a template on its least used files; `None` when these are used up for it.
    fn draw(&mut self, index: usize, language: Language) -> Option<Planned> {
        let usage = |files: &Vec<usize>| files.iter().map(|file| self.usage[*file]).sum::<usize>();
        let state = &mut self.states[index];
        let combinations = state.combinations.iter().enumerate();
        let (choice, _) = combinations.min_by_key(|(_, files)| usage(files))?;
        let files = state.combinations[choice].clone();
        for _ in 0..MOST_REPEATS {
            state.draws += 1;
            let key = (self.seed, state.template.name(), state.draws);
            let Some(planned) = sketch(state.template, self.files, &files, language, &key) else {
                break;
            };
            let Some(digests) = likeness(&planned, state.template, self.files) else {
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

/// One draw on these files: everything in it follows from the key.
fn sketch(
    template: &Template,
    files: &[SourceFile],
    choice: &[usize],
    language: Language,
    key: &(u64, &str, u64),
) -> Option<Planned> {
    let mut rng = rng(key);
    let chosen: Vec<_> = choice.iter().map(|index| &files[*index]).collect();
    let slots = template.draw(&chosen, &mut rng)?;
    let phrasing = rng.random_range(0..template.query.get(language).len());
    let ids: Vec<_> = chosen.iter().map(|file| &file.id).collect();
    let digest = Digest::of_json(&(ids, &slots, language, phrasing));
    Some(Planned {
        item: format!("{}#{}:{}", template.name(), key.2, digest.short()),
        template: template.name().to_owned(),
        files: choice.to_vec(),
        slots,
        language,
        phrasing,
        seed: rng.random(),
    })
}

/// Digests that two tasks share when they are alike; `None` when the query does not render.
fn likeness(planned: &Planned, template: &Template, files: &[SourceFile]) -> Option<[Digest; 2]> {
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
