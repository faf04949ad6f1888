//! Loads Hugging Face directories: `config.json` and safetensors, sharded or not. Files are mapped; tensors are copied,
//! or stay in the map.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use memmap2::{Mmap, UncheckedAdvice};
use pybench_inference::{Float, is_finite};
use pybench_training_data::{FileError, read_bounded};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;
use tch::{Device, Kind, TchError, Tensor, no_grad};
use thiserror::Error;

use crate::exit::{self, ExitCode};
use crate::torch::release_free_memory;

use super::config::{ConfigError, ModelConfig};
use super::llama::{Block, Model};
use super::nf4::ScaleFormat;

pub(super) const MAX_JSON_BYTES: u64 = 64 << 20;
const MAX_SHARDS: usize = 4096;

#[derive(Debug, Error)]
pub enum LoadError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path}: {error}")]
    Config { path: PathBuf, error: ConfigError },
    #[error("{path}: not a safetensors file, or truncated ({reason})")]
    Safetensors { path: PathBuf, reason: String },
    #[error("{path}: {reason}")]
    Index { path: PathBuf, reason: String },
    #[error("{path}: tensor {name} is missing; the weights do not belong to this config.json")]
    Missing { path: PathBuf, name: String },
    #[error("{path}: {reason}")]
    Adapter { path: PathBuf, reason: String },
    #[error("tensor {name} has shape {found:?}; according to config.json it must be {expected:?}")]
    Shape {
        name: String,
        found: Vec<usize>,
        expected: Vec<i64>,
    },
    #[error("tensor {name} has type {found}; supported are F32, F16, BF16 and U8")]
    Kind { name: String, found: String },
    #[error("tensor {name} contains NaN or infinite values: the file is broken")]
    NotFinite { name: String },
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
    #[error("starting the threads of the model: {0}")]
    Threads(#[from] std::io::Error),
}

impl LoadError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::File(error) => error.exit_code(),
            Self::Torch(error) => exit::of_tch(error),
            Self::Threads(_) => ExitCode::Environment,
            _ => ExitCode::BadInput,
        }
    }
}

/// Reads the `config.json` of a model directory.
pub fn load_config(folder: &Path) -> Result<ModelConfig, LoadError> {
    let path = folder.join("config.json");
    ModelConfig::parse(&read_bounded(&path, MAX_JSON_BYTES)?)
        .map_err(|error| LoadError::Config { path, error })
}

/// How the weights of a model are kept.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Every tensor is converted to this kind.
    pub kind: Kind,
    pub device: Device,
    /// Tensors that need no conversion stay in the map of their file: they are read when they are first used, the
    /// system can drop them again, and writing to them ends the process. For weights that are not trained.
    pub mapped: bool,
    /// The matrices of a block are quantized before the next block is read.
    pub quantize: Option<ScaleFormat>,
}

impl Model {
    /// Loads a Hugging Face directory, converting every tensor to `kind` on `device`.
    pub fn load(folder: &Path, kind: Kind, device: Device) -> Result<Self, LoadError> {
        let options = LoadOptions {
            kind,
            device,
            mapped: false,
            quantize: None,
        };
        Self::load_with(folder, &options)
    }

    /// Loads a Hugging Face directory.
    pub fn load_with(folder: &Path, options: &LoadOptions) -> Result<Self, LoadError> {
        Self::load_blocks(folder, options, |_, _| Ok(()))
    }

    /// Like [`Model::load_with`]; calls `finish(layer, block)` before the next block is read.
    pub fn load_blocks<E: From<LoadError>>(
        folder: &Path,
        options: &LoadOptions,
        mut finish: impl FnMut(usize, &mut Block) -> Result<(), E>,
    ) -> Result<Self, E> {
        let config = load_config(folder)?;
        let weights = Weights::open(folder)?;
        let packed =
            |name: &str, shape: &[i64]| options.quantize.is_some() && is_block_matrix(name, shape);
        let read = |name: &str, shape: &[i64]| match options.mapped && !packed(name, shape) {
            true => Ok(weights.mapped_tensor(name, shape, options.kind, options.device)?),
            false => Ok(weights.tensor(name, shape, options.kind, options.device)?),
        };
        Self::build_blocks(config, read, |layer, block| {
            if let Some(scales) = options.quantize {
                for (_, linear) in block.linears_mut() {
                    linear.quantize(scales);
                }
                release_free_memory();
            }
            finish(layer, block)
        })
    }
}

/// The memory-mapped tensors of a directory or of one file.
pub struct Weights {
    folder: PathBuf,
    files: Vec<(PathBuf, Arc<Mmap>)>,
    /// File index of each tensor; empty for a single file.
    index: BTreeMap<String, usize>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Weights {
    /// Opens `model.safetensors.index.json` with its shards, or `model.safetensors`.
    pub fn open(folder: &Path) -> Result<Self, LoadError> {
        let path = folder.join("model.safetensors.index.json");
        if !path.exists() {
            return Self::open_file(&folder.join("model.safetensors"));
        }
        let bad = |reason: String| LoadError::Index {
            path: path.clone(),
            reason,
        };
        let index: Index = serde_json::from_slice(&read_bounded(&path, MAX_JSON_BYTES)?)
            .map_err(|error| bad(error.to_string()))?;
        let mut names: Vec<_> = index.weight_map.values().cloned().collect();
        names.sort();
        names.dedup();
        if names.len() > MAX_SHARDS {
            return Err(bad(format!("{} shards", names.len())));
        }
        if let Some(outside) = names.iter().find(|n| n.contains(['/', '\\', '\0'])) {
            return Err(bad(format!("{outside} is outside of the folder")));
        }
        let file_index = |name: &String| names.binary_search(name).unwrap_or_default();
        let map = index.weight_map.iter();
        let index = map
            .map(|(name, file)| (name.clone(), file_index(file)))
            .collect();
        let files = names.iter().map(|name| map_file(&folder.join(name)));
        Ok(Self {
            folder: folder.into(),
            files: files.collect::<Result<_, _>>()?,
            index,
        })
    }

    pub fn open_file(path: &Path) -> Result<Self, LoadError> {
        Ok(Self {
            folder: path.into(),
            files: vec![map_file(path)?],
            index: BTreeMap::new(),
        })
    }

    /// The contents of the files, in order of their names.
    pub(crate) fn file_bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.files.iter().map(|(_, map)| &map[..])
    }

    /// Names and shapes of all tensors.
    pub fn shapes(&self) -> Result<Vec<(String, Vec<usize>)>, LoadError> {
        let mut all = vec![];
        for (path, map) in &self.files {
            let header = parse(path, map)?;
            all.extend(
                header
                    .iter()
                    .map(|(name, view)| (name.to_owned(), view.shape().into())),
            );
        }
        Ok(all)
    }

    /// The kind in which a tensor is stored.
    pub fn kind(&self, name: &str) -> Result<Kind, LoadError> {
        let (view, _) = self.view(name)?;
        float_kind(name, view.dtype())
    }

    /// Copies one tensor. Checks its shape, and that all values are finite.
    pub fn tensor(
        &self,
        name: &str,
        shape: &[i64],
        kind: Kind,
        device: Device,
    ) -> Result<Tensor, LoadError> {
        let stored = self.stored(name, shape, kind)?;
        let tensor = copy_to_tensor(stored.bytes, shape, stored.kind)?
            .to_kind(kind)
            .to_device(device);
        stored.release();
        // A large number may have no 16-bit form.
        let narrowed = kind == Kind::Half && stored.kind != kind;
        if narrowed && !bool::try_from(tensor.isfinite().all())? {
            return Err(LoadError::NotFinite { name: name.into() });
        }
        Ok(tensor)
    }

    /// Like [`Weights::tensor`], but the tensor stays in the map of the file if it needs no conversion.
    pub fn mapped_tensor(
        &self,
        name: &str,
        shape: &[i64],
        kind: Kind,
        device: Device,
    ) -> Result<Tensor, LoadError> {
        let stored = self.stored(name, shape, kind)?;
        let pointer = stored.bytes.as_ptr();
        let aligned = (pointer as usize).is_multiple_of(kind.elt_size_in_bytes());
        if stored.kind != kind || device != Device::Cpu || !aligned {
            return self.tensor(name, shape, kind, device);
        }
        // Tensors that share the bytes may outlive the model, so the map stays for the life of the process.
        keep(stored.map);
        let strides = contiguous_strides(shape);
        // SAFETY: the bytes have that shape and kind and the right alignment, and stay mapped. Nothing writes to them,
        // as the caller promises.
        let tensor = unsafe { Tensor::f_from_blob(pointer, shape, &strides, kind, device) };
        Ok(tensor?)
    }

    /// Copies the elements of a flat tensor from `start` on into `target`, which is flat, contiguous and of the same kind.
    /// Checks that the tensor has so many `elements`, and that all values are finite.
    pub fn read_range(
        &self,
        name: &str,
        elements: i64,
        start: i64,
        target: &Tensor,
    ) -> Result<(), LoadError> {
        let kind = target.kind();
        let stored = self.stored(name, &[elements], kind)?;
        let size = kind.elt_size_in_bytes();
        let (from, length) = (start as usize * size, target.numel() * size);
        let part = stored.bytes.get(from..from + length);
        let part = part.filter(|_| stored.kind == kind).ok_or_else(|| {
            let found = format!("{:?} [{elements}]", stored.kind);
            TchError::Shape(format!(
                "{name} is {found}, not {kind:?} up to element {}",
                start + target.numel() as i64
            ))
        })?;
        let shape = [length as i64];
        // SAFETY: bytes need no alignment, and stay mapped during this call, which only reads them.
        let bytes =
            unsafe { Tensor::f_from_blob(part.as_ptr(), &shape, &[1], Kind::Uint8, Device::Cpu) }?;
        no_grad(|| target.f_view_dtype(Kind::Uint8)?.f_copy_(&bytes))?;
        stored.release();
        Ok(())
    }

    /// Gives the memory of a tensor that was read back to the system, which reads it again when it is used.
    pub fn release(&self, name: &str) -> Result<(), LoadError> {
        let (view, map) = self.view(name)?;
        let (bytes, kind) = (view.data(), float_kind(name, view.dtype())?);
        Stored { bytes, kind, map }.release();
        Ok(())
    }

    /// The bytes of one tensor. Checks its shape, and that all values are finite.
    fn stored(&self, name: &str, shape: &[i64], kind: Kind) -> Result<Stored<'_>, LoadError> {
        let (view, map) = self.view(name)?;
        let expected: Vec<usize> = shape.iter().map(|&size| size as usize).collect();
        if view.shape() != expected {
            return Err(LoadError::Shape {
                name: name.into(),
                found: view.shape().into(),
                expected: shape.into(),
            });
        }
        let stored = match view.dtype() {
            Dtype::U8 if kind == Kind::Uint8 => Kind::Uint8,
            dtype => float_kind(name, dtype)?,
        };
        let bytes = view.data();
        if float(stored).is_some_and(|float| !is_finite(bytes, float)) {
            return Err(LoadError::NotFinite { name: name.into() });
        }
        Ok(Stored {
            bytes,
            kind: stored,
            map,
        })
    }

    fn view(&self, name: &str) -> Result<(TensorView<'_>, &Arc<Mmap>), LoadError> {
        let file = self.index.get(name).copied().unwrap_or(0);
        let missing = || LoadError::Missing {
            path: self.folder.clone(),
            name: name.into(),
        };
        let (path, map) = self.files.get(file).ok_or_else(missing)?;
        let view = parse(path, map)?.tensor(name).map_err(|_| missing())?;
        Ok((view, map))
    }
}

fn float_kind(name: &str, dtype: Dtype) -> Result<Kind, LoadError> {
    match dtype {
        Dtype::F32 => Ok(Kind::Float),
        Dtype::F16 => Ok(Kind::Half),
        Dtype::BF16 => Ok(Kind::BFloat16),
        other => Err(LoadError::Kind {
            name: name.into(),
            found: format!("{other:?}"),
        }),
    }
}

/// How numbers of a kind are stored, if they are floating-point numbers.
fn float(kind: Kind) -> Option<Float> {
    match kind {
        Kind::Float => Some(Float::F32),
        Kind::BFloat16 => Some(Float::Bf16),
        Kind::Half => Some(Float::F16),
        _ => None,
    }
}

/// Maps of tensors that were not copied.
static KEPT: Mutex<Vec<Arc<Mmap>>> = Mutex::new(vec![]);

/// Keeps a map for the life of the process.
fn keep(map: &Arc<Mmap>) {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if !kept.iter().any(|one| Arc::ptr_eq(one, map)) {
        kept.push(map.clone());
    }
}

/// Gives the memory of all tensors that stay in the map of their file back to the system, which reads them again when they are used.
pub fn release_mapped_weights() {
    for map in &*KEPT.lock().unwrap_or_else(PoisonError::into_inner) {
        drop_pages(map, 0, map.len());
    }
}

/// Gives the memory of a part of a file back to the system.
fn drop_pages(map: &Mmap, offset: usize, length: usize) {
    // SAFETY: the map is a read-only one of a file, so the pages are read again when they are used. If the advice is not
    // taken, they stay.
    let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, length) };
}

/// A tensor in a file.
struct Stored<'a> {
    bytes: &'a [u8],
    kind: Kind,
    map: &'a Arc<Mmap>,
}

impl Stored<'_> {
    /// Gives the pages of the map back, which count as memory of this process.
    fn release(&self) {
        let offset = self.bytes.as_ptr() as usize - self.map.as_ptr() as usize;
        drop_pages(self.map, offset, self.bytes.len());
    }
}

/// Whether a parameter is a matrix of a block, which LoRA can adapt and NF4 quantizes.
pub(super) fn is_block_matrix(name: &str, shape: &[i64]) -> bool {
    name.starts_with("model.layers.") && shape.len() == 2
}

fn contiguous_strides(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

fn map_file(path: &Path) -> Result<(PathBuf, Arc<Mmap>), LoadError> {
    let io = |error| {
        let path = path.into();
        LoadError::from(FileError { path, error })
    };
    let file = File::open(path).map_err(io)?;
    // SAFETY: the map is read-only. A file that is truncated while it is mapped ends the process.
    let map = unsafe { Mmap::map(&file) }.map_err(io)?;
    parse(path, &map)?;
    Ok((path.into(), Arc::new(map)))
}

fn parse<'a>(path: &Path, map: &'a Mmap) -> Result<SafeTensors<'a>, LoadError> {
    SafeTensors::deserialize(map).map_err(|error| LoadError::Safetensors {
        path: path.into(),
        reason: error.to_string(),
    })
}

/// Copies little-endian bytes into a tensor of exactly that shape and kind.
fn copy_to_tensor(bytes: &[u8], shape: &[i64], kind: Kind) -> Result<Tensor, TchError> {
    let elements: i64 = shape.iter().product();
    if bytes.len() as i64 != elements * kind.elt_size_in_bytes() as i64 {
        return Err(TchError::Shape(format!(
            "{} bytes for {shape:?}",
            bytes.len()
        )));
    }
    Tensor::f_from_data_size(bytes, shape, kind)
}
