//! What benches measure by: percentiles, what `/proc` says of a process, and the conditions of the run.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Ticks of `/proc/PID/stat` in a second: what Linux shows to programs on every architecture that we build for.
const TICKS_PER_SEC: u64 = 100;

/// Times, and what is said of them.
#[derive(Debug, Clone, Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Takes one down.
    pub fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// The time below which so many per hundred are, in milliseconds.
    #[must_use]
    pub fn ms(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort();
        let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
        sorted.get(at).map_or(f64::NAN, |t| t.as_secs_f64() * 1000.0)
    }

    /// The quotients with the times of another, round by round.
    #[must_use]
    pub fn over(&self, other: &Self) -> Ratios {
        let pairs = self.0.iter().zip(&other.0);
        let mut all: Vec<f64> = pairs.map(|(a, b)| a.as_secs_f64() / b.as_secs_f64()).collect();
        all.sort_by(f64::total_cmp);
        Ratios(all)
    }
}

/// Ratios of rounds, sorted.
#[derive(Debug, Clone, Default)]
pub struct Ratios(Vec<f64>);

impl std::fmt::Display for Ratios {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = |i: usize| self.0.get(i).copied().unwrap_or(f64::NAN);
        let last = self.0.len().saturating_sub(1);
        write!(f, "{:.2} ({:.2} to {:.2})", at(self.0.len() / 2), at(0), at(last))
    }
}

/// The exponent of the growth of `cost` over `size`: least squares of the logarithms.
#[must_use]
pub fn exponent(points: &[(f64, f64)]) -> f64 {
    let count = points.iter().fold(0.0, |n, _| n + 1.0);
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let (x, y) = logs
        .iter()
        .fold((0.0, 0.0), |(x, y), (a, b)| (x + a / count, y + b / count));
    let (over, under) = logs.iter().fold((0.0, 0.0), |(over, under), (a, b)| {
        (over + (a - x) * (b - y), under + (a - x) * (a - x))
    });
    over / under
}

/// The CPU time that a process has used, with that of its threads and without that of its children.
///
/// # Errors
/// It is gone.
pub fn cpu(pid: u32) -> Result<Duration> {
    ticks(&fs::read_to_string(format!("/proc/{pid}/stat"))?, &[13, 14])
}

/// The sum of some fields of a line of `/proc/PID/stat`, by their numbers in proc(5) less one, as a time.
///
/// # Errors
/// The line has no such numbers.
pub fn ticks(stat: &str, fields: &[usize]) -> Result<Duration> {
    // The second field is the program's name in parentheses, and may hold anything.
    let after = stat.rsplit_once(") ").context("a line of /proc/PID/stat")?.1;
    let words: Vec<&str> = after.split_whitespace().collect();
    let mut ticks = 0;
    for field in fields {
        let word = words.get(field - 2).context("a field of /proc/PID/stat")?;
        ticks += word.parse::<u64>()?;
    }
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SEC))
}

/// A number that `/proc/PID/FILE` gives under a name, without its unit.
///
/// # Errors
/// The process is gone, or the file has no such name.
pub fn proc_number(pid: u32, file: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}"))?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = value.with_context(|| format!("/proc/PID/{file} has {name}"))?;
    let digits = value.split_whitespace().next().context("a number")?;
    Ok(digits.parse()?)
}

/// The mean load of the last minute.
#[must_use]
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// A disk whose fdatasync of 4 KiB is measured between the rounds.
#[derive(Debug)]
pub struct Disk {
    file: File,
    times: Times,
}

impl Disk {
    /// A file in this folder.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn of(folder: &Path) -> Result<Self> {
        let file = File::create(folder.join("fdatasync")).context("a file beside what is measured")?;
        Ok(Self {
            file,
            times: Times::default(),
        })
    }

    /// Measures a few.
    ///
    /// # Errors
    /// The disk's.
    pub fn measure(&mut self) -> Result<()> {
        for _ in 0..4 {
            self.file.write_all(&[7; 4096])?;
            let since = Instant::now();
            self.file.sync_data()?;
            self.times.add(since.elapsed());
        }
        Ok(())
    }

    /// The median so far, in milliseconds.
    #[must_use]
    pub fn p50(&self) -> f64 {
        self.times.ms(50)
    }
}
