//! Services, processes, steps (HK-5, HK-6, HK-9, HK-16).

use std::ops::Range;

use meshplan_schemas::document::calendar::Calendar;
use meshplan_schemas::document::module::{ActionResource, Entry, ProcessResource, ServiceResource};
use meshplan_schemas::document::read::At;
use meshplan_schemas::document::scalar::SomeSecs;
use meshplan_schemas::document::texts::Argv;
use meshplan_schemas::finding::Finding;
use meshplan_schemas::ident::ResourceId;
use meshplan_schemas::resource::programs::{Restart, Run, UnitState, Witness};

use super::Bench;

pub(super) fn service(bench: &Bench<'_>, service: &ServiceResource, findings: &mut Vec<Finding>) {
    if service.state.is_none() && service.enabled.is_none() {
        let message = format!("the service `{}` asks for nothing", service.id.value);
        let help = "give it `state`, `enabled`, or both";
        findings.push(bench.error(&service.id.span, message).help(help));
    }
    if let (Some(state), Some(enabled)) = (&service.state, &service.enabled)
        && state.value == UnitState::Masked
        && enabled.value
    {
        findings.push(bench.error(&enabled.span, "a masked unit cannot be enabled"));
    }
}

pub(super) fn action(bench: &Bench<'_>, action: &ActionResource, findings: &mut Vec<Finding>) {
    if let (Some(_), Some(unless)) = (&action.creates, &action.unless) {
        findings.push(bench.error(
            &unless.span,
            "an action has `creates` or `unless`, this one has both",
        ));
    }
    for argv in [Some(&action.command), action.unless.as_ref()]
        .into_iter()
        .flatten()
    {
        if !argv
            .value
            .0
            .first()
            .is_some_and(|program| program.starts_with('/'))
        {
            let message = "an action's program is an absolute path: no search path is trusted with a machine";
            findings.push(bench.error(&argv.span, message));
        }
    }
}

pub(super) fn process(bench: &Bench<'_>, process: &ProcessResource, findings: &mut Vec<Finding>) {
    let id = &process.id;
    findings.extend(
        process
            .bundle
            .iter()
            .filter_map(|b| bench.wants(b, &["bundle", "archive"])),
    );
    if let Some(at) = &process.bundle
        && let Some(entry) = bench.entry(&at.value)
        && entry.common().id().span.start > id.span.start
    {
        let message = format!("`{}` stands after the process that runs out of it", at.value);
        let help = "resources are applied in the order in which they stand: put it before the process";
        findings.push(bench.error(&at.span, message).help(help));
    }
    for argv in [Some(&process.command), process.prepares.as_ref()]
        .into_iter()
        .flatten()
    {
        program(bench, argv, process.bundle.is_some(), findings);
    }
    findings.extend(
        process
            .env_secrets
            .iter()
            .filter_map(|secret| bench.secret(secret)),
    );
    let ways = Ways {
        id,
        run: &process.run,
        calendar: process.calendar.as_ref(),
        every_secs: process.every_secs.as_ref(),
        restart: process.restart.as_ref(),
        while_stopped: &process.while_stopped,
        prepares: process.prepares.as_ref(),
        witness: process.witness.as_ref(),
        probe: process.probe.as_ref(),
    };
    ways.check(bench, findings);
    if let Some(first) = process.replaces.first()
        && process.run.value != Run::Daemon
    {
        let message = format!(
            "`replaces` belongs to a daemon: \"{}\" is not up long enough to take over",
            process.run.value
        );
        findings.push(bench.error(&first.span, message));
    }
}

/// `./x` is a file of the bundle; else the path is absolute.
fn program(bench: &Bench<'_>, argv: &At<Argv>, bundled: bool, findings: &mut Vec<Finding>) {
    let Some(program) = argv.value.0.first() else {
        return;
    };
    if let Some(inside) = program.strip_prefix("./") {
        if !bundled {
            let message = format!("`{program}` is a file of a bundle, and this process names no `bundle`");
            findings.push(bench.error(&argv.span, message));
        } else if inside.split('/').any(|part| matches!(part, "" | "." | "..")) {
            findings.push(bench.error(
                &argv.span,
                format!("`{program}` leaves the bundle, or names no file of it"),
            ));
        }
    } else if !program.starts_with('/') {
        let message = format!("`{program}` is neither an absolute path nor `./x` in a bundle");
        findings.push(bench.error(&argv.span, message));
    }
}

/// What processes and containers say alike about how they run.
pub(super) struct Ways<'d> {
    pub(super) id: &'d At<ResourceId>,
    pub(super) run: &'d At<Run>,
    pub(super) calendar: Option<&'d At<Calendar>>,
    pub(super) every_secs: Option<&'d At<SomeSecs>>,
    pub(super) restart: Option<&'d At<Restart>>,
    pub(super) while_stopped: &'d [At<ResourceId>],
    pub(super) prepares: Option<&'d At<Argv>>,
    pub(super) witness: Option<&'d At<Witness>>,
    pub(super) probe: Option<&'d At<ResourceId>>,
}

impl Ways<'_> {
    pub(super) fn check(&self, bench: &Bench<'_>, findings: &mut Vec<Finding>) {
        self.schedule(bench, findings);
        self.around(bench, findings);
        self.preparation(bench, findings);
        self.proof(bench, findings);
        if let Some(restart) = self.restart
            && self.run.value != Run::Daemon
        {
            findings.push(bench.error(
                &restart.span,
                format!("`restart` belongs to a daemon, this is {}", self.run.value),
            ));
        }
    }

    fn schedule(&self, bench: &Bench<'_>, findings: &mut Vec<Finding>) {
        let spans: [Option<&Range<usize>>; 2] = [
            self.calendar.map(|at| &at.span),
            self.every_secs.map(|at| &at.span),
        ];
        let scheduled = self.run.value == Run::Scheduled;
        match spans {
            [None, None] if scheduled => {
                let message = format!("`{}` is scheduled and says no time", self.id.value);
                let help = "give it `calendar` or `every_secs`";
                findings.push(bench.error(&self.id.span, message).help(help));
            }
            [Some(_), Some(span)] => {
                findings
                    .push(bench.error(span, "a schedule is `calendar` or `every_secs`, this one is both"));
            }
            [Some(span), None] | [None, Some(span)] if !scheduled => {
                let message = format!(
                    "a schedule belongs to `run = \"scheduled\"`, this is {}",
                    self.run.value
                );
                findings.push(bench.error(span, message));
            }
            _ => {}
        }
    }

    /// HK-9.
    fn around(&self, bench: &Bench<'_>, findings: &mut Vec<Finding>) {
        if let Some(first) = self.while_stopped.first()
            && self.run.value != Run::Scheduled
        {
            let message = format!(
                "`while_stopped` belongs to `run = \"scheduled\"`, this is {}",
                self.run.value
            );
            findings.push(bench.error(&first.span, message));
        }
        for (at, stopped) in self.while_stopped.iter().enumerate() {
            if stopped.value == self.id.value {
                findings.push(bench.error(&stopped.span, "it cannot be stopped while it runs itself"));
                continue;
            }
            if self.while_stopped[..at]
                .iter()
                .any(|other| other.value == stopped.value)
            {
                findings.push(bench.error(&stopped.span, format!("`{}` is named twice", stopped.value)));
            }
            if let Some(finding) = bench.wants(stopped, &["container", "process"]) {
                findings.push(finding);
                continue;
            }
            let run = match bench.entry(&stopped.value) {
                Some(Entry::Process(p)) => p.run.value,
                Some(Entry::Container(c)) => c.run.value,
                _ => Run::Daemon,
            };
            if run != Run::Daemon {
                let message = format!(
                    "`{}` is no daemon: there is nothing to stop and start again",
                    stopped.value
                );
                findings.push(bench.error(&stopped.span, message));
            }
        }
    }

    /// HK-6: a step of its own is derived from it, `<id>-prepare`.
    fn preparation(&self, bench: &Bench<'_>, findings: &mut Vec<Finding>) {
        let Some(prepares) = self.prepares else {
            return;
        };
        if self.run.value != Run::Daemon {
            let message = format!("`prepares` belongs to a daemon, this is {}", self.run.value);
            findings.push(bench.error(&prepares.span, message));
        }
        let step = format!("{}-prepare", self.id.value);
        match step.parse::<ResourceId>() {
            Ok(step) => {
                if let Some(entry) = bench.entry(&step) {
                    let message = format!(
                        "`{step}` is the name of the step that `prepares` of `{}` makes",
                        self.id.value
                    );
                    findings.push(bench.error(&entry.common().id().span, message));
                }
            }
            Err(why) => {
                let message = format!("`prepares` makes a step `{step}`, and that is no name: {why}");
                findings.push(bench.error(&prepares.span, message));
            }
        }
    }

    fn proof(&self, bench: &Bench<'_>, findings: &mut Vec<Finding>) {
        if let Some(witness) = self.witness
            && self.run.value != Run::Daemon
            && witness.value != Witness::None
        {
            findings.push(bench.error(
                &witness.span,
                format!("a witness belongs to a daemon, this is {}", self.run.value),
            ));
        }
        let by_probe = self.witness.is_some_and(|at| at.value == Witness::Probe);
        match (self.probe, self.witness) {
            (None, Some(witness)) if by_probe => {
                let message = "`witness = \"probe\"` needs `probe`, the id of one of this module";
                findings.push(bench.error(&witness.span, message));
            }
            (Some(probe), _) if !by_probe => {
                findings.push(bench.error(&probe.span, "`probe` belongs to `witness = \"probe\"`"));
            }
            (Some(probe), _) => findings.extend(bench.wants(probe, &["probe"])),
            _ => {}
        }
    }
}
