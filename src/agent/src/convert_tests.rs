use proptest::prelude::*;

use super::*;
use crate::{CodeActFormat, CodeInterpreterFormat, ToolsFormat};
use crate::{PybenchFormat, PybenchShortFormat};

const FORMATS: [&dyn Format; 5] = [
    &PybenchFormat,
    &PybenchShortFormat,
    &CodeActFormat,
    &ToolsFormat,
    &CodeInterpreterFormat,
];

fn pairs() -> impl Iterator<Item = (&'static dyn Format, &'static dyn Format)> {
    FORMATS
        .iter()
        .flat_map(|a| FORMATS.iter().map(move |b| (*a, *b)))
}

/// Text that contains the tags of every format.
fn text() -> BoxedStrategy<String> {
    let mark = prop::sample::select(vec![
        "<|execute_start|>",
        "<|execute_end|>",
        "<execute>",
        "</execute>",
        "<solution>",
        "</solution>",
        "<tool_call>",
        "</tool_call>",
        "<|python_tag|>",
        "completed\n[stdout]\n",
        "Observation:\n",
        "Finished:\n",
        "Finished: ",
        "[INFO]This is a Code Interpreter Message:\n",
        "```python\n",
        "\n```\n",
        "\n",
        " ",
        "{\"name\": \"",
    ]);
    let piece = prop_oneof![2 => mark.prop_map(str::to_owned), 3 => "(?s).{0,12}"];
    prop::collection::vec(piece, 0..5)
        .prop_map(|pieces| pieces.concat())
        .boxed()
}

/// Text without any tags.
fn plain() -> BoxedStrategy<String> {
    "[a-zA-Z0-9 ,.()=]{1,30}(\n[a-z0-9 ()=]{1,20}){0,3}"
        .prop_filter("contains the end marker", |text| {
            !text.to_lowercase().contains("finished")
        })
        .boxed()
}

fn parts(text: BoxedStrategy<String>, most: usize) -> impl Strategy<Value = Dialogue> {
    let act = prop_oneof![
        prop::collection::vec(text.clone(), 1..=most).prop_map(Act::Cells),
        text.clone().prop_map(Act::Answer),
        Just(Act::Text),
    ];
    let said = (text.clone(), act)
        .prop_map(|(thought, act)| Part::Reply(DialogueMessage { thought, act }));
    let part = prop_oneof![
        Just(Part::System(System::Own)),
        text.clone()
            .prop_map(|text| Part::System(System::Other(text))),
        text.clone().prop_map(Part::User),
        text.prop_map(Part::Observation),
        said,
    ];
    prop::collection::vec(part, 0..6).prop_map(|parts| Dialogue { parts })
}

impl Dialogue {
    fn adapted(&self, format: &dyn Format) -> Self {
        let parts = self.parts.iter();
        Self {
            parts: parts
                .map(|part| part.adapted(format).into_owned())
                .collect(),
        }
    }
}

proptest! {
    #[test]
    fn converting_there_and_back_is_lossless(dialogue in parts(text(), 3)) {
        for (a, b) in pairs() {
            let dialogue = dialogue.adapted(b);
            let Ok(messages) = dialogue.write(a) else { continue };
            let there = match convert(&messages, a, b) {
                Ok(there) => there,
                Err(error) => {
                    prop_assert!(error.message <= messages.len() && error.format == b.name(), "{error}");
                    continue;
                }
            };
            prop_assert!(there.reworded.is_empty(), "{:?} from what {} wrote", there.reworded, a.name());
            let back = convert(&there.messages, b, a).unwrap();
            prop_assert_eq!(&back.messages, &messages, "{} {}", a.name(), b.name());
        }
    }

    #[test]
    fn content_that_every_format_supports_is_never_rejected(dialogue in parts(plain(), 1)) {
        for (a, b) in pairs() {
            let dialogue = dialogue.adapted(a);
            let messages = dialogue.write(a).unwrap();
            prop_assert_eq!(&Dialogue::read(&messages, a).unwrap(), &dialogue);
            prop_assert_eq!(convert(&messages, a, b).unwrap().messages, dialogue.write(b).unwrap());
        }
    }

    #[test]
    fn messages_either_convert_back_or_are_listed(texts in prop::collection::vec(text(), 1..4)) {
        for (a, b) in pairs() {
            let messages: Vec<_> = texts.iter().map(|text| Message::new(Role::Assistant, text)).collect();
            let Ok(there) = convert(&messages, a, b) else { continue };
            // A cell that is itself fenced cannot be written back.
            let back = convert(&there.messages, b, a);
            let same = back.is_ok_and(|back| back.messages == messages);
            prop_assert!(same || !there.reworded.is_empty(), "{} {}", a.name(), b.name());
        }
    }
}

#[test]
fn unsupported_content_is_reported() {
    let cells = |cells: &[&str]| {
        let act = Act::Cells(cells.iter().map(|cell| (*cell).to_owned()).collect());
        let thought = "t".to_owned();
        Dialogue {
            parts: vec![
                Part::User("q".into()),
                Part::Reply(DialogueMessage { thought, act }),
            ],
        }
    };
    let two = cells(&["a", "b"]);
    assert!(two.write(&ToolsFormat).is_ok());
    let error = two.write(&PybenchFormat).unwrap_err();
    assert_eq!(
        error.to_string(),
        "message 2: the format pybench cannot express several cells in one reply"
    );
    let tag = cells(&["print('</execute>')"]);
    let error = tag.write(&CodeActFormat).unwrap_err();
    assert!(error.to_string().contains("a reply with code"), "{error}");
    let written = tag.write(&PybenchFormat).unwrap();
    assert!(convert(&written, &PybenchFormat, &ToolsFormat).is_ok());

    let heard = Dialogue {
        parts: vec![Part::User("Observation:\nI saw a bird".into())],
    };
    let error = heard.write(&CodeActFormat).unwrap_err();
    assert!(error.what.contains("read as an observation"), "{error}");
}

#[test]
fn other_wordings_are_listed_and_keep_their_meaning() {
    let messages = [
        Message::new(Role::System, PybenchFormat.system()),
        Message::new(Role::Assistant, "I look.\n```python\nx = 1\n```"),
        Message::new(Role::Assistant, "**Finished:** It is 1."),
    ];
    let converted = convert(&messages, &PybenchFormat, &CodeActFormat).unwrap();
    assert_eq!(
        converted.reworded,
        [(2, "a reply with code"), (3, "an answer")]
    );
    assert_eq!(converted.messages[0].content, CodeActFormat.system());
    assert_eq!(
        converted.messages[1].content,
        "I look.\n<execute>\nx = 1\n</execute>"
    );
    assert_eq!(
        converted.messages[2].content,
        "<solution>\nIt is 1.\n</solution>"
    );
}

#[test]
fn thoughts_become_comments_where_code_has_no_other_text() {
    let messages = [
        Message::new(Role::System, PybenchFormat.system()),
        Message::new(Role::Assistant, PybenchFormat.write_step("I look.", "x")),
        Message::new(Role::Assistant, PybenchFormat.write_answer("It is 1.")),
    ];
    let converted = convert(&messages, &PybenchFormat, &CodeInterpreterFormat).unwrap();
    assert_eq!(converted.reworded, [(2, "a reply with code")]);
    assert_eq!(converted.messages[1].content, "<|python_tag|># I look.\nx");
    let back = convert(&converted.messages, &CodeInterpreterFormat, &PybenchFormat).unwrap();
    assert_eq!(back.reworded, []);
    let step = PybenchFormat.write_step("", "# I look.\nx");
    assert_eq!(back.messages[1].content, step);
}
