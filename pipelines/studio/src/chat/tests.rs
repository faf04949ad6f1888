//! Conversations that are open, with real sessions and a scripted endpoint.

use std::sync::Arc;
use std::time::Duration;

use pybench_agent::{Format as _, PybenchFormat, ToolsFormat};
use pybench_chat::agents;
use pybench_chat::entry::{Entry, InputFile};
use pybench_chat::export::SaveAs;
use pybench_chat::settings::Settings;
use pybench_interpreter::Tier;
use pybench_llm::Reply;
use pybench_run::{FormatChoice, RunError};
use pybench_testing::endpoint::{Answer, Endpoint};
use pybench_testing::sessions::default_interpreter_works;
use pybench_types::id::Digest;
use pybench_types::observation::Observation;
use pybench_types::trajectory::{CellRun, Usage};

use super::chats::{ChatPlace, Chats, MAX_CHATS, choose_format};
use super::open_chat::Order;
use super::topic::Topic;
use super::view::{ChatItemKind, ChatRequest, items};
use crate::model_choice::{ModelChoice, ModelEndpoint, ModelPlace};
use crate::shared_models::SharedModels;

const LONG: Duration = Duration::from_secs(600);

fn begin(agent: &str) -> ChatRequest {
    ChatRequest {
        agent: Some(agent.to_owned()),
        conversation: None,
        about: None,
        format: None,
        endpoint: None,
        file: None,
    }
}

/// Conversations in a folder, with the agent `m` at an endpoint and one that is no model.
fn chats(folder: &tempfile::TempDir, endpoint: &Endpoint, lease: Duration) -> Arc<Chats> {
    chats_at(place(folder, endpoint), lease)
}

fn chats_at(place: ChatPlace, lease: Duration) -> Arc<Chats> {
    let models = Arc::new(SharedModels::new(place.models.root.clone()));
    Arc::new(Chats::with_lease(place, models, lease))
}

fn place(folder: &tempfile::TempDir, endpoint: &Endpoint) -> ChatPlace {
    let recipe = folder.path().join("r.toml");
    let text = format!(
        "name = 't'\n[agents.m]\nkind = 'openai'\nmodel = 'm'\nbase_url = '{}'\n\
         [agents.reference]\nkind = 'script'\nscript = 'reference'\n",
        endpoint.base_url()
    );
    std::fs::write(&recipe, text).unwrap();
    let models = ModelPlace {
        root: folder.path().to_owned(),
        recipe,
        runs_dir: folder.path().join("runs"),
        history: folder.path().join("chat"),
        may_name: true,
    };
    ChatPlace {
        models,
        profile: None,
    }
}

/// The same place, where other people may use the pages.
fn hosted(mut place: ChatPlace) -> ChatPlace {
    place.models.may_name = false;
    place
}

#[test]
fn replies_have_their_cells_and_messages_their_numbers() {
    let format = ToolsFormat;
    let both = format
        .write_steps("Both.", &["a".into(), "b".into()])
        .unwrap();
    let reply = |content: &str| Entry::Reply {
        reply: Reply {
            content: content.to_owned(),
            usage: Usage::default(),
            truncated: false,
            repetition: false,
        },
    };
    let run = |cell: &str| Entry::Run {
        run: CellRun {
            cell: Some(cell.to_owned()),
            observation: Observation::default(),
        },
        stopped_by_person: false,
    };
    let message = |text: &str| Entry::Message {
        text: text.to_owned(),
    };
    let file = InputFile {
        name: "a.csv".to_owned(),
        id: Digest::of_bytes(b""),
        size: 0,
    };
    let entries = [
        Entry::File(file),
        message("first"),
        reply(&both),
        run("a"),
        run("b"),
        reply("Finished: 1"),
        message("second"),
        Entry::PartialReply {
            text: "It".to_owned(),
        },
    ];
    let items = items(&entries, &format, 0);
    use ChatItemKind::{File, Message, Reply as Answered, Stopped};
    let kinds: Vec<_> = items.iter().map(|item| (item.kind, item.number)).collect();
    assert_eq!(
        kinds,
        [
            (File, 0),
            (Message, 1),
            (Answered, 0),
            (Answered, 0),
            (Message, 2),
            (Stopped, 0)
        ]
    );
    let turn = items[2].turn.as_ref().unwrap();
    let cells: Vec<_> = turn.cells.iter().map(|cell| cell.code.as_deref()).collect();
    assert_eq!((&*turn.text, cells), ("Both.", vec![Some("a"), Some("b")]));
    assert!(items[3].turn.as_ref().unwrap().cells.is_empty());
    for from in 0..=items.len() {
        assert_eq!(super::view::items(&entries, &format, from), items[from..]);
    }
    assert_eq!(super::view::items(&entries, &format, 99), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_are_open_as_can_be_and_those_that_nobody_asks_for_end() {
    if !default_interpreter_works() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::always(Answer::Hang).await;
    let chats = chats(&folder, &endpoint, Duration::from_secs(3));
    let mut ids = Vec::new();
    for _ in 0..MAX_CHATS {
        let open = chats.open(&begin("m"), None).await.unwrap().unwrap();
        // One that works ends too.
        open.order(Order::Send("Hello".to_owned())).unwrap();
        ids.push(open.id.clone());
    }
    assert!(chats.open(&begin("m"), None).await.unwrap().is_none());
    let ended = async {
        while chats.open(&begin("m"), None).await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(LONG, ended).await.unwrap();
    // What was saved is there.
    let listed = chats.list().unwrap();
    assert_eq!(listed.agents, ["m"]);
    assert_eq!(listed.conversations.len(), MAX_CHATS);
    assert!(listed.conversations.iter().all(|one| one.title == "Hello"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_order_is_in_work_and_can_be_stopped() {
    if !default_interpreter_works() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::start(|request| async move {
        match request["messages"].to_string().contains("Wait") {
            true => Answer::Pieces(vec!["tick ".to_owned(); 2000], Duration::from_millis(200)),
            false => Answer::Content(PybenchFormat.write_answer("Yes.")),
        }
    })
    .await;
    let chats = chats(&folder, &endpoint, LONG);
    let open = chats.open(&begin("m"), None).await.unwrap().unwrap();
    open.order(Order::Send("Are you there?".to_owned()))
        .unwrap();
    let idle = async || {
        while open.view(0, 0).working {
            open.changed(open.view(0, 0).version, LONG).await;
        }
        open.view(0, 0)
    };
    let view = idle().await;
    assert_eq!((view.items.len(), &*view.problem), (2, ""), "{view:?}");
    open.order(Order::Send("Wait".to_owned())).unwrap();
    let refused = open.order(Order::Retry);
    assert!(matches!(refused, Err(RunError::Conflict(_))), "{refused:?}");
    while !open.view(0, 0).reply.contains("tick") {
        open.changed(open.view(0, 0).version, LONG).await;
    }
    // What was saved can be exported meanwhile.
    for form in [SaveAs::Notebook, SaveAs::Json, SaveAs::Html] {
        let text = open.export(form);
        assert!(text.contains("Are you there?"), "{text}");
    }
    assert!(open.view(0, 0).working);
    open.stop();
    let view = idle().await;
    assert_eq!(view.items.last().unwrap().kind, ChatItemKind::Stopped);
    assert_eq!(view.reply, "");
    // A page that has the first three parts gets the rest; after something was taken back, it gets all.
    assert_eq!(open.view(0, 3).items.len(), view.items.len() - 3);
    open.order(Order::Edit(1, "And now?".to_owned())).unwrap();
    let view = idle().await;
    assert_eq!((view.generation, view.items.len()), (1, 2));
    assert_eq!(open.view(0, 3).from, 0);
    // What is closed takes no orders.
    chats.close(&open.id);
    let closed = async {
        while open.order(Order::Retry).is_ok() {
            idle().await;
        }
    };
    tokio::time::timeout(LONG, closed).await.unwrap();
    assert!(chats.get(&open.id).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_begins_with_the_files_and_the_query_of_a_task() {
    if !default_interpreter_works() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let answer = Answer::Content(PybenchFormat.write_answer("Three."));
    let endpoint = Endpoint::always(answer).await;
    let chats = chats(&folder, &endpoint, LONG);
    let topic = Topic {
        query: "Count the rows.".to_owned(),
        files: vec![("a.csv".to_owned(), b"a\n1\n".to_vec())],
        held_out: Vec::new(),
        task: None,
    };
    let open = chats.open(&begin("m"), Some(topic)).await.unwrap().unwrap();
    let idle = async || {
        while open.view(0, 0).working {
            open.changed(open.view(0, 0).version, LONG).await;
        }
        open.view(0, 0)
    };
    let view = idle().await;
    let texts: Vec<_> = view.items.iter().map(|item| &*item.text).collect();
    assert_eq!(texts[..2], ["a.csv", "Count the rows."], "{view:?}");
    assert!(!view.gradable);
    // It becomes a row, with its file.
    open.order(Order::Add).unwrap();
    let view = idle().await;
    assert_eq!(view.problem, "");
    assert!(view.notes[0].starts_with("added to "), "{:?}", view.notes);
    let dataset = folder.path().join("chat/dataset");
    let rows = std::fs::read_to_string(dataset.join("rows.jsonl")).unwrap();
    let row: serde_json::Value = serde_json::from_str(&rows).unwrap();
    assert_eq!(row["provenance"], "chat");
    assert_eq!(row["conversation"], open.id);
    let file = Digest::of_bytes(b"a\n1\n");
    assert_eq!(row["files"][0]["blake3"], file.as_str());
    let kept = dataset.join("files").join(&file.as_str()[..2]);
    assert!(kept.join(file.as_str()).is_file());
    let has_text = |text: &str| row["messages"].to_string().contains(text);
    assert!(has_text("Count the rows.") && has_text("Three."), "{row}");
}

#[test]
fn tasks_of_runs_need_a_sandbox() {
    let check = |tier: &str| {
        let settings = serde_json::json!({
            "label": "m", "agent": {"kind": "human"}, "interpreter": {"tier": tier}});
        let settings: Settings = serde_json::from_value(settings).unwrap();
        settings.check_for_task()
    };
    assert!(check("jail").is_ok());
    let error = check("unsandboxed").unwrap_err().to_string();
    assert!(error.contains("without a sandbox"), "{error}");
}

#[test]
fn an_agent_with_its_own_format_gets_no_other() {
    let choose = |agent: serde_json::Value| {
        let settings =
            serde_json::json!({"label": "m", "agent": agent, "interpreter": {"tier": "jail"}});
        let mut settings = serde_json::from_value(settings).unwrap();
        choose_format(&mut settings, FormatChoice::Tools).map(|()| settings.rollout.format)
    };
    let endpoint = serde_json::json!({"kind": "openai", "model": "m", "base_url": "http://h/v1"});
    assert_eq!(choose(endpoint).unwrap(), FormatChoice::Tools);
    let config = serde_json::json!({"kind": "config", "path": "m.yaml"});
    let error = choose(config).unwrap_err().to_string();
    assert!(error.contains("its own message format"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_opened_is_explained() {
    if !default_interpreter_works() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::always(Answer::Hang).await;
    let chats = chats(&folder, &endpoint, LONG);
    let neither = ChatRequest {
        agent: None,
        conversation: None,
        about: None,
        format: None,
        endpoint: None,
        file: None,
    };
    let missing = ChatRequest {
        conversation: Some("0123456789ab".to_owned()),
        ..neither.clone()
    };
    for request in [begin("reference"), begin("x"), neither, missing] {
        let error = chats.open(&request, None).await.err().unwrap();
        assert!(matches!(error, RunError::BadInput(_)), "{error}");
    }
    // None of them takes a place.
    for _ in 0..MAX_CHATS {
        assert!(chats.open(&begin("m"), None).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_person_chooses_between_prompts_and_function_calls() {
    if !default_interpreter_works() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::always(Answer::Hang).await;
    let chats = chats(&folder, &endpoint, LONG);
    for (format, expected) in [
        (None, "pybench"),
        (Some(FormatChoice::Codeact), "codeact"),
        (Some(FormatChoice::Tools), "tools"),
    ] {
        let request = ChatRequest {
            format,
            ..begin("m")
        };
        let open = chats.open(&request, None).await.unwrap().unwrap();
        assert_eq!(open.view(0, 0).format, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_names_an_endpoint() {
    if !default_interpreter_works() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let answer = Answer::Content(ToolsFormat.write_answer("Yes."));
    let endpoint = Endpoint::always(answer).await;
    let named = ModelEndpoint {
        address: endpoint.base_url(),
        model: "other".to_owned(),
        key_env: None,
    };
    let request = ChatRequest {
        agent: None,
        endpoint: Some(named.clone()),
        ..begin("m")
    };
    let chats = chats(&folder, &endpoint, LONG);
    assert_eq!(chats.list().unwrap().endpoints, Some(Vec::new()));
    let open = chats.open(&request, None).await.unwrap().unwrap();
    open.order(Order::Send("Are you there?".to_owned()))
        .unwrap();
    while open.view(0, 0).working {
        open.changed(open.view(0, 0).version, LONG).await;
    }
    let view = open.view(0, 0);
    assert_eq!((view.items.len(), &*view.problem), (2, ""), "{view:?}");
    assert_eq!((&*view.agent, &*view.format), ("other", "tools"));
    assert_eq!(chats.list().unwrap().endpoints, Some(vec![named.clone()]));
    // What cannot be used is not remembered.
    let wrong = ModelEndpoint {
        key_env: Some("PYBENCH_TEST_VARIABLE_THAT_IS_NOT_SET".to_owned()),
        ..named.clone()
    };
    let wrong = ChatRequest {
        endpoint: Some(wrong),
        ..request.clone()
    };
    let both = ChatRequest {
        agent: Some("m".to_owned()),
        ..request.clone()
    };
    for request in [wrong, both] {
        let error = chats.open(&request, None).await.err().unwrap();
        assert!(matches!(error, RunError::BadInput(_)), "{error}");
    }
    assert_eq!(chats.list().unwrap().endpoints, Some(vec![named]));
    // Where other people may use the studio, nobody names one.
    let shared = chats_at(hosted(place(&folder, &endpoint)), LONG);
    assert_eq!(shared.list().unwrap().endpoints, None);
    let error = shared.open(&request, None).await.err().unwrap();
    assert!(error.to_string().contains("--host"), "{error}");
}

#[tokio::test]
async fn a_saved_conversation_sends_keys_only_where_a_new_one_may() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::always(Answer::Hang).await;
    let own = place(&folder, &endpoint);
    let shared = ChatPlace {
        profile: Some(folder.path().join("profile.toml")),
        ..own.clone()
    };
    let hosted = hosted(own.clone());
    let [own, shared, hosted] = [own, shared, hosted].map(|place| chats_at(place, LONG));
    let check = |chats: &Chats, address: &str, key: Option<&str>| {
        chats.check_saved(&agents::of_endpoint("m", address, key))
    };
    let why = |checked: Result<(), RunError>| checked.unwrap_err().to_string();
    // The recipe has this one.
    for chats in [&own, &shared, &hosted] {
        check(chats, &endpoint.base_url(), None).unwrap();
    }
    // This variable is set.
    let key = Some("PATH");
    for chats in [&own, &shared] {
        let error = why(check(chats, "http://h/v1", key));
        assert!(error.contains("over https"), "{error}");
        check(chats, "https://h/v1", None).unwrap();
    }
    let error = why(check(&hosted, "https://h/v1", key));
    assert!(error.contains("--host"), "{error}");
    check(&own, "https://h/v1", key).unwrap();
    // In a shared history, somebody else may have named both.
    let error = why(check(&shared, "https://h/v1", key));
    assert!(error.contains("PATH to https://h/v1"), "{error}");
    let named = ModelEndpoint {
        address: "https://h/v1".to_owned(),
        model: "other".to_owned(),
        key_env: key.map(str::to_owned),
    };
    let models = place(&folder, &endpoint).models;
    models.remember(ModelChoice::Endpoint(&named)).await;
    check(&shared, "https://h/v1", key).unwrap();
    assert!(check(&shared, "https://i/v1", key).is_err());
    // Its cells run again when it goes on.
    let mut outside = agents::of_endpoint("m", &endpoint.base_url(), None);
    outside.interpreter.tier = Tier::Unsandboxed;
    own.check_saved(&outside).unwrap();
    let error = why(shared.check_saved(&outside));
    assert!(error.contains("without a sandbox"), "{error}");
}
