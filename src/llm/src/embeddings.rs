//! Embedding models behind OpenAI-compatible endpoints.
//!
//! Embeddings are requested through [`ChatModel`], so that the journal, the budget and the response cache work
//! for them as well. The text is the last message; the content of the reply is a serialized [`Vector`].

use std::fmt;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::http::Transport;
use super::openai::{Endpoint, OpenAiOptions, redact};
use super::{ChatError, ChatModel, ChatRequest, Reply};
use pybench_run::Price;
use pybench_types::trajectory::Usage;

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
    name: String,
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
            name: format!("openai:{}", options.model),
            endpoint: Endpoint::new(&options)?,
            transport: Transport::new(options.timeout)?,
            options,
        })
    }
}

#[async_trait]
impl ChatModel for Embedder {
    fn name(&self) -> &str {
        &self.name
    }

    fn price(&self) -> Option<Price> {
        self.options.price
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        let text = request.messages.last().map(|message| &message.content);
        let body = json!({
            "model": self.options.model, "input": [text], "encoding_format": "float",
        });
        let (url, headers) = self.endpoint.at("/embeddings");
        let answer = self.transport.post(&url, headers, &body).await;
        match answer {
            Ok(answer) => read_answer(answer),
            Err(error) => Err(redact(&self.options, error)),
        }
    }
}

/// The relevant part of a response.
#[derive(Deserialize)]
struct Answer {
    data: Vec<EmbeddingItem>,
    #[serde(default)]
    usage: Option<TokenCounts>,
}

#[derive(Deserialize)]
struct EmbeddingItem {
    embedding: Vec<f64>,
}

#[derive(Deserialize)]
struct TokenCounts {
    #[serde(default)]
    prompt_tokens: u64,
}

fn read_answer(answer: Value) -> Result<Reply, ChatError> {
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
    Ok(Reply {
        content: vector.into(),
        usage: Usage {
            prompt_tokens: answer.usage.map_or(0, |counts| counts.prompt_tokens),
            completion_tokens: 0,
        },
        truncated: false,
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
        let reply = read_answer(good).unwrap();
        assert_eq!(reply.usage.prompt_tokens, 7);
        let vector = Vector::try_from(reply.content).unwrap();
        assert_eq!(vector, Vector(vec![0.6, 0.8]));
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
