//! The command `pybench chat`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pybench_run::cli::{LogArgs, print};
use pybench_run::project::{default_runs_dir, project_root};
use pybench_run::{FormatChoice, RunError};
use pybench_types::text::line;

use crate::agents::{self, of_agent};
use crate::conversation::{Conversation, Tools};
use crate::grade;
use crate::history::{FOLDER, History, Listed};
use crate::model::ChatAgent;
use crate::settings::Settings;
use crate::terminal::Terminal;
use crate::terminal::images::ImageProtocol;
use crate::terminal::input::Input;
use crate::transcript::Next;

/// What `--resume` without a value stands for.
const LAST: &str = "last";
/// How a person allows a key for the endpoint of a conversation.
const ADVICE: &str = "allow it with `--key-env` and the name of the variable";

/// Talk with a model that has a Python interpreter: streamed replies, files, history
///
/// Without `--agent` and `--model`, the newest checkpoint of `pybench train` is served on this machine.
#[derive(Clone, Debug, clap::Parser)]
pub struct ChatArgs {
    /// Agent of a recipe of `pybench eval`
    #[arg(long, value_name = "NAME", conflicts_with = "model")]
    pub agent: Option<String>,
    /// Recipe with the agent: a file, or the name of one that comes with pybench [default: default]
    #[arg(long, value_name = "RECIPE", requires = "agent")]
    pub recipe: Option<PathBuf>,
    /// Model: a name at the endpoint, a model folder, or a GGUF file
    #[arg(long, value_name = "MODEL", group = "named")]
    pub model: Option<String>,
    /// Base URL of an OpenAI-compatible API
    #[arg(
        long,
        value_name = "URL",
        requires = "model",
        default_value = "https://api.openai.com/v1"
    )]
    pub base_url: String,
    /// Environment variable that holds the API key; with --resume and --profile, may be sent to the conversation's endpoint
    #[arg(long, value_name = "VARIABLE", requires = "named")]
    pub key_env: Option<String>,
    /// Message format: pybench, pybench_short, codeact, tools or code_interpreter [default: tools at an endpoint, otherwise pybench]
    #[arg(long, value_name = "FORMAT", requires = "model", value_parser = format)]
    pub format: Option<FormatChoice>,
    /// Maximum cost of the conversation in US dollars
    #[arg(long, value_name = "DOLLARS", value_parser = amount)]
    pub usd: Option<f64>,
    /// Maximum number of tokens of the conversation
    #[arg(long, value_name = "N")]
    pub tokens: Option<u64>,
    /// Put a file into ./data at the beginning; may be repeated
    #[arg(long = "file", value_name = "PATH")]
    pub files: Vec<PathBuf>,
    /// Begin with a task of a run, which /grade then checks
    #[arg(long, value_name = "RUN:NUMBER", conflicts_with = "resume")]
    pub task: Option<String>,
    /// Continue a conversation, named by its first digits, with its own agent; without a value, the last one
    #[arg(
        long,
        value_name = "ID",
        num_args = 0..=1,
        default_missing_value = LAST,
        group = "named",
        conflicts_with_all = ["agent", "model", "usd", "tokens"]
    )]
    pub resume: Option<String>,
    /// List the conversations
    #[arg(long)]
    pub list: bool,
    /// How pictures are shown
    #[arg(long, value_enum, value_name = "PROTOCOL", default_value = "auto")]
    pub images: ImageProtocol,
    /// Folder of the history [default: data/chat in the project]
    #[arg(long, value_name = "DIR")]
    pub history: Option<PathBuf>,
    /// Keep the conversations in the PostgreSQL server that FILE names, and their files in its bucket [default: in that folder]
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Folder that contains the run folders [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    pub runs_dir: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Talks until the end of the input, `/quit`, or Ctrl-C twice.
///
/// # Errors
/// [`RunError::BadInput`] if the agent, the conversation or the task does not exist; [`RunError::Endpoint`] if an API key is
/// not set; [`RunError::Environment`] if the interpreter cannot run.
pub async fn run(args: &ChatArgs) -> Result<(), RunError> {
    let root = project_root(Path::new("."));
    let root = root.unwrap_or_else(|| PathBuf::from("."));
    let folder = args.history.clone();
    let folder = folder.unwrap_or_else(|| root.join(FOLDER));
    let history = Arc::new(History::at(&folder, args.profile.as_deref())?);
    if args.list {
        return print(&listed(&history.list()?));
    }
    let (mut conversation, first) = match &args.resume {
        Some(id) => resumed(args, id, history, &root).await?,
        None => begun(args, history, &root).await?,
    };
    let mut terminal = Terminal::open(&conversation, args.images)?;
    let result = terminal.talk(&mut conversation, first).await;
    if conversation.is_saved() {
        tracing::info!("`pybench chat --resume {}` continues", conversation.id());
    }
    conversation.close().await;
    result
}

/// A new conversation, and what it begins with.
async fn begun(
    args: &ChatArgs,
    history: Arc<History>,
    root: &Path,
) -> Result<(Conversation, Vec<Input>), RunError> {
    let runs_dir = runs_dir(args, root);
    let mut settings = settings(args, root, &runs_dir)?;
    if let Some(named) = &args.task {
        settings.task = Some(Box::new(grade::task(named, &runs_dir, &history)?));
    }
    let tools = tools(&settings, root).await?;
    let task = settings.task.clone();
    let mut conversation = Conversation::begin(history.clone(), settings, tools, root)?;
    let mut first: Vec<Input> = Vec::new();
    if let Some(task) = task {
        let (live, _) = crate::live::Live::new();
        for file in &task.files {
            let bytes = history.store().get(&file.id)?;
            conversation.put_file(&file.name, &bytes, &live)?;
        }
        first.push(Input::Message(task.query.clone()));
    }
    let mut inputs: Vec<Input> = args.files.iter().cloned().map(Input::Put).collect();
    inputs.append(&mut first);
    Ok((conversation, inputs))
}

/// A conversation that goes on, and what it begins with.
async fn resumed(
    args: &ChatArgs,
    id: &str,
    history: Arc<History>,
    root: &Path,
) -> Result<(Conversation, Vec<Input>), RunError> {
    let digits = (id != LAST).then_some(id);
    let id = history.find(digits)?;
    let settings = history.read(&id)?.settings;
    // Somebody else may have begun it.
    if args.profile.is_some() {
        let mut own = agents::models_of_recipe(Path::new(agents::RECIPE), root)?;
        own.extend(agents::newest(&runs_dir(args, root)));
        agents::check_from_others(&settings, &own)?;
        let address = agents::address(&settings.agent);
        let allowed = address.zip(args.key_env.as_deref());
        agents::check_shared(&settings.agent, &own, allowed.as_slice(), ADVICE, |name| {
            std::env::var(name).ok()
        })?;
    }
    let tools = tools(&settings, root).await?;
    let conversation = Conversation::resume(history, id, tools, root)?;
    if conversation.next_step() != Next::Person {
        tracing::info!("the model had not ended its answer; /continue lets it go on");
    }
    let files = args.files.iter().cloned().map(Input::Put);
    let first = std::iter::once(Input::Restore).chain(files).collect();
    Ok((conversation, first))
}

/// Opens the model and the interpreter.
async fn tools(settings: &Settings, root: &Path) -> Result<Tools, RunError> {
    let interpreter = pybench_interpreter_containers::interpreter(&settings.interpreter);
    let interpreter = interpreter.map_err(|error| RunError::Environment(error.to_string()))?;
    Ok(Tools {
        agent: ChatAgent::open(settings, root).await?,
        interpreter,
    })
}

fn settings(args: &ChatArgs, root: &Path, runs_dir: &Path) -> Result<Settings, RunError> {
    let mut settings = match (&args.agent, &args.model) {
        (Some(agent), _) => {
            let recipe = args.recipe.as_deref();
            agents::of_recipe(recipe.unwrap_or(Path::new(agents::RECIPE)), agent, root)?
        }
        (None, Some(model)) => of_model(args, model, root)?,
        (None, None) => newest(runs_dir)?,
    };
    let budget = &mut settings.budget;
    budget.usd = args.usd.or(budget.usd);
    budget.tokens = args.tokens.or(budget.tokens);
    Ok(settings)
}

/// The model that `--model` names.
///
/// # Errors
/// As [`agents::of_file`].
fn of_model(args: &ChatArgs, model: &str, root: &Path) -> Result<Settings, RunError> {
    let absolute = match std::path::absolute(model) {
        Ok(path) => path.display().to_string(),
        Err(_) => model.to_owned(),
    };
    let local = match agents::local(Path::new(model), absolute)? {
        None => agents::local(&root.join(model), model.to_owned())?,
        here => here,
    };
    // The address of a file, or a file that is missing, which opening the model reports.
    let named = || agents::is_gguf(model.as_ref()).then(|| agents::gguf(model.to_owned()));
    let (agent, format) = match local.or_else(named) {
        Some(agent) => (agent, FormatChoice::Pybench),
        None => (
            agents::endpoint(model, &args.base_url, args.key_env.as_deref()),
            FormatChoice::Tools,
        ),
    };
    let format = args.format.unwrap_or(format);
    Ok(of_agent(model, agent, format))
}

/// The newest checkpoint.
fn newest(runs_dir: &Path) -> Result<Settings, RunError> {
    agents::newest(runs_dir).ok_or_else(|| {
        RunError::BadInput(format!(
            "there is no checkpoint in {}: name a model with --model (a name at an endpoint, a model folder, a GGUF file), or \
             an agent of a recipe with --agent",
            runs_dir.display()
        ))
    })
}

fn runs_dir(args: &ChatArgs, root: &Path) -> PathBuf {
    let given = args.runs_dir.clone();
    given.unwrap_or_else(|| default_runs_dir(Some(root)))
}

fn listed(conversations: &[Listed]) -> String {
    if conversations.is_empty() {
        return "there are no conversations\n".to_owned();
    }
    let lines = conversations
        .iter()
        .map(|one| format!("{}  {}\n", one.id, line(&one.title)));
    lines.collect()
}

/// Reads a message format by its name in recipes.
fn format(name: &str) -> Result<FormatChoice, String> {
    let read = serde_json::from_value(serde_json::json!(name));
    read.map_err(|_| {
        "expected pybench, pybench_short, codeact, tools or code_interpreter".to_owned()
    })
}

/// Reads an amount of dollars.
fn amount(text: &str) -> Result<f64, String> {
    let amount = text.parse().ok();
    let amount = amount.filter(|dollars: &f64| dollars.is_finite() && *dollars >= 0.0);
    amount.ok_or_else(|| "expected an amount such as 0.50".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use pybench_eval::run::AgentChoice;

    use super::*;

    fn parsed(args: &[&str]) -> Result<ChatArgs, clap::Error> {
        ChatArgs::try_parse_from(std::iter::once(&"chat").chain(args))
    }

    #[test]
    fn resume_takes_an_id_or_stands_alone() {
        assert_eq!(parsed(&[]).unwrap().resume, None);
        let alone = parsed(&["--resume"]).unwrap().resume;
        assert_eq!(alone.as_deref(), Some(LAST));
        let named = parsed(&["--resume", "0a1b"]).unwrap().resume;
        assert_eq!(named.as_deref(), Some("0a1b"));
        for wrong in [
            ["--resume=0a", "--model=m"],
            ["--agent=a", "--model=m"],
            ["--model=m", "--format=latex"],
            ["--model=m", "--usd=-1"],
        ] {
            assert!(parsed(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_model_is_an_endpoint_a_folder_or_a_file() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("data/runs/r/model");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.json"), "{}").unwrap();
        let args = parsed(&["--model", "m", "--base-url", "http://127.0.0.1/v1"]).unwrap();
        let of = |model: &str| of_model(&args, model, root.path()).unwrap();
        let endpoint = of("gpt-4o");
        assert!(
            matches!(&endpoint.agent, AgentChoice::Openai { base_url, .. } if base_url.ends_with("/v1"))
        );
        assert_eq!(endpoint.rollout.format, FormatChoice::Tools);
        for (model, path) in [
            ("data/runs/r/model", "data/runs/r/model"),
            (folder.to_str().unwrap(), folder.to_str().unwrap()),
        ] {
            let settings = of(model);
            assert!(
                matches!(&settings.agent, AgentChoice::Checkpoint { model, .. } if model == path)
            );
            assert_eq!(settings.rollout.format, FormatChoice::Pybench);
        }
        for name in ["a/b.gguf", "hf://o/r/b.gguf"] {
            let agent = of(name).agent;
            assert!(matches!(agent, AgentChoice::Gguf { model, .. } if model == name));
        }
        std::fs::create_dir(root.path().join("c.gguf")).unwrap();
        let error = of_model(&args, "c.gguf", root.path()).unwrap_err();
        assert!(error.to_string().contains("is a folder"), "{error}");
        let newest = newest(&root.path().join("data/runs")).unwrap();
        assert_eq!(newest.label, "r");
        assert!(matches!(
            super::newest(root.path()),
            Err(RunError::BadInput(_))
        ));
    }

    #[test]
    fn agents_come_from_recipes_with_their_settings() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("r.toml");
        let text = "name = 't'\n[rollout]\nmax_turns = 3\n[agents.mine]\nkind = 'openai'\nmodel = 'm'\n\
                    base_url = 'http://127.0.0.1/v1'\n";
        std::fs::write(&path, text).unwrap();
        let recipe = path.to_str().unwrap();
        let args = parsed(&["--agent", "mine", "--recipe", recipe, "--tokens", "9"]).unwrap();
        let of_mine = settings(&args, root.path(), root.path()).unwrap();
        assert_eq!(
            (of_mine.rollout.max_turns, of_mine.budget.tokens),
            (3, Some(9))
        );
        let args = parsed(&["--agent", "mime", "--recipe", recipe]).unwrap();
        let error = settings(&args, root.path(), root.path()).unwrap_err();
        assert!(
            error.to_string().contains("did you mean `mine`?"),
            "{error}"
        );
    }
}
