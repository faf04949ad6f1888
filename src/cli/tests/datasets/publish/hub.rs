//! A Hub on the loopback: repositories with commits, large files, the routes that are written and those that
//! the Hub's own Python clients read; and everything that can go wrong with them.

mod cas;
mod routes;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Method, Response};
use futures::StreamExt as _;
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::Digest;
use tokio::sync::watch;

pub use cas::Cas;
use routes::route;

/// The token that may do everything.
pub const TOKEN: &str = "hf_loopbackTokenThatNobodyPrints";

/// A file as a repository has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Small(Bytes),
    Large { oid: String, size: u64 },
}

type Tree = BTreeMap<String, Entry>;

#[derive(Clone, Debug, Default)]
pub struct Repo {
    pub private: bool,
    /// The newest last.
    pub commits: Vec<(String, Tree, String)>,
}

impl Repo {
    pub fn head(&self) -> &(String, Tree, String) {
        self.commits.last().unwrap()
    }
}

/// What goes wrong with the next requests of that method whose path has that part.
#[derive(Clone, Debug)]
pub struct Fault {
    pub method: Method,
    pub part: &'static str,
    pub times: usize,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    /// A status with headers and a body.
    Status(u16, Vec<(&'static str, String)>, String),
    /// The connection ends after that many bytes of the request.
    CutAfter(usize),
    /// It is done, and then the connection ends.
    DoneAndCut,
    /// It is done, and then 500.
    DoneAnd500,
    /// It is done, and the answer comes once [`Hub::let_go`] says so.
    DoneAndWait,
    /// The answer ends after that many bytes of its body.
    CutBody(usize),
    /// Never answers.
    Hang,
    /// Somebody else commits first.
    Overtake,
}

#[derive(Default)]
pub struct Inside {
    /// By `datasets/owner/name`, or `owner/name` of models.
    pub repos: BTreeMap<String, Repo>,
    pub objects: HashMap<String, Bytes>,
    pieces: BTreeMap<(String, usize), Bytes>,
    pub faults: Vec<Fault>,
    /// Method, path and bytes of the body of all requests.
    pub log: Vec<(Method, String, usize)>,
    pub authorized: Vec<String>,
    /// `Range` of the requests that had one, with their paths.
    pub ranges: Vec<(String, String)>,
    /// What the cards of repositories name as their licenses.
    pub licenses: BTreeMap<String, String>,
    /// Size of the pieces that large files are taken in.
    pub piece: Option<usize>,
    /// Where large files go by Xet.
    pub xet: Option<Cas>,
    /// Entries of a page of a tree.
    pub page: usize,
    /// Whether new repositories are public, whatever is asked.
    pub deaf: bool,
    commits: usize,
}

impl Inside {
    /// Bytes of the bodies of requests with that method and part.
    pub fn bytes(&self, method: Method, part: &str) -> usize {
        let log = self.log.iter();
        log.filter(|(m, path, _)| *m == method && path.contains(part))
            .map(|(_, _, bytes)| bytes)
            .sum()
    }

    /// Requests with that method and part.
    pub fn count(&self, method: Method, part: &str) -> usize {
        let log = self.log.iter();
        log.filter(|(m, path, _)| *m == method && path.contains(part))
            .count()
    }

    /// Path → bytes of the newest commit.
    pub fn files(&self, repo: &str) -> BTreeMap<String, Bytes> {
        let bytes = |entry: &Entry| match entry {
            Entry::Small(bytes) => bytes.clone(),
            Entry::Large { oid, .. } => self.objects[oid].clone(),
        };
        let tree = &self.repos[repo].head().1;
        tree.iter()
            .map(|(path, e)| (path.clone(), bytes(e)))
            .collect()
    }

    /// What has come by Xet is there as well.
    pub fn settle(&mut self) {
        self.objects
            .extend(self.xet.iter_mut().flat_map(Cas::files));
    }

    /// A commit of somebody else.
    pub fn commit(&mut self, repo: &str, path: &str, bytes: &str) {
        let mut tree = self.repos[repo].head().1.clone();
        tree.insert(path.into(), Entry::Small(bytes.to_owned().into()));
        self.push(repo, tree, "by hand");
    }

    fn push(&mut self, repo: &str, tree: Tree, message: &str) -> String {
        self.commits += 1;
        let oid = hex(&Sha1::digest(format!("{repo} {}", self.commits)));
        let repo = self.repos.get_mut(repo).unwrap();
        repo.commits.push((oid.clone(), tree, message.to_owned()));
        oid
    }

    /// As the Hub makes a repository: with a file of its own.
    pub fn create(&mut self, repo: &str, private: bool) {
        let private = private && !self.deaf;
        let new = Repo {
            private,
            commits: Vec::new(),
        };
        self.repos.insert(repo.to_owned(), new);
        let own = Entry::Small("*.parquet filter=lfs diff=lfs merge=lfs -text\n".into());
        self.push(
            repo,
            [(".gitattributes".to_owned(), own)].into(),
            "initial commit",
        );
    }
}

struct Shared {
    inside: Mutex<Inside>,
    address: SocketAddr,
    hanging: watch::Sender<bool>,
    going: watch::Sender<bool>,
}

/// A running Hub; its task ends with the runtime.
#[derive(Clone)]
pub struct Hub(Arc<Shared>);

impl Hub {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shared = Arc::new(Shared {
            inside: Mutex::new(Inside {
                page: 3,
                ..Inside::default()
            }),
            address: listener.local_addr().unwrap(),
            hanging: watch::Sender::new(false),
            going: watch::Sender::new(false),
        });
        let router = Router::new().fallback(serve).with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self(shared)
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.0.address)
    }

    pub fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.inside.lock().unwrap()
    }

    pub fn fault(&self, method: Method, part: &'static str, times: usize, what: What) {
        self.inside().faults.push(Fault {
            method,
            part,
            times,
            what,
        });
    }

    /// Until a request hangs.
    pub async fn hangs(&self) {
        let mut hanging = self.0.hanging.subscribe();
        hanging.wait_for(|hanging| *hanging).await.unwrap();
    }

    /// What waits is answered.
    pub fn let_go(&self) {
        self.0.going.send_replace(true);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap()
}

fn as_json(value: &Value) -> Response<Body> {
    answer(
        200,
        &[("content-type", "application/json")],
        value.to_string(),
    )
}

fn missing(code: &str) -> Response<Body> {
    answer(
        404,
        &[("x-error-code", code)],
        json!({"error": "not found"}).to_string(),
    )
}

async fn serve(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let fault = {
        let mut inside = shared.inside.lock().unwrap();
        let of = |f: &mut Fault| f.method == method && path.contains(f.part) && f.times > 0;
        inside.faults.iter_mut().find_map(|fault| {
            of(fault).then(|| {
                fault.times -= 1;
                fault.what.clone()
            })
        })
    };
    let most = match fault {
        Some(What::CutAfter(most)) => most,
        _ => usize::MAX,
    };
    let body = collect(body, most).await;
    {
        let mut inside = shared.inside.lock().unwrap();
        inside.log.push((method.clone(), path.clone(), body.len()));
        let range = parts
            .headers
            .get("range")
            .and_then(|range| range.to_str().ok());
        inside
            .ranges
            .extend(range.map(|range| (path.clone(), range.to_owned())));
    }
    match fault {
        // The connection's own task ends, and with it the connection.
        Some(What::CutAfter(_)) => std::panic::resume_unwind(Box::new("cut")),
        Some(What::Hang) => {
            shared.hanging.send_replace(true);
            std::future::pending().await
        }
        Some(What::Status(status, headers, body)) => {
            let headers: Vec<_> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
            answer(status, &headers, body)
        }
        Some(What::Overtake) => {
            let mut inside = shared.inside.lock().unwrap();
            let repo = inside.repos.keys().next().unwrap().clone();
            inside.commit(&repo, "theirs.md", "theirs");
            route(
                &mut inside,
                &shared,
                &method,
                &parts.uri,
                &parts.headers,
                &body,
            )
        }
        done => {
            let answered = {
                let mut inside = shared.inside.lock().unwrap();
                let (uri, headers) = (&parts.uri, &parts.headers);
                route(&mut inside, &shared, &method, uri, headers, &body)
            };
            match done {
                Some(What::DoneAndCut) => std::panic::resume_unwind(Box::new("cut")),
                Some(What::DoneAnd500) => answer(500, &[], ""),
                Some(What::DoneAndWait) => {
                    shared.hanging.send_replace(true);
                    let mut going = shared.going.subscribe();
                    going.wait_for(|going| *going).await.unwrap();
                    answered
                }
                Some(What::CutBody(after)) => cut(answered, after).await,
                _ => answered,
            }
        }
    }
}

/// The same answer, whose body breaks off.
async fn cut(answered: Response<Body>, after: usize) -> Response<Body> {
    let (parts, body) = answered.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let said = futures::stream::iter([Ok(body.slice(..after.min(body.len())))]);
    let gone = futures::stream::once(async {
        // What was said has arrived.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        Err(std::io::Error::other("gone"))
    });
    Response::from_parts(parts, Body::from_stream(said.chain(gone)))
}

async fn collect(body: Body, most: usize) -> Bytes {
    let mut stream = body.into_data_stream();
    let mut all = Vec::new();
    while let Some(Ok(chunk)) = stream.next().await {
        all.extend_from_slice(&chunk);
        if all.len() >= most {
            break;
        }
    }
    all.into()
}

/// What a status is for, in one line: for tests that go through them.
pub fn status(status: u16, said: &str) -> What {
    What::Status(
        status,
        vec![("x-error-message", said.to_owned())],
        String::new(),
    )
}
