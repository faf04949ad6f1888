//! A planted secret never reaches a shard, a card or an included file.

use pybench_testing::rows as common;
use std::fs;
use std::path::Path;

use pybench_datasets::dataset;
use pybench_datasets::scrub::{Scrubber, SecretKind};
use pybench_datasets::shards::ShardSettings;
use pybench_datasets::split::SplitSettings;
use pybench_datasets::{Row, read};
use pybench_run::ContentStore;

const SECRETS: [&str; 8] = [
    "sk-proj-Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0",
    "hf_Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1W",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1Wx2",
    "jane.doe@corp.example.com",
    "/home/janedoe",
    "hunter2hunter2",
    "Zq9-value-of-an-environment-variable",
];

/// Rows with secrets in every text.
fn planted() -> Vec<Row> {
    let mut rows = common::rows(40);
    for (number, row) in rows.iter_mut().enumerate() {
        let secret = match SECRETS[number % SECRETS.len()] {
            "/home/janedoe" => "open('/home/janedoe/a.csv')".to_owned(),
            "hunter2hunter2" => "postgres://jane:hunter2hunter2@db/x".to_owned(),
            other => other.to_owned(),
        };
        let texts: [&mut String; 9] = [
            &mut row.query,
            &mut row.keyword,
            &mut row.subcategory,
            &mut row.teacher,
            &mut row.grading.reference,
            &mut row.outputs[0].path,
            &mut row.checks[0].subject,
            &mut row.messages[0].content,
            &mut row.environment,
        ];
        for text in texts {
            *text += &format!(" {secret} ");
        }
        for message in &mut row.messages[1..] {
            message.content = format!("{secret}\n{}", message.content);
        }
        for file in &mut row.files {
            file.origin = format!("https://a.org/{secret}");
            file.license = Some(secret.clone());
            file.name = format!("{secret}.csv");
        }
        row.grading.outputs.push(secret);
    }
    rows
}

fn bytes_of(folder: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        all.extend(path.file_name().unwrap().as_encoded_bytes());
        match path.is_dir() {
            true => all.extend(bytes_of(&path)),
            false => all.extend(fs::read(&path).unwrap()),
        }
    }
    all
}

#[test]
fn a_planted_secret_never_reaches_a_shard() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    let split = SplitSettings {
        test_fraction: 0.2,
        held_out_templates: 0,
        seed: 1,
        shares: None,
    };
    let scrubber = Scrubber::with([(SECRETS[7].to_owned(), SecretKind::Key)]);
    let written = dataset::write_with(
        &path,
        planted(),
        (&split, &ShardSettings::default()),
        &common::about(),
        &scrubber,
        None,
    )
    .unwrap();
    assert_eq!(written.scrub.rows, 40);
    let mut seen = 0;
    for row in read::dataset(&path).unwrap() {
        let (_, row) = row.unwrap();
        let text = format!("{row:?}");
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        assert!(row.scrubbed > 0 && text.contains('['));
        seen += 1;
    }
    assert_eq!(
        seen,
        40 - written
            .split
            .count(pybench_datasets::split::Assignment::Dropped)
    );
    // Shards are compressed; the card is not.
    let all = String::from_utf8_lossy(&bytes_of(&path)).into_owned();
    for secret in SECRETS {
        assert!(!all.contains(secret), "{secret}");
    }
    let card = fs::read_to_string(path.join("README.md")).unwrap();
    assert!(card.contains("findings in 40 rows"), "{card}");
}

#[test]
fn only_files_with_a_license_and_without_secrets_are_included() {
    let folder = tempfile::tempdir().unwrap();
    let store = ContentStore::open(&folder.path().join("store")).unwrap();
    let author = b"Author\0jane.doe@corp.example.com";
    let length = (author.len() as u32).to_be_bytes();
    let picture = [
        b"\x89PNG\r\n\x1a\n",
        &length[..],
        b"tEXt",
        author,
        &[0xff; 4],
    ]
    .concat();
    let contents: [&[u8]; 6] = [
        b"a,b\n1,2\n",
        b"mail,x\njane@corp.org,1\n",
        &picture,
        b"free",
        b"mail,x\njane@corp.org,caf\xe9\n",
        b"\xfd7zXZ\0\0\0",
    ];
    let mut rows = common::rows(40);
    rows.retain(|row| !row.files.is_empty());
    for (number, row) in rows.iter_mut().enumerate() {
        let id = store.put(contents[number % 6]).unwrap();
        row.files[0].blake3 = id;
        row.files[0].license = (number % 6 != 3).then(|| "MIT".to_owned());
    }
    let path = folder.path().join("d");
    let split = SplitSettings {
        test_fraction: 0.0,
        held_out_templates: 0,
        seed: 1,
        shares: None,
    };
    let written = dataset::write_with(
        &path,
        rows,
        (&split, &ShardSettings::default()),
        &common::about(),
        &Scrubber::default(),
        Some(&store),
    )
    .unwrap();
    assert_eq!(
        written.files,
        (1, 8),
        "only the file with a license and without secrets"
    );
    assert_eq!(written.scrub.withheld.len(), 4, "{:?}", written.scrub);
    let included = ContentStore::open(&path.join("files")).unwrap();
    let clean = pybench_types::id::Digest::of_bytes(contents[0]);
    assert_eq!(included.get(&clean).unwrap(), contents[0]);
    let all = bytes_of(&path.join("files"));
    assert!(!String::from_utf8_lossy(&all).contains("jane"));
    let card = fs::read_to_string(path.join("README.md")).unwrap();
    assert!(
        card.contains("4 input files contain such data, or could not be"),
        "{card}"
    );
}
