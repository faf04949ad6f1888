//! The agents of a recipe, ready to play.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use pybench::agent::{self, Format, PybenchFormat};
use pybench::id::Digest;
use pybench::interpreter::SessionSpec;
use pybench::llm::{OpenAiOptions, Price, Teacher};
use pybench::run::{Rollout, RunError, default_cache_dir};
use pybench::trajectory::Role;

use super::{AgentChoice, Setup};
use crate::embedded::{Embedded, Model};
use crate::eval::agent::config::Config;
use crate::eval::agent::served::{self, Served};
use crate::eval::agent::{Human, Script, Scripted, UpstreamFormat};
use crate::eval::bench::spec;
use crate::eval::record::{Agent, AgentKind};
use crate::library::Library;
use crate::rollout::teacher::{COMPLETIONS, metered, refused};
use crate::rollout::{Crew, money};

/// A model on a few cores takes its time.
const SERVED_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1800);

/// One agent.
pub(super) struct Member {
    pub(super) label: String,
    pub(super) player: Player,
    kind: AgentKind,
    about: String,
    pub(super) format: &'static dyn Format,
    pub(super) how: Rollout,
    pub(super) price: Option<Price>,
    /// Tries at a time, at most; at least, where the recipe names no number.
    pub(super) at_once: RangeInclusive<usize>,
}

/// Who plays.
pub(super) enum Player {
    /// In sessions of ours.
    Teacher(Arc<dyn Teacher>),
    /// Likewise, once its server runs.
    Checkpoint(Checkpoint),
    /// It has played already.
    Trajectories {
        path: PathBuf,
        outputs: Option<PathBuf>,
    },
}

/// Every agent of the recipe, by label.
pub(super) async fn members(setup: &Setup) -> Result<Vec<Member>, RunError> {
    let mut members = Vec::new();
    for (label, choice) in &setup.recipe.agents {
        members.push(match choice {
            AgentChoice::Checkpoint { model, base, about } => {
                let about = about
                    .clone()
                    .unwrap_or_else(|| format!("`{model}`, served here"));
                checkpoint(setup, label, model, *base, about).await?
            }
            AgentChoice::Gguf {
                model,
                sha256,
                context,
                about,
            } => {
                let found = Model {
                    model: model.clone(),
                    sha256: sha256.clone(),
                    context: *context,
                    root: setup.project_root.clone(),
                    cache: default_cache_dir(),
                };
                gguf(setup, label, found, about.clone()).await?
            }
            other => member(setup, label, other)?,
        });
    }
    Ok(members)
}

/// A model that runs on this machine while it plays, and no longer: two may be more than the memory holds.
pub(super) struct Checkpoint {
    program: PathBuf,
    model: String,
    /// Under which it is served.
    name: String,
    base: bool,
}

/// Nobody listens there.
const NOWHERE: &str = "http://127.0.0.1:0/v1";

impl Checkpoint {
    /// Its server, which ends with the value.
    pub(super) async fn serve(&self) -> Result<Served, RunError> {
        Served::start(&self.program, &self.model, &self.name, self.base).await
    }

    /// The way to its server; without one it can be named, and not asked. It costs nothing.
    pub(super) fn teacher(
        &self,
        setup: &Setup,
        format: &'static dyn Format,
        served: Option<&Served>,
    ) -> Result<Arc<dyn Teacher>, RunError> {
        let options = OpenAiOptions {
            model: self.name.clone(),
            base_url: served.map_or(NOWHERE, |served| &served.base_url).to_owned(),
            key: None,
            headers: std::collections::BTreeMap::new(),
            price: Some(Price::default()),
            timeout: SERVED_TIMEOUT,
            extra: serde_json::Map::new(),
        };
        // Ports differ from run to run: nothing is shared with other runs.
        let (folder, options) = (setup.folder.clone(), options.offering(format.tools()));
        metered(options, folder, &setup.recipe.budget, format.name(), None)
    }
}

/// Served when its turn comes; whether it could be is asked now, before anybody plays.
async fn checkpoint(
    setup: &Setup,
    label: &str,
    model: &str,
    base: bool,
    about: String,
) -> Result<Member, RunError> {
    let program = served::program().ok_or_else(|| {
        RunError::Environment(
            "`pybench-train` is not beside this program: `just train` builds it".to_owned(),
        )
    })?;
    served::check(&program, model, base).await?;
    // Another model in the same place is another agent.
    let made = std::fs::metadata(std::path::Path::new(model).join("config.json"));
    let made = made.and_then(|metadata| metadata.modified()).ok();
    let made = made.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let digest = Digest::of_json(&(model, made.map(|time| time.as_secs())));
    Ok(Member {
        label: label.to_owned(),
        player: Player::Checkpoint(Checkpoint {
            program,
            model: model.to_owned(),
            name: format!("{label}-{}", digest.short()),
            base,
        }),
        kind: AgentKind::Model,
        about,
        format: agent::format(setup.recipe.rollout.format),
        how: setup.recipe.rollout.clone(),
        price: Some(Price::default()),
        at_once: served::TOGETHER..=usize::MAX,
    })
}

/// A model file that runs on this machine, in a process without keys; it costs nothing.
async fn gguf(
    setup: &Setup,
    label: &str,
    model: Model,
    about: Option<String>,
) -> Result<Member, RunError> {
    let cap = money::cap(&setup.recipe.budget);
    let format = agent::format(setup.recipe.rollout.format);
    let teacher = Embedded::open(model).await?;
    let about = about.unwrap_or_else(|| format!("`{}`, run here", teacher.name()));
    let teacher = teacher.metered(setup.folder.clone(), cap, format.name());
    Ok(Member {
        label: label.to_owned(),
        player: Player::Teacher(teacher),
        kind: AgentKind::Model,
        about,
        format,
        how: setup.recipe.rollout.clone(),
        price: Some(Price::default()),
        at_once: 1..=usize::MAX,
    })
}

fn member(setup: &Setup, label: &str, choice: &AgentChoice) -> Result<Member, RunError> {
    let variable = |name: &str| std::env::var(name).ok();
    let blank = |kind, about: String, player| Member {
        label: label.to_owned(),
        player,
        kind,
        about,
        format: &PybenchFormat,
        how: setup.recipe.rollout.clone(),
        price: None,
        at_once: 1..=usize::MAX,
    };
    match choice {
        AgentChoice::Script { script } => {
            let kind = match script {
                Script::Reference => AgentKind::Reference,
                _ => AgentKind::Null,
            };
            let mut member = blank(
                kind,
                script.about().to_owned(),
                Player::Teacher(scripted(setup, *script)?),
            );
            // Solutions of ours are not cut short, and never vary.
            member.how.max_turns = member.how.max_turns.max(20);
            member.how.samples = 1;
            Ok(member)
        }
        AgentChoice::Human {} => {
            let player = Player::Teacher(Arc::new(Human::new(&PybenchFormat)));
            let about = "a person at the terminal".to_owned();
            Ok(Member {
                at_once: 1..=1,
                ..blank(AgentKind::Human, about, player)
            })
        }
        AgentChoice::Openai {
            model,
            base_url,
            about,
            ..
        } => {
            let teacher = choice
                .teacher()
                .ok_or_else(|| RunError::Internal("no teacher".to_owned()))?;
            let options = OpenAiOptions::from_recipe(&teacher, variable).map_err(refused)?;
            let options = options.ok_or_else(|| RunError::Internal("no endpoint".to_owned()))?;
            let about = about
                .clone()
                .unwrap_or_else(|| format!("`{model}` at {}", host(base_url)));
            let format = agent::format(setup.recipe.rollout.format);
            endpoint(setup, options.offering(format.tools()), |player| Member {
                format,
                ..blank(AgentKind::Model, about, player)
            })
        }
        AgentChoice::Checkpoint { .. } | AgentChoice::Gguf { .. } => Err(RunError::Internal(
            "a model of this machine is started first".to_owned(),
        )),
        AgentChoice::Config { path, price } => {
            let mut config = Config::read(&setup.project_root.join(path), variable)?;
            config.endpoint.price = price.or(config.endpoint.price);
            let about = format!(
                "`{}` at {}",
                config.endpoint.model,
                host(&config.endpoint.base_url)
            );
            let format: &'static dyn Format =
                UpstreamFormat::new(&config.system, config.call.as_deref());
            let how = Rollout {
                max_turns: config.max_turns,
                sampling: config.sampling,
                ..setup.recipe.rollout.clone()
            };
            endpoint(setup, config.endpoint, |player| Member {
                format,
                how,
                ..blank(AgentKind::Model, about, player)
            })
        }
        AgentChoice::Trajectories { path, outputs } => {
            let at = |path: &PathBuf| setup.project_root.join(path);
            let player = Player::Trajectories {
                path: at(path),
                outputs: outputs.as_ref().map(at),
            };
            Ok(blank(
                AgentKind::Foreign,
                "trajectories of another system".to_owned(),
                player,
            ))
        }
    }
}

fn scripted(setup: &Setup, script: Script) -> Result<Arc<dyn Teacher>, RunError> {
    let wrong = |error: String| RunError::BadInput(error);
    let library = Library::embedded().map_err(|error| wrong(error.to_string()))?;
    let specs = match &setup.bench {
        Some(bench) => bench.specs.clone(),
        None => Arc::new(spec::embedded().map_err(|error| wrong(error.to_string()))?),
    };
    Ok(Arc::new(Scripted::new(
        script,
        specs,
        Arc::new(library),
        &PybenchFormat,
    )))
}

/// A model whose calls are journaled and within the budget.
fn endpoint(
    setup: &Setup,
    options: OpenAiOptions,
    make: impl FnOnce(Player) -> Member,
) -> Result<Member, RunError> {
    let recipe = &setup.recipe;
    let price = options.price;
    money::bounded(&options.model, price, &recipe.budget).map_err(|error| {
        RunError::BadInput(format!("{error}; on the command line: --usd or --tokens"))
    })?;
    // The player is known once the format is.
    let mut member = make(Player::Trajectories {
        path: PathBuf::new(),
        outputs: None,
    });
    let shared = recipe
        .rollout
        .reuse
        .then(|| setup.project_root.join(COMPLETIONS));
    let format = member.format.name();
    let teacher = metered(
        options,
        setup.folder.clone(),
        &recipe.budget,
        format,
        shared.as_deref(),
    )?;
    member.player = Player::Teacher(teacher);
    member.price = price;
    Ok(member)
}

/// The address without what may be a secret in it.
fn host(base_url: &str) -> String {
    let rest = base_url
        .split_once("://")
        .map_or(base_url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default().to_owned()
}

impl Member {
    /// Who tries, and how.
    pub(super) fn crew(&self, setup: &Setup, teacher: Arc<dyn Teacher>) -> Crew {
        Crew {
            how: self.how.clone(),
            session: SessionSpec {
                limits: setup.recipe.interpreter.limits.clone(),
                ..SessionSpec::default()
            },
            format: self.format,
            teacher,
            mix: Vec::new(),
            stronger: Vec::new(),
            seed: 0,
            interpreter: setup.interpreter.clone(),
        }
    }

    /// Digest of the system prompt it was given.
    pub(super) fn prompt(&self) -> Digest {
        let task = super::questions::blank_task();
        let opening = self.format.opening(&task);
        let system = opening.iter().find(|message| message.role == Role::System);
        Digest::of_json(&(system, self.format.stop()))
    }

    /// As records describe it.
    pub(super) fn card(&self) -> Agent {
        let sampled = self.kind == AgentKind::Model;
        Agent {
            kind: self.kind,
            about: self.about.clone(),
            format: self.format.name().to_owned(),
            sampling: sampled.then(|| self.how.sampling.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn addresses_are_told_without_secrets() {
        assert_eq!(
            super::host("https://user:key@h.example:8/v1?k=s"),
            "h.example:8"
        );
        assert_eq!(super::host("http://localhost:1/v1"), "localhost:1");
    }
}
