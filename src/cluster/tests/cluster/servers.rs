//! `up`, `status` and `down`.

use std::os::unix::fs::MetadataExt;

use pybench_cluster::{Cluster, Status};
use pybench_run::{Journal, Profile};
use pybench_testing::{postgres, s3};

#[test]
fn servers_start_and_end_and_keep_their_data() {
    let Some(programs) = postgres::programs() else {
        return;
    };
    let folder = postgres::folder();
    let data = folder.join("cluster");
    let cluster = Cluster::new(&data).unwrap();
    assert!(!cluster.down(&programs, false).unwrap());
    assert_eq!(cluster.status(&programs).unwrap(), Status::None);

    let first = cluster.up(&programs, None).unwrap();
    assert!(!first.ran);
    let again = cluster.up(&programs, None).unwrap();
    assert!(again.ran);
    assert_eq!(again.postgres, first.postgres);
    assert!(
        cluster.up(&programs, Some(1)).is_err(),
        "it runs on another port"
    );
    let password = std::fs::metadata(data.join("postgres.password")).unwrap();
    assert_eq!(password.mode() & 0o777, 0o600);
    let pid = std::fs::read_to_string(data.join("postgres/postmaster.pid")).unwrap();
    let pid = pid.lines().next().unwrap();
    let owner = std::fs::metadata(format!("/proc/{pid}")).unwrap().uid();
    assert_ne!(owner, 0, "PostgreSQL does not run as root");

    assert_eq!(cluster.store().unwrap(), None);
    let store = s3::programs().map(|weed| cluster.up_store(&weed, None).unwrap());
    if let Some(server) = &store {
        // A later `up` keeps it, with a path that a copy of the profile can have too.
        cluster.up(&programs, None).unwrap();
        let text = std::fs::read_to_string(&first.profile).unwrap();
        assert!(text.contains("\"store.secret\""), "{text}");
        let status = cluster.store().unwrap().unwrap();
        assert_eq!((&status.server, &status.answer), (server, &Ok(())));
    }

    // It does not answer without the password.
    let mut stranger = Profile::load(&first.profile).unwrap().postgres;
    stranger.password_file = Some(folder.join("wrong"));
    std::fs::write(folder.join("wrong"), "wrong").unwrap();
    let error = stranger.probe().unwrap_err().to_string();
    assert!(error.contains("password authentication failed"), "{error}");

    let journal = Journal::open_postgres(&first.postgres, "run_a", &folder.join("calls")).unwrap();
    journal.set_metadata("key", &serde_json::json!(1)).unwrap();
    drop(journal);
    let Status::Runs(_, Ok((version, journals))) = cluster.status(&programs).unwrap() else {
        panic!("{:?}", cluster.status(&programs));
    };
    assert_eq!((version.as_str(), journals), ("18.6", 1));

    assert!(cluster.down(&programs, false).unwrap());
    assert!(!cluster.down(&programs, false).unwrap());
    if store.is_some() {
        assert!(cluster.store().unwrap().unwrap().answer.is_err());
    }
    // What is left is at most an entry that its parent has not read.
    let left = std::fs::read(format!("/proc/{pid}/cmdline"));
    assert_eq!(left.unwrap_or_default(), b"");
    assert!(matches!(
        cluster.status(&programs).unwrap(),
        Status::Stopped(_)
    ));
    assert_eq!(
        cluster.up(&programs, None).unwrap().postgres,
        first.postgres
    );
    let journal = Journal::open_postgres_read_only(&first.postgres, "run_a").unwrap();
    assert!(journal.metadata("key").unwrap().is_some());
    assert!(cluster.down(&programs, true).unwrap());
    assert!(!data.exists());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_profile_that_names_no_machine_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml");
    let server = |host: &str| {
        format!(
            "[postgres]\nhost = '{host}'\nport = 5432\ndatabase = 'd'\nuser = 'u'\npassword_env = 'P'\nca_file = 'ca.pem'\n"
        )
    };
    std::fs::write(&path, server("/run/postgresql")).unwrap();
    let error = Profile::load(&path).unwrap_err().to_string();
    assert!(
        error.contains("postgres.host: \"/run/postgresql\" is no name or address"),
        "{error}"
    );
    let half = server("db.example.org") + "client_cert_file = 'client.pem'\n";
    std::fs::write(&path, half).unwrap();
    let error = Profile::load(&path).unwrap_err().to_string();
    assert!(
        error.contains("postgres.client_key_file is missing"),
        "{error}"
    );
    let temporal = "[temporal]\naddress = 'temporal.example.org:7233'\nca_file = 'temporal.pem'\n";
    std::fs::write(&path, server("db.example.org") + temporal).unwrap();
    let loaded = Profile::load(&path).unwrap();
    let ca_files = (loaded.postgres.ca_file, loaded.temporal.unwrap().ca_file);
    let in_folder = |name: &str| Some(folder.path().join(name));
    assert_eq!(ca_files, (in_folder("ca.pem"), in_folder("temporal.pem")));
    std::fs::write(&path, "[postgres]\nhosts = ''\n").unwrap();
    let error = Profile::load(&path).unwrap_err().to_string();
    assert!(
        error.contains("p.toml") && error.contains("unknown field `hosts`"),
        "{error}"
    );
}

#[test]
fn the_settings_in_deploy_are_valid() {
    let folder = std::path::Path::new(pybench_testing::ROOT).join("deploy/kubernetes");
    let profile = Profile::load(&folder.join("cluster.toml")).unwrap();
    assert!(profile.store.is_some(), "workers need a bucket there");
    pybench_run::Recipe::load(&folder.join("recipe.toml"), &[]).unwrap();
}
