//! Composes graphs over a table with every kind of column.

mod file_typos;
mod first_look;
mod idioms;
mod joined_files;
mod less_precise;
mod models;
mod programs;
mod proofs;
pub(crate) mod related;
mod several_files;
mod several_numbers;
mod solutions;

use std::collections::BTreeSet;

use polars::prelude::*;
use pybench_types::held_out::HeldOutRule;
use pybench_types::task::{FileKind, Language, Profile, SourceFile};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::alike::same;
use crate::argument::{Notation, fill};
use crate::code::{Idiom, StyleChoice, Variety};
use crate::draw::Draw;
use crate::prove::survivor;

/// Numbers, whole numbers with gaps, categories, names, gaps in a text, truth values and days.
fn table(rows: usize) -> Frame {
    let at = |i: usize| (i * 7919 + 13) % 1009;
    let price = (0..rows).map(|i| 5.0 + at(i) as f64 / 8.0);
    let amount = (0..rows).map(|i| (i % 9 != 4).then_some((at(i + 3) % 90) as i64 - 20));
    let region = (0..rows).map(|i| ["north", "south", "east", "west"][at(i) % 4]);
    let product = (0..rows).map(|i| ["lamp", "desk", "chair"][at(i + 1) % 3]);
    let name = (0..rows).map(|i| format!("item {i:03}"));
    let note = (0..rows)
        .map(|i| (i % 5 != 0).then_some(["new stock", "old stock", "sold out"][at(i) % 3]));
    let open = (0..rows).map(|i| at(i) % 3 == 0);
    let day = (0..rows).map(|i| {
        format!(
            "202{}-{:02}-{:02}",
            at(i) % 4,
            at(i) % 12 + 1,
            at(i) % 28 + 1
        )
    });
    let columns = vec![
        Column::new("price".into(), price.collect::<Vec<_>>()),
        Column::new("amount".into(), amount.collect::<Vec<_>>()),
        Column::new(
            "cost".into(),
            (0..rows).map(|i| at(i + 5) as f64).collect::<Vec<_>>(),
        ),
        Column::new("region".into(), region.collect::<Vec<_>>()),
        Column::new("product".into(), product.collect::<Vec<_>>()),
        Column::new("name".into(), name.collect::<Vec<_>>()),
        Column::new("note".into(), note.collect::<Vec<_>>()),
        Column::new("open".into(), open.collect::<Vec<_>>()),
        Column::new("day".into(), day.collect::<Vec<_>>()),
    ];
    Frame::new(DataFrame::new(rows, columns).unwrap())
}

/// Codes with a year, a separator and digits, and numbers that stand in clusters.
fn codes() -> Frame {
    let rows = 60;
    let code = |i: usize| {
        let color = ["Blue7", "Red12", "Green3"][i * i % 3];
        format!("Lot {}-{color}", 2015 + i * 7 % 6)
    };
    let columns = vec![
        Column::new("code".into(), (0..rows).map(code).collect::<Vec<_>>()),
        Column::new(
            "mass".into(),
            (0..rows).map(|i| (i * i) as i64 + 1).collect::<Vec<_>>(),
        ),
        Column::new(
            "load".into(),
            (0..rows)
                .map(|i| (i * i * i % 97 + i) as i64)
                .collect::<Vec<_>>(),
        ),
    ];
    Frame::new(DataFrame::new(rows, columns).unwrap())
}

/// A row for three of the four regions and for one that no table has.
fn lookup() -> Frame {
    let columns = vec![
        Column::new("region".into(), vec!["south", "west", "centre", "north"]),
        Column::new("tax".into(), vec![7_i64, 19, 3, 11]),
        Column::new("zone".into(), vec!["a", "b", "a", "b"]),
    ];
    Frame::new(DataFrame::new(4, columns).unwrap())
}

fn other(path: &str, frame: Frame) -> OtherTable {
    OtherTable {
        path: path.to_owned(),
        frame: std::sync::Arc::new(frame),
    }
}

/// A Markdown text with all that is extracted from texts, a log, a gray and an RGB picture, a mono and a stereo sound.
fn contents() -> Vec<Frame> {
    let part = |at: usize| {
        format!(
            "{} Part {at}\n\nThe Lamp costs {at}.5 on 2024-05-{:02} at 10:{:02}, says lamp@shop{at}.org.\n\
             \"Lamp {at}\" is   item AB-{at} of https://shop.org/{at}.\n\n",
            "#".repeat(at % 3 + 1),
            at + 1,
            at + 10
        )
    };
    let text: String = (1..12).map(part).collect();
    let log = |at: usize| {
        format!(
            "2024-05-0{} {} host-{} sent {at} bytes to  node\n",
            at % 9 + 1,
            ["INFO", "WARN"][at % 2],
            at % 3
        )
    };
    let log: String = (0..40).map(log).collect();
    let picture = |channels| {
        Picture::from_fn(60, 48, channels, |x, y, channel| {
            ((x * x / 9 + y * 3 + channel * 40 + x * y / 5) % 256) as u8 & 0xf0
        })
    };
    let sound = |channels: usize| Sound {
        rate: 8_000,
        channels,
        samples: (0..8_000 * channels)
            .map(|at| ((at as f64 * 0.07).sin() * (at % 4_001 + 2_000) as f64) as i16)
            .collect(),
    };
    let blocks = (0..40).map(|at| pybench_profile::Block {
        text: format!(
            "{} of the {at} lamps, desk {}",
            ["One", "Some", "All"][at % 3],
            at * at
        ),
        level: [1, 0, 0, 2, 0][at % 5],
        page: 0,
    });
    let cells = |at: usize| {
        [
            format!("Quay {at}"),
            format!("{}", at * at % 23),
            format!("{}.5", at * 7),
        ]
    };
    let table =
        std::iter::once(["quay", "depth", "length"].map(str::to_owned)).chain((0..14).map(cells));
    let table: pybench_profile::Cells = table.map(Vec::from).collect();
    let document = Document {
        blocks: blocks.collect(),
        tables: Tables::Word(vec![table.clone()]),
        ..Document::default()
    };
    let page = Document {
        tables: Tables::Page(vec![table]),
        ..document.clone()
    };
    let wide = |at: usize| {
        let [quay, depth, length] = cells(at);
        let kind = ["dry", "wet", "old"][at % 3].to_owned();
        vec![quay, depth, length, kind, format!("{}", at * 17 % 41)]
    };
    let header = ["quay", "depth", "length", "kind", "cranes"].map(str::to_owned);
    let wide = std::iter::once(header.to_vec()).chain((0..32).map(wide));
    let ruled = Document {
        paged: true,
        tables: Tables::Ruled(vec![wide.collect()]),
        ..document.clone()
    };
    let mut pages = Document {
        paged: true,
        tables: Tables::None,
        ..document.clone()
    };
    for (at, line) in pages.blocks.iter_mut().enumerate() {
        (line.level, line.page) = (0, at / 6 + 1);
    }
    let contents = [
        Content::Document(document.into()),
        Content::Document(page.into()),
        Content::Document(pages.into()),
        Content::Document(ruled.into()),
        Content::Text(text.into()),
        Content::Text(log.into()),
        Content::Picture(picture(1).into()),
        Content::Picture(picture(3).into()),
        Content::Sound(sound(1).into()),
        Content::Sound(sound(2).into()),
    ];
    contents.map(Frame::of_content).into()
}

fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// The table as a crawled file.
fn file(frame: &Frame) -> (SourceFile, Vec<u8>) {
    let bytes = rename::csv(&frame.data, ',').into_bytes();
    let file = pybench_profile::source_file("stock.csv", FileKind::Csv, &bytes);
    assert!(
        matches!(file.profile, Profile::Table(_)),
        "{:?}",
        file.profile
    );
    (file, bytes)
}

fn task(seed: u64, renamed: bool) -> Option<Made> {
    let (file, bytes) = file(&table(120));
    let seed = TaskSeed {
        foreign_names: None,
        seed,
        language: Language::En,
        medium: Medium::Table,
        messy: false,
        renamed,
        avoided: &HeldOutRule::default(),
    };
    make(&file, &bytes, seed, |keyword| format!("of {keyword}")).unwrap()
}

/// A name that a wording or code has and the operation does not draw would reach the query as `$name`.
#[test]
fn every_operation_draws_what_its_wordings_and_code_name() {
    // Small and whole, with a duplicate row, and summarized: each operation fits one of them.
    let whole = table(60);
    let doubled = {
        let twice = [whole.lazy().limit(20), whole.lazy().limit(24)];
        Frame::new(
            concat(twice, UnionArgs::default())
                .unwrap()
                .collect()
                .unwrap(),
        )
    };
    let small = Frame::new(whole.lazy().limit(12).collect().unwrap());
    let with_lookup = whole
        .clone()
        .with_others(vec![other("./data/towns.csv", lookup())]);
    let second = Frame::new(whole.lazy().slice(30, 30).collect().unwrap());
    let in_parts = Frame::new(whole.lazy().limit(30).collect().unwrap());
    let in_parts = in_parts.with_others(vec![other("./data/b.csv", second)]);
    let facts = lookup().with_others(vec![other("./data/sales.csv", table(60))]);
    let (codes, contents) = (codes(), contents());
    let all = [
        &whole,
        &doubled,
        &small,
        &with_lookup,
        &in_parts,
        &facts,
        &codes,
    ];
    let all: Vec<&Frame> = all.into_iter().chain(&contents).collect();
    let mut drawn = BTreeSet::new();
    for operation in operations::all() {
        assert!(
            !operation.en.is_empty() && !operation.zh.is_empty(),
            "{operation:?} is not said in both languages"
        );
        assert!(!operation.pandas.is_empty(), "{operation:?} has no code");
        let fitting = all.iter().filter(|frame| frame.medium() == operation.input);
        let fitting: Vec<&Frame> = fitting.copied().collect();
        for (seed, frame) in
            (0..60).flat_map(|seed| fitting.iter().map(move |frame| (seed, *frame)))
        {
            let Some(arguments) = operation.arguments(Draw::new(frame, &mut rng(seed))) else {
                continue;
            };
            let codes = operation
                .pandas
                .iter()
                .chain(&operation.python)
                .chain(&operation.sql);
            let said = operation.en.iter().chain(&operation.zh);
            for pattern in codes.chain(said) {
                let extra = [("t", "df"), ("path", "p"), ("title", "t"), ("file", "o")];
                let extra = [&extra[..], &[("source", "x"), ("input", "i")]].concat();
                let filled = fill(pattern, &arguments, Notation::Python, &extra);
                assert!(!filled.contains('$'), "{operation:?}: {filled}");
            }
            let step = Step {
                operation: operation.name.clone(),
                arguments,
            };
            step.apply(frame)
                .unwrap_or_else(|error| panic!("{operation:?}: {error}"));
            if !drawn.insert(operation.name.as_str()) {
                break;
            }
        }
    }
    let never: Vec<_> = operations::all()
        .filter(|o| !drawn.contains(o.name.as_str()))
        .collect();
    assert!(never.is_empty(), "never drawn: {never:?}");
    assert!(drawn.len() >= 80, "{} operations", drawn.len());
}

/// A graph with a changed step meets contents that its arguments were not drawn for.
#[test]
fn every_operation_takes_every_content_of_its_medium() {
    let contents = contents();
    let mut taken = 0;
    for operation in operations::all().filter(|operation| operation.input != Medium::Table) {
        for (seed, frame) in (0..4).flat_map(|seed| contents.iter().map(move |frame| (seed, frame)))
        {
            let Some(arguments) = operation.arguments(Draw::new(frame, &mut rng(seed))) else {
                continue;
            };
            let step = Step {
                operation: operation.name.clone(),
                arguments,
            };
            for other in &contents {
                let result = step.apply(other);
                taken += usize::from(result.is_ok());
                assert!(
                    result.is_err() || operation.input == other.medium(),
                    "{operation:?}"
                );
            }
        }
    }
    assert!(taken > 1_000, "{taken} results");
}

#[test]
fn a_proven_graph_on_each_content_ends_with_a_file_or_an_answer() {
    for start in contents() {
        let mut skeletons = BTreeSet::new();
        for seed in 0..60 {
            let Some(composed) = compose(&start, &HeldOutRule::default(), &mut rng(seed)) else {
                continue;
            };
            let skeleton = composed.graph.skeleton();
            let mut steps = composed.graph.0.clone();
            steps.remove(0);
            let without = Graph(steps).evaluate(&start);
            let resembles = |result: &Frame| {
                result.content.resembles(&composed.result.content)
                    && same(&result.data, &composed.result.data, composed.result.ordered)
            };
            assert!(
                !without.is_ok_and(|result| resembles(&result)),
                "{skeleton}"
            );
            skeletons.insert(skeleton);
        }
        assert!(skeletons.len() >= 8, "{:?}: {skeletons:?}", start.medium());
        let ends = |ending: &str| skeletons.iter().any(|skeleton| skeleton.contains(ending));
        assert!(ends(">save_") && ends(">answer_"), "{skeletons:?}");
    }
}

#[test]
fn a_task_on_a_picture_expects_a_file_that_only_the_checker_sees() {
    let picture = Picture::from_fn(90, 70, 3, |x, y, channel| {
        (x * 3 + y * y + channel * 50) as u8
    });
    let bytes = picture.encoded(FileKind::Png).unwrap();
    let (csv, _) = file(&table(30));
    let source = SourceFile {
        id: pybench_types::id::Digest::of_bytes(&bytes),
        name: "map.png".into(),
        kind: FileKind::Png,
        profile: pybench_profile::profile(FileKind::Png, &bytes),
        ..csv
    };
    assert_eq!(media_of(&source), [Medium::Picture]);
    let makes = |seed: u64| {
        let seed = TaskSeed {
            foreign_names: None,
            seed,
            language: Language::En,
            medium: Medium::Picture,
            messy: false,
            renamed: seed.is_multiple_of(2),
            avoided: &HeldOutRule::default(),
        };
        make(&source, &bytes, seed, str::to_owned).unwrap()
    };
    let made: Vec<Made> = (0..40)
        .filter_map(makes)
        .filter(|made| !made.task.held_out.is_empty())
        .collect();
    assert!(made.len() >= 5, "only {} tasks", made.len());
    for Made { task, files } in made {
        let [expected] = task.held_out.as_slice() else {
            panic!("{:?}", task.held_out);
        };
        assert_eq!(expected.derived_from.as_ref(), Some(&source.id));
        let bytes = files
            .iter()
            .find(|bytes| pybench_types::id::Digest::of_bytes(bytes) == expected.id);
        assert!(Picture::read(FileKind::Png, bytes.unwrap()).is_some());
        assert!(task.reference.contains("held_out") && !task.query.contains("held_out"));
        assert_eq!(task.category, pybench_types::task::Category::ImageAudio);
    }
}

#[test]
fn the_same_seed_gives_the_same_task_and_another_gives_another() {
    let of = |seed| (seed..seed + 20).find_map(|seed| task(seed, true)).unwrap();
    let (one, again, other) = (of(1), of(1), of(100));
    assert_eq!(one.task, again.task);
    assert_eq!(one.files, again.files);
    assert_ne!(one.task.id, other.task.id);
}

#[test]
fn a_renamed_file_has_none_of_the_names_and_derives_from_the_crawled_one() {
    let made = (0..20).find_map(|seed| task(seed, true)).unwrap();
    let text = String::from_utf8(made.files[0].clone()).unwrap();
    for name in ["price", "region", "north", "lamp"] {
        let cell = |c: char| !c.is_alphanumeric() && c != '_';
        assert!(
            !text.split(cell).any(|word| word == name),
            "`{name}` is in\n{text}"
        );
    }
    let (source, _) = file(&table(120));
    assert_eq!(made.task.files[0].derived_from.as_ref(), Some(&source.id));
    assert_ne!(made.task.files[0].id, source.id);
}

#[test]
fn the_slices_of_whole_numbers_are_shares() {
    let columns = vec![
        Column::new("town".into(), vec!["Oslo", "Bergen", "Tromsø"]),
        Column::new("entries".into(), vec![1_u32, 2, 5]),
    ];
    let step = Step {
        operation: "pie_chart".into(),
        arguments: argument::Arguments::new([
            ("label", argument::Argument::Column("town".into())),
            ("column", argument::Argument::Column("entries".into())),
        ]),
    };
    let frame = Frame::new(DataFrame::new(3, columns).unwrap());
    let shares = step.apply(&frame).unwrap().data;
    let shares = shares.column("entries").unwrap().f64().unwrap();
    let shares: Vec<f64> = shares.iter().flatten().collect();
    assert_eq!(shares, [0.25, 0.125, 0.625], "by label");
}

#[test]
fn what_is_avoided_is_in_no_task() {
    let rule = HeldOutRule {
        seed: 5,
        operations: 0.2,
        pairs: 0.2,
        wordings: 0.2,
        names: BTreeSet::from(["answer_mean".to_owned()]),
    };
    let (file, bytes) = file(&table(120));
    let held_out = |avoided: &HeldOutRule| {
        let tasks = (0..80).filter_map(|seed| {
            let seed = TaskSeed {
                foreign_names: None,
                seed,
                language: [Language::En, Language::Zh][seed as usize % 2],
                medium: Medium::Table,
                messy: false,
                renamed: false,
                avoided,
            };
            make(&file, &bytes, seed, str::to_owned).unwrap()
        });
        let unseen: Vec<_> = tasks.map(|made| rule.of_task(&made.task)).collect();
        assert!(unseen.len() > 20, "only {} tasks", unseen.len());
        unseen.into_iter().flatten().collect::<BTreeSet<_>>()
    };
    assert_eq!(held_out(&rule), BTreeSet::new());
    assert_eq!(
        held_out(&HeldOutRule::default()).len(),
        3,
        "otherwise there are all three kinds"
    );
}

#[test]
fn wordings_are_named_as_the_queries_name_them() {
    let made = (0..40).filter_map(|seed| task(seed, false));
    let wordings = made.flat_map(|made| pybench_types::held_out::composition(&made.task).1);
    let wordings: BTreeSet<String> = wordings.collect();
    assert!(wordings.len() > 20, "{wordings:?}");
    for name in &wordings {
        assert!(is_wording(name), "{name}");
    }
    for name in ["style/en/99", "filter_above", "nothing/en/0", "style/fr/0"] {
        assert!(!is_wording(name), "{name}");
    }
}

#[test]
fn a_query_says_nothing_of_a_messy_file_and_the_expert_reads_it_as_it_is() {
    let (source, bytes) = file(&table(120));
    let makes = |seed: u64| {
        let seed = TaskSeed {
            foreign_names: None,
            seed,
            language: [Language::En, Language::Zh][seed as usize % 2],
            medium: Medium::Table,
            messy: true,
            renamed: seed.is_multiple_of(2),
            avoided: &HeldOutRule::default(),
        };
        make(&source, &bytes, seed, str::to_owned).unwrap()
    };
    let made: Vec<Made> = (0..80).filter_map(makes).collect();
    assert!(made.len() >= 15, "only {} tasks", made.len());
    let mut misread = BTreeSet::new();
    for Made { task, .. } in &made {
        for misreading in misread::misreadings(task) {
            let right = script::Script::misread(task, None).unwrap();
            let wrong = script::Script::misread(task, Some(&misreading)).unwrap();
            assert!(right.cells()[0].contains(&misreading.right));
            assert_ne!(right.cells()[0], wrong.cells()[0], "{}", misreading.what);
            misread.insert(misreading.what);
        }
        let file = &task.files[0];
        let format = file.format.as_ref().unwrap();
        let encoding = format.encoding.as_deref().unwrap_or("utf-8");
        assert!(!format.read.is_default() || encoding != "utf-8", "{file:?}");
        for said in [
            "\nAbout",
            "\n关于",
            "decimal comma",
            "小数点",
            "表头有",
            "表头从",
        ] {
            assert!(!task.query.contains(said), "{}", task.query);
        }
        let script = script::Script::new(task, 0, None).unwrap();
        assert!(script.cells()[0].contains(&file.name));
    }
    for what in [
        "decimal comma read as thousands",
        "units not removed",
        "day and month swapped",
        "second header row taken as data",
        "wrong encoding",
    ] {
        assert!(misread.contains(what), "{what} is missing in {misread:?}");
    }
}
