//! One query: written, checked by rules and by models, revised.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench::id::Digest;
use pybench::llm::Vector;
use pybench::run::{Failure, FailureKind, Stage};
use pybench::task::{Task, TaskFile, TaskOrigin};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::{ContentOpinion, Draft, KeywordOpinion};
use super::idea::{Idea, Ideas};
use super::prompt;
use super::rules::{self, Part, Problem};
use super::talk::{Models, Talk};
use crate::query::STAGE;

/// What came of an idea.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Written {
    /// Rules and checkers let it pass.
    Accepted {
        /// The query.
        draft: Draft,
        /// Which version of it, from 1.
        round: u32,
        /// Where it stands among others, where an endpoint says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        place: Option<Vector>,
    },
    /// The last version was still wrong.
    Rejected {
        /// By what.
        by: Part,
        /// In words.
        detail: String,
    },
    /// A model abstained: no verdict, and no task.
    Undecided {
        /// Who: `generator`, `keyword checker`, `content checker`.
        who: String,
        /// What was wrong with its answers.
        detail: String,
    },
}

impl Written {
    /// What a query that became no task is counted as, and why.
    pub fn left_out(&self) -> Option<(String, &str)> {
        match self {
            Self::Accepted { .. } => None,
            Self::Rejected { by, detail } => Some((by.name().to_owned(), detail)),
            Self::Undecided { who, detail } => Some((format!("{who} abstained"), detail)),
        }
    }
}

impl Part {
    /// As people read it.
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
    ideas: Arc<Ideas>,
    models: Models,
    rounds: u32,
    /// Item → slot and attempt.
    places: HashMap<String, (usize, u32)>,
}

/// What is held against a draft.
enum Held {
    Problems(Vec<Problem>),
    Abstained { who: &'static str, why: String },
}

impl WriteStage {
    pub(super) fn new(ideas: Arc<Ideas>, models: Models, rounds: u32) -> Self {
        let all = (0..ideas.slots()).flat_map(|slot| (0..ideas.tries()).map(move |at| (slot, at)));
        let named = all.filter_map(|(slot, at)| Some((ideas.at(slot, at)?.item, (slot, at))));
        Self {
            places: named.collect(),
            ideas: ideas.clone(),
            models,
            rounds,
        }
    }

    async fn write(&self, idea: &Idea<'_>) -> Result<Written, Failure> {
        let mut talk = Talk::new(&self.models.generator, prompt::write(idea)?, idea.sample);
        let mut round = 1;
        loop {
            let draft: Draft = match talk.answer().await? {
                Ok(draft) => draft,
                Err(why) => return Ok(undecided("generator", why)),
            };
            let problems = match self.held_against(idea, &draft).await? {
                Held::Abstained { who, why } => return Ok(undecided(who, why)),
                Held::Problems(problems) => problems,
            };
            let Some(first) = problems.first() else {
                let place = self.models.place(draft.query.trim(), idea.sample).await?;
                return Ok(Written::Accepted {
                    draft,
                    round,
                    place,
                });
            };
            if round == self.rounds {
                let (by, detail) = (first.part, first.text.clone());
                return Ok(Written::Rejected { by, detail });
            }
            talk.say(prompt::revise(idea, &problems)?);
            round += 1;
        }
    }

    /// What rules and checkers hold against a draft. What rules refuse no model is paid to look at.
    async fn held_against(&self, idea: &Idea<'_>, draft: &Draft) -> Result<Held, Failure> {
        let mut problems = rules::problems(draft, idea.keyword, idea.language, &idea.files);
        if !problems.is_empty() {
            return Ok(Held::Problems(problems));
        }
        let abstained = |who, why| Ok(Held::Abstained { who, why });
        let question = prompt::keyword(&draft.query, idea.keyword)?;
        let mut talk = Talk::new(&self.models.keyword, question, idea.sample);
        match talk.answer::<KeywordOpinion>().await? {
            Ok(opinion) if opinion.needed => {}
            Ok(opinion) => problems.push(Problem::new(Part::KeywordChecker, opinion.reason)),
            Err(why) => return abstained("keyword checker", why),
        }
        let question = prompt::content(&draft.query, &idea.files)?;
        let mut talk = Talk::new(&self.models.content, question, idea.sample);
        match talk.answer::<ContentOpinion>().await? {
            Ok(opinion) if opinion.supported => {}
            Ok(opinion) => {
                let text = format!("{} ({})", opinion.reason, opinion.missing.join("; "));
                problems.push(Problem::new(Part::ContentChecker, text));
            }
            Err(why) => return abstained("content checker", why),
        }
        Ok(Held::Problems(problems))
    }
}

fn undecided(who: &str, detail: String) -> Written {
    let who = who.to_owned();
    Written::Undecided { who, detail }
}

#[async_trait]
impl Stage for WriteStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let place = self.places.get(item);
        let idea = place.and_then(|(slot, attempt)| self.ideas.at(*slot, *attempt));
        let internal = |text: String| Failure::new(FailureKind::Internal, text);
        let idea = idea.ok_or_else(|| internal(format!("`{item}` is not planned")))?;
        let written = self.write(&idea).await?;
        serde_json::to_value(written).map_err(|error| internal(error.to_string()))
    }
}

/// The task that an accepted draft makes, without a check.
pub(super) fn task(idea: &Idea<'_>, draft: &Draft, round: u32, generator: &str) -> Task {
    let file = |file: &&pybench::task::SourceFile| TaskFile {
        name: file.name.clone(),
        id: file.id.clone(),
        kind: file.kind,
        origin: file.origin.clone(),
        licence: file.licence.clone(),
    };
    let mut task = Task {
        id: Digest::of_bytes(b""),
        category: idea.keyword.category,
        subcategory: idea.keyword.subcategory.clone(),
        keyword: idea.keyword.name.clone(),
        language: idea.language,
        query: draft.query.trim().to_owned(),
        files: idea.files.iter().map(file).collect(),
        held_out: Vec::new(),
        outputs: draft.outputs.clone(),
        reference: String::new(),
        checks: Vec::new(),
        origin: TaskOrigin::Writer {
            generator: generator.to_owned(),
            difficulty: idea.difficulty,
            round,
        },
    };
    task.id = task.compute_id();
    task
}
