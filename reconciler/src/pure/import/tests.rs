use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn import_text(file: &str, text: &str) -> Result<Imported, Vec<Finding>> {
    let source = Source::new(file, text.as_bytes().into()).unwrap();
    import(&Request {
        name: &"m".parse().unwrap(),
        roles: &[],
        form: Form::of(file).unwrap(),
        file,
        folder: "shop",
        source: &source,
        beside: &BTreeMap::new(),
    })
}

fn why(text: &str) -> String {
    import_text("compose.yaml", text).unwrap_err()[0].to_string()
}

#[test]
fn yaml_has_bounds_places_and_no_key_twice() {
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n";
    assert!(why(bomb).contains("more than 50000 values"), "{}", why(bomb));
    let deep = format!("services: {}{}", "[".repeat(60), "]".repeat(60));
    assert!(why(&deep).contains("more than 48 deep"), "{}", why(&deep));
    let twice = "services:\n  ä: 1\r\n  web: 2\r\n  web: 3\r\n";
    assert_eq!(why(twice), "compose.yaml:4:3: the key `web` stands here twice");
    assert!(why("a: 1\n---\nb: 2\n").contains("compose.yaml:2:1: a second document"));
    assert!(why("services: &s\n  web: *s\n").contains("compose.yaml:2:8"));
    assert!(why("services: !!map {}\n").contains("tag"));
    assert!(why("services: [\n").contains("no YAML"));
    let large = format!("services: {}", "x".repeat(FILE_BYTES));
    assert!(why(&large).contains("at most"));
}

#[test]
fn merges_give_what_is_not_said() {
    let text = "x-common: &common\n  restart: always\n  image: a:1\nservices:\n  web:\n    <<: *common\n    image: b:2\n";
    let made = import_text("compose.yaml", text).unwrap();
    assert_eq!(made.left_out, []);
    assert!(
        made.module_toml.contains("image = \"b:2\""),
        "{}",
        made.module_toml
    );
    assert!(
        made.module_toml.contains("restart = \"always\""),
        "{}",
        made.module_toml
    );
}

/// Fragments that make documents which are almost right.
fn almost(fragments: &'static [&'static str]) -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![
            4 => proptest::sample::select(fragments).prop_map(str::to_owned),
            1 => "\\PC{0,6}",
        ],
        0..40,
    )
    .prop_map(|parts| parts.concat())
}

const YAML: &[&str] = &[
    "services:\n",
    "  web:\n",
    "    image: a\n",
    "    ports:\n",
    "      - 80:80\n",
    "    ",
    "- ",
    ": ",
    "\n",
    "[",
    "]",
    "{",
    "}",
    "&a ",
    "*a",
    "<<: ",
    "\"",
    "'",
    "|\n",
    ">-\n",
    "? ",
    "!t ",
    "%TAG ! a\n",
    "---\n",
    "...\n",
    "\t",
    "\r\n",
    "#",
    "    volumes: [",
    "a:/b,",
    "    environment:\n",
    "      A: ${B}\n",
    "volumes:\n  a:\n",
    "\u{feff}",
    "\u{85}",
    "    healthcheck: {test: x, interval: 5s}\n",
    "    depends_on: [web]\n",
    ",",
    "\u{2028}",
    "é",
];
const UNITS: &[&str] = &[
    "[Service]\n",
    "[Container]\n",
    "[Unit]\n",
    "ExecStart=",
    "/bin/a",
    " b",
    "\\\n",
    "\n",
    "=",
    "'",
    "\"",
    "\\x41",
    "%n",
    "%",
    "$A",
    "Image=",
    "a:1\n",
    "Volume=",
    "a:/b:ro\n",
    "PublishPort=",
    "80-90:80-90\n",
    "Environment=",
    "A=b\n",
    "#",
    "User=",
    "0\n",
    "CPUQuota=",
    "50%\n",
    "Restart=always\n",
    "AddCapability=ALL\n",
    "TimeoutSec=5min 99999999999h\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_compose_file_makes_it_panic(text in almost(YAML)) {
        let _: Result<Imported, _> = import_text("compose.yaml", &text);
    }

    #[test]
    fn no_unit_makes_it_panic(text in almost(UNITS)) {
        for file in ["a.service", "a.container", "a.volume", "a.network", "a.timer"] {
            let _: Result<Imported, _> = import_text(file, &text);
        }
    }
}
