//! A local, in-memory server of Hugging Face's chunk store (CAS), for tests.
//!
//! It prints its address. Then, for each line read from standard input, it writes all stored files to the folder given
//! as argument, named by their SHA-256, and prints `{"stored": bytes, "files": [{"sha256", "hash"}]}`.

use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use xet_client::cas_client::{
    DeletionControlableClient, DirectAccessClient, LocalServer, MemoryClient,
};
use xet_runtime::core::XetContext;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(
        std::env::args_os()
            .nth(1)
            .ok_or("usage: pybench-cas FOLDER")?,
    );
    let store = MemoryClient::new(XetContext::default()?);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = LocalServer::from_client(
        store.clone(),
        Some(store.clone()),
        address.ip().to_string(),
        address.port(),
    );
    let (_stop, stopped) = tokio::sync::oneshot::channel();
    let serving = tokio::spawn(async move { server.serve_until_stopped(listener, stopped).await });
    print_line(&format!("http://{address}"))?;
    let mut request = tokio::task::spawn_blocking(wait_for_line);
    while request.await? {
        print_line(&dump_files(&store, &folder).await?)?;
        request = tokio::task::spawn_blocking(wait_for_line);
    }
    serving.abort();
    Ok(())
}

/// Wait for a line on standard input; false at its end.
fn wait_for_line() -> bool {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .is_ok_and(|read| read > 0)
}

fn print_line(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

async fn dump_files(store: &MemoryClient, folder: &Path) -> Result<String, Box<dyn Error>> {
    let mut stored = 0;
    for xorb in store.list_xorbs().await? {
        stored += store.xorb_raw_length(&xorb).await?;
    }
    let mut files = Vec::new();
    for (file, _) in store.list_file_shard_entries().await? {
        let bytes = store.get_file_data(&file, None).await?;
        let digest = Sha256::digest(&bytes);
        let sha256: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        std::fs::write(folder.join(&sha256), &bytes)?;
        files.push(serde_json::json!({"sha256": sha256, "hash": file.hex()}));
    }
    Ok(serde_json::json!({"stored": stored, "files": files}).to_string())
}
