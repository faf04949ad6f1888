//! Tests of loading, slots, rendering and the expert.

use std::process::{Command, Stdio};
use std::sync::Arc;

use proptest::prelude::*;
use pybench_agent::{Format, Parsed, PybenchFormat, ScriptedSolver};
use pybench_run::ContentStore;
use pybench_types::id::Digest;
use pybench_types::task::{ColumnKind, FileKind, Language, Profile, SourceFile, Task};
use pybench_types::trajectory::{Message, Role};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use pybench_testing::files::*;

use super::*;

fn library() -> Library {
    Library::embedded().unwrap_or_else(|error| panic!("{error}"))
}

fn store() -> (tempfile::TempDir, ContentStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = ContentStore::open(folder.path()).unwrap();
    (folder, store)
}

fn task(library: &Library, template: &str, files: &[&SourceFile], language: Language) -> Task {
    let template = library.template(template).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let draft = Draft {
        template,
        files: files.to_vec(),
        slots: template.draw(files, &mut rng).unwrap(),
        language,
        phrasing: 0,
        seed: 7,
    };
    let (_folder, store) = store();
    draft.write(library, &store).unwrap()
}

// --- loading ---------------------------------------------------------------------------------------

#[test]
fn the_embedded_library_is_valid() {
    assert!(library().templates().len() >= 3);
    assert!(library().keywords().iter().count() >= 60);
}

fn embedded_text(name: &str) -> String {
    let mut files = embedded_files().unwrap().into_iter();
    files.find(|(file, _)| file == name).unwrap().1
}

/// The problems of the template `math-derivative` after a replacement in its text.
fn problems(from: &str, to: &str) -> String {
    let name = "templates/math/math-derivative.toml";
    let text = embedded_text(name);
    assert_eq!(text.matches(from).count(), 1, "{from}");
    let changed = text.replace(from, to);
    match parse_template(name, &changed, library().keywords()) {
        Ok(_) => "no problem".into(),
        Err(problems) => problems.iter().map(|p| format!("{p}\n")).collect(),
    }
}

#[test]
fn problems_name_file_line_and_way_out() {
    let cases = [
        ("id = \"math-derivative\"", "id = \"derivative\""),
        ("packages =", "pakages ="),
        ("category = \"math\"", "category = \"maths\""),
        ("keyword = \"derivative\"", "keyword = \"derivatives\""),
        ("keyword = \"derivative\"", "keyword = \"bar chart\""),
        ("[slots.a]\ninteger = [2, 9]", "[slots.a]\ninteger = [9, 2]"),
        (
            "[slots.a]\ninteger = [2, 9]",
            "[slots.file]\ninteger = [2, 9]",
        ),
        (
            "f(x) = {{ a }}·x^{{ n }} − {{ b }}·x²]]. Find",
            "f(x) = {{ a x]]. Find",
        ),
        ("So f'(x) = {{ formula }}.", "So f'(x) = {{ value }}."),
        ("(-?\\d+)' }\n\n[final]", "-?\\d+' }\n\n[final]"),
        ("(-?\\d+)' }\n\n[final]", "(-?\\d+' }\n\n[final]"),
        ("read = { formula = 'polynomial (.+)', ", "read = { "),
        ("check = \"number\"", "check = \"numbr\""),
        ("marker = \"Derivative\"", "marker = \"Slope\""),
        ("expected = \"expected\"", "expected = \"wanted\""),
        ("find = \"value = derivative\"", "find = \"derivate\""),
        ("turn = 1\n", "turn = 9\n"),
        (
            "name = \"wrong sign\"\nanswer =",
            "name = \"wrong sign\"\nfind =",
        ),
    ];
    let all: String = cases
        .iter()
        .map(|(from, to)| {
            format!(
                "# {}\n{}",
                to.lines().last().unwrap_or(to),
                problems(from, to)
            )
        })
        .collect();
    insta::assert_snapshot!(all);
}

/// The problems of a new template after a replacement in its text.
fn matrix_problems(keywords: &Keywords, from: &str, to: &str) -> String {
    let category = pybench_types::task::Category::Chart;
    let text = skeleton::template(keywords, "new", category, None).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{from}");
    let name = "templates/chart/new.toml";
    match parse_template(name, &text.replace(from, to), keywords) {
        Ok(_) => "no problem".into(),
        Err(problems) => problems.iter().map(|p| format!("{p}\n")).collect(),
    }
}

#[test]
fn a_template_is_in_english_alone_or_wholly_in_chinese_too() {
    let library = library();
    let keywords = library.keywords();
    let category = pybench_types::task::Category::Chart;
    let text = skeleton::template(keywords, "new", category, None).unwrap();
    let mut english: toml::Table = text.parse().unwrap();
    let remove = |value: Option<&mut toml::Value>| {
        value
            .and_then(toml::Value::as_table_mut)
            .unwrap()
            .remove("zh");
    };
    remove(english.get_mut("query"));
    let partly = toml::to_string(&english).unwrap();
    remove(english.get_mut("final"));
    for turn in english["turn"].as_array_mut().unwrap() {
        remove(turn.get_mut("thought"));
    }
    let name = "templates/chart/new.toml";
    let template = parse_template(name, &toml::to_string(&english).unwrap(), keywords).unwrap();
    assert_eq!(template.languages(), [Language::En]);
    assert!(
        parse_template(name, &partly, keywords).is_ok(),
        "spare texts do no harm"
    );
    let partly = text.replace("thought.zh", "# thought.zh");
    let problems = parse_template(name, &partly, keywords).unwrap_err();
    let problems: String = problems.iter().map(|p| p.to_string()).collect();
    assert!(problems.contains("translate all or none"), "{problems}");
}

#[test]
fn problems_of_requirements_name_what_is_missing() {
    let library = library();
    let cases = [
        // Wordings.
        ("[[unrounded|Round nothing.]]", "Round nothing."),
        ("[[unrounded|Round nothing.]]", "[[unround|Round nothing.]]"),
        ("[[unrounded|Round nothing.]]", "[[unrounded|]]"),
        (
            "[[extremes|最小值和最大值]]",
            "[[extremes|最小值]]和[[extremes|最大值]]",
        ),
        ("[[difference|两者之差]]", "[[difference|两者之差]"),
        // Requirements and checks.
        ("kind = \"names\"", "kind = \"name\""),
        (
            "extremes = { kind = \"content\", checks = [\"file\"] }",
            "extremes = { kind = \"content\", checks = [] }",
        ),
        (
            "extremes = { kind = \"content\", checks = [\"file\"] }",
            "extremes = { kind = \"content\", checks = [\"fil\"] }",
        ),
        (
            "difference != round(difference)",
            "difference != {{ valeu }}",
        ),
        ("[[check]]\nid = \"range\"\n", "[[check]]\n"),
        ("id = \"range\"", "id = \"file\""),
        ("id = \"range\"", "id = 7"),
        // Mutants and the alternative.
        ("violates = \"keys\"\n", ""),
        ("violates = \"keys\"", "violates = \"key\""),
        ("also = [\"range\"]", "also = [\"ranges\"]"),
        ("violates = \"difference\"\n", "also = [\"file\"]\n"),
        ("import numpy as np\n", ""),
    ];
    let all: String = cases
        .iter()
        .map(|(from, to)| {
            format!(
                "# {}\n{}",
                to.trim().replace('\n', " "),
                matrix_problems(library.keywords(), from, to)
            )
        })
        .collect();
    insta::assert_snapshot!(all);
}

#[test]
fn a_task_has_no_marks_and_its_reference_the_conditions() {
    let library = library();
    let file = cars("cars.csv");
    let task = task(&library, "csv-group-mean", &[&file], Language::En);
    assert!(
        task.query.contains("and the number of rows."),
        "{}",
        task.query
    );
    assert!(!task.query.contains("[["), "{}", task.query);
    let refused = "'a violation of `mean` gives the same result'";
    assert!(task.reference.contains(refused), "{}", task.reference);
    assert!(
        !task.reference.contains("`missing`"),
        "only the audit needs missing values"
    );
}

#[test]
fn a_folder_is_read_like_the_embedded_library() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("templates/math");
    std::fs::create_dir_all(&path).unwrap();
    let name = "templates/math/math-derivative.toml";
    let text = embedded_text(name);
    std::fs::write(folder.path().join(name), text).unwrap();
    let library = Library::read(folder.path()).unwrap();
    assert_eq!(library.templates().len(), 1);
    std::fs::write(path.join("bad.toml"), "id = 1").unwrap();
    let error = Library::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("bad.toml:1:"), "{error}");
}

// --- slots -----------------------------------------------------------------------------------------

#[test]
fn slots_depend_on_the_seed_and_fit_the_file() {
    let library = library();
    let template = library.template("csv-group-mean").unwrap();
    let file = cars("cars.csv");
    let draw = |seed| {
        template
            .draw(&[&file], &mut ChaCha8Rng::seed_from_u64(seed))
            .unwrap()
    };
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let slots = draw(seed);
        assert_eq!(slots, draw(seed));
        let text = |name: &str| slots[name].as_str().unwrap().to_owned();
        assert!(["Origin", "maker"].contains(&text("group").as_str()));
        assert!(["Miles per Gallon", "Weight"].contains(&text("value").as_str()));
        seen.insert((text("group"), text("value")));
    }
    assert_eq!(seen.len(), 4, "every assignment is reached");
}

#[test]
fn a_file_without_fitting_columns_is_not_used() {
    let library = library();
    let template = library.template("csv-group-mean").unwrap();
    let narrow = table(
        "narrow.csv",
        FileKind::Csv,
        vec![column("a", ColumnKind::Text, 5)],
    );
    let mut wide = cars("it's.csv");
    let files = [narrow, cars("cars.csv"), picture("p.png"), wide.clone()];
    let (_folder, store) = store();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let found = template.combinations(&files, 10, &store, &mut rng).unwrap();
    assert_eq!(
        found,
        [[1]],
        "too narrow, no table, a name that needs quoting"
    );
    wide.profile = Profile::Broken {
        reason: String::new(),
    };
    assert!(
        template
            .combinations(&[wide], 10, &store, &mut rng)
            .unwrap()
            .is_empty()
    );
}

/// A percentage of a sum of 0 and a line through the values of one day do not exist.
#[test]
fn columns_without_a_right_result_are_not_used() {
    let library = library();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut is_used = |template: &str, kind, [min, max]: [&str; 2]| {
        let mut column = column("c", kind, 20);
        (column.min, column.max) = (Some(min.into()), Some(max.into()));
        let others = cars("a.csv");
        let Profile::Table(mut profile) = others.profile else {
            unreachable!()
        };
        profile.columns.retain(|column| match kind {
            ColumnKind::Date => column.name == "Weight",
            _ => column.name == "Origin",
        });
        profile.columns.push(column);
        let file = table("b.csv", FileKind::Csv, profile.columns);
        let template = library.template(template).unwrap();
        template.draw(&[&file], &mut rng).is_some()
    };
    assert!(is_used(
        "table-questions",
        ColumnKind::Float,
        ["0.5", "3.0"]
    ));
    assert!(!is_used(
        "table-questions",
        ColumnKind::Float,
        ["-3.0", "3.0"]
    ));
    let hours = ["2024-05-01T01:00", "2024-05-01T23:00"];
    assert!(!is_used("series-trend", ColumnKind::Date, hours));
    let days = ["2024-05-01T01:00", "2024-05-02T00:00"];
    assert!(is_used("series-trend", ColumnKind::Date, days));
}

// --- rendering -------------------------------------------------------------------------------------

#[test]
fn tasks_render_with_their_values() {
    let library = library();
    let file = cars("cars.csv");
    for language in [Language::En, Language::Zh] {
        let task = task(&library, "csv-group-mean", &[&file], language);
        assert!(!task.query.contains("{{"), "{}", task.query);
        assert!(task.query.contains("./data/cars.csv"));
        assert!(task.reference.contains("ref.rows('./data/cars.csv')"));
        assert_eq!(task.outputs, ["output/group_means.csv"]);
        assert_eq!(task.id, task.compute_id());
        assert_eq!(task.files[0].format, file.profile.format());
        assert!(task.files[0].format.is_some());
    }
    let task = task(&library, "image-rotate", &[&picture("p.png")], Language::En);
    assert_eq!(task.checks.len(), 2);
}

#[test]
fn the_parts_of_a_divided_file_name_the_whole() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../data/samples/files/houses.csv"
    );
    let mut fixtures = audit::fixtures::Fixtures::empty().unwrap();
    assert!(fixtures.add(path.as_ref()).unwrap());
    let key = TaskKey {
        template: "model-price".into(),
        language: Language::En,
        seed: 1,
    };
    let task = key
        .task(&library(), &fixtures.files, &fixtures.store)
        .unwrap();
    let whole = &fixtures.files[0];
    for part in [&task.files[0], &task.held_out[0]] {
        assert_ne!(part.id, whole.id);
        assert_eq!(part.derived_from.as_ref(), Some(&whole.id));
        assert_eq!(part.origin, whole.origin);
    }
}

#[test]
fn thoughts_and_cells_cannot_see_the_profile() {
    let files = [pybench_types::task::TaskFile {
        name: "a.csv".into(),
        id: Digest::of_bytes(b""),
        kind: FileKind::Csv,
        origin: String::new(),
        license: None,
        derived_from: None,
        format: None,
    }];
    let readers = [Some("pd.read_csv('./data/a.csv')".to_owned())];
    let rendered = |text: &str, view| {
        let variables = render::file_variables(&files, &readers, view);
        let context = render::context(&Default::default(), variables, Language::En);
        draft::render(text, &context)
    };
    use render::FileDetail::{Cell, Thought};
    assert_eq!(
        rendered("{{ file.path }} {{ files[0].stem }}", Thought).unwrap(),
        "./data/a.csv a"
    );
    assert_eq!(
        rendered("{{ file.pandas }}", Cell).unwrap(),
        "pd.read_csv('./data/a.csv')"
    );
    assert!(rendered("{{ file.pandas }}", Thought).is_err());
    assert!(rendered("{{ file.rows }}", Cell).is_err());
    assert!(rendered("{{ rows }}", Cell).is_err());
    assert!(rendered("{% if rows %}1{% endif %}", Cell).is_err());
}

#[test]
fn readers_name_separator_encoding_and_sheet() {
    let mut file = cars("cars.csv");
    let Profile::Table(profile) = &mut file.profile else {
        panic!()
    };
    profile.delimiter = Some(';');
    profile.encoding = Some("gb18030".into());
    profile.tables = vec!["My \"T\"".into(), "Other".into()];
    let mut reader = |kind, name: &str| {
        file.kind = kind;
        file.name = name.to_owned();
        reader::pandas(&file).unwrap_or_default()
    };
    let read = [
        reader(FileKind::Csv, "a.csv"),
        reader(FileKind::Xlsx, "a.xlsx"),
        reader(FileKind::Json, "a.json"),
        reader(FileKind::Sqlite, "a b.sqlite"),
        reader(FileKind::Parquet, "a.parquet"),
    ];
    let expected = [
        "pd.read_csv('./data/a.csv', sep=';', encoding='gb18030')",
        "pd.read_excel('./data/a.xlsx', sheet_name='My \"T\"')",
        "pd.read_json('./data/a.json', dtype=False)",
        "pd.read_sql('SELECT * FROM \"My \"\"T\"\"\"', sqlite3.connect('./data/a b.sqlite'))",
        "pd.read_parquet('./data/a.parquet')",
    ];
    assert_eq!(read, expected);
}

/// A German csv file and a workbook with titles, two header rows and merged cells.
#[test]
fn readers_follow_the_read_options() {
    let mut file = cars("cars.csv");
    let Profile::Table(profile) = &mut file.profile else {
        panic!()
    };
    profile.delimiter = Some(';');
    profile.read.decimal_comma = vec!["Weight".into()];
    profile.read.thousands = Some('\u{202f}');
    profile.read.dates = [("Day".to_owned(), "%d.%m.%Y".to_owned())].into();
    assert_eq!(
        reader::pandas(&file).unwrap(),
        "pd.read_csv('./data/cars.csv', sep=';', decimal=',', thousands='\\u202f', engine='python', \
         dtype={'Day': str}).assign(**{'Day': lambda t: pd.to_datetime(t['Day'], \
         format='%d.%m.%Y').dt.strftime('%Y-%m-%d')})"
    );
    let Profile::Table(profile) = &mut file.profile else {
        panic!()
    };
    profile.read = Default::default();
    profile.read.skip_rows = 1;
    profile.read.names = vec!["a".into(), "b c".into()];
    profile.read.filled = vec!["a".into()];
    file.kind = FileKind::Xlsx;
    assert_eq!(
        reader::pandas(&file).unwrap(),
        "pd.read_excel('./data/cars.csv', header=None, names=['a', 'b c'], skiprows=3)\
         .assign(**{'a': lambda t: t['a'].ffill()})"
    );
    let Profile::Table(profile) = &mut file.profile else {
        panic!()
    };
    profile.read.joined_header = true;
    profile.read.filled.clear();
    assert_eq!(
        reader::pandas(&file).unwrap(),
        "pd.read_excel('./data/cars.csv', header=None, names=pd.read_excel('./data/cars.csv', header=None, \
         skiprows=1, nrows=2, dtype=str).T.pipe(lambda t: (t[0].ffill() + ' ' + t[1].fillna(''))\
         .str.strip().tolist()), skiprows=3)"
    );
}

/// What the answer depends on and the request does not say stands below it.
#[test]
fn a_query_says_how_the_numbers_of_its_file_are_written() {
    let library = library();
    let mut file = cars("cars.csv");
    let query = |file: &SourceFile, language| {
        let template = library.template("csv-group-mean").unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let files = vec![file];
        let draft = Draft {
            slots: template.draw(&files, &mut rng).unwrap(),
            template,
            files,
            language,
            phrasing: 0,
            seed: 1,
        };
        draft.query().unwrap()
    };
    let plain = query(&file, Language::En);
    let Profile::Table(profile) = &mut file.profile else {
        panic!()
    };
    profile.read.decimal_comma = vec!["Weight".into()];
    profile.read.thousands = Some('.');
    let told = query(&file, Language::En);
    assert_eq!(
        told.strip_prefix(&plain).unwrap(),
        "\nAbout ./data/cars.csv: numbers are written with a decimal comma (1.018,64 is 1018.64); write them with a \
         decimal point."
    );
    assert!(query(&file, Language::Zh).ends_with("（1.018,64 即 1018.64），结果中请用小数点。"));
}

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>()
            .prop_filter("finite", |x| x.is_finite())
            .prop_map(Into::into),
        any::<String>().prop_map(Into::into),
        "[ '\"\\\\{}\n\r\t\u{0}\u{7f}\u{85}\u{2028}é中😀]{0,8}".prop_map(Into::into),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

const COMPARE: &str = "
import ast, json, sys
def same(a, b):
    if type(a) is not type(b): return False
    if isinstance(a, list): return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict): return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a == b
for literal, value in json.load(sys.stdin):
    if not same(ast.literal_eval(literal), value): sys.exit(f'{literal!r} is not {value!r}')
";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Python parses the literals that `py` writes to the same values.
    #[test]
    fn py_writes_literals(values in prop::collection::vec(json_value(), 40)) {
        let literal = |json: &serde_json::Value| {
            let context = [("v".to_owned(), render::value(json))].into();
            draft::render("{{ v|py }}", &context).unwrap()
        };
        let pairs: Vec<_> = values.iter().map(|v| (literal(v), v)).collect();
        let child = Command::new("python3")
            .args(["-c", COMPARE])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            pybench_testing::skip::missing_tool("python3 is not installed");
            return Ok(());
        };
        serde_json::to_writer(child.stdin.take().unwrap(), &pairs).unwrap();
        let output = child.wait_with_output().unwrap();
        prop_assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

// --- the expert ------------------------------------------------------------------------------------

static FORMAT: PybenchFormat = PybenchFormat;

fn observed(text: &str) -> Message {
    Message::new(
        Role::User,
        format!("[INFO]This is a Code Interpreter Message:\n{text}"),
    )
}

#[test]
fn the_expert_reads_its_values_from_observations() {
    let library = Arc::new(library());
    let task = task(&library, "math-derivative", &[], Language::En);
    let expert = Expert::new(library, &FORMAT);
    let mut messages = FORMAT.initial_messages(&task);
    let observations = ["Error: NameError\n", "f'(x) = 3*x**2\n", "value: 12\n"];
    for text in observations {
        let reply = expert.reply(&task, 0, &messages).unwrap();
        assert!(matches!(FORMAT.parse(&reply), Parsed::Cell(_)), "{reply}");
        messages.push(Message::new(Role::Assistant, reply));
        messages.push(observed(text));
    }
    let last = expert.reply(&task, 0, &messages).unwrap();
    let Parsed::Answer(answer) = FORMAT.parse(&last) else {
        panic!("{last}")
    };
    assert!(
        answer.contains("f'(x) = 3*x**2.\nDerivative: 12"),
        "{answer}"
    );
    assert_eq!(expert.fault(&task, 0), None);
}

#[test]
fn an_observation_without_the_value_is_an_internal_error() {
    let library = Arc::new(library());
    let task = task(&library, "math-derivative", &[], Language::Zh);
    let expert = Expert::new(library, &FORMAT);
    let step = Message::new(Role::Assistant, "x");
    let messages = [step.clone(), observed("no"), step, observed("no")];
    let text = expert.reply(&task, 0, &messages).unwrap_err();
    assert!(
        text.contains("math-derivative") && text.contains("f'\\(x\\) = (.+)"),
        "{text}"
    );
}

#[test]
fn faults_depend_on_task_sample_and_seed() {
    let library = Arc::new(library());
    let task = task(
        &library,
        "csv-group-mean",
        &[&cars("cars.csv")],
        Language::En,
    );
    let faults = |share, seed| {
        let expert = Expert::new(library.clone(), &FORMAT).with_faults(share, seed);
        let faults = (0..400).map(|sample| {
            expert.reply(&task, sample, &[]).unwrap();
            expert.fault(&task, sample)
        });
        faults.collect::<Vec<_>>()
    };
    let tenth = faults(0.1, 1);
    let count = tenth.iter().flatten().count();
    assert!((15..=70).contains(&count), "{count} of 400");
    assert_eq!(tenth, faults(0.1, 1));
    assert_ne!(tenth, faults(0.1, 2));
    assert_eq!(faults(0.0, 1).iter().flatten().count(), 0);
    let all = faults(1.0, 1);
    assert_eq!(all.iter().flatten().count(), 400);
    for kind in [
        "forgotten_save",
        "gave_up",
        "claimed",
        "mutant: one group left out",
    ] {
        assert!(all.iter().flatten().any(|fault| fault == kind), "{kind}");
    }
    let unsure = "mutant: sum instead of mean";
    assert!(all.iter().flatten().all(|fault| fault != unsure));
}

#[test]
fn deviations_change_the_script_as_named() {
    let library = library();
    let task = task(
        &library,
        "csv-group-mean",
        &[&cars("cars.csv")],
        Language::En,
    );
    let script = |deviation| Script::new(&library, &task).unwrap().deviating(deviation);
    let answer = |deviation, observations: &[&str]| match script(deviation).next(observations) {
        Ok(ExpertAction::Answer(answer)) => answer,
        other => panic!("{other:?}"),
    };
    assert!(answer(Deviation::Claimed, &[]).contains("Groups: -86420.97531"));
    assert!(!answer(Deviation::GaveUp, &["shape: (100, 3)"]).contains("Groups"));
    // A deviating script ends; the honest script reports what is missing.
    assert!(!answer(Deviation::ForgottenSave, &["nothing"]).contains("Groups"));
    assert!(script(Deviation::Honest).next(&["nothing"]).is_err());
    let seen = ["shape: (100, 3)", "distinct groups: 3"];
    let cell = |deviation| match script(deviation).next(&seen) {
        Ok(ExpertAction::Step { cell, .. }) => cell,
        other => panic!("{other:?}"),
    };
    assert!(cell(Deviation::Honest).contains("./output/group_means.csv"));
    assert!(
        cell(Deviation::ForgottenSave).contains("'./group_means.csv'")
            || cell(Deviation::ForgottenSave).contains("\"./group_means.csv\"")
    );
    assert!(cell(Deviation::Mutant(0)).contains("grouped.sum()"));
}
