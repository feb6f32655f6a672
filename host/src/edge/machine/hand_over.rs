//! What a process takes over from goes right after the process is up, and not before (HK-7).
//!
//! It stands alone because it is the one removal that waits for what an apply made: until then the former thing runs, so
//! that there is no moment in which neither does.

use std::collections::BTreeMap;

use meshplan_schemas::declaration::OnFailure;
use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::report::Outcome;

use super::Machine;
use super::apply::Done;
use super::survey::Survey;
use crate::edge::failpoint::cut;
use crate::kinds::Wanted;
use crate::pure::apply_plan::{Plan, Step, Sweep};
use crate::pure::record::Ledger;
use crate::pure::unit::{Unit, not_up_throughout};

/// Each process that takes over from something: how its unit stood at the first of the two looks, or why it is not up.
pub(super) type Takers = BTreeMap<ResourceName, Result<Option<Unit>, String>>;

/// What is handed over, and to whom.
fn handed(plan: &Plan) -> impl Iterator<Item = (&Sweep, &ResourceName)> {
    plan.steps.iter().filter_map(|step| match step {
        Step::Sweep(sweep) => Some((sweep, sweep.after.as_ref()?)),
        _ => None,
    })
}

impl Machine {
    /// The first look at those that take over, when all is done.
    pub(super) fn takers(&self, survey: &Survey, done: &Done) -> Takers {
        let looked_at = |by: &ResourceName| {
            if let Some(line) = done.lines.iter().find(|line| line.name == *by)
                && matches!(
                    line.outcome,
                    Outcome::Failed | Outcome::Refused | Outcome::Skipped
                )
            {
                return Err(format!("{by}: {}", line.reason));
            }
            self.taker(by, survey)
        };
        handed(&survey.plan)
            .map(|(_, by)| (by.clone(), looked_at(by)))
            .collect()
    }

    fn taker(&self, by: &ResourceName, survey: &Survey) -> Result<Option<Unit>, String> {
        let unit = match survey.wanted.get(by) {
            Some(Wanted::Process(process)) => process.unit(),
            _ => None,
        };
        let unit = unit.ok_or_else(|| format!("{by} is no process that runs"))?;
        self.setup.system.unit(&unit)
    }

    /// The second look at them; what they take over from goes, or stays and says why. A change that goes back takes nothing
    /// away. Says why the apply took longer than it may, where it did.
    pub(super) fn hand_over(
        &self,
        survey: &Survey,
        (takers, on_failure): (&Takers, OnFailure),
        next: &mut Ledger,
        done: &mut Done,
    ) -> Option<String> {
        let goes_back = (done.why.as_ref()).filter(|_| on_failure == OnFailure::Revert);
        let not_up = |by: &ResourceName| match takers.get(by) {
            _ if goes_back.is_some() => Some("this change goes back".to_owned()),
            Some(Err(why)) => Some(why.clone()),
            // The second look has failed it.
            _ if done.has_failed(by) => Some(format!("{by} failed")),
            Some(Ok(first)) => match self.taker(by, survey) {
                Ok(second) => not_up_throughout(first.as_ref(), second.as_ref()),
                Err(why) => Some(why),
            },
            None => Some("nobody looked at it".to_owned()),
        };
        let verdicts: BTreeMap<&ResourceName, Option<String>> =
            handed(&survey.plan).map(|(_, by)| (by, not_up(by))).collect();
        let mut late = None;
        for (sweep, by) in handed(&survey.plan) {
            let is_up = matches!(verdicts.get(by), Some(None));
            if is_up && late.is_none() {
                cut("host::apply::step");
                late = self.too_late();
            }
            match (verdicts.get(by), &sweep.target) {
                (Some(None), _) if late.is_none() => done.lines.extend(self.sweep(sweep, next)),
                (why, target) => {
                    if let Some(target) = target {
                        next.orphan(&sweep.name, target);
                    }
                    let why = why.and_then(Option::as_deref).or(late.as_deref());
                    done.lines.push(sweep.waits(why.unwrap_or_default()));
                }
            }
        }
        late
    }
}
