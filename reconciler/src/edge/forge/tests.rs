use super::*;

// holds: FG-1
#[test]
fn the_api_is_found_beside_the_repository() {
    let at = |url: &str| beside(url, "acme/fleet");
    assert_eq!(
        at("https://forge.test/acme/fleet.git").as_deref(),
        Some("https://forge.test/api/v1")
    );
    assert_eq!(
        at("http://bot:s3cret@forge.test:3000/git/acme/fleet").as_deref(),
        Some("http://forge.test:3000/git/api/v1")
    );
    for none in [
        "https://forge.test/other/fleet.git",
        "git@forge.test:acme/fleet.git",
        "file:///srv/acme/fleet.git",
    ] {
        assert_eq!(at(none), None, "{none}");
    }
}
