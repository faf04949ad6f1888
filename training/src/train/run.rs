//! A complete run, from recipe to model directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pybench_training_data::{Bins, Renderer};

use super::adapter::{self, merge};
use super::checkpoint::{Checkpoint, CheckpointError, CheckpointState};
use super::dataset::Dataset;
use super::dry_run::{self, PlanOptions};
use super::folder::replace_folder;
use super::held_out::{HeldOutCurve, HeldOutData, HeldOutLoss};
use super::lora::NewLora;
use super::loss_spike::LossSpikeDetector;
use super::machine;
use super::metrics::Metrics;
use super::mixture::{SourceShare, mixture_table};
use super::phase_meter::PhaseMeter;
use super::plan::{Limits, Phase, PhasePlan, PlanTarget, RunPlan, Workload, gib};
use super::process_group::ProcessGroup;
use super::recipe::{LoraConfig, Recipe};
use super::recipe_stages::RecipeStage;
use super::reference::{self, ReferenceFile};
use super::run_lock::RunLock;
use super::shard::ShardBuilder;
use super::spawn::{has_rank, spawn_processes};
use super::step_error::StepError;
use super::trainer::{TrainedModel, Trainer};
use super::{agent_eval, flops, report};
use crate::catalog::{self, ModelFiles};
use crate::exit::{bad_input, environment, interrupted};
use crate::interrupt::{self, Deferral};
use crate::model::{LoadOptions, Model, SaveError, load_config, release_mapped_weights};
use crate::torch::release_free_memory;

/// Options of the command line.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Run folder. Default: `data/runs/<name>`.
    pub out: Option<PathBuf>,
    /// Only describe the run.
    pub dry_run: bool,
    /// Number of processes to start on this machine, unless torchrun or Slurm has started them.
    pub processes: usize,
    /// What a dry run plans for.
    pub plan: PlanOptions,
}

/// Checks the keys and values of a recipe for so many processes. Model and data are not read.
pub fn check(recipe_path: &Path, processes: usize) -> Result<()> {
    let stages = RecipeStage::load(recipe_path)?;
    let mut conflicts = stages
        .iter()
        .filter_map(|stage| stage.recipe.conflict(processes));
    match conflicts.next() {
        Some(conflict) => Err(bad_input(conflict)),
        None => Ok(()),
    }
}

/// Runs the stages of a recipe, alone or as one of several processes. An interrupted run resumes from its last
/// checkpoint.
pub fn run(recipe_path: &Path, options: &RunOptions) -> Result<()> {
    if options.processes > 1 && !options.dry_run && !has_rank() {
        return spawn_processes(options.processes);
    }
    let group = ProcessGroup::from_env()?;
    let mut previous_model: Option<PathBuf> = None;
    let (mut start_model, mut last_stage) = (None, None);
    for RecipeStage { name, mut recipe } in RecipeStage::load(recipe_path)? {
        let default = || PathBuf::from("data/runs").join(&recipe.name);
        let mut out = options.out.clone().unwrap_or_else(default);
        if let Some(name) = &name {
            out.push(name);
            if group.is_main() {
                eprintln!("stage {name}");
            }
        }
        if let Some(model) = previous_model.filter(|_| !options.dry_run) {
            recipe.model = model.display().to_string();
        }
        start_model.get_or_insert_with(|| recipe.model.clone());
        let folder = result_folder(&recipe, &out);
        match name.is_some() && is_done(&recipe, &out) {
            true => eprintln!("already done: {}", folder.display()),
            false => run_stage(&recipe, &out, options, &group)?,
        }
        if group.is_main() && !options.dry_run {
            // `pybench publish` describes the model with it.
            let kept = out.join("recipe.toml");
            let text = fs::read(recipe_path).with_context(|| recipe_path.display().to_string())?;
            fs::write(&kept, text).with_context(|| kept.display().to_string())?;
        }
        // No process may check for the results of a stage before all have finished it.
        group.barrier()?;
        previous_model = Some(folder);
        last_stage = Some((recipe, out));
    }
    match (start_model, last_stage) {
        (Some(start), Some((recipe, out))) if group.is_main() && !options.dry_run => {
            evaluate_agent(&recipe, &start, &out)
        }
        _ => Ok(()),
    }
}

/// Evaluates the trained model as an agent, if the recipe says so. The other processes have ended.
fn evaluate_agent(recipe: &Recipe, start: &str, out: &Path) -> Result<()> {
    let Some(config) = &recipe.agent_eval else {
        return Ok(());
    };
    let started = catalog::find_folder(start)?;
    let trained = result_folder(recipe, out);
    let pass_rates = agent_eval::evaluate(config, &started, &trained, out)?;
    eprintln!("share of tasks that the agent passed: {pass_rates}");
    let path = out.join("results.json");
    let mut results: serde_json::Value =
        serde_json::from_slice(&pybench_training_data::read_bounded(&path, 64 << 20)?)?;
    results["agent_eval"] = pass_rates;
    crate::model::write_json(&path, &results)?;
    Ok(report::write(out, &recipe.name, &results)?)
}

/// The folder with what a stage has trained: a model, or an adapter that is not merged.
fn result_folder(recipe: &Recipe, out: &Path) -> PathBuf {
    match recipe.lora.is_some() && !recipe.train.merge {
        true => out.join("adapter"),
        false => out.join("model"),
    }
}

/// Whether a stage was completed with this recipe.
fn is_done(recipe: &Recipe, out: &Path) -> bool {
    let folder = result_folder(recipe, out);
    let saved = ["config.json", "adapter_config.json"].map(|name| folder.join(name).exists());
    is_trained(recipe, out) && saved.contains(&true)
}

/// Whether the results of a stage with this recipe exist.
fn is_trained(recipe: &Recipe, out: &Path) -> bool {
    let results = fs::read(out.join("results.json")).unwrap_or_default();
    let results: serde_json::Value = serde_json::from_slice(&results).unwrap_or_default();
    results["recipe"] == recipe.identity()
}

fn run_stage(
    recipe: &Recipe,
    out: &Path,
    options: &RunOptions,
    group: &ProcessGroup,
) -> Result<()> {
    let dry_run = options.dry_run;
    let processes = group.world_size().max(options.processes);
    if dry_run && dry_run::is_offline(recipe) {
        return dry_run::plan_offline(recipe, &options.plan, processes);
    }
    if let Some(conflict) = recipe.conflict(processes).filter(|_| !dry_run) {
        return Err(bad_input(conflict));
    }
    let mut meter = PhaseMeter::start(Phase::Pack, group.device());
    let files = group.main_first(|| catalog::find_files(&recipe.model))?;
    let config = load_config(&files.weights)?;
    if let Some(adapter) = &files.adapter {
        adapter::check_continued(recipe, adapter, &config)?;
    }
    let template = group.main_first(|| {
        let named = recipe.chat_template.as_deref();
        named.map(catalog::chat_template).transpose()
    })?;
    let renderer = Renderer::load_with(&files.folder, template.as_deref())?;
    let cache = catalog::cache_folder()?.join("tokens");
    let mut data = group.main_first(|| Dataset::load(recipe, &renderer, config.vocab, &cache))?;
    let train = &recipe.train;
    let steps = match (train.max_steps, train.num_epochs) {
        (Some(steps), _) => steps,
        (None, epochs) => data.steps(epochs.unwrap_or(1.0), train.batch_size),
    };
    let target = PlanTarget::here(group.device(), processes);
    let document = describe(recipe, &mut data, steps, group);
    if let Some(error) = data.preflight.errors.first() {
        return Err(bad_input(error.clone()));
    }
    let held_out =
        group.main_first(|| HeldOutData::load(recipe, &renderer, config.vocab, &cache))?;
    if dry_run {
        let held_out_pairs = held_out.pairs.as_ref().map_or(0, |pairs| pairs.count);
        let pairs = data.pair_count() + held_out_pairs;
        let workload = Workload::counted(recipe, steps, document, pairs);
        return options.plan.describe(recipe, &config, &workload, target);
    }
    let plan = RunPlan::new(recipe, &config, &target);
    if group.is_main() {
        eprintln!("{}", plan.describe());
    }
    let only_merge = is_trained(recipe, out) && adapter::awaits_merge(recipe, out);
    // No process may look for the merged model while the main one writes it.
    group.barrier()?;
    if only_merge {
        return match group.is_main() {
            true => RunLock::acquire(out).and_then(|_lock| merge_in(out)),
            false => Ok(()),
        };
    }
    let refusal = plan.refusal(recipe, &config, Limits::of(&target));
    refuse(refusal.or_else(|| plan.disk_refusal(out)), group)?;
    fs::create_dir_all(out).with_context(|| out.display().to_string())?;
    // The other processes wait for the main one before they read checkpoints.
    let _lock = group.is_main().then(|| RunLock::acquire(out)).transpose()?;
    meter.begin(Phase::Load);
    let trainer = prepare_trainer(recipe, &files, steps, group)?;
    let mut run = TrainingRun {
        recipe,
        files: &files,
        renderer: &renderer,
        out,
        group,
        held_out,
        steps,
        plan,
    };
    if recipe.dpo.is_some() {
        meter.begin(Phase::Reference);
        run.add_reference(&mut data, &trainer.model)?;
    }
    run.finish(&mut data, trainer, &mut meter)
}

/// Ends all processes if a run does not fit one of their machines.
fn refuse(reason: Option<String>, group: &ProcessGroup) -> Result<()> {
    let refused = group.any(reason.is_some())?;
    match reason {
        Some(reason) => Err(environment(reason)),
        None if refused => Err(environment(
            "the run does not fit the machine of another process; see its message",
        )),
        None => Ok(()),
    }
}

/// Merges the adapter of a run.
fn merge_in(out: &Path) -> Result<()> {
    let folder = out.join("model");
    merge(&out.join("adapter"), &folder)?;
    eprintln!("the trained model is in {}", folder.display());
    Ok(())
}

/// Saves the recipe's chat template with the model, and adds the template's ends of turn to `eos_token_id`.
fn install_chat_template(
    recipe: &Recipe,
    renderer: &Renderer,
    folder: &Path,
) -> std::io::Result<()> {
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
        .chain(renderer.ends_of_turn())
        .collect();
    kept.insert("eos_token_id".into(), ends.into());
    crate::model::write_json(&path, &kept.into())
}

fn prepare_trainer(
    recipe: &Recipe,
    files: &ModelFiles,
    steps: u64,
    group: &ProcessGroup,
) -> Result<Trainer> {
    let lora = recipe.lora.as_ref();
    let options = LoadOptions {
        kind: recipe.train.dtype.kind(),
        device: group.device(),
        // With several processes every parameter is copied into its shard.
        mapped: lora.is_some() && group.communicator.is_none(),
        quantize: lora.and_then(|lora| Some(lora.quantization?.scales())),
    };
    // An adapter goes on from its own matrices.
    let new = lora.filter(|_| files.adapter.is_none());
    let mut new = new.map(|lora| NewLora::new(lora, recipe.seed));
    let communicator = group.communicator.clone();
    let mut shards = communicator.map(|group| ShardBuilder::new(group, lora.is_some()));
    let mut model = Model::load_blocks(&files.weights, &options, |layer, block| -> Result<()> {
        if let Some(adapter) = &files.adapter {
            adapter.attach_to_block(block, layer)?;
        }
        if let Some(new) = &mut new {
            new.attach(block);
        }
        if let Some(shards) = &mut shards {
            shards.block(layer, block)?;
        }
        Ok(())
    })?;
    new.map_or(Ok(()), NewLora::finish)?;
    let trainer = match (shards, group.communicator.clone()) {
        (Some(shards), Some(communicator)) => {
            let shards = shards.finish(&mut model)?;
            release_free_memory();
            Trainer::sharded(model, shards, communicator, recipe, steps)?
        }
        _ => {
            release_free_memory();
            Trainer::new(model, recipe, steps)?
        }
    };
    Ok(trainer)
}

/// A run whose inputs have been checked.
struct TrainingRun<'a> {
    recipe: &'a Recipe,
    files: &'a ModelFiles,
    renderer: &'a Renderer,
    out: &'a Path,
    group: &'a ProcessGroup,
    held_out: HeldOutData,
    steps: u64,
    plan: RunPlan,
}

impl TrainingRun<'_> {
    /// Adds the log-probabilities of the reference model, which has not been trained yet, to all pairs.
    fn add_reference(&mut self, data: &mut Dataset, model: &Model) -> Result<()> {
        let (out, group) = (self.out, self.group);
        let model_key = reference::model_key(self.recipe, self.files)?;
        let add = |name: &str, data: &mut Dataset, count: usize| -> Result<()> {
            let file = ReferenceFile {
                path: &out.join(name),
                key: &format!("{model_key} {}", data.digest()),
            };
            data.reference = file.load_or_compute(model, data, count, group)?;
            Ok(())
        };
        let count = data.pair_count();
        add("ref_logps.safetensors", data, count)?;
        match &mut self.held_out.pairs {
            None => Ok(()),
            Some(pairs) => add(
                "ref_logps_held_out.safetensors",
                &mut pairs.data,
                pairs.count,
            ),
        }
    }

    fn finish(
        &self,
        data: &mut Dataset,
        mut trainer: Trainer,
        meter: &mut PhaseMeter,
    ) -> Result<()> {
        meter.begin(Phase::Evaluate);
        let before = self.evaluate(&trainer.model, "before")?;
        meter.begin(Phase::Train);
        trainer.model.set_lora_dropout(self.lora_dropout());
        let mut curve = self.train(data, &mut trainer, &before, meter)?;
        trainer.model.set_lora_dropout(0.0);
        let trained = trainer.into_model();
        meter.begin(Phase::Evaluate);
        let after = self.evaluate(&trained.model, "after")?;
        if let Some(curve) = &mut curve {
            curve.push(self.steps, &after)?;
        }
        meter.begin(Phase::Save);
        match &self.recipe.lora {
            Some(lora) => self.save_adapter(trained, lora)?,
            None => self.save_model(trained)?,
        }
        if self.group.is_main() {
            let mut results = serde_json::json!({
                "recipe": self.recipe.identity(),
                "model": self.recipe.model,
                "license": catalog::license(&self.recipe.model),
                "mixture": data.mixture,
                "steps": self.steps,
                "before": before.json(),
                "after": after.json(),
            });
            self.write_results(&mut results, meter)?;
            if self.recipe.lora.is_some() && self.recipe.train.merge {
                // The weights are not used any more, but their pages still count as this process's memory.
                release_mapped_weights();
                meter.begin(Phase::Merge);
                merge_in(self.out)?;
                self.write_results(&mut results, meter)?;
            }
            self.print_memory(meter);
        }
        self.group.barrier()
    }

    /// Writes the results and the report, with the memory that was measured so far.
    fn write_results(&self, results: &mut serde_json::Value, meter: &mut PhaseMeter) -> Result<()> {
        results["memory"] = meter.json(&self.plan);
        crate::model::write_json(&self.out.join("results.json"), results)?;
        Ok(report::write(self.out, &self.recipe.name, results)?)
    }

    fn print_memory(&self, meter: &mut PhaseMeter) {
        let gpu = self.plan.is_gpu();
        let (host, device) = self.plan.peak();
        let planned = if gpu { device } else { host };
        if let Some(measured) = meter.highest(gpu) {
            eprintln!(
                "memory: peak {:.2} GiB, {:.0} % of the prediction",
                gib(measured),
                100.0 * measured as f64 / planned as f64
            );
        }
    }

    fn save_model(&self, trained: TrainedModel) -> Result<()> {
        if !self.group.is_main() {
            return Ok(trained.assist_save()?);
        }
        let folder = self.out.join("model");
        replace_folder(&folder, |building| -> Result<(), SaveError> {
            trained.save(building, &self.files.folder)?;
            Ok(install_chat_template(self.recipe, self.renderer, building)?)
        })
        .with_context(|| folder.display().to_string())?;
        eprintln!("the trained model is in {}", folder.display());
        Ok(())
    }

    fn save_adapter(&self, trained: TrainedModel, lora: &LoraConfig) -> Result<()> {
        let matrices = trained.adapters()?;
        if !self.group.is_main() {
            return Ok(());
        }
        let folder = adapter::save(
            self.recipe,
            lora,
            &matrices,
            self.files,
            self.out,
            |building| install_chat_template(self.recipe, self.renderer, building),
        )?;
        eprintln!("the trained adapter is in {}", folder.display());
        Ok(())
    }

    /// Every process evaluates all conversations, because all must gather parameters together.
    fn evaluate(&self, model: &Model, when: &str) -> Result<HeldOutLoss> {
        let measured = self.held_out.evaluate(model, self.group.device())?;
        if self.group.is_main() {
            measured.print(when);
        }
        Ok(measured)
    }

    fn lora_dropout(&self) -> f64 {
        self.recipe.lora.as_ref().map_or(0.0, |lora| lora.dropout)
    }

    /// Adds a point to the curve of the held-out loss, if one is due after `step` steps.
    fn measure(
        &self,
        trainer: &mut Trainer,
        step: u64,
        curve: &mut Option<HeldOutCurve>,
        meter: &mut PhaseMeter,
    ) -> Result<()> {
        let config = self.recipe.held_out.as_ref();
        if !config.is_some_and(|config| config.is_due(step, self.steps)) {
            return Ok(());
        }
        trainer.model.set_lora_dropout(0.0);
        let when = format!("after step {step}");
        let loss = meter.during(Phase::Evaluate, || self.evaluate(&trainer.model, &when))?;
        trainer.model.set_lora_dropout(self.lora_dropout());
        match curve {
            Some(curve) => curve.push(step, &loss),
            None => Ok(()),
        }
    }

    /// Gives freed memory back once this process holds a tenth more than a step was planned to need. Rows differ in
    /// length, so what one step frees is not always a place for the tensors of the next, and the heap grows from step
    /// to step. New pages cost time; a tenth leaves most steps without.
    fn keep_to_plan(&self) {
        let mut phases = self.plan.phases.iter();
        let planned = phases.find(|plan| plan.phase == Phase::Train && !self.plan.is_gpu());
        let exceeds =
            |plan: &PhasePlan| machine::resident().is_some_and(|now| now > plan.host / 10 * 11);
        if planned.is_some_and(exceeds) {
            release_free_memory();
        }
    }

    /// Returns the curve of the held-out loss in the main process.
    fn train(
        &self,
        data: &mut Dataset,
        trainer: &mut Trainer,
        before: &HeldOutLoss,
        meter: &mut PhaseMeter,
    ) -> Result<Option<HeldOutCurve>> {
        let (recipe, group) = (self.recipe, self.group);
        let identity = recipe.identity();
        let data_hash = data_hash(data, trainer);
        let folder = self.out.join("checkpoints");
        let mut checkpoints = Checkpoint::new(
            &folder,
            recipe.checkpoint.save_total_limit,
            (group.rank(), group.world_size()),
        );
        if group.is_main() {
            checkpoints.remove_incomplete()?;
        }
        group.barrier()?;
        let found = checkpoints.resume(&identity, &data_hash, &mut trainer.optimizer)?;
        let done = found.as_ref().map_or(0, |state| state.step);
        if let Some(state) = found {
            trainer.loss_spikes = LossSpikeDetector::from_bits(&state.losses);
            if group.is_main() {
                eprintln!("resuming after step {done}");
            }
        }
        let mut metrics = match group.is_main() {
            true => Some(Metrics::open(
                self.out,
                done,
                self.steps,
                self.peak(trainer),
            )?),
            false => None,
        };
        let draws = group.is_main() && recipe.held_out.is_some();
        let curve = draws.then(|| HeldOutCurve::open(self.out, before, done));
        let mut curve = curve.transpose()?;
        let save_steps = recipe.checkpoint.save_steps;
        let state = |step: u64, trainer: &Trainer| {
            let losses = trainer.loss_spikes.to_bits();
            CheckpointState::new(step, &identity, &data_hash, losses)
        };
        // The first signal ends the run after the current step, the second at once.
        let _deferral = Deferral::of(1);
        for step in done..self.steps {
            if group.any(interrupt::received() > 0)? {
                let saved = save_steps > 0 && step > done;
                if saved && !step.is_multiple_of(save_steps) {
                    self.save_checkpoint(&mut checkpoints, trainer, state(step, trainer), meter)?;
                }
                checkpoints.finish()?;
                return Err(interrupted(match save_steps {
                    0 => format!(
                        "interrupted after step {step} of {}; no checkpoint was saved, because checkpoint.save_steps = 0",
                        self.steps
                    ),
                    _ => format!(
                        "interrupted after step {step} of {}; run the same command again to continue",
                        self.steps
                    ),
                }));
            }
            let rows = data.step_rows(step, recipe.train.batch_size);
            let micro_batches = group.micro_batches(data, &rows, recipe.train.micro_batch_size)?;
            let report = match trainer.step(step, &micro_batches) {
                Ok(report) => report,
                Err(error) if error.is_divergence() && group.is_main() => {
                    return Err(save_bad_batch(error, step, &rows, data, self.out));
                }
                Err(error) => return Err(error.into()),
            };
            self.keep_to_plan();
            checkpoints.poll()?;
            if let Some(metrics) = &mut metrics {
                metrics.step(&report)?;
            }
            self.measure(trainer, step + 1, &mut curve, meter)?;
            if save_steps > 0 && (step + 1) % save_steps == 0 {
                let state = state(step + 1, trainer);
                self.save_checkpoint(&mut checkpoints, trainer, state, meter)?;
            }
        }
        checkpoints.finish()?;
        Ok(curve)
    }

    fn save_checkpoint(
        &self,
        checkpoints: &mut Checkpoint,
        trainer: &Trainer,
        state: CheckpointState,
        meter: &mut PhaseMeter,
    ) -> Result<(), CheckpointError> {
        let optimizer = &trainer.optimizer;
        if self.recipe.streams_checkpoints() {
            return meter.during(Phase::Checkpoint, || {
                checkpoints.save_streaming(&state, optimizer)
            });
        }
        // From here on a checkpoint may be written during any step.
        meter.begin(Phase::Checkpoint);
        checkpoints.save(state, optimizer)
    }

    /// Peak operations per second of the devices of all processes.
    fn peak(&self, trainer: &Trainer) -> f64 {
        let kind = trainer.model.embed.kind();
        flops::measured_peak(kind, self.group.device()) * self.group.world_size() as f64
    }
}

fn data_hash(data: &Dataset, trainer: &Trainer) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(data.digest().as_bytes());
    // All processes must get the same hash, so it covers the names of all trained parameters.
    let lora = trainer.model.parameters().into_iter().map(|(name, _)| name);
    for name in lora.filter(|name| name.contains(".lora_")) {
        hasher.update(name.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Saves the documents of a failed step in the run folder.
fn save_bad_batch(
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
            serde_json::json!({"location": document.location, "ids": document.ids, "weights": document.weights})
        })
        .collect();
    let path = out.join(format!("bad-batch-{step}.json"));
    match crate::model::write_json(&path, &documents.into()) {
        Ok(()) => {
            anyhow::Error::new(error).context(format!("the batch is saved in {}", path.display()))
        }
        Err(_) => error.into(),
    }
}

/// Prints the data of a run in the main process. Returns the mean length of a document in tokens.
fn describe(recipe: &Recipe, data: &mut Dataset, steps: u64, group: &ProcessGroup) -> f64 {
    let rows = data.rows(0);
    let documents: usize = rows.iter().map(Vec::len).sum();
    let rows = rows.len();
    let pairs = data.pair_count();
    let per_epoch = |tokens: fn(&SourceShare) -> usize| -> f64 {
        let shares = data.mixture.iter();
        shares
            .map(|share| share.weight * tokens(share) as f64)
            .sum()
    };
    let (tokens, trained) = (
        per_epoch(|share| share.tokens),
        per_epoch(|share| share.trained),
    );
    let mean = tokens / documents.max(1) as f64;
    if !group.is_main() {
        return mean;
    }
    if pairs > 0 {
        eprintln!(
            "{}\nper epoch: {rows} pairs, {tokens:.0} tokens, {trained:.0} of them in replies",
            mixture_table(&data.mixture)
        );
        return described_steps(recipe, data, steps, mean);
    }
    eprintln!(
        "{}\nper epoch: {documents} documents, {tokens:.0} tokens, {trained:.0} of them trained, in {rows} rows of {} ({:.1} % full)",
        mixture_table(&data.mixture),
        recipe.train.max_seq_len,
        100.0 * tokens / (rows.max(1) * recipe.train.max_seq_len) as f64
    );
    let lost = data.stats.overflow;
    if lost.conversations > 0 {
        eprintln!(
            "{} conversations are longer than train.max_seq_len: {} tokens lost, {} of them trained; {} tokens repeated as context",
            lost.conversations, lost.lost, lost.lost_trained, lost.repeated
        );
    }
    described_steps(recipe, data, steps, mean)
}

/// Prints the steps of a run and what the preflight checks have found. Returns `mean`.
fn described_steps(recipe: &Recipe, data: &Dataset, steps: u64, mean: f64) -> f64 {
    let rows = match recipe.dpo {
        Some(_) => "pairs",
        None => "rows",
    };
    eprintln!("{steps} steps of {} {rows}", recipe.train.batch_size);
    for note in &data.preflight.notes {
        eprintln!("note: {note}");
    }
    for error in &data.preflight.errors {
        eprintln!("preflight: {error}");
    }
    mean
}
