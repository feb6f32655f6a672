//! `meshplan fleet invite NAME`: what is asked for, and how tokens are shown (LK-3).
//!
//! The rows are stored before a token is printed: one that was seen and is not known would be refused.

use std::io::Write;

use clap::Args as ClapArgs;
use meshplan_schemas::ident::{ModuleName, RoleName};
use meshplan_schemas::session::token::Token;
use serde_json::json;

use crate::edge::enrol::InviteSpec;
use crate::pure::enrol::InviteRow;

/// Makes one-time tokens with which machines enrol.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// The node's name; with --count one that has `{n}` in it, as in `kiosk-{n}`.
    pub name: String,
    /// A role of the new record; may be given several times.
    #[arg(long = "role", value_name = "ROLE")]
    pub roles: Vec<RoleName>,
    /// A module of the new record; may be given several times.
    #[arg(long = "module", value_name = "MODULE")]
    pub modules: Vec<ModuleName>,
    /// How many tokens.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub count: u32,
    /// For how long a token holds: a number and s, m, h or d.
    #[arg(long, default_value = "1d", value_name = "TIME", value_parser = seconds)]
    pub expires: u32,
    /// The token is itself the consent: the machine is admitted without a person.
    #[arg(long)]
    pub admit: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl Args {
    /// What is asked for.
    #[must_use]
    pub fn spec(&self) -> InviteSpec {
        InviteSpec {
            name: self.name.clone(),
            count: self.count,
            roles: self.roles.clone(),
            modules: self.modules.clone(),
            expires_secs: self.expires,
            admit: self.admit,
        }
    }
}

/// `90s`, `15m`, `12h`, `7d` in seconds.
fn seconds(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is no time; it is a number above 0 and s, m, h or d, as in `12h`");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let number: u32 = text
        .strip_suffix(unit)
        .and_then(|number| number.parse().ok())
        .ok_or_else(wrong)?;
    let unit = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(unit)
        .filter(|secs| *secs > 0)
        .ok_or_else(wrong)
}

/// Shows tokens that are stored already: the command to run on each machine, and what follows.
///
/// # Errors
/// Nothing can be written to `out`.
pub fn print(made: &[(Token, InviteRow)], as_json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    if as_json {
        let rows: Vec<_> = made
            .iter()
            .map(|(token, row)| {
                json!({
                    "invite": row.id, "name": row.name, "node": row.node, "expires_at": row.expires_at,
                    "admit": row.admit, "token": token.to_string(),
                })
            })
            .collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
        return Ok(());
    }
    for (token, row) in made {
        writeln!(out, "# {} (invitation {})", row.name, row.id)?;
        writeln!(out, "meshplan-host enrol {token}")?;
    }
    let Some((_, row)) = made.first() else {
        return Ok(());
    };
    let until = jiff::Timestamp::from_second(row.expires_at)
        .map_or_else(|_| row.expires_at.to_string(), |at| at.to_string());
    let next = if row.admit {
        "the machine is admitted as soon as it asks"
    } else {
        "compare the fingerprint that the machine shows before you merge its admission"
    };
    writeln!(out, "# each works once, until {until}; {next}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::edge::enrol::{FleetFacts, make_invites};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    // holds: LK-3
    #[test]
    fn a_printed_line_is_the_command_to_run_and_its_token_reads_back() {
        let line = [
            "invite",
            "kiosk-{n}",
            "--count",
            "2",
            "--role",
            "kiosk",
            "--expires",
            "2h",
        ];
        let args = Line::parse_from(line).args;
        assert_eq!(args.expires, 7200);
        let facts = FleetFacts {
            fleet: "nexus0".parse().unwrap(),
            addresses: vec!["ws://127.0.0.1:7946/mesh".into()],
            link_key: meshplan_schemas::session::LinkSecret::from_bytes(&[9; 32])
                .unwrap()
                .public(),
            authors: vec![],
        };
        let made = make_invites(&args.spec(), &facts, |_| None, 0).unwrap();
        let mut out = Vec::new();
        print(&made, false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let tokens: Vec<Token> = text
            .lines()
            .filter_map(|line| line.strip_prefix("meshplan-host enrol "))
            .map(|token| token.parse().unwrap())
            .collect();
        assert_eq!(tokens, [made[0].0.clone(), made[1].0.clone()]);
        assert!(text.contains("until 1970-01-01T02:00:00Z; compare the fingerprint"));
    }

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        for bad in ["", "h", "0h", "1", "1w", "-1h", "1.5h", "99999999d", "1hh"] {
            assert!(seconds(bad).is_err(), "{bad:?} was taken for a time");
        }
        assert_eq!((seconds("90s"), seconds("7d")), (Ok(90), Ok(604_800)));
    }
}
