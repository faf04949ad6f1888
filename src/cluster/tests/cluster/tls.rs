//! Encrypted connections to PostgreSQL.

use std::path::Path;
use std::process::Command;

use pybench_cluster::Cluster;
use pybench_run::{Journal, PostgresServer};
use pybench_testing::{postgres, skip};

/// Writes `NAME.pem` and `NAME.key`, a certificate for 127.0.0.1 that signs itself. `None`, and the test is skipped, if
/// there is no `openssl`.
fn certificate(folder: &Path, name: &str) -> Option<()> {
    let config = folder.join(format!("{name}.conf"));
    let text = format!(
        "[req]\ndistinguished_name = dn\nx509_extensions = ext\nprompt = no\n[dn]\nCN = {name}\n\
         [ext]\nbasicConstraints = critical,CA:FALSE\nsubjectAltName = IP:127.0.0.1\n"
    );
    std::fs::write(&config, text).unwrap();
    let output = Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        ])
        .arg("-config")
        .arg(&config)
        .arg("-out")
        .arg(folder.join(format!("{name}.pem")))
        .arg("-keyout")
        .arg(folder.join(format!("{name}.key")))
        .output();
    match output {
        Ok(output) if output.status.success() => Some(()),
        Ok(output) => panic!("{output:?}"),
        Err(error) => {
            skip::unavailable(format!("openssl: {error}"));
            None
        }
    }
}

/// An error with its causes.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

#[test]
fn the_connection_is_encrypted_and_the_server_is_checked() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let Some(programs) = postgres::programs() else {
        return;
    };
    let folder = postgres::folder();
    let made = ["server", "other", "client"].map(|name| certificate(&folder, name));
    if made.contains(&None) {
        return;
    }
    let cluster = Cluster::new(&folder.join("cluster")).unwrap();
    let started = cluster.up(&programs, None).unwrap();
    cluster.down(&programs, false).unwrap();
    let data = folder.join("cluster/postgres");
    let owner = std::fs::metadata(&data).unwrap();
    for file in ["server.pem", "server.key", "client.pem"] {
        let to = data.join(file);
        std::fs::copy(folder.join(file), &to).unwrap();
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600)).unwrap();
        chown(&to, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    let settings = data.join("postgresql.conf");
    let text = std::fs::read_to_string(&settings).unwrap();
    let text = format!(
        "{text}ssl = on\nssl_cert_file = 'server.pem'\nssl_key_file = 'server.key'\nssl_ca_file = 'client.pem'\n"
    );
    std::fs::write(&settings, text).unwrap();
    // Connections that are not encrypted, and those without the certificate of the client, are refused.
    let access = data.join("pg_hba.conf");
    let text = std::fs::read_to_string(&access).unwrap();
    let text = text.lines().map(|line| match line.strip_prefix("host ") {
        Some(rest) => format!("hostssl {rest} clientcert=verify-ca\n"),
        None => format!("{line}\n"),
    });
    std::fs::write(&access, text.collect::<String>()).unwrap();

    let plain = started.postgres;
    let trusting = |file: &str, host: &str| PostgresServer {
        host: host.to_owned(),
        ca_file: Some(folder.join(file)),
        client_cert_file: Some(folder.join("client.pem")),
        client_key_file: Some(folder.join("client.key")),
        ..plain.clone()
    };
    let proving = |certificate: &str, key: &str| PostgresServer {
        client_cert_file: Some(folder.join(certificate)),
        client_key_file: Some(folder.join(key)),
        ..trusting("server.pem", "127.0.0.1")
    };
    let unproven = PostgresServer {
        client_cert_file: None,
        client_key_file: None,
        ..trusting("server.pem", "127.0.0.1")
    };
    let tested = || {
        let server = trusting("server.pem", "127.0.0.1");
        let journal = Journal::open_postgres(&server, "run_a", &folder.join("calls"))?;
        journal.enqueue("s", ["a"])?;
        assert_eq!(journal.units("s")?.len(), 1);
        Journal::join_postgres(&server, "run_a")
    };
    // `up` asks the server without encryption whether it answers, so this starts it as `up` does.
    let mut start = Command::new(programs.join("bin/pg_ctl"));
    start
        .args(["start", "-w", "-D"])
        .arg(&data)
        .arg("-l")
        .arg(data.join("server.log"))
        .args(["-o", &format!("-p {}", plain.port)])
        .current_dir("/");
    if rustix::process::geteuid().is_root() {
        use std::os::unix::process::CommandExt;
        start.uid(owner.uid()).gid(owner.gid());
    }
    assert!(start.status().unwrap().success());
    let journal = tested();
    let errors = [
        plain.clone(),
        trusting("other.pem", "127.0.0.1"),
        trusting("server.pem", "localhost"),
        trusting("server.key", "127.0.0.1"),
        trusting("missing.pem", "127.0.0.1"),
        unproven,
        proving("client.pem", "client.pem"),
        proving("client.pem", "other.key"),
    ]
    .map(|server| told(&server.probe().unwrap_err()));
    drop(journal.unwrap());
    cluster.down(&programs, true).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    for (error, expected) in errors.iter().zip([
        "no encryption",
        "UnknownIssuer",
        "not valid for name \"localhost\"",
        "there is no certificate in it",
        "missing.pem",
        "requires a valid client certificate",
        "there is no private key",
        "postgres.client_key_file",
    ]) {
        assert!(error.contains(expected), "{error}, not {expected}");
    }
}
