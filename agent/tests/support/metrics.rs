//! Samples of the Prometheus text format, as far as tests need them: name, labels, value.

use std::collections::BTreeMap;

/// One line of an exposition.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// All samples of one scrape.
#[derive(Clone, Debug, Default)]
pub struct Samples(pub Vec<Sample>);

impl Samples {
    /// Reads an exposition; a line that is no sample is a fault of the exporter and panics.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(lines.map(|line| sample(line).unwrap_or_else(|| panic!("not a sample: {line}"))).collect())
    }

    /// The samples of one name that carry all these labels.
    pub fn all<'a>(&'a self, name: &'a str, labels: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |sample| {
            sample.name == name
                && labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|have| have == value))
        })
    }

    /// The sum over the samples of one name that carry all these labels; 0 where there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.all(name, labels).map(|sample| sample.value).fold(0.0, |sum, value| sum + value)
    }

    /// The value of the only sample of one name that carries all these labels.
    pub fn only(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut found = self.all(name, labels);
        let first = found.next()?;
        found.next().is_none().then_some(first.value)
    }
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' ', '\t'])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => label_set(inside)?,
        None => (BTreeMap::new(), rest),
    };
    // What follows the value is a timestamp or, after a number sign, an exemplar.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// Reads up to the closing brace; gives the labels and what follows it.
fn label_set(mut text: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (key, rest) = text.split_once("=\"")?;
        let (value, rest) = quoted(rest)?;
        labels.insert(key.to_owned(), value);
        text = rest;
    }
}

/// Reads up to the closing quote; gives the value without its escapes and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[test]
fn samples_are_read_with_labels_escapes_timestamps_and_exemplars() {
    let text = "# TYPE a counter\na_total 3\nb{x=\"1\",y=\"q\\\"\\n\\\\,}\"} 1.5e-3 1700000000\n\
                c_bucket{le=\"+Inf\"} 17 # {id=\"5\"} 0.7\nd{} NaN\n";
    let samples = Samples::parse(text);
    assert_eq!(samples.0.len(), 4);
    assert_eq!(samples.only("a_total", &[]), Some(3.0));
    assert_eq!(samples.only("b", &[("x", "1"), ("y", "q\"\n\\,}")]), Some(1.5e-3));
    assert_eq!(samples.sum("c_bucket", &[("le", "+Inf")]), 17.0);
    assert_eq!(samples.only("c_bucket", &[("le", "1")]), None);
    assert!(samples.only("d", &[]).is_some_and(f64::is_nan));
}
