//! A screen of counters that refreshes every second until it is interrupted.

use super::Sample;
use crate::Failure;
use crate::outlet::Outlet;
use copal_observe::read::Value;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);
/// Home, and clear what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Shows `sample` again and again.
pub(super) fn run(sample: impl Fn() -> Result<Sample, Failure>) -> Result<ExitCode, Failure> {
    let mut outlet = Outlet::open(None, false)?;
    let mut last: HashMap<String, u64> = HashMap::new();
    let mut looked = Instant::now();
    loop {
        let now = sample()?;
        let step = looked.elapsed().as_secs_f64();
        looked = Instant::now();
        let (lines, columns) = size();
        outlet.write(page(&now, &last, step, lines, columns).as_bytes())?;
        outlet.flush()?;
        last = now.values.into_iter().map(|value| (value.name, value.value)).collect();
        std::thread::sleep(INTERVAL);
    }
}

fn page(now: &Sample, last: &HashMap<String, u64>, step: f64, lines: usize, columns: usize) -> String {
    let find = |name: &str| now.values.iter().find(|value| value.name == name).map_or(0, |value| value.value);
    let (hits, misses) = (find("MAIN.cache_hit"), find("MAIN.cache_miss"));
    let up = now.uptime as u64;
    let mut rows = vec![format!(
        "Up {}+{:02}:{:02}:{:02}   hit ratio {}",
        up / 86_400,
        up / 3600 % 24,
        up / 60 % 60,
        up % 60,
        if hits + misses == 0 {
            "-".to_owned()
        } else {
            format!("{:.4}", hits as f64 / (hits + misses) as f64)
        }
    )];
    rows.push(format!("{:<40} {:>16} {:>12} {:>12}", "NAME", "CURRENT", "CHANGE/s", "AVERAGE/s"));
    // As in varnishstat: what everyone wants to see, and only once it is not zero.
    for value in now.values.iter().filter(|value| value.level == "info" && value.value != 0) {
        rows.push(row(value, last.get(&value.name).copied(), step, now.uptime));
    }
    let mut out = CLEAR.to_owned();
    for row in rows.iter().take(lines.saturating_sub(1)) {
        let _ = writeln!(out, "{}", row.chars().take(columns).collect::<String>());
    }
    out
}

fn row(value: &Value, before: Option<u64>, step: f64, uptime: f64) -> String {
    let change = match before {
        Some(before) if step > 0.0 && value.kind != 'b' => {
            format!("{:.2}", value.value.wrapping_sub(before) as i64 as f64 / step)
        }
        _ => ".".to_owned(),
    };
    let average = match value.kind {
        'c' => format!("{:.2}", value.value as f64 / uptime),
        _ => ".".to_owned(),
    };
    let current = match value.kind {
        'b' => format!("{:016x}", value.value),
        _ => value.value.to_string(),
    };
    format!("{:<40} {current:>16} {change:>12} {average:>12}", value.name)
}

/// Lines and columns of the terminal, as far as `stty` can say.
fn size() -> (usize, usize) {
    let asked = Command::new("stty").arg("size").stdin(Stdio::inherit()).stderr(Stdio::null()).output();
    let text = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let mut words = text.split_whitespace().filter_map(|word| word.parse::<usize>().ok().filter(|n| *n > 0));
    (words.next().unwrap_or(40), words.next().unwrap_or(100))
}
