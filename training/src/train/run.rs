//! A whole run, from recipe to model directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tch::{Device, Kind};

use super::estimate::estimate;
use super::generated;
use super::launch::{launch, launched};
use super::metrics::Metrics;
use super::mixture::table;
use super::plan::Peak;
use super::recipe::WeightKind;
use super::{
    Batch, Checkpoint, Dataset, Document, MemoryPlan, Recipe, Share, Stage, State, StepError, Team,
    Trainer, Watch, attach_lora, flops, prepare, report,
};
use crate::catalogue;
use crate::data::{Bins, Conversation, Renderer, Source, read};
use crate::model::{Loss, Model, ModelConfig, load_config, save_model};

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folder of the run; `data/runs/<name>` otherwise.
    pub out: Option<PathBuf>,
    /// Say what would be done, and stop.
    pub dry_run: bool,
    /// Processes to start on this machine, where nobody else has started them.
    pub processes: usize,
}

/// Does what a recipe says, stage by stage, alone or as one of several processes. A run that was
/// stopped goes on from its last checkpoint.
pub fn run(recipe_path: &Path, options: &Options) -> Result<()> {
    if options.processes > 1 && !options.dry_run && !launched() {
        return launch(options.processes);
    }
    let team = Team::from_env()?;
    let mut left: Option<PathBuf> = None;
    let (mut start, mut last) = (None, None);
    for Stage { name, mut recipe } in Stage::load(recipe_path)? {
        let default = || PathBuf::from("data/runs").join(&recipe.name);
        let mut out = options.out.clone().unwrap_or_else(default);
        if let Some(name) = &name {
            out.push(name);
            if team.leads() {
                eprintln!("stage {name}");
            }
        }
        if let Some(model) = left.filter(|_| !options.dry_run) {
            recipe.model = model.display().to_string();
        }
        start.get_or_insert_with(|| recipe.model.clone());
        let folder = out.join("model");
        match name.is_some() && is_done(&recipe, &out) {
            true => eprintln!("is done: {}", folder.display()),
            false => run_stage(&recipe, &out, options, &team)?,
        }
        if team.leads() && !options.dry_run {
            // Whoever publishes the model says by it how it was made.
            let kept = out.join("recipe.toml");
            let text = fs::read(recipe_path).with_context(|| recipe_path.display().to_string())?;
            fs::write(&kept, text).with_context(|| kept.display().to_string())?;
        }
        // No process looks whether a stage is done before all have gone through it.
        team.meet()?;
        left = Some(folder);
        last = Some((recipe, out));
    }
    match (start, last) {
        (Some(start), Some((recipe, out))) if team.leads() && !options.dry_run => {
            generate(&recipe, &start, &out)
        }
        _ => Ok(()),
    }
}

/// What the model's own trajectories are worth, where the recipe asks: the other processes are done.
fn generate(recipe: &Recipe, start: &str, out: &Path) -> Result<()> {
    let Some(choice) = &recipe.generated else {
        return Ok(());
    };
    let found = generated::evaluate(choice, &catalogue::find(start)?, &out.join("model"), out)?;
    eprintln!("tasks passed by generated trajectories: {found}");
    let path = out.join("results.json");
    let mut results: serde_json::Value =
        serde_json::from_slice(&crate::model::read_bounded(&path, 64 << 20)?)?;
    results["generated"] = found;
    crate::model::write_json(&path, &results)?;
    Ok(report::write(out, &recipe.name, &results)?)
}

/// Whether a stage has left its model, made by this recipe.
fn is_done(recipe: &Recipe, out: &Path) -> bool {
    let results = fs::read(out.join("results.json")).unwrap_or_default();
    let results: serde_json::Value = serde_json::from_slice(&results).unwrap_or_default();
    results["recipe"] == recipe.identity() && out.join("model/config.json").exists()
}

fn run_stage(recipe: &Recipe, out: &Path, options: &Options, team: &Team) -> Result<()> {
    let dry_run = options.dry_run;
    let processes = team.place().1.max(options.processes);
    if dry_run && recipe.data.iter().all(|source| source.about.is_some()) {
        return by_size(recipe, processes);
    }
    let source = team.lead(|| catalogue::find(&recipe.model))?;
    let config = load_config(&source)?;
    let renderer = Renderer::load_with(&source, recipe.chat_template.as_deref())?;
    let cache = catalogue::cache_folder()?.join("tokens");
    let mut data = team.lead(|| Dataset::load(recipe, &renderer, config.vocab, &cache))?;
    let train = &recipe.train;
    let steps = match (train.steps, train.epochs) {
        (Some(steps), _) => steps,
        (None, epochs) => data.steps(epochs.unwrap_or(1.0), train.rows),
    };
    let plan = MemoryPlan::new(recipe, &config, processes, team.device());
    if team.leads() {
        describe(recipe, &mut data, steps, &plan);
    }
    if let Some(first) = data.preflight.stops.first() {
        bail!("{first}");
    }
    let held_out = HeldOutData::load(recipe, &renderer)?;
    if dry_run {
        return Ok(());
    }
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let trainer = prepare_trainer(recipe, &source, steps, team)?;
    let run = Run {
        recipe,
        source: &source,
        renderer: &renderer,
        out,
        team,
        held_out,
        steps,
        plan,
    };
    run.finish(&mut data, trainer)
}

/// A dry run of what the recipe knows, without model, tokenizer and data.
fn by_size(recipe: &Recipe, world: usize) -> Result<()> {
    let config = match &recipe.shape {
        None => load_config(&catalogue::find(&recipe.model)?)?,
        Some(shape) => {
            let bytes = crate::model::read_bounded(shape, 1 << 20)?;
            ModelConfig::parse(&bytes).with_context(|| shape.display().to_string())?
        }
    };
    eprintln!("{}", estimate(recipe, &config, world)?);
    Ok(())
}

/// Gives a written model the recipe's chat template, and makes it stop where the template's turns end.
fn adopt(recipe: &Recipe, renderer: &Renderer, folder: &Path) -> std::io::Result<()> {
    if recipe.chat_template.is_none() {
        return Ok(());
    }
    fs::write(
        folder.join("chat_template.jinja"),
        renderer.template.source(),
    )?;
    let path = folder.join("generation_config.json");
    let kept = fs::read(&path).unwrap_or_default();
    let mut kept: serde_json::Map<_, _> = serde_json::from_slice(&kept).unwrap_or_default();
    let ends: Vec<u32> = renderer
        .tokenizer
        .eos
        .into_iter()
        .chain(renderer.end_of_turn())
        .collect();
    kept.insert("eos_token_id".into(), ends.into());
    crate::model::write_json(&path, &kept.into())
}

fn prepare_trainer(recipe: &Recipe, source: &Path, steps: u64, team: &Team) -> Result<Trainer> {
    let kind = match recipe.train.weights {
        WeightKind::Float32 => Kind::Float,
        WeightKind::Bf16 => Kind::BFloat16,
    };
    let mut model = Model::load(source, kind, team.device())?;
    if let Some(lora) = &recipe.lora {
        attach_lora(&mut model, lora, recipe.seed)?;
    }
    Ok(Trainer::new(model, recipe, steps, team.group.clone())?)
}

/// A run that is ready to begin.
struct Run<'a> {
    recipe: &'a Recipe,
    source: &'a Path,
    renderer: &'a Renderer,
    out: &'a Path,
    team: &'a Team,
    held_out: HeldOutData,
    steps: u64,
    plan: MemoryPlan,
}

impl Run<'_> {
    fn finish(&self, data: &mut Dataset, mut trainer: Trainer) -> Result<()> {
        let before = self.evaluate(&trainer.model, "before")?;
        if let Some(lora) = &self.recipe.lora {
            trainer.model.set_dropout(lora.dropout);
        }
        self.train(data, &mut trainer)?;
        trainer.model.set_dropout(0.0);
        let model = trainer.into_model()?;
        let after = self.evaluate(&model, "after")?;
        let memory = Peak::read();
        if self.team.leads() {
            let folder = self.out.join("model");
            replace(&folder, |building| {
                save_model(&model, building, self.source)?;
                adopt(self.recipe, self.renderer, building)
            })
            .with_context(|| folder.display().to_string())?;
            let results = serde_json::json!({
                "recipe": self.recipe.identity(),
                "model": self.recipe.model,
                "licence": catalogue::licence(&self.recipe.model),
                "mixture": data.mixture,
                "steps": self.steps,
                "before": before.json(),
                "after": after.json(),
                "memory": {"planned": self.plan.total(), "measured": memory.map(|m| m.bytes)},
            });
            crate::model::write_json(&self.out.join("results.json"), &results)?;
            report::write(self.out, &self.recipe.name, &results)?;
            if let Some(peak) = memory {
                eprintln!("memory: {}", peak.against(&self.plan));
            }
            eprintln!("the model is in {}", folder.display());
        }
        self.team.meet()
    }

    /// Every process goes through all of it: they must gather parameters together.
    fn evaluate(&self, model: &Model, when: &str) -> Result<Measured> {
        let measured = self.held_out.evaluate(model, self.team.device())?;
        if self.team.leads() {
            measured.print(when);
        }
        Ok(measured)
    }

    fn train(&self, data: &mut Dataset, trainer: &mut Trainer) -> Result<()> {
        let (recipe, team) = (self.recipe, self.team);
        let identity = recipe.identity();
        let data_hash = data_hash(data, trainer);
        let folder = self.out.join("checkpoints");
        let mut checkpoints = Checkpoint::new(&folder, recipe.checkpoint.keep, team.place());
        if team.leads() {
            checkpoints.tidy()?;
        }
        team.meet()?;
        let found = checkpoints.resume(&identity, &data_hash, &mut trainer.optimizer)?;
        let done = found.as_ref().map_or(0, |state| state.step);
        if let Some(state) = found {
            trainer.watch = Watch::from_bits(&state.losses);
            if team.leads() {
                eprintln!("going on after step {done}");
            }
        }
        let mut metrics = match team.leads() {
            true => Some(Metrics::open(
                self.out,
                done,
                self.steps,
                self.peak(trainer),
            )?),
            false => None,
        };
        for step in done..self.steps {
            let rows = data.step_rows(step, recipe.train.rows);
            let parts = team.parts(data, &rows, recipe.train.micro_rows)?;
            let report = match trainer.step(step, &parts) {
                Ok(report) => report,
                Err(error) if error.is_divergence() && team.leads() => {
                    return Err(keep_batch(error, step, &rows, data, self.out));
                }
                Err(error) => return Err(error.into()),
            };
            checkpoints.poll()?;
            if let Some(metrics) = &mut metrics {
                metrics.step(&report)?;
            }
            let every = recipe.checkpoint.every;
            if every > 0 && (step + 1) % every == 0 {
                let losses = trainer.watch.bits();
                let state = State::new(step + 1, &identity, &data_hash, losses);
                checkpoints.save(state, &trainer.optimizer)?;
            }
        }
        Ok(checkpoints.finish()?)
    }

    /// Operations per second that the devices of all processes could do.
    fn peak(&self, trainer: &Trainer) -> f64 {
        let kind = trainer.model.embed.kind();
        flops::measured_peak(kind, self.team.device()) * self.team.place().1 as f64
    }
}

fn data_hash(data: &Dataset, trainer: &Trainer) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(data.digest().as_bytes());
    // Which are trained; with several processes each has but a few of them.
    let lora = trainer.model.parameters().into_iter().map(|(name, _)| name);
    for name in lora.filter(|name| name.contains(".lora_")) {
        hasher.update(name.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Saves the documents of a failed step beside the run.
fn keep_batch(
    error: StepError,
    step: u64,
    rows: &Bins,
    data: &Dataset,
    out: &Path,
) -> anyhow::Error {
    let documents: Vec<_> = rows
        .iter()
        .flatten()
        .map(|&number| {
            let document = data.document(number);
            serde_json::json!({"place": document.place, "ids": document.ids, "weights": document.weights})
        })
        .collect();
    let path = out.join(format!("bad-batch-{step}.json"));
    match crate::model::write_json(&path, &documents.into()) {
        Ok(()) => anyhow::Error::new(error).context(format!("the batch is in {}", path.display())),
        Err(_) => error.into(),
    }
}

/// Writes a folder beside and puts it in place of another.
fn replace(folder: &Path, write: impl FnOnce(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    let parent = folder.parent().unwrap_or(Path::new("."));
    let building = tempfile::Builder::new()
        .prefix(".building-")
        .tempdir_in(parent)?;
    write(building.path())?;
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::rename(building.path(), folder)?;
    let _ = building.keep();
    Ok(())
}

fn describe(recipe: &Recipe, data: &mut Dataset, steps: u64, plan: &MemoryPlan) {
    let rows = data.rows(0);
    let documents: usize = rows.iter().map(Vec::len).sum();
    let rows = rows.len();
    let seen = |tokens: fn(&Share) -> usize| -> f64 {
        let shares = data.mixture.iter();
        shares
            .map(|share| share.weight * tokens(share) as f64)
            .sum()
    };
    let (tokens, trained) = (seen(|share| share.tokens), seen(|share| share.trained));
    eprintln!(
        "{}\nan epoch: {documents} documents, {tokens:.0} tokens, {trained:.0} trained, in {rows} rows of {} ({:.1} % full)",
        table(&data.mixture),
        recipe.train.context,
        100.0 * tokens / (rows.max(1) * recipe.train.context) as f64
    );
    let lost = data.facts.overflow;
    if lost.conversations > 0 {
        eprintln!(
            "{} conversations were too long: {} tokens lost, {} of them trained; {} repeated as context",
            lost.conversations, lost.lost, lost.lost_trained, lost.repeated
        );
    }
    eprintln!("{steps} steps of {} rows", recipe.train.rows);
    eprintln!("{}", plan.describe(recipe));
    for note in &data.preflight.notes {
        eprintln!("note: {note}");
    }
    for stop in &data.preflight.stops {
        eprintln!("stop: {stop}");
    }
}

// --- held-out loss -------------------------------------------------------------------------------

struct HeldOutData {
    files: Vec<Document>,
    templates: Vec<Document>,
}

/// Losses of both groups; `None` where a group is empty.
struct Measured {
    files: Option<Loss>,
    templates: Option<Loss>,
}

impl HeldOutData {
    fn load(recipe: &Recipe, renderer: &Renderer) -> Result<Self> {
        let Some(choice) = &recipe.held_out else {
            return Ok(Self {
                files: vec![],
                templates: vec![],
            });
        };
        let source = Source {
            prefix: choice.prefix.clone(),
            ..Source::at(&choice.path)
        };
        let all = read(&source)?;
        let group = |held_out: bool| -> Result<Vec<Document>> {
            let chosen = all.iter().filter(|c| c.held_out_template == held_out);
            let chosen: Vec<Conversation> = chosen.take(choice.rows).cloned().collect();
            prepare(renderer, &chosen, recipe.train.context)
        };
        Ok(Self {
            files: group(false)?,
            templates: group(true)?,
        })
    }

    fn evaluate(&self, model: &Model, device: Device) -> Result<Measured> {
        let group = |documents: &[Document]| -> Result<Option<Loss>> {
            let mut loss = Loss::default();
            for number in 0..documents.len() {
                let batch = Batch::new(documents, &[vec![number]], device)?;
                loss += model.evaluate(&batch.ids, &batch.layout, &batch.targets);
            }
            Ok((loss.weight > 0.0).then_some(loss))
        };
        Ok(Measured {
            files: group(&self.files)?,
            templates: group(&self.templates)?,
        })
    }
}

impl Measured {
    fn print(&self, when: &str) {
        for (name, loss) in [
            ("unseen files", self.files),
            ("held-out templates", self.templates),
        ] {
            if let Some(loss) = loss {
                let (mean, weight) = (loss.mean(), loss.weight);
                println!("loss {when}, {name}: {mean:.4} nats per token ({weight} tokens)");
            }
        }
    }

    fn json(&self) -> serde_json::Value {
        let mean = |loss: Option<Loss>| loss.map(Loss::mean);
        serde_json::json!({"unseen_files": mean(self.files), "held_out_templates": mean(self.templates)})
    }
}
