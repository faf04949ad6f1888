use std::collections::VecDeque;
use std::sync::Mutex;

use async_trait::async_trait;
use pybench_agent::{Format as _, PybenchFormat};
use pybench_eval::run::AgentChoice;
use pybench_types::observation::{Observation, Output, Stopped};
use pybench_types::trajectory::Role;

use super::*;
use crate::live::Restored;

/// A model that knows what it will say.
#[derive(Default)]
struct Scripted {
    replies: Mutex<VecDeque<Result<String, ChatError>>>,
    asked: Mutex<Vec<Vec<Message>>>,
}

#[async_trait]
impl ChatModel for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn price(&self) -> Option<Price> {
        None
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        self.asked.lock().unwrap().push(request.messages.to_vec());
        let next = self.replies.lock().unwrap().pop_front();
        next.expect("a reply").map(|content| Reply {
            content,
            usage: Usage {
                prompt_tokens: 5,
                completion_tokens: 2,
            },
            truncated: false,
            repetition: false,
        })
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    model: Arc<Scripted>,
    interpreter: Arc<dyn Interpreter>,
    settings: Settings,
}

impl Fixture {
    /// `None` where no session can be had.
    fn new() -> Option<Self> {
        Some(Self {
            folder: tempfile::tempdir().unwrap(),
            model: Arc::default(),
            interpreter: pybench_testing::sessions::interpreter()?,
            settings: Settings {
                label: "m".to_owned(),
                agent: AgentChoice::Human {},
                rollout: Default::default(),
                interpreter: Default::default(),
                budget: Default::default(),
                task: None,
            },
        })
    }

    fn history(&self) -> Arc<History> {
        Arc::new(History::open(self.folder.path()).unwrap())
    }

    fn tools(&self) -> Tools {
        Tools {
            agent: ChatAgent {
                model: self.model.clone(),
                format: &PybenchFormat,
                rollout: self.settings.rollout.clone(),
            },
            interpreter: self.interpreter.clone(),
        }
    }

    fn begin(&self) -> Conversation {
        let settings = self.settings.clone();
        Conversation::begin(self.history(), settings, self.tools(), Path::new(".")).unwrap()
    }

    fn resume(&self, id: &str) -> Conversation {
        let (history, id) = (self.history(), id.to_owned());
        Conversation::resume(history, id, self.tools(), Path::new(".")).unwrap()
    }

    /// What the model says next: cells, then an answer.
    fn says(&self, cells: &[&str]) {
        let steps = cells
            .iter()
            .map(|cell| PybenchFormat.write_step("I look.", cell));
        let answer = PybenchFormat.write_answer("Done.");
        let said = steps.chain([answer]).map(Ok);
        self.model.replies.lock().unwrap().extend(said);
    }

    fn fails(&self, error: ChatError) {
        self.model.replies.lock().unwrap().push_back(Err(error));
    }

    /// The last message that the model has read.
    fn read_last(&self) -> Message {
        let asked = self.model.asked.lock().unwrap();
        asked.last().unwrap().last().unwrap().clone()
    }
}

/// What happens in work, and its events.
async fn watch<T>(work: impl AsyncFnOnce(&Live) -> T) -> (T, Vec<Event>) {
    let (live, mut receiver) = Live::new();
    let done = work(&live).await;
    let mut events = Vec::new();
    while let Ok(event) = receiver.try_recv() {
        events.push(event);
    }
    (done, events)
}

async fn send(conversation: &mut Conversation, text: &str) -> (Work, Vec<Event>) {
    watch(async |live: &Live| conversation.send(text, live).await).await
}

/// The text that the cells of a conversation have printed.
fn printed(conversation: &Conversation) -> Vec<String> {
    let runs = conversation
        .entries()
        .iter()
        .filter_map(|entry| match entry {
            Entry::Run { run, .. } => Some(pybench_agent::observation_text(&run.observation)),
            _ => None,
        });
    runs.collect()
}

fn run(code: &str, text: &str, stopped: Option<Stopped>) -> Entry {
    let output = Output::Stream {
        name: "stdout".to_owned(),
        text: text.to_owned(),
    };
    Entry::Run {
        run: CellRun {
            cell: Some(code.to_owned()),
            observation: Observation {
                outputs: vec![output],
                error: None,
                stopped,
            },
        },
        stopped_by_person: false,
    }
}

#[tokio::test]
async fn cells_run_and_entries_are_shown_when_they_are_saved() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let mut conversation = fixture.begin();
    let (live, _receiver) = Live::new();
    conversation.put_file("a.txt", b"four", &live).unwrap();
    fixture.says(&["print(open('data/a.txt').read())"]);
    let (ended, events) = send(&mut conversation, "Read it.\n").await;
    assert_eq!(ended.unwrap(), Ended::Answered);
    assert_eq!(printed(&conversation), ["four\n"]);
    let saved = events.iter().filter_map(|event| match event {
        Event::Saved(entry) => Some(entry.clone()),
        _ => None,
    });
    let saved: Vec<Entry> = saved.collect();
    // The file was saved before.
    assert_eq!(saved, conversation.entries()[1..]);
    let id = conversation.id().to_owned();
    let on_disk = fixture.history().read(&id).unwrap();
    assert_eq!(on_disk.entries, conversation.entries());
    let spent = conversation.spending().unwrap();
    assert_eq!((spent.calls, spent.tokens, spent.uncertain), (2, 14, 0));
    let texts: String = events
        .iter()
        .filter_map(|event| match event {
            Event::ReplyText(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert!(
        texts.contains("I look.") && texts.ends_with("Done."),
        "{texts}"
    );
    let files = conversation.files(&live).await.unwrap();
    assert!(files.iter().any(|file| file.path == "data/a.txt"));
    conversation.close().await;
}

#[tokio::test]
async fn what_is_taken_back_is_taken_back_in_the_session_too() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let mut conversation = fixture.begin();
    for cell in ["x = 1", "x = 5"] {
        fixture.says(&[cell]);
        send(&mut conversation, "Set it.").await.0.unwrap();
    }
    fixture.says(&["print(x)"]);
    let (ended, events) =
        watch(async |live: &Live| conversation.edit(2, "Show it.", live).await).await;
    ended.unwrap();
    assert_eq!(printed(&conversation).last().unwrap(), "1\n");
    let restored = Restored {
        cells: 1,
        ..Restored::default()
    };
    assert!(events.contains(&Event::Restored(restored)), "{events:?}");
    fixture.says(&["print(x + 1)"]);
    let (ended, _) = watch(async |live: &Live| conversation.regenerate(live).await).await;
    ended.unwrap();
    assert_eq!(printed(&conversation), ["", "2\n"]);
    let texts = conversation.messages().into_iter();
    let texts = texts.filter(|message| message.role == Role::User);
    let texts: Vec<String> = texts.map(|message| message.content).collect();
    assert!(texts.contains(&"Show it.".to_owned()));
    assert_eq!(texts.iter().filter(|text| *text == "Set it.").count(), 1);
    let (refused, _) = watch(async |live: &Live| conversation.edit(3, "No.", live).await).await;
    assert!(matches!(refused, Err(RunError::BadInput(_))));
    // Nothing is deleted.
    let saved = fixture.history().read(conversation.id()).unwrap().entries;
    assert!(saved.len() > conversation.entries().len() + 4);
    conversation.close().await;
}

#[tokio::test]
async fn a_session_is_restored_and_what_differs_is_named() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let (history, id) = (fixture.history(), new_id());
    history.begin(&id, &fixture.settings).unwrap();
    let entries = [
        run("x = 1\nprint(x)", "1\n", None),
        run("print(x + 1)", "7\n", None),
        run("while True: pass", "", Some(Stopped::Interrupted)),
        run("import os\nos._exit(1)", "", Some(Stopped::Died)),
        run("y = 3\nprint('x' in globals())", "False\n", None),
    ];
    for (position, entry) in entries.iter().enumerate() {
        history.append(&id, position as u64, entry).unwrap();
    }
    let mut conversation = fixture.resume(&id);
    let (restored, events) = watch(async |live: &Live| conversation.restore(live).await).await;
    assert!(restored.unwrap());
    let expected = Restored {
        cells: 3,
        differing: vec![2],
        skipped: vec![3, 4],
    };
    assert_eq!(events.last(), Some(&Event::Restored(expected)));
    fixture.says(&["print(y)"]);
    send(&mut conversation, "Show it.").await.0.unwrap();
    assert_eq!(printed(&conversation).last().unwrap(), "3\n");
    conversation.close().await;
}

#[tokio::test]
async fn a_person_stops_a_cell_and_the_model_is_told() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let mut conversation = fixture.begin();
    fixture.says(&["x = 2\nprint('begun', flush=True)\nimport time\ntime.sleep(600)"]);
    let (live, mut events) = Live::new();
    let stop = live.stop.clone();
    let stopping = async {
        while let Some(event) = events.recv().await {
            if matches!(&event, Event::Output(Output::Stream { text, .. }) if text.contains("begun"))
            {
                stop.request();
                return;
            }
        }
    };
    let (ended, ()) = tokio::join!(conversation.send("Wait.", &live), stopping);
    assert_eq!(ended.unwrap(), Ended::Stopped);
    // The person writes instead of letting it go on; the session has kept its variables.
    fixture.model.replies.lock().unwrap().clear();
    fixture.says(&["print(x)"]);
    send(&mut conversation, "Show it.").await.0.unwrap();
    assert_eq!(printed(&conversation).last().unwrap(), "2\n");
    let messages = conversation.messages();
    let told = messages
        .iter()
        .filter(|message| message.content.contains("The user stopped the cell"));
    assert_eq!(told.count(), 1);
    conversation.close().await;
}

#[tokio::test]
async fn work_that_failed_or_reached_a_limit_goes_on() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    fixture.settings.rollout.max_turns = 2;
    let mut conversation = fixture.begin();
    fixture.fails(ChatError::Server(500));
    let (failed, _) = send(&mut conversation, "Count.").await;
    assert!(matches!(failed, Err(RunError::Endpoint(_))), "{failed:?}");
    fixture.says(&["print(1)", "print(2)", "print(3)"]);
    for expected in [Ended::MaxTurns, Ended::Answered] {
        let (ended, _) = watch(async |live: &Live| conversation.go_on(live).await).await;
        assert_eq!(ended.unwrap(), expected);
    }
    assert_eq!(printed(&conversation), ["1\n", "2\n", "3\n"]);
    // The call that failed may have been charged.
    let spent = conversation.spending().unwrap();
    assert_eq!((spent.calls, spent.uncertain), (5, 1));
    // A reply that violates the format is answered without the person.
    let violation = Ok("```python\nnever closed".to_owned());
    fixture.model.replies.lock().unwrap().push_back(violation);
    fixture.says(&[]);
    send(&mut conversation, "Again.").await.0.unwrap();
    assert!(fixture.read_last().content.contains("No code was run"));
    conversation.close().await;
}

#[tokio::test]
async fn unsuitable_messages_files_and_budgets_are_refused() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    fixture.settings.budget.tokens = Some(1_500);
    fixture.settings.interpreter.limits.file_mib = 1;
    let mut conversation = fixture.begin();
    let (live, _receiver) = Live::new();
    for name in [
        "",
        ".hidden",
        "a/b",
        "..",
        "a\nb",
        &"a".repeat(MAX_NAME + 1),
    ] {
        let refused = conversation.put_file(name, b"", &live);
        assert!(matches!(refused, Err(RunError::BadInput(_))), "{name:?}");
    }
    let large = vec![0; (1 << 20) + 1];
    assert!(conversation.put_file("a", &large, &live).is_err());
    for text in [" \n", &"a".repeat(MAX_MESSAGE + 1)] {
        let refused = conversation.send(text, &live).await;
        assert!(matches!(refused, Err(RunError::BadInput(_))));
    }
    assert!(!conversation.is_saved());
    // The system prompt and a reply of 1,000 tokens may need more.
    let refused = conversation.send("Hello", &live).await;
    assert!(matches!(refused, Err(RunError::Budget(_))), "{refused:?}");
    assert!(fixture.model.asked.lock().unwrap().is_empty());
    conversation.close().await;
}
