//! Asks probes (HK-13): a GET by hand, a connection, a command. Each has its bound, and three answers.

use std::io;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::report::{Health, ProbeLine};
use meshplan_schemas::resource::{Ask, Probe};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::command::{self, Command, How, cut};
use super::engine::{Container, RealEngine};
use super::system::{self, NO_SYSTEM};
use crate::kinds::probe::{HttpTarget, http_target, validate};
use crate::pure::unit::Unit;

/// How many are asked at once.
const AT_ONCE: usize = 8;
/// How much of an answer is read to find its status.
const STATUS_BYTES: usize = 1024;

/// Asks all, in their order.
pub async fn ask(probes: Vec<(ResourceName, Probe)>, root: &Path) -> Vec<ProbeLine> {
    let asked = probes.into_iter().map(|(name, probe)| async move {
        let (health, reason) = one(&probe, root).await;
        ProbeLine {
            name,
            health,
            reason: cut(&reason),
        }
    });
    futures_util::stream::iter(asked)
        .buffered(AT_ONCE)
        .collect()
        .await
}

async fn one(probe: &Probe, root: &Path) -> (Health, String) {
    if let Err(why) = validate(probe) {
        return (Health::Unknown, why);
    }
    let timeout = Duration::from_secs(u64::from(probe.timeout_secs));
    let bounded = |secs: u32| (Health::Unhealthy, format!("no answer within {secs} s"));
    match &probe.ask {
        Ask::Command(argv) => from_command(
            command::run(Command { argv, root, timeout }).await,
            probe.timeout_secs,
        ),
        Ask::Tcp(address) => match tokio::time::timeout(timeout, connect(address.as_str())).await {
            Err(_) => bounded(probe.timeout_secs),
            Ok(Ok(_)) => (Health::Healthy, "connected".to_owned()),
            Ok(Err((health, why))) => (health, why),
        },
        Ask::Http { url, status } => match http_target(url) {
            Err(why) => (Health::Unknown, why),
            Ok(target) => tokio::time::timeout(timeout, get(&target, *status))
                .await
                .unwrap_or_else(|_| bounded(probe.timeout_secs)),
        },
        Ask::Unit(_) if root != Path::new("/") => (Health::Unknown, NO_SYSTEM.to_owned()),
        Ask::Unit(unit) => match tokio::time::timeout(timeout, system::unit(unit)).await {
            Err(_) => (
                Health::Unknown,
                format!(
                    "the service manager did not answer within {} s",
                    probe.timeout_secs
                ),
            ),
            Ok(answer) => from_unit(unit, answer),
        },
        Ask::Container(_) if root != Path::new("/") => (Health::Unknown, NO_SYSTEM.to_owned()),
        Ask::Container(name) => {
            let engine = RealEngine::of_the_machine(None);
            match tokio::time::timeout(timeout, engine.look(name)).await {
                Err(_) => {
                    let why = format!(
                        "the container engine did not answer within {} s",
                        probe.timeout_secs
                    );
                    (Health::Unknown, why)
                }
                Ok(answer) => from_container(name, answer),
            }
        }
    }
}

/// A manager that does not answer says nothing of the unit (DL-13).
fn from_unit(name: &str, answer: Result<Option<Unit>, String>) -> (Health, String) {
    match answer {
        Err(why) => (Health::Unknown, why),
        Ok(None) => (Health::Unhealthy, format!("there is no unit {name}")),
        Ok(Some(unit)) if unit.active == "active" => (Health::Healthy, unit.words()),
        Ok(Some(unit)) => (Health::Unhealthy, unit.words()),
    }
}

/// What its own healthcheck says; one without runs or does not. An engine that does not answer says nothing of it (DL-13),
/// nor does a healthcheck that has not spoken yet.
fn from_container(name: &str, answer: Result<Option<Container>, String>) -> (Health, String) {
    match answer {
        Err(why) => (Health::Unknown, why),
        Ok(None) => (Health::Unhealthy, format!("there is no container {name}")),
        Ok(Some(found)) => {
            let state = found.state;
            let health = match state.health.as_deref() {
                _ if !state.is_up() => Health::Unhealthy,
                None | Some("healthy") => Health::Healthy,
                Some("unhealthy") => Health::Unhealthy,
                Some(_) => Health::Unknown,
            };
            (health, state.words())
        }
    }
}

fn from_command(ended: command::Ended, timeout_secs: u32) -> (Health, String) {
    let with = |words: String| {
        if ended.said.is_empty() {
            words
        } else {
            format!("{words}: {}", ended.said)
        }
    };
    match &ended.how {
        How::Exited(0) => (Health::Healthy, ended.said.clone()),
        How::Exited(code) => (Health::Unhealthy, with(format!("exit code {code}"))),
        How::Signalled(signal) => (Health::Unhealthy, with(format!("ended by signal {signal}"))),
        How::TimedOut => (
            Health::Unhealthy,
            with(format!("no answer within {timeout_secs} s")),
        ),
        How::TooLarge => (Health::Unknown, "what it said is too large to be read".to_owned()),
        How::NotStarted(why) => (Health::Unknown, format!("could not be started: {why}")),
    }
}

/// Somebody who says no, or does not answer, is a no; a machine that cannot ask (no descriptor, no name) is not.
async fn connect(address: impl tokio::net::ToSocketAddrs) -> Result<TcpStream, (Health, String)> {
    let addresses: Vec<_> = tokio::net::lookup_host(address)
        .await
        .map_err(|e| (Health::Unknown, format!("the name cannot be looked up: {e}")))?
        .collect();
    let mut last = (Health::Unknown, "the name has no address".to_owned());
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(e) => {
                last = (health_of(e.kind(), address.ip()), format!("{address}: {e}"));
            }
        }
    }
    Err(last)
}

/// Who refuses has said no. A way that is not there says nothing of what is asked, unless it is this machine itself.
fn health_of(kind: io::ErrorKind, address: std::net::IpAddr) -> Health {
    match kind {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Health::Unhealthy,
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable
            if address.is_loopback() =>
        {
            Health::Unhealthy
        }
        _ => Health::Unknown,
    }
}

async fn get(target: &HttpTarget, expected: u16) -> (Health, String) {
    let mut stream = match connect((target.host.as_str(), target.port)).await {
        Ok(stream) => stream,
        Err(answer) => return answer,
    };
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: meshplan-host\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        target.path, target.authority
    );
    if let Err(e) = stream.write_all(request.as_bytes()).await {
        return (Health::Unhealthy, format!("closed while it was asked: {e}"));
    }
    let mut answer = Vec::new();
    let mut piece = [0; STATUS_BYTES];
    while !answer.contains(&b'\n') && answer.len() < STATUS_BYTES {
        match stream.read(&mut piece).await {
            Ok(0) => break,
            Ok(len) => answer.extend_from_slice(&piece[..len]),
            Err(e) => return (Health::Unhealthy, format!("closed before it answered: {e}")),
        }
    }
    match status(&answer) {
        Some(found) if found == expected => (Health::Healthy, format!("HTTP {found}")),
        Some(found) => (Health::Unhealthy, format!("HTTP {found}, expected {expected}")),
        None => (Health::Unhealthy, "what answered does not speak HTTP".to_owned()),
    }
}

/// The status of an answer (RFC 9112, section 4).
fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|b| *b == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut parts = line.split(' ');
    parts.next()?.strip_prefix("HTTP/1.")?;
    let code = parts.next()?.trim_end();
    (code.len() == 3).then(|| code.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    // holds: HK-13, DL-13
    #[test]
    fn a_container_says_what_its_healthcheck_says_and_an_engine_that_is_silent_says_nothing_of_it() {
        let found = |status: &str, health: Option<&str>| {
            let mut container = Container::default();
            status.clone_into(&mut container.state.status);
            container.state.health = health.map(str::to_owned);
            from_container("web", Ok(Some(container))).0
        };
        for (status, health, expected) in [
            ("running", None, Health::Healthy),
            ("running", Some("healthy"), Health::Healthy),
            ("running", Some("unhealthy"), Health::Unhealthy),
            ("running", Some("starting"), Health::Unknown),
            ("exited", Some("healthy"), Health::Unhealthy),
            ("restarting", None, Health::Unhealthy),
        ] {
            assert_eq!(found(status, health), expected, "{status} {health:?}");
        }
        assert_eq!(from_container("web", Ok(None)).0, Health::Unhealthy);
        assert_eq!(from_container("web", Err("silent".to_owned())).0, Health::Unknown);
    }

    async fn answer(ask_for: Ask, timeout_secs: u32) -> (Health, String) {
        let probe = Probe {
            ask: ask_for,
            timeout_secs,
        };
        let name = "web.front".parse().unwrap();
        let lines = ask(vec![(name, probe)], &std::env::temp_dir()).await;
        (lines[0].health, lines[0].reason.clone())
    }
    /// A server that reads a request and says this; nothing at all when there is nothing to say.
    async fn server(says: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                let _read = stream.read(&mut request).await;
                if says.is_empty() {
                    kept.push(stream);
                } else {
                    let _written = stream.write_all(says.as_bytes()).await;
                }
            }
        });
        address
    }
    async fn free_port() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().to_string()
    }
    fn http(address: &str, status: u16) -> Ask {
        Ask::Http {
            url: format!("http://{address}/health"),
            status,
        }
    }
    fn argv(words: &[&str]) -> Ask {
        Ask::Command(words.iter().map(|w| (*w).to_owned()).collect())
    }

    // holds: HK-13, DL-13
    #[test]
    fn a_way_that_is_not_there_is_no_answer_of_the_one_that_is_asked() {
        let far = "192.0.2.1".parse().unwrap();
        let near = "127.0.0.1".parse().unwrap();
        for kind in [
            io::ErrorKind::HostUnreachable,
            io::ErrorKind::NetworkUnreachable,
            io::ErrorKind::TimedOut,
        ] {
            assert_eq!(health_of(kind, far), Health::Unknown, "{kind}");
            assert_eq!(health_of(kind, near), Health::Unhealthy, "{kind}");
        }
        assert_eq!(
            health_of(io::ErrorKind::ConnectionRefused, far),
            Health::Unhealthy
        );
    }

    // holds: HK-13
    #[tokio::test]
    async fn http_is_healthy_with_the_status_that_is_expected_and_no_other() {
        let up = server("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(
            answer(http(&up, 204), 5).await,
            (Health::Healthy, "HTTP 204".into())
        );
        let (health, words) = answer(http(&up, 200), 5).await;
        assert_eq!(
            (health, words.as_str()),
            (Health::Unhealthy, "HTTP 204, expected 200")
        );
        let other = server("SSH-2.0-OpenSSH\r\n").await;
        assert_eq!(answer(http(&other, 200), 5).await.0, Health::Unhealthy);
    }

    // holds: HK-13
    #[tokio::test]
    async fn who_refuses_or_never_answers_says_no() {
        let closed = free_port().await;
        assert_eq!(answer(http(&closed, 200), 5).await.0, Health::Unhealthy);
        assert_eq!(answer(Ask::Tcp(closed), 5).await.0, Health::Unhealthy);
        let silent = server("").await;
        let (health, words) = answer(http(&silent, 200), 1).await;
        assert_eq!(
            (health, words.as_str()),
            (Health::Unhealthy, "no answer within 1 s")
        );
        assert_eq!(answer(Ask::Tcp(silent), 5).await.0, Health::Healthy);
    }

    // holds: HK-13
    #[tokio::test]
    async fn an_endless_answer_is_bounded() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
        });
        let (health, words) = answer(http(&address, 200), 20).await;
        assert_eq!(
            (health, words.as_str()),
            (Health::Unhealthy, "what answered does not speak HTTP")
        );
    }

    // holds: HK-13, DL-13
    #[tokio::test]
    async fn a_command_says_yes_no_or_could_not_be_asked() {
        assert_eq!(answer(argv(&["true"]), 5).await.0, Health::Healthy);
        let (health, words) = answer(argv(&["sh", "-c", "echo broken; exit 2"]), 5).await;
        assert_eq!(
            (health, words.as_str()),
            (Health::Unhealthy, "exit code 2: broken")
        );
        assert_eq!(answer(argv(&["sleep", "60"]), 1).await.0, Health::Unhealthy);
        assert_eq!(answer(argv(&["/nonexistent"]), 5).await.0, Health::Unknown);
    }

    // holds: DL-13
    #[tokio::test]
    async fn a_name_that_cannot_be_looked_up_is_not_a_no() {
        assert_eq!(
            answer(Ask::Tcp("no-such-name.invalid:1".into()), 20).await.0,
            Health::Unknown
        );
        assert_eq!(
            answer(http("no-such-name.invalid", 200), 20).await.0,
            Health::Unknown
        );
    }
}
