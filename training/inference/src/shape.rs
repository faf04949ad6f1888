//! What a model is like, without its parameters.

/// Dimensions and constants of a model. Sizes are in numbers.
#[derive(Clone, Debug)]
pub struct Shape {
    pub hidden: usize,
    pub intermediate: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub vocab: usize,
    pub norm_eps: f32,
    /// Whether the output matrix is that of the embedding.
    pub tied: bool,
    /// For each block the tokens that a token attends to, itself included; `None` for all.
    pub windows: Vec<Option<usize>>,
    /// Rotary frequencies, radians per token, `head_dim / 2`.
    pub frequencies: Vec<f32>,
}
