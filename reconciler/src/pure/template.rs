//! Renders the templates of a module (FR-8): strict, in one pass, bounded in steps and output.
//!
//! A template sees `node`, `fleet`, `settings`, `nodes` and `secret("name")`, and nothing of disk, network, clock or
//! chance. Values stay data: what stands in them is never read as template code (B58). Once it has called `secret()`, an
//! error tells the place and the sort of the mistake, and no value (FR-9).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};
use std::iter::Sum;
use std::ops::Range;
use std::ops::{AddAssign, SubAssign};
use std::sync::Arc;

use meshplan_schemas::document::var::{Var, Vars};
use meshplan_schemas::finding::{Finding, Source};
use meshplan_schemas::limits::{
    TEMPLATE_FUEL, TEMPLATE_OUTPUT_BYTES, TEMPLATE_TREE_BYTES, TEMPLATE_TREE_FUEL,
};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Enumerator, Object, ValueKind};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value, escape_formatter,
};

use zeroize::Zeroizing;

use super::secrets::{NoSecret, Scope, Secret};
use super::source_tree::is_of_component;
use super::validate::{Module, Record, Validated};
use secret::{Asked, SecretFunction};

mod secret;

/// How the names of files end that are rendered.
pub const SUFFIX: &str = ".j2";

/// Whether a file of a module's folder is a template; what its component brings is carried as it is.
#[must_use]
pub fn is_template(inside: &str) -> bool {
    inside.ends_with(SUFFIX) && !is_of_component(inside)
}

/// The templates of one module, compiled.
#[derive(Debug)]
pub struct Templates {
    environment: Environment<'static>,
    sources: BTreeMap<String, Source>,
    reads: BTreeSet<String>,
}

/// Why a file of a node has no content.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RenderError {
    /// The template, by its path in the module's folder.
    pub template: String,
    /// The line in it, from 1; 0 where it is about the whole.
    line: usize,
    span: Option<(usize, usize)>,
    /// What is wrong.
    pub message: String,
    help: Option<&'static str>,
    /// It is only that a secret does not open.
    closed: bool,
}

/// What a template has put out.
#[derive(Debug)]
pub struct Rendered {
    /// The text.
    pub bytes: Zeroizing<Vec<u8>>,
    /// The secrets that are in it, by the name that content knows each by.
    pub secrets: BTreeMap<String, Secret>,
}

/// What templates have taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Bytes put out.
    pub bytes: usize,
    /// Work done, in template instructions.
    pub steps: u64,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.steps = self.steps.saturating_add(more.steps);
    }
}

impl SubAssign for Spent {
    fn sub_assign(&mut self, less: Self) {
        self.bytes = self.bytes.saturating_sub(less.bytes);
        self.steps = self.steps.saturating_sub(less.steps);
    }
}

impl Sum for Spent {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, more| {
            sum += more;
            sum
        })
    }
}

/// A template that fails costs the tree so many parts of what one may do: how far it came nobody knows.
const FAILURES: u64 = 10;

/// How much all templates of a tree may take, and have taken.
#[derive(Debug)]
pub struct Budget {
    spent: Spent,
}

impl Budget {
    /// The budget of a tree whose other templates have taken so much.
    #[must_use]
    pub fn after(spent: Spent) -> Self {
        Self { spent }
    }

    /// Takes so much out of it.
    pub fn spend(&mut self, spent: Spent) {
        self.spent += spent;
    }

    /// What was taken so far.
    #[must_use]
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// How many bytes are left.
    fn bytes_left(&self) -> usize {
        TEMPLATE_TREE_BYTES.saturating_sub(self.spent.bytes)
    }

    /// How many instructions are left.
    fn steps_left(&self) -> u64 {
        TEMPLATE_TREE_FUEL.saturating_sub(self.spent.steps)
    }
}

impl Templates {
    /// Compiles every template of a module's folder, so that one can include another.
    ///
    /// # Errors
    /// A finding for each that is no template.
    pub fn compile(module: &Module) -> Result<Self, Vec<Finding>> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_formatter(as_documents_write_it);
        // Places of errors, in release builds too; it costs only where one is made.
        environment.set_debug(true);
        environment.set_fuel(Some(TEMPLATE_FUEL));
        // The last line keeps its end. Line ends behind a `{% .. %}` stay too: taking them away would join
        // `{% if a %}b{% endif %}` with the line after it; a template writes `{%-` where it wants that.
        let mut syntax = SyntaxConfig::builder();
        syntax.keep_trailing_newline(true);
        if let Ok(syntax) = syntax.build() {
            environment.set_syntax(syntax);
        }
        let folder = module.source.file().trim_end_matches("module.toml");
        let mut sources = BTreeMap::new();
        let mut findings = Vec::new();
        for (path, bytes) in module.files.iter().filter(|(path, _)| is_template(path)) {
            let source = match Source::new(&format!("{folder}{path}"), bytes.clone()) {
                Ok(source) => source,
                Err(finding) => {
                    findings.push(finding);
                    continue;
                }
            };
            // The text without a byte-order mark: places agree with what is shown.
            let compiled = environment.add_template_owned(path.clone(), source.text().to_owned());
            sources.insert(path.clone(), source);
            if let Err(error) = compiled {
                findings.push(place(&sources, &RenderError::of(path, &error)));
            }
        }
        let reads = environment
            .templates()
            .flat_map(|(_, t)| t.undeclared_variables(false))
            .collect();
        if !findings.is_empty() {
            return Err(findings);
        }
        Ok(Self {
            environment,
            sources,
            reads,
        })
    }

    /// Whether any template of the module reads this variable.
    #[must_use]
    pub fn read(&self, variable: &str) -> bool {
        self.reads.contains(variable)
    }

    /// Renders one. `context` is given what `secret` is to be in it.
    ///
    /// # Errors
    /// [`RenderError`]: an undefined name, a bound, a mistake in the template, a secret that is not there or not open.
    pub fn render(
        &self,
        path: &str,
        context: impl FnOnce(Value) -> Value,
        budget: &mut Budget,
        secrets: &Arc<Scope>,
    ) -> Result<Rendered, RenderError> {
        let template = self
            .environment
            .get_template(path)
            .map_err(|e| RenderError::of(path, &e))?;
        if budget.steps_left() == 0 {
            return Err(RenderError::too_much_work(path));
        }
        let mut out = Bounded {
            bytes: Zeroizing::default(),
            left: budget.bytes_left().min(TEMPLATE_OUTPUT_BYTES),
        };
        let function = SecretFunction::new(secrets);
        let context = context(Value::from_dyn_object(Arc::clone(&function)));
        let rendered = template.render_captured_to(context, &mut out);
        let rendered = rendered.map(|captured| captured.state().fuel_levels().map_or(0, |(done, _)| done));
        let asked = function.asked();
        let steps = match rendered {
            Ok(steps) => steps,
            Err(error) => {
                let why = Self::why_not(path, &error, asked, budget);
                // How much was done before a mistake the engine does not say: a failure is not free of charge.
                let steps = match error.kind() {
                    ErrorKind::OutOfFuel => TEMPLATE_FUEL,
                    _ => TEMPLATE_FUEL / FAILURES,
                };
                budget.spend(Spent {
                    bytes: out.bytes.len(),
                    steps,
                });
                return Err(why);
            }
        };
        let is_too_much = steps > budget.steps_left();
        budget.spend(Spent {
            bytes: out.bytes.len(),
            steps,
        });
        if is_too_much {
            return Err(RenderError::too_much_work(path));
        }
        Ok(Rendered {
            bytes: out.bytes,
            secrets: asked.used,
        })
    }

    /// Why a template was not rendered to its end, of what the engine says of it.
    fn why_not(path: &str, error: &Error, asked: Asked, budget: &Budget) -> RenderError {
        let mut why = RenderError::of(path, error);
        match asked.lacking {
            Some(NoSecret::Closed(message)) => why.is_about_a_secret(message, true),
            Some(NoSecret::Unknown(message)) => why.is_about_a_secret(message, false),
            // What the engine says may quote what it was given.
            None if !asked.used.is_empty() => why.keep_back(error.kind()),
            None => {}
        }
        if error.kind() == ErrorKind::WriteFailure {
            why.message = if budget.bytes_left() < TEMPLATE_OUTPUT_BYTES {
                format!("all templates of the tree together put out more than {TEMPLATE_TREE_BYTES} bytes")
            } else {
                format!("this template puts out more than {TEMPLATE_OUTPUT_BYTES} bytes")
            };
        }
        why
    }

    /// The finding of a failed rendering on these nodes.
    #[must_use]
    pub fn finding(&self, error: &RenderError, first_node: &str, nodes: usize) -> Finding {
        let mut finding = place(&self.sources, error);
        let more = if nodes > 1 {
            format!(" and {} more", nodes - 1)
        } else {
            String::new()
        };
        finding.message = format!("{} (on {first_node}{more})", finding.message);
        finding
    }

    /// The text of a template.
    #[must_use]
    pub fn source(&self, path: &str) -> Option<&Source> {
        self.sources.get(path)
    }
}

impl RenderError {
    fn of(path: &str, error: &Error) -> Self {
        // An error inside an include is where the included template says.
        let mut inner = error;
        while let Some(source) = std::error::Error::source(inner).and_then(|s| s.downcast_ref::<Error>()) {
            inner = source;
        }
        let message = match (inner.kind(), inner.detail()) {
            (ErrorKind::OutOfFuel, _) => "this template does more work than a template may".to_owned(),
            (ErrorKind::UndefinedError, None) => "this name is not defined".to_owned(),
            (
                kind @ (ErrorKind::UnknownFunction | ErrorKind::UnknownFilter | ErrorKind::UnknownTest),
                Some(detail),
            ) => format!("{kind}: {detail}"),
            (_, Some(detail)) => detail.to_owned(),
            (kind, None) => kind.to_string(),
        };
        let help = match inner.kind() {
            ErrorKind::UndefinedError => Some(
                "a template sees `node`, `fleet`, `settings` and `nodes`; settings are declared in module.toml",
            ),
            ErrorKind::TemplateNotFound => {
                Some("a template can include the templates of its own module's folder")
            }
            _ => None,
        };
        Self {
            template: inner.name().unwrap_or(path).to_owned(),
            line: inner.line().unwrap_or(0),
            span: inner.range().map(|r| (r.start, r.end)),
            message,
            help,
            closed: false,
        }
    }

    /// The templates of the tree together have done all the work that they may.
    fn too_much_work(path: &str) -> Self {
        Self {
            template: path.to_owned(),
            line: 0,
            span: None,
            message: format!(
                "all templates of the tree together do more than {TEMPLATE_TREE_FUEL} steps of work"
            ),
            help: Some(
                "a template that does not read `node` is rendered once for all nodes with the same settings",
            ),
            closed: false,
        }
    }

    /// A secret that does not open.
    #[must_use]
    pub fn closed(message: String) -> Self {
        Self {
            template: String::new(),
            line: 0,
            span: None,
            message,
            help: None,
            closed: true,
        }
    }

    /// Whether it is only that a secret does not open.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    fn is_about_a_secret(&mut self, message: String, closed: bool) {
        self.message = message;
        self.closed = closed;
        self.help = (!closed).then_some("`meshplan secret set NAME` makes `secrets/NAME.age`");
    }

    /// Says of a mistake its sort alone.
    fn keep_back(&mut self, kind: ErrorKind) {
        self.message =
            format!("{kind}; what it says of it is kept back, for the template has called `secret()`");
    }
}

fn place(sources: &BTreeMap<String, Source>, error: &RenderError) -> Finding {
    let finding = match sources.get(&error.template) {
        Some(source) => match error.span {
            Some((start, end)) => source.error(Range { start, end }, error.message.as_str()),
            None if error.line > 0 => source.error_at_line(error.line, error.message.as_str()),
            None => Finding::of_file(source.file(), error.message.as_str()),
        },
        None => Finding::of_file(&error.template, error.message.as_str()),
    };
    finding.maybe_help(error.help.map(str::to_owned))
}

/// A truth value is written as documents write it, and what is not there is an error, never the word "None".
fn as_documents_write_it(
    out: &mut Output<'_>,
    state: &mut State<'_, '_>,
    value: &Value,
) -> Result<(), Error> {
    if value.is_none() {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "this value is not there; `default` gives another",
        ));
    }
    match bool::try_from(value.clone()) {
        Ok(flag) if value.kind() == ValueKind::Bool => out
            .write_str(if flag { "true" } else { "false" })
            .map_err(Error::from),
        _ => escape_formatter(out, state, value),
    }
}

struct Bounded {
    bytes: Zeroizing<Vec<u8>>,
    left: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.left {
            return Err(io::Error::other("the output is too large"));
        }
        self.left -= bytes.len();
        let wanted = self.bytes.len() + bytes.len();
        if wanted > self.bytes.capacity() {
            // By hand, so that what is left behind is zeroized: it may hold secrets.
            let mut larger = Zeroizing::new(Vec::with_capacity(wanted.next_power_of_two()));
            larger.extend_from_slice(&self.bytes);
            self.bytes = larger;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the templates of every node see alike: `fleet` and `nodes`.
#[derive(Debug)]
pub struct Shared {
    fleet: Value,
    nodes: Value,
}

impl Shared {
    /// Takes it from a tree. `nodes` are made only where a template reads them: there may be ten thousand.
    #[must_use]
    pub fn of(validated: &Validated, reads_nodes: bool) -> Self {
        let name = validated.fleet().fleet.as_str();
        Self {
            fleet: Value::from_pairs([
                ("name", Value::from(name)),
                ("vars", vars(validated.fleet_vars())),
            ]),
            nodes: (validated.nodes().iter())
                .filter(|_| reads_nodes)
                .map(|record| Value::from_pairs(fields(record)))
                .collect(),
        }
    }

    /// The context of one rendering; `record` is the node that it is for.
    #[must_use]
    pub fn context(&self, record: &Record, settings: &[(&str, Option<&Var>)], secret: Value) -> Value {
        let settings = settings
            .iter()
            .filter_map(|(name, value)| Some((*name, var((*value)?))));
        Value::from_pairs([
            ("node", Value::from_object(OfNode(record.clone()))),
            ("fleet", self.fleet.clone()),
            ("settings", Value::from_pairs(settings)),
            ("nodes", self.nodes.clone()),
            ("secret", secret),
        ])
    }
}

/// The record of one node as its own templates see it: each field is made when it is read.
struct OfNode(Record);

/// The public fields of a record, sorted.
const FIELDS: [&str; 7] = ["address", "id", "modules", "name", "roles", "short_id", "vars"];

fn field(record: &Record, name: &str) -> Option<Value> {
    let file = &record.file;
    Some(match name {
        "name" => Value::from(record.name.as_str()),
        "id" => Value::from(file.id.value.to_string()),
        "short_id" => Value::from(file.id.value.short().as_str()),
        "roles" => file.roles.iter().map(|r| Value::from(r.value.as_str())).collect(),
        "modules" => record.modules.iter().map(|m| Value::from(m.as_str())).collect(),
        "address" => Value::from(file.address.as_ref().map(|a| a.value.as_str())),
        "vars" => vars(&file.vars),
        _ => return None,
    })
}

fn fields(record: &Record) -> impl Iterator<Item = (&'static str, Value)> {
    (FIELDS.into_iter()).filter_map(|name| Some((name, field(record, name)?)))
}

impl Object for OfNode {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        field(&self.0, key.as_str()?)
    }
    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        field(&self.0, key)
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Str(&FIELDS)
    }
}

impl fmt::Debug for OfNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(fields(&self.0)).finish()
    }
}

fn vars(vars: &Vars) -> Value {
    Value::from_pairs(vars.0.iter().map(|(name, at)| (name.as_str(), var(&at.value))))
}

fn var(value: &Var) -> Value {
    match value {
        Var::Text(text) => Value::from(text.as_str()),
        Var::Number(number) => Value::from(*number),
        Var::Flag(flag) => Value::from(*flag),
        Var::List(list) => list.iter().map(var).collect(),
    }
}

#[cfg(test)]
mod tests;
