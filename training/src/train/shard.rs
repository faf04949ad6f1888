//! Sharding of parameters, gradients and optimizer state over processes (ZeRO-3): each process stores its part of
//! every block, and a whole block only while it is computed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tch::{Kind, TchError, Tensor, no_grad};

use super::optimizer::ParamSlice;
use crate::model::{Model, ParamSharding};
use crate::torch::{Communicator, allocate, clear_gradient, release};

/// Alignment of parameters in elements, so that the blocks of 8-bit optimizer state are the same for any number of
/// processes.
const ALIGN: i64 = 256;

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

    /// Flat gradients of the slices.
    pub fn gradients(&self) -> Vec<Option<Tensor>> {
        match self {
            Self::Whole(all) => {
                let gradients = all.iter().map(|(_, parameter)| parameter.grad());
                let flat = |g: Tensor| g.defined().then(|| no_grad(|| g.reshape([-1])));
                gradients.map(flat).collect()
            }
            Self::Sharded(shards) => shards.gradients(),
        }
    }

    /// Frees all gradients.
    pub fn clear_gradients(&self) -> Result<(), TchError> {
        match self {
            Self::Whole(all) => all.iter().try_for_each(|(_, p)| clear_gradient(p)),
            Self::Sharded(shards) => {
                shards.flats(|flat| flat.gradient = None);
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

/// The sharded parameters of a model, in units as defined by [`ParamSharding`].
#[derive(Debug)]
pub struct Shards {
    communicator: Arc<Communicator>,
    units: Vec<Mutex<Unit>>,
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
}

#[derive(Debug)]
struct Member {
    name: String,
    offset: i64,
    /// A view of `whole`; the parameter of the model.
    parameter: Tensor,
}

impl Shards {
    /// Shards a model that every process has loaded. `trained` decides by name which parameters need
    /// gradients.
    pub fn new(
        model: &mut Model,
        communicator: Arc<Communicator>,
        trained: impl Fn(&str) -> bool,
    ) -> Result<Arc<Self>, TchError> {
        let mut units = vec![];
        for unit in 0..=model.blocks.len() {
            let of_unit = |name: &str| unit_of(name).unwrap_or(model.blocks.len()) == unit;
            let members = model.parameters().into_iter();
            let members: Vec<_> = members.filter(|(name, _)| of_unit(name)).collect();
            let (trained_members, frozen): (Vec<_>, Vec<_>) =
                members.into_iter().partition(|(name, _)| trained(name));
            let mut flats = vec![];
            for (trained, members) in [(true, trained_members), (false, frozen)] {
                if !members.is_empty() {
                    flats.push(Flat::new(members, trained, &communicator)?);
                }
            }
            let views: BTreeMap<&str, &Tensor> = flats
                .iter()
                .flat_map(|flat| &flat.members)
                .map(|member| (member.name.as_str(), &member.parameter))
                .collect();
            model.replace_parameters(|name, old| {
                views.get(name).copied().unwrap_or(old).shallow_clone()
            });
            units.push(Mutex::new(Unit {
                gathered: false,
                flats,
            }));
        }
        let shards = Arc::new(Self {
            communicator,
            units,
        });
        model.sharding = Some(shards.clone());
        Ok(shards)
    }

    /// Gathers all parameters permanently; the model is no longer sharded.
    pub fn gather_all(&self, model: &mut Model) -> Result<(), TchError> {
        (0..self.units.len()).try_for_each(|unit| self.gather(unit))?;
        model.sharding = None;
        Ok(())
    }

    /// Copies of the parameters that `chosen` names, one unit at a time.
    pub fn copies(&self, chosen: impl Fn(&str) -> bool) -> Result<Vec<(String, Tensor)>, TchError> {
        let mut copies = vec![];
        for number in 0..self.units.len() {
            self.gather(number)?;
            let unit = self.unit(number);
            let members = unit.flats.iter().flat_map(|flat| &flat.members);
            for member in members.filter(|member| chosen(&member.name)) {
                copies.push((member.name.clone(), member.parameter.detach().copy()));
            }
            drop(unit);
            self.release(number)?;
        }
        Ok(copies)
    }

    fn unit(&self, unit: usize) -> MutexGuard<'_, Unit> {
        // After a panic tensors are either complete or released; both states are valid.
        self.units[unit]
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn flats(&self, mut each: impl FnMut(&mut Flat)) {
        for unit in 0..self.units.len() {
            let mut unit = self.unit(unit);
            unit.flats
                .iter_mut()
                .filter(|f| f.trained)
                .for_each(&mut each);
        }
    }

    fn slices(&self) -> Vec<ParamSlice> {
        let mut all = vec![];
        self.flats(|flat| {
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

    fn gradients(&self) -> Vec<Option<Tensor>> {
        let mut all = vec![];
        self.flats(|flat| {
            flat.owned(self.communicator.rank, |_, _, start, length| {
                let gradient = flat.gradient.as_ref();
                all.push(gradient.map(|gradient| gradient.narrow(0, start, length)));
            });
        });
        all
    }
}

/// The block that a parameter belongs to.
fn unit_of(name: &str) -> Option<usize> {
    let rest = name.strip_prefix("model.layers.")?;
    rest.split('.').next()?.parse().ok()
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

    fn reduce(&mut self, communicator: &Communicator) -> Result<(), TchError> {
        // In float32, because a sum over many processes and micro-batches would lose precision in bf16.
        let options = (Kind::Float, self.whole.device());
        let sum = Tensor::zeros(self.whole.size(), options);
        for member in &self.members {
            let gradient = member.parameter.grad();
            if gradient.defined() {
                let size = gradient.numel() as i64;
                sum.narrow(0, member.offset, size)
                    .copy_(&gradient.reshape([-1]));
                clear_gradient(&member.parameter)?;
            }
        }
        let mut ours = Tensor::zeros(self.part.size(), options);
        communicator.reduce_scatter(&ours, &sum)?;
        if let Some(before) = &self.gradient {
            let _ = ours.g_add_(before);
        }
        self.gradient = Some(ours);
        Ok(())
    }
}

impl ParamSharding for Shards {
    fn gather(&self, unit: usize) -> Result<(), TchError> {
        let mut unit = self.unit(unit);
        if unit.gathered {
            return Ok(());
        }
        for flat in &unit.flats {
            allocate(&flat.whole)?;
            no_grad(|| self.communicator.all_gather(&flat.whole, &flat.part))?;
        }
        unit.gathered = true;
        Ok(())
    }

    fn reduce(&self, unit: usize) -> Result<(), TchError> {
        let mut unit = self.unit(unit);
        let mut trained = unit.flats.iter_mut().filter(|flat| flat.trained);
        trained.try_for_each(|flat| no_grad(|| flat.reduce(&self.communicator)))
    }

    fn release(&self, unit: usize) -> Result<(), TchError> {
        let mut unit = self.unit(unit);
        unit.gathered = false;
        unit.flats.iter().try_for_each(|flat| release(&flat.whole))
    }
}
