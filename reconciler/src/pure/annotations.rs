//! Findings as forges show them beside the lines of a change (FR-1).
//!
//! - GitHub, Forgejo and Gitea: workflow commands on the standard output of a job
//!   (docs.github.com, "Workflow commands for GitHub Actions"; escapes as in `actions/toolkit`, `command.ts`).
//! - GitLab: a code quality report, an artifact of a job (docs.gitlab.com, "Code Quality", "Report format").

use meshplan_schemas::digest::Digest;
use meshplan_schemas::finding::Finding;
use serde_json::{Value, json};

/// One finding as a workflow command, without a line end. `folder` is the fleet's folder in the repository, with a
/// `/` at its end, or empty.
#[must_use]
pub fn github(finding: &Finding, folder: &str) -> String {
    let level = if finding.is_error() { "error" } else { "warning" };
    let mut properties = Vec::new();
    if !finding.file.is_empty() {
        properties.push(format!("file={}", property(&format!("{folder}{}", finding.file))));
    }
    if finding.line > 0 {
        properties.push(format!("line={}", finding.line));
        properties.push(format!("col={}", finding.column));
        properties.push(format!(
            "endColumn={}",
            finding.column.saturating_add(finding.width)
        ));
    }
    let space = if properties.is_empty() { "" } else { " " };
    format!(
        "::{level}{space}{}::{}",
        properties.join(","),
        data(&message(finding))
    )
}

/// All findings as a code quality report.
#[must_use]
pub fn gitlab(findings: &[Finding], folder: &str) -> Value {
    let issue = |finding: &Finding| {
        // GitLab shows one issue a fingerprint, and wants it the same from run to run.
        let what = format!(
            "{}\0{}\0{}\0{}",
            finding.file, finding.line, finding.column, finding.message
        );
        // A report without a path and a line is refused as a whole: what is about the tree stands at fleet.toml.
        let file = if finding.file.is_empty() {
            "fleet.toml"
        } else {
            &finding.file
        };
        json!({
            "description": message(finding),
            "check_name": "meshplan-check",
            "fingerprint": Digest::of(what.as_bytes()).hex(),
            "severity": if finding.is_error() { "blocker" } else { "minor" },
            "location": { "path": format!("{folder}{file}"), "lines": { "begin": finding.line.max(1) } },
        })
    };
    findings.iter().map(issue).collect()
}

fn message(finding: &Finding) -> String {
    match &finding.help {
        Some(help) => format!("{}: {help}", finding.message),
        None => finding.message.clone(),
    }
}

/// Text after the second `::`.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// The value of a property.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use meshplan_schemas::finding::Source;

    use super::*;

    fn finding() -> Finding {
        let source = Source::new("nodes/a,b:c.toml", b"id = 1\n".as_slice().into()).unwrap();
        source.error(5..6, "100% wrong:\nno, id").help("a uuid")
    }

    // holds: FR-1
    #[test]
    fn a_workflow_command_is_one_line_and_its_parts_cannot_be_taken_for_each_other() {
        assert_eq!(
            github(&finding(), ""),
            "::error file=nodes/a%2Cb%3Ac.toml,line=1,col=6,endColumn=7::100%25 wrong:%0Ano, id: a uuid"
        );
        let tree = Finding::of_file("", "no fleet").warning();
        assert_eq!(github(&tree, "fleet/"), "::warning::no fleet");
        let file = Finding::of_file("fleet.toml", "x");
        assert_eq!(github(&file, "fleet/"), "::error file=fleet/fleet.toml::x");
    }

    // holds: FR-1
    #[test]
    fn a_code_quality_report_has_what_gitlab_asks_for_and_no_two_fingerprints_alike() {
        let findings = [
            finding(),
            Finding::of_file("", "no fleet").warning(),
            Finding::of_file("", "no plan"),
        ];
        let report = gitlab(&findings, "fleet/");
        let issues = report.as_array().unwrap();
        assert_eq!(
            issues[0]["location"],
            json!({ "path": "fleet/nodes/a,b:c.toml", "lines": { "begin": 1 } })
        );
        assert_eq!(
            (&issues[0]["severity"], &issues[1]["severity"]),
            (&json!("blocker"), &json!("minor"))
        );
        assert_eq!(issues[1]["location"]["lines"]["begin"], 1);
        assert_ne!(issues[1]["fingerprint"], issues[2]["fingerprint"]);
        assert_eq!(report, gitlab(&findings, "fleet/"));
    }
}
