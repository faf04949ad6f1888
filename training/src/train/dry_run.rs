//! Describes a run for this machine or for another one, without starting it.

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use tch::Device;

use super::flops::measured_peak;
use super::plan::{Limits, PlanTarget, RunPlan, Speed, Workload};
use super::recipe::Recipe;
use crate::catalog;
use crate::exit::{bad_input, environment};
use crate::model::{ModelConfig, load_config};

const GB: f64 = 1e9;
const TFLOP: f64 = 1e12;

/// What a dry run plans for, if it is not this machine.
#[derive(Clone, Debug, Args)]
pub struct PlanOptions {
    /// Plan for this kind of device [default: a GPU if the recipe names a model_config, otherwise that of this machine]
    #[arg(long, value_enum, requires = "dry_run")]
    device: Option<PlanDevice>,
    /// Plan for that many GPUs in one machine
    #[arg(long, value_name = "COUNT", requires = "dry_run", value_parser = clap::value_parser!(u16).range(1..))]
    gpus: Option<u16>,
    /// Memory of a GPU in GB; the dry run fails if the plan exceeds it
    #[arg(long, value_name = "GB", requires = "dry_run")]
    gpu_memory: Option<f64>,
    /// Main memory in GB; the dry run fails if the plan exceeds it [default with --device cpu: what is free here]
    #[arg(long, value_name = "GB", requires = "dry_run")]
    host_memory: Option<f64>,
    /// Peak speed of a GPU in TFLOP/s; the default is that of an A100 in bf16
    #[arg(
        long,
        value_name = "TFLOPS",
        default_value_t = 312.0,
        requires = "dry_run"
    )]
    gpu_tflops: f64,
    /// Model FLOPs utilization: the part of the peak speed that is assumed to be reached
    #[arg(
        long,
        value_name = "FRACTION",
        default_value_t = 0.4,
        requires = "dry_run"
    )]
    mfu: f64,
}

/// A kind of device to plan for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlanDevice {
    Cpu,
    Cuda,
}

impl PlanOptions {
    /// What to plan for, where `default` is not overridden.
    pub(super) fn target(&self, default: PlanTarget) -> PlanTarget {
        let named_gpu = self.gpus.is_some() || self.gpu_memory.is_some();
        let gpus = || self.gpus.map_or(default.processes, usize::from);
        match self.device {
            Some(PlanDevice::Cpu) => PlanTarget::cpu(default.processes),
            Some(PlanDevice::Cuda) => PlanTarget::gpus(gpus()),
            None if named_gpu => PlanTarget::gpus(gpus()),
            None => default,
        }
    }

    /// The limits that are named, otherwise those of this machine if the plan is for it.
    fn limits(&self, target: &PlanTarget) -> Limits {
        let bytes = |gb: f64| (gb * GB) as u64;
        let known = Limits::of(target);
        Limits {
            host: self.host_memory.map(bytes).or(known.host),
            device: self.gpu_memory.map(bytes).or(known.device),
        }
    }

    fn speed(&self, recipe: &Recipe, target: &PlanTarget) -> Speed {
        let (peak, source) = match target.device {
            Device::Cuda(_) => (self.gpu_tflops * TFLOP, "per GPU"),
            device => (
                measured_peak(recipe.train.dtype.kind(), device),
                "measured here",
            ),
        };
        // Processes without a GPU share the processors.
        let sharing = if target.is_gpu() { 1 } else { target.processes };
        Speed {
            peak: peak / sharing as f64,
            source,
            mfu: self.mfu,
        }
    }

    /// Prints memory, disk space and time of a run.
    ///
    /// # Errors
    /// The run does not fit, or the recipe does not allow so many processes.
    pub(super) fn describe(
        &self,
        recipe: &Recipe,
        config: &ModelConfig,
        workload: &Workload,
        default: PlanTarget,
    ) -> Result<()> {
        let target = self.target(default);
        if let Some(conflict) = recipe.conflict(target.processes) {
            return Err(bad_input(conflict));
        }
        let speed = self.speed(recipe, &target);
        eprintln!(
            "{}",
            workload.describe_time(recipe, config, &target, &speed)
        );
        let plan = RunPlan::new(recipe, config, &target);
        eprintln!("{}", plan.describe());
        match plan.refusal(recipe, config, self.limits(&target)) {
            Some(reason) => Err(environment(reason)),
            None => Ok(()),
        }
    }
}

/// Whether a dry run of this recipe reads neither model nor data.
pub(super) fn is_offline(recipe: &Recipe) -> bool {
    recipe.model_config.is_some() || recipe.data.iter().all(|source| source.size_hint.is_some())
}

/// A dry run without tokenizer and data.
pub(super) fn plan_offline(recipe: &Recipe, options: &PlanOptions, processes: usize) -> Result<()> {
    let config = match &recipe.model_config {
        None => load_config(&catalog::find_files(&recipe.model)?.weights)?,
        Some(path) => {
            let path = catalog::local_file(path)?;
            let bytes = pybench_training_data::read_bounded(&path, 1 << 20)?;
            ModelConfig::parse(&bytes).with_context(|| path.display().to_string())?
        }
    };
    let workload = Workload::of_recipe(recipe);
    eprintln!("{}", workload.describe_data(recipe));
    // A model that is not downloaded for a dry run is assumed to be trained on a GPU.
    options.describe(recipe, &config, &workload, PlanTarget::gpus(processes))
}
