use pybench_types::task::{DocumentProfile, ImageProfile};

use super::*;
use pybench_library::Library;
use pybench_testing::files::{cars, picture};

fn keyword(name: &str) -> Keyword {
    Library::embedded()
        .unwrap()
        .keywords()
        .get(name)
        .unwrap()
        .clone()
}

fn draft(query: &str, outputs: &[&str], sketch: &str) -> Draft {
    Draft {
        query: query.to_owned(),
        outputs: outputs.iter().map(|path| (*path).to_owned()).collect(),
        uses: vec![],
        makes: vec![],
        sketch: sketch.to_owned(),
    }
}

const SKETCH: &str = "import pandas as pd\ndf = pd.read_csv('data/cars.csv')\nprint(df)";

fn found(draft: &Draft) -> Vec<(RejectedBy, String)> {
    let file = cars("cars.csv");
    let chinese = draft.query.contains('按');
    let language = [Language::En, Language::Zh][usize::from(chinese)];
    let problems = problems(draft, &keyword("group by"), language, &[&file]);
    problems
        .into_iter()
        .map(|p| (p.rejected_by, p.text))
        .collect()
}

#[test]
fn a_valid_draft_has_no_problems() {
    let mut valid = draft(
        "Group cars.csv by the column \"Origin\" and save ./output/means.csv with the columns \"Origin\" and \"mean\".",
        &["output/means.csv"],
        SKETCH,
    );
    valid.uses = vec!["Origin".into()];
    valid.makes = vec!["mean".into()];
    assert_eq!(found(&valid), []);
    let zh = "按“Origin”列分组统计data/cars.csv，结果保存到./output/means.csv。";
    assert_eq!(found(&draft(zh, &["output/means.csv"], SKETCH)), []);
}

#[test]
fn missing_names_are_rejected_with_a_hint() {
    let name = cars("cars.csv");
    let Profile::Table(table) = &name.profile else {
        panic!()
    };
    let column = table.columns[0].name.clone();
    let close = format!("{column}s");
    for (query, outputs, sketch, rejected_by, expected) in [
        (
            format!("Use the column \"{close}\" of it."),
            vec![],
            SKETCH,
            RejectedBy::ContentRule,
            format!("did you mean `{column}`?"),
        ),
        (
            "Look at customers.csv and say more.".into(),
            vec![],
            SKETCH,
            RejectedBy::ContentRule,
            "`customers.csv`".into(),
        ),
        (
            "Say something about it, please.".into(),
            vec![],
            "import pandas as pd\npd.DataFrame()",
            RejectedBy::ContentRule,
            "opens none".into(),
        ),
        (
            "Say something about it, please.".into(),
            vec![],
            "open('cars.csv')",
            RejectedBy::KeywordRule,
            "none of pandas".into(),
        ),
        (
            "Say something about it, please.".into(),
            vec![],
            "import pandas\nopen('cars.csv')",
            RejectedBy::KeywordRule,
            "none of pandas".into(),
        ),
        (
            "Save it to ./output/a.csv at once.".into(),
            vec![],
            SKETCH,
            RejectedBy::Form,
            "not among `outputs`".into(),
        ),
        (
            "Save it somewhere, and be quick.".into(),
            vec!["output/a.csv"],
            SKETCH,
            RejectedBy::Form,
            "does not say".into(),
        ),
        (
            "Save ./output/../a.csv for me.".into(),
            vec!["output/../a.csv"],
            SKETCH,
            RejectedBy::Form,
            "no plain path".into(),
        ),
        (
            "Save a.csv in /tmp for me.".into(),
            vec!["/tmp/a.csv"],
            SKETCH,
            RejectedBy::Form,
            "no plain path".into(),
        ),
    ] {
        let problems = found(&draft(&query, &outputs, sketch));
        let hit = problems
            .iter()
            .any(|(p, text)| *p == rejected_by && text.contains(&expected));
        assert!(hit, "{query}: {problems:?}");
    }
}

#[test]
fn names_that_a_profile_may_hide_are_accepted() {
    let mut sheets = cars("book.csv");
    let Profile::Table(table) = &mut sheets.profile else {
        panic!()
    };
    table.tables = vec!["one".into(), "two".into()];
    assert_eq!(missing("no such column", &[&sheets]), None);
    let document = |characters: u64| {
        let mut file = cars("a.pdf");
        file.kind = FileKind::Pdf;
        file.profile = Profile::Document(DocumentProfile {
            pages: Some(3),
            language: None,
            headings: vec!["Start".into()],
            excerpt: "Start of it.".into(),
            characters,
            words: 3,
            lines: 1,
            encoding: None,
            tables: 0,
            code_cells: 0,
        });
        file
    };
    assert_eq!(missing("Later", &[&document(5000)]), None);
    assert!(missing("Later", &[&document(12)]).is_some());
    assert_eq!(missing("Start", &[&document(12)]), None);
    let said = beyond_last("Extract page 2 and pages 3 to 9.", &[&document(12)]);
    assert_eq!(said, ["the query names page 9, but there are only 3"]);
    let image = picture("p.png");
    assert!(matches!(
        image.profile,
        Profile::Image(ImageProfile { frames: 1, .. })
    ));
    assert_eq!(beyond_last("Save frame 4.", &[&image]).len(), 1);
    assert!(beyond_last("Save page 4.", &[&image]).is_empty());
}

#[test]
fn a_query_must_be_in_its_language() {
    let zh = "统计每列的均值，保存到 ./output/means_by_origin_and_year.csv。";
    let en = "Save the mean of 价格 and 数量 by 城市.";
    assert_eq!(wrong_language(zh, Language::Zh), None);
    assert_eq!(wrong_language(en, Language::En), None);
    assert!(wrong_language(zh.split('，').next().unwrap(), Language::En).is_some());
    assert!(wrong_language("Save the mean of each column.", Language::Zh).is_some());
}

#[test]
fn packages_must_be_used_not_only_imported() {
    for (code, used) in [
        ("import numpy as np\nnp.zeros(3)", vec!["numpy"]),
        (
            "import os, matplotlib.pyplot as plt\nplt.plot([])",
            vec!["matplotlib"],
        ),
        (
            "from PIL import Image, ImageOps as ops\nops.mirror(x)",
            vec!["PIL"],
        ),
        (
            "from sklearn.cluster import KMeans\nKMeans(3)",
            vec!["sklearn"],
        ),
        ("import scipy.stats\nscipy.stats.norm", vec!["scipy"]),
        ("import numpy as np  # np is not used", vec![]),
    ] {
        assert_eq!(used_modules(code), used, "{code}");
    }
    // For standard modules, or without packages, imports prove nothing.
    assert!(unused_packages("print(1)", &keyword("links")).is_some());
    assert_eq!(unused_packages("print(1)", &keyword("sequence")), None);
    assert_eq!(unused_packages("print(1)", &keyword("game")), None);
}

#[test]
fn fuzz_any_draft_can_be_checked() {
    let file = cars("cars.csv");
    let keyword = keyword("group by");
    bolero::check!().for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let (query, rest) = text.split_once('\0').unwrap_or((&text, ""));
        let _ = problems(
            &draft(query, &[rest], rest),
            &keyword,
            Language::Zh,
            &[&file],
        );
    });
}
