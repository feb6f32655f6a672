//! Acts on the machine's container engine: the way back of containers, and the runs of those that are scheduled (HK-8,
//! HK-9).
//!
//!     meshplan-launcher container SOCKET restore NAME ID
//!     meshplan-launcher container SOCKET remove NAME
//!     meshplan-launcher container SOCKET start|restart|stop NAME
//!     meshplan-launcher container SOCKET run NAME
//!     meshplan-launcher container SOCKET unmake-network NAME
//!
//! It stands alone because these must work without the host, and where no client of an engine is installed: undo journals
//! and units hold such lines, so the words are frozen. It speaks Docker's API over the engine's socket, which Podman
//! speaks too, a connection for each question. Each act looks first, does nothing where the state is there, and so may be
//! repeated. An engine that does not answer is a failure, and never "not there". Everything is done by the id of what was
//! found under exactly that name: an engine takes the beginning of an id for a name as well.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use rustix::net::sockopt::Timeout;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::{USAGE, say};

/// How long the engine may take to tell of something.
const LOOK: Duration = Duration::from_secs(30);
/// How long it may take to do something: one that is stopped has its own time for that.
const ACT: Duration = Duration::from_secs(300);
/// More than this no answer has that is read here.
const MOST_BYTES: u64 = 16 * 1024 * 1024;
/// The label that only containers of the host's have.
const OWN: &str = "\"meshplan.spec\":";
/// The label that only networks of the host's have.
const OWN_NETWORK: &str = "\"meshplan.made\":";
/// With what it ends where the engine does not answer: who walks a way back asks it no more then.
pub(super) const SILENT: u8 = 75;
/// With what it ends where it could not do it.
const FAILED: u8 = 1;

/// Why something was not done.
#[derive(Debug)]
struct Fault {
    /// With what the program ends.
    code: u8,
    why: String,
}

impl From<String> for Fault {
    fn from(why: String) -> Self {
        Self { code: FAILED, why }
    }
}

/// The command line after `container`.
pub(super) fn command(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Option<Vec<String>> = arguments.map(|argument| argument.into_string().ok()).collect();
    let arguments = arguments.unwrap_or_default();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (socket, words) = match words.as_slice() {
        [socket, words @ ..] if words.iter().skip(1).all(|word| is_plain(word)) => (*socket, words),
        _ => ("", [].as_slice()),
    };
    let engine = Engine { socket };
    let done = match words {
        ["restore", name, id] => engine.restore(name, id),
        ["remove", name] => engine.remove(name),
        ["start", name] => engine.turn(name, "start"),
        ["restart", name] => engine.turn(name, "restart"),
        ["stop", name] => engine.stop(name),
        ["unmake-network", name] => engine.unmake_network(name),
        ["run", name] => match engine.run(name) {
            Ok(0) => Ok(()),
            Ok(code) => {
                say(&format!("container {name} ended with {code}"));
                return ExitCode::from(u8::try_from(code).unwrap_or(FAILED));
            }
            Err(fault) => Err(fault),
        },
        _ => {
            say(
                "container SOCKET restore NAME ID | remove NAME | start NAME | restart NAME | stop NAME | run NAME | \
                 unmake-network NAME",
            );
            return ExitCode::from(USAGE);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            say(&fault.why);
            ExitCode::from(fault.code)
        }
    }
}

/// A name or id, as it may stand in an address.
fn is_plain(word: &str) -> bool {
    !word.is_empty()
        && word.len() <= 128
        && word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

struct Engine<'a> {
    socket: &'a str,
}

/// An answer.
struct Answer {
    status: u16,
    body: String,
}

/// A container that was found.
struct Found {
    id: String,
    /// The host made it.
    is_own: bool,
}

impl Engine<'_> {
    /// The former container has its name again, and what has it now goes. It is not started.
    fn restore(&self, name: &str, id: &str) -> Result<(), Fault> {
        let former = self.ask("GET", &format!("/containers/{id}/json"))?;
        if former.status == 404 {
            return Err(format!("the former container {id} of {name} is gone").into());
        }
        let former = former.good()?;
        if text_of(&former.body, "Id") != Some(id) {
            return Err(format!("the former container {id} of {name} is gone").into());
        }
        match self.find(name)?.filter(|other| other.id != id) {
            Some(other) if other.is_own => self.take_away(&other.id)?,
            Some(_) => {
                return Err(
                    format!("somebody else's container has the name {name}; the former one is {id}").into(),
                );
            }
            None => {}
        }
        if former.body.contains(&format!("\"Name\":\"/{name}\"")) {
            return Ok(());
        }
        self.ask("POST", &format!("/containers/{id}/rename?name={name}"))?
            .good()
            .map(drop)
    }

    /// One of the host's goes; one that somebody else made under that name stays.
    fn remove(&self, name: &str) -> Result<(), Fault> {
        match self.find(name)? {
            Some(found) if found.is_own => self.take_away(&found.id),
            Some(_) | None => Ok(()),
        }
    }

    fn take_away(&self, id: &str) -> Result<(), Fault> {
        let gone = self.ask("DELETE", &format!("/containers/{id}?force=true"))?;
        if gone.status == 404 {
            Ok(())
        } else {
            gone.good().map(drop)
        }
    }

    fn turn(&self, name: &str, word: &str) -> Result<(), Fault> {
        let found = self
            .find(name)?
            .ok_or_else(|| format!("there is no container {name}"))?;
        self.ask("POST", &format!("/containers/{}/{word}", found.id))?
            .good()
            .map(drop)
    }

    fn stop(&self, name: &str) -> Result<(), Fault> {
        match self.find(name)? {
            Some(found) => self
                .ask("POST", &format!("/containers/{}/stop", found.id))?
                .good()
                .map(drop),
            None => Ok(()),
        }
    }

    /// Starts it and waits for its end, for as long as the unit that it runs in lets it.
    fn run(&self, name: &str) -> Result<i64, Fault> {
        let found = self
            .find(name)?
            .ok_or_else(|| format!("there is no container {name}"))?;
        self.ask("POST", &format!("/containers/{}/start", found.id))?
            .good()?;
        let path = format!("/containers/{}/wait?condition=not-running", found.id);
        let ended = self.ask_within("POST", &path, None)?.good()?;
        let code = ended
            .body
            .split_once("\"StatusCode\":")
            .map_or("", |(_, rest)| rest.trim_start());
        let end = code
            .find(|c: char| !c.is_ascii_digit() && c != '-')
            .unwrap_or(code.len());
        let code = code.get(..end).and_then(|code| code.parse().ok());
        code.ok_or_else(|| format!("the container engine did not say how {name} ended").into())
    }

    /// One of the host's goes; one that somebody else made under that name stays, and one that something is in.
    fn unmake_network(&self, name: &str) -> Result<(), Fault> {
        let found = self.ask("GET", &format!("/networks/{name}"))?;
        if found.status == 404 {
            return Ok(());
        }
        let body = found.good()?.body;
        if text_of(&body, "Name") != Some(name) || !body.contains(OWN_NETWORK) {
            return Ok(());
        }
        let gone = self.ask("DELETE", &format!("/networks/{name}"))?;
        match gone.status {
            404 => Ok(()),
            // Docker's word and Podman's: it is in use.
            403 | 409 => {
                say(&format!("the network {name} stays, as something is in it"));
                Ok(())
            }
            _ => gone.good().map(drop),
        }
    }

    /// The container of exactly this name.
    fn find(&self, name: &str) -> Result<Option<Found>, Fault> {
        let answer = self.ask("GET", &format!("/containers/{name}/json"))?;
        if answer.status == 404 {
            return Ok(None);
        }
        let body = answer.good()?.body;
        // Only a container's own name begins with a slash.
        if !body.contains(&format!("\"Name\":\"/{name}\"")) {
            return Ok(None);
        }
        let id = text_of(&body, "Id");
        let id = id.ok_or_else(|| "the container engine told of a container without an id".to_owned())?;
        Ok(Some(Found {
            id: id.to_owned(),
            is_own: body.contains(OWN),
        }))
    }

    fn ask(&self, method: &str, path: &str) -> Result<Answer, Fault> {
        self.ask_within(method, path, Some(if method == "GET" { LOOK } else { ACT }))
    }

    /// Asks; no bound: for as long as it takes.
    fn ask_within(&self, method: &str, path: &str, bound: Option<Duration>) -> Result<Answer, Fault> {
        let silent = |e: std::io::Error| Fault {
            code: SILENT,
            why: format!("the container engine behind {} cannot be asked: {e}", self.socket),
        };
        let mut stream = connect(self.socket).map_err(silent)?;
        stream.set_read_timeout(bound).map_err(silent)?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: engine\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).map_err(silent)?;
        let mut bytes = Vec::new();
        stream.take(MOST_BYTES).read_to_end(&mut bytes).map_err(silent)?;
        let answer = answer(&bytes);
        answer.ok_or_else(|| format!("what answers behind {} is no container engine", self.socket).into())
    }
}

/// Connects within the bound of a look, also where nobody takes connections any more.
fn connect(socket: &str) -> std::io::Result<UnixStream> {
    let address = SocketAddrUnix::new(socket)?;
    let flags = SocketFlags::CLOEXEC;
    let stream = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::sockopt::set_socket_timeout(&stream, Timeout::Send, Some(LOOK))?;
    net::connect(&stream, &address)?;
    Ok(stream.into())
}

impl Answer {
    /// The answer, where it is one of success; 304 says that it was so already.
    fn good(self) -> Result<Self, Fault> {
        if (200..300).contains(&self.status) || self.status == 304 {
            return Ok(self);
        }
        let said = text_of(&self.body, "message").unwrap_or(self.body.trim());
        let said: String = said.chars().take(2000).collect();
        Err(format!("the container engine refused ({}): {said}", self.status).into())
    }
}

/// The first text of this name in a JSON text. The names that are asked for come first in what engines say, and no value
/// that is asked for has anything to unquote but a message for people.
fn text_of<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = body.split_once(&format!("\"{name}\":\""))?;
    rest.split_once('"').map(|(text, _)| text)
}

/// Reads an answer as HTTP/1.1 has it (RFC 9112); the connection was closed behind it.
fn answer(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    let body = bytes.get(end + 4..)?;
    let is_chunked = lines.any(|line| {
        let line = line.to_ascii_lowercase();
        line.starts_with("transfer-encoding:") && line.ends_with("chunked")
    });
    let body = if is_chunked {
        unchunked(body)?
    } else {
        body.to_vec()
    };
    Some(Answer {
        status,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(rest.get(..end)?).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        let from = end + 2;
        if size == 0 {
            return Some(whole);
        }
        let to = from.checked_add(size)?;
        whole.extend_from_slice(rest.get(from..to)?);
        rest = rest.get(to.checked_add(2)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: HK-8
    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        let plain = answer(b"HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n").unwrap();
        assert_eq!((plain.status, plain.body.as_str()), (204, ""));
        let pieces = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n{\"Id\":\r\n4;x=y\r\n\"ab\"\r\n1\r\n}\r\n0\r\n\r\n";
        let pieces = answer(pieces).unwrap();
        assert_eq!(text_of(&pieces.body, "Id"), Some("ab"));
        for bad in [
            b"".as_slice(),
            b"SSH-2.0-OpenSSH\r\n\r\n",
            b"HTTP/1.1 20\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{}",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n{}\r\n",
        ] {
            assert!(answer(bad).is_none(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn what_would_leave_its_place_in_an_address_is_no_name() {
        for (word, plain) in [
            ("web-1.x_y", true),
            ("", false),
            ("a/b", false),
            ("a?b", false),
            ("a b", false),
            ("ä", false),
        ] {
            assert_eq!(is_plain(word), plain, "{word}");
        }
    }

    // holds: HK-8
    #[test]
    fn an_engine_that_is_not_there_is_a_failure() {
        let engine = Engine {
            socket: "/nonexistent/engine.sock",
        };
        for done in [
            engine.remove("web"),
            engine.restore("web", "ab"),
            engine.stop("web"),
            engine.unmake_network("n"),
        ] {
            let fault = done.unwrap_err();
            assert!(fault.why.contains("cannot be asked"));
            assert_eq!(fault.code, SILENT);
        }
    }
}
