use std::io::Write;

use super::*;

async fn gather(source: &dyn Source, item: &str) -> (Vec<Event>, Result<(), Failure>) {
    let (sink, mut events) = Sink::new(Limits {
        file: 1 << 20,
        total: 4 << 20,
    });
    let mut seen = Vec::new();
    let (result, ()) = tokio::join!(source.collect(item, sink), async {
        while let Some(event) = events.recv().await {
            seen.push(event);
        }
    });
    (seen, result)
}

fn shown(events: &[Event]) -> Vec<String> {
    let show = |event: &Event| match event {
        Event::File { origin, .. } => format!("file {origin}"),
        Event::LeftOut { origin, reason } => format!("left {origin}: {reason}"),
        Event::License(license) => format!("license {license}"),
    };
    events.iter().map(show).collect()
}

#[tokio::test]
async fn a_folder_is_read_in_order_without_links_hidden_and_ignored_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    write("b.csv", b"x\n1\n");
    write("a/z.txt", b"z");
    write("no.log.txt", b"z");
    write("~$b.csv", b"Ada\n");
    write("ignored.txt", b"z");
    write(".gitignore", b"ignored.txt\n");
    write("big.txt", &vec![b'x'; 2 << 20]);
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link.txt")).unwrap();
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zip.start_file("in/side.csv", zip::write::SimpleFileOptions::default())
        .unwrap();
    zip.write_all(b"x\n1\n").unwrap();
    write("c.zip", &zip.finish().unwrap().into_inner());
    let local = local::Local::new(
        folder.path().into(),
        vec!["*.log.txt".into()],
        Some("CC0-1.0".into()),
    );
    let (events, result) = gather(&local, "folder").await;
    result.unwrap();
    assert_eq!(
        shown(&events),
        [
            "license CC0-1.0",
            "file a/z.txt",
            "file b.csv",
            "left big.txt: larger than 1 MiB; `crawl.file_mib` allows more",
            "file c.zip#in/side.csv",
            "left link.txt: a symbolic link",
        ]
    );
}
