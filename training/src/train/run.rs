//! A whole run, from recipe to model directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tch::{Device, Kind};

use super::estimate::estimate;
use super::metrics::Metrics;
use super::mixture::table;
use super::{
    Batch, Checkpoint, Dataset, Document, MemoryPlan, Recipe, Share, Stage, State, StepError,
    Trainer, attach_lora, prepare,
};
use crate::catalogue;
use crate::data::{Conversation, Renderer, Source, read};
use crate::model::{Loss, Model, ModelConfig, Recomputation, load_config, save_model};

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folder of the run; `data/runs/<name>` otherwise.
    pub out: Option<PathBuf>,
    /// Say what would be done, and stop.
    pub dry_run: bool,
}

/// Does what a recipe says, stage by stage. A run that was stopped goes on from its last checkpoint.
pub fn run(recipe_path: &Path, options: &Options) -> Result<()> {
    let mut left: Option<PathBuf> = None;
    for Stage { name, mut recipe } in Stage::load(recipe_path)? {
        let default = || PathBuf::from("data/runs").join(&recipe.name);
        let mut out = options.out.clone().unwrap_or_else(default);
        if let Some(name) = &name {
            eprintln!("stage {name}");
            out.push(name);
        }
        if let Some(model) = left.filter(|_| !options.dry_run) {
            recipe.model = model.display().to_string();
        }
        let folder = out.join("model");
        match name.is_some() && is_done(&recipe, &out) {
            true => eprintln!("is done: {}", folder.display()),
            false => run_stage(&recipe, &out, options.dry_run)?,
        }
        left = Some(folder);
    }
    Ok(())
}

fn recipe_hash(recipe: &Recipe) -> String {
    hash(format!("{recipe:?}").as_bytes())
}

/// Whether a stage has left its model, made by this recipe.
fn is_done(recipe: &Recipe, out: &Path) -> bool {
    let results = fs::read(out.join("results.json")).unwrap_or_default();
    let results: serde_json::Value = serde_json::from_slice(&results).unwrap_or_default();
    results["recipe"] == recipe_hash(recipe) && out.join("model/config.json").exists()
}

fn run_stage(recipe: &Recipe, out: &Path, dry_run: bool) -> Result<()> {
    if dry_run && recipe.data.iter().all(|source| source.about.is_some()) {
        return by_size(recipe);
    }
    let source = catalogue::find(&recipe.model)?;
    let config = load_config(&source)?;
    let renderer = Renderer::load_with(&source, recipe.chat_template.as_deref())?;
    let cache = catalogue::cache_folder()?.join("tokens");
    let mut data = Dataset::load(recipe, &renderer, config.vocab, &cache)?;
    let train = &recipe.train;
    let steps = match (train.steps, train.epochs) {
        (Some(steps), _) => steps,
        (None, epochs) => data.steps(epochs.unwrap_or(1.0), train.rows),
    };
    describe(recipe, &mut data, steps, &MemoryPlan::new(recipe, &config));
    if let Some(first) = data.preflight.stops.first() {
        bail!("{first}");
    }
    let held_out = HeldOutData::load(recipe, &renderer)?;
    if dry_run {
        return Ok(());
    }
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    let device = Device::cuda_if_available();
    let mut model = Model::load(&source, Kind::Float, device)?;
    if let Some(lora) = &recipe.lora {
        attach_lora(&mut model, lora, recipe.seed)?;
    }
    let before = held_out.evaluate(&model, device)?;
    before.print("before");
    let memory = match train.recompute {
        true => Recomputation::Blocks,
        false => Recomputation::Keep,
    };
    let mut trainer = Trainer::new(model, &recipe.optimizer, steps, memory);
    steps_of(recipe, &mut data, &mut trainer, steps, out, device)?;
    let mut model = trainer.model;
    let merged = |model: &mut Model| {
        for block in &mut model.blocks {
            block.linears_mut().into_iter().for_each(|(_, l)| l.merge());
        }
    };
    merged(&mut model);
    let after = held_out.evaluate(&model, device)?;
    after.print("after");
    let folder = out.join("model");
    replace(&folder, |building| {
        save_model(&model, building, &source)?;
        adopt(recipe, &renderer, building)
    })
    .with_context(|| folder.display().to_string())?;
    let results = serde_json::json!({
        "recipe": recipe_hash(recipe),
        "steps": steps,
        "mixture": data.mixture,
        "before": before.json(),
        "after": after.json(),
    });
    crate::model::write_json(&out.join("results.json"), &results)?;
    eprintln!("the model is in {}", folder.display());
    Ok(())
}

/// A dry run of what the recipe knows, without model, tokenizer and data.
fn by_size(recipe: &Recipe) -> Result<()> {
    let config = match &recipe.shape {
        None => load_config(&catalogue::find(&recipe.model)?)?,
        Some(shape) => {
            let bytes = crate::model::read_bounded(shape, 1 << 20)?;
            ModelConfig::parse(&bytes).with_context(|| shape.display().to_string())?
        }
    };
    eprintln!("{}", estimate(recipe, &config)?);
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

fn steps_of(
    recipe: &Recipe,
    data: &mut Dataset,
    trainer: &mut Trainer,
    steps: u64,
    out: &Path,
    device: Device,
) -> Result<()> {
    let recipe_hash = recipe_hash(recipe);
    let data_hash = data_hash(data, trainer);
    let checkpoints = Checkpoint::new(&out.join("checkpoints"), recipe.checkpoint.keep);
    let done = checkpoints.resume(&recipe_hash, &data_hash, &trainer.optimizer)?;
    if let Some(done) = done {
        eprintln!("going on after step {done}");
    }
    let done = done.unwrap_or(0);
    let mut metrics = Metrics::open(&out.join("metrics.jsonl"), done, steps)?;
    for step in done..steps {
        let rows = data.step_rows(step, recipe.train.rows);
        let parts = rows
            .chunks(recipe.train.micro_rows)
            .map(|rows| data.batch(rows, device))
            .collect::<Result<Vec<_>>>()?;
        let report = match trainer.step(step, &parts) {
            Ok(report) => report,
            Err(error) => return Err(keep_batch(error, step, &parts, data, out)),
        };
        metrics.step(&report)?;
        let every = recipe.checkpoint.every;
        if every > 0 && (step + 1) % every == 0 {
            let state = State::new(step + 1, &recipe_hash, &data_hash);
            checkpoints.save(&state, &trainer.optimizer)?;
        }
    }
    Ok(())
}

fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

fn data_hash(data: &Dataset, trainer: &Trainer) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(data.digest().as_bytes());
    for name in &trainer.optimizer.names {
        hasher.update(name.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Saves the documents of a failed step beside the run.
fn keep_batch(
    error: StepError,
    step: u64,
    parts: &[Batch],
    data: &Dataset,
    out: &Path,
) -> anyhow::Error {
    let documents: Vec<_> = parts
        .iter()
        .flat_map(|part| &part.documents)
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
            "{} conversations were too long: {} tokens lost, {} of them trained",
            lost.conversations, lost.lost, lost.lost_trained
        );
    }
    eprintln!("{steps} steps of {} rows", recipe.train.rows);
    eprintln!("{}", plan.describe());
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
