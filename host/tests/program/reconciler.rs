//! A reconciler that says what a test tells it, over a real socket and a real session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use data_encoding::BASE64;
use futures_util::{SinkExt as _, StreamExt as _};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::judge;
use meshplan_schemas::report::Report;
use meshplan_schemas::session::{self, Request};
use meshplan_schemas::wire::{FromHost, ToHost};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_tungstenite::tungstenite::Message;

use super::world::{NODE, reconciler_secret};

#[derive(Default)]
struct Said {
    /// What is sent at each Hello, before Current.
    orders: Vec<ToHost>,
    heard: Vec<FromHost>,
    sessions: usize,
    /// What becomes of reports.
    deaf: bool,
    rejects: bool,
    artifacts: BTreeMap<Digest, Vec<u8>>,
    /// So many pieces are given before a session ends.
    pieces_to_cut: Option<usize>,
}

/// The reconciler; dropped, it answers no more.
pub(crate) struct Reconciler {
    runtime: tokio::runtime::Runtime,
    address: std::net::SocketAddr,
    said: Arc<Mutex<Said>>,
    words: broadcast::Sender<ToHost>,
    /// Ends the sessions that stand.
    cut: broadcast::Sender<()>,
    accepting: Option<tokio::task::JoinHandle<()>>,
}

impl Reconciler {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let mut reconciler = Self {
            address: listener.local_addr().unwrap(),
            said: Arc::default(),
            words: broadcast::channel(64).0,
            cut: broadcast::channel(4).0,
            accepting: None,
            runtime,
        };
        reconciler.accept(listener);
        reconciler
    }
    pub(crate) fn address(&self) -> String {
        format!("ws://{}/mesh", self.address)
    }
    fn accept(&mut self, listener: TcpListener) {
        let (said, words, cut) = (Arc::clone(&self.said), self.words.clone(), self.cut.clone());
        self.accepting = Some(self.runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(talk(
                    stream,
                    Arc::clone(&said),
                    words.subscribe(),
                    cut.subscribe(),
                ));
            }
        }));
    }
    /// Nobody answers from now on, and the sessions end.
    pub(crate) fn go_away(&mut self) {
        if let Some(task) = self.accepting.take() {
            task.abort();
            let _cancelled = self.runtime.block_on(task);
        }
        let _nobody = self.cut.send(());
    }
    pub(crate) fn come_back(&mut self) {
        let listener = self.runtime.block_on(TcpListener::bind(self.address)).unwrap();
        self.accept(listener);
    }
    /// Orders this now and at each Hello.
    pub(crate) fn order(&self, text: String) {
        let word = ToHost::Order { envelope: text };
        self.said.lock().unwrap().orders.push(word.clone());
        self.say(word);
    }
    pub(crate) fn say(&self, word: ToHost) {
        let _nobody = self.words.send(word);
    }
    /// Hears reports and does not acknowledge them.
    pub(crate) fn deaf(&self, deaf: bool) {
        self.said.lock().unwrap().deaf = deaf;
    }
    pub(crate) fn rejects(&self, rejects: bool) {
        self.said.lock().unwrap().rejects = rejects;
    }
    /// Has these bytes to be fetched.
    pub(crate) fn keep(&self, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        self.said.lock().unwrap().artifacts.insert(digest, bytes.to_vec());
        digest
    }
    /// Ends a session after so many pieces, once.
    pub(crate) fn cut_after(&self, pieces: usize) {
        self.said.lock().unwrap().pieces_to_cut = Some(pieces);
    }
    /// What was asked of artifacts: which, from where on.
    pub(crate) fn fetched(&self) -> Vec<(Digest, u64)> {
        let said = self.said.lock().unwrap();
        let fetched = said.heard.iter().filter_map(|word| match word {
            FromHost::Fetch { artifact, offset, .. } => Some((*artifact, *offset)),
            _ => None,
        });
        fetched.collect()
    }
    pub(crate) fn sessions(&self) -> usize {
        self.said.lock().unwrap().sessions
    }
    pub(crate) fn hellos(&self) -> Vec<meshplan_schemas::report::Marks> {
        let said = self.said.lock().unwrap();
        said.heard
            .iter()
            .filter_map(|word| match word {
                FromHost::Hello { marks, .. } => Some((**marks).clone()),
                _ => None,
            })
            .collect()
    }
    /// All reports, each checked as the store would.
    pub(crate) fn reports(&self, keys: &[meshplan_schemas::key::SigningKey]) -> Vec<Report> {
        let said = self.said.lock().unwrap();
        said.heard
            .iter()
            .filter_map(|word| match word {
                FromHost::Report { counter, envelope } => {
                    let fleet = "shop".parse().unwrap();
                    let judged = judge::report(envelope.as_bytes(), &fleet, NODE, keys).unwrap();
                    assert_eq!(judged.payload.counter, *counter);
                    Some(judged.payload)
                }
                _ => None,
            })
            .collect()
    }
}

async fn talk(
    stream: TcpStream,
    said: Arc<Mutex<Said>>,
    mut words: broadcast::Receiver<ToHost>,
    mut cut: broadcast::Receiver<()>,
) -> Option<()> {
    let mut socket = tokio_tungstenite::accept_async(stream).await.ok()?;
    let first = socket.next().await?.ok()?.into_data();
    let fleet = "shop".parse().ok()?;
    let request = Request::read(&fleet, &[reconciler_secret()], &first).ok()?;
    let (answer, mut session) = request.accept().ok()?;
    socket.send(Message::Binary(answer.into())).await.ok()?;
    said.lock().unwrap().sessions += 1;
    loop {
        let answers = tokio::select! {
            _ = cut.recv() => return None,
            word = words.recv() => vec![word.ok()?],
            frame = socket.next() => match frame?.ok()? {
                Message::Binary(frame) => match session.receive(&frame).ok()? {
                    None => vec![],
                    Some(message) => {
                        let word: FromHost = session::decode(&message).ok()?;
                        answers(word, &mut said.lock().unwrap())?
                    }
                },
                Message::Close(_) => return None,
                _ => vec![],
            },
        };
        for answer in answers {
            for frame in session.send(&session::encode(&answer).ok()?, 0).ok()? {
                socket.send(Message::Binary(frame.into())).await.ok()?;
            }
        }
    }
}

/// None ends the session.
fn answers(word: FromHost, said: &mut Said) -> Option<Vec<ToHost>> {
    said.heard.push(word.clone());
    Some(match word {
        FromHost::Hello { .. } => {
            let mut orders = said.orders.clone();
            orders.push(ToHost::Current);
            orders
        }
        FromHost::Report { .. } if said.deaf => vec![],
        FromHost::Report { counter, .. } if said.rejects => vec![ToHost::Reject {
            counter,
            reason: "no".into(),
        }],
        FromHost::Report { counter, .. } => vec![ToHost::Ack { counter }],
        FromHost::Fetch {
            artifact,
            offset,
            length,
        } => {
            match &mut said.pieces_to_cut {
                Some(0) => {
                    said.pieces_to_cut = None;
                    return None;
                }
                Some(left) => *left -= 1,
                None => {}
            }
            vec![match said.artifacts.get(&artifact) {
                None => ToHost::NoArtifact { artifact },
                Some(whole) => ToHost::Piece {
                    artifact,
                    offset,
                    size_bytes: whole.len() as u64,
                    bytes: BASE64.encode(
                        &whole[usize::try_from(offset).unwrap()..]
                            .iter()
                            .copied()
                            .take(length as usize)
                            .collect::<Vec<_>>(),
                    ),
                },
            }]
        }
        FromHost::Want { .. } | FromHost::Unknown => vec![],
    })
}
