//! What a carrier takes, what it refuses, and that it holds nothing between two frames.

use futures_util::FutureExt as _;
use tokio::io::DuplexStream;

use super::*;

const MASK: [u8; 4] = [1, 2, 3, 4];
const FIN: u8 = 0x80;
const BINARY: u8 = 2;
const PING: u8 = 9;

/// A frame as a client sends it.
fn client_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match u16::try_from(payload.len()) {
        Ok(length) if length < 126 => bytes.push(0x80 | length.to_be_bytes()[1]),
        Ok(length) => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&length.to_be_bytes());
        }
        Err(_) => {
            bytes.push(0x80 | 127);
            bytes.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&MASK);
    bytes.extend(
        payload
            .iter()
            .zip(MASK.iter().cycle())
            .map(|(byte, key)| byte ^ key),
    );
    bytes
}

fn pair(room: usize) -> (Carrier<DuplexStream>, DuplexStream) {
    let (here, there) = tokio::io::duplex(room);
    let carrier = Carrier::new(here, Duration::from_secs(5), Duration::from_secs(5));
    (carrier, there)
}

/// Asks once for a frame, and gives the wait up.
fn now(carrier: &mut Carrier<DuplexStream>) -> Option<Option<Vec<u8>>> {
    carrier.next().now_or_never()
}

// holds: LK-1
#[tokio::test]
async fn a_frame_comes_whole_however_it_is_cut_and_however_often_the_wait_is_given_up() {
    let (mut carrier, mut client) = pair(1 << 20);
    for length in [0, 1, 125, 126, 300] {
        let payload: Vec<u8> = (0..=u8::MAX).cycle().take(length).collect();
        let bytes = client_frame(FIN | BINARY, &payload);
        let (last, before) = bytes.split_last().unwrap();
        for byte in before {
            client.write_all(&[*byte]).await.unwrap();
            assert_eq!(now(&mut carrier), None);
        }
        // The beginning of the next frame is not taken for a part of this one.
        client.write_all(&[*last]).await.unwrap();
        client
            .write_all(&client_frame(FIN | BINARY, b"next"))
            .await
            .unwrap();
        assert_eq!(carrier.next().await, Some(payload));
        assert_eq!(carrier.next().await, Some(b"next".to_vec()));
    }
}

// holds: LK-1
#[tokio::test]
async fn between_two_frames_it_holds_no_buffer() {
    let (mut carrier, mut client) = pair(1 << 20);
    let long = vec![7; 60_000];
    client
        .write_all(&client_frame(FIN | BINARY, &long))
        .await
        .unwrap();
    assert_eq!(carrier.next().await.as_deref(), Some(long.as_slice()));
    assert!(carrier.send(vec![long]).await.is_ok());
    assert_eq!(now(&mut carrier), None);
    assert_eq!(carrier.reading.payload.capacity(), 0);
    assert_eq!(carrier.unwritten.capacity(), 0);
}

#[tokio::test]
async fn fragments_are_put_together_and_a_ping_between_them_is_answered() {
    let (mut carrier, mut client) = pair(1 << 20);
    for frame in [
        client_frame(BINARY, b"one "),
        client_frame(FIN | PING, b"?"),
        client_frame(0, b"two "),
        client_frame(FIN, b"three"),
    ] {
        client.write_all(&frame).await.unwrap();
    }
    assert_eq!(carrier.next().await, Some(b"one two three".to_vec()));
    let mut pong = [0; 3];
    client.read_exact(&mut pong).await.unwrap();
    assert_eq!(pong, [0x8a, 1, b'?']);
}

#[tokio::test]
async fn an_answer_to_a_ping_that_was_interrupted_is_finished_before_anything_else() {
    let (mut carrier, mut client) = pair(16);
    let question = [b'?'; 100];
    let asked = tokio::spawn(async move {
        client
            .write_all(&client_frame(FIN | PING, &question))
            .await
            .unwrap();
        client
    });
    // The client does not read: the answer stays stuck in its middle, and the wait is given up.
    let wait = tokio::time::timeout(Duration::from_millis(50), carrier.next()).await;
    assert!(wait.is_err());
    let mut client = asked.await.unwrap();
    let answers = tokio::spawn(async move {
        let mut bytes = vec![0; 2 + 100 + 2 + 4];
        client.read_exact(&mut bytes).await.unwrap();
        bytes
    });
    assert!(carrier.send(vec![b"word".to_vec()]).await.is_ok());
    let answers = answers.await.unwrap();
    assert_eq!(answers[..2], [0x8a, 100]);
    assert_eq!(answers[2..102], question);
    assert_eq!(answers[102..], [0x82, 4, b'w', b'o', b'r', b'd']);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_given_up() {
    let (mut carrier, _client) = pair(16);
    carrier.write = Duration::from_millis(50);
    assert!(carrier.send(vec![vec![0; 17]]).await.is_err());
}

// holds: LK-1
#[tokio::test]
async fn what_is_no_frame_of_a_client_ends_the_connection() {
    let mut unmasked = client_frame(FIN | BINARY, b"1234");
    unmasked[1] &= 0x7f;
    let half = vec![0; 40_000];
    let refused: [(&str, Vec<u8>); 10] = [
        ("unmasked", unmasked),
        ("text", client_frame(FIN | 1, b"text")),
        ("a reserved bit", client_frame(FIN | 0x40 | BINARY, b"1")),
        ("a reserved kind", client_frame(FIN | 3, b"1")),
        ("a control frame in fragments", client_frame(PING, b"1")),
        ("a long control frame", client_frame(FIN | PING, &[0; 126])),
        (
            "longer than a frame may be",
            client_frame(FIN | BINARY, &[0; 65_536]),
        ),
        ("a fragment of nothing", client_frame(FIN, b"1")),
        (
            "a message within another",
            [client_frame(BINARY, b"1"), client_frame(FIN | BINARY, b"2")].concat(),
        ),
        (
            "fragments that are too long together",
            [client_frame(BINARY, &half), client_frame(FIN, &half)].concat(),
        ),
    ];
    for (what, bytes) in refused {
        let (mut carrier, mut client) = pair(1 << 20);
        client.write_all(&bytes).await.unwrap();
        assert_eq!(now(&mut carrier), Some(None), "{what}");
    }
}

#[tokio::test]
async fn a_close_is_answered_with_its_code() {
    let (mut carrier, mut client) = pair(1 << 20);
    client
        .write_all(&client_frame(FIN | 8, &1001_u16.to_be_bytes()))
        .await
        .unwrap();
    assert_eq!(carrier.next().await, None);
    let mut answer = [0; 4];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, [0x88, 2, 0x03, 0xe9]);
}
