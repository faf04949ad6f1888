//! Embedding models behind OpenAI-compatible endpoints.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::budget::CallLookup;
use super::http::Transport;
use super::lenient;
use super::openai::{Endpoint, OpenAiOptions, redact};
use super::settled::PaidReply;
use super::{ChatError, ChatRequest, Limits, Metered, OpenAi};
use pybench_run::{BudgetCap, RunFolder};
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, Role, Sampling, Usage};

/// Maximum dimension of a vector.
const MAX_DIMENSION: usize = 16_384;

/// A text embedding, normalized to length 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Vector(Vec<f32>);

impl Vector {
    /// Normalizes `numbers`; `None` if they are empty, too many, all zero, or not finite.
    pub fn of(numbers: &[f64]) -> Option<Self> {
        let length = numbers.iter().map(|n| n * n).sum::<f64>().sqrt();
        let valid = length.is_normal() && numbers.len() <= MAX_DIMENSION;
        valid.then(|| Self(numbers.iter().map(|n| (n / length) as f32).collect()))
    }

    /// Cosine similarity; `None` if the dimensions differ.
    pub fn cosine(&self, other: &Self) -> Option<f32> {
        let product = || self.0.iter().zip(&other.0).map(|(a, b)| a * b).sum();
        (self.0.len() == other.0.len()).then(product)
    }
}

impl From<Vector> for String {
    /// Base64 of little-endian 32-bit floats.
    fn from(vector: Vector) -> Self {
        let bytes: Vec<u8> = vector.0.iter().flat_map(|n| n.to_le_bytes()).collect();
        STANDARD.encode(bytes)
    }
}

impl TryFrom<String> for Vector {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = STANDARD.decode(text).map_err(|_| "not base64")?;
        let (numbers, rest) = bytes.as_chunks::<4>();
        let numbers: Vec<f64> = numbers
            .iter()
            .map(|n| f32::from_le_bytes(*n).into())
            .collect();
        match rest {
            [] => Self::of(&numbers).ok_or("not a valid vector"),
            _ => Err("truncated vector"),
        }
    }
}

/// An embedding model behind an endpoint.
pub struct Embedder {
    options: OpenAiOptions,
    endpoint: Endpoint,
    transport: Transport,
}

impl fmt::Debug for Embedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `SecretString` prints itself redacted.
        f.debug_struct("Embedder")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Embedder {
    /// Creates the embedder without sending anything. Fails as [`OpenAi::new`](super::OpenAi::new).
    pub fn new(options: OpenAiOptions) -> Result<Self, ChatError> {
        Ok(Self {
            endpoint: Endpoint::new(&options)?,
            transport: Transport::new(options.timeout)?,
            options,
        })
    }

    /// Makes one attempt at the embedding of a text.
    async fn embed(&self, text: &str) -> Result<Embedding, ChatError> {
        let body = json!({
            "model": self.options.model, "input": [text], "encoding_format": "float",
        });
        let (url, headers) = self.endpoint.at("/embeddings");
        match self.transport.post(&url, headers, &body).await {
            Ok(answer) => read_answer(answer),
            Err(error) => Err(redact(&self.options, error)),
        }
    }
}

/// A paid embedding; journal and cache store the vector as `content`, like the text of a chat reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Embedding {
    #[serde(rename = "content")]
    vector: Vector,
    usage: Usage,
}

impl PaidReply for Embedding {
    fn usage(&self) -> Usage {
        self.usage
    }

    fn discard_usage(&mut self) {
        self.usage = Usage::default();
    }

    fn generated_bytes(&self) -> u64 {
        0
    }
}

impl Metered<Embedder> {
    /// A metered embedder with several keys; arguments as in [`Metered::with_keys`].
    pub fn embedder(
        model: Embedder,
        more: Vec<Embedder>,
        limits: Limits,
        folder: Arc<RunFolder>,
        cap: BudgetCap,
        format: &'static str,
    ) -> Self {
        let named = (OpenAi::name_of(&model.options.model), model.options.price);
        let models = std::iter::once(model).chain(more);
        Self::of(named, models, limits, folder, cap, format)
    }

    /// The embedding of a text. It is recorded like a conversation that consists of the text and generates no
    /// tokens.
    pub async fn embed(&self, text: &str, sample: u32) -> Result<Vector, ChatError> {
        let call = self.call(&ChatRequest {
            key: &Digest::of_bytes(text.as_bytes()),
            sample,
            messages: &[Message::new(Role::User, text)],
            sampling: &Sampling {
                temperature: 0.0,
                top_p: 1.0,
                max_tokens: 0,
            },
            stop: &[],
            pictures: &[],
        });
        let embedding: Embedding = match self.recall(&call)? {
            CallLookup::Settled(embedding) => embedding,
            CallLookup::Pending => return Err(ChatError::Deferred),
            CallLookup::Missing(id) => {
                self.pay(id, &call, |model| Box::pin(model.embed(text)))
                    .await?
            }
        };
        Ok(embedding.vector)
    }
}

/// The relevant part of a response.
#[derive(Deserialize)]
struct Answer {
    data: Vec<EmbeddingItem>,
    #[serde(default)]
    usage: Value,
}

#[derive(Deserialize)]
struct EmbeddingItem {
    embedding: Vec<f64>,
}

fn read_answer(answer: Value) -> Result<Embedding, ChatError> {
    let malformed = |what: String| ChatError::Malformed(what);
    let answer: Answer = serde_json::from_value(answer)
        .map_err(|error| malformed(format!("not a list of embeddings: {error}")))?;
    let [item] = &answer.data[..] else {
        let count = answer.data.len();
        return Err(malformed(format!("{count} embeddings for one text")));
    };
    let vector = Vector::of(&item.embedding);
    let vector =
        vector.ok_or_else(|| malformed("the embedding is not a valid vector".to_owned()))?;
    Ok(Embedding {
        vector,
        usage: Usage {
            prompt_tokens: lenient::count(&answer.usage["prompt_tokens"]).unwrap_or(0),
            completion_tokens: 0,
        },
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn responses_without_a_valid_vector_are_malformed() {
        let good =
            json!({"data": [{"index": 0, "embedding": [3, 4]}], "usage": {"prompt_tokens": 7}});
        let embedding = read_answer(good).unwrap();
        assert_eq!(embedding.usage.prompt_tokens, 7);
        assert_eq!(embedding.vector, Vector(vec![0.6, 0.8]));
        for (usage, tokens) in [
            (json!({"prompt_tokens": "7"}), 7),
            (json!({"prompt_tokens": null}), 0),
            (json!([1, 2]), 0),
        ] {
            let lenient = json!({"data": [{"embedding": [3, 4]}], "usage": usage});
            assert_eq!(read_answer(lenient).unwrap().usage.prompt_tokens, tokens);
        }
        let long = vec![1; MAX_DIMENSION + 1];
        for answer in [
            json!({}),
            json!({"data": []}),
            json!({"data": [{"embedding": [1]}, {"embedding": [1]}]}),
            json!({"data": [{"embedding": []}]}),
            json!({"data": [{"embedding": [0, 0]}]}),
            json!({"data": [{"embedding": ["a"]}]}),
            json!({"data": [{"embedding": "AAAA"}]}),
            json!({"data": [{"embedding": [1e300, 1e300]}]}),
            json!({"data": [{"embedding": long}]}),
        ] {
            let error = read_answer(answer).unwrap_err();
            assert_eq!(error.kind(), "malformed");
        }
    }

    #[test]
    fn cosines_need_equal_dimensions() {
        let of = |numbers: &[f64]| Vector::of(numbers).unwrap();
        assert_eq!(of(&[1.0, 0.0]).cosine(&of(&[0.0, 2.0])), Some(0.0));
        assert_eq!(of(&[1.0, 0.0]).cosine(&of(&[-3.0, 0.0])), Some(-1.0));
        assert_eq!(of(&[1.0]).cosine(&of(&[1.0, 0.0])), None);
    }

    proptest! {
        #[test]
        fn serialized_vectors_parse_back(numbers in proptest::collection::vec(-1e6..1e6, 1..40)) {
            prop_assume!(numbers.iter().any(|n: &f64| n.abs() > 1.0));
            let vector = Vector::of(&numbers).unwrap();
            let read = Vector::try_from(String::from(vector.clone())).unwrap();
            prop_assert!((read.cosine(&vector).unwrap() - 1.0).abs() < 1e-5);
        }
    }

    #[test]
    fn fuzz_responses_and_vectors_never_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(value) = serde_json::from_slice(bytes) {
                let _ = read_answer(value);
            }
            let _ = Vector::try_from(String::from_utf8_lossy(bytes).into_owned());
            let _ = Vector::try_from(STANDARD.encode(bytes));
        });
    }
}
