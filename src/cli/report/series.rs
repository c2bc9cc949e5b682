//! The curves of a report.

use serde_json::{Value as Json, json};

/// Most points of a curve; longer ones are drawn as means of stretches.
const MOST_POINTS: usize = 1500;

/// A number over the steps of a run.
pub(super) struct Series {
    /// Such as `train/loss`.
    pub name: String,
    /// Step and value.
    pub points: Vec<(u64, f64)>,
}

impl Series {
    /// Steps and values to draw; of a long series the mean of each stretch at its last step, with
    /// the least and the largest value.
    pub fn drawn(&self) -> Json {
        let stretch = self.points.len().div_ceil(MOST_POINTS).max(1);
        let of = |take: fn(&[(u64, f64)]) -> Json| -> Vec<Json> {
            self.points.chunks(stretch).map(take).collect()
        };
        let values = |points: &[(u64, f64)]| {
            json!(points.iter().map(|p| p.1).sum::<f64>() / points.len() as f64)
        };
        let mut drawn = json!({
            "steps": of(|points| json!(points[points.len() - 1].0)),
            "values": of(values),
        });
        if stretch > 1 {
            drawn["low"] = json!(of(|points| {
                json!(points.iter().map(|p| p.1).fold(f64::INFINITY, f64::min))
            }));
            drawn["high"] = json!(of(|points| {
                json!(points.iter().map(|p| p.1).fold(f64::NEG_INFINITY, f64::max))
            }));
        }
        drawn
    }
}

/// Which curves stand in one picture: the losses first, then each metric over all sets, then what
/// belongs to the run.
pub(super) fn charts<'n>(names: impl Iterator<Item = &'n str>) -> Vec<Json> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for name in names {
        let title = match name {
            "lr" => "learning rate",
            "grad_norm" => "gradient norm",
            "throughput" => "samples or tokens a second",
            name => name.split_once('/').map_or(name, |(_, metric)| metric),
        };
        let at = groups.iter().position(|(other, _)| *other == title);
        let at = at.unwrap_or_else(|| {
            groups.push((title, Vec::new()));
            groups.len() - 1
        });
        if !groups[at].1.contains(&name) {
            groups[at].1.push(name);
        }
    }
    let rank = |names: &[&str]| match names[0] {
        name if name.ends_with("/loss") => 0,
        name if name.contains('/') => 1,
        _ => 2,
    };
    groups.sort_by_key(|(_, names)| rank(names));
    groups.into_iter().map(|(title, names)| json!({"title": title, "series": names})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_of_one_measure_share_a_picture() {
        let names = ["train/loss", "lr", "train/accuracy", "valid/loss", "valid/accuracy"];
        let titles: Vec<Json> = charts(names.into_iter());
        assert_eq!(titles[0], json!({"title": "loss", "series": ["train/loss", "valid/loss"]}));
        assert_eq!(titles[1]["series"], json!(["train/accuracy", "valid/accuracy"]));
        assert_eq!(titles[2]["title"], "learning rate");
    }

    #[test]
    fn long_curves_are_means_with_their_bounds() {
        let points = (1..=6000).map(|step| (step, (step % 4) as f64)).collect();
        let drawn = Series { name: "x".into(), points }.drawn();
        assert_eq!(drawn["steps"].as_array().map(Vec::len), Some(1500));
        assert_eq!((&drawn["steps"][0], &drawn["values"][0]), (&json!(4), &json!(1.5)));
        assert_eq!((&drawn["low"][9], &drawn["high"][9]), (&json!(0.0), &json!(3.0)));
    }
}
