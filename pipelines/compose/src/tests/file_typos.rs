//! Tasks with a typo in the name of a file.

use super::*;
use crate::file_typo::FileTypo;
use crate::script::{Action, Script};

#[test]
fn a_file_with_a_typo_in_its_name_is_found_in_the_folder() {
    let mut languages = BTreeSet::new();
    for seed in 0..40 {
        let (file, bytes) = file(&table(120));
        let language = [Language::En, Language::Zh][seed as usize % 2];
        let task_seed = TaskSeed {
            foreign_names: None,
            seed,
            language,
            medium: Medium::Table,
            messy: false,
            renamed: false,
            avoided: &HeldOutRule::default(),
        };
        let made = make(&file, &bytes, task_seed, str::to_owned).unwrap();
        let Some((task, said)) = made.and_then(|made| {
            let said = with_file_typo(&made.task, seed)?;
            Some((made.task, said))
        }) else {
            continue;
        };
        languages.insert(format!("{language:?}"));
        assert_eq!(Some(&said), with_file_typo(&task, seed).as_ref());
        assert_ne!((&said.query, &said.id), (&task.query, &task.id));
        assert_eq!((&said.checks, &said.files), (&task.checks, &task.files));
        let wordings = pybench_types::held_out::composition(&said).1;
        let added = wordings.last().unwrap();
        assert!(
            added.starts_with("imprecise/") && is_wording(added),
            "{added}"
        );

        let script = Script::new(&said, 0, None).unwrap();
        let exact = Script::new(&task, 0, None).unwrap();
        assert!(!exact.cells().concat().contains("os.listdir"));
        assert!(
            script.cells()[0].contains("os.listdir"),
            "{:?}",
            script.cells()
        );
        let thought = |seen: &[&str]| match script.next(seen).unwrap() {
            Action::Step { thought, .. } => thought,
            Action::Answer(answer) => answer,
        };
        let typo = FileTypo::of(&said).unwrap();
        assert_eq!(thought(&[]), typo.purpose(language));
        let finding = typo.finding(language);
        assert!(thought(&["['stock.csv']"]).starts_with(&finding));
        assert!(said.files.iter().any(|file| finding.contains(&file.name)));
        assert_eq!(FileTypo::of(&task), None);
        let slipped = Script::new(&said, 0, None).unwrap().with_slip();
        assert_eq!(slipped.cells()[0], script.cells()[0]);
        assert!(slipped.cells().len() < 10);
    }
    assert_eq!(languages.len(), 2, "{languages:?}");
}
