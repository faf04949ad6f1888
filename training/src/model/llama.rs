//! The forward pass.

use std::sync::Arc;

use tch::{Device, Kind, Tensor, no_grad};

use super::attention::attend;
use super::{Layout, ModelConfig, Nf4, Residence};
use crate::torch::{Pass, fused, recompute};

/// A low-rank addition to a matrix: `scale · B · A`.
#[derive(Debug)]
pub struct Lora {
    /// `[rank, in]`.
    pub a: Tensor,
    /// `[out, rank]`, zero at the start.
    pub b: Tensor,
    /// `alpha / rank`.
    pub scale: f64,
    /// Part of the input that the addition does not see, while it is trained.
    pub dropout: Option<Dropout>,
}

/// Elements left out at random. The seed is set for each pass through the model, so that a block
/// that runs again leaves out the same ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Share left out, from 0 to below 1; the others are scaled up.
    pub share: f64,
    /// Of this matrix in this pass.
    pub seed: i64,
}

impl Dropout {
    fn apply(self, x: &Tensor) -> Tensor {
        tch::manual_seed(self.seed);
        let kept = no_grad(|| {
            let drawn = Tensor::rand(x.size(), (Kind::Float, x.device()));
            drawn.ge(self.share).to_kind(x.kind()) / (1.0 - self.share)
        });
        x * kept
    }
}

impl Lora {
    fn forward(&self, x: &Tensor) -> Tensor {
        let low = match self.dropout {
            Some(dropout) => dropout.apply(x).linear(&self.a, None::<Tensor>),
            None => x.linear(&self.a, None::<Tensor>),
        };
        low.linear(&self.b, None::<Tensor>) * self.scale
    }

    fn share(&self) -> Self {
        Self {
            a: self.a.shallow_clone(),
            b: self.b.shallow_clone(),
            scale: self.scale,
            dropout: self.dropout,
        }
    }
}

/// `x · Wᵀ + b`, and what LoRA adds to it.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Linear {
    /// `[out, in]`; a single zero seen in that shape where `packed` holds the values.
    pub weight: Tensor,
    pub bias: Option<Tensor>,
    pub lora: Option<Lora>,
    /// The values in four bits each.
    pub packed: Option<Nf4>,
}

impl Linear {
    /// Whether it is a matrix and perhaps a bias, and nothing else.
    fn is_plain(&self) -> bool {
        self.packed.is_none() && self.lora.is_none()
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let y = match &self.packed {
            None if fused::supports(x) => fused::linear(x, &self.weight, self.bias.as_ref()),
            None => x.linear(&self.weight, self.bias.as_ref()),
            Some(packed) => x.linear(&packed.values(), self.bias.as_ref()),
        };
        match &self.lora {
            None => y,
            Some(lora) => y + lora.forward(x),
        }
    }

    /// Holds the matrix in four bits from here on.
    pub fn pack(&mut self) {
        let packed = Nf4::pack(&self.weight);
        let zero = Tensor::zeros([1, 1], (self.weight.kind(), self.weight.device()));
        self.weight = zero.expand(self.weight.size(), true);
        self.packed = Some(packed);
    }

    fn share(&self) -> Self {
        Self {
            weight: self.weight.shallow_clone(),
            bias: self.bias.as_ref().map(Tensor::shallow_clone),
            lora: self.lora.as_ref().map(Lora::share),
            packed: self.packed.as_ref().map(Nf4::share),
        }
    }

    /// Unpacks the matrix, adds the low-rank part to it and drops that.
    pub fn merge(&mut self) {
        if let Some(packed) = self.packed.take() {
            self.weight = packed.values();
        }
        if let Some(lora) = self.lora.take() {
            let kind = self.weight.kind();
            self.weight = no_grad(|| {
                let [a, b] = [&lora.a, &lora.b].map(|factor| factor.to_kind(Kind::Float));
                let sum = self.weight.to_kind(Kind::Float) + b.matmul(&a) * lora.scale;
                sum.to_kind(kind)
            })
            .detach();
        }
    }
}

/// One transformer block.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Block {
    pub input_norm: Tensor,
    pub q: Linear,
    pub k: Linear,
    pub v: Linear,
    pub o: Linear,
    pub post_norm: Tensor,
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
    pub window: Option<i64>,
}

impl Block {
    /// The matrices, with the names that LoRA targets and Hugging Face give them.
    pub fn linears(&self) -> [(&'static str, &Linear); 7] {
        [
            ("self_attn.q_proj", &self.q),
            ("self_attn.k_proj", &self.k),
            ("self_attn.v_proj", &self.v),
            ("self_attn.o_proj", &self.o),
            ("mlp.gate_proj", &self.gate),
            ("mlp.up_proj", &self.up),
            ("mlp.down_proj", &self.down),
        ]
    }

    /// The same, to be changed.
    pub fn linears_mut(&mut self) -> [(&'static str, &mut Linear); 7] {
        [
            ("self_attn.q_proj", &mut self.q),
            ("self_attn.k_proj", &mut self.k),
            ("self_attn.v_proj", &mut self.v),
            ("self_attn.o_proj", &mut self.o),
            ("mlp.gate_proj", &mut self.gate),
            ("mlp.up_proj", &mut self.up),
            ("mlp.down_proj", &mut self.down),
        ]
    }

    fn into_parameters(mut self, layer: usize) -> Vec<(String, Tensor)> {
        let mut all = vec![];
        self.visit(|name, tensor| {
            all.push((
                format!("model.layers.{layer}.{name}"),
                tensor.shallow_clone(),
            ));
        });
        all
    }

    /// Calls `each(name, tensor)` for every parameter, always in the same order.
    fn visit(&mut self, mut each: impl FnMut(&str, &mut Tensor)) {
        each("input_layernorm.weight", &mut self.input_norm);
        each("post_attention_layernorm.weight", &mut self.post_norm);
        for (name, linear) in self.linears_mut() {
            if linear.packed.is_none() {
                each(&format!("{name}.weight"), &mut linear.weight);
            }
            if let Some(bias) = &mut linear.bias {
                each(&format!("{name}.bias"), bias);
            }
            if let Some(lora) = &mut linear.lora {
                each(&format!("{name}.lora_A.weight"), &mut lora.a);
                each(&format!("{name}.lora_B.weight"), &mut lora.b);
            }
        }
    }

    /// The same block over the same tensors.
    fn share(&self) -> Self {
        Self {
            input_norm: self.input_norm.shallow_clone(),
            q: self.q.share(),
            k: self.k.share(),
            v: self.v.share(),
            o: self.o.share(),
            post_norm: self.post_norm.shallow_clone(),
            gate: self.gate.share(),
            up: self.up.share(),
            down: self.down.share(),
            window: self.window,
        }
    }

    fn forward(&self, x: &Tensor, context: &Context) -> Tensor {
        self.apply(x, context, |q, k, v| {
            attend(q, k, v, &context.layout, self.window)
        })
    }

    /// The block around some attention over rotated queries and keys.
    pub(super) fn apply(
        &self,
        x: &Tensor,
        context: &Context,
        attention: impl FnOnce(&Tensor, &Tensor, &Tensor) -> Tensor,
    ) -> Tensor {
        let size = [x.size()[0], x.size()[1], -1, context.head_dim];
        let heads = |y: Tensor| y.view(size).transpose(1, 2);
        let linears = [&self.q, &self.k, &self.v];
        let [q, k, v] = norm_linears(x, &self.input_norm, context.eps, linears);
        let (q, k) = (context.rotate(&q), context.rotate(&k));
        let attended = attention(&heads(q), &heads(k), &heads(v));
        let attended = attended.transpose(1, 2).reshape([size[0], size[1], -1]);
        let x = x + self.o.forward(&attended);
        let linears = [&self.gate, &self.up];
        let [gate, up] = norm_linears(&x, &self.post_norm, context.eps, linears);
        x + self.down(&gate, &up)
    }

    fn down(&self, gate: &Tensor, up: &Tensor) -> Tensor {
        match self.down.is_plain() && self.down.bias.is_none() && fused::supports(gate) {
            true => fused::swiglu_linear(gate, up, &self.down.weight),
            false => self.down.forward(&(gate.silu() * up)),
        }
    }
}

pub(super) fn norm(x: &Tensor, weight: &Tensor, eps: f64) -> Tensor {
    match fused::supports(weight) {
        true => fused::rms_norm(x, weight, eps),
        false => x.rms_norm(weight.size(), Some(weight), Some(eps)),
    }
}

fn norm_linears<const N: usize>(
    x: &Tensor,
    weight: &Tensor,
    eps: f64,
    linears: [&Linear; N],
) -> [Tensor; N] {
    if fused::supports(x) && linears.iter().all(|linear| linear.is_plain()) {
        let parts = linears.map(|linear| (&linear.weight, linear.bias.as_ref()));
        return fused::norm_linears(x, weight, eps, parts);
    }
    let h = norm(x, weight, eps);
    linears.map(|linear| linear.forward(&h))
}

/// What all blocks of one forward pass share.
pub(super) struct Context {
    layout: Arc<Layout>,
    /// `[rows, width, head_dim]`: float32 where operations are fused, otherwise of the model's kind.
    cos: Tensor,
    sin: Tensor,
    head_dim: i64,
    eps: f64,
}

impl Context {
    fn new(model: &Model, layout: &Arc<Layout>) -> Self {
        let positions = layout.positions(model.embed.device());
        Self::at(model, layout, &positions)
    }

    /// With positions `[rows, width]` (int64) other than the layout's own.
    pub(super) fn at(model: &Model, layout: &Arc<Layout>, positions: &Tensor) -> Self {
        let kind = match fused::supports(&model.embed) {
            true => Kind::Float,
            false => model.embed.kind(),
        };
        let frequencies = Tensor::from_slice(&model.config.frequencies());
        let frequencies = frequencies.to_device(model.embed.device());
        let angles = positions.to_kind(Kind::Float).unsqueeze(-1) * frequencies;
        let angles = Tensor::cat(&[&angles, &angles], -1);
        Self {
            layout: layout.clone(),
            cos: angles.cos().to_kind(kind),
            sin: angles.sin().to_kind(kind),
            head_dim: model.config.head_dim,
            eps: model.config.norm_eps,
        }
    }

    fn share(&self) -> Self {
        Self {
            layout: self.layout.clone(),
            cos: self.cos.shallow_clone(),
            sin: self.sin.shallow_clone(),
            head_dim: self.head_dim,
            eps: self.eps,
        }
    }

    /// Turns the heads of `[rows, width, heads * head_dim]`.
    fn rotate(&self, x: &Tensor) -> Tensor {
        if fused::supports(x) {
            return fused::rotate(x, &self.cos, &self.sin);
        }
        let heads = x.unflatten(-1, [-1, self.head_dim]);
        let halves = heads.chunk(2, -1);
        let turned = Tensor::cat(&[halves[1].neg(), halves[0].shallow_clone()], -1);
        let [cos, sin] = [&self.cos, &self.sin].map(|one| one.unsqueeze(2));
        (heads * cos + turned * sin).flatten(-2, -1)
    }
}

/// Whether blocks keep their activations for the backward pass or run again in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recomputation {
    /// Keep them: fastest.
    Keep,
    /// Keep each block's input only: about a third more time, a fraction of the memory.
    Blocks,
}

/// A model and its parameters.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Model {
    pub config: ModelConfig,
    /// `[vocab, hidden]`.
    pub embed: Tensor,
    pub blocks: Vec<Block>,
    pub norm: Tensor,
    /// `[vocab, hidden]`; `None` when tied.
    pub head: Option<Tensor>,
    /// Whoever keeps the parameters where this process does not hold all of them.
    pub residence: Option<Arc<dyn Residence>>,
}

impl Model {
    /// A model whose parameters come from `get(name, shape)`, named as Hugging Face names them.
    pub fn build<E>(
        config: ModelConfig,
        mut get: impl FnMut(&str, &[i64]) -> Result<Tensor, E>,
    ) -> Result<Self, E> {
        let c = &config;
        let (attention, keys) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let mut blocks = Vec::with_capacity(c.layers);
        let embed = get("model.embed_tokens.weight", &[c.vocab, c.hidden])?;
        for layer in 0..c.layers {
            let at = |name: &str| format!("model.layers.{layer}.{name}");
            let mut linear = |name: &str, out: i64, input: i64, bias: bool| {
                Ok(Linear {
                    weight: get(&at(&format!("{name}.weight")), &[out, input])?,
                    bias: match bias {
                        true => Some(get(&at(&format!("{name}.bias")), &[out])?),
                        false => None,
                    },
                    lora: None,
                    packed: None,
                })
            };
            blocks.push(Block {
                q: linear("self_attn.q_proj", attention, c.hidden, c.qkv_bias)?,
                k: linear("self_attn.k_proj", keys, c.hidden, c.qkv_bias)?,
                v: linear("self_attn.v_proj", keys, c.hidden, c.qkv_bias)?,
                o: linear("self_attn.o_proj", c.hidden, attention, c.output_bias)?,
                gate: linear("mlp.gate_proj", c.intermediate, c.hidden, c.mlp_bias)?,
                up: linear("mlp.up_proj", c.intermediate, c.hidden, c.mlp_bias)?,
                down: linear("mlp.down_proj", c.hidden, c.intermediate, c.mlp_bias)?,
                input_norm: get(&at("input_layernorm.weight"), &[c.hidden])?,
                post_norm: get(&at("post_attention_layernorm.weight"), &[c.hidden])?,
                window: c.windows[layer],
            });
        }
        let norm = get("model.norm.weight", &[c.hidden])?;
        let head = match c.tied {
            true => None,
            false => Some(get("lm_head.weight", &[c.vocab, c.hidden])?),
        };
        Ok(Self {
            embed,
            blocks,
            norm,
            head,
            residence: None,
            config,
        })
    }

    /// A model with small random parameters.
    pub fn random(config: ModelConfig, seed: i64, kind: Kind, device: Device) -> Self {
        tch::manual_seed(seed);
        let built = Self::build(config, |name, shape| {
            let tensor = match name.ends_with("norm.weight") {
                true => Tensor::ones(shape, (kind, device)),
                false => (Tensor::randn(shape, (Kind::Float, device)) * 0.02).to_kind(kind),
            };
            Ok::<_, std::convert::Infallible>(tensor)
        });
        match built {
            Ok(model) => model,
            Err(never) => match never {},
        }
    }

    /// Every parameter with its Hugging Face name, in a fixed order; LoRA's as PEFT names them.
    /// Packed matrices are none.
    pub fn parameters(&self) -> Vec<(String, Tensor)> {
        let mut all = vec![(
            "model.embed_tokens.weight".to_owned(),
            self.embed.shallow_clone(),
        )];
        for (layer, block) in self.blocks.iter().enumerate() {
            let named = block.share().into_parameters(layer);
            all.extend(named);
        }
        all.push(("model.norm.weight".into(), self.norm.shallow_clone()));
        if let Some(head) = &self.head {
            all.push(("lm_head.weight".into(), head.shallow_clone()));
        }
        all
    }

    /// Puts another tensor in the place of each parameter: what `change(name, tensor)` gives.
    pub fn replace_parameters(&mut self, mut change: impl FnMut(&str, &Tensor) -> Tensor) {
        let mut each = |name: &str, tensor: &mut Tensor| *tensor = change(name, tensor);
        each("model.embed_tokens.weight", &mut self.embed);
        for (layer, block) in self.blocks.iter_mut().enumerate() {
            block.visit(|name, tensor| each(&format!("model.layers.{layer}.{name}"), tensor));
        }
        each("model.norm.weight", &mut self.norm);
        if let Some(head) = &mut self.head {
            each("lm_head.weight", head);
        }
    }

    /// The output matrix, `[vocab, hidden]`.
    pub fn head(&self) -> &Tensor {
        self.head.as_ref().unwrap_or(&self.embed)
    }

    /// Rows of the embedding for tokens `[rows, width]` (int64).
    pub(super) fn embedded(&self, ids: &Tensor) -> Tensor {
        match fused::supports(&self.embed) {
            true => fused::embed(&self.embed, ids),
            false => Tensor::embedding(&self.embed, ids, -1, false, false),
        }
    }

    /// Final hidden states `[rows, width, hidden]` of tokens `[rows, width]` (int64), before they are
    /// normalised.
    pub fn hidden(&self, ids: &Tensor, layout: &Arc<Layout>, memory: Recomputation) -> Tensor {
        let context = Context::new(self, layout);
        let mut x = self.embedded(ids);
        for (layer, block) in self.blocks.iter().enumerate() {
            x = match (memory, &self.residence) {
                (Recomputation::Keep, None) => block.forward(&x, &context),
                // Without a backward pass: what the block computed would hold on to its parameters.
                (Recomputation::Keep, Some(residence)) => {
                    let _here = residence.clone().stay(layer);
                    block.forward(&x, &context)
                }
                (Recomputation::Blocks, _) => self.recomputed(layer, &x, &context),
            };
        }
        x
    }

    /// What the output matrix sees of hidden states.
    pub(super) fn normalised(&self, hidden: &Tensor) -> Tensor {
        norm(hidden, &self.norm, self.config.norm_eps)
    }

    fn recomputed(&self, layer: usize, x: &Tensor, context: &Context) -> Tensor {
        let (block, context) = (self.blocks[layer].share(), context.share());
        let (come, go) = (self.residence.clone(), self.residence.clone());
        let run = move |x: &Tensor| {
            if let Some(residence) = &come
                && let Err(error) = residence.gather(layer)
            {
                panic!("{error}");
            }
            block.forward(x, &context)
        };
        let done = move |pass| match &go {
            None => Ok(()),
            Some(residence) => {
                if pass == Pass::Backward {
                    residence.reduce(layer)?;
                }
                residence.release(layer)
            }
        };
        // Fails only where the block itself would have.
        recompute(x, run, done).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Logits `[rows, width, vocab]`, for tests and generation; training never holds them whole.
    pub fn logits(&self, ids: &Tensor, layout: &Arc<Layout>) -> Tensor {
        self.normalised(&self.hidden(ids, layout, Recomputation::Keep))
            .linear(self.head(), None::<Tensor>)
    }
}
