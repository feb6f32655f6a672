use super::*;

// holds: FG-1
#[test]
fn the_api_is_found_beside_the_repository() {
    let at = |url: &str| beside(&crate::pure::forge::forgejo::MANNERS, url, "acme/fleet");
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

// holds: FG-1
#[test]
fn github_has_its_api_on_a_host_of_its_own_and_an_enterprise_below_its_name() {
    let at = |url: &str| beside(&crate::pure::forge::github::MANNERS, url, "acme/fleet");
    assert_eq!(
        at("https://github.com/acme/fleet.git").as_deref(),
        Some("https://api.github.com")
    );
    assert_eq!(
        at("https://hub.test/acme/fleet").as_deref(),
        Some("https://hub.test/api/v3")
    );
}
