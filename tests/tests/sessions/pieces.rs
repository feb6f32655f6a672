//! Pieces of artifacts, given in a session (HK-15).

use super::*;

fn fetch(bytes: &[u8], offset: u64) -> FromHost {
    FromHost::Fetch {
        artifact: Digest::of(bytes),
        offset,
        length: 5,
    }
}

// holds: HK-15
#[tokio::test]
async fn a_member_is_given_pieces_of_artifacts_and_told_of_those_that_are_not_here() {
    let world = World::new().await;
    let mut host = world.host(1);
    host.greet().await;
    for (offset, bytes) in [(0, "YXJ0aWY="), (5, "YWN0"), (8, "")] {
        host.say(fetch(b"artifact", offset)).await;
        let piece = ToHost::Piece {
            artifact: Digest::of(b"artifact"),
            offset,
            size_bytes: 8,
            bytes: bytes.to_owned(),
        };
        assert_eq!(host.message().await, piece);
    }
    host.say(fetch(b"another", 0)).await;
    let artifact = Digest::of(b"another");
    assert_eq!(host.message().await, ToHost::NoArtifact { artifact });
}

// holds: HK-15, LK-7
#[tokio::test]
async fn who_gets_no_turn_for_a_piece_is_not_kept_from_anything_else() {
    let desk = Arc::new(Double::default());
    desk.records.lock().unwrap().insert(secret(1).public(), leaf(1));
    let limits = MeshLimits {
        pieces: 0,
        piece_turn: Duration::from_millis(20),
        ..MeshLimits::default()
    };
    let world = World::with(desk, SocketAddr::from(([127, 0, 0, 1], 0)), limits).await;
    let mut host = world.host(1);
    host.greet().await;
    host.say(fetch(b"artifact", 0)).await;
    world.mesh.look(node(1), 3);
    assert_eq!(host.message().await, ToHost::Look { id: 3 });
}
