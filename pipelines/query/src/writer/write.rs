//! Writes one query: the generator drafts it, rules and checkers review it, and the generator revises it.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_llm::Vector;
use pybench_run::{Failure, FailureKind, Stage};
use pybench_types::id::Digest;
use pybench_types::task::{Task, TaskOrigin};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::{ContentOpinion, Draft, KeywordOpinion};
use super::dialogue::{Dialogue, Models};
use super::prompt;
use super::rules::{self, DraftProblem, RejectedBy};
use super::task_seed::{TaskSeed, TaskSeeds};
use crate::STAGE;

/// The outcome of one attempt to write a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum WrittenQuery {
    /// Rules and checkers accepted the query.
    Accepted {
        draft: Draft,
        /// Number of the accepted version, from 1.
        round: u32,
        /// Its embedding, if the recipe names an endpoint for embeddings.
        #[serde(default, rename = "place", skip_serializing_if = "Option::is_none")]
        embedding: Option<Vector>,
    },
    /// The last allowed version was still rejected.
    Rejected { by: RejectedBy, detail: String },
    /// A model abstained, so there is no task.
    Undecided {
        /// `generator`, `keyword checker` or `content checker`.
        who: String,
        /// Why its answers could not be used.
        detail: String,
    },
}

impl WrittenQuery {
    /// Category and detail for a query that did not become a task; `None` if it was accepted.
    pub fn rejection(&self) -> Option<(String, &str)> {
        match self {
            Self::Accepted { .. } => None,
            Self::Rejected { by, detail } => Some((by.name().to_owned(), detail)),
            Self::Undecided { who, detail } => Some((format!("{who} abstained"), detail)),
        }
    }
}

impl RejectedBy {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Form => "form",
            Self::KeywordRule => "keyword (rule)",
            Self::ContentRule => "content (rule)",
            Self::KeywordChecker => "keyword checker",
            Self::ContentChecker => "content checker",
        }
    }
}

/// Writes one query per unit.
pub(super) struct WriteStage {
    seeds: Arc<TaskSeeds>,
    models: Models,
    rounds: u32,
    /// Item → slot and attempt.
    index_by_item: HashMap<String, (usize, u32)>,
}

/// The result of reviewing a draft.
enum DraftReview {
    Problems(Vec<DraftProblem>),
    Abstained { who: &'static str, why: String },
}

impl WriteStage {
    pub(super) fn new(seeds: Arc<TaskSeeds>, models: Models, rounds: u32) -> Self {
        let all =
            (0..seeds.slots()).flat_map(|slot| (0..seeds.max_attempts()).map(move |at| (slot, at)));
        let named = all.filter_map(|(slot, at)| Some((seeds.at(slot, at)?.item, (slot, at))));
        Self {
            index_by_item: named.collect(),
            seeds: seeds.clone(),
            models,
            rounds,
        }
    }

    async fn write(&self, seed: &TaskSeed<'_>) -> Result<WrittenQuery, Failure> {
        let mut dialogue = Dialogue::new(&self.models.generator, prompt::write(seed)?, seed.sample);
        let mut round = 1;
        loop {
            let draft: Draft = match dialogue.answer().await? {
                Ok(draft) => draft,
                Err(why) => return Ok(undecided("generator", why)),
            };
            let problems = match self.review(seed, &draft).await? {
                DraftReview::Abstained { who, why } => return Ok(undecided(who, why)),
                DraftReview::Problems(problems) => problems,
            };
            let Some(first) = problems.first() else {
                let embedding = self.models.embed(draft.query.trim(), seed.sample).await?;
                return Ok(WrittenQuery::Accepted {
                    draft,
                    round,
                    embedding,
                });
            };
            if round == self.rounds {
                let (by, detail) = (first.rejected_by, first.text.clone());
                return Ok(WrittenQuery::Rejected { by, detail });
            }
            dialogue.add_message(prompt::revise(seed, &problems)?);
            round += 1;
        }
    }

    /// Reviews a draft with the rules, then with the checkers. A draft that the rules reject costs no calls.
    async fn review(&self, seed: &TaskSeed<'_>, draft: &Draft) -> Result<DraftReview, Failure> {
        let mut problems = rules::problems(draft, seed.keyword, seed.language, &seed.files);
        if !problems.is_empty() {
            return Ok(DraftReview::Problems(problems));
        }
        let abstained = |who, why| Ok(DraftReview::Abstained { who, why });
        let question = prompt::keyword(&draft.query, seed.keyword)?;
        let mut dialogue = Dialogue::new(&self.models.keyword, question, seed.sample);
        match dialogue.answer::<KeywordOpinion>().await? {
            Ok(opinion) if opinion.needed => {}
            Ok(opinion) => problems.push(DraftProblem::new(
                RejectedBy::KeywordChecker,
                opinion.reason,
            )),
            Err(why) => return abstained("keyword checker", why),
        }
        let question = prompt::content(&draft.query, &seed.files)?;
        let mut dialogue = Dialogue::new(&self.models.content, question, seed.sample);
        match dialogue.answer::<ContentOpinion>().await? {
            Ok(opinion) if opinion.supported => {}
            Ok(opinion) => {
                let text = format!("{} ({})", opinion.reason, opinion.missing.join("; "));
                problems.push(DraftProblem::new(RejectedBy::ContentChecker, text));
            }
            Err(why) => return abstained("content checker", why),
        }
        Ok(DraftReview::Problems(problems))
    }
}

fn undecided(who: &str, detail: String) -> WrittenQuery {
    let who = who.to_owned();
    WrittenQuery::Undecided { who, detail }
}

#[async_trait]
impl Stage for WriteStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let index = self.index_by_item.get(item);
        let seed = index.and_then(|(slot, attempt)| self.seeds.at(*slot, *attempt));
        let internal = |text: String| Failure::new(FailureKind::Internal, text);
        let seed = seed.ok_or_else(|| internal(format!("`{item}` is not planned")))?;
        let written = self.write(&seed).await?;
        serde_json::to_value(written).map_err(|error| internal(error.to_string()))
    }
}

/// The task of an accepted draft, without a check.
pub(super) fn task(seed: &TaskSeed<'_>, draft: &Draft, round: u32, generator: &str) -> Task {
    let mut task = Task {
        id: Digest::of_bytes(b""),
        category: seed.keyword.category,
        subcategory: seed.keyword.subcategory.clone(),
        keyword: seed.keyword.name.clone(),
        language: seed.language,
        query: draft.query.trim().to_owned(),
        files: seed.files.iter().map(|file| (*file).into()).collect(),
        held_out: Vec::new(),
        outputs: draft.outputs.clone(),
        reference: String::new(),
        checks: Vec::new(),
        origin: TaskOrigin::Writer {
            generator: generator.to_owned(),
            difficulty: seed.difficulty,
            round,
        },
    };
    task.id = task.compute_id();
    task
}
