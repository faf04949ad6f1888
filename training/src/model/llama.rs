//! The model and its forward pass.

use std::sync::Arc;

use tch::{Device, Kind, Tensor, no_grad};

use super::attention::attend;
use super::config::ModelConfig;
use super::layout::Layout;
use super::nf4::{Nf4, ScaleFormat};
use super::sharding::{GatherGuard, ParamSharding, ShardUnit};
use crate::torch::fused::{self, Sequences};
use crate::torch::kernels;

/// A LoRA adapter: adds `scale · B · A` to a matrix.
#[derive(Debug)]
pub struct Lora {
    /// `[rank, in]`.
    pub a: Tensor,
    /// `[out, rank]`, initially zero.
    pub b: Tensor,
    /// `alpha / rank`.
    pub scale: f64,
    /// Dropout on the input of the adapter during training.
    pub dropout: Option<Dropout>,
}

/// Dropout with an explicit seed, so that a block that is recomputed drops the same elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability that an element is dropped, in [0, 1); the others are scaled up.
    pub probability: f64,
    /// Differs for each matrix and each forward pass.
    pub seed: i64,
}

impl Dropout {
    fn apply(self, x: &Tensor) -> Tensor {
        let _seeded = crate::random::seed(self.seed);
        if x.device().is_cuda() {
            // In one kernel, with a mask of one byte per element.
            return x.dropout(self.probability, true);
        }
        let kept = no_grad(|| {
            let drawn = Tensor::rand(x.size(), (Kind::Float, x.device()));
            drawn.ge(self.probability).to_kind(x.kind()) / (1.0 - self.probability)
        });
        x * kept
    }
}

/// `x · matrixᵀ + bias`.
pub(super) fn multiplied(x: &Tensor, matrix: &Tensor, bias: Option<&Tensor>) -> Tensor {
    match fused::supports(x) {
        true => fused::linear(x, matrix, bias),
        false => x.linear(matrix, bias),
    }
}

impl Lora {
    fn forward(&self, x: &Tensor) -> Tensor {
        let low = match self.dropout {
            Some(dropout) => multiplied(&dropout.apply(x), &self.a, None),
            None => multiplied(x, &self.a, None),
        };
        multiplied(&(low * self.scale), &self.b, None)
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

/// `x · Wᵀ + b`, plus the LoRA adapter.
#[derive(Debug)]
pub struct Linear {
    /// `[out, in]`; a zero expanded to that shape if `quantized` holds the values.
    pub weight: Tensor,
    pub bias: Option<Tensor>,
    pub lora: Option<Lora>,
    /// The values in NF4.
    pub quantized: Option<Nf4>,
}

impl Linear {
    /// Whether there is neither quantization nor an adapter.
    fn is_plain(&self) -> bool {
        self.quantized.is_none() && self.lora.is_none()
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let y = match &self.quantized {
            None => multiplied(x, &self.weight, self.bias.as_ref()),
            Some(quantized) => quantized.linear(x, self.bias.as_ref()),
        };
        match &self.lora {
            None => y,
            Some(lora) => y + lora.forward(x),
        }
    }

    /// Replaces the matrix by its NF4 form.
    pub fn quantize(&mut self, scales: ScaleFormat) {
        let quantized = Nf4::quantize(&self.weight, scales);
        let zero = Tensor::zeros([1, 1], (self.weight.kind(), self.weight.device()));
        self.weight = zero.expand(self.weight.size(), true);
        self.quantized = Some(quantized);
    }

    fn share(&self) -> Self {
        Self {
            weight: self.weight.shallow_clone(),
            bias: self.bias.as_ref().map(Tensor::shallow_clone),
            lora: self.lora.as_ref().map(Lora::share),
            quantized: self.quantized.as_ref().map(Nf4::share),
        }
    }

    /// Dequantizes the matrix and merges the LoRA adapter into it.
    pub fn merge(&mut self) {
        if let Some(quantized) = self.quantized.take() {
            self.weight = quantized.dequantize();
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

#[derive(Debug)]
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
    /// The matrices with their Hugging Face names.
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

    /// Every parameter of this block, as in [`Model::parameters`].
    pub fn parameters(&self, layer: usize) -> Vec<(String, Tensor)> {
        let mut all = vec![];
        self.share().visit(|name, tensor| {
            all.push((
                format!("model.layers.{layer}.{name}"),
                tensor.shallow_clone(),
            ));
        });
        all
    }

    /// Replaces each parameter by `change(name, tensor)`, with the names of [`Block::parameters`].
    pub fn replace_parameters(
        &mut self,
        layer: usize,
        mut change: impl FnMut(&str, &Tensor) -> Tensor,
    ) {
        self.visit(|name, tensor| {
            *tensor = change(&format!("model.layers.{layer}.{name}"), tensor);
        });
    }

    /// Calls `each(name, tensor)` for every parameter, always in the same order.
    fn visit(&mut self, mut each: impl FnMut(&str, &mut Tensor)) {
        each("input_layernorm.weight", &mut self.input_norm);
        each("post_attention_layernorm.weight", &mut self.post_norm);
        for (name, linear) in self.linears_mut() {
            if linear.quantized.is_none() {
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

    /// A block that shares the tensors of this one.
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

    pub(super) fn forward(&self, x: &Tensor, context: &Context) -> Tensor {
        self.apply(x, context, |q, k, v| {
            let sequences = context.sequences.as_ref();
            attend(q, k, v, &context.layout, sequences, self.window)
        })
    }

    /// The block with a given attention over rotated queries and keys.
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
            false if fused::supports(gate) => self.down.forward(&fused::swiglu(gate, up)),
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

/// Inputs that all blocks of one forward pass share.
pub(super) struct Context {
    layout: Arc<Layout>,
    /// Sequences of the layout, if the GPU kernels are used.
    sequences: Option<Sequences>,
    /// `[rows, width, head_dim]`: float32 for fused operations, otherwise the dtype of the model.
    cos: Tensor,
    sin: Tensor,
    head_dim: i64,
    eps: f64,
}

impl Context {
    pub(super) fn new(model: &Model, layout: &Arc<Layout>) -> Self {
        let positions = layout.positions(model.embed.device());
        Self::at(model, layout, &positions)
    }

    /// With explicit positions `[rows, width]` (int64).
    pub(super) fn at(model: &Model, layout: &Arc<Layout>, positions: &Tensor) -> Self {
        let kind = match fused::supports(&model.embed) {
            true => Kind::Float,
            false => model.embed.kind(),
        };
        let frequencies = Tensor::from_slice(&model.config.frequencies());
        let frequencies = frequencies.to_device(model.embed.device());
        let angles = positions.to_kind(Kind::Float).unsqueeze(-1) * frequencies;
        let angles = Tensor::cat(&[&angles, &angles], -1);
        let sequences = || layout.sequences(model.embed.device());
        Self {
            layout: layout.clone(),
            sequences: kernels::apply_to(&model.embed).then(sequences),
            cos: angles.cos().to_kind(kind),
            sin: angles.sin().to_kind(kind),
            head_dim: model.config.head_dim,
            eps: model.config.norm_eps,
        }
    }

    /// Applies rotary positions to `[rows, width, heads * head_dim]`.
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

#[derive(Debug)]
pub struct Model {
    pub config: ModelConfig,
    /// `[vocab, hidden]`.
    pub embed: Tensor,
    pub blocks: Vec<Block>,
    pub norm: Tensor,
    /// `[vocab, hidden]`; `None` when tied.
    pub head: Option<Tensor>,
    /// Gathers parameters that are sharded over several processes.
    pub sharding: Option<Arc<dyn ParamSharding>>,
}

impl Model {
    /// Builds a model from `get(name, shape)`, with Hugging Face parameter names.
    pub fn build<E>(
        config: ModelConfig,
        get: impl FnMut(&str, &[i64]) -> Result<Tensor, E>,
    ) -> Result<Self, E> {
        Self::build_blocks(config, get, |_, _| Ok(()))
    }

    /// Like [`Model::build`]; calls `finish(layer, block)` before the next block is built.
    pub fn build_blocks<E>(
        config: ModelConfig,
        mut get: impl FnMut(&str, &[i64]) -> Result<Tensor, E>,
        mut finish: impl FnMut(usize, &mut Block) -> Result<(), E>,
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
                    quantized: None,
                })
            };
            let mut block = Block {
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
            };
            finish(layer, &mut block)?;
            blocks.push(block);
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
            sharding: None,
            config,
        })
    }

    /// Names and shapes of all parameters of a model with this configuration.
    pub fn parameter_shapes(config: &ModelConfig) -> Vec<(String, Vec<i64>)> {
        let mut all = vec![];
        let built = Self::build(config.clone(), |name, shape| {
            all.push((name.to_owned(), shape.to_vec()));
            Ok::<_, std::convert::Infallible>(Tensor::new())
        });
        match built {
            Ok(_) => all,
            Err(never) => match never {},
        }
    }

    /// A model with small random parameters.
    pub fn random(config: ModelConfig, seed: i64, kind: Kind, device: Device) -> Self {
        let _seeded = crate::random::seed(seed);
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

    /// Every parameter with its Hugging Face name, in a fixed order; LoRA parameters have PEFT names. Quantized
    /// matrices are not included.
    pub fn parameters(&self) -> Vec<(String, Tensor)> {
        let mut all = vec![(
            "model.embed_tokens.weight".to_owned(),
            self.embed.shallow_clone(),
        )];
        for (layer, block) in self.blocks.iter().enumerate() {
            all.extend(block.parameters(layer));
        }
        all.push(("model.norm.weight".into(), self.norm.shallow_clone()));
        if let Some(head) = &self.head {
            all.push(("lm_head.weight".into(), head.shallow_clone()));
        }
        all
    }

    /// Replaces each parameter by `change(name, tensor)`.
    pub fn replace_parameters(&mut self, mut change: impl FnMut(&str, &Tensor) -> Tensor) {
        self.embed = change("model.embed_tokens.weight", &self.embed);
        for (layer, block) in self.blocks.iter_mut().enumerate() {
            block.replace_parameters(layer, &mut change);
        }
        self.norm = change("model.norm.weight", &self.norm);
        if let Some(head) = &mut self.head {
            *head = change("lm_head.weight", head);
        }
    }

    /// Merges the adapters into their matrices, one at a time.
    pub fn merge_adapters(&mut self) {
        for block in &mut self.blocks {
            for (_, linear) in block.linears_mut() {
                linear.merge();
            }
        }
    }

    /// Gathers a unit of sharded parameters for the lifetime of the guard; `None` if the model is not sharded.
    pub(super) fn gathered(&self, unit: ShardUnit) -> Option<GatherGuard> {
        let sharding = self.sharding.clone()?;
        Some(sharding.gather_guard(unit))
    }

    /// The unit that holds the output matrix.
    pub fn head_unit(&self) -> ShardUnit {
        match self.head {
            Some(_) => ShardUnit::Head,
            None => ShardUnit::Embedding,
        }
    }

    /// The output matrix, `[vocab, hidden]`.
    pub fn head(&self) -> &Tensor {
        self.head.as_ref().unwrap_or(&self.embed)
    }

    /// Rows of the embedding for tokens `[rows, width]` (int64).
    pub(super) fn embed_tokens(&self, ids: &Tensor) -> Tensor {
        let _guard = self.gathered(ShardUnit::Embedding);
        match fused::supports(&self.embed) {
            true => fused::embed(&self.embed, ids),
            false => Tensor::embedding(&self.embed, ids, -1, false, false),
        }
    }

    /// Hidden states `[rows, width, hidden]` from the rows of the embedding, before the final norm. All activations
    /// are kept for a backward pass, which a sharded model does not support here.
    pub(super) fn hidden_of(&self, mut x: Tensor, layout: &Arc<Layout>) -> Tensor {
        let context = Context::new(self, layout);
        for (layer, block) in self.blocks.iter().enumerate() {
            let _guard = self.gathered(ShardUnit::Block(layer));
            x = block.forward(&x, &context);
        }
        x
    }

    pub(super) fn final_norm(&self, hidden: &Tensor) -> Tensor {
        norm(hidden, &self.norm, self.config.norm_eps)
    }

    /// Logits `[rows, width, vocab]`, for tests and generation. Training computes them in chunks.
    pub fn logits(&self, ids: &Tensor, layout: &Arc<Layout>) -> Tensor {
        let hidden = self.final_norm(&self.hidden_of(self.embed_tokens(ids), layout));
        multiplied(&hidden, self.head(), None)
    }
}
