//! Parameters, gradients and moments spread over processes (ZeRO-3): each holds its part of every
//! block, and a whole block only while it computes there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tch::{Kind, TchError, Tensor, no_grad};

use super::optimizer::Piece;
use crate::model::{Model, Residence};
use crate::torch::{Group, allocate, forget_gradient, release};

/// Parameters begin at multiples of this many elements, so that the blocks of 8-bit moments are the
/// same for any number of processes.
const ALIGN: i64 = 256;

/// What is trained, and where it lies.
#[derive(Debug)]
pub enum Parameters {
    /// All of it here.
    Whole(Vec<(String, Tensor)>),
    /// Spread over processes.
    Sharded(Arc<Shards>),
}

impl Parameters {
    /// What this process updates.
    pub fn pieces(&self) -> Vec<Piece> {
        match self {
            Self::Whole(all) => all.iter().map(whole_piece).collect(),
            Self::Sharded(shards) => shards.pieces(),
        }
    }

    /// Flat gradients of the pieces.
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

    /// Forgets gradients and frees them.
    pub fn forget_gradients(&self) -> Result<(), TchError> {
        match self {
            Self::Whole(all) => all.iter().try_for_each(|(_, p)| forget_gradient(p)),
            Self::Sharded(shards) => {
                shards.flats(|flat| flat.gradient = None);
                Ok(())
            }
        }
    }
}

fn whole_piece((name, parameter): &(String, Tensor)) -> Piece {
    Piece {
        name: name.clone(),
        offset: 0,
        matrix: parameter.dim() > 1,
        weight: parameter.detach().view([-1]),
    }
}

/// All units of a model.
#[derive(Debug)]
pub struct Shards {
    group: Arc<Group>,
    units: Vec<Mutex<Unit>>,
}

#[derive(Debug)]
struct Unit {
    here: bool,
    flats: Vec<Flat>,
}

/// Parameters one after another in one tensor, of which each process keeps an equal part.
#[derive(Debug)]
struct Flat {
    trained: bool,
    members: Vec<Member>,
    /// `[world * part]`; without bytes while the unit is away.
    whole: Tensor,
    /// This process's.
    part: Tensor,
    /// Float32, of this process's part.
    gradient: Option<Tensor>,
}

#[derive(Debug)]
struct Member {
    name: String,
    offset: i64,
    /// A view of `whole`, which the model computes with.
    parameter: Tensor,
}

impl Shards {
    /// Spreads a model that every process has loaded. Its parameters become views of tensors that
    /// come and go; `trained` tells by name which of them need gradients.
    pub fn spread(
        model: &mut Model,
        group: Arc<Group>,
        trained: impl Fn(&str) -> bool,
    ) -> Result<Arc<Self>, TchError> {
        let mut units = vec![];
        for unit in 0..=model.blocks.len() {
            let of_unit = |name: &str| unit_of(name).unwrap_or(model.blocks.len()) == unit;
            let members = model.parameters().into_iter();
            let members: Vec<_> = members.filter(|(name, _)| of_unit(name)).collect();
            let (yes, no): (Vec<_>, Vec<_>) =
                members.into_iter().partition(|(name, _)| trained(name));
            let mut flats = vec![];
            for (trained, members) in [(true, yes), (false, no)] {
                if !members.is_empty() {
                    flats.push(Flat::new(members, trained, &group)?);
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
            units.push(Mutex::new(Unit { here: false, flats }));
        }
        let shards = Arc::new(Self { group, units });
        model.residence = Some(shards.clone());
        Ok(shards)
    }

    /// Brings everything, to stay: the model is a whole one again.
    pub fn gather_all(&self, model: &mut Model) -> Result<(), TchError> {
        (0..self.units.len()).try_for_each(|unit| self.gather(unit))?;
        model.residence = None;
        Ok(())
    }

    fn unit(&self, unit: usize) -> MutexGuard<'_, Unit> {
        // A panic elsewhere leaves tensors that are whole or gone, both of which are fine here.
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

    fn pieces(&self) -> Vec<Piece> {
        let mut all = vec![];
        self.flats(|flat| {
            flat.owned(self.group.rank, |member, offset, start, length| {
                all.push(Piece {
                    name: member.name.clone(),
                    offset,
                    matrix: member.parameter.dim() > 1,
                    weight: flat.part.narrow(0, start, length),
                });
            });
        });
        all
    }

    fn gradients(&self) -> Vec<Option<Tensor>> {
        let mut all = vec![];
        self.flats(|flat| {
            flat.owned(self.group.rank, |_, _, start, length| {
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
    fn new(members: Vec<(String, Tensor)>, trained: bool, group: &Group) -> Result<Self, TchError> {
        let aligned = |size: usize| (size as i64 + ALIGN - 1) / ALIGN * ALIGN;
        let total: i64 = members.iter().map(|(_, t)| aligned(t.numel())).sum();
        let world = group.world as i64;
        let part = aligned(((total + world - 1) / world) as usize);
        let like = &members[0].1;
        let whole = Tensor::zeros([part * world], (like.kind(), like.device()));
        let mut offset = 0;
        let mut kept = vec![];
        for (name, tensor) in members {
            let size = tensor.numel() as i64;
            let mut place = whole.narrow(0, offset, size).view(tensor.size().as_slice());
            no_grad(|| place.copy_(&tensor));
            kept.push(Member {
                name,
                offset,
                parameter: place.detach().set_requires_grad(trained),
            });
            offset += aligned(size as usize);
        }
        let flat = Self {
            trained,
            members: kept,
            part: whole.narrow(0, part * group.rank as i64, part).copy(),
            whole,
            gradient: None,
        };
        release(&flat.whole)?;
        Ok(flat)
    }

    /// Calls `each(member, first element in it, place in our part, elements)` for what of each
    /// member lies in the part of process `rank`.
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

    fn reduce(&mut self, group: &Group) -> Result<(), TchError> {
        // In float32: a sum over many processes and parts loses what bf16 cannot hold.
        let place = (Kind::Float, self.whole.device());
        let sum = Tensor::zeros(self.whole.size(), place);
        for member in &self.members {
            let gradient = member.parameter.grad();
            if gradient.defined() {
                let size = gradient.numel() as i64;
                sum.narrow(0, member.offset, size)
                    .copy_(&gradient.reshape([-1]));
                forget_gradient(&member.parameter)?;
            }
        }
        let mut ours = Tensor::zeros(self.part.size(), place);
        group.reduce_scatter(&ours, &sum)?;
        if let Some(before) = &self.gradient {
            let _ = ours.g_add_(before);
        }
        self.gradient = Some(ours);
        Ok(())
    }
}

impl Residence for Shards {
    fn gather(&self, unit: usize) -> Result<(), TchError> {
        let mut unit = self.unit(unit);
        if unit.here {
            return Ok(());
        }
        for flat in &unit.flats {
            allocate(&flat.whole)?;
            no_grad(|| self.group.all_gather(&flat.whole, &flat.part))?;
        }
        unit.here = true;
        Ok(())
    }

    fn reduce(&self, unit: usize) -> Result<(), TchError> {
        let mut unit = self.unit(unit);
        let mut trained = unit.flats.iter_mut().filter(|flat| flat.trained);
        trained.try_for_each(|flat| no_grad(|| flat.reduce(&self.group)))
    }

    fn release(&self, unit: usize) -> Result<(), TchError> {
        let mut unit = self.unit(unit);
        unit.here = false;
        unit.flats.iter().try_for_each(|flat| release(&flat.whole))
    }
}
