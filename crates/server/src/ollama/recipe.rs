//! A model that is made of another: what it is told, its template, and its parameters, as a Modelfile has them.

use crate::fault::Fault;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::fmt::Write;

/// What a model has beside its file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct Recipe {
    /// The name of the model that it was made from.
    pub from: Option<String>,
    /// What the model is told before a conversation.
    pub system: Option<String>,
    /// Its chat template, in Jinja.
    pub template: Option<String>,
    /// How tokens are chosen where a request does not say, by Ollama's names.
    pub parameters: Map<String, Json>,
    /// A text, or several.
    pub license: Option<Json>,
}

/// Bytes of a recipe, as JSON.
const LONGEST: usize = 128 << 10;

impl Recipe {
    /// Checks its size: it is kept, in memory and on the disk.
    ///
    /// # Errors
    /// When it is too long.
    pub fn check_size(&self) -> Result<(), Fault> {
        let bytes = serde_json::to_string(self).map_or(usize::MAX, |text| text.len());
        if bytes <= LONGEST {
            return Ok(());
        }
        let message = format!(
            "system, template, parameters and license are {bytes} bytes together, and a model may have {LONGEST}: \
             shorten them"
        );
        Err(Fault::new(StatusCode::PAYLOAD_TOO_LARGE, message).code("recipe_too_large"))
    }

    /// The same in the place of which this is made: what this does not say is that one's.
    pub fn over(self, base: &Recipe) -> Recipe {
        let mut parameters = base.parameters.clone();
        parameters.extend(self.parameters);
        Recipe {
            from: self.from.or_else(|| base.from.clone()),
            system: self.system.or_else(|| base.system.clone()),
            template: self.template.or_else(|| base.template.clone()),
            license: self.license.or_else(|| base.license.clone()),
            parameters,
        }
    }

    /// As a Modelfile.
    pub(crate) fn modelfile(&self, name: &str) -> String {
        let quoted = |text: &str| match text.contains('\n') {
            true => format!("\"\"\"{text}\"\"\""),
            false => format!("{text:?}"),
        };
        let mut text = format!("FROM {}\n", self.from.as_deref().unwrap_or(name));
        // Writing to a string does not fail.
        for (word, value) in [("TEMPLATE", &self.template), ("SYSTEM", &self.system)] {
            if let Some(value) = value {
                let _ = writeln!(text, "{word} {}", quoted(value));
            }
        }
        for (name, value) in &self.parameters {
            let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            for value in values {
                let value = value.as_str().map_or_else(|| value.to_string(), quoted);
                let _ = writeln!(text, "PARAMETER {name} {value}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options as ServerOptions;
    use serde_json::json;

    fn recipe(value: Json) -> Recipe {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn parameters_become_options() {
        let mut options = ServerOptions::default();
        let made = recipe(json!({"system": "Be brief.", "parameters": {
            "temperature": 0.5, "top_k": 7, "stop": ["END"], "num_predict": 9, "num_ctx": 512, "num_gpu": 3,
        }}));
        assert_eq!(made.apply(&mut options).unwrap(), Some(512));
        assert_eq!((options.sampler.temperature, options.sampler.top_k), (0.5, 7));
        assert_eq!((&*options.stop, options.answer_limit), (&["END".to_owned()][..], Some(9)));
        assert_eq!(options.system.as_deref(), Some("Be brief."));
        for wrong in [
            json!({"temperature": -1}),
            json!({"mirostat": 2}),
            json!({"seed": 4}),
            json!({"top_p": "x"}),
        ] {
            let made = recipe(json!({"parameters": wrong}));
            assert!(made.apply(&mut ServerOptions::default()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn its_size_is_bounded() {
        let of = |bytes: usize| recipe(json!({"system": "x".repeat(bytes)})).check_size();
        assert!(of(LONGEST - 200).is_ok());
        assert_eq!(of(LONGEST).unwrap_err().code, Some("recipe_too_large"));
    }

    #[test]
    fn what_is_not_said_is_that_of_the_other() {
        let base = recipe(
            json!({"from": "a", "system": "One.", "parameters": {"top_k": 1, "top_p": 0.5}}),
        );
        let made = recipe(json!({"from": "b", "parameters": {"top_k": 2}, "template": "x\ny"}));
        let made = made.over(&base);
        assert_eq!(made.system.as_deref(), Some("One."));
        assert_eq!(made.parameters["top_k"], 2);
        let text = "FROM b\nTEMPLATE \"\"\"x\ny\"\"\"\nSYSTEM \"One.\"\nPARAMETER top_k 2\nPARAMETER top_p 0.5\n";
        assert_eq!(made.modelfile("c"), text);
    }
}
