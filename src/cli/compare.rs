//! `bench --compare`: which times of two files of measurements differ by more than they vary.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::CliError;

/// Smallest relative change of a median that is told as one.
const RELEVANT: f64 = 0.03;
/// Normal deviate of the rank sum beyond which two sets of times differ: 1% two-sided.
const DEVIATE: f64 = 2.576;
/// With fewer times on a side, that deviate cannot be reached.
const FEWEST: usize = 6;

/// All times of each measurement, by its name. Runs of the same configuration in one file are put
/// together, so what varies from run to run counts as variation.
type Times = BTreeMap<String, Vec<f64>>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Slower,
    Faster,
    Same,
    TooFew,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Slower => "slower",
            Verdict::Faster => "faster",
            Verdict::Same => "same",
            Verdict::TooFew => "too few times",
        }
    }
}

/// Prints each measurement that is in both files, and which are in one alone. The exit code is 1
/// where anything became slower.
pub(super) fn run(before: &Path, after: &Path) -> Result<u8, CliError> {
    let (old, new) = (read(before)?, read(after)?);
    let mut slower = 0;
    for (name, times) in &old {
        let Some(later) = new.get(name) else {
            super::print(&format!("{name}: only in {}", before.display()));
            continue;
        };
        let verdict = judge(times, later);
        slower += usize::from(verdict == Verdict::Slower);
        let (a, b) = (median(times), median(later));
        let change = (b / a - 1.0) * 100.0;
        let word = verdict.word();
        super::print(&format!("{a:>12.4} → {b:>12.4}  {change:>+7.1} %  {word:<13}  {name}"));
    }
    for name in new.keys().filter(|name| !old.contains_key(*name)) {
        super::print(&format!("{name}: only in {}", after.display()));
    }
    if !old.keys().any(|name| new.contains_key(name)) {
        return Err(CliError::Usage(format!(
            "{} and {} have no measurement in common",
            before.display(),
            after.display()
        )));
    }
    super::print(&format!("{slower} slower"));
    Ok(u8::from(slower > 0))
}

/// Reads JSON documents, one after another.
fn read(path: &Path) -> Result<Times, CliError> {
    let unfit = |reason: String| CliError::Usage(format!("{}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| unfit(error.to_string()))?;
    let mut all = Times::new();
    for document in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        let document = document.map_err(|error| unfit(error.to_string()))?;
        collect(&document, &mut all)
            .ok_or_else(|| unfit("this is not what `wootz bench` prints".into()))?;
    }
    if all.is_empty() {
        return Err(unfit("there are no measurements in it".into()));
    }
    Ok(all)
}

/// Takes up the times of one document of `bench`; nothing where it is none.
fn collect(document: &Value, all: &mut Times) -> Option<()> {
    let mut name = document["config"].as_str()?.to_owned();
    for set in document["sets"].as_array()? {
        name = format!("{name} {}", set.as_str()?);
    }
    let name = format!("{name} on {}", document["device"].as_str()?);
    let mut add = |name: String, times: &Value| -> Option<()> {
        let times = times.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<_>>>()?;
        all.entry(name).or_default().extend(times);
        Some(())
    };
    let Some(ops) = document["ops"].as_array() else {
        return add(format!("{name}: ms of a step"), &document["block_ms"]);
    };
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for op in ops {
        let words = ["op", "pass", "scope", "shapes"].map(|key| op[key].as_str());
        let words = words.into_iter().collect::<Option<Vec<_>>>()?;
        let filled: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let op_name = filled.join(" ");
        let times = seen.entry(op_name.clone()).or_default();
        *times += 1;
        let number = if *times > 1 { format!(" #{times}") } else { String::new() };
        add(format!("{name}: µs of {op_name}{number}"), &op["us"])?;
    }
    Some(())
}

/// Whether the later times differ: by more than [`RELEVANT`] in the median, and by the rank sum
/// (Mann and Whitney 1947, normal approximation with correction for continuity).
fn judge(before: &[f64], after: &[f64]) -> Verdict {
    if before.len() < FEWEST || after.len() < FEWEST {
        return Verdict::TooFew;
    }
    let (n, m) = (before.len() as f64, after.len() as f64);
    let pairs = before.iter().flat_map(|a| after.iter().map(move |b| (a, b)));
    let wins: f64 = pairs.map(|(a, b)| if b > a { 1.0 } else { f64::from(b == a) / 2.0 }).sum();
    let beyond = ((wins - n * m / 2.0).abs() - 0.5) / (n * m * (n + m + 1.0) / 12.0).sqrt();
    let change = median(after) / median(before) - 1.0;
    if beyond <= DEVIATE || change.abs() <= RELEVANT {
        Verdict::Same
    } else if change > 0.0 {
        Verdict::Slower
    } else {
        Verdict::Faster
    }
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_beyond_the_spread_is_told_and_noise_is_not() {
        let around = |middle: f64| -> Vec<f64> {
            (0..9).map(|i| middle * (1.0 + 0.01 * (f64::from(i) - 4.0))).collect()
        };
        assert_eq!(judge(&around(10.0), &around(11.0)), Verdict::Slower);
        assert_eq!(judge(&around(10.0), &around(9.0)), Verdict::Faster);
        assert_eq!(judge(&around(10.0), &around(10.2)), Verdict::Same);
        // A large difference of medians, but the times of both lie among each other.
        let wide = [5.0, 6.0, 7.0, 20.0, 21.0, 22.0, 23.0];
        let also = [5.5, 6.5, 7.5, 8.5, 20.5, 21.5, 22.5];
        assert_eq!(judge(&wide, &also), Verdict::Same);
        assert_eq!(judge(&[1.0; 5], &[2.0; 9]), Verdict::TooFew);
    }

    #[test]
    fn the_level_is_kept_where_nothing_changed() {
        // Times drawn from one distribution: about one comparison in a hundred may be told as a
        // change, and fewer pass the bound on the medians as well.
        let draw = |i: u32| {
            let words = crate::ops::philox::block([i, 0, 0, 0], [7, 7]);
            1.0 + f64::from(words[0]) / f64::from(u32::MAX)
        };
        let told = (0..2000)
            .filter(|trial| {
                let times: Vec<f64> = (0..20).map(|i| draw(trial * 20 + i)).collect();
                judge(&times[..10], &times[10..]) != Verdict::Same
            })
            .count();
        assert!((2..=36).contains(&told), "{told} of 2000");
    }
}
