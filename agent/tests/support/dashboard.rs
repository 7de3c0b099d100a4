//! Reads dashboards/fsyncscope.json as Grafana would.

use serde_json::Value;

use super::tool;

pub const FILE: &str = "dashboards/fsyncscope.json";

/// A query and the panel it belongs to.
pub struct Query {
    pub panel: String,
    pub promql: String,
}

pub fn read() -> Value {
    serde_json::from_str(&tool::read(FILE)).expect("the dashboard is JSON")
}

/// All panels that show something: rows are only headings.
pub fn panels(dashboard: &Value) -> Vec<&Value> {
    let panels = dashboard["panels"].as_array().expect("the dashboard has panels");
    panels.iter().filter(|panel| panel["type"] != "row").collect()
}

/// Every query with its variables filled in, as a person would who looks at everything.
pub fn queries(dashboard: &Value) -> Vec<Query> {
    let mut queries = Vec::new();
    for panel in panels(dashboard) {
        for target in panel["targets"].as_array().expect("a panel has targets") {
            let expression = target["expr"].as_str().expect("a target has a query");
            queries.push(Query { panel: text(&panel["title"]).to_owned(), promql: filled_in(expression) });
        }
    }
    queries
}

/// Metric and label of every variable that asks for the values of a label.
pub fn variables(dashboard: &Value) -> Vec<(String, String)> {
    let variables = dashboard["templating"]["list"].as_array().expect("the dashboard has variables");
    let queries = variables.iter().filter_map(|variable| variable["query"]["query"].as_str());
    queries
        .map(|query| {
            let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (metric, label) = inner.and_then(|inner| inner.rsplit_once(", ")).expect("label_values(metric, label)");
            (filled_in(metric), label.to_owned())
        })
        .collect()
}

fn filled_in(expression: &str) -> String {
    let mut promql = expression.replace("$__rate_interval", "10s").replace("$__range", "60s");
    for variable in ["$instance", "$process", "$thread", "$device"] {
        promql = promql.replace(variable, ".*");
    }
    assert!(!promql.contains('$'), "an unknown variable: {promql}");
    promql
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
