//! Data types of models.

use anyhow::Result;
use clap::ValueEnum;
use pybench_inference::Format;
use tch::{Device, Kind};

use crate::exit::usage;

/// Of a forward pass with libtorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    Float32,
    #[value(alias = "bfloat16")]
    Bf16,
    #[value(alias = "half")]
    Float16,
}

impl Dtype {
    pub fn kind(self) -> Kind {
        match self {
            Self::Float32 => Kind::Float,
            Self::Bf16 => Kind::BFloat16,
            Self::Float16 => Kind::Half,
        }
    }
}

/// Of a model that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ServedDtype {
    Float32,
    #[value(alias = "bfloat16")]
    Bf16,
    #[value(alias = "half")]
    Float16,
    Int8,
}

impl ServedDtype {
    pub(super) fn default_on(device: Device) -> Self {
        match device {
            Device::Cpu => Self::Float32,
            _ => Self::Bf16,
        }
    }

    /// The format of `pybench-inference`; `None` if libtorch serves the model.
    pub(super) fn format(self, device: Device) -> Result<Option<Format>> {
        match (device, self) {
            (Device::Cpu, Self::Float32) => Ok(Some(Format::Float32)),
            (Device::Cpu, Self::Bf16) => Ok(Some(Format::Bf16)),
            (Device::Cpu, Self::Int8) => Ok(Some(Format::Int8)),
            (_, Self::Int8) => Err(usage("--dtype int8: only on a CPU; add --device cpu")),
            _ => Ok(None),
        }
    }

    /// The type in which the weights are read.
    pub(super) fn loaded_kind(self) -> Kind {
        match self {
            Self::Float32 | Self::Int8 => Kind::Float,
            Self::Bf16 => Kind::BFloat16,
            Self::Float16 => Kind::Half,
        }
    }

    /// The type of keys and values.
    pub(super) fn cache_kind(self) -> Kind {
        match self {
            Self::Float32 => Kind::Float,
            Self::Bf16 | Self::Int8 => Kind::BFloat16,
            Self::Float16 => Kind::Half,
        }
    }

    /// Its name in vLLM.
    pub(super) fn vllm_name(self) -> Result<&'static str> {
        match self {
            Self::Float32 => Ok("float32"),
            Self::Bf16 => Ok("bfloat16"),
            Self::Float16 => Ok("float16"),
            Self::Int8 => Err(usage("--dtype int8: not with vLLM; leave --engine out")),
        }
    }
}
