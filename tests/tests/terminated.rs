//! A fleet whose reconciler stands behind a TLS terminator: `wss://` end to end, and each way in which a certificate is no
//! good.

use anyhow::{Result, ensure};
use scenarios::terminator::{Shown, Terminator};
use scenarios::tree::{FIRST, PAGE, SECOND};
use scenarios::world::World;

/// A world whose hosts know the reconciler only through the terminator, and trust its authority.
fn terminated(fleet: &str) -> Result<(World, Terminator)> {
    let mut world = World::new(fleet)?;
    let terminator = Terminator::before(world.address(), world.folder(), Shown::Good)?;
    world.configure(|config| {
        config.insert("addresses".to_owned(), vec![terminator.mesh()].into());
        Ok(())
    })?;
    world.hosts_see("SSL_CERT_FILE", terminator.authorities());
    world.serve()?;
    Ok((world, terminator))
}

// holds: LK-1
#[test]
fn a_machine_enrols_and_takes_orders_through_a_terminator_and_comes_back_when_the_certificate_is_renewed()
-> Result<()> {
    let (mut world, terminator) = terminated("terminated")?;
    world.enrol("ace")?;
    world.run_host("ace")?;
    world.poll("ace has the page", |w| {
        Ok(w.at("ace", PAGE).is_ok_and(|t| t == FIRST))
    })?;

    let states = |w: &World, words: &str| Ok(w.host("ace", &["status"])?.ok()?.contains(words));
    world.poll("ace's first declaration is confirmed", |w| {
        states(w, "1 is confirmed")
    })?;

    // A host that starts while the certificate is past its time has no session, says why, and keeps what it has.
    world.kill_host("ace")?;
    terminator.show(Shown::Expired)?;
    world.run_host("ace")?;
    world.poll("ace says why it has no session", |w| {
        states(w, "expired (2020-01-01T00:00:00Z)")
    })?;
    ensure!(world.at("ace", PAGE)? == FIRST);
    ensure!(
        world.host_log("ace").contains("renew it at the terminator"),
        "its log does not say so"
    );
    terminator.show(Shown::Good)?;
    world.poll("ace has a session", |w| states(w, "up since"))?;
    let commit = world.merge(PAGE.source, SECOND)?;
    world.wait_for(&commit, "delivered")?;
    ensure!(world.at("ace", PAGE)? == SECOND);
    Ok(())
}

// holds: LK-1, LK-3
#[test]
fn a_certificate_that_is_no_good_is_refused_with_what_to_do_and_no_secret_leaves() -> Result<()> {
    let (mut world, terminator) = terminated("distrusted")?;
    let token = world.invite("ace")?;
    let table = [
        (
            Shown::Unknown,
            "signed by an authority that this machine does not trust",
        ),
        (
            Shown::WrongName,
            "is for `elsewhere.example.org`, not for `localhost`",
        ),
        (Shown::Expired, "expired (2020-01-01T00:00:00Z)"),
    ];
    for (shown, words) in table {
        terminator.show(shown)?;
        let said = world
            .host("ace", &["enrol", &token, "--wait-secs", "1"])?
            .refused_with(3)?;
        ensure!(said.contains(words), "{shown:?}: {said}");
    }
    // The machine's own list does not have the test's authority.
    terminator.show(Shown::Good)?;
    world.hosts_see("SSL_CERT_FILE", std::path::Path::new("/dev/null"));
    let said = world
        .host("ace", &["enrol", &token, "--wait-secs", "1"])?
        .refused_with(3)?;
    ensure!(said.contains("trusts no certificate authority"), "{said}");
    ensure!(
        world.meshplan(&["fleet", "admit", "ace"])?.code != Some(0),
        "somebody has used the token"
    );
    Ok(())
}
