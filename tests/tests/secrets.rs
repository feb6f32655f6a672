//! A canary secret through the real programs: onto three machines, changed, taken back; then it is looked for everywhere.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER, HEXUPPER};
use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::envelope::Envelope;
use meshplan_schemas::sealed::{OpenError, Place};
use meshplan_schemas::session::LinkSecret;
use scenarios::program::clean;
use scenarios::tree::{BROKEN, CONF, NODES};
use scenarios::world::World;

/// Where the secret goes on a node: as it is, and in a template.
const TOKEN: &str = "etc/web/token";
const ENV: &str = "etc/web/env";
/// What the module has beside what the example has. The probe says the secret whenever it is asked.
const MORE: &str = "
[[file]]
id = \"token\"
path = \"/etc/web/token\"
secret = \"canary\"
validate = \"cat %s\"

[[file]]
id = \"env\"
path = \"/etc/web/env\"
source = \"files/env.j2\"

[[probe]]
id = \"talks\"
command = [\"sh\", \"-c\", \"cd \\\"$MESHPLAN_ROOT/etc/web\\\"; cat token env; base64 -w0 token; grep -q '^port = [0-9][0-9]*$' web.conf\"]
timeout_secs = 5
";

/// A value that nobody has ever written.
fn canary() -> Result<String> {
    let mut bytes = [0; 30];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("canary-{}", BASE64URL_NOPAD.encode(&bytes)))
}

/// Keeps a value with the command that people use.
fn keep(world: &World, value: &str) -> Result<()> {
    let file = world.folder().join("typed");
    fs::write(&file, value)?;
    let (file_text, work) = (file.to_str().context("UTF-8")?, world.work());
    let work = work.to_str().context("UTF-8")?;
    world
        .meshplan(&["secret", "set", "canary", "--file", file_text, "--dir", work])?
        .ok()?;
    Ok(fs::remove_file(file)?)
}

fn has(world: &World, node: &str, value: &str) -> Result<()> {
    ensure!(world.on_node(node, TOKEN)? == value, "{node} has another token");
    let env = format!("node = {node}\ntoken = {value}\n");
    ensure!(world.on_node(node, ENV)? == env, "{node} has another environment");
    for path in [TOKEN, ENV] {
        let mode = fs::metadata(world.root_of(node).join(path))?.permissions().mode() & 0o7777;
        ensure!(mode == 0o600, "{path} on {node} has mode {mode:04o}");
    }
    Ok(())
}

/// Every way in which the bytes of a value may be written that a search can find: raw, in hexadecimal digits, in base64
/// at each of the three places where they can begin in it.
fn written(value: &str) -> Result<Vec<Vec<u8>>> {
    let bytes = value.as_bytes();
    let mut forms = vec![bytes.to_vec()];
    forms.push(HEXLOWER.encode(bytes).into_bytes());
    forms.push(HEXUPPER.encode(bytes).into_bytes());
    for (before, skipped) in [(0_usize, 0_usize), (1, 2), (2, 3)] {
        let shifted = [&b"xx"[..before], bytes].concat();
        for text in [BASE64_NOPAD.encode(&shifted), BASE64URL_NOPAD.encode(&shifted)] {
            let within = text.get(skipped..text.len() - 2).context("long enough")?;
            forms.push(within.as_bytes().to_vec());
        }
    }
    Ok(forms)
}

fn found<'f>(haystack: &[u8], forms: &'f [Vec<u8>]) -> Option<&'f [u8]> {
    let is_in = |form: &&Vec<u8>| {
        haystack
            .windows(form.len())
            .any(|window| window == form.as_slice())
    };
    forms.iter().find(is_in).map(Vec::as_slice)
}

fn files(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("{} can be listed", folder.display()))? {
        let path = entry?.path();
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_dir() {
            files(&path, into)?;
        } else if meta.is_file() {
            into.push(path);
        }
    }
    Ok(())
}

/// All objects of a git repository, unpacked.
fn objects(world: &World, repository: &Path) -> Result<Vec<u8>> {
    let mut git = clean("git", world.folder());
    git.arg("-C").arg(repository);
    git.args([
        "-c",
        "safe.directory=*",
        "cat-file",
        "--batch-all-objects",
        "--batch",
        "--buffer",
    ]);
    let output = git.output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(output.stdout)
}

/// What people and programs are told when they ask.
fn told(world: &World, commits: &[String]) -> Result<Vec<(String, Vec<u8>)>> {
    let mut out = Vec::new();
    let mut add = |name: String, text: Vec<u8>| out.push((name, text));
    for commit in commits {
        for arguments in [
            vec!["deliveries", "show", commit],
            vec!["why", commit],
            vec!["deliveries", "show", commit, "--json"],
        ] {
            let said = world.meshplan(&arguments)?;
            add(arguments.join(" "), format!("{said:?}").into_bytes());
        }
        let work = world.work();
        let work = work.to_str().context("UTF-8")?;
        let before = format!("{commit}~1");
        for more in [vec![], vec!["--json"]] {
            let arguments = [vec!["preview", &before, commit, "--dir", work], more].concat();
            let said = world.meshplan(&arguments)?;
            add(arguments.join(" "), format!("{said:?}").into_bytes());
        }
        add(format!("the note of {commit}"), world.note(commit)?.into_bytes());
    }
    for arguments in [
        vec!["deliveries", "list"],
        vec!["fleet", "status"],
        vec!["fleet", "status", "--json"],
        vec!["fleet", "events", "--json"],
        vec!["rollout", "list"],
    ] {
        add(
            arguments.join(" "),
            format!("{:?}", world.meshplan(&arguments)?).into_bytes(),
        );
    }
    for page in ["/", "/healthz", "/metrics", "/api/deliveries", "/api/nodes"] {
        add(page.to_owned(), world.http("GET", page, &[], b"")?.1.into_bytes());
    }
    for node in NODES {
        for verb in ["status", "plan", "diff", "journal", "verify", "held"] {
            for more in [vec![], vec!["--json"]] {
                let arguments = [vec![verb], more].concat();
                let said = world.host(node, &arguments)?;
                add(format!("host {node} {verb}"), format!("{said:?}").into_bytes());
            }
        }
    }
    Ok(out)
}

/// Whether a value may stand in a file: on the node at its target, and in what a host keeps to go back, mode 0600.
fn may_stand(world: &World, path: &Path) -> Result<bool> {
    let mode = fs::metadata(path)?.permissions().mode() & 0o7777;
    let target = NODES.iter().any(|node| {
        let root = world.root_of(node);
        path == root.join(TOKEN) || path == root.join(ENV)
    });
    let text = path.to_string_lossy();
    let kept = ["/blobs/", "/originals/"]
        .iter()
        .any(|folder| text.contains(folder));
    Ok((target || kept) && mode == 0o600)
}

fn nowhere_else(world: &World, values: &[String], commits: &[String]) -> Result<()> {
    let forms: Vec<Vec<u8>> = values
        .iter()
        .map(|value| written(value))
        .collect::<Result<Vec<_>>>()?
        .concat();
    let mut all = Vec::new();
    files(world.folder(), &mut all)?;
    ensure!(all.len() > 100, "only {} files were looked at", all.len());
    for path in &all {
        let bytes = fs::read(path)?;
        if found(&bytes, &forms).is_some() {
            ensure!(may_stand(world, path)?, "a value stands in {}", path.display());
        }
    }
    let forge = world.folder().join("forge");
    let mut repositories = vec![world.work(), world.state().join("mirror")];
    for entry in fs::read_dir(&forge)? {
        let path = entry?.path();
        if path.join("objects").exists() {
            repositories.push(path);
        }
    }
    ensure!(
        repositories.len() > 2,
        "the forge's repository was not found in {}",
        forge.display()
    );
    for repository in repositories {
        let objects = objects(world, &repository)?;
        ensure!(objects.len() > 1000, "{} has no objects", repository.display());
        ensure!(
            found(&objects, &forms).is_none(),
            "a value stands in {}",
            repository.display()
        );
    }
    for (name, text) in told(world, commits)? {
        ensure!(
            found(&text, &forms).is_none(),
            "`{name}` tells a value: {}",
            String::from_utf8_lossy(&text)
        );
    }
    Ok(())
}

/// The declaration that a node's host has kept, and its transport key.
fn kept(world: &World, node: &str) -> Result<(Declaration, LinkSecret)> {
    let mut all = Vec::new();
    files(&world.root_of(node), &mut all)?;
    let named = |end: &str| {
        let path = all.iter().find(|path| path.ends_with(end));
        let path = path.with_context(|| format!("{node} has {end}"))?;
        fs::read_to_string(path).map_err(anyhow::Error::from)
    };
    let text = named("orders/declaration.confirmed")?;
    let json = text
        .get(text.find('{').context("an envelope")?..)
        .unwrap_or_default();
    let envelope = Envelope::read(json.trim().as_bytes()).or_else(|_| {
        let first = json.lines().next().unwrap_or_default();
        Envelope::read(first.as_bytes())
    })?;
    let key = LinkSecret::from_text(&named("keys/transport.key")?)?;
    Ok((serde_json::from_slice(&envelope.payload)?, key))
}

// holds: FR-9, SG-4, HK-1, HR-11, DL-7
#[test]
fn a_secret_reaches_its_machines_and_stands_nowhere_else() -> Result<()> {
    let mut world = World::with_three_hosts("secrets")?;
    let [first, second, third] = [canary()?, canary()?, canary()?];
    let identity = fs::read_to_string(world.state().join("age-identity"))?;
    let recipient = identity
        .lines()
        .find_map(|line| line.strip_prefix("# public key: "));
    let fleet = fs::read_to_string(world.work().join("fleet.toml"))?;
    let recipient = recipient.context("the identity says its public half")?;
    world.write(
        "fleet.toml",
        &format!("{fleet}\n[secrets]\nrecipient = \"{recipient}\"\n"),
    )?;
    world.commit("who opens secrets")?;
    keep(&world, &first)?;
    let module = fs::read_to_string(world.work().join("modules/web/module.toml"))?;
    world.write("modules/web/module.toml", &format!("{module}{MORE}"))?;
    let brought = world.merge(
        "modules/web/files/env.j2",
        "node = {{ node.name }}\ntoken = {{ secret(\"canary\") }}\n",
    )?;
    world.wait_for(&brought, "delivered")?;
    for node in NODES {
        has(&world, node, &first)?;
    }

    // Encrypted anew it is the same secret: nothing is ordered, nothing is written.
    let inode = |world: &World| -> Result<u64> { Ok(fs::metadata(world.root_of("ace").join(TOKEN))?.ino()) };
    let before = inode(&world)?;
    keep(&world, &first)?;
    let same = world.merge("README.md", "encrypted anew\n")?;
    let shown = world.wait_for(&same, "delivered")?;
    ensure!(shown["code"] == "nothing-to-do", "{shown:#}");
    ensure!(inode(&world)? == before, "an unchanged secret was written again");

    keep(&world, &second)?;
    let changed = world.merge("README.md", "another value\n")?;
    world.wait_for(&changed, "delivered")?;
    for node in NODES {
        has(&world, node, &second)?;
    }

    // A third value comes with what its probe does not bear: the second comes back. The probe has said all it knows.
    keep(&world, &third)?;
    let taken_back = world.merge(CONF.source, BROKEN)?;
    let shown = world.wait_for(&taken_back, "rolled-back")?;
    ensure!(
        shown.to_string().contains("[secret]"),
        "what the probe said was to be told without the secret: {shown:#}"
    );
    for node in NODES {
        has(&world, node, &second)?;
    }

    let commits = [brought, same, changed, taken_back];
    nowhere_else(&world, &[first, second.clone(), third], &commits)?;

    let (declaration, own) = kept(&world, "ace")?;
    let (_, others) = kept(&world, "bea")?;
    let place = Place::of(&declaration);
    let resource = declaration
        .resources
        .iter()
        .find(|r| r.name.to_string() == "web.token");
    let resource = resource.context("ace has the token")?;
    let value = resource.sealed().context("it is sealed")?;
    let open = |key: &LinkSecret| place.open(key, &declaration.sealed, &resource.name, value);
    ensure!(*open(&own)? == second.as_bytes());
    ensure!(open(&others) == Err(OpenError::Closed), "another node opens it");
    Ok(())
}
