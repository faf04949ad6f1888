//! How the expert writes its solutions.

use super::*;

#[test]
fn the_expert_varies_with_the_sample_and_copies_what_it_saw() {
    let made = (0..40)
        .filter_map(|seed| task(seed, false))
        .find(|made| made.task.outputs.is_empty())
        .unwrap();
    let cells = |sample| {
        script::Script::new(&made.task, sample, None)
            .unwrap()
            .cells()
            .join("\n")
    };
    let different: BTreeSet<String> = (0..8).map(cells).collect();
    assert!(different.len() > 2, "{different:?}");
    let script = script::Script::new(&made.task, 0, None).unwrap();
    let seen = vec!["answer: 12.3456789"; script.cells().len()];
    let script::Action::Answer(answer) = script.next(&seen).unwrap() else {
        panic!("no answer after all cells");
    };
    assert!(answer.ends_with(": 12.3456789"), "{answer}");
    let blind = vec!["nothing"; script.cells().len()];
    assert!(matches!(
        script.next(&blind),
        Err(script::ScriptError::NoAnswer)
    ));
}

#[test]
fn the_expert_keeps_to_the_idioms_that_are_allowed() {
    let tasks = (0..40).filter_map(|seed| task(seed, false));
    let mut idioms = BTreeSet::new();
    for made in tasks {
        for sample in 0..8 {
            let cells = |allowed: &[Idiom]| {
                let script = script::Script::in_style(
                    &made.task,
                    sample,
                    None,
                    StyleChoice::varied(allowed),
                );
                script.unwrap().cells().join("\n")
            };
            let idiom = |cells: &str| match cells {
                _ if cells.contains(":memory:") => "sqlite",
                _ if cells.contains("pd.read_") => "pandas",
                _ => "plain",
            };
            idioms.insert(idiom(&cells(&Idiom::ALL)));
            assert_eq!(idiom(&cells(&[Idiom::Pandas])), "pandas");
            assert_ne!(idiom(&cells(&[Idiom::Sqlite])), "plain");
        }
    }
    assert!(idioms.len() > 1, "{idioms:?}");
}

#[test]
fn some_varied_solutions_check_their_result() {
    // Answers and files, each without and with a check.
    let mut seen = [[0; 2]; 2];
    for made in (0..40).filter_map(|seed| task(seed, false)) {
        for sample in 0..6 {
            let script = script::Script::new(&made.task, sample, None).unwrap();
            let cells = script.cells();
            let last = *cells.last().unwrap();
            let is_file = !last.contains("\"answer:\"");
            let checks = match is_file {
                true => last.contains("\nassert os.path.getsize(\"./"),
                false => [".head(3).to_string(", "[:3]:\n    print(row)"]
                    .iter()
                    .any(|shows| last.contains(shows)),
            };
            seen[usize::from(is_file)][usize::from(checks)] += 1;
        }
    }
    assert!(
        seen.as_flattened().iter().all(|count| *count > 0),
        "{seen:?}"
    );
}

/// The cells before the first step show and load the file; only its path and its options differ.
#[test]
fn uniform_solutions_have_the_same_frame() {
    let mut frames = BTreeSet::new();
    let made = (0..60).filter_map(|seed| task(seed, false));
    let made = made
        .filter(|made| matches!(made.task.files.as_slice(), [file] if file.kind == FileKind::Csv));
    let mut tasks = 0;
    for made in made {
        tasks += 1;
        let file = &made.task.files[0];
        let choice = StyleChoice {
            idioms: &Idiom::ALL,
            variety: Variety::Uniform,
        };
        let script = |sample| script::Script::in_style(&made.task, sample, None, choice).unwrap();
        let (first, second) = (script(0), script(1));
        assert_eq!(first.cells(), second.cells(), "samples are alike");
        let cells = first.cells();
        let raw = cells[0].replace(&inputs::path(file), "PATH");
        let load = cells[1].replace(&code::read_expression(file), "READ");
        assert!(load.contains("df = READ"), "{load}");
        frames.insert((raw, load));
    }
    assert!(tasks >= 5, "only {tasks} tasks");
    assert_eq!(frames.len(), 1, "{frames:?}");
}

#[test]
fn each_kind_of_mistake_is_made_in_one_cell_and_repaired_in_the_next() {
    let mut kinds = BTreeSet::new();
    for made in (0..160).filter_map(|seed| task(seed, seed % 2 == 0)) {
        for sample in 0..3 {
            let plain = script::Script::new(&made.task, sample, None).unwrap();
            let script = script::Script::new(&made.task, sample, None)
                .unwrap()
                .with_slip();
            let Some(slip) = script.slip() else {
                continue;
            };
            kinds.insert(slip.kind);
            let cells = script.cells();
            assert_eq!(cells.len(), plain.cells().len() + 1);
            assert_eq!(
                (cells[slip.at], cells[slip.at + 1]),
                (&*slip.wrong, &*slip.repaired)
            );
            assert_ne!(slip.wrong, slip.repaired, "{:?}", slip.kind);
            assert!(
                slip.repaired.ends_with(plain.cells()[slip.at]),
                "{:?}",
                slip.kind
            );
            let seen = vec!["answer: 1"; slip.at + 1];
            let script::Action::Step { thought, cell } = script.next(&seen).unwrap() else {
                panic!("the repair is a step");
            };
            assert_eq!((thought, cell), (slip.en.clone(), slip.repaired.clone()));
        }
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}

#[test]
fn files_that_were_seen_are_loaded_in_the_cell_of_the_steps() {
    for made in (0..40).filter_map(|seed| task(seed, seed % 2 == 0)) {
        let new = || script::Script::new(&made.task, 0, None).unwrap();
        let (plain, whole) = (new(), new().in_one_cell());
        let is_program = made.task.outputs.iter().any(|path| path.ends_with(".py"));
        assert_eq!(plain.cells() == whole.cells(), is_program);
        let code = |script: &script::Script<'_>| {
            let text = script.cells().join("\n");
            let lines = text.lines().filter(|line| {
                !line.is_empty() && !line.starts_with("import ") && !line.starts_with("from ")
            });
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(code(&plain), code(&whole));
        let seen = vec!["answer: 1"; whole.cells().len()];
        let says = |at: usize| match whole.next(&seen[..at]).unwrap() {
            script::Action::Step { thought, .. } => thought.contains(&made.task.files[0].name),
            script::Action::Answer(_) => false,
        };
        assert!((0..seen.len()).any(says));
    }
}

proptest::proptest! {
    /// What is written to a csv file is read back.
    #[test]
    fn written_tables_are_read_back(texts in proptest::collection::vec("[ -~é数]{0,12}", 3..20), tab in proptest::bool::ANY) {
        let texts: Vec<String> = texts.iter().map(|text| format!("x{text}x")).collect();
        let numbers: Vec<i64> = (0..texts.len() as i64).collect();
        let columns = vec![Column::new("a b".into(), texts), Column::new("n".into(), numbers)];
        let data = DataFrame::new(columns[0].len(), columns).unwrap();
        let (kind, separator) = if tab { (FileKind::Tsv, '\t') } else { (FileKind::Csv, ',') };
        let bytes = rename::csv(&data, separator).into_bytes();
        let (read, _) = pybench_profile::frame(kind, &bytes).unwrap();
        proptest::prop_assert!(same(&read, &data, true), "{read:?}");
    }
}

/// One cell does all steps and nothing is read back; all cells together are shorter than the uniform ones.
#[test]
fn brief_solutions_are_shorter_than_uniform_ones() {
    let mut tasks = 0;
    for made in (0..60).filter_map(|seed| task(seed, false)) {
        let script = |variety, sample| {
            let choice = StyleChoice {
                idioms: &[Idiom::Pandas],
                variety,
            };
            script::Script::in_style(&made.task, sample, None, choice).unwrap()
        };
        let (brief, uniform) = (script(Variety::Brief, 0), script(Variety::Uniform, 0));
        assert_eq!(
            brief.cells(),
            script(Variety::Brief, 1).cells(),
            "samples are alike"
        );
        if made.task.outputs.iter().any(|path| path.ends_with(".py")) {
            continue;
        }
        tasks += 1;
        // A look, loading, and the steps.
        assert!(brief.cells().len() <= 3, "{:?}", brief.cells());
        let length = |script: &script::Script<'_>| script.cells().concat().len();
        assert!(length(&brief) < length(&uniform), "{:?}", brief.cells());
    }
    assert!(tasks >= 20, "only {tasks} tasks");
}

/// The first bytes are enough only where the first line says how a file is read.
#[test]
fn a_brief_look_at_a_file_with_other_numbers_shows_all_that_says_so() {
    let choice = StyleChoice {
        idioms: &[Idiom::Pandas],
        variety: Variety::Brief,
    };
    let first = |made: &Made| {
        let script = script::Script::in_style(&made.task, 0, None, choice).unwrap();
        script.cells()[0].to_owned()
    };
    let mut tasks = 0;
    for mut made in (0..60).filter_map(|seed| task(seed, false)) {
        let [file] = made.task.files.as_slice() else {
            continue;
        };
        if file.kind != FileKind::Csv {
            continue;
        }
        tasks += 1;
        assert!(first(&made).starts_with("print(open("), "{}", first(&made));
        let format = made.task.files[0].format.get_or_insert_default();
        format.read.thousands = Some('.');
        assert!(first(&made).contains("re.findall"));
    }
    assert!(tasks >= 5, "only {tasks} tasks");
}
