//! What MINT tells an agent between its turns: whether its solution is wrong, what it has left, and on request what a model
//! in the role of a user says.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_agent::{Feedback, TurnContext, TurnFeedback, chat_failure};
use pybench_attempts::estimate::CommentSize;
use pybench_llm::ChatRequest;
use pybench_run::{Failure, FailureKind};
use pybench_types::task::Task;
use pybench_types::trajectory::{Message, Role, Sampling};

use super::super::answers::{Question, read_text};
use super::super::executed::{AnswerExecutor as _, Verdicts};
use super::ENTRY;
use super::compare::answer;
use super::question::MintQuestion;
use super::rows::{MAX_SOLUTIONS, MAX_TURNS, SETS, TaskSet};
use super::verdicts::Executor;
use crate::suite::{FeedbackModel, name_in};

/// The mark of a solution.
const SOLUTION: &str = "<solution>";
const INVALID: &str = "I don't understand your reply. To give me an answer, end your reply with it in the form <solution>…</solution>.\n";
/// The authors' settings of the model in the role of a user.
const SAMPLING: Sampling = Sampling {
    temperature: 0.0,
    top_p: 1.0,
    max_tokens: 1024,
};
const STOP: [&str; 3] = ["\nObservation:", "\nTask:", "\nAssistant:"];

/// The authors' prompt of the model in the role of a user.
const TEMPLATE: &str = "mint/prompt/templates/template_feedback_agent.txt";

/// The length of the model's comments on a question of this set.
pub(super) fn comment_size(root: &Path, set: &TaskSet) -> CommentSize {
    let bytes = |path: &str| std::fs::metadata(root.join(path)).map_or(0, |file| file.len());
    CommentSize {
        turns: MAX_TURNS as u32,
        prompt: bytes(TEMPLATE) + bytes(&example_path(set)),
        reply: SAMPLING.max_tokens.into(),
    }
}

fn example_path(set: &TaskSet) -> String {
    let folder = "mint/tasks/in_context_examples";
    format!("{folder}/{}/with_tool_and_feedback.txt", set.example)
}

/// Gives feedback on attempts at MINT's tasks.
pub(super) struct MintFeedback {
    questions: HashMap<String, Arc<MintQuestion>>,
    verdicts: Arc<Verdicts>,
    executor: Arc<Executor>,
    user: Option<SimulatedUser>,
}

/// A model in the role of a user, with the authors' prompt.
pub(super) struct SimulatedUser {
    model: FeedbackModel,
    template: String,
    /// Examples of conversations with feedback, by folder.
    examples: HashMap<&'static str, String>,
}

impl MintFeedback {
    /// Feedback on attempts at these questions. Without a `user` it has no comments.
    pub(super) fn new(
        questions: &[Arc<MintQuestion>],
        verdicts: Arc<Verdicts>,
        executor: Arc<Executor>,
        user: Option<SimulatedUser>,
    ) -> Self {
        let questions = questions.iter().cloned();
        Self {
            questions: questions.map(|one| (one.name(), one)).collect(),
            verdicts,
            executor,
            user,
        }
    }

    fn question(&self, task: &Task) -> Option<&MintQuestion> {
        let question = self.questions.get(name_in(ENTRY.name, task)?)?;
        Some(question)
    }

    /// Whether a reply is correct by the authors' check.
    async fn passes(&self, question: &MintQuestion, reply: &str) -> Result<bool, Failure> {
        if let (Some(executed), Some(answer)) = (question.executed(), answer(reply)) {
            let name = question.name();
            if self.verdicts.get(&name, &answer).is_none() {
                let answers = [answer];
                let verdicts = self.executor.verdicts(&executed, &answers).await?;
                for (answer, verdict) in answers.iter().zip(verdicts) {
                    self.verdicts.insert(&name, answer, verdict);
                }
            }
        }
        Ok(question.upstream(reply) == Some(true))
    }
}

#[async_trait]
impl TurnFeedback for MintFeedback {
    fn applies(&self, task: &Task) -> bool {
        self.question(task).is_some()
    }

    async fn after_turn(&self, context: &TurnContext<'_>) -> Result<Feedback, Failure> {
        let unknown = || Failure::new(FailureKind::Internal, "the task is none of MINT's");
        let question = self.question(context.task).ok_or_else(unknown)?;
        let last = context.turns.last().map_or("", |turn| &turn.reply);
        let mut message = String::new();
        if context.is_answer {
            if self.passes(question, last).await? {
                return Ok(Feedback {
                    ends: true,
                    message,
                });
            }
            let is_read = answer(last).is_some();
            message += if is_read {
                "Your answer is wrong.\n"
            } else {
                INVALID
            };
        }
        // A turn with a cell states no solution, whatever else it says.
        let solutions = context.turns.iter();
        let solutions =
            solutions.filter(|turn| turn.cell.is_none() && turn.reply.contains(SOLUTION));
        let turns_left = MAX_TURNS.saturating_sub(context.turns.len());
        let solutions_left = MAX_SOLUTIONS.saturating_sub(solutions.count());
        if turns_left == 0 || solutions_left == 0 {
            return Ok(Feedback {
                ends: true,
                message: String::new(),
            });
        }
        message += &format!(
            "You have {turns_left} steps left and {solutions_left} chances to propose solution left.\n"
        );
        if turns_left == 1 {
            message += "You should take the last step to propose a solution.\n";
        }
        if let Some(user) = &self.user {
            let comment = user.comment(question, context, &message).await?;
            if !comment.is_empty() {
                message += &format!("\nExpert feedback:\n{comment}\n");
            }
        }
        Ok(Feedback {
            ends: false,
            message,
        })
    }
}

impl SimulatedUser {
    /// Reads the authors' prompt and examples.
    ///
    /// # Errors
    /// A file is missing.
    pub(super) fn new(root: &Path, model: FeedbackModel) -> Result<Self, String> {
        let mut examples = HashMap::new();
        for set in &SETS {
            examples.insert(set.example, read_text(root, &example_path(set))?);
        }
        Ok(Self {
            model,
            template: read_text(root, TEMPLATE)?,
            examples,
        })
    }

    /// What the user says about the last turn.
    async fn comment(
        &self,
        question: &MintQuestion,
        context: &TurnContext<'_>,
        observation: &str,
    ) -> Result<String, Failure> {
        let prompt = self.prompt(question, context, observation);
        let messages = [Message::new(Role::User, prompt)];
        let stop = STOP.map(str::to_owned);
        let request = ChatRequest {
            key: &context.task.id,
            sample: context.sample,
            messages: &messages,
            sampling: &SAMPLING,
            stop: &stop,
            pictures: &[],
        };
        let reply = self.model.model.reply(&request).await;
        let reply = reply.map_err(|error| chat_failure(error).of_call(request.digest()))?;
        Ok(reply.content.trim().to_owned())
    }

    /// The authors' prompt, which shows the conversation in their notation. The correct solution is in it only if the recipe
    /// says so.
    fn prompt(
        &self,
        question: &MintQuestion,
        context: &TurnContext<'_>,
        observation: &str,
    ) -> String {
        let example = self.examples.get(question.set().example);
        let example = example.map_or("", String::as_str);
        let example = example.find("Task:").map_or(example, |at| &example[at..]);
        let mut trajectory = format!("Task:\n{}\n\n", question.task_prompt());
        for message in context.messages.iter().skip(context.opening) {
            let speaker = match message.role {
                Role::Assistant => "Assistant:",
                _ => "Observation:",
            };
            trajectory += &format!("{speaker}\n{}\n\n", message.content.trim());
        }
        trajectory += &format!("Observation:\n{observation}");
        let solution = match self.model.sees_reference {
            true => question.expected().trim().to_owned(),
            false => "NOT GIVEN".to_owned(),
        };
        let solution = format!(
            "Correct solution (please DO NOT disclose the correct solution to the assistant): {solution}\n"
        );
        let values = [
            ("in_context_example", example),
            ("tool_desc", ""),
            ("trajectory", &trajectory),
            ("correct_solution", &solution),
        ];
        fill(&self.template, &values)
    }
}

/// Replaces `{name}` by its value; values are not searched for names.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let (mut text, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once('{') {
        text += before;
        let value = after.split_once('}').and_then(|(name, after)| {
            let value = values.iter().find(|(known, _)| *known == name)?.1;
            Some((value, after))
        });
        match value {
            Some((value, after)) => {
                text += value;
                rest = after;
            }
            None => {
                text.push('{');
                rest = after;
            }
        }
    }
    text + rest
}
