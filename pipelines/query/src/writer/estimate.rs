//! Estimates what writing tasks will cost, before any call is made.

use pybench_run::{
    Failure, ModelChoice, ProposedChecks, Recipe, RunContext, RunError, WriterChoice,
};
use pybench_types::task::SourceFile;
use pybench_types::trajectory::Usage;
use serde_json::Value;

use super::dialogue::checker_sampling;
use super::task_seed::{TaskSeed, TaskSeeds};
use super::{WriterState, check_validation, prompt, propose};
use pybench_attempts::estimate::{
    BYTES_PER_TOKEN, EXPECTED_BYTES_PER_TOKEN, Estimate, Range, TaskSize, UsageRange,
    calls_of_attempt, levels, teacher_name, usage_of_attempt,
};
use pybench_library::Library;
use pybench_types::task::MAX_QUERY;

/// Maximum bytes of a query.
const MAX_QUERY_BYTES: u64 = 4 * MAX_QUERY as u64;
/// Expected bytes of a query, and tokens of a reply of the writer or a checker.
const EXPECTED_QUERY_BYTES: u64 = 400;
const EXPECTED_REPLY: u64 = 250;
/// Tokens that a chat template adds to one prompt.
const TEMPLATE_TOKENS: u64 = 64;

/// Prints the estimate; makes no calls.
pub(crate) fn print(
    context: &RunContext,
    writer: &WriterChoice,
    library: &Library,
    files: &[SourceFile],
) -> Result<(), RunError> {
    let recipe = &context.recipe;
    let seeds = TaskSeeds::new(library, files, &recipe.query, writer, recipe.seed)?;
    let generator = teacher_name(&writer.generator);
    let state = WriterState::of(context.folder.journal(), &seeds, writer, &generator)?;
    let estimate = sum(recipe, writer, &seeds, |slot| state.next(slot));
    let estimate = estimate.map_err(|failure| RunError::Internal(failure.to_string()))?;
    let text = format!("writing tasks, including proposed checks:\n{estimate}\nsolving them:\n");
    pybench_run::cli::print_beside(&context.progress, &text)
}

/// The lower bound assumes that every first draft and every first proposal is accepted. The upper bound
/// assumes all attempts with all rounds, and every answer requested twice.
fn sum(
    recipe: &Recipe,
    writer: &WriterChoice,
    seeds: &TaskSeeds,
    next: impl Fn(usize) -> Option<(u32, bool)>,
) -> Result<Estimate, Failure> {
    let mut names: Vec<_> = writer
        .models()
        .map(|(_, choice)| teacher_name(choice))
        .collect();
    names.dedup();
    let mut estimate = Estimate::of(&recipe.budget, names.join(", "));
    let schema = propose::schema(&propose::EVERY_KIND);
    for slot in 0..seeds.slots() {
        let Some((first, written)) = next(slot) else {
            estimate.done += 1;
            continue;
        };
        for attempt in first..seeds.max_attempts() {
            let Some(seed) = seeds.at(slot, attempt) else {
                continue;
            };
            estimate.attempts += 1;
            // The next attempt is certain; later ones happen only if it is rejected.
            let mut costs = Costs {
                estimate: &mut estimate,
                writer,
                sure: attempt == first,
            };
            if attempt > first || !written {
                costs.query(&seed)?;
            }
            if writer.checks != ProposedChecks::None {
                costs.check(&seed, recipe, &schema)?;
            }
        }
    }
    Ok(estimate)
}

/// Adds the cost of one attempt to an estimate.
struct Costs<'a> {
    estimate: &'a mut Estimate,
    writer: &'a WriterChoice,
    sure: bool,
}

impl Costs<'_> {
    /// Adds the versions of a query and the checkers' answers to each.
    fn query(&mut self, seed: &TaskSeed<'_>) -> Result<(), Failure> {
        let writer = self.writer;
        let most = writer.sampling.max_tokens;
        let prompt_bytes = prompt::write(seed)?.len() as u64;
        self.conversations(
            &writer.generator,
            prompt_bytes,
            prompt_bytes,
            (1, writer.rounds, most),
        );
        let max_answer = checker_sampling().max_tokens;
        let keyword = writer.keyword_checker.as_ref().unwrap_or(&writer.generator);
        let content = writer.content_checker.as_ref().unwrap_or(&writer.generator);
        for (model, prompt_bytes) in [
            (keyword, prompt::keyword("", seed.keyword)?),
            (content, prompt::content("", &seed.files)?),
        ] {
            let prompt_bytes = prompt_bytes.len() as u64;
            self.conversations(
                model,
                prompt_bytes,
                prompt_bytes + MAX_QUERY_BYTES,
                (writer.rounds, 1, max_answer),
            );
        }
        if let Some(embeddings) = &writer.embeddings {
            self.embedding(&embeddings.endpoint);
        }
        Ok(())
    }

    /// Adds the embedding of an accepted query.
    fn embedding(&mut self, model: &ModelChoice) {
        let read = |prompt_tokens: u64| Usage {
            prompt_tokens,
            completion_tokens: 0,
        };
        let usage = UsageRange {
            low: read(1),
            expected: read(EXPECTED_QUERY_BYTES / EXPECTED_BYTES_PER_TOKEN),
            high: read(MAX_QUERY_BYTES + TEMPLATE_TOKENS),
        };
        let usage = usage.unless_sure(self.sure);
        let calls = Range::call(self.sure);
        self.estimate.charge(&[model], calls, usage);
    }

    /// Adds a proposed check: the teacher's attempts and the proposals.
    fn check(
        &mut self,
        seed: &TaskSeed<'_>,
        recipe: &Recipe,
        schema: &Value,
    ) -> Result<(), Failure> {
        let trials = u64::from(self.writer.trials);
        let calls = calls_of_attempt(&recipe.rollout, self.sure).times(trials);
        let attempt = |query: usize| usage_of_attempt(recipe, &TaskSize::unwritten(recipe, query));
        let usage = UsageRange {
            high: attempt(MAX_QUERY_BYTES as usize).high,
            ..attempt(0)
        };
        let usage = usage.unless_sure(self.sure).times(trials);
        // These attempts do not use batches.
        let teachers = levels(recipe).into_iter().next().unwrap_or_default();
        let live: Vec<ModelChoice> = teachers.into_iter().map(ModelChoice::live).collect();
        let teachers: Vec<_> = live.iter().collect();
        self.estimate.charge(&teachers, calls, usage);
        let prompt_bytes = prompt::check("", &[], &seed.files, schema)?.len() as u64;
        // The smallest schema is that of a task without files.
        let least = prompt_bytes.saturating_sub(schema.to_string().len() as u64);
        let proposals = (
            1,
            check_validation::MAX_PROPOSALS,
            self.writer.sampling.max_tokens,
        );
        self.conversations(
            &self.writer.generator,
            least,
            prompt_bytes + MAX_QUERY_BYTES,
            proposals,
        );
        Ok(())
    }

    /// Adds conversations; `least` and `most` are the minimum and maximum bytes of their first prompt.
    fn conversations(
        &mut self,
        model: &ModelChoice,
        least: u64,
        most: u64,
        (conversations, rounds, reply): (u32, u32, u32),
    ) {
        let (calls, reply) = (2 * u64::from(rounds), u64::from(reply));
        let grown = calls * (calls - 1) / 2 * (reply + prompt::MAX_FEEDBACK);
        let all = u64::from(conversations);
        let usage = UsageRange {
            low: Usage {
                prompt_tokens: least / BYTES_PER_TOKEN,
                completion_tokens: 1,
            },
            expected: Usage {
                prompt_tokens: least / EXPECTED_BYTES_PER_TOKEN,
                completion_tokens: reply.min(EXPECTED_REPLY),
            },
            high: Usage {
                prompt_tokens: all * (calls * (most + TEMPLATE_TOKENS) + grown),
                completion_tokens: all * calls * reply,
            },
        };
        let calls = Range {
            to: all * calls,
            ..Range::call(self.sure)
        };
        let usage = usage.unless_sure(self.sure);
        self.estimate.charge(&[model], calls, usage);
    }
}

#[cfg(test)]
mod tests {
    use pybench_run::EmbeddingChoice;

    use super::*;
    use pybench_testing::files::cars;

    #[test]
    fn the_bounds_cover_the_best_and_the_worst_run() {
        let text = "name = 't'\ncrawl = { sources = [] }\n\
                    teacher = { kind = 'openai', model = 'm', base_url = 'http://h' }\n\
                    [query]\ntasks = 5\nkeywords = ['group by', 'filter']\n[query.writer]\nrounds = 2\ntries = 2\n\
                    generator = { kind = 'openai', model = 'g', base_url = 'http://h', \
                    price = { prompt = 1.0, completion = 1.0 } }\n";
        let recipe: Recipe = toml::from_str(text).unwrap();
        let writer = recipe.query.writer.as_ref().unwrap();
        let library = Library::embedded().unwrap();
        let files = [cars("a.csv"), cars("b.csv")];
        let seeds = TaskSeeds::new(&library, &files, &recipe.query, writer, 1).unwrap();
        let new = |_| Some((0, false));
        let all = sum(&recipe, writer, &seeds, new).unwrap();
        assert_eq!(all.attempts, 10);
        // Best case: a draft, two checker answers, one attempt and one proposal per task.
        assert_eq!(all.calls.from, 5 * 5);
        // Worst case: two rounds per attempt, every answer requested twice, ten turns, two proposals.
        assert_eq!(all.calls.to, 10 * (4 + 2 * 4 + 10 + 4));
        assert_eq!(all.micro_usd, None, "the teacher's price is unknown");
        // The first slot is finished; the second lacks the validation of its last query.
        let later = |slot| match slot {
            0 => None,
            1 => Some((1, true)),
            _ => new(slot),
        };
        let rest = sum(&recipe, writer, &seeds, later).unwrap();
        assert_eq!((rest.done, rest.attempts), (1, 7));
        assert_eq!(rest.calls.from, 3 * 5 + 2);
        assert_eq!(rest.calls.to, 6 * (4 + 2 * 4 + 10 + 4) + 10 + 4);
        let mut free = recipe.clone();
        free.query.writer.as_mut().unwrap().checks = ProposedChecks::None;
        let money = |recipe: &Recipe| {
            let writer = recipe.query.writer.as_ref().unwrap();
            let estimate = sum(recipe, writer, &seeds, new).unwrap();
            (estimate.calls, estimate.micro_usd.unwrap())
        };
        let (calls, without) = money(&free);
        assert!(0 < without.from && without.from < without.to);
        let writer = free.query.writer.as_mut().unwrap();
        writer.embeddings = Some(EmbeddingChoice {
            endpoint: writer.generator.clone(),
            similarity: 0.9,
        });
        let (more, with) = money(&free);
        assert_eq!((more.from, more.to), (calls.from + 5, calls.to + 10));
        assert!(with.from > without.from && with.to > without.to);
    }
}
