//! What writing tasks will cost, as bounds, before a call is made.

use pybench::run::{
    Failure, ProposedChecks, Recipe, RunContext, RunError, TeacherChoice, WriterChoice,
};
use pybench::task::{SourceFile, Task};
use pybench::trajectory::Usage;
use serde_json::Value;

use super::answer::MOST_QUERY;
use super::idea::{Idea, Ideas};
use super::talk::opinion_sampling;
use super::{State, prompt, proof, propose};
use crate::library::Library;
use crate::rollout::estimate::{
    BYTES_PER_TOKEN, Estimate, Range, bounds, rungs, teacher_name, unwritten,
};

/// Bytes of the longest query.
const LONGEST: u64 = 4 * MOST_QUERY as u64;
/// Tokens that a chat template adds to one question.
const TEMPLATE: u64 = 64;

/// Prints the bounds; pays nothing.
pub(crate) fn print(
    context: &RunContext,
    writer: &WriterChoice,
    library: &Library,
    files: &[SourceFile],
) -> Result<(), RunError> {
    let recipe = &context.recipe;
    let ideas = Ideas::new(library, files, &recipe.query, writer, recipe.seed)?;
    let generator = teacher_name(&writer.generator);
    let state = State::of(context.folder.journal(), &ideas, writer, &generator)?;
    let estimate = sum(recipe, writer, &ideas, |slot| state.next(slot));
    let estimate = estimate.map_err(|failure| RunError::Internal(failure.to_string()))?;
    let text =
        format!("writing tasks, their proposed checks included:\n{estimate}\nsolving them:\n");
    crate::rollout::print(context, &text)
}

/// At least as if every first draft were accepted and every first proposal survived; at most every attempt
/// with every round and every answer asked for once more.
fn sum(
    recipe: &Recipe,
    writer: &WriterChoice,
    ideas: &Ideas,
    next: impl Fn(usize) -> Option<(u32, bool)>,
) -> Result<Estimate, Failure> {
    let mut names: Vec<_> = writer
        .models()
        .map(|(_, choice)| teacher_name(choice))
        .collect();
    names.dedup();
    let mut estimate = Estimate::of(recipe, names.join(", "));
    let schema = propose::schema(&Task {
        outputs: propose::EVERY_KIND.map(str::to_owned).to_vec(),
        ..unwritten(0)
    });
    for slot in 0..ideas.slots() {
        let Some((first, written)) = next(slot) else {
            estimate.done += 1;
            continue;
        };
        for attempt in first..ideas.tries() {
            let Some(idea) = ideas.at(slot, attempt) else {
                continue;
            };
            estimate.tries += 1;
            // The next attempt is made in any case, the others where it comes to nothing.
            let mut costs = Costs {
                estimate: &mut estimate,
                writer,
                sure: attempt == first,
            };
            if attempt > first || !written {
                costs.query(&idea)?;
            }
            if writer.checks != ProposedChecks::None {
                costs.check(&idea, recipe, &schema)?;
            }
        }
    }
    Ok(estimate)
}

/// Adds up what one attempt costs.
struct Costs<'a> {
    estimate: &'a mut Estimate,
    writer: &'a WriterChoice,
    sure: bool,
}

impl Costs<'_> {
    /// Versions of a query, and the opinions on each.
    fn query(&mut self, idea: &Idea<'_>) -> Result<(), Failure> {
        let writer = self.writer;
        let most = writer.sampling.max_tokens;
        let asked = prompt::write(idea)?.len() as u64;
        self.conversations(&writer.generator, asked, asked, (1, writer.rounds, most));
        let opinion = opinion_sampling().max_tokens;
        let keyword = writer.keyword_checker.as_ref().unwrap_or(&writer.generator);
        let content = writer.content_checker.as_ref().unwrap_or(&writer.generator);
        for (model, asked) in [
            (keyword, prompt::keyword("", idea.keyword)?),
            (content, prompt::content("", &idea.files)?),
        ] {
            let asked = asked.len() as u64;
            self.conversations(model, asked, asked + LONGEST, (writer.rounds, 1, opinion));
        }
        if let Some(embeddings) = &writer.embeddings {
            self.place(&embeddings.endpoint);
        }
        Ok(())
    }

    /// Where an accepted query stands.
    fn place(&mut self, model: &TeacherChoice) {
        let read = |prompt_tokens: u64| Usage {
            prompt_tokens,
            completion_tokens: 0,
        };
        let surely = u64::from(self.sure);
        let calls = Range {
            from: surely,
            to: 1,
        };
        let most = read(LONGEST + TEMPLATE);
        self.estimate.charge(&[model], calls, read(surely), most);
    }

    /// A proposed check: trials of the teacher, and proposals.
    fn check(&mut self, idea: &Idea<'_>, recipe: &Recipe, schema: &Value) -> Result<(), Failure> {
        let times = |n: u64, usage: Usage| Usage {
            prompt_tokens: n * usage.prompt_tokens,
            completion_tokens: n * usage.completion_tokens,
        };
        let trials = u64::from(self.writer.trials);
        let surely = if self.sure { trials } else { 0 };
        let calls = Range {
            from: surely,
            to: trials * u64::from(recipe.rollout.max_turns),
        };
        let low = times(surely, bounds(recipe, &unwritten(0)).0);
        let high = times(trials, bounds(recipe, &unwritten(LONGEST as usize)).1);
        // Trials are not asked in batches.
        let teachers = rungs(recipe).into_iter().next().unwrap_or_default();
        let live: Vec<TeacherChoice> = teachers.into_iter().map(TeacherChoice::live).collect();
        let teachers: Vec<_> = live.iter().collect();
        self.estimate.charge(&teachers, calls, low, high);
        let asked = prompt::check("", &[], &idea.files, schema)?.len() as u64;
        // The least schema is that of a task without files.
        let least = asked.saturating_sub(schema.to_string().len() as u64);
        let proposals = (1, proof::ROUNDS, self.writer.sampling.max_tokens);
        self.conversations(&self.writer.generator, least, asked + LONGEST, proposals);
        Ok(())
    }

    /// So many conversations of so many rounds, with the bytes of their first question at least and at most.
    fn conversations(
        &mut self,
        model: &TeacherChoice,
        least: u64,
        most: u64,
        (conversations, rounds, reply): (u32, u32, u32),
    ) {
        let (calls, reply) = (2 * u64::from(rounds), u64::from(reply));
        let grown = calls * (calls - 1) / 2 * (reply + prompt::MOST_TOLD);
        let surely = u64::from(self.sure);
        let all = u64::from(conversations);
        let low = Usage {
            prompt_tokens: surely * least / BYTES_PER_TOKEN,
            completion_tokens: surely,
        };
        let high = Usage {
            prompt_tokens: all * (calls * (most + TEMPLATE) + grown),
            completion_tokens: all * calls * reply,
        };
        let calls = Range {
            from: surely,
            to: all * calls,
        };
        self.estimate.charge(&[model], calls, low, high);
    }
}

#[cfg(test)]
mod tests {
    use pybench::run::EmbeddingChoice;

    use super::*;
    use crate::library::tests::cars;

    #[test]
    fn the_bounds_enclose_a_smooth_run_and_a_rough_one() {
        let text = "name = 't'\ncrawl = { sources = [] }\n\
                    teacher = { kind = 'openai', model = 'm', base_url = 'http://h' }\n\
                    [query]\ntasks = 5\nkeywords = ['group by', 'filter']\n[query.writer]\nrounds = 2\ntries = 2\n\
                    generator = { kind = 'openai', model = 'g', base_url = 'http://h', \
                    price = { prompt = 1.0, completion = 1.0 } }\n";
        let recipe: Recipe = toml::from_str(text).unwrap();
        let writer = recipe.query.writer.as_ref().unwrap();
        let library = Library::embedded().unwrap();
        let files = [cars("a.csv"), cars("b.csv")];
        let ideas = Ideas::new(&library, &files, &recipe.query, writer, 1).unwrap();
        let new = |_| Some((0, false));
        let all = sum(&recipe, writer, &ideas, new).unwrap();
        assert_eq!(all.tries, 10);
        // Smooth: a draft, two opinions, a trial and a proposal for each task.
        assert_eq!(all.calls.from, 5 * 5);
        // Rough: each attempt with two rounds, every answer asked for twice, ten turns, two proposals.
        assert_eq!(all.calls.to, 10 * (4 + 2 * 4 + 10 + 4));
        assert_eq!(all.micro_usd, None, "the teacher's price is not known");
        // The first slot has come to its end, the second lacks the proof of its last query.
        let later = |slot| match slot {
            0 => None,
            1 => Some((1, true)),
            _ => new(slot),
        };
        let rest = sum(&recipe, writer, &ideas, later).unwrap();
        assert_eq!((rest.done, rest.tries), (1, 7));
        assert_eq!(rest.calls.from, 3 * 5 + 2);
        assert_eq!(rest.calls.to, 6 * (4 + 2 * 4 + 10 + 4) + 10 + 4);
        let mut free = recipe.clone();
        free.query.writer.as_mut().unwrap().checks = ProposedChecks::None;
        let money = |recipe: &Recipe| {
            let writer = recipe.query.writer.as_ref().unwrap();
            let estimate = sum(recipe, writer, &ideas, new).unwrap();
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
