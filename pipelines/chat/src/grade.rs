//! A conversation about a task, checked like a trajectory.

use std::path::Path;

use pybench_agent::Parsed;
use pybench_attempts::keep_outputs;
use pybench_grade::{GradeCase, checker_in, decide};
use pybench_run::artifacts::TASKS;
use pybench_run::project::find_run;
use pybench_run::{ContentStore, Failure, Filter, RunError};
use pybench_types::task::Task;
use pybench_types::trajectory::{End, Message, Role, Trajectory, Turn, Verdict};

use crate::conversation::Conversation;
use crate::entry::Entry;
use crate::history::History;
use crate::live::Live;

/// What decides: no other trajectory, and no judge.
const FILTERS: [Filter; 4] = [
    Filter::Format,
    Filter::Finished,
    Filter::Outputs,
    Filter::Check,
];

/// Reads task `NUMBER` (from 1) of a run, which `named` gives as `RUN:NUMBER`, and copies its files into the history.
///
/// # Errors
/// [`RunError::BadInput`] if there is no such run or task, or a file of it is missing.
pub fn task(named: &str, runs_dir: &Path, history: &History) -> Result<Task, RunError> {
    let parts = named.rsplit_once(':');
    let parts = parts.and_then(|(run, number)| Some((run, number.parse::<usize>().ok()?)));
    let (run, number) = parts.ok_or_else(|| {
        RunError::BadInput(format!(
            "--task {named:?}: expected RUN:NUMBER, for example quickstart:3"
        ))
    })?;
    let folder = find_run(Path::new(run), runs_dir)?;
    let mut tasks = TASKS.read(&folder)?;
    let found = number.checked_sub(1).and_then(|before| tasks.nth(before));
    let task = found.ok_or_else(|| {
        RunError::BadInput(format!(
            "--task {named:?}: the run has no task {number}; its tasks are numbered from 1"
        ))
    })??;
    let store = ContentStore::open(&folder.join("files"))?;
    for file in task.files.iter().chain(&task.held_out) {
        history.store().put(&store.get(&file.id)?)?;
    }
    Ok(task)
}

/// A conversation about a task, as an attempt at it.
pub(crate) struct Graded {
    pub(crate) task: Box<Task>,
    pub(crate) trajectory: Trajectory,
    pub(crate) verdict: Verdict,
}

/// Checks a conversation about a task: what its session has written, and its last answer.
///
/// # Errors
/// [`RunError::BadInput`] if the conversation is about no task; failures of the sandbox.
pub async fn grade(conversation: &mut Conversation, live: &Live) -> Result<Verdict, RunError> {
    Ok(graded(conversation, live).await?.verdict)
}

/// As [`grade`], with what was checked.
///
/// # Errors
/// As [`grade`].
pub(crate) async fn graded(
    conversation: &mut Conversation,
    live: &Live,
) -> Result<Graded, RunError> {
    let task = conversation.settings().task.clone();
    let task = task.ok_or_else(|| {
        RunError::BadInput(
            "this conversation has no checks; one that begins with --task RUN:NUMBER can be graded"
                .to_owned(),
        )
    })?;
    let mut trajectory = trajectory(conversation, &task);
    let history = conversation.history().clone();
    let session = conversation
        .session(live)
        .await?
        .ok_or_else(|| RunError::Conflict("stopped before the session was restored".to_owned()))?;
    let outputs = keep_outputs(session, history.store(), &trajectory.id).await;
    trajectory.outputs = outputs.map_err(|failure| of_failure(&failure))?;
    let (interpreter, _) = conversation.interpreter();
    let checker = checker_in(interpreter, history.store().clone())?;
    let case = GradeCase {
        task: &task,
        trajectory: &trajectory,
        format: conversation.agent().format,
    };
    let verdict = decide(&case, &FILTERS, checker.as_ref()).await;
    let verdict = verdict.map_err(|failure| of_failure(&failure))?;
    Ok(Graded {
        task,
        trajectory,
        verdict,
    })
}

/// The conversation as an attempt at a task, without output files.
fn trajectory(conversation: &Conversation, task: &Task) -> Trajectory {
    let agent = conversation.agent();
    let teacher = format!("chat:{}", conversation.id());
    let (interpreter, seed) = conversation.interpreter();
    let (sampling, format) = (agent.rollout.sampling.clone(), agent.format.name());
    let messages = conversation.messages();
    Trajectory {
        id: Trajectory::compute_id(&task.id, &teacher, &sampling, format, 0),
        task: task.id.clone(),
        teacher,
        sampling,
        sample: 0,
        seed,
        environment: interpreter.environment().to_owned(),
        format: format.to_owned(),
        end: end(&messages, |text| match agent.format.parse(text) {
            Parsed::Answer(_) => End::Finished,
            Parsed::Unfinished(_) => End::NoAnswer,
            _ => End::MaxTurns,
        }),
        messages,
        turns: turns(conversation),
        outputs: Vec::new(),
        fault: None,
        corrects: None,
    }
}

/// How the last reply ends the attempt.
fn end(messages: &[Message], of_text: impl Fn(&str) -> End) -> End {
    let mut replies = messages.iter().rev();
    let last = replies.find(|message| message.role == Role::Assistant);
    last.map_or(End::NoAnswer, |message| of_text(&message.content))
}

fn turns(conversation: &Conversation) -> Vec<Turn> {
    let format = conversation.agent().format;
    let mut turns = Vec::<Turn>::new();
    for entry in conversation.entries() {
        let (reply, usage) = match entry {
            Entry::Reply { reply } => {
                let text = format.truncate(&reply.content, reply.truncated);
                (text, reply.usage)
            }
            Entry::PartialReply { text } => (text.clone(), Default::default()),
            Entry::Run { run, .. } => {
                if let Some(turn) = turns.last_mut() {
                    match turn.observation {
                        None => {
                            turn.cell.clone_from(&run.cell);
                            turn.observation = Some(run.observation.clone());
                        }
                        Some(_) => turn.more.push(run.clone()),
                    }
                }
                continue;
            }
            Entry::File(_) | Entry::Message { .. } | Entry::Rewind { .. } => continue,
        };
        turns.push(Turn {
            reply,
            cell: None,
            observation: None,
            more: Vec::new(),
            usage,
        });
    }
    turns
}

fn of_failure(failure: &Failure) -> RunError {
    RunError::Environment(failure.to_string())
}
