//! JSON of many shapes and of any length.

/// A way to make a value of about so many bytes.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    make: fn(usize) -> String,
}

impl Shape {
    pub(crate) fn text(&self, length: usize) -> String {
        (self.make)(length)
    }
}

/// A list of one part, again and again.
fn list(part: &str, length: usize) -> String {
    let count = (length / (part.len() + 1)).max(1);
    format!("[{}]", vec![part; count].join(","))
}

/// An object with fields whose values are all one.
fn object(value: &str, length: usize) -> String {
    let count = (length / (value.len() + 10)).max(1);
    let fields: Vec<String> = (0..count).map(|at| format!("\"{at:06x}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// Brackets within each other.
fn nested(open: &str, value: &str, close: &str, levels: usize) -> String {
    format!("{}{value}{}", open.repeat(levels), close.repeat(levels))
}

pub(crate) static SHAPES: [Shape; 14] = [
    Shape { name: "objects of one field", make: |n| list("{\"a\":0}", n) },
    Shape { name: "empty objects", make: |n| list("{}", n) },
    Shape { name: "lists of one element", make: |n| list("[0]", n) },
    Shape { name: "numbers", make: |n| list("0", n) },
    Shape { name: "long numbers", make: |n| list("1.2345678901234567e-300", n) },
    Shape { name: "short strings", make: |n| list("\"a\"", n) },
    Shape { name: "deep lists", make: |n| list(&nested("[", "0", "]", 100), n) },
    Shape { name: "deep objects", make: |n| list(&nested("{\"a\":", "0", "}", 60), n) },
    Shape { name: "too deep", make: |n| nested("[", "", "]", n / 2) },
    Shape { name: "many fields", make: |n| object("0", n) },
    Shape { name: "many fields of objects", make: |n| object("{\"type\":\"string\"}", n) },
    Shape { name: "long strings", make: |n| list(&format!("\"{}\"", "word ".repeat(n / 20)), n) },
    Shape { name: "one string", make: |n| format!("\"{}\"", "a \u{e4}".repeat(n / 4)) },
    Shape { name: "escapes", make: |n| format!("\"{}\"", "\\n\\u00e4".repeat(n / 8)) },
];
