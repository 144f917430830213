//! JSON in the layout of `tc -j -p`: a line for each key of an object, arrays on one line.

use serde_json::Value;

const INDENT: &str = "    ";

/// Returns the text, without a line break at its end.
pub(super) fn pretty(value: &Value) -> String {
    let mut text = String::new();
    write(&mut text, value, 0);
    text
}

/// Appends a value. Arrays and objects both add a level of indentation.
fn write(text: &mut String, value: &Value, level: usize) {
    match value {
        Value::Array(values) => {
            *text += "[ ";
            for (index, value) in values.iter().enumerate() {
                *text += if index == 0 { "" } else { "," };
                write(text, value, level + 1);
            }
            *text += if values.is_empty() { "]" } else { " ]" };
        }
        Value::Object(fields) if fields.is_empty() => *text += "{}",
        Value::Object(fields) => {
            *text += "{";
            for (index, (key, value)) in fields.iter().enumerate() {
                *text += if index == 0 { "\n" } else { ",\n" };
                *text += &INDENT.repeat(level + 1);
                *text += &format!("{}: ", Value::from(key.as_str()));
                write(text, value, level + 1);
            }
            *text += "\n";
            *text += &INDENT.repeat(level);
            *text += "}";
        }
        plain => *text += &plain.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arrays_go_along_the_line_and_objects_down() {
        assert_eq!(pretty(&json!([])), "[ ]");
        let value =
            json!([{"kind": "x", "options": {}}, {"options": {"bands": 3, "priomap": [1, 2], "on": false}}]);
        let expected = r#"[ {
        "kind": "x",
        "options": {}
    },{
        "options": {
            "bands": 3,
            "priomap": [ 1,2 ],
            "on": false
        }
    } ]"#;
        assert_eq!(pretty(&value), expected);
    }
}
