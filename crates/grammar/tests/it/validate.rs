//! A validator for the part of JSON Schema that the tests write, to judge what came out by.

use serde_json::Value;

pub(crate) fn valid(schema: &Value, value: &Value) -> bool {
    let Value::Object(map) = schema else { return schema == &Value::Bool(true) };
    map.iter().all(|(key, rule)| match key.as_str() {
        "type" => match rule.as_str().unwrap() {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "integer" => value.as_f64().is_some_and(|f| f.fract() == 0.0),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("{other}"),
        },
        "enum" => rule.as_array().unwrap().contains(value),
        "const" => rule == value,
        "minimum" => value.as_f64().is_none_or(|v| v >= rule.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|v| v <= rule.as_f64().unwrap()),
        "minLength" => value.as_str().is_none_or(|v| v.chars().count() >= count(rule)),
        "maxLength" => value.as_str().is_none_or(|v| v.chars().count() <= count(rule)),
        "pattern" => {
            let rule = regex::Regex::new(rule.as_str().unwrap()).unwrap();
            value.as_str().is_none_or(|v| rule.is_match(v))
        }
        "minItems" => value.as_array().is_none_or(|v| v.len() >= count(rule)),
        "maxItems" => value.as_array().is_none_or(|v| v.len() <= count(rule)),
        "items" => value.as_array().is_none_or(|v| v.iter().all(|v| valid(rule, v))),
        "required" => {
            let keys = rule.as_array().unwrap();
            value
                .as_object()
                .is_none_or(|v| keys.iter().all(|k| v.contains_key(k.as_str().unwrap())))
        }
        "properties" => value.as_object().is_none_or(|v| {
            v.iter().all(|(k, v)| rule.get(k).is_none_or(|schema| valid(schema, v)))
        }),
        "additionalProperties" => {
            let known = |k: &str| map.get("properties").is_some_and(|p| p.get(k).is_some());
            value.as_object().is_none_or(|v| v.iter().all(|(k, v)| known(k) || valid(rule, v)))
        }
        "anyOf" => rule.as_array().unwrap().iter().any(|s| valid(s, value)),
        other => panic!("the tests use no `{other}`"),
    })
}

fn count(rule: &Value) -> usize {
    rule.as_u64().unwrap() as usize
}
