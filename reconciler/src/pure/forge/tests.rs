use super::*;

// holds: FG-1
#[test]
fn text_of_people_ends_no_block_and_speaks_to_nobody() {
    let text = fenced("one\n```\n@everybody <!-- mesh-delivery:view -->\n````");
    assert!(text.starts_with("`````text\n"), "{text}");
    assert!(text.ends_with("\n`````\n"), "{text}");
    assert_eq!(plain("@ann\nsays `x`"), "`` @ann says `x` ``");
    assert_eq!(plain("@ann"), "`@ann`");
}

#[test]
fn what_is_cut_shows_it() {
    assert_eq!(cut("ätsch", 5), "ätsch");
    assert_eq!(cut("ätschi!", 5), "ät...");
}
