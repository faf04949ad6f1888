//! Sharding of parameters, gradients and optimizer state over processes (ZeRO-3): each process stores its part of
//! every block, and a whole block only while it is computed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tch::{Kind, TchError, Tensor, no_grad};

use super::optimizer::ParamSlice;
use crate::model::{Block, Model, ParamSharding, ShardUnit};
use crate::torch::{Communicator, allocate, clear_gradient, release};

/// Alignment of parameters in elements, so that the blocks of 8-bit optimizer state are the same for any number of
/// processes.
const ALIGN: i64 = 256;

/// Units whose gradients are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    All,
    Unit(ShardUnit),
}

impl Scope {
    fn has(self, unit: ShardUnit) -> bool {
        self == Self::All || self == Self::Unit(unit)
    }
}

/// The trained parameters.
#[derive(Debug)]
pub enum Parameters {
    Whole(Vec<(String, Tensor)>),
    Sharded(Arc<Shards>),
}

impl Parameters {
    /// The slices that this process updates.
    pub fn slices(&self) -> Vec<ParamSlice> {
        match self {
            Self::Whole(all) => all.iter().map(whole_slice).collect(),
            Self::Sharded(shards) => shards.slices(),
        }
    }

    /// Flat gradients of the slices; `None` for those that have none, or that are not of the units in `scope`.
    pub fn gradients(&self, scope: Scope) -> Vec<Option<Tensor>> {
        match self {
            Self::Whole(all) => {
                let flat = |g: Tensor| g.defined().then(|| no_grad(|| g.reshape([-1])));
                all.iter()
                    .map(|(name, parameter)| match scope.has(unit_of(name)) {
                        true => flat(parameter.grad()),
                        false => None,
                    })
                    .collect()
            }
            Self::Sharded(shards) => shards.gradients(scope),
        }
    }

    /// Frees the gradients of the units in `scope`.
    pub fn clear_gradients(&self, scope: Scope) -> Result<(), TchError> {
        match self {
            Self::Whole(all) => all
                .iter()
                .filter(|(name, _)| scope.has(unit_of(name)))
                .try_for_each(|(_, parameter)| clear_gradient(parameter)),
            Self::Sharded(shards) => {
                shards.flats(|unit, flat| {
                    if scope.has(unit) {
                        flat.gradient = None;
                        flat.rows.clear();
                    }
                });
                Ok(())
            }
        }
    }
}

fn whole_slice((name, parameter): &(String, Tensor)) -> ParamSlice {
    ParamSlice {
        name: name.clone(),
        offset: 0,
        is_matrix: parameter.dim() > 1,
        weight: parameter.detach().view([-1]),
    }
}

/// The sharded parameters of a model.
#[derive(Debug)]
pub struct Shards {
    communicator: Arc<Communicator>,
    /// In an order that does not depend on the process.
    units: BTreeMap<ShardUnit, Mutex<Unit>>,
}

#[derive(Debug)]
struct Unit {
    gathered: bool,
    flats: Vec<Flat>,
}

/// Consecutive parameters in one tensor, of which each process stores an equal part.
#[derive(Debug)]
struct Flat {
    trained: bool,
    members: Vec<Member>,
    /// `[world * part]`; without storage while the unit is released.
    whole: Tensor,
    /// The part of this process.
    part: Tensor,
    /// Float32 gradient of `part`.
    gradient: Option<Tensor>,
    /// Gradients of rows of the first member that are not yet part of `gradient`: int64 `[n]`, and `[n, hidden]`.
    rows: Vec<(Tensor, Tensor)>,
}

#[derive(Debug)]
struct Member {
    name: String,
    offset: i64,
    /// A view of `whole`; the parameter of the model.
    parameter: Tensor,
}

/// Shards a model unit by unit, so that it need not be in memory as a whole.
#[derive(Debug)]
pub struct ShardBuilder {
    communicator: Arc<Communicator>,
    /// Whether only LoRA adapters need gradients.
    lora: bool,
    units: BTreeMap<ShardUnit, Mutex<Unit>>,
}

impl ShardBuilder {
    /// With `lora` only the adapters need gradients.
    pub fn new(communicator: Arc<Communicator>, lora: bool) -> Self {
        Self {
            communicator,
            lora,
            units: BTreeMap::new(),
        }
    }

    /// Shards a block.
    pub fn block(&mut self, layer: usize, block: &mut Block) -> Result<(), TchError> {
        let members = block.parameters(layer);
        let views = self.unit(ShardUnit::Block(layer), members)?;
        block.replace_parameters(layer, |name, old| views.replacement(name, old));
        Ok(())
    }

    /// Shards the rest of a model whose blocks are sharded.
    pub fn finish(mut self, model: &mut Model) -> Result<Arc<Shards>, TchError> {
        for unit in [ShardUnit::Embedding, ShardUnit::FinalNorm, ShardUnit::Head] {
            let members = model.parameters().into_iter();
            let members: Vec<_> = members.filter(|(name, _)| unit_of(name) == unit).collect();
            if !members.is_empty() {
                let views = self.unit(unit, members)?;
                model.replace_parameters(|name, old| views.replacement(name, old));
            }
        }
        let shards = Arc::new(Shards {
            communicator: self.communicator,
            units: self.units,
        });
        model.sharding = Some(shards.clone());
        Ok(shards)
    }

    /// Adds a unit. Returns the parameters that replace its members.
    fn unit(&mut self, unit: ShardUnit, members: Vec<(String, Tensor)>) -> Result<Views, TchError> {
        let trained = |name: &str| !self.lora || name.contains(".lora_");
        let (trained, frozen): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|(name, _)| trained(name));
        let mut flats = vec![];
        for (trained, members) in [(true, trained), (false, frozen)] {
            if !members.is_empty() {
                flats.push(Flat::new(members, trained, &self.communicator)?);
            }
        }
        let members = flats.iter().flat_map(|flat| &flat.members);
        let views = members.map(|member| (member.name.clone(), member.parameter.shallow_clone()));
        let views = Views(views.collect());
        let state = Unit {
            gathered: false,
            flats,
        };
        self.units.insert(unit, Mutex::new(state));
        Ok(views)
    }
}

/// Parameters by name that are views of a unit.
struct Views(BTreeMap<String, Tensor>);

impl Views {
    fn replacement(&self, name: &str, old: &Tensor) -> Tensor {
        self.0.get(name).unwrap_or(old).shallow_clone()
    }
}

impl Shards {
    /// A copy of a whole parameter. All processes must ask for the same one. Its unit stays gathered until a
    /// parameter of another unit is asked for.
    pub fn copy(&self, name: &str) -> Result<Tensor, TchError> {
        let wanted = unit_of(name);
        let mut others = self.units.keys().filter(|unit| **unit != wanted);
        others.try_for_each(|unit| self.release(*unit))?;
        self.gather(wanted)?;
        let unit = self.unit(wanted);
        let mut members = unit.flats.iter().flat_map(|flat| &flat.members);
        let member = members.find(|member| member.name == name);
        let copy = member.map(|member| member.parameter.detach().copy());
        copy.ok_or_else(|| TchError::Torch(format!("there is no parameter {name}")))
    }

    /// Copies of the parameters that `chosen` names. Of a unit only those are gathered that are sharded together with
    /// them: adapters without the frozen weights.
    pub fn copies(&self, chosen: impl Fn(&str) -> bool) -> Result<Vec<(String, Tensor)>, TchError> {
        let mut copies = vec![];
        for &name in self.units.keys() {
            let unit = self.unit(name);
            for flat in &unit.flats {
                let members = || flat.members.iter().filter(|member| chosen(&member.name));
                if members().next().is_none() {
                    continue;
                }
                if !unit.gathered {
                    flat.gather(&self.communicator)?;
                }
                copies.extend(
                    members().map(|member| (member.name.clone(), member.parameter.detach().copy())),
                );
                if !unit.gathered {
                    release(&flat.whole)?;
                }
            }
        }
        Ok(copies)
    }

    fn unit(&self, unit: ShardUnit) -> MutexGuard<'_, Unit> {
        // After a panic tensors are either complete or released; both states are valid.
        self.units[&unit]
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn flats(&self, mut each: impl FnMut(ShardUnit, &mut Flat)) {
        for &name in self.units.keys() {
            let mut unit = self.unit(name);
            let trained = unit.flats.iter_mut().filter(|f| f.trained);
            trained.for_each(|flat| each(name, flat));
        }
    }

    fn slices(&self) -> Vec<ParamSlice> {
        let mut all = vec![];
        self.flats(|_, flat| {
            flat.owned(self.communicator.rank, |member, offset, start, length| {
                all.push(ParamSlice {
                    name: member.name.clone(),
                    offset,
                    is_matrix: member.parameter.dim() > 1,
                    weight: flat.part.narrow(0, start, length),
                });
            });
        });
        all
    }

    fn gradients(&self, scope: Scope) -> Vec<Option<Tensor>> {
        let mut all = vec![];
        self.flats(|unit, flat| {
            flat.owned(self.communicator.rank, |_, _, start, length| {
                let gradient = flat.gradient.as_ref().filter(|_| scope.has(unit));
                all.push(gradient.map(|gradient| gradient.narrow(0, start, length)));
            });
        });
        all
    }
}

/// The unit that a parameter belongs to.
fn unit_of(name: &str) -> ShardUnit {
    let layer = || {
        let rest = name.strip_prefix("model.layers.")?;
        rest.split('.').next()?.parse().ok()
    };
    match (layer(), name) {
        (Some(layer), _) => ShardUnit::Block(layer),
        (None, "model.embed_tokens.weight") => ShardUnit::Embedding,
        (None, "lm_head.weight") => ShardUnit::Head,
        (None, _) => ShardUnit::FinalNorm,
    }
}

impl Flat {
    fn new(
        members: Vec<(String, Tensor)>,
        trained: bool,
        communicator: &Communicator,
    ) -> Result<Self, TchError> {
        let aligned = |size: usize| (size as i64 + ALIGN - 1) / ALIGN * ALIGN;
        let total: i64 = members.iter().map(|(_, t)| aligned(t.numel())).sum();
        let world = communicator.world as i64;
        let part = aligned(((total + world - 1) / world) as usize);
        let like = &members[0].1;
        let whole = Tensor::zeros([part * world], (like.kind(), like.device()));
        let mut offset = 0;
        let mut kept = vec![];
        for (name, tensor) in members {
            let size = tensor.numel() as i64;
            let mut view = whole.narrow(0, offset, size).view(tensor.size().as_slice());
            no_grad(|| view.copy_(&tensor));
            kept.push(Member {
                name,
                offset,
                parameter: view.detach().set_requires_grad(trained),
            });
            offset += aligned(size as usize);
        }
        let flat = Self {
            trained,
            members: kept,
            part: whole
                .narrow(0, part * communicator.rank as i64, part)
                .copy(),
            whole,
            gradient: None,
            rows: vec![],
        };
        release(&flat.whole)?;
        Ok(flat)
    }

    /// Calls `each(member, first element in it, offset in the part, elements)` for the range of each member that
    /// belongs to process `rank`.
    fn owned(&self, rank: usize, mut each: impl FnMut(&Member, i64, i64, i64)) {
        let part = self.part.size()[0];
        let (from, to) = (part * rank as i64, part * (rank as i64 + 1));
        for member in &self.members {
            let end = member.offset + member.parameter.numel() as i64;
            let (start, end) = (member.offset.max(from), end.min(to));
            if start < end {
                each(member, start - member.offset, start - from, end - start);
            }
        }
    }

    /// Gathers the parts of all processes.
    fn gather(&self, communicator: &Communicator) -> Result<(), TchError> {
        allocate(&self.whole)?;
        no_grad(|| communicator.all_gather(&self.whole, &self.part))
    }

    /// Adds the sum of the gradients of all processes to the part of this one, a chunk at a time.
    fn reduce(&mut self, communicator: &Communicator) -> Result<(), TchError> {
        // In float32, because a sum over many processes and micro-batches would lose precision in bf16.
        let options = (Kind::Float, self.whole.device());
        let gradients: Vec<(i64, Tensor)> = self
            .members
            .iter()
            .map(|member| (member.offset, member.parameter.grad()))
            .filter(|(_, gradient)| gradient.defined())
            .map(|(offset, gradient)| (offset, gradient.reshape([-1])))
            .collect();
        let (world, length) = (communicator.world as i64, self.part.size()[0]);
        let sum = self
            .gradient
            .take()
            .unwrap_or_else(|| Tensor::zeros([length], options));
        let chunk = communicator.chunk_elements();
        let (buffer, part) = (
            Tensor::zeros([world * chunk.min(length)], options),
            Tensor::zeros([chunk.min(length)], options),
        );
        for start in (0..length).step_by(chunk as usize) {
            let size = chunk.min(length - start);
            let mut all = buffer.narrow(0, 0, world * size).view([world, size]);
            let _ = all.zero_();
            for rank in 0..world {
                let from = length * rank + start;
                copy_range(&gradients, &all.get(rank), from);
                self.copy_rows(&all.get(rank), from);
            }
            let ours = part.narrow(0, 0, size);
            communicator.reduce_scatter(&ours, &all.view([-1]))?;
            let _ = sum.narrow(0, start, size).g_add_(&ours);
        }
        self.gradient = Some(sum);
        self.rows.clear();
        drop(gradients);
        self.members
            .iter()
            .try_for_each(|member| clear_gradient(&member.parameter))
    }
}

impl Flat {
    /// Copies the sums of the gradients of rows, from element `from` of the flat on, into `target`. They are added in
    /// the data type and order of a backward pass through the whole first member.
    fn copy_rows(&self, target: &Tensor, from: i64) {
        let (Some((_, first)), Some(member)) = (self.rows.first(), self.members.first()) else {
            return;
        };
        let width = first.size()[1];
        let to = (from + target.size()[0]).min(member.parameter.numel() as i64);
        if from >= to {
            return;
        }
        let (low, high) = (from / width, (to + width - 1) / width);
        let sums = Tensor::zeros([high - low, width], (first.kind(), first.device()));
        for (ids, gradients) in &self.rows {
            let inside = ids.ge(low).logical_and(&ids.lt(high));
            let inside = inside.nonzero().squeeze_dim(1);
            let rows = ids.index_select(0, &inside) - low;
            let _ = sums
                .shallow_clone()
                .index_add_(0, &rows, &gradients.index_select(0, &inside));
        }
        target
            .narrow(0, 0, to - from)
            .copy_(&sums.view([-1]).narrow(0, from - low * width, to - from));
    }
}

/// Copies what flat tensors, each with its first element in the whole, have from `from` on into `target`.
fn copy_range(tensors: &[(i64, Tensor)], target: &Tensor, from: i64) {
    let to = from + target.size()[0];
    for (offset, tensor) in tensors {
        let end = offset + tensor.size()[0];
        let (start, end) = (from.max(*offset), to.min(end));
        if start < end {
            let size = end - start;
            target
                .narrow(0, start - from, size)
                .copy_(&tensor.narrow(0, start - offset, size));
        }
    }
}

impl ParamSharding for Shards {
    fn gather(&self, unit: ShardUnit) -> Result<(), TchError> {
        let mut unit = self.unit(unit);
        if unit.gathered {
            return Ok(());
        }
        let mut flats = unit.flats.iter();
        flats.try_for_each(|flat| flat.gather(&self.communicator))?;
        unit.gathered = true;
        Ok(())
    }

    fn reduce(&self, unit: ShardUnit) -> Result<(), TchError> {
        let mut unit = self.unit(unit);
        let mut trained = unit.flats.iter_mut().filter(|flat| flat.trained);
        trained.try_for_each(|flat| no_grad(|| flat.reduce(&self.communicator)))
    }

    fn add_embedding_rows(&self, ids: Tensor, gradients: Tensor) {
        let mut unit = self.unit(ShardUnit::Embedding);
        let flat = unit.flats.iter_mut().find(|flat| flat.trained);
        flat.into_iter().for_each(|flat| {
            flat.rows
                .push((ids.shallow_clone(), gradients.shallow_clone()))
        });
    }

    fn release(&self, unit: ShardUnit) -> Result<(), TchError> {
        let mut unit = self.unit(unit);
        unit.gathered = false;
        unit.flats.iter().try_for_each(|flat| release(&flat.whole))
    }
}
