//! Embeddings are paid for once per text and sample.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pybench_llm::{Embedder, Limits, Metered, OpenAiOptions, ResponseCache, Vector};
use pybench_run::{BudgetCap, Price, Reservation, RunFolder};
use pybench_testing::endpoint::{Answer, Endpoint};
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, Role, Sampling, Trajectory};
use serde_json::json;

const FREE: BudgetCap = BudgetCap {
    micro_usd: None,
    tokens: None,
};

fn embedder(server: &Endpoint, folder: &Arc<RunFolder>) -> Metered<Embedder> {
    let model = Embedder::new(OpenAiOptions {
        model: "e".into(),
        base_url: server.base_url(),
        key: None,
        headers: BTreeMap::new(),
        price: Some(Price {
            prompt: 1.0,
            completion: 0.0,
        }),
        timeout: Duration::from_secs(60),
        extra: serde_json::Map::new(),
        restore_python_tag: false,
    });
    let (model, limits) = (model.unwrap(), Limits::default());
    Metered::embedder(model, Vec::new(), limits, folder.clone(), FREE, "query")
}

#[tokio::test]
async fn an_embedding_is_priced_and_paid_for_once_over_runs() {
    let server = Endpoint::always(Answer::Place(vec![3.0, 4.0])).await;
    let cache = tempfile::tempdir().unwrap();
    for spent in [7, 0] {
        let at = tempfile::tempdir().unwrap();
        let folder = Arc::new(RunFolder::open(at.path(), "").unwrap());
        let metered = embedder(&server, &folder);
        let metered = metered.with_cache(ResponseCache::new(cache.path(), "e"));
        for _ in 0..2 {
            let vector = metered.embed("a text", 0).await.unwrap();
            assert_eq!(vector, Vector::of(&[3.0, 4.0]).unwrap());
        }
        assert_eq!(folder.journal().spent().unwrap().micro_usd, spent);
    }
    assert_eq!(server.call_count(), 1);
}

/// The journal holds an embedding as the reply of a conversation that consists of the text.
#[tokio::test]
async fn an_embedding_in_the_journal_is_not_paid_for_again() {
    let server = Endpoint::always(Answer::Hang).await;
    let at = tempfile::tempdir().unwrap();
    let folder = Arc::new(RunFolder::open(at.path(), "").unwrap());
    let sampling = Sampling {
        temperature: 0.0,
        top_p: 1.0,
        max_tokens: 0,
    };
    let key = Digest::of_bytes(b"a text");
    let trajectory = Trajectory::compute_id(&key, "openai:e", &sampling, "query", 3);
    let messages = [Message::new(Role::User, "a text")];
    let stop: [String; 0] = [];
    let vector = Vector::of(&[3.0, 4.0]).unwrap();
    let settled = json!({
        "request": Digest::of_json(&(messages, sampling, stop)),
        "reply": {
            "content": String::from(vector.clone()),
            "usage": {"prompt_tokens": 7, "completion_tokens": 0},
            "truncated": false,
        },
    });
    let (call, paid) = (
        format!("{trajectory}/0/0"),
        Reservation {
            micro_usd: 7,
            tokens: 7,
        },
    );
    folder.journal().reserve(&call, paid, FREE).unwrap();
    folder.journal().settle(&call, paid, &settled).unwrap();
    let metered = embedder(&server, &folder);
    assert_eq!(metered.embed("a text", 3).await.unwrap(), vector);
    assert_eq!(server.call_count(), 0);
}
