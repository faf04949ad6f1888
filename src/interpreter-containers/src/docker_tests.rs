use std::sync::Arc;

use super::*;
use pybench_interpreter::SessionSpec;
use pybench_interpreter::cgroup::Group;
use pybench_interpreter::workspace::Storage;

fn engine(kind: Kind, cache: &Path) -> Docker {
    Docker {
        kind,
        program: Program::find("true", None, "").unwrap(),
        environment: Environment {
            root: "/envs/one".into(),
            base: "/usr".into(),
            runner: cache.join("runner"),
            cache: cache.to_owned(),
            digest: "digest".to_owned(),
        },
        settings: EngineSettings::default(),
        image: "localhost/pybench-places:0".to_owned(),
        cgroup_files: false,
        own_ids: (1001, 1002),
        worker: Worker::start("test").unwrap(),
    }
}

fn launch_spec(cache: &Path) -> LaunchSpec {
    let spec = SessionSpec::default();
    let storage = Storage::on_disk(cache).unwrap();
    LaunchSpec {
        workspace: Arc::new(storage.create(&spec, None).unwrap()),
        spec,
        user: None,
        group: Group::default(),
    }
}

/// The command line, one option per line, without machine-specific folders, temporary names and the filter.
fn command_line(engine: &Docker, cache: &Path, launch_spec: &LaunchSpec) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in engine.arguments(launch_spec, "pybench-1-x", None) {
        match lines.last_mut() {
            Some(line)
                if !word.starts_with('-') && line.starts_with('-') && !line.contains(' ') =>
            {
                *line += &format!(" {word}");
            }
            _ => lines.push(word),
        }
    }
    // What differs from machine to machine.
    let of_machine = |line: &String| {
        line.contains("src=/usr") || line.contains("src=/lib") || line.contains("src=/etc")
    };
    let text: Vec<String> = lines.into_iter().filter(|line| !of_machine(line)).collect();
    let text = text
        .join("\n")
        .replace(&cache.display().to_string(), "CACHE");
    let text = text.replace(launch_spec.workspace.name(), "WORKSPACE");
    let text = text.replace(&format!("pybench={}", std::process::id()), "pybench=PID");
    match text.split_once("attached('") {
        Some((before, _)) => format!("{before}attached('FILTER')"),
        None => text,
    }
}

#[test]
fn commands_as_they_are_given() {
    let cache = tempfile::tempdir().unwrap();
    std::fs::create_dir(cache.path().join("runner")).unwrap();
    let mut launch_spec = launch_spec(cache.path());
    let docker = engine(Kind::Docker, cache.path());
    insta::assert_snapshot!("docker", command_line(&docker, cache.path(), &launch_spec));
    let mut podman = engine(Kind::Podman, cache.path());
    insta::assert_snapshot!(
        "podman_of_a_user",
        command_line(&podman, cache.path(), &launch_spec)
    );
    launch_spec.user = Some(2_100_000_007);
    (podman.own_ids, podman.cgroup_files) = ((0, 0), true);
    insta::assert_snapshot!(
        "podman_of_root",
        command_line(&podman, cache.path(), &launch_spec)
    );
}

#[test]
fn the_proxy_socket_is_mounted_only_with_a_host_list() {
    let cache = tempfile::tempdir().unwrap();
    std::fs::create_dir(cache.path().join("runner")).unwrap();
    let docker = engine(Kind::Docker, cache.path());
    let mut launch_spec = launch_spec(cache.path());
    let (without, with) = {
        let without = docker.arguments(&launch_spec, "x", None).join(" ");
        launch_spec.spec.network =
            pybench_interpreter::Network::allow(&["a.example".to_owned()]).unwrap();
        let proxy_socket = proxy_socket(&docker.environment, &launch_spec).unwrap();
        (
            without,
            docker
                .arguments(&launch_spec, "x", proxy_socket.as_ref())
                .join(" "),
        )
    };
    let limit = |more: u64| format!("--pids-limit {} ", launch_spec.spec.limits.processes + more);
    let signs = [
        "dst=/opt/door,readonly",
        "way=True",
        "HTTPS_PROXY=",
        &limit(2),
    ];
    for sign in signs {
        assert!(
            with.contains(sign) && !without.contains(sign),
            "{sign}: {with}"
        );
    }
    assert!(without.contains(&limit(1)) && with.contains("--network none"));
}

#[test]
fn with_an_image_the_host_system_is_not_mounted() {
    let cache = tempfile::tempdir().unwrap();
    std::fs::create_dir(cache.path().join("runner")).unwrap();
    let mut docker = engine(Kind::Docker, cache.path());
    docker.settings = EngineSettings {
        image: Some("env:1".to_owned()),
        runtime: Some("runsc".to_owned()),
        seccomp: Some("/etc/profile.json".into()),
        cpus: Some(1.5),
        ..EngineSettings::default()
    };
    let words = docker
        .arguments(&launch_spec(cache.path()), "x", None)
        .join(" ");
    assert!(
        !words.contains("src=/usr") && words.contains("dst=/opt/pybench,readonly"),
        "{words}"
    );
    for choice in [
        "--runtime runsc",
        "--security-opt seccomp=/etc/profile.json",
        "--cpu-quota 150000",
    ] {
        assert!(words.contains(choice), "{words}");
    }
}

#[test]
fn known_errors_get_a_remedy() {
    let docker = |text| explain_error(Kind::Docker, text);
    assert!(
        docker("Cannot connect to the Docker daemon at unix:///x")
            .contains("systemctl start docker")
    );
    assert!(
        docker("permission denied while trying to connect to the docker API").contains("rootless")
    );
    assert!(explain_error(Kind::Podman, "exec: \"newuidmap\": not found").contains("/etc/subuid"));
    let mixed = "Error: OCI runtime error: crun: cgroups in hybrid mode not supported, drop all controllers from cgroupv2";
    let said = explain_error(Kind::Podman, mixed);
    assert!(
        said.starts_with(mixed) && said.contains("both versions") && said.contains("runc"),
        "{said}"
    );
    assert_eq!(docker("no space left"), "no space left");
}

#[test]
fn only_containers_of_our_dead_processes_are_orphans() {
    assert!(is_orphan("pybench-999999999-abc"));
    assert!(!is_orphan(&format!("pybench-{}-abc", std::process::id())));
    for other in [
        "",
        "postgres",
        "pybench",
        "pybench-",
        "pybench-x-1",
        "pybench-../1-x",
    ] {
        assert!(!is_orphan(other), "{other}");
    }
}

#[test]
fn paths_are_quoted() {
    assert_eq!(field("src", Path::new("/a b")), "src=/a b");
    assert_eq!(field("src", Path::new("/a,b\"c")), "\"src=/a,b\"\"c\"");
}
