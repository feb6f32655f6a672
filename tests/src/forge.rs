//! The forge of a world: a folder of bare repositories behind `git http-backend`, the real git over real HTTP.
//!
//! A stand-in of a page: one thread a connection, one request a connection, the CGI of git's own manual.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};

use crate::program::{Said, clean};

/// A served folder of bare repositories.
#[derive(Debug)]
pub struct Forge {
    root: PathBuf,
    address: SocketAddr,
    open: Arc<AtomicBool>,
}

impl Forge {
    /// Serves `root`, which is made, on a free port of loopback.
    ///
    /// # Errors
    /// No port, no folder.
    pub fn start(root: &Path) -> Result<Self> {
        std::fs::create_dir_all(root).context("the forge's folder can be made")?;
        let listener = TcpListener::bind("127.0.0.1:0").context("the forge finds a port")?;
        let address = listener.local_addr()?;
        let open = Arc::new(AtomicBool::new(true));
        let (served, still_open) = (root.to_owned(), Arc::clone(&open));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if !still_open.load(Ordering::SeqCst) {
                    break;
                }
                let served = served.clone();
                // A client that goes away in the midst of an answer is its own affair.
                thread::spawn(move || answer(stream, &served).ok());
            }
        });
        Ok(Self {
            root: root.to_owned(),
            address,
            open,
        })
    }

    /// Makes an empty bare repository that takes pushes; gives its folder.
    ///
    /// # Errors
    /// git says no.
    pub fn create(&self, name: &str) -> Result<PathBuf> {
        let folder = self.root.join(name);
        let mut init = clean("git", &self.root);
        init.args(["init", "--quiet", "--bare", "--initial-branch=main"])
            .arg(&folder);
        Said::of(init)?.ok()?;
        let mut config = clean("git", &self.root);
        config
            .arg("-C")
            .arg(&folder)
            .args(["config", "http.receivepack", "true"]);
        Said::of(config)?.ok()?;
        Ok(folder)
    }

    /// The address of a repository.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// The folder of a repository.
    #[must_use]
    pub fn folder(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Drop for Forge {
    fn drop(&mut self) {
        self.open.store(false, Ordering::SeqCst);
        // Wakes the listening thread, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

/// One request as it came in.
struct Request {
    method: String,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }
}

fn answer(mut stream: TcpStream, root: &Path) -> Result<()> {
    let request = read_request(&mut stream)?;
    let mut backend = clean("git", root);
    backend
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", &request.method)
        .env("PATH_INFO", &request.path)
        .env("QUERY_STRING", &request.query)
        .env("CONTENT_TYPE", request.header("Content-Type"))
        .env("CONTENT_LENGTH", request.body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", request.header("Content-Encoding"))
        .env("GIT_PROTOCOL", request.header("Git-Protocol"))
        .env("REMOTE_USER", "dana")
        .env("REMOTE_ADDR", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = backend.spawn().context("git http-backend starts")?;
    let mut stdin = child.stdin.take().context("a piped stdin")?;
    let body = request.body;
    // In a thread of its own: git may answer before it has read everything.
    let writer = thread::spawn(move || stdin.write_all(&body));
    let output = child.wait_with_output()?;
    writer.join().ok();
    let split = output
        .stdout
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .context("an answer with a head")?;
    let (head, body) = output.stdout.split_at(split);
    let head = String::from_utf8_lossy(head);
    let status = head
        .lines()
        .find_map(|l| l.strip_prefix("Status: "))
        .unwrap_or("200 OK");
    write!(stream, "HTTP/1.1 {status}\r\n")?;
    for line in head.lines().filter(|l| !l.starts_with("Status: ")) {
        write!(stream, "{line}\r\n")?;
    }
    let body = body.get(4..).unwrap_or_default();
    write!(
        stream,
        "Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body)?;
    Ok(())
}

fn read_request(stream: &mut TcpStream) -> Result<Request> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut words = first.split_whitespace();
    let method = words.next().context("a method")?.to_owned();
    let target = words.next().context("a path")?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = Request {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
    };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => request.headers.push((name.to_owned(), value.trim().to_owned())),
            None => break,
        }
    }
    if request.header("Expect").eq_ignore_ascii_case("100-continue") {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    if request
        .header("Transfer-Encoding")
        .eq_ignore_ascii_case("chunked")
    {
        request.body = read_chunks(&mut reader)?;
    } else if let Ok(length) = request.header("Content-Length").parse::<u64>() {
        reader.take(length).read_to_end(&mut request.body)?;
    }
    Ok(request)
}

fn read_chunks(reader: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = line.trim().split(';').next().unwrap_or_default();
        let size = u64::from_str_radix(size, 16).context("a chunk's size")?;
        reader.take(size).read_to_end(&mut body)?;
        let mut end = String::new();
        reader.read_line(&mut end)?;
        if size == 0 {
            return Ok(body);
        }
    }
}
